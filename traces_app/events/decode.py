"""Decode and validate the body of a request into event records; every error has the path and the values allowed.

An event has the fields of records.Event, in snake_case or with the names that monitors use (`sessionId`, `taskId`).
Unknown fields are kept in its `data`. Messages of the form {taskId, type, ts, payload} are mapped by monitor_messages.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

import msgspec
from django.utils.translation import gettext as _

from access_app.errors import InvalidInput, TooLarge
from traces_app.ingest.decode import check_number, invalid, json_of
from traces_app.ingest.mismatches import join, wrong_word
from tracesite_sdk import records
from tracesite_sdk.events.monitor_messages import MESSAGES, TYPE_FIELDS, event_document, is_monitor_message
from tracesite_sdk.normalize.json_values import moment
from tracesite_sdk.records.event_types import Category, EventType, Level

from .scores import SCORE, check_score

_NAMES = {"sessionId": "session_id", "taskId": "session_id", "messageId": "message_id", "agentId": "agent"}
_AGENT = ("agentId", "agent_id", "nodeId")
"""Keys of `data` that name the agent: monitors put its id there."""
_LONGEST_NAME = 512
MOST_SESSIONS = 1_000
"""Sessions that the events of one request may be of: each is locked, and PostgreSQL's table of locks is for all."""
_FIELDS = frozenset(records.Event.__struct_fields__)
# Fields of our own responses that are computed again.
_OURS = frozenset(["seq", "session_id", "external_id"])
_WORDS = {"type": EventType, "level": Level, "category": Category}


def decode_events(body: bytes, *, ndjson: bool) -> list[records.Event]:
    """Decode `{"events": [...]}`, a list, or one event; with `ndjson` one event a line; paths count from `events[0]`."""
    events = [_event(item, f"events[{index}]") for index, item in enumerate(items_of(body, "events", ndjson=ndjson))]
    check_sessions(event.session_id for event in events)
    return events


def items_of(body: bytes, name: str, *, ndjson: bool) -> list[Any]:
    """Return the objects of a body: the list under `name`, a bare list, one object, or one a line."""
    if ndjson:
        check_number(body.count(b"\n"))
        lines = filter(bytes.strip, body.split(b"\n"))
        return [json_of(line, f"{name}[{index}]") for index, line in enumerate(lines)]
    document = json_of(body)
    items = document.get(name, document) if isinstance(document, dict) else document
    if isinstance(items, dict) and "type" in items:
        return [items]
    if not isinstance(items, list):
        raise InvalidInput(
            _("Expected an object with a list of %(name)s, a list, or a single object with a type.") % {"name": name},
            field=name,
        )
    check_number(len(items))
    return items


def check_sessions(names: Iterable[str]) -> None:
    """Raise TooLarge for events of more than MOST_SESSIONS. `names` are the sessions of the events."""
    if len(set(names)) > MOST_SESSIONS:
        raise TooLarge(
            _("The events are of more than %(most)d sessions. Split them into several requests.")
            % {"most": MOST_SESSIONS}
        )


def event_from(document: dict[str, Any], path: str) -> records.Event:
    """Validate an object with the fields of records.Event. Raise InvalidInput."""
    for name, words in _WORDS.items():
        value = document.get(name)
        if value is not None and value not in get_args(words):
            raise InvalidInput(wrong_word(value, get_args(words)), field=join(path, name))
    try:
        event = msgspec.convert(document, records.Event)
    except msgspec.ValidationError as error:
        raise invalid(error, document, records.Event, path) from error
    if not event.session_id:
        raise InvalidInput(_("An event needs a session_id."), field=join(path, "session_id"))
    if event.type == SCORE:
        check_score(event, join(path, "data"))
    return event


def _event(item: Any, path: str) -> records.Event:
    if not isinstance(item, dict):
        raise InvalidInput(_("An event must be a JSON object."), field=path)
    if is_monitor_message(item):
        if item["type"] not in MESSAGES:
            raise InvalidInput(wrong_word(item["type"], MESSAGES), field=join(path, "type"))
        try:
            document = event_document(item)
            if document["type"] not in get_args(EventType):
                raise _unknown_word(item, path)
            return event_from(document, path)
        except ValueError as error:
            raise _no_time(join(path, "ts")) from error
    try:
        document = _named(item)
    except ValueError as error:
        raise _no_time(join(path, "timestamp" if item.get("timestamp") is not None else "ts")) from error
    return event_from(document, path)


def _no_time(path: str) -> InvalidInput:
    return InvalidInput(_("Expected a time in milliseconds since 1970, between 2000 and tomorrow."), field=path)


def _unknown_word(item: dict[str, Any], path: str) -> InvalidInput:
    """Return an error with the sender's own words, because the sender does not know the event types they are mapped to."""
    name, words = TYPE_FIELDS[item["type"]]
    payload = item["payload"]
    value = payload.get(name) if isinstance(payload, dict) else None
    return InvalidInput(wrong_word(value, words), field=join(path, f"payload.{name}"))


def _named(item: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the names of records.Event, and unknown fields in `data`. Raise ValueError for a number that is
    not a time."""
    document: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for name, value in item.items():
        known = _NAMES.get(name, name)
        if known in _FIELDS:
            document.setdefault(known, value)
        elif known not in _OURS and value is not None:
            more[name] = value
    if item.get("external_id") is not None:
        # One of our own responses sent back: its id is the one that its producer gave.
        document["id"] = item["external_id"]
    if document.get("timestamp") is None and _is_number(more.get("ts")):
        document["timestamp"] = more.pop("ts")
    if _is_number(document.get("timestamp")):
        document["timestamp"] = moment(document["timestamp"])
    data = document.get("data")
    if more and (data is None or isinstance(data, dict)):
        document["data"] = data = {**more, **(data or {})}
    if document.get("agent") is None and isinstance(data, dict):
        document["agent"] = next((data[name] for name in _AGENT if _is_name(data.get(name))), None)
    return document


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME
