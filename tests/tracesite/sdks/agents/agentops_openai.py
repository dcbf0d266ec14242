"""AgentOps, configured by AGENTOPS_* variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import agentops
from agentops.sdk.decorators import agent, tool
from openai import OpenAI
from planner import plan

agentops.init(auto_start_session=False)
trace = agentops.start_trace("sdk-session")


def run_agent(name: str, question: str, function: Callable[[], str]) -> str:
    @agent(name=name)
    class Agent:
        def run(self) -> str:
            return function()

    return Agent().run()


def run_tool(name: str, arguments: dict[str, Any], function: Callable[..., str]) -> str:
    return str(tool(name=name)(function)(**arguments))


print(plan(OpenAI(), run_agent, run_tool))
agentops.end_trace(trace, end_state="Success")
