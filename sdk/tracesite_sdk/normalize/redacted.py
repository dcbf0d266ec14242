"""Redact records before anything stores them: search the fields that are declared `Searched`, and collect receipts.

The rules are those of the project that the records belong to (access_app.masking.masking_of).

The engine works on plain values (tracesite_sdk.redaction.engine). The `Redacted...` types are created only here, and sinks
and ingest accept nothing else, so that forgetting to redact is a type error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Raw, inspect
from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.redaction.engine import Receipt, Suspects, may_hold_secrets, suspects_of
from tracesite_sdk.redaction.engine import redact as redact_value
from tracesite_sdk.redaction.rules import Rules

from .records import NormalPatch
from .snapshot_values import redact_parts

R = TypeVar("R", bound=records.Record)


def searched_fields(types: Sequence[type[records.Record]]) -> dict[type[records.Record], tuple[str, ...]]:
    """Return the fields of each record that are declared `Searched`. Raise TypeError for a field that can hold text and is
    declared neither `Searched` nor `NotSearched`."""
    fields = {}
    # All types at once, because each analysis would repeat that of the records inside.
    for type_, info in zip(types, inspect.multi_type_info(types), strict=True):
        assert isinstance(info, inspect.StructType)
        marks = {field.name: _is_searched(field.type) for field in info.fields}
        if unclassified := [name for name, mark in marks.items() if mark is None]:
            raise TypeError(
                f"Declare these fields of {type_.__name__} Searched[...] or NotSearched[...]: {unclassified}"
            )
        fields[type_] = tuple(name for name, mark in marks.items() if mark)
    return fields


def _is_searched(type_: inspect.Type) -> bool | None:
    """Return whether values of this type are searched; None if that is not declared. Records are searched field by field."""
    match type_:
        case inspect.Metadata(extra={"searched": bool(mark)}):
            return mark
        case inspect.Metadata(type=inner) | inspect.ListType(item_type=inner):
            return _is_searched(inner)
        case inspect.UnionType(types=types):
            marks = set(map(_is_searched, types))
            return None if None in marks else True in marks
        case (
            inspect.IntType()
            | inspect.FloatType()
            | inspect.DecimalType()
            | inspect.BoolType()
            | inspect.DateTimeType()
            | inspect.LiteralType()
            | inspect.NoneType()
            | inspect.StructType()
        ):
            return False
        case _:
            return None


_SEARCHED = searched_fields([type_ for type_ in records.Record.__subclasses__() if type_ is not records.Events])


# What the paths of values consist of, but for indexes.
_OUTSIDE = frozenset(
    {"knowledge_references", "agent_steps", "tool_calls", "result", "input", "[*]"}.union(*_SEARCHED.values())
)


@cache
def _searched_fields(type_: type[records.Record]) -> tuple[str, ...]:
    # Requests are decoded into subclasses of the records.
    return next(fields for base, fields in _SEARCHED.items() if issubclass(type_, base))


@cache
def _values_of(type_: type[records.Record]) -> Callable[[records.Record], tuple[Any, ...]]:
    # attrgetter of a single name returns no tuple. Only events have one field, and they do not come here.
    return attrgetter(*_searched_fields(type_))


@dataclass(frozen=True, kw_only=True)
class Redacted:
    """A redacted session, with the receipts of the session and of each of its messages."""

    session: records.Session
    receipts: list[Receipt]
    message_receipts: list[list[Receipt]]


@dataclass(frozen=True, kw_only=True)
class RedactedMessagePatch:
    """A redacted change of a message."""

    patch: records.MessagePatch
    receipts: list[Receipt]
    flags: frozenset[str]
    """Health flags from normalisation."""


@dataclass(frozen=True, kw_only=True)
class RedactedSessionPatch:
    """A redacted change of a session."""

    patch: records.SessionPatch
    receipts: list[Receipt]


@dataclass(frozen=True, kw_only=True)
class RedactedEvent:
    """A redacted event."""

    event: records.Event
    receipts: list[Receipt]


@dataclass(frozen=True, kw_only=True)
class RedactedScore:
    """A redacted score."""

    score: records.Score
    receipts: list[Receipt]


@dataclass(frozen=True, kw_only=True)
class RedactedScorePatch:
    """A redacted change of a score."""

    patch: records.ScorePatch
    receipts: list[Receipt]


@dataclass(frozen=True, kw_only=True)
class RedactedSnapshots:
    """Redacted snapshots of a recorder."""

    snapshots: records.Snapshots
    receipts: list[Receipt]
    changed: frozenset[str] = frozenset()
    """The names of parts that are not as they were sent under these names."""


def redact_snapshots(sent: records.Snapshots, rules: Rules) -> RedactedSnapshots:
    """Redact snapshots. If anything may be removed, only the parts to which the context still leads are left."""
    receipts: list[Receipt] = []
    parts, changed = sent.parts, frozenset[str]()
    if sent.snapshot is None:
        parts = {}
    elif rules.paths or may_hold_secrets(parts.values(), rules):
        # Keys of a path may be in several parts, and in some that were sent before.
        parts, receipts = redact_parts(sent.parts, sent.snapshot.context_ref, rules)
        changed = frozenset(name for name, content in parts.items() if content is not sent.parts.get(name))
    sent = replace(sent, parts=parts)
    # Without receipts: those of the session, whose metadata has the fork, are enough.
    fork = sent.fork and _redact_fields(sent.fork, "fork.", [], rules)
    snapshot = sent.snapshot and _redact_fields(sent.snapshot, "", receipts, rules)
    snapshots = replace(sent, fork=fork, snapshot=snapshot)
    return RedactedSnapshots(snapshots=snapshots, receipts=receipts, changed=changed)


def redact_score(score: records.Score, rules: Rules) -> RedactedScore:
    receipts: list[Receipt] = []
    return RedactedScore(score=_redact_fields(score, "", receipts, rules), receipts=receipts)


def redact_score_patch(patch: records.ScorePatch, rules: Rules) -> RedactedScorePatch:
    receipts: list[Receipt] = []
    return RedactedScorePatch(patch=_redact_fields(patch, "", receipts, rules), receipts=receipts)


def redact_event(event: records.Event, rules: Rules) -> RedactedEvent:
    receipts: list[Receipt] = []
    return RedactedEvent(event=_redact_fields(event, "", receipts, rules), receipts=receipts)


def redact(session: records.Session, rules: Rules) -> Redacted:
    messages = session.messages or []
    suspects = suspects_of(chain([_values(session)], map(_searched, messages)), rules, _OUTSIDE)
    receipts: list[Receipt] = []
    session = _redact_fields(session, "", receipts, rules, next(suspects))
    redacted = [_redact_message(*one, rules) for one in zip(messages, suspects, strict=True)]
    session = replace(session, messages=[message for message, _receipts in redacted])
    return Redacted(session=session, receipts=receipts, message_receipts=[removed for _message, removed in redacted])


def redact_message_patch(normal: NormalPatch, rules: Rules) -> RedactedMessagePatch:
    """Redact a normalised change; in values that are still encoded several times, secrets would not be found."""
    (suspects,) = suspects_of((_searched(normal.patch),), rules, _OUTSIDE)
    patch, receipts = _redact_message(normal.patch, suspects, rules)
    return RedactedMessagePatch(patch=patch, receipts=receipts, flags=normal.flags)


def redact_session_patch(patch: records.SessionPatch, rules: Rules) -> RedactedSessionPatch:
    receipts: list[Receipt] = []
    return RedactedSessionPatch(patch=_redact_fields(patch, "", receipts, rules), receipts=receipts)


def receipts_as_json(receipts: Iterable[Receipt]) -> list[dict[str, Any]]:
    return [receipt.as_json() for receipt in receipts]


def _searched(message: records.Message | records.MessagePatch) -> list[Any]:
    """Return all values of a message that may hold secrets."""
    values = [*_values(message)]
    for reference in message.knowledge_references or ():
        values += _values(reference)
    for step in message.agent_steps or ():
        values += _values(step)
        if step.input is not None:
            values += _values(step.input)
        for call in step.tool_calls or ():
            values += _values(call)
            if isinstance(call.result, records.ToolResult):
                values += _values(call.result)
    return values


def _values(record: records.Record) -> Iterable[Any]:
    return filter(None, _values_of(type(record))(record))


M = TypeVar("M", records.Message, records.MessagePatch)


def _redact_message(message: M, suspects: Suspects, rules: Rules) -> tuple[M, list[Receipt]]:
    receipts: list[Receipt] = []
    if suspects:
        message = _redact_fields(message, "", receipts, rules, suspects)
        message = _redact_children(message, receipts, rules, suspects)
    return message, receipts


def _redact_children(message: M, receipts: list[Receipt], rules: Rules, suspects: Suspects) -> M:
    before = len(receipts)
    references = [
        _redact_fields(reference, f"knowledge_references[{i}].", receipts, rules, suspects)
        for i, reference in enumerate(message.knowledge_references or ())
    ]
    steps = [
        _redact_step(step, f"agent_steps[{i}].", receipts, rules, suspects)
        for i, step in enumerate(message.agent_steps or ())
    ]
    return message if len(receipts) == before else replace(message, knowledge_references=references, agent_steps=steps)


def _redact_step(
    step: records.AgentStep, path: str, receipts: list[Receipt], rules: Rules, suspects: Suspects
) -> records.AgentStep:
    before = len(receipts)
    calls = []
    for i, call in enumerate(step.tool_calls or ()):
        below = f"{path}tool_calls[{i}]."
        if isinstance(call.result, records.ToolResult):
            call = replace(call, result=_redact_fields(call.result, f"{below}result.", receipts, rules, suspects))
        calls.append(_redact_fields(call, below, receipts, rules, suspects))
    input_ = step.input and _redact_fields(step.input, f"{path}input.", receipts, rules, suspects)
    step = _redact_fields(step, path, receipts, rules, suspects)
    return step if len(receipts) == before else replace(step, tool_calls=calls, input=input_)


def _redact_fields(record: R, path: str, receipts: list[Receipt], rules: Rules, suspects: Suspects | None = None) -> R:
    changed: dict[str, Any] = {}
    fields = _searched_fields(type(record))
    if suspects is None and len(fields) > 1:
        (suspects,) = suspects_of((_values(record),), rules, _OUTSIDE)
    for field in fields:
        value = getattr(record, field)
        if not value or not isinstance(value, (str, dict, list, Raw)):
            continue
        clean, removed = redact_value(value, rules, path + field, suspects=suspects)
        if removed:
            changed[field] = clean
            receipts += removed
    return replace(record, **changed) if changed else record
