"""Langfuse's SDK before version 3, configured by LANGFUSE_* variables: it sends events that create and update.

Its client for OpenAI drops the calls of a streamed reply that has text, so the program makes the observations itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from langfuse import Langfuse
from openai import OpenAI
from planner import MODEL, QUESTION, plan

langfuse = Langfuse()
trace = langfuse.trace(name="trip", session_id="sdk-session", user_id="sdk-user", input=QUESTION)
open_observations: list[Any] = [trace]


def run_agent(name: str, question: str, function: Callable[[], str]) -> str:
    return observed(name, question, function)


def run_tool(name: str, arguments: dict[str, Any], function: Callable[..., str]) -> str:
    return observed(name, arguments, lambda: function(**arguments))


def observed(name: str, value: Any, function: Callable[[], str]) -> str:
    span = open_observations[-1].span(name=name, input=value)
    open_observations.append(span)
    try:
        result = function()
    except RuntimeError as error:
        span.end(level="ERROR", status_message=str(error))
        raise
    finally:
        open_observations.pop()
    span.end(output=result)
    if name not in ("planner", "expert"):
        span.score(name=f"{name} used", value=1, data_type="BOOLEAN")
    return result


class Completions:
    """Makes a generation of each request."""

    def create(self, *, messages: list[Any], stream: bool = False, **options: Any) -> Any:
        # As Langfuse's client for OpenAI writes a request.
        asked = {"messages": list(messages), **({"tools": options["tools"]} if "tools" in options else {})}
        parameters = {"temperature": options["temperature"]}
        generation = open_observations[-1].generation(
            name="chat", model=MODEL, input=asked, model_parameters=parameters
        )
        reply = OpenAI().chat.completions.create(messages=messages, stream=stream, **options)
        if stream:
            return self._streamed(generation, reply)
        self._end(generation, reply.choices[0].message.model_dump(exclude_none=True), reply.usage)
        return reply

    def _streamed(self, generation: Any, chunks: Any) -> Iterator[Any]:
        content, calls, usage = "", [], None
        for chunk in chunks:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                content += choice.delta.content or ""
                calls += [call.model_dump(exclude={"index"}) for call in choice.delta.tool_calls or ()]
            yield chunk
        self._end(generation, {"role": "assistant", "content": content, "tool_calls": calls}, usage)

    def _end(self, generation: Any, message: dict[str, Any], usage: Any) -> None:
        tokens = {"input": usage.prompt_tokens, "output": usage.completion_tokens}
        generation.end(output=message, usage_details=tokens)


client: Any = SimpleNamespace(chat=SimpleNamespace(completions=Completions()))
answer = plan(client, run_agent, run_tool)
trace.update(output=answer)
trace.score(name="helpful", value=0.75, comment="Exact.")
langfuse.flush()
print(answer)
