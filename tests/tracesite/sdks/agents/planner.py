"""An agent in plain Python: two tools, one of which fails, and an expert that it asks by a third. Its requests are streamed.

The scripts beside it instrument it with the SDK that they are named after.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openai import OpenAI

QUESTION = "Plan a day in Oslo."
PLANNER = "You plan trips."
EXPERT = "You are an expert on food."
MODEL = "gpt-4o-mini"
TEMPERATURE = 0.2
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}},
        },
    }
    for name, description, argument in (
        ("get_weather", "Get the weather of a city", "city"),
        ("get_traffic", "Get the traffic of a city", "city"),
        ("ask_expert", "Ask an expert", "question"),
    )
]

RunAgent = Callable[[str, str, Callable[[], str]], str]
"""Runs a function as an agent: (name, question, function)."""
RunTool = Callable[[str, dict[str, Any], Callable[..., str]], str]
"""Runs a function as a tool: (name, arguments, function)."""


def get_weather(city: str) -> str:
    return f"31 degrees in {city}"


def get_traffic(city: str) -> str:
    raise RuntimeError(f"no traffic data for {city}")


def plan(client: OpenAI, run_agent: RunAgent, run_tool: RunTool) -> str:
    """Return the answer of the agent."""

    def ask_expert(question: str) -> str:
        messages = [{"role": "system", "content": EXPERT}, {"role": "user", "content": question}]
        return run_agent("expert", question, lambda: complete(client, messages, stream=False)["content"])

    functions = {"get_weather": get_weather, "get_traffic": get_traffic, "ask_expert": ask_expert}

    def planner() -> str:
        messages: list[Any] = [{"role": "system", "content": PLANNER}, {"role": "user", "content": QUESTION}]
        while True:
            reply = complete(client, messages, stream=True, tools=TOOLS)
            if not reply.get("tool_calls"):
                return str(reply["content"])
            messages.append(reply)
            for call in reply["tool_calls"]:
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                try:
                    result = run_tool(name, arguments, functions[name])
                except RuntimeError as error:
                    result = f"Error: {error}"
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    return run_agent("planner", QUESTION, planner)


def complete(client: OpenAI, messages: list[Any], *, stream: bool, **options: Any) -> dict[str, Any]:
    """Request a completion, and return its message."""
    if not stream:
        reply = client.chat.completions.create(model=MODEL, messages=messages, temperature=TEMPERATURE, **options)
        return reply.choices[0].message.model_dump(exclude_none=True)
    chunks = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        temperature=TEMPERATURE,
        stream=True,
        stream_options={"include_usage": True},
        **options,
    )
    content, calls = "", []
    for chunk in chunks:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            calls += [call.model_dump(exclude={"index"}, exclude_none=True) for call in choice.delta.tool_calls or ()]
    return {"role": "assistant", "content": content or None, **({"tool_calls": calls} if calls else {})}
