"""The agent of planner.py, written with the OpenAI Agents SDK, on the API that the first argument of a script names."""

from __future__ import annotations

import asyncio
import sys

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from agents.models.interface import Model
from openai import AsyncOpenAI

QUESTION = "Plan a day in Oslo."
MODEL = "gpt-4o-mini"


@function_tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"31 degrees in {city}"


@function_tool(failure_error_function=lambda _context, error: f"Error: {error}")
def get_traffic(city: str) -> str:
    """Get the traffic of a city."""
    raise RuntimeError(f"no traffic data for {city}")


async def plan(session_id: str) -> str:
    """Return the answer of the agent. Its own requests are streamed, those of the expert are not."""
    client = AsyncOpenAI()
    model: Model = (
        OpenAIResponsesModel(MODEL, client) if sys.argv[1] == "responses" else OpenAIChatCompletionsModel(MODEL, client)
    )
    settings = ModelSettings(temperature=0.2)
    expert = Agent(name="expert", instructions="You are an expert on food.", model=model, model_settings=settings)

    @function_tool
    async def ask_expert(question: str) -> str:
        """Ask an expert."""
        return str((await Runner.run(expert, question)).final_output)

    planner = Agent(
        name="planner",
        instructions="You plan trips.",
        model=model,
        model_settings=settings,
        tools=[get_weather, get_traffic, ask_expert],
    )
    config = RunConfig(workflow_name="Trips", group_id=session_id, trace_metadata={"user_id": "sdk-user"})
    result = Runner.run_streamed(planner, QUESTION, run_config=config)
    async for _event in result.stream_events():
        pass
    return str(result.final_output)


def run(session_id: str = "sdk-session") -> None:
    print(asyncio.run(plan(session_id)))
