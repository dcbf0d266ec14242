"""Update sessions, delete and restore sessions and messages; rows and counters change in one transaction.

traces_app.ingest.store stores the data of producers. All writes take locks in one order: message rows by id, session rows
last.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from access_app.audit.trail import note_counts
from access_app.db import Database
from access_app.db.transactions import in_transaction
from access_app.errors import NotFound

from .change_log import Kind, log_changes, log_sessions
from .interruptions import interruption_of
from .models import Message, Session, SessionTombstone, session_key

logger = logging.getLogger(__name__)


class Totals(Protocol):
    """The totals of the steps and calls of one message, of its row or before it has one."""

    @property
    def call_count(self) -> int: ...
    @property
    def failure_count(self) -> int: ...
    @property
    def model_error_count(self) -> int: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def duration_ms(self) -> int | None: ...
    @property
    def cost(self) -> Decimal | None: ...
    @property
    def unpriced_count(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The difference that a write makes to the counters of a session."""

    message_count: int = 0
    call_count: int = 0
    failure_count: int = 0
    problem_count: int = 0
    open_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    duration_ms: int = 0
    cost_sum: Decimal = Decimal(0)
    priced_count: int = 0
    unpriced_count: int = 0
    last_run: Run | None = None
    """The newest assistant message of the write."""
    active_at: datetime | None = None
    """The latest time in the data of the write."""

    @classmethod
    def of(cls, message: Message) -> Counts:
        """Return the contribution of a stored message."""
        has_error = message.error != ""
        return cls.of_totals(
            message,
            is_completed=message.is_completed,
            has_error=has_error,
            last_run=Run(message.pk, has_error, interruption_of(message))
            if message.role == Message.Role.ASSISTANT
            else None,
        )

    @classmethod
    def of_totals(
        cls,
        totals: Totals,
        *,
        is_completed: bool,
        has_error: bool,
        last_run: Run | None,
        active_at: datetime | None = None,
    ) -> Counts:
        """Return the contribution of one message with these totals. COUNTED_AS says the same in SQL."""
        return cls(
            message_count=1,
            call_count=totals.call_count,
            failure_count=totals.failure_count,
            problem_count=totals.failure_count + totals.model_error_count + has_error,
            open_count=int(not is_completed),
            input_tokens=totals.input_tokens,
            output_tokens=totals.output_tokens,
            duration_ms=totals.duration_ms or 0,
            cost_sum=totals.cost or Decimal(0),
            priced_count=int(totals.cost is not None),
            unpriced_count=totals.unpriced_count,
            last_run=last_run,
            active_at=active_at,
        )

    def __add__(self, other: Counts) -> Counts:
        runs = [run for run in (other.last_run, self.last_run) if run is not None]
        times = [time for time in (self.active_at, other.active_at) if time is not None]
        return Counts(
            **{name: getattr(self, name) + getattr(other, name) for name in COUNTERS},
            # max() returns the first of equals, which is the later of two states of one message.
            last_run=max(runs, key=lambda run: run.message_id, default=None),
            active_at=max(times, default=None),
        )

    def __neg__(self) -> Counts:
        """Return the negated counters, without `last_run`, which only the remaining rows determine."""
        return Counts(**{name: -getattr(self, name) for name in COUNTERS})

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in COUNTERS) or bool(self.last_run or self.active_at)


class Run(NamedTuple):
    """An assistant message, whether it has an error text, and why it was interrupted, if it was."""

    message_id: UUID
    failed: bool
    interruption: str


COUNTERS = tuple(name for name in Counts.__dataclass_fields__ if name not in ("last_run", "active_at"))
COUNTED_AS = {
    "message_count": "1",
    "problem_count": "failure_count + model_error_count + (error <> '')::int",
    "open_count": "(NOT is_completed)::int",
    "cost_sum": "coalesce(cost, 0)",
    "priced_count": "(cost IS NOT NULL)::int",
    **{
        name: name
        for name in ("call_count", "failure_count", "input_tokens", "output_tokens", "duration_ms", "unpriced_count")
    },
}
"""The contribution of one message to each counter, as SQL over its row."""
COUNTER_TYPES = {name: "numeric" if name == "cost_sum" else "bigint" for name in COUNTERS}
"""The PostgreSQL type of each counter, for casts."""
NO_RUN_LEFT = UUID(int=0)
AT_A_TIME = 1_000
"""Maximum number of rows that one statement changes."""
_COUNTED = ("call_count", "failure_count", "model_error_count", "input_tokens", "output_tokens", "duration_ms")


