"""Apply masking rules to what is stored already, and show beforehand what they would change.

Messages are read in batches, in the order of ids and without locks. Those in which a rule finds something are locked, read again
and written in one short transaction for each batch; sessions with what belongs to no message follow. So it can run beside
agents, be interrupted, and be run again. See docs/redaction.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import models
from django.db.models import F, QuerySet
from django.utils import timezone

from access_app.audit.record import record
from access_app.db import Database
from access_app.db.transactions import in_transaction
from access_app.encryption.columns import ENCRYPTED
from access_app.encryption.fields import sealed_value
from access_app.masked_reading import MASKED_COLUMNS
from access_app.models import AuditAction
from messages_app.change_log import Kind, log_changes
from messages_app.models import Message, Reference, Session
from traces_app.ingest.sessions import log_retitled
from traces_app.models import AgentStep, Context, ErrorPattern, Event, Score, Span, ToolCall, ToolResult
from traces_app.spans.stored import masked_content
from tracesite_sdk.records import ids
from tracesite_sdk.redaction.engine import Receipt, may_hold_secrets, redact
from tracesite_sdk.redaction.rules import Rules

AT_A_TIME = 100
"""Messages of a batch."""
_TEXTS = (models.TextField, models.CharField, models.JSONField)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A row in which rules find something."""

    row: models.Model
    owner_id: UUID
    """The message that the row belongs to, or the session."""
    values: dict[str, Any]
    """The new values of its columns."""
    receipts: list[Receipt]

    def differences(self, characters: int) -> Iterator[tuple[str, str, str]]:
        """Yield the column, and its value before and after, each a piece around the first difference."""
        for name, after in self.values.items():
            before = getattr(self.row, name)
            yield name, _in_short(before, after, characters), _in_short(after, before, characters)


@dataclass(frozen=True, kw_only=True)
class Previewed:
    """What rules would change in some messages, sessions or spans."""

    model: type[models.Model]
    keys: list[UUID]
    """The rows that were read, the newest first."""
    changes: list[Change] = field(default_factory=list)
    """Those in messages and sessions."""
    spans: int = 0
    """How many spans would change: their values are not counted."""


@dataclass(kw_only=True)
class Masked:
    """The progress of a run."""

    read: int = 0
    """Messages and sessions that were read."""
    changed: int = 0
    """Those of them in which values were removed."""
    rules: Counter[str] = field(default_factory=Counter)
    """Removed values, by rule."""
    reached: UUID | None = None
    """The last message that is done."""


def preview_masking(db: Database, project_id: int, rules: Rules, newest: int | None = None) -> Iterator[Previewed]:
    """Yield what `apply_masking` would change, the newest first: messages, then sessions, then spans. Change nothing.

    With `newest`, only so many messages are read. A caller that has enough stops.
    """
    left = newest
    for page in _pages(db.rows(Message.with_deleted).filter(project=project_id), newest_first=True):
        keys = [key for (key,) in page[:left]]
        yield Previewed(model=Message, keys=keys, changes=list(_changes_in_messages(db, keys, rules)))
        if left is not None and not (left := left - len(keys)):
            return
    for page in _pages(db.rows(Session.with_deleted).filter(project=project_id), newest_first=True):
        keys = [key for (key,) in page]
        yield Previewed(model=Session, keys=keys, changes=list(_changes_in_sessions(db, keys, rules)))
    for rows in _pages(_spans(db, project_id), "kind", "content", newest_first=True):
        changed = sum(masked_content(kind, content, rules) is not None for _key, kind, content in rows)
        yield Previewed(model=Span, keys=[row[0] for row in rows], spans=changed)


