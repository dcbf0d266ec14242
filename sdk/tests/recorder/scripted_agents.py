"""The agent of tests/tracesite/sdks/agents/planner.py with the real clients of OpenAI and Anthropic, on a scripted provider.

It calls two tools, one of which fails, and asks an expert, another agent, by a third tool. It works with every API of the
clients, sync and async, with and without streams. The SDKs are imported when they are used, so that it runs with any version.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

PLANNER = "You plan trips."
EXPERT = "You are an expert on food."
QUESTION = "Plan a day in Oslo."
MODEL = "gpt-4o-mini"
NAMES = {"get_weather": "city", "get_traffic": "city", "ask_expert": "question"}
"""Tools, and their only parameter."""


@dataclass
class Call:
    id: str
    name: str
    args: dict[str, Any]


@dataclass
class Turn:
    """A reply of a model."""

    text: str
    calls: list[Call]
    items: list[Any]
    """What the history gets."""


async def awaited(value: Any) -> Any:
    return await value if isawaitable(value) else value


async def all_of(stream: Any) -> list[Any]:
    """Return everything that a sync or async stream yields."""
    if hasattr(stream, "__aiter__"):
        return [item async for item in stream]
    return list(stream)


async def entered(manager: Any, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Call `work` inside a sync or async context manager."""
    if hasattr(manager, "__aenter__"):
        async with manager as inside:
            return await work(inside)
    with manager as inside:
        return await work(inside)


class Chat:
    """OpenAI's chat completions."""

    modes = ("create", "create streamed", "stream", "raw", "raw streamed", "streaming response")

    def __init__(self, client: Any, mode: str) -> None:
        self.client, self.mode = client, mode

    def question(self, text: str) -> list[Any]:
        return [{"role": "user", "content": text}]

    def result(self, call: Call, output: str, failed: bool) -> list[Any]:
        return [{"role": "tool", "tool_call_id": call.id, "content": output}]

    async def ask(self, system: str, history: list[Any], **options: Any) -> Turn:
        completions = self.client.chat.completions
        options = {"model": MODEL, "messages": [{"role": "system", "content": system}, *history], **options}
        if system == PLANNER:
            # Older versions of `stream` take strict tools only.
            options["tools"] = [
                {"type": "function", "function": {**schema, "strict": True}} for schema in schemas("parameters")
            ]
        if "streamed" in self.mode or self.mode == "stream":
            options["stream_options"] = {"include_usage": True}
        if self.mode == "create":
            return self.turn((await awaited(completions.create(**options))).choices[0].message)
        if self.mode == "raw":
            raw = await awaited(completions.with_raw_response.create(**options))
            return self.turn((await awaited(raw.parse())).choices[0].message)
        if self.mode == "stream":
            if not hasattr(completions, "stream"):
                completions = self.client.beta.chat.completions
            return self.turn(await entered(completions.stream(**options), self.final))
        if self.mode == "streaming response":
            return self.turn(await entered(completions.with_streaming_response.create(**options), self.parsed))
        if self.mode == "raw streamed":
            raw = await awaited(completions.with_raw_response.create(**options, stream=True))
            return self.merged(await all_of(await awaited(raw.parse())))
        return self.merged(await all_of(await awaited(completions.create(**options, stream=True))))

    async def final(self, stream: Any) -> Any:
        return (await awaited(stream.get_final_completion())).choices[0].message

    async def parsed(self, response: Any) -> Any:
        return (await awaited(response.parse())).choices[0].message

    def turn(self, message: Any) -> Turn:
        calls = [
            Call(one.id, one.function.name, json.loads(one.function.arguments)) for one in message.tool_calls or ()
        ]
        parsed: Any = {"parsed": True, "tool_calls": {"__all__": {"function": {"parsed_arguments"}}}}
        return Turn(message.content or "", calls, [message.model_dump(exclude_none=True, exclude=parsed)])

    def merged(self, chunks: list[Any]) -> Turn:
        deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
        text = "".join(delta.content or "" for delta in deltas)
        pieces = [call for delta in deltas for call in delta.tool_calls or ()]
        calls = [Call(one.id, one.function.name, json.loads(one.function.arguments)) for one in pieces]
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if pieces:
            message["tool_calls"] = [one.model_dump(exclude={"index"}, exclude_none=True) for one in pieces]
        return Turn(text, calls, [message])


