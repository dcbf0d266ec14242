"""Pydantic AI with Logfire, configured by OTEL_* variables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable

import logfire
from planner import EXPERT, PLANNER, QUESTION, TEMPERATURE
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel

logfire.configure(send_to_logfire=False, console=False)
logfire.instrument_pydantic_ai()
model = OpenAIChatModel("gpt-4o-mini", settings={"temperature": TEMPERATURE})
expert = Agent(model, name="expert", instructions=EXPERT)
planner = Agent(model, name="planner", instructions=PLANNER)


@planner.tool_plain
def get_weather(city: str) -> str:
    return f"31 degrees in {city}"


@planner.tool_plain
def get_traffic(city: str) -> str:
    raise ModelRetry(f"no traffic data for {city}")


@planner.tool_plain
async def ask_expert(question: str) -> str:
    return (await expert.run(question)).output


async def consume(_context: object, events: AsyncIterable[object]) -> None:
    """Make requests of the planner streamed."""
    async for _event in events:
        pass


async def main() -> None:
    result = await planner.run(QUESTION, conversation_id="sdk-session", event_stream_handler=consume)
    print(result.output)


asyncio.run(main())
logfire.force_flush()
