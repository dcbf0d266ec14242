"""Read states of runs of the OpenAI Agents SDK (`RunState.to_string()`), of Python and of JavaScript: one, a list, or lines.

    {"$schemaVersion", "original_input", "model_responses": [{"output": [...], "usage", "response_id"}], "session_items",
     "generated_items", "current_agent", "current_step", "trace"}

Items are those of the Responses API (see response_items.py). The answers of the model are in `model_responses`, with their tokens;
`session_items` and `generated_items` repeat them and have the results of calls and the agent of each item. A result follows the
answer that asked for it, and a call that waits for an approval stays pending: the session is paused. `last_processed_response`
repeats the last answer and is not read.

The id of a session is that of its trace. A state has no times and no names of models, and of a failed tool only the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import fields, items, rest, snake_cased, text
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values
from tracesite_sdk.transcripts.entries import (
    EMPTY_CONVERSATION,
    Call,
    Entry,
    Prompt,
    Reply,
    Result,
    Transcript,
    has_conversation,
)
from tracesite_sdk.transcripts.parsing.response_items import (
    CARRIED_OUT,
    call_id_of,
    call_of,
    content_of,
    is_call,
    is_result,
    joined,
    own_result,
    result_of,
)

NAME = "openai_run_state"

_MAX_TRIED = 50
_READ = frozenset(
    {"original_input", "model_responses", "session_items", "generated_items", "last_model_response", "trace"}
    | {"last_processed_response", "$schema_version"}
)


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a state."""
    return any(map(_is_state, first_values(document, _MAX_TRIED)))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the runs of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, value) in enumerate(numbered_values(document)):
        if not _is_state(value):
            skip(where or "(all)", "not the state of a run")
            continue
        state = snake_cased(value)
        entries = list(_Reader(state).entries(where, skip))
        if not has_conversation(entries):
            skip(where or "(all)", EMPTY_CONVERSATION)
            continue
        trace = snake_cased(state.get("trace"))
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            external_id=text(trace.get("id")),
            status=_status(state),
            metadata={
                **rest(state, _READ),
                **rest({"trace": trace, "schema_version": state.get("$schema_version")}, ()),
            },
        )


def _is_state(value: object) -> bool:
    state = snake_cased(value)
    is_ours = "$schema_version" in state and isinstance(state.get("current_agent"), dict)
    return is_ours and (isinstance(state.get("model_responses"), list) or "original_input" in state)


def _status(state: dict[str, Any]) -> records.SessionStatus | None:
    if "interrupt" in (text(fields(state.get("current_step")).get("type")) or ""):
        return "paused"
    return "completed" if fields(state.get("context")).get("approvals") else None


class _Reader:
    """Yields the entries of one run."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._input = state.get("original_input")
        self._responses = items(state.get("model_responses"))
        self._agents: dict[str, str] = {}
        """The names of agents by the ids of items."""
        self._results: dict[str, tuple[str, dict[str, Any]]] = {}
        """The kinds and items of results by the ids of their calls, in their order."""
        self._called: set[str | None] = set()
        for item in map(snake_cased, [*items(state.get("session_items")), *items(state.get("generated_items"))]):
            raw, agent = fields(item.get("raw_item")), text(fields(item.get("agent")).get("name"))
            kind, call_id = text(raw.get("type")) or "", call_id_of(raw) or text(raw.get("approval_request_id"))
            if is_result(kind) and call_id:
                self._results.setdefault(call_id, (kind, raw))
            elif agent:
                self._agents.update(dict.fromkeys(_ids_of(raw), agent))

    def entries(self, where: str, skip: Skip) -> Iterator[Entry]:
        given = [{"role": "user", "content": self._input}] if isinstance(self._input, str) else items(self._input)
        path = join_place(where, "original_input")
        for index, item in enumerate(given):
            if not isinstance(item, dict):
                skip(f"{path}[{index}]", "not an object")
                continue
            kind = text(item.get("type")) or "message"
            if is_result(kind):
                self._results.pop(call_id_of(item) or "", None)
                yield result_of(str(index), kind, item)
            elif kind != "message" or item.get("role") == "assistant":
                yield from self._reply(str(index), [item], {})
            else:
                role: Any = "user" if item.get("role") == "user" else "system"
                yield Prompt(
                    id=str(index),
                    role=role,
                    content=content_of(item.get("content")),
                    metadata=rest(item, ("role", "content", "type")),
                )
        path = join_place(where, "model_responses")
        for index, response in enumerate(map(snake_cased, self._responses)):
            output = [item for item in items(response.get("output")) if isinstance(item, dict)]
            if not response:
                skip(f"{path}[{index}]", "not an object")
            elif output or response.get("usage"):
                yield from self._reply(text(response.get("response_id")) or f"response-{index}", output, response)
        for call_id in list(self._results):
            yield self._result(call_id)

    def _reply(self, own: str, output: list[dict[str, Any]], response: dict[str, Any]) -> Iterator[Entry]:
        """Yield the reply that items are, and the results of its calls."""
        parts: list[Any] = []
        thoughts: list[str] = []
        calls: list[Call] = []
        hosted: list[Result] = []
        others: list[Any] = []
        for item in output:
            kind = text(item.get("type")) or "message"
            if kind == "message":
                said = content_of(item.get("content"))
                parts += said if isinstance(said, list) else [said] if said else []
            elif kind == "reasoning":
                summaries = map(fields, [*items(item.get("summary")), *items(item.get("content"))])
                thoughts += [part["text"] for part in summaries if isinstance(part.get("text"), str)]
            elif is_call(kind):
                call = call_of(kind, item)
                if call.id is None or call.id not in self._called:
                    calls.append(call)
                    self._called.add(call.id)
                    result = own_result(f"{own}#{call.id}", kind, item, call.id) if kind in CARRIED_OUT else None
                    hosted += [] if result is None else [result]
            else:
                others.append(item)
        agents = (self._agents[id_] for item in output for id_ in _ids_of(item) if id_ in self._agents)
        yield Reply(
            id=own,
            content=joined(parts),
            calls=calls,
            reasoning="\n\n".join(thoughts) or None,
            agent_name=next(agents, None),
            usage=_usage(response.get("usage")),
            is_request=bool(response),
            metadata=rest({**rest(response, ("output", "usage")), "items": others}, ()),
        )
        yield from hosted
        asked = {call.id for call in calls} if response else set()
        for call_id in [call_id for call_id in self._results if call_id in asked]:
            yield self._result(call_id)

    def _result(self, call_id: str) -> Result:
        kind, item = self._results.pop(call_id)
        return result_of(f"result-{call_id}", kind, item)


def _ids_of(item: dict[str, Any]) -> list[str]:
    return [id_ for id_ in (call_id_of(item), text(item.get("id"))) if id_]


def _usage(value: object) -> dict[str, Any] | None:
    """Return the tokens of an answer, whose details are lists with one object."""
    usage = snake_cased(value)
    details = {name: item for name, item in usage.items() if name.endswith("_details")}
    flat = {name: snake_cased(next(iter(items(item)), None)) or fields(item) for name, item in details.items()}
    return {**rest(usage, ("request_usage_entries", *details)), **rest(flat, ())} or None
