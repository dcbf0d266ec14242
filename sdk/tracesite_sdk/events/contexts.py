"""Split the data of an event into the part that stays and the parts that are stored by reference. Pure functions.

Event data is kept small, because it is sent to every viewer of a live session and returned in lists:

* the text of a prompt (`prompt_build`), a conversation (`conversation`, `messages`, `currentMessages`, the messages of a
  `request`) and `variables` become one `Context`. The event holds `contextRef` instead, with `length`,
  `conversationLength` and `variableNames`. A conversation is stored entry by entry, because the next request of a run
  contains it again with more entries at its end;
* if the data still exceeds MOST as JSON, its largest fields become contexts of their own, and a `file` always does:
  `contextRefs` holds the `contextRef` of each, its size in `bytes` and its `beginning`. `with_fields` puts them back
  before events are folded. Fields that identify or order events stay.

A reference is a digest of the content, so the same content has the same reference.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tracesite_sdk.records import pg_text
from tracesite_sdk.records.event_types import EventType
from tracesite_sdk.records.request_parts import CONVERSATION, MESSAGES
from tracesite_sdk.records.shared_values import Context, context_of, length_of, value_of
from tracesite_sdk.transcripts.parsing.requests import model_input

MOST = 16 * 1024
"""Maximum characters of event data as JSON: about a page of text.

Measured with results of 40 KB, 10 events a batch, medians of 3 alternating runs: an event is written in 3.8 ms with the
result inside, in 3.9 to 4.2 ms by reference; 100 of them are read in 7.6 ms (2 MB) and in 1.3 ms (48 KB). With results of
12 KB: 2.5 and 2.6 ms, 2.8 and 1.1 ms. A limit of 64 KB costs as much when it is exceeded, and saves less.
"""
_WORTH = 1024
"""Shorter fields are not worth a reference."""
_BEGINNING = 200

_NO_MESSAGES: tuple[Any, ...] = ([], [[]])
"""Lists that `model_input` finds nothing in. One that is stored elsewhere counts as the input of its step."""
_PROMPT_TEXT = ("text", "prompt", "content")
_FILE = "file"
SENT_REFS = "sentContextRefs"
"""The name that `contextRefs` of a sender get."""
# Fields that are read from the event alone: in SQL, or to find the step or call that it is about.
IDENTIFYING = frozenset(
    [
        *("uuid", "call_id", "callId", "tool_call_id", "toolCallId", "toolId", "name", "tool_name", "toolName", "tool"),
        *("step", "step_id", "stepId", "iteration", "parent", "parent_id", "agent_name", "agentName", "stream"),
        *("stream_id", "streamId", "status", "phase", "current_phase", "currentPhase", "kind", "usage", "redactions"),
        *("contextRef", "contextRefs", "recorder", "truncated"),
    ]
)


def apart(type_: EventType, data: dict[str, Any]) -> tuple[str, list[Context]]:
    """Return the data that stays in the event, as JSON text, and the contexts. `data` is not changed."""
    kept, context = _without_context(type_, data)
    encoded = pg_text.json(kept)
    contexts = [context] if context else []
    if len(encoded) > MOST or (_FILE in data and len(encoded) > _WORTH):
        kept, more = _without_large_fields(kept, len(encoded))
        contexts += more
        encoded = pg_text.json(kept)
    return encoded, contexts


def without_senders_refs(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an event as it was sent, with another name for references to stored values, which are ours to give: each
    would be replaced by its value whenever the run changes, as often as a sender repeats it. They are listed as truncated
    values, because who sends one of our own answers again has only the beginnings."""
    if "contextRefs" not in data:
        return data
    refs = data["contextRefs"]
    cuts = [
        {"path": name, "bytes": ref.get("bytes")}
        for name, ref in (refs.items() if isinstance(refs, dict) else ())
        if isinstance(ref, dict) and name not in data
    ]
    known = data.get("truncated")
    listed = {"truncated": [*(known if isinstance(known, list) else []), *cuts]} if cuts else {}
    return {**_without(data, "contextRefs"), SENT_REFS: refs, **listed}


def refs_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the references of the fields that are stored elsewhere."""
    context_refs = data.get("contextRefs")
    if not isinstance(context_refs, dict):
        return {}
    refs = {name: item.get("contextRef") for name, item in context_refs.items() if isinstance(item, dict)}
    return {name: ref for name, ref in refs.items() if isinstance(ref, str) and name not in data}


def with_fields(data: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with the referenced fields that `values` holds, by reference."""
    return {**data, **{name: values[ref] for name, ref in refs_of(data).items() if ref in values}}


def without_refs(data: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """Return data without the references of these fields."""
    context_refs = data.get("contextRefs")
    if not isinstance(context_refs, dict) or context_refs.keys().isdisjoint(names):
        return data
    return {**data, "contextRefs": _without(context_refs, *names)}


# --- A context -------------------------------------------------------------------------------------------------------


def _without_context(type_: EventType, data: dict[str, Any]) -> tuple[dict[str, Any], Context | None]:
    kept = data
    content: dict[str, Any] = {}
    entries: list[Any] | None = None
    if type_ == "prompt_build":
        kept = {**({"kind": data["role"]} if data.get("role") is not None else {}), **_without(data, "role")}
        if name := next((name for name in _PROMPT_TEXT if data.get(name) is not None), ""):
            kept = {**_without(kept, name), "length": length_of(data[name])}
            if data[name] != "":
                content["text"] = data[name]
    request = data.get("request")
    if name := _first_list(data, CONVERSATION):
        entries = data[name]
        # An empty request would look like one whose messages are stored elsewhere.
        kept = _without(kept, name, *(["request"] if "request" in data and model_input(request) is None else []))
    elif isinstance(request, dict) and (name := _first_list(request, MESSAGES)):
        entries = request[name]
        kept = {**kept, "request": _without(request, name)}
    elif isinstance(request, list) and request not in _NO_MESSAGES:
        entries = request
        kept = {**kept, "request": []}
    variables = data.get("variables")
    if isinstance(variables, dict) and variables:
        content["variables"] = variables
        kept = {**_without(kept, "variables"), "variableNames": list(variables)}
    if not content and entries is None:
        return kept, None
    context = context_of(content, entries)
    if entries is not None:
        kept = {**kept, "conversationLength": len(entries)}
    return {**kept, "contextRef": context.ref}, context


# --- Large fields ------------------------------------------------------------------------------------------------------


def _without_large_fields(data: dict[str, Any], length: int) -> tuple[dict[str, Any], list[Context]]:
    """Move a file out, then the largest fields, until the rest fits."""
    candidates = [(len(pg_text.json(value)), name) for name, value in data.items() if name not in IDENTIFYING and value]
    candidates.sort(key=lambda candidate: (candidate[1] == _FILE, candidate), reverse=True)
    kept, refs, contexts = dict(data), dict[str, Any](), []
    for size, name in candidates:
        if size < _WORTH or (length <= MOST and name != _FILE):
            continue
        context = value_of(kept.pop(name))
        value = data[name]
        beginning = (value if isinstance(value, str) else pg_text.json(value))[:_BEGINNING]
        refs[name] = {"contextRef": context.ref, "bytes": context.size, "beginning": beginning}
        contexts.append(context)
        length -= size
    return ({**kept, "contextRefs": refs} if refs else kept), contexts


# --- Values ----------------------------------------------------------------------------------------------------------


def _first_list(data: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((name for name in names if isinstance(data.get(name), list) and data[name] not in _NO_MESSAGES), "")


def _without(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}
