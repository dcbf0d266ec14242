"""Takes secrets out of records before anything stores them: which fields are searched, and the receipts.

The engine works on plain values (access_app.redaction.engine); this is the mapping for records. `Redacted` is made here and
nowhere else, and sinks and writes accept nothing but it, so that forgetting to redact is a type error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from access_app.redaction.engine import Receipt, may_hold_secrets
from access_app.redaction.engine import redact as redact_value
from traces_app.schema import records

from .records import NormalPatch

R = TypeVar("R", bound=records.Record)

# Free text, URLs and free JSON. Names, ids, numbers and times are left out: they are what traces are found by.
_SEARCHED: dict[type[records.Record], tuple[str, ...]] = {
    records.Session: ("title", "description", "workflow", "metadata", "current_phase", "tags"),
    records.SessionPatch: ("title", "description", "workflow", "metadata", "current_phase", "tags"),
    records.Message: ("content", "content_parts", "error", "metadata", "usage"),
    records.MessagePatch: ("content", "content_parts", "error", "metadata", "usage"),
    records.Reference: (
        "content",
        "knowledge_title",
        "knowledge_filename",
        "knowledge_source",
        "image_info",
        "metadata",
    ),
    records.AgentStep: ("thought", "reasoning_content", "metadata", "usage"),
    records.ToolCall: ("args", "reflection", "metadata"),
    records.Event: ("data",),
    records.ToolResult: ("output", "data", "error", "metadata", "attachments", "raw"),
}


@cache
def _searched_fields(type_: type[records.Record]) -> tuple[str, ...]:
    # The records of a request are of types below these.
    return next(fields for base, fields in _SEARCHED.items() if issubclass(type_, base))


@cache
def _values_of(type_: type[records.Record]) -> Callable[[records.Record], tuple[Any, ...]]:
    # Of a single field it would not be a tuple. Only events have one, and they are asked field by field.
    return attrgetter(*_searched_fields(type_))


@dataclass(frozen=True, kw_only=True)
class Redacted:
    """A session with nothing secret left in it, and what was taken out: of the session, and of each of its messages."""

    session: records.Session
    receipts: list[Receipt]
    message_receipts: list[list[Receipt]]


@dataclass(frozen=True, kw_only=True)
class RedactedMessagePatch:
    """A change of a message with nothing secret left in it."""

    patch: records.MessagePatch
    receipts: list[Receipt]
    flags: frozenset[str]
    """What was odd about it as it came."""


@dataclass(frozen=True, kw_only=True)
class RedactedSessionPatch:
    """A change of a session with nothing secret left in it."""

    patch: records.SessionPatch
    receipts: list[Receipt]


@dataclass(frozen=True, kw_only=True)
class RedactedEvent:
    """An event with nothing secret left in it."""

    event: records.Event
    receipts: list[Receipt]


def redact_event(event: records.Event) -> RedactedEvent:
    receipts: list[Receipt] = []
    return RedactedEvent(event=_redact_fields(event, "", receipts), receipts=receipts)


def redact(session: records.Session) -> Redacted:
    receipts: list[Receipt] = []
    message_receipts: list[list[Receipt]] = []
    messages = []
    for message in session.messages or ():
        of_message: list[Receipt] = []
        # Nearly all messages are clean, and one look at all of a message is cheaper than one at each of its fields.
        if may_hold_secrets(_searched(message)):
            message = _redact_children(_redact_fields(message, "", of_message), of_message)
        messages.append(message)
        message_receipts.append(of_message)
    session = replace(_redact_fields(session, "", receipts), messages=messages)
    return Redacted(session=session, receipts=receipts, message_receipts=message_receipts)


def redact_message_patch(normal: NormalPatch) -> RedactedMessagePatch:
    """Takes only a change in its normal form: what was encoded several times holds secrets that nobody finds."""
    receipts: list[Receipt] = []
    patch = _redact_children(_redact_fields(normal.patch, "", receipts), receipts)
    return RedactedMessagePatch(patch=patch, receipts=receipts, flags=normal.flags)


def redact_session_patch(patch: records.SessionPatch) -> RedactedSessionPatch:
    receipts: list[Receipt] = []
    return RedactedSessionPatch(patch=_redact_fields(patch, "", receipts), receipts=receipts)


def receipts_as_json(receipts: Iterable[Receipt]) -> list[dict[str, Any]]:
    return [receipt.as_json() for receipt in receipts]


def _searched(message: records.Message) -> list[Any]:
    """All values of a message that may hold secrets."""
    values = [*_values(message)]
    for reference in message.knowledge_references or ():
        values += _values(reference)
    for step in message.agent_steps or ():
        values += _values(step)
        for call in step.tool_calls or ():
            values += _values(call)
            if isinstance(call.result, records.ToolResult):
                values += _values(call.result)
    return values


def _values(record: records.Record) -> Iterable[Any]:
    return filter(None, _values_of(type(record))(record))


M = TypeVar("M", records.Message, records.MessagePatch)


def _redact_children(message: M, receipts: list[Receipt]) -> M:
    before = len(receipts)
    references = [
        _redact_fields(reference, f"knowledge_references[{i}].", receipts)
        for i, reference in enumerate(message.knowledge_references or ())
    ]
    steps = [_redact_step(step, f"agent_steps[{i}].", receipts) for i, step in enumerate(message.agent_steps or ())]
    return message if len(receipts) == before else replace(message, knowledge_references=references, agent_steps=steps)


def _redact_step(step: records.AgentStep, path: str, receipts: list[Receipt]) -> records.AgentStep:
    before = len(receipts)
    calls = []
    for i, call in enumerate(step.tool_calls or ()):
        below = f"{path}tool_calls[{i}]."
        if isinstance(call.result, records.ToolResult):
            call = replace(call, result=_redact_fields(call.result, f"{below}result.", receipts))
        calls.append(_redact_fields(call, below, receipts))
    step = _redact_fields(step, path, receipts)
    return step if len(receipts) == before else replace(step, tool_calls=calls)


def _redact_fields(record: R, path: str, receipts: list[Receipt]) -> R:
    changed: dict[str, Any] = {}
    for field in _searched_fields(type(record)):
        value = getattr(record, field)
        if not value or not isinstance(value, (str, dict, list, Raw)):
            continue
        clean, found = redact_value(value, path=path + field)
        if found:
            changed[field] = clean
            receipts += found
    return replace(record, **changed) if changed else record
