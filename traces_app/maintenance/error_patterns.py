"""Store what follows from failed calls: the patterns of their errors, so that grouping need not make them, and which of them decided
how a run ended, so that lists can filter by it.

`store_patterns` takes messages from the log of changes (messages_app.change_log), makes both and moves its place in the log, in one
transaction. An expression other than that of the stored patterns begins with all messages that have failed calls, the newest ones
first; so do another rule of what decides, and a new database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from access_app.db import Database
from access_app.db.transactions import in_transaction
from access_app.encryption.keys import encrypting_projects
from messages_app.change_log import Kind, Reader, log_all, may_wait, move, next_changes, place_of, turn_of
from messages_app.models import ChangeReader, Message
from messages_app.sql.batch import Query
from messages_app.sql.pagination import IdRange, ids_below
from messages_app.sql.partitions import make_periods, periods_of
from messages_app.sql.periods import period_at
from traces_app.ingest.partitions import TABLES
from traces_app.models import ToolCall
from traces_app.queries.error_patterns import ENCRYPTED, form, pattern_of
from traces_app.queries.runs.deciding import decide
from traces_app.queries.runs.outcome import RULE
from tracesite_sdk.records import ids

CHANGES_AT_A_TIME = 1_000
PATIENCE = timedelta(seconds=5)
"""How long a change waits, so that the patterns of a run that goes on are not made with each event; unless there are many."""
_FORM = "form"
"""Key in the state of the reader: `form` of the stored patterns, and the RULE of the calls that decided."""
# Who removes messages, masks or encrypts them locks them FOR UPDATE. So what they remove is not stored again, and no pattern is left
# without its message; others go on writing. Only those that need it are locked, because a lock writes to the row.
_LOCK = """
    SELECT id FROM messages_app_message AS message
    WHERE id = ANY(%(messages)s) AND id >= %(first)s AND id < %(after)s AND (
        failure_count > 0 OR EXISTS (
            SELECT FROM traces_app_errorpattern AS stored
            WHERE stored.message_id = message.id AND stored.id >= %(first)s AND stored.id < %(after)s
        )
    )
    ORDER BY id FOR KEY SHARE
    """
_STORE = """
    WITH failed (id, project_id, message_id, pattern) AS MATERIALIZED ({failed}), readable AS (
        SELECT * FROM failed WHERE pattern <> %s
    ), gone AS (
        DELETE FROM traces_app_errorpattern AS stored
        WHERE message_id = ANY(%s) AND id >= %s AND id < %s
        AND NOT EXISTS (SELECT FROM readable WHERE readable.id = stored.id)
    )
    INSERT INTO traces_app_errorpattern AS stored (id, project_id, message_id, pattern) SELECT * FROM readable
    ON CONFLICT (id) DO UPDATE SET pattern = EXCLUDED.pattern WHERE stored.pattern <> EXCLUDED.pattern
    """
# Locked in the order of ids, as writers do.
_STORE_DECIDING = """
    WITH changed AS (
        SELECT message.id, new.decided_by FROM messages_app_message AS message
        JOIN unnest(%s::uuid[], %s::uuid[]) AS new (id, decided_by) USING (id)
        WHERE message.id >= %s AND message.id < %s AND message.decided_by IS DISTINCT FROM new.decided_by
        ORDER BY message.id FOR NO KEY UPDATE OF message
    )
    UPDATE messages_app_message AS message SET decided_by = changed.decided_by FROM changed
    WHERE message.id = changed.id AND message.id >= %s AND message.id < %s
    """


@dataclass(kw_only=True)
class PatternReport:
    """The work of one run."""

    patterns: int = 0
    """Patterns that are new or have changed."""


def store_patterns(
    db: Database, *, patience: timedelta = PATIENCE, is_stopped: Callable[[], bool] = lambda: False
) -> PatternReport:
    """Make the patterns of the failed calls of messages that changed; end early if `is_stopped`, or if another process does the
    same."""
    report = PatternReport()
    with turn_of(db, Reader.ERRORS) as is_mine:
        while is_mine and not is_stopped() and _store_next(db, patience, report):
            pass
    return report


def _store_next(db: Database, patience: timedelta, report: PatternReport) -> bool:
    """Store the patterns of the messages that changed next; return whether there may be more."""
    place = place_of(db, Reader.ERRORS)
    if place.state.get(_FORM) != (now := f"{form()} {RULE}"):
        _begin(db, place, now)
    changes = next_changes(db, place, CHANGES_AT_A_TIME)
    if may_wait(changes, patience):
        return False
    changed = {change.message_id for change in changes if change.kind in Reader.ERRORS.kinds}
    # The table is younger than others. A period without partition has been dropped with its messages.
    stored = periods_of(db, Message._meta.db_table)
    make_periods(db, TABLES, filter(None, {period_at(stored, ids.created_at_of(key)) for key in changed}))
    deciding = _deciding(db, changed)
    with db.atomic():
        report.patterns += _store(db, changed)
        # Last, because writers wait for the rows. Who writes one of them meanwhile has logged it again.
        _store_deciding(db, deciding)
        move(db, place, changes)
    return True


@in_transaction
def _begin(db: Database, place: ChangeReader, now: str) -> None:
    """Have the patterns of all failed calls made."""
    log_all(db, db.rows(Message.with_deleted).filter(failure_count__gt=0).order_by("-pk"), Kind.PATTERN)
    place.state = {**place.state, _FORM: now}
    move(db, place, [])


def _store(db: Database, message_ids: Collection[UUID]) -> int:
    """Store the patterns of messages, as far as these exist, and remove those that they do not have any more; return how many are
    new or have changed."""
    if not message_ids:
        return 0
    within = IdRange(lower=ids.range_below(min(message_ids))[0], upper=ids.range_below(max(message_ids))[1])
    with db.cursor() as cursor:
        cursor.execute(_LOCK, {"messages": list(message_ids), "first": within.lower, "after": within.upper})
        locked = [key for (key,) in cursor.fetchall()]
        if not locked:
            return 0
        calls = db.rows(ToolCall.with_deleted).order_by().filter(message__in=locked, **within.of("pk"))
        failed = Query.of(
            calls.filter(status=ToolCall.Status.ERROR, **within.of("result__pk"))
            .exclude(project__in=encrypting_projects())
            .values_list("pk", "project_id", "message_id", pattern_of("result__error"))
        )
        cursor.execute(
            _STORE.format(failed=failed.sql), [*failed.parameters, ENCRYPTED, locked, within.lower, within.upper]
        )
        return int(cursor.rowcount)


def _deciding(db: Database, message_ids: Collection[UUID]) -> dict[UUID, UUID]:
    """Return the calls that decided how those of the messages ended that have failures. An open run is written again before it ends."""
    if not message_ids:
        return {}
    ended = db.rows(Message.with_deleted).filter(
        pk__in=message_ids, is_completed=True, failure_count__gt=0, **ids_below(message_ids)
    )
    return decide(db, ended.only("step_count", "call_count").order_by("pk"))


def _store_deciding(db: Database, deciding: Mapping[UUID, UUID]) -> None:
    if deciding:
        within = IdRange(lower=ids.range_below(min(deciding))[0], upper=ids.range_below(max(deciding))[1])
        ends = [within.lower, within.upper]
        with db.cursor() as cursor:
            cursor.execute(_STORE_DECIDING, [list(deciding), list(deciding.values()), *ends, *ends])
