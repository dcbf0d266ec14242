"""The SQL of a write. Each function takes any number of rows and sends one statement, or several in one pipeline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Literal
from uuid import UUID

from django.db import ProgrammingError
from django.db.backends.utils import CursorWrapper
from django.db.models import JSONField
from msgspec import json
from psycopg.errors import NoDataFound

from access_app.db import Database
from access_app.db.statements import execute_at_once, prepared_cursor
from messages_app.models import Message, Session, session_key
from messages_app.writes import COUNTER_TYPES, COUNTERS, Counts
from tracesite_sdk import records
from tracesite_sdk.normalize.rollup import Rollup, rollup
from tracesite_sdk.records import ids, pg_text

from .batch import KnownSession, SessionGone, WriteScope
from .rows import StoredBelow
from .tables import CONTEXTS, Row, Table, fields_of, type_of

_CLAIM = (
    "INSERT INTO messages_app_messagekey (key, project_id, message_id) "
    "SELECT key, %s::bigint, message_id FROM unnest(%s::uuid[], %s::uuid[]) AS claimed (key, message_id) "
    "ON CONFLICT DO NOTHING RETURNING key"
)
_SESSION = "SELECT id::text, external_id, (deleted_at IS NOT NULL)::text, project_id::text FROM messages_app_session"
_SESSIONS = f"""
    {_SESSION} WHERE project_id = %s::bigint AND external_id = ANY(%s::text[]) AND external_id <> ''
    UNION ALL {_SESSION} WHERE id = ANY(%s::uuid[])
    UNION ALL SELECT key::text, NULL, NULL, NULL FROM messages_app_sessiontombstone WHERE key = ANY(%s::uuid[])
    """  # noqa: S608 - constants
"""All columns as text, because `execute_at_once` returns text."""
_SESSIONS_AT_ONCE = _SESSIONS % ("$1", "$2", "$3", "$4")
# IS NOT DISTINCT FROM, because with "=" PostgreSQL may use the index on message_id and read all rows of the message.
_TOUCHED_STEPS = """
    SELECT id, iteration, duration_ms, usage::text, (metadata -> 'error')::text, model, cost FROM traces_app_agentstep
    WHERE id = ANY(%s) AND message_id IS NOT DISTINCT FROM %s AND id >= %s AND id < %s
    """
_TOUCHED_CALLS = """
    SELECT id, call_id, step_id, parent_id, status, duration_ms FROM traces_app_toolcall
    WHERE id = ANY(%s) AND message_id IS NOT DISTINCT FROM %s AND id >= %s AND id < %s
    """
# The bounds prune months.
_STEPS_BELOW = """
    SELECT id, duration_ms, usage::text, (metadata -> 'error')::text, model, cost FROM traces_app_agentstep
    WHERE message_id = %s AND id >= %s AND id < %s
    """
_CALLS_BELOW = """
    SELECT step_id, parent_id, status, duration_ms FROM traces_app_toolcall WHERE message_id = %s AND id >= %s AND id < %s
    """
_FIELDS = list(fields_of(Message))
_JSON = {name for name, field in fields_of(Message).items() if isinstance(field, JSONField)}
_LOCK_MESSAGES = (
    f"SELECT {', '.join(f'{name}::text' if name in _JSON else name for name in _FIELDS)} FROM messages_app_message "  # noqa: S608 - constants
    "WHERE id = ANY(%s) AND id BETWEEN %s AND %s ORDER BY id FOR UPDATE"
)
COUNTED = (*Rollup._fields, "version", "updated_at")
"""The columns of a message that change with the rows below it."""
_SAVE_COUNTS = (
    f"UPDATE messages_app_message SET {', '.join(f'{name} = %s::{type_of(fields_of(Message)[name])}' for name in COUNTED)} "  # noqa: S608 - constants
    "WHERE id = %s"
)
BY_ID = attrgetter("id")
"""The order in which every writer locks rows."""
FEW_ROWS = 100
"""Up to this number, rows are inserted by prepared statements in one pipeline; more by COPY, which takes two round trips for
each table but half the work for each row. Measured: one message with its 20 rows 1.3 ms instead of 2.2 by COPY, twenty
messages 13.8 and 13.4."""
ROWS_A_STATEMENT = (16, 4, 1)
"""Numbers of rows in one statement of `insert_at_once`, the largest that fits first. A statement costs 11 us, 7 of them in
PostgreSQL. Measured with one client, twenty messages with their 420 rows: one row a statement 20.4 ms, 4 and 1 17.1, these
16.2; up to 8, 32, 40 or 160 no better; by COPY, with its other statements, 20.7."""
SESSION_FIELDS = {
    name: type_of(fields_of(Session)[name])
    for name in ("title", "description", "end_user", "current_phase", "said_status", "tags", "workflow")
    + ("metadata", "redactions")
}
"""The columns of a session that a batch can change, with their types."""


_NEWS = ("last_run_id", "last_run_failed", "last_interruption", "active_at")


def _changes_by_news(
    session: str, *, last_run_id: str, last_run_failed: str, last_interruption: str, active_at: str
) -> dict[str, str]:
    """Return the new values of the columns _NEWS, given the SQL of the values of a write, which may be NULL."""
    is_older = f"{last_run_id}::uuid IS NULL OR {session}.last_run_id > {last_run_id}::uuid"
    return {
        "last_run_failed": f"CASE WHEN {is_older} THEN {session}.last_run_failed ELSE {last_run_failed}::boolean END",
        "last_interruption": f"CASE WHEN {is_older} THEN {session}.last_interruption "
        f"ELSE {last_interruption}::text END",
        # Whoever writes is back.
        "is_abandoned": "NULL",
        "last_run_id": f"greatest({session}.last_run_id, {last_run_id}::uuid)",
        # Raised by at least a second, because a column that keeps its value needs no new index entry.
        "active_at": f"CASE WHEN {active_at}::timestamptz >= {session}.active_at + interval '1 second' "
        f"THEN {active_at}::timestamptz ELSE {session}.active_at END",
    }


def _news(counts: Counts) -> tuple[str | None, str | None, str | None, str | None]:
    """Return the values of _NEWS as text."""
    run = counts.last_run
    at = pg_text.timestamp(counts.active_at)
    if run is None:
        return None, None, None, at
    return str(run.message_id), "t" if run.failed else "f", run.interruption, at


def _add_to_session() -> str:
    """Return the statement that updates a session; a parameter that is NULL leaves its column unchanged.

    Raises NoDataFound in PostgreSQL where the session is deleted or gone, which rolls back the whole batch.
    """
    numbers = {name: f"${number}" for number, name in enumerate(("id", *COUNTERS, *_NEWS, *SESSION_FIELDS), start=1)}
    changes = {name: f"{name} + {numbers[name]}::{COUNTER_TYPES[name]}" for name in COUNTERS}
    changes |= _changes_by_news("messages_app_session", **{name: numbers[name] for name in _NEWS})
    changes |= {name: f"COALESCE({numbers[name]}::{type_}, {name})" for name, type_ in SESSION_FIELDS.items()}
    changes["metadata"] = f"COALESCE(NULLIF(metadata || {numbers['metadata']}::jsonb, metadata), metadata)"
    changes["redactions"] = (
        f"CASE WHEN {numbers['redactions']}::jsonb IS NULL THEN redactions ELSE redactions || COALESCE(("  # noqa: S608 - constants
        f"SELECT jsonb_agg(one ORDER BY place) FROM jsonb_array_elements({numbers['redactions']}::jsonb) "
        "WITH ORDINALITY AS new (one, place) WHERE NOT redactions @> jsonb_build_array(one)), '[]') END"
    )
    return (
        "WITH counted AS (UPDATE messages_app_session SET updated_at = now(), "  # noqa: S608 - constants
        f"{', '.join(f'{name} = {value}' for name, value in changes.items())} "
        f"WHERE id = {numbers['id']}::uuid AND deleted_at IS NULL RETURNING 1) SELECT traces_app_require_session(count(*)) FROM counted"
    )


_ADD_TO_SESSION = _add_to_session()
_TITLE = list(SESSION_FIELDS).index("title")
LOG_RETITLED = "SELECT traces_app_log_retitled(%s::uuid, %s)"
_LOG_RETITLED = LOG_RETITLED % ("$1", "$2")
_ADD_CONTEXTS = (
    CONTEXTS.insert % tuple(f"${number}" for number in range(1, len(CONTEXTS.fields) + 1)) + " ON CONFLICT DO NOTHING"
)
_ADDED = ", ".join(
    f"{name} = {value}"
    for name, value in {
        **{name: f"session.{name} + added.{name}" for name in COUNTERS},
        **_changes_by_news("session", **{name: f"added.{name}" for name in _NEWS}),
    }.items()
)
_ADDING_ALL = (
    f"{_ADDED} FROM unnest(%s::uuid[], {', '.join(f'%s::{COUNTER_TYPES[name]}[]' for name in COUNTERS)}, %s::uuid[], "
    f"%s::boolean[], %s::text[], %s::timestamptz[]) AS added (id, {', '.join((*COUNTERS, *_NEWS))}) WHERE session.id = added.id"
)
_ADD_TO_SESSIONS = f"UPDATE messages_app_session AS session SET updated_at = now(), {_ADDING_ALL}"  # noqa: S608 - constants
_ADD_UNTOUCHED = f"UPDATE messages_app_session AS session SET {_ADDING_ALL}"  # noqa: S608 - constants
_ADDING = (
    f"UPDATE messages_app_session AS session SET updated_at = now(), {_ADDED} "  # noqa: S608 - constants
    f"FROM (SELECT {', '.join(f'%s::{COUNTER_TYPES[name]} AS {name}' for name in COUNTERS)}, %s::uuid AS last_run_id, "
    "%s::boolean AS last_run_failed, %s::text AS last_interruption, %s::timestamptz AS active_at) AS added "
    "WHERE session.id = %s AND session.deleted_at IS NULL"
)


@dataclass(frozen=True, kw_only=True)
class FoundSessions:
    """The sessions that exist of those that were looked up."""

    sessions: list[KnownSession]
    purged: set[UUID]
    """The keys of sessions that were purged."""


def look_up_sessions(db: Database, project_id: int, uuids: Sequence[UUID], names: Sequence[str]) -> FoundSessions:
    """Return the sessions of these names, and those of these ids, of any project.

    Sessions and tombstones are read in one statement, so that one that is being purged is found as one or the other.
    """
    sessions: list[KnownSession] = []
    purged: set[UUID] = set()
    for row_id, external_id, deleted, project in _rows_of_sessions(db, project_id, uuids, names):
        if external_id is None:
            purged.add(UUID(row_id))
        else:
            sessions.append(KnownSession(UUID(row_id), external_id, deleted == "true", int(project)))
    return FoundSessions(sessions=sessions, purged=purged)


def _rows_of_sessions(
    db: Database, project_id: int, uuids: Sequence[UUID], names: Sequence[str]
) -> Sequence[tuple[Any, ...]]:
    if not (uuids or names):
        return ()
    keys = [session_key(project_id, name) for name in (*names, *map(str, uuids))]
    values = [str(project_id), pg_text.array(names), pg_text.array(map(str, uuids)), pg_text.array(map(str, keys))]
    if db.connection.get_autocommit():
        # 0.4 ms of CPU where a cursor takes 0.7.
        return execute_at_once(db, [(_SESSIONS_AT_ONCE, values)])[0]
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(_SESSIONS, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def tool_names(steps: Iterable[records.AgentStep]) -> list[str]:
    return sorted({pg_text.text(call.name) for step in steps for call in step.tool_calls or ()})


def claim_keys(db: Database, project_id: int, claims: Mapping[UUID, UUID]) -> dict[UUID, UUID]:
    """Claim keys for ids of messages of a project (MessageKey); return the message ids of keys that were claimed before."""
    if not claims:
        return {}
    keys = sorted(claims)
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(_CLAIM, [str(project_id), keys, [claims[key] for key in keys]])
        fresh = {row[0] for row in cursor.fetchall()}
        if len(fresh) == len(keys):
            return {}
        # A conflicting insert of another sender is committed by now, and therefore visible.
        cursor.execute(
            "SELECT key, message_id FROM messages_app_messagekey WHERE key = ANY(%s)",
            [[key for key in keys if key not in fresh]],
        )
        return dict(cursor.fetchall())


def lock_messages(db: Database, message_ids: Collection[UUID]) -> dict[UUID, Message]:
    return lock_with_touched(db, message_ids, {})[0]


def lock_with_touched(
    db: Database, message_ids: Collection[UUID], touched: Mapping[UUID, WriteScope]
) -> tuple[dict[UUID, Message], dict[UUID, StoredBelow]]:
    """Lock messages, and read the rows in their write scopes with totals, in one pipeline."""
    if not message_ids:
        return {}, {}
    with exchange(db) as ask:
        # The bounds prune months; a generic plan would look into all of them.
        locked = ask(_LOCK_MESSAGES, list(message_ids), min(message_ids), max(message_ids))
        queries = {key: _query_touched(ask, key, touched[key]) for key in message_ids if key in touched}
    rows = locked.fetchall()
    below = {message_id: [cursor.fetchall() for cursor in cursors] for message_id, cursors in queries.items()}
    messages = {row[0]: Message.from_db(db.connection.alias, _FIELDS, _values(row)) for row in rows}
    return messages, {message_id: _stored(*answers) for message_id, answers in below.items()}


@contextmanager
def exchange(db: Database) -> Iterator[Callable[..., CursorWrapper]]:
    """Yield a function that sends a prepared statement in a pipeline. Fetch from its cursors after the block: to fetch within it
    would be a round trip more. Measured for two statements: 0.26 ms instead of 0.17."""
    db.connection.close_if_health_check_failed()
    db.connection.ensure_connection()
    with db.connection.wrap_database_errors, db.connection.connection.pipeline():

        def ask(statement: str, *parameters: Any) -> CursorWrapper:
            cursor = prepared_cursor(db.connection)
            cursor.execute(statement, parameters)
            return cursor

        yield ask


def _values(row: Sequence[Any]) -> list[Any]:
    """Convert a row of _LOCK_MESSAGES to the values of the model."""
    return [
        json.decode(value) if name in _JSON and value is not None else value
        for name, value in zip(_FIELDS, row, strict=True)
    ]


def save_counts(db: Database, row: Message) -> None:
    """Save the columns COUNTED of a message."""
    with prepared_cursor(db.connection) as cursor:
        values = [getattr(row, name) for name in COUNTED]
        # As text, because psycopg sends larger numbers with another type, which would prepare another statement.
        cursor.execute(_SAVE_COUNTS, [*(None if value is None else str(value) for value in values), row.pk])


def stored_below(db: Database, message_ids: list[UUID]) -> dict[UUID, StoredBelow]:
    """Return the steps and calls that exist below each message."""
    stored = {message_id: StoredBelow() for message_id in message_ids}
    with db.cursor() as cursor:
        cursor.execute(
            "SELECT message_id, id, iteration FROM traces_app_agentstep WHERE message_id = ANY(%s)", [message_ids]
        )
        for message_id, step_id, iteration in cursor.fetchall():
            below = stored[message_id]
            below.step_ids.add(step_id.hex)
            below.next_iteration = max(below.next_iteration, iteration + 1)
        cursor.execute(
            "SELECT message_id, id, call_id, status FROM traces_app_toolcall WHERE message_id = ANY(%s)", [message_ids]
        )
        for message_id, row_id, call_id, status in cursor.fetchall():
            stored[message_id].call_ids[row_id.hex] = call_id
            if status == "pending":
                stored[message_id].open_calls.add(row_id.hex)
    return stored


def _stored(steps: Sequence[tuple[Any, ...]], calls: Sequence[tuple[Any, ...]]) -> StoredBelow:
    stored = StoredBelow()
    for step_id, iteration, *_values in steps:
        stored.step_ids.add(step_id.hex)
        stored.next_iteration = max(stored.next_iteration, iteration + 1)
    for row_id, call_id, _step_id, _parent_id, status, _duration in calls:
        stored.call_ids[row_id.hex] = call_id
        if status == "pending":
            stored.open_calls.add(row_id.hex)
    stored.totals = _counted(steps, calls)
    return stored


def count_below(db: Database, row: Message) -> Rollup:
    """Return the totals of a message, from everything below it."""
    bounds = [row.pk, *ids.range_below(row.pk)]
    with exchange(db) as ask:
        steps, calls = ask(_STEPS_BELOW, *bounds), ask(_CALLS_BELOW, *bounds)
    is_answer = row.role == Message.Role.ASSISTANT and row.is_completed and not row.error
    rows_of_steps = [
        (id_, duration, _decoded(usage), _decoded(error), model, cost)
        for id_, duration, usage, error, model, cost in steps.fetchall()
    ]
    return rollup(row.usage, rows_of_steps, calls.fetchall(), is_answer=is_answer)


def _query_touched(
    ask: Callable[..., CursorWrapper], message_id: UUID, touched: WriteScope
) -> tuple[CursorWrapper, CursorWrapper]:
    # The bounds prune months in a generic plan, which an array cannot.
    bounds = [message_id, *ids.range_below(message_id)]
    return ask(_TOUCHED_STEPS, list(touched.step_ids), *bounds), ask(_TOUCHED_CALLS, list(touched.call_ids), *bounds)


def _counted(steps: Sequence[tuple[Any, ...]], calls: Sequence[tuple[Any, ...]]) -> Rollup:
    return rollup(
        None,
        [
            (step_id, duration, _decoded(usage), _decoded(error), model, cost)
            for step_id, _iteration, duration, usage, error, model, cost in steps
        ],
        [(step_id, parent_id, status, duration) for _id, _call_id, step_id, parent_id, status, duration in calls],
        is_answer=False,
    )


def _decoded(value: str | None) -> Any:
    return json.decode(value) if value else None


Tables = Sequence[tuple[Table, list[Row]]]
"""Tables and the rows that are to be inserted into them."""


def insert_rows(db: Database, tables: Tables) -> None:
    """Insert rows, in the order of ids in each table."""
    # Django wraps neither pipelines nor copy(), so their errors would be psycopg's own.
    with db.connection.wrap_database_errors:
        if sum(len(lines) for _table, lines in tables) <= FEW_ROWS:
            with prepared_cursor(db.connection) as cursor, db.connection.connection.pipeline():
                _insert(cursor, tables)
            return
        for table, lines in tables:
            if lines:
                with (
                    db.cursor() as cursor,
                    cursor.copy(f"COPY {table.name} ({table.columns}) FROM STDIN") as copy,
                ):
                    for line in sorted(lines, key=BY_ID):
                        copy.write_row(line)


def insert_at_once(
    db: Database,
    tables: Tables,
    counted: Iterable[tuple[UUID, Counts, Sequence[str | None]]],
    contexts: Iterable[Row] = (),
) -> None:
    """Insert rows in the given order, then update sessions: their id, the change of their counters, and a value or None for
    each of SESSION_FIELDS; then insert the contexts that do not exist. Everything is sent at once as one transaction.

    Raise IntegrityError if a key or an id is taken, SessionGone if a session is gone or deleted.
    """
    statements = [statement for table, lines in tables for statement in _inserts(table, lines)]
    for session_id, counts, fields in counted:
        title = fields[_TITLE]
        if title is not None:
            statements.append((_LOG_RETITLED, [session_id.hex, title]))
        added = (str(getattr(counts, name)) for name in COUNTERS)
        statements.append((_ADD_TO_SESSION, [session_id.hex, *added, *_news(counts), *fields]))
    wanted = {row.id: row for row in contexts}
    if wanted:
        columns = zip(*(wanted[row_id] for row_id in sorted(wanted)), strict=True)
        statements.append((_ADD_CONTEXTS, [pg_text.array(column) for column in columns]))
    try:
        execute_at_once(db, statements)
    except ProgrammingError as error:
        if isinstance(error.__cause__, NoDataFound):
            raise SessionGone from error
        raise


def _inserts(table: Table, lines: Sequence[Row]) -> Iterator[tuple[str, list[str | None]]]:
    begin = 0
    for size in ROWS_A_STATEMENT:
        while begin + size <= len(lines):
            values = [value for line in lines[begin : begin + size] for value in line]
            yield _insert_of(table, size), values
            begin += size


@cache
def _insert_of(table: Table, size: int) -> str:
    width = len(table.fields)
    places = (", ".join(f"${line * width + column}" for column in range(1, width + 1)) for line in range(size))
    return f"INSERT INTO {table.name} ({table.columns}) VALUES {', '.join(f'({line})' for line in places)}"  # noqa: S608 - constants


def _insert(cursor: CursorWrapper, tables: Tables) -> None:
    for table, lines in tables:
        if lines:
            marks = ", ".join("%s" for _column in table.fields)
            statement = f"INSERT INTO {table.name} ({table.columns}) VALUES ({marks})"  # noqa: S608 - names of the model
            cursor.executemany(statement, sorted(lines, key=BY_ID))


def upsert_rows(
    db: Database, tables: Tables, message_id: UUID, touched: WriteScope | None
) -> tuple[bool, Rollup | None]:
    """Insert rows or merge them into existing ones, parents first, in one pipeline. Return whether any changed, and the new
    totals of the rows in the write scope."""
    if not tables:
        return False, None
    with exchange(db) as ask:
        cursors = [
            ask(table.upsert, *map(pg_text.array, zip(*sorted(lines, key=BY_ID), strict=True)))
            for table, lines in tables
        ]
        counted = touched and _query_touched(ask, message_id, touched)
    changed = [cursor.fetchall() for cursor in cursors]
    below = counted and [cursor.fetchall() for cursor in counted]
    return any(changed), _counted(*below) if below else None


def add_to_sessions(db: Database, counts: Mapping[UUID, Counts], *, touch: bool = True) -> None:
    """Add to the counters of sessions, which have changed now only with `touch`.

    Several must be locked before, in the order of ids.
    """
    added = {session_id: count for session_id, count in counts.items() if count}
    if not added:
        return
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(
            _ADD_TO_SESSIONS if touch else _ADD_UNTOUCHED,
            # As text, because psycopg sends larger numbers with another type, which would prepare another statement.
            [
                list(added),
                *([str(getattr(count, name)) for count in added.values()] for name in COUNTERS),
                *map(list, zip(*map(_news, added.values()), strict=True)),
            ],
        )


def add_to_session(db: Database, session_id: UUID, counts: Counts, columns: Sequence[str]) -> tuple[Any, ...] | None:
    """Lock a session by adding to its counters; return some of its columns, or None if it is deleted or gone."""
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(
            f"{_ADDING} RETURNING session.id{''.join(f', {name}' for name in columns)}",
            [*(str(getattr(counts, name)) for name in COUNTERS), *_news(counts), session_id],
        )
        row: tuple[Any, ...] | None = cursor.fetchone()
        return None if row is None else row[1:]


def add_receipts(
    db: Database,
    table: Literal["messages_app_message", "messages_app_session"],
    row_id: UUID,
    receipts: Sequence[dict[str, Any]],
) -> None:
    """Add receipts to a message or session, each once and in a stable order."""
    added = pg_text.json(list(receipts))
    with db.cursor() as cursor:
        cursor.execute(
            f"UPDATE {table} SET redactions = (SELECT jsonb_agg(DISTINCT one) "  # noqa: S608 - one of the two names
            "FROM jsonb_array_elements(redactions || %s::jsonb) AS one) WHERE id = %s AND NOT redactions @> %s::jsonb",
            [added, row_id, added],
        )


def lock_sessions(db: Database, ids: Collection[UUID], columns: Sequence[str]) -> dict[UUID, tuple[Any, ...]]:
    """Lock the sessions that are not deleted, in the order of ids, and return some of their columns.

    Senders to the same sessions wait here for the rest of the other transaction.
    """
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(
            f"SELECT {', '.join(['id', *columns])} FROM messages_app_session "  # noqa: S608 - constants
            f"WHERE id = ANY(%s) AND deleted_at IS NULL ORDER BY id FOR NO KEY UPDATE",
            [list(ids)],
        )
        return {row[0]: row[1:] for row in cursor.fetchall()}
