"""Prepare a database for the traces of projects, and move those of a project there. See docs/scaling.md.

 1. Triggers refuse all writes of the project where it is; to make them waits for those that have begun.
 2. Its rows are copied by COPY, from one snapshot and in one transaction, and compared.
 3. The directory changes: requests from then on go to the other database.
 4. The old rows go. The database refuses new ones from then on.

A move that is killed is gone on with by the same command, or taken back by one that names the database where the project is: before
step 3 nothing is missing there, and after it nothing here is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from psycopg import sql

from access_app.audit.record import record_project_change
from access_app.audit.trail import Actor
from access_app.db import Database, all_aliases, primary
from access_app.db.conflicts import retry_aborted
from access_app.db.direct import lock_key, session_lock
from access_app.errors import Conflict
from access_app.models import Encryption, Project, ProjectDatabase
from access_app.places import (
    AWAY,
    MOVING,
    accept_rows,
    alias_of,
    change_triggers,
    copy_project,
    refuse_rows,
    set_place,
)
from messages_app.change_log import Kind, log_changes
from messages_app.models import Message, MessageKey, PurgedPeriod, Reference, Session, SessionTombstone
from messages_app.sql.partitions import periods_of
from traces_app.ingest.partitions import TABLES, ensure_periods
from traces_app.models import (
    AgentStep,
    Archive,
    ArchivedSession,
    Context,
    DueTrace,
    Event,
    Score,
    Snapshot,
    SnapshotPart,
    SnapshotSums,
    Span,
    Tool,
    ToolCall,
    ToolResult,
)

LOCK: Final = lock_key("tracesite move of a project")
_ATTEMPTS: Final = 30
_PAUSE_SECONDS: Final = 1
_MARKS: Final = 10_000
MOVED: Final[tuple[type[Any], ...]] = (
    Session,
    Tool,
    Message,
    MessageKey,
    SessionTombstone,
    Reference,
    AgentStep,
    ToolCall,
    ToolResult,
    Event,
    Context,
    Span,
    DueTrace,
    Score,
    SnapshotSums,
    Snapshot,
    SnapshotPart,
    Archive,
    ArchivedSession,
)
"""Models whose rows move with their project; those that others refer to come first."""
_MADE_ANEW: Final = (
    # Indexes and statistics, which the readers of the log make of the rows.
    "traces_app_runvector",
    "traces_app_errorpattern",
    "traces_app_toolperiod",
)
_MARKS_OF_NO_PROJECT: Final[tuple[tuple[type[Any], str], ...]] = (
    # By a version whose marks did not carry their project.
    (MessageKey, "project_id = 0"),
    (SessionTombstone, "project_id = 0"),
    # Without them the keys of a dropped period would be kept for ever, and be called stray.
    (PurgedPeriod, "true"),
)
"""Marks of what was purged of any project, with the condition of their rows."""
_REFUSE: Final = """
    CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF current_setting({setting}, true) IS DISTINCT FROM 'on' THEN
            IF TG_OP <> 'DELETE' THEN
                IF NEW.project_id = {project} THEN
                    RAISE EXCEPTION 'the traces of this project are being moved' USING ERRCODE = '57P03';
                END IF;
            END IF;
            IF TG_OP <> 'INSERT' THEN
                IF OLD.project_id = {project} THEN
                    RAISE EXCEPTION 'the traces of this project are being moved' USING ERRCODE = '57P03';
                END IF;
            END IF;
        END IF;
        RETURN coalesce(NEW, OLD);
    END $$
    """


IDS_OF_A_DATABASE: Final = 2**40
"""How many ids of a table a database gives, so that a row keeps its id when its project moves. JavaScript takes 2**53 exactly."""


class NotEmpty(Exception):
    """A database that is to be prepared has traces of another site."""


def prepare(alias: str) -> None:
    """Note a migrated database in the primary, and let it give ids that no other one gives. Raise NotEmpty."""
    if ProjectDatabase.objects.filter(alias=alias).exists():
        return
    if Project.objects.using(alias).exists():
        raise NotEmpty(f"The database {alias} has projects, but is not one of this site. Use an empty one.")
    with primary.atomic():
        database = ProjectDatabase.objects.create(alias=alias)
        with Database(alias).atomic(), Database(alias).cursor() as cursor:
            for model in (Tool, SnapshotPart, ArchivedSession):  # of what moves; other ids are UUIDs
                cursor.execute(
                    "SELECT setval(pg_get_serial_sequence(%s, 'id'), %s, false)",
                    [model._meta.db_table, database.pk * IDS_OF_A_DATABASE],
                )


@dataclass(kw_only=True)
class Moved:
    """The outcome of a move."""

    source: str
    rows: dict[str, int] = field(default_factory=dict)
    """Copied rows, by table."""
    removed: int = 0
    """Rows that were removed where the project is not."""
    read_only_seconds: float = 0.0
    """For how long senders had to try again."""


def move(actor: Actor | None, project: Project, alias: str) -> Moved:
    """Move the traces of a project to the database of this alias, and remove them elsewhere.

    To where it is already: end or take back a move that was interrupted. Raise Conflict for an encrypted project, while another
    move runs, if others do not stop writing for a moment, and if the copy differs.
    """
    with session_lock(primary, LOCK) as is_alone:
        if not is_alone:
            raise Conflict("Another project is being moved. Try again when that has ended.")
        project.refresh_from_db()
        if project.encryption != Encryption.OFF:
            raise Conflict("Encrypted projects stay in the primary. Turn its encryption off first.")
        done = Moved(source=alias_of(project.pk))
        if done.source != alias:
            began = time.monotonic()
            try:
                _close(project.pk, done.source)
                _copy(project, Database(done.source), Database(alias), done)
                set_place(project, alias)
            finally:
                if alias_of(project.pk) == done.source:
                    _open(project.pk, done.source)
            done.read_only_seconds = time.monotonic() - began
            record_project_change(
                actor, project, {"moved_from": done.source, "moved_to": alias, "messages": done.rows[_table(Message)]}
            )
        _open(project.pk, alias)
        change_triggers(alias, lambda cursor: accept_rows(project.pk, cursor))
        for other in all_aliases():
            if other != alias:
                change_triggers(other, lambda cursor: refuse_rows(project.pk, cursor))
                done.removed += _remove(Database(other), project.pk)
                _open(project.pk, other)
        return done


# --- Closing ----------------------------------------------------------------------------------------------------------


def _close(project_id: int, alias: str) -> None:
    """Let a database refuse writes of a project, once those that have begun are committed."""

    def refuse(cursor: Any) -> None:
        for model in MOVED:
            name = sql.Identifier(_name(project_id, model))
            cursor.execute(
                sql.SQL(_REFUSE).format(name=name, setting=sql.Literal(MOVING), project=sql.Literal(project_id))
            )
            cursor.execute(
                sql.SQL(
                    "CREATE OR REPLACE TRIGGER {name} BEFORE INSERT OR UPDATE OR DELETE ON {table} "
                    "FOR EACH ROW EXECUTE FUNCTION {name}()"
                ).format(name=name, table=sql.Identifier(_table(model)))
            )

    change_triggers(alias, refuse)


def _open(project_id: int, alias: str) -> None:
    """Undo `_close`."""

    def accept(cursor: Any) -> None:
        for model in MOVED:
            cursor.execute(
                sql.SQL("DROP FUNCTION IF EXISTS {}() CASCADE").format(sql.Identifier(_name(project_id, model)))
            )

    change_triggers(alias, accept)


def _name(project_id: int, model: type[Any]) -> str:
    return f"{AWAY}_{project_id}_{model._meta.model_name}"[:63]


# --- Copying ----------------------------------------------------------------------------------------------------------


def _copy(project: Project, here: Database, there: Database, done: Moved) -> None:
    copy_project(project, there.alias)
    _remove(there, project.pk)  # of an interrupted move
    ensure_periods(there, periods_of(here, TABLES[0].name))
    with ExitStack() as stack:
        source, target = (stack.enter_context(_cursor(each)) for each in (here, there))
        for model in MOVED:
            _copy_rows(source, target, model, project.pk)
        for model, which in _MARKS_OF_NO_PROJECT:
            _copy_marks(source, target, model, which)
        for model in MOVED:
            old, new = (_digest(cursor, model, project.pk) for cursor in (source, target))
            if old != new:
                raise Conflict(f"The copy of {_table(model)} differs: {old} and {new} (rows, sum of hashes).")
            done.rows[_table(model)] = new[0]
        _log(there, project.pk, Kind.CONTENT)


def _copy_rows(source: Any, target: Any, model: type[Any], project_id: int) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, _columns(model)))
    table = sql.Identifier(_table(model))
    select = sql.SQL("COPY (SELECT {} FROM {} WHERE project_id = {}) TO STDOUT (FORMAT BINARY)").format(
        columns, table, sql.Literal(project_id)
    )
    insert = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(table, columns)
    with source.copy(select) as out, target.copy(insert) as into:
        for block in out:
            into.write(block)


def _copy_marks(source: Any, target: Any, model: type[Any], which: str) -> None:
    """Copy marks of what was purged, of all projects, beside those that are there. In 30 days they are gone."""
    names = {"table": sql.Identifier(_table(model)), "staged": sql.Identifier(f"moved_{model._meta.model_name}")}
    target.execute(sql.SQL("CREATE TEMPORARY TABLE {staged} (LIKE {table}) ON COMMIT DROP").format(**names))
    columns = sql.SQL(", ").join(map(sql.Identifier, _columns(model)))
    select = sql.SQL("COPY (SELECT {} FROM {} WHERE {}) TO STDOUT").format(columns, names["table"], sql.SQL(which))
    with (
        source.copy(select) as out,
        target.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(names["staged"], columns)) as into,
    ):
        for block in out:
            into.write(block)
    target.execute(
        sql.SQL("INSERT INTO {table} ({columns}) SELECT {columns} FROM {staged} ON CONFLICT DO NOTHING").format(
            **names, columns=columns
        )
    )


def _digest(cursor: Any, model: type[Any], project_id: int) -> tuple[int, str]:
    """Return the number of rows and the sum of hashes of all their values."""
    cursor.execute(
        sql.SQL(
            "SELECT count(*), coalesce(sum(hashtextextended(ROW({})::text, 0)::numeric), 0)::text FROM {} WHERE project_id = %s"
        ).format(sql.SQL(", ").join(map(sql.Identifier, _columns(model))), sql.Identifier(_table(model))),
        [project_id],
    )
    rows, digest = cursor.fetchone()
    return rows, digest


def _log(db: Database, project_id: int, kind: Kind) -> None:
    """Note the messages of a project in a database: they are sealed as they are by then, or as removed."""
    some = []
    keys = db.rows(Message.with_deleted).filter(project=project_id).order_by().values_list("pk", flat=True)
    for key in keys.iterator(chunk_size=_MARKS):
        some.append(key)
        if len(some) == _MARKS:
            log_changes(db, dict.fromkeys(some, project_id), kind, sealed=some)
            some = []
    log_changes(db, dict.fromkeys(some, project_id), kind, sealed=some)


def _remove(db: Database, project_id: int) -> int:
    """Remove the rows of a project where it is not; return their number."""
    # Jobs seal and index the same rows; they try again, too.
    return retry_aborted(partial(_remove_at_once, db, project_id), attempts=_ATTEMPTS, pause=_PAUSE_SECONDS)


def _remove_at_once(db: Database, project_id: int) -> int:
    removed = 0
    with _cursor(db) as cursor:
        _log(db, project_id, Kind.FIGURES)
        for table in (*_MADE_ANEW, *map(_table, reversed(MOVED))):
            cursor.execute(sql.SQL("DELETE FROM {} WHERE project_id = %s").format(sql.Identifier(table)), [project_id])
            removed += cursor.rowcount
    return removed


@contextmanager
def _cursor(db: Database) -> Iterator[Any]:
    """Give a cursor, in a transaction that may write what the triggers refuse."""
    with db.atomic(), db.cursor() as cursor:
        # One snapshot, for what is read of several tables.
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT set_config(%s, 'on', true)", [MOVING])
        cursor.execute("SET LOCAL statement_timeout = 0; SET LOCAL enable_seqscan = on")
        yield cursor


def _columns(model: type[Any]) -> list[str]:
    return [field.column for field in model._meta.concrete_fields if not field.generated]


def _table(model: type[Any]) -> str:
    return str(model._meta.db_table)
