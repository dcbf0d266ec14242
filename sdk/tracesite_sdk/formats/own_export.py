"""Read exports and request bodies of Tracesite's own API: sessions with their messages, steps, calls and results.

* An export of a session (GET /sessions/{id}/export/), a body of POST /sessions/ or of POST /ingest/ (`sessions`), or
  lines of them (NDJSON): objects with a list of `messages`;
* a page of messages (`results`) or a list of messages, grouped by their `session_id`.

They are records already (records.py), so they become no transcript: they are stored as if sent to the API. Sessions and
messages are identified by their id or external id. Without either, a session gets an external id derived from its first
message and its place in the document, and a message its index. Unknown fields are kept in the metadata of their record;
an invalid message is left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.normalize.extra_fields import move_extra_fields_to_metadata
from tracesite_sdk.normalize.json_values import as_json
from tracesite_sdk.normalize.records import MOST_PUT_IN, MOST_PUT_IN_MESSAGE, bytes_put_in
from tracesite_sdk.records import ids
from tracesite_sdk.transcripts.documents import Document, Lines, Skip
from tracesite_sdk.transcripts.outline import DERIVED

NAME = "own_export"

T = TypeVar("T", bound=records.Record)

_ROLES = ("user", "assistant", "system")
_OWN = ("agent_steps", "knowledge_references", "is_completed")
"""Fields of a message that no other format has."""
_OTHERS = ("tool_calls", "tool_call_id", "function_call", "parts", "type")
"""Fields of messages of other formats."""
_LISTS = ("results", "data")
"""Fields of a page that may hold its messages."""
_MAX_TRIED = 50
"""Values that are tested to recognise a document."""


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a session or a message of this format."""
    if isinstance(document, Lines):
        return any(map(_is_session, document.head()))
    if _messages_in(document) is not None:
        return True
    return any(_is_session(value) for _where, value in _sessions_in(document)[:_MAX_TRIED])


def transcripts(document: Document, skip: Skip) -> Iterator[records.Session]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    if isinstance(document, Lines):
        for place, line in enumerate(document):
            yield from _session(line.value, f"line {line.number}", place, skip)
    elif (page := _messages_in(document)) is not None:
        yield from _sessions_of(*page, skip)
    else:
        for place, (where, value) in enumerate(_sessions_in(document)):
            yield from _session(value, where, place, skip)


# --- Documents --------------------------------------------------------------------------------------------------------


def _is_session(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    messages = value["messages"][:_MAX_TRIED]
    if any(map(_is_own, messages)):
        return True
    if any(isinstance(message, dict) and any(key in message for key in _OTHERS) for message in messages):
        return False
    has_external_id = any(isinstance(item, dict) and "external_id" in item for item in (value, *messages))
    return has_external_id and all(isinstance(message, dict) and message.get("role") in _ROLES for message in messages)


def _is_own(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") in _ROLES and any(key in message for key in _OWN)


def _messages_in(document: object) -> tuple[str, list[Any]] | None:
    """Return the messages of a page or list, and the key that holds them."""
    if isinstance(document, list):
        return ("", document) if any(map(_is_own, document[:_MAX_TRIED])) else None
    if isinstance(document, dict) and "messages" not in document:
        for key in _LISTS:
            if isinstance(document.get(key), list) and any(map(_is_own, document[key][:_MAX_TRIED])):
                return key, document[key]
    return None


def _sessions_in(document: object) -> list[tuple[str, Any]]:
    """Return the values that may be sessions, with their places."""
    if isinstance(document, dict) and isinstance(document.get("sessions"), list):
        return [(f"sessions[{index}]", value) for index, value in enumerate(document["sessions"])]
    if isinstance(document, list):
        return [(f"[{index}]", value) for index, value in enumerate(document)]
    return [("", document)]


# --- Records --------------------------------------------------------------------------------------------------------


def _session(value: object, where: str, place: int, skip: Skip) -> Iterator[records.Session]:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        skip(where or "(all)", "not a session: no list of messages")
        return
    head = {name: item for name, item in value.items() if name != "messages"}
    session = _record(head, records.Session, where or "(all)", skip)
    if session is None:
        return
    messages = list(_messages(enumerate(value["messages"]), f"{where}.messages".lstrip("."), skip))
    if not (session.id or session.external_id):
        first = as_json(value["messages"][0]) if value["messages"] else as_json(head)
        session = replace(session, external_id=f"{DERIVED}{ids.key(first, place).hex}")
    session = replace(session, messages=messages)
    put_in = bytes_put_in(session)
    if max(put_in, default=0) > MOST_PUT_IN_MESSAGE or sum(put_in) > MOST_PUT_IN:
        skip(where or "(all)", "references in the inputs of its steps stand for too much")
        return
    yield session


def _sessions_of(key: str, values: list[Any], skip: Skip) -> Iterator[records.Session]:
    """Group messages by session; messages without a session id become one session."""
    by_session: dict[str, list[tuple[int, Any]]] = {}
    for index, value in enumerate(values):
        session_id = value.get("session_id") if isinstance(value, dict) else None
        by_session.setdefault(session_id if isinstance(session_id, str) else "", []).append((index, value))
    for session_id, items in by_session.items():
        messages = list(_messages(items, key, skip))
        if messages:
            derived = None if session_id else f"{DERIVED}{ids.key(as_json(items[0][1])).hex}"
            yield records.Session(id=session_id or None, external_id=derived, messages=messages)


def _messages(values: Any, where: str, skip: Skip) -> Iterator[records.Message]:
    for index, value in values:
        path = f"{where}[{index}]"
        if not isinstance(value, dict):
            skip(path, "not an object")
            continue
        message = _record(value, records.Message, path, skip)
        if message is None:
            continue
        if message.role != "assistant" and message.agent_steps:
            skip(f"{path}.agent_steps", f"only an assistant message has steps; this one is from {message.role}")
            message = replace(message, agent_steps=None)
        if not (message.id or message.external_id):
            message = replace(message, external_id=str(index))
        yield message


def _record(value: dict[str, Any], type_: type[T], where: str, skip: Skip) -> T | None:
    try:
        move_extra_fields_to_metadata(value, type_)
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        skip(where, str(error))
    except RecursionError:
        skip(where, "nested too deeply")
    return None