class Responses:
    """OpenAI's responses."""

    modes = ("create", "create streamed", "stream")

    def __init__(self, client: Any, mode: str) -> None:
        self.client, self.mode = client, mode

    question = Chat.question

    def result(self, call: Call, output: str, failed: bool) -> list[Any]:
        return [{"type": "function_call_output", "call_id": call.id, "output": output}]

    async def ask(self, system: str, history: list[Any], **options: Any) -> Turn:
        responses = self.client.responses
        options = {"model": MODEL, "instructions": system, "input": list(history), **options}
        if system == PLANNER:
            options["tools"] = [{"type": "function", "strict": False, **schema} for schema in schemas("parameters")]
        if self.mode == "create":
            return self.turn(await awaited(responses.create(**options)))
        if self.mode == "stream":
            return self.turn(await entered(responses.stream(**options), self.final))
        events = await all_of(await awaited(responses.create(**options, stream=True)))
        return self.turn(events[-1].response)

    async def final(self, stream: Any) -> Any:
        return await awaited(stream.get_final_response())

    def turn(self, response: Any) -> Turn:
        calls = [
            Call(item.call_id, item.name, json.loads(item.arguments))
            for item in response.output
            if item.type == "function_call"
        ]
        items = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        return Turn(response.output_text, calls, items)


class Messages:
    """Anthropic's messages."""

    modes = ("create", "create streamed", "stream", "raw")

    def __init__(self, client: Any, mode: str) -> None:
        self.client, self.mode = client, mode

    question = Chat.question

    def result(self, call: Call, output: str, failed: bool) -> list[Any]:
        block = {"type": "tool_result", "tool_use_id": call.id, "content": output, "is_error": failed}
        return [{"role": "user", "content": [block]}]

    async def ask(self, system: str, history: list[Any], **options: Any) -> Turn:
        messages = self.client.messages
        options = {"model": MODEL, "max_tokens": 1000, "system": system, "messages": list(history), **options}
        if system == PLANNER:
            options["tools"] = schemas("input_schema")
        if self.mode == "create":
            return self.turn(await awaited(messages.create(**options)))
        if self.mode == "raw":
            return self.turn(await awaited((await awaited(messages.with_raw_response.create(**options))).parse()))
        if self.mode == "stream":
            return self.turn(await entered(messages.stream(**options), self.final))
        return self.merged(await all_of(await awaited(messages.create(**options, stream=True))))

    async def final(self, stream: Any) -> Any:
        return await awaited(stream.get_final_message())

    def turn(self, message: Any) -> Turn:
        return self.of_blocks([block.model_dump(exclude_none=True) for block in message.content])

    def of_blocks(self, blocks: list[dict[str, Any]]) -> Turn:
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        calls = [Call(one["id"], one["name"], one["input"]) for one in blocks if one["type"] == "tool_use"]
        return Turn(text, calls, [{"role": "assistant", "content": blocks}])

    def merged(self, events: list[Any]) -> Turn:
        blocks: list[dict[str, Any]] = []
        for event in events:
            if event.type == "content_block_start":
                blocks.append(event.content_block.model_dump(exclude_none=True))
                pieces = ""
            elif event.type == "content_block_delta":
                if event.delta.type == "input_json_delta":
                    pieces += event.delta.partial_json
                    blocks[-1]["input"] = json.loads(pieces) if pieces.endswith("}") else {}
                else:
                    name = event.delta.type.removesuffix("_delta")
                    blocks[-1][name] += getattr(event.delta, name)
        return self.of_blocks(blocks)


def schemas(key: str) -> list[dict[str, Any]]:
    found = []
    for name, argument in NAMES.items():
        only = {"required": [argument], "additionalProperties": False}
        schema = {"type": "object", "properties": {argument: {"type": "string"}}, **only}
        found.append({"name": name, "description": name, key: schema})
    return found


def get_weather(city: str) -> str:
    return f"31 degrees in {city}"


def get_traffic(city: str) -> str:
    raise RuntimeError(f"no traffic data for {city}")


async def plan(api: Any, decorate: Callable[[Any], Any] = lambda function: function) -> str:
    """Run the agent, with its tools decorated, and return its answer."""

    async def ask_expert(question: str) -> str:
        return (await api.ask(EXPERT, api.question(question))).text

    tools = {function.__name__: decorate(function) for function in (get_weather, get_traffic, ask_expert)}
    history = api.question(QUESTION)
    while True:
        turn = await api.ask(PLANNER, history)
        history += turn.items
        if not turn.calls:
            return str(turn.text)
        for call in turn.calls:
            failed = False
            try:
                output = await awaited(tools[call.name](**call.args))
            except RuntimeError as error:
                output, failed = f"Error: {error}", True
            history += api.result(call, output, failed)