def apply_masking(
    db: Database,
    project_id: int,
    rules: Rules,
    *,
    from_: datetime | None = None,
    until: datetime | None = None,
    after: UUID | None = None,
) -> Iterator[Masked]:
    """Remove what the rules find in stored messages and sessions; yield the state after each batch.

    Changed messages get receipts and another version, are sealed and indexed again, and each batch is in the audit log.
    `after` goes on after the message that an interrupted run has reached.
    """
    done = Masked(reached=after)
    messages = db.rows(Message.with_deleted).filter(project=project_id)
    messages = messages.filter(pk__gt=after) if after else messages
    messages = messages.filter(pk__gte=ids.first_id_at(from_)) if from_ else messages
    messages = messages.filter(pk__lt=ids.first_id_at(until)) if until else messages
    for page in _pages(messages):
        keys = [key for (key,) in page]
        if suspects := {change.owner_id for change in _changes_in_messages(db, keys, rules)}:
            _mask_messages(db, project_id, suspects, rules, done)
        done.read += len(keys)
        done.reached = keys[-1]
        yield done
    for page in _pages(db.rows(Session.with_deleted).filter(project=project_id)):
        keys = [key for (key,) in page]
        if suspects := {change.owner_id for change in _changes_in_sessions(db, keys, rules)}:
            _mask_sessions(db, project_id, suspects, rules, done)
        done.read += len(keys)
        yield done
    _mask_spans(db, project_id, rules, done)
    yield done


def _mask_spans(db: Database, project_id: int, rules: Rules, done: Masked) -> None:
    """Mask spans as they arrived. Nothing else changes them, and their receipts are inside."""
    for rows in _pages(_spans(db, project_id), "kind", "content"):
        clean = {key: masked_content(kind, content, rules) for key, kind, content in rows}
        changed = {key: content for key, content in clean.items() if content is not None}
        with db.atomic():
            for key, content in changed.items():
                db.rows(Span.objects).filter(pk=key).update(content=_stored(Span, key, "content", content, project_id))
            if changed:
                detail: dict[str, str | int | list[str] | None] = {
                    "masked": len(changed),
                    "ids": list(map(str, changed)),
                }
                record(AuditAction.CHANGE, db.actor, project_id=project_id, object_type="span", detail=detail)
        done.changed += len(changed)


def _spans(db: Database, project_id: int) -> QuerySet[Span]:
    return db.rows(Span.objects).filter(project=project_id).exclude(kind=Span.Kind.MEDIA)


