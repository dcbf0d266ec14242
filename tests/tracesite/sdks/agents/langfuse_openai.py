"""Langfuse, configured by LANGFUSE_* variables: its client for OpenAI, and observations for the agents and tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langfuse import get_client, propagate_attributes
from langfuse.openai import OpenAI
from planner import plan

langfuse = get_client()


def run_agent(name: str, question: str, function: Callable[[], str]) -> str:
    with langfuse.start_as_current_observation(name=name, as_type="agent", input=question) as span:
        answer = function()
        span.update(output=answer)
        if name == "planner":
            span.score_trace(name="helpful", value=0.75, comment="Exact.")
        return answer


def run_tool(name: str, arguments: dict[str, Any], function: Callable[..., str]) -> str:
    with langfuse.start_as_current_observation(name=name, as_type="tool", input=arguments) as span:
        try:
            result = function(**arguments)
        except RuntimeError as error:
            span.update(level="ERROR", status_message=str(error))
            raise
        span.update(output=result)
        span.score(name=f"{name} used", value=1, data_type="BOOLEAN")
        return result


with propagate_attributes(session_id="sdk-session", user_id="sdk-user"):
    print(plan(OpenAI(), run_agent, run_tool))
langfuse.create_score(session_id="sdk-session", name="mood", value="calm", data_type="CATEGORICAL")
langfuse.flush()