@in_transaction
def update_session(db: Database, session_id: UUID, changes: dict[str, Any]) -> Session:
    """Set the given columns of a session, if any. Raise NotFound if it is unknown or deleted."""
    session = db.rows(Session.objects).select_for_update().filter(pk=session_id).first()
    if session is None:
        raise _no_session()
    if not changes:
        return session
    for name, value in changes.items():
        setattr(session, name, value)
    session.updated_at = timezone.now()
    session.save(update_fields=[*changes, "updated_at"])
    logger.info("changed a session", extra={"session_id": str(session_id)})
    return session


@in_transaction
def delete_session(db: Database, session_id: UUID, *, by: str) -> None:
    """Move a session with its messages to the trash. Raise NotFound if it is unknown or already deleted."""
    now = timezone.now()
    if not db.rows(Session.objects).filter(pk=session_id).update(deleted_at=now, deleted_by=by, updated_at=now):
        raise _no_session()
    log_sessions(db, [session_id])
    logger.info("deleted a session", extra={"session_id": str(session_id), "by": by})


def delete_sessions(db: Database, project_id: int, session_ids: Collection[UUID] | None, *, by: str) -> int:
    """Delete these sessions of a project, as far as they exist, or all if `session_ids` is None; return their number.

    In batches, each in its own transaction, because a project may have a million sessions.
    """
    rows = db.rows(Session.objects).filter(project_id=project_id)
    if session_ids is not None:
        rows = rows.filter(pk__in=session_ids)
    deleted = 0
    while True:
        with db.atomic():
            # By id, the order of all writes that lock several sessions.
            locked = rows.order_by("pk").select_for_update(no_key=True, of=("self",))
            batch = list(locked.values_list("pk", flat=True)[:AT_A_TIME])
            now = timezone.now()
            db.rows(Session.objects).filter(pk__in=batch).update(deleted_at=now, deleted_by=by, updated_at=now)
            log_sessions(db, batch)
        deleted += len(batch)
        if len(batch) < AT_A_TIME:
            break
    if deleted:
        note_counts(db.actor, project_id, sessions=deleted)
        logger.info("deleted sessions", extra={"project_id": project_id, "sessions": deleted, "by": by})
    return deleted


@in_transaction
def add_tags(db: Database, session_ids: Collection[UUID], tags: Sequence[str]) -> list[UUID]:
    """Add tags to those of the sessions that lack one, behind their own; return the changed sessions.

    Deleted and unknown sessions are skipped. `tags` have been redacted.
    """
    changed: list[UUID] = []
    # By id, the order of all writes that lock several sessions.
    lacking = db.rows(Session.objects).filter(pk__in=session_ids).exclude(tags__contains=tags).order_by("pk")
    for session in lacking.select_for_update(no_key=True, of=("self",)).only("tags"):
        session.tags = [*session.tags, *(tag for tag in tags if tag not in session.tags)]
        session.updated_at = timezone.now()
        session.save(update_fields=["tags", "updated_at"])
        changed.append(session.pk)
    if changed:
        logger.info("tagged sessions", extra={"sessions": len(changed)})
    return changed


@in_transaction
def clear_session(db: Database, session_id: UUID, *, by: str) -> int:
    """Delete all messages of a session and keep the session; return their number.

    The messages can be restored individually. Raise NotFound if the session is unknown or deleted.
    """
    now = timezone.now()
    alive = db.rows(Message.with_deleted).filter(session_id=session_id, deleted_at__isnull=True)
    messages = list(
        alive.order_by("pk")
        .select_for_update()
        .only(
            "pk",
            "project_id",
            "role",
            "is_completed",
            "error",
            "health",
            "metadata",
            "cost",
            "unpriced_count",
            *_COUNTED,
        )
    )
    counts = sum((Counts.of(message) for message in messages), Counts())
    ids = [message.pk for message in messages]
    for first in range(0, len(messages), AT_A_TIME):
        keys = ids[first : first + AT_A_TIME]
        of_these = db.rows(Message.with_deleted).filter(pk__in=keys, pk__gte=keys[0], pk__lte=keys[-1])
        of_these.update(deleted_at=now, deleted_by=by, updated_at=now, version=F("version") + 1)
    # The session last, in the order of locks. It may have been deleted meanwhile, together with its messages.
    if db.rows(Session.objects).select_for_update().filter(pk=session_id).first() is None:
        raise _no_session()
    add_to_session(db, session_id, -counts)
    update_last_run(db, session_id)
    if messages:
        log_changes(db, dict.fromkeys(ids, messages[0].project_id), Kind.FIGURES, sealed=ids)
    note_counts(db.actor, messages=len(messages))
    logger.info("cleared a session", extra={"session_id": str(session_id), "messages": len(messages), "by": by})
    return len(messages)