def _pages(rows: QuerySet[Any], *columns: str, newest_first: bool = False) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the ids and columns of rows in the order of ids, or the newest first, some at a time."""
    order, further = ("-pk", "pk__lt") if newest_first else ("pk", "pk__gt")
    rows = rows.order_by(order)
    after: dict[str, UUID] = {}
    while page := list(rows.filter(**after).values_list("pk", *columns)[:AT_A_TIME]):
        yield page
        after = {further: page[-1][0]}


@in_transaction
def _mask_messages(db: Database, project_id: int, message_ids: Collection[UUID], rules: Rules, done: Masked) -> None:
    locked = db.rows(Message.with_deleted).filter(pk__in=message_ids).order_by("pk").select_for_update()
    stored = dict(locked.values_list("pk", "redactions"))
    # Read again, because they may have changed before they were locked.
    of_message = _by_owner(_changes_in_messages(db, list(stored), rules))
    for message_id, changes in of_message.items():
        for change in changes:
            _save(db, change, project_id)
        receipts = _together(stored[message_id], changes)
        db.rows(Message.with_deleted).filter(pk=message_id).update(
            redactions=receipts, version=F("version") + 1, updated_at=timezone.now()
        )
    # Made again when the log is read; until then they would have what is masked.
    db.rows(ErrorPattern.objects).filter(message__in=list(of_message)).delete()
    log_changes(db, dict.fromkeys(of_message, project_id), sealed=of_message)
    _count(db, project_id, "message", of_message, done)


@in_transaction
def _mask_sessions(db: Database, project_id: int, session_ids: Collection[UUID], rules: Rules, done: Masked) -> None:
    locked = db.rows(Session.with_deleted).filter(pk__in=session_ids).order_by("pk").select_for_update()
    stored = dict(locked.values_list("pk", "redactions"))
    of_session = _by_owner(_changes_in_sessions(db, list(stored), rules))
    for session_id, changes in of_session.items():
        for change in changes:
            if "title" in change.values:
                log_retitled(db, session_id, change.values["title"])
            _save(db, change, project_id)
        db.rows(Session.with_deleted).filter(pk=session_id).update(
            redactions=_together(stored[session_id], changes), updated_at=timezone.now()
        )
    # Conversations are parts of the seals of all runs of a session.
    shared = [key for key, changes in of_session.items() if any(isinstance(change.row, Context) for change in changes)]
    runs = db.rows(Message.with_deleted).filter(session__in=shared).values_list("pk", flat=True)
    again = dict.fromkeys(runs, project_id)
    log_changes(db, again, Kind.SEAL, sealed=again)
    _count(db, project_id, "session", of_session, done)


def _save(db: Database, change: Change, project_id: int) -> None:
    rows = _ROWS[type(change.row)](db).filter(pk=change.row.pk)
    values = {
        name: _stored(type(change.row), change.row.pk, name, value, project_id) for name, value in change.values.items()
    }
    if isinstance(change.row, Score):
        values["redactions"] = _together(change.row.redactions, [change])
    rows.update(**values)


def _stored(model: type[models.Model], row_id: UUID, name: str, value: Any, project_id: int) -> Any:
    """Return the value of a column as it is stored: in an encrypted project, encrypted."""
    column = ENCRYPTED.get(model._meta.db_table, {}).get(name)
    return value if column is None else sealed_value(column, row_id, value, project_id)


def _together(stored: list[dict[str, Any]], changes: Iterable[Change]) -> list[dict[str, Any]]:
    new = [receipt.as_json() for change in changes for receipt in change.receipts]
    return [*stored, *(receipt for receipt in new if receipt not in stored)]


def _count(db: Database, project_id: int, kind: str, changed: dict[UUID, list[Change]], done: Masked) -> None:
    rules = Counter[str]()
    for changes in changed.values():
        for receipt in (receipt for change in changes for receipt in change.receipts):
            rules[receipt.rule] += receipt.count
    if changed:
        record(
            AuditAction.CHANGE,
            db.actor,
            project_id=project_id,
            object_type=kind,
            detail={"masked": len(changed), "rules": sorted(rules), "ids": [str(key) for key in changed]},
        )
    done.changed += len(changed)
    done.rules += rules


def _by_owner(changes: Iterable[Change]) -> dict[UUID, list[Change]]:
    by_owner: dict[UUID, list[Change]] = {}
    for change in changes:
        by_owner.setdefault(change.owner_id, []).append(change)
    return by_owner


# --- Finding ------------------------------------------------------------------------------------------------------------


_ROWS: dict[type[models.Model], Callable[[Database], QuerySet[Any]]] = {
    Message: lambda db: db.rows(Message.with_deleted).order_by("pk"),
    Reference: lambda db: db.rows(Reference.objects).order_by("message", "position"),
    AgentStep: lambda db: db.rows(AgentStep.with_deleted).order_by("message", "iteration", "ordinal"),
    ToolCall: lambda db: db.rows(ToolCall.with_deleted).order_by("step", "position"),
    ToolResult: lambda db: db.rows(ToolResult.objects).order_by("pk"),
    Event: lambda db: db.rows(Event.objects).order_by("pk"),
    Context: lambda db: db.rows(Context.objects).order_by("pk"),
    Score: lambda db: db.rows(Score.with_deleted).order_by("pk"),
    Session: lambda db: db.rows(Session.with_deleted).order_by("pk"),
}
"""All rows of each table, deleted ones too, in the order of answers."""


def _changes_in_messages(db: Database, message_ids: Sequence[UUID], rules: Rules) -> Iterator[Change]:
    if not message_ids:
        return
    below = {"message__in": message_ids}
    sessions = db.rows(Message.with_deleted).filter(pk__in=message_ids).values_list("session", flat=True)
    within = {**below, "session__in": list(sessions)}
    steps, calls = list(_ROWS[AgentStep](db).filter(**below)), list(_ROWS[ToolCall](db).filter(**below))
    results = list(_ROWS[ToolResult](db).filter(pk__in=[call.pk for call in calls]))
    references = list(_ROWS[Reference](db).filter(**below))
    at_step = _numbered("agent_steps", steps, lambda step: step.message_id)
    of_step = _numbered("tool_calls", calls, lambda call: call.step_id)
    at_call = {call.pk: f"{at_step[call.step_id]}{of_step[call.pk]}" for call in calls}
    message_of = {call.pk: call.message_id for call in calls}
    at_reference = _numbered("knowledge_references", references, lambda reference: reference.message_id)
    yield from _changes(_ROWS[Message](db).filter(pk__in=message_ids), rules, lambda row: (row.pk, ""))
    yield from _changes(references, rules, lambda row: (row.message_id, at_reference[row.pk]))
    yield from _changes(steps, rules, lambda row: (row.message_id, at_step[row.pk]))
    yield from _changes(calls, rules, lambda row: (row.message_id, at_call[row.pk]))
    yield from _changes(results, rules, lambda row: (message_of[row.pk], f"{at_call[row.pk]}result."))
    yield from _changes(_ROWS[Event](db).filter(**within), rules, lambda row: (row.message_id, f"events[{row.seq}]."))
    yield from _changes(_ROWS[Context](db).filter(**within), rules, lambda row: (row.message_id, "contexts."))
    yield from _changes(_ROWS[Score](db).filter(**below), rules, lambda row: (row.message_id, "scores."))


def _changes_in_sessions(db: Database, session_ids: Sequence[UUID], rules: Rules) -> Iterator[Change]:
    alone = {"session__in": session_ids, "message": None}
    yield from _changes(_ROWS[Session](db).filter(pk__in=session_ids), rules, lambda row: (row.pk, ""))
    yield from _changes(_ROWS[Event](db).filter(**alone), rules, lambda row: (row.session_id, f"events[{row.seq}]."))
    yield from _changes(_ROWS[Context](db).filter(**alone), rules, lambda row: (row.session_id, "contexts."))
    yield from _changes(_ROWS[Score](db).filter(**alone), rules, lambda row: (row.session_id, "scores."))


def _changes(rows: Iterable[Any], rules: Rules, place: Callable[[Any], tuple[UUID, str]]) -> Iterator[Change]:
    """Yield the changes of rows; `place` returns the owner of a row and the beginning of its paths."""
    for some in _batches(list(rows)):
        names = _masked_fields(type(some[0]))
        if not may_hold_secrets((getattr(row, name) for row in some for name in names), rules):
            continue
        for row in some:
            owner_id, before = place(row)
            values, receipts = {}, []
            for name in names:
                clean, removed = redact(getattr(row, name), rules, f"{before}{name}")
                if removed:
                    values[name] = clean
                    receipts += removed
            if receipts:
                yield Change(row=row, owner_id=owner_id, values=values, receipts=receipts)


def _masked_fields(model: type[models.Model]) -> list[str]:
    fields = (column for column in model._meta.concrete_fields if column.column in MASKED_COLUMNS)
    return [column.attname for column in fields if isinstance(column, _TEXTS) or column.name == "tags"]


def _numbered(name: str, rows: Iterable[Any], owner: Callable[[Any], UUID]) -> dict[UUID, str]:
    """Return the path of each row among those with the same owner."""
    counts, paths = Counter[UUID](), {}
    for row in rows:
        paths[row.pk] = f"{name}[{counts[owner(row)]}]."
        counts[owner(row)] += 1
    return paths


def _batches(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(rows), AT_A_TIME):
        yield rows[first : first + AT_A_TIME]


def _in_short(value: Any, other: Any, characters: int) -> str:
    """Return a piece of a value around the first difference to the other one."""
    text, beside = (
        shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False) for shown in (value, other)
    )
    same = next((at for at, (a, b) in enumerate(zip(text, beside, strict=False)) if a != b), 0)
    begin = max(0, same - 20)
    cut = text[begin : begin + characters]
    return ("…" if begin else "") + cut + ("…" if len(text) > begin + characters else "")
