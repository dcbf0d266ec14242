"""OpenLLMetry, configured by TRACELOOP_* variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openai import OpenAI
from planner import plan
from traceloop.sdk import Traceloop
from traceloop.sdk.decorators import agent, tool

Traceloop.init(app_name="planner", telemetry_enabled=False)


def run_agent(name: str, question: str, function: Callable[[], str]) -> str:
    @agent(name=name)
    def run(question: str) -> str:
        return function()

    return str(run(question))


def run_tool(name: str, arguments: dict[str, Any], function: Callable[..., str]) -> str:
    return str(tool(name=name)(function)(**arguments))


Traceloop.set_association_properties({"session_id": "sdk-session", "user_id": "sdk-user"})
print(plan(OpenAI(), run_agent, run_tool))