@in_transaction
def restore_session(db: Database, session_id: UUID) -> None:
    """Restore a deleted session with its messages; messages that were deleted individually stay deleted.

    Raise NotFound, also for a session that a purge has begun to remove.
    """
    session = db.rows(Session.with_deleted).deleted().select_for_update().filter(pk=session_id).first()
    if (
        session is None
        or db.rows(SessionTombstone.objects).filter(key=session_key(session.project_id, str(session.pk))).exists()
    ):
        raise NotFound(_("There is no deleted session with this id."))
    db.rows(Session.with_deleted).filter(pk=session_id).update(
        deleted_at=None, deleted_by="", updated_at=timezone.now()
    )
    log_sessions(db, [session_id])
    logger.info("restored a session", extra={"session_id": str(session_id)})


def delete_message(db: Database, message_id: UUID, *, by: str, session_id: UUID | None = None) -> None:
    """Move a message with its trace to the trash.

    Raise NotFound if it is unknown, already deleted, of a session other than `session_id`, or of a deleted session.
    """
    _set_deleted(db, message_id, session_id, deleted_at=timezone.now(), by=by)


def restore_message(db: Database, message_id: UUID, *, session_id: UUID | None = None) -> None:
    """Restore a deleted message with its trace. Raise NotFound, also if its session is deleted: restore that first."""
    _set_deleted(db, message_id, session_id, deleted_at=None, by="")


@in_transaction
def _set_deleted(
    db: Database, message_id: UUID, session_id: UUID | None, *, deleted_at: datetime | None, by: str
) -> None:
    candidates = (
        db.rows(Message.with_deleted)
        .select_for_update(of=("self",))
        .filter(pk=message_id, deleted_at__isnull=deleted_at is not None, session__deleted_at__isnull=True)
    )
    if session_id is not None:
        candidates = candidates.filter(session_id=session_id)
    message = candidates.first()
    if message is None:
        raise NotFound(
            _("There is no message with this id.") if deleted_at else _("There is no deleted message with this id.")
        )
    db.rows(Message.with_deleted).filter(pk=message_id).update(
        deleted_at=deleted_at, deleted_by=by, updated_at=timezone.now(), version=F("version") + 1
    )
    counts = Counts.of(message)
    add_to_session(db, message.session_id, -counts if deleted_at else counts)
    if counts.last_run:
        update_last_run(db, message.session_id)
    log_changes(db, {message_id: message.project_id}, Kind.FIGURES, sealed=[message_id])
    logger.info(
        "deleted a message" if deleted_at else "restored a message",
        extra={"session_id": str(message.session_id), "message_id": str(message_id), "by": by},
    )


def update_last_run(db: Database, session_id: UUID) -> None:
    """Look up the newest run of a session again, after one was deleted or restored."""
    runs = db.rows(Message.with_deleted).filter(
        session_id=session_id, role=Message.Role.ASSISTANT, deleted_at__isnull=True
    )
    newest = runs.order_by("-pk").only("pk", "error", "is_completed", "health", "metadata").first()
    run = Run(NO_RUN_LEFT, False, "")
    if newest is not None:
        run = Run(newest.pk, newest.error != "", interruption_of(newest))
    db.rows(Session.with_deleted).filter(pk=session_id).update(
        last_run_id=run.message_id, last_run_failed=run.failed, last_interruption=run.interruption
    )


def add_to_session(db: Database, session_id: UUID, counts: Counts) -> None:
    """Add to the counters of a session, deleted or not."""
    db.rows(Session.with_deleted).filter(pk=session_id).update(
        updated_at=timezone.now(), **{name: F(name) + getattr(counts, name) for name in COUNTERS}
    )


def _no_session() -> NotFound:
    return NotFound(_("There is no session with this id."), code="session_not_found")
