"""Bring what is archived back into the database: a period, a project or a session, as the same rows.

Each project and period is one transaction, so that a process that is killed restores it or does not. A message that the database
has is left as it is, with everything below it; so is a session. The archive keeps its files.

What is derived is not in the archive: the counters of sessions are recounted, and the messages are noted in the log of
changes, from which the rest is made.
"""

# ruff: noqa: S608 - SQL is built from the texts in this file and the names of tables and columns

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from access_app.audit.record import record
from access_app.db import Database
from access_app.models import AuditAction, Project
from messages_app.change_log import log_changes
from messages_app.interruptions import FLAG, NO_NEWS, PROCESS_ENDED, reason_of
from messages_app.models import Message, MessageKey, Session, SessionTombstone
from messages_app.session_counters import recount
from messages_app.sql.periods import Period
from traces_app.ingest.joined_traces import JOINED
from traces_app.ingest.partitions import ensure_periods
from traces_app.models import Archive, Tool
from tracesite_sdk.records import ids

from .archiving import alone, note_sessions
from .binding import bound
from .datasets import CALLS, CONTEXTS, DATASETS, MESSAGES, SCORES, SESSIONS, SPANS, TOOLS, WITH_SESSION, Dataset, Row
from .folder import ArchiveError, Folder, Manifest, nothing_archived

_AT_ONCE = 1_000

Progress = Callable[[int], object]
"""Called with the number of messages read since the last call."""


@dataclass(kw_only=True)
class RestoreReport:
    """The result of a restore."""

    restored: list[tuple[str, str]] = field(default_factory=list)
    """(project, period) of each manifest that was read."""
    rows: dict[str, int] = field(default_factory=lambda: {dataset.name: 0 for dataset in DATASETS})
    messages_there: int = 0
    """Messages that were in the database already, or whose session or external id belongs to newer data."""


def restore(
    db: Database,
    folder: Folder,
    *,
    project: str | None = None,
    period: str | None = None,
    session: str | None = None,
    progress: Progress = lambda _: None,
) -> RestoreReport:
    """Restore what is archived of a project, a period and a session (its id or external id); None means all.

    Raise NotAnArchive if nothing of it is archived, and ArchiveError if a file is damaged: then its period is not restored.
    """
    report = RestoreReport()
    with alone(db):
        for manifest in folder.manifests(project, period):
            wanted = None if session is None else _sessions_named(folder, manifest, session)
            if wanted is None or wanted:
                folder.check(manifest)
                _restore(db, folder, manifest, wanted, report, progress)
    if not report.restored:
        raise nothing_archived(folder, project=project, period=period, session=session)
    return report


def _sessions_named(folder: Folder, manifest: Manifest, name: str) -> set[str]:
    session_ids: set[str] = set()
    if "sessions" in manifest.tables:
        for batch in folder.batches(folder.path(manifest.tables["sessions"].path), ["id", "external_id"]):
            names = zip(batch.column("id").to_pylist(), batch.column("external_id").to_pylist(), strict=True)
            session_ids.update(session_id for session_id, external_id in names if name in (session_id, external_id))
    return session_ids


def _restore(
    db: Database, folder: Folder, manifest: Manifest, wanted: set[str] | None, report: RestoreReport, progress: Progress
) -> None:
    project = Project.objects.filter(slug=manifest.project).first()
    if project is None:
        raise ArchiveError(
            f"There is no project {manifest.project!r} in the database. Create it first: create_project {manifest.project}"
        )
    period = Period.parse(manifest.period)
    ensure_periods(db, {period, *_periods_of_spans(folder, manifest)})
    with db.atomic():
        _Restoring(db, folder, manifest, project, wanted, report, progress).run()
        if wanted is None:
            # Also of an archive that another database has written.
            noted, is_new = db.rows(Archive.objects).get_or_create(
                project=project,
                period=manifest.period,
                url=folder.url,
                defaults={
                    "id": manifest.id,
                    "month": period.begin,
                    "rows": manifest.rows,
                    "fingerprint": "",
                    "created_at": manifest.created_at,
                },
            )
            if is_new:
                note_sessions(db, folder, noted, manifest)
            db.rows(Archive.objects).filter(pk=noted.pk).update(dropped_at=None)
        record(
            AuditAction.RESTORE,
            db.actor,
            project_id=project.pk,
            object_type="archive",
            object_id=manifest.id,
            object_name=f"{folder.url} {manifest.period}",
            detail={"period": manifest.period, "sessions": None if wanted is None else len(wanted)},
        )
    report.restored.append((manifest.project, manifest.period))


def _periods_of_spans(folder: Folder, manifest: Manifest) -> set[Period]:
    if "spans" not in manifest.tables:
        return set()
    batches = folder.batches(folder.path(manifest.tables["spans"].path), ["id"])
    return {
        Period.of(ids.created_at_of(UUID(span_id))) for batch in batches for span_id in batch.column("id").to_pylist()
    }


@dataclass(frozen=True)
class _Restoring:
    """The restore of a manifest, or of the `wanted` sessions in it, within its transaction."""

    db: Database
    folder: Folder
    manifest: Manifest
    project: Project
    wanted: set[str] | None
    report: RestoreReport
    progress: Progress

    def run(self) -> None:
        for dataset in (SESSIONS, MESSAGES):
            self._stage(dataset)
        self._execute("CREATE TEMPORARY TABLE restored_session (id uuid PRIMARY KEY) ON COMMIT DROP")
        self._execute("CREATE TEMPORARY TABLE restored_message (id uuid PRIMARY KEY) ON COMMIT DROP")
        # A session whose external id another one has by now is left out.
        self._insert(SESSIONS, "true", into="restored_session")
        self._forget_tombstones()
        self._insert_messages()
        self._make_tools()
        traces = self._traces()
        for dataset in DATASETS:
            if dataset not in (SESSIONS, MESSAGES, TOOLS):
                self._stage(dataset, traces)
                self._insert(dataset, self._condition_of(dataset))
        self._settle()

    def _stage(self, dataset: Dataset, traces: Collection[str] = ()) -> None:
        """Copy the archived rows into a temporary table."""
        columns = ", ".join(f'"{column.name}" {column.stored_as}' for column in dataset.columns)
        self._execute(f"CREATE TEMPORARY TABLE {_staged(dataset)} ({columns}) ON COMMIT DROP")
        names = ", ".join(f'"{column.name}"' for column in dataset.columns)
        with self.db.connection.wrap_database_errors, self.db.cursor() as cursor:
            with cursor.copy(f"COPY {_staged(dataset)} ({names}) FROM STDIN") as copy:
                for row in self._rows(dataset, traces):
                    copy.write_row(row)
            cursor.execute(f"ANALYZE {_staged(dataset)}")

    def _rows(self, dataset: Dataset, traces: Collection[str]) -> Iterator[Row]:
        file = self.manifest.tables.get(dataset.name)
        if file is None:
            return
        by, among = self._selection(dataset, traces)
        for rows in bound(dataset, self.folder.rows(dataset, file)):
            if dataset is MESSAGES:
                self.progress(len(rows))
            yield from rows if by is None else (row for row in rows if row[by] in among or _is_link(dataset, row))

    def _selection(self, dataset: Dataset, traces: Collection[str]) -> tuple[int | None, Collection[str]]:
        """Return the place of the column that chooses rows, and its values."""
        if self.wanted is None or dataset is TOOLS:
            return None, ()
        if dataset is SPANS:
            return dataset.place_of("trace_id"), traces
        return dataset.place_of("id" if dataset is SESSIONS else "session_id"), self.wanted

    def _insert(self, dataset: Dataset, condition: str, *, into: str | None = None) -> int:
        """Insert staged rows that do not exist; with `into` note their ids in that table."""
        values = {column.name: f't."{column.name}"' for column in dataset.columns if column.is_restored}
        if "project_id" in values:
            values["project_id"] = str(self.project.pk)
        source = f"{_staged(dataset)} AS t"
        if dataset is CALLS:
            source += (
                f" JOIN {Tool._meta.db_table} AS tool ON tool.project_id = {self.project.pk} AND tool.name = t.tool"
            )
            values["tool_id"] = "tool.id"
        columns = ", ".join(f'"{name}"' for name in values)
        insert = (
            f"INSERT INTO {dataset.table} ({columns}) SELECT {', '.join(values.values())} FROM {source} "
            f"WHERE {condition} ORDER BY t.{dataset.key} ON CONFLICT DO NOTHING"
        )
        if into:
            insert = f"WITH new AS ({insert} RETURNING id) INSERT INTO {into} SELECT id FROM new"
        count = self._execute(insert)
        self.report.rows[dataset.name] += count
        return count

    def _insert_messages(self) -> None:
        key = ids.key_in_sql("'message'", "t.session_id", "t.external_id")
        staged, keys = _staged(MESSAGES), MessageKey._meta.db_table
        named = f"SELECT {key} AS key, t.id FROM {staged} AS t WHERE t.external_id <> ''"
        self._execute(f"SELECT 1 FROM {keys} WHERE key IN (SELECT key FROM ({named}) AS named) ORDER BY key FOR UPDATE")
        # A name that a living message has by now stays with it.
        taken = (
            f"SELECT 1 FROM {keys} AS k JOIN {MESSAGES.table} AS other ON other.id = k.message_id "
            f"WHERE t.external_id <> '' AND k.key = {key} AND k.message_id <> t.id"
        )
        count = self._insert(
            MESSAGES,
            f"EXISTS (SELECT 1 FROM {SESSIONS.table} AS s WHERE s.id = t.session_id "
            f"AND s.project_id = {self.project.pk}) AND NOT EXISTS ({taken})",
            into="restored_message",
        )
        self.report.messages_there += self._count(f"SELECT count(*) FROM {staged}") - count
        self._execute(
            f"INSERT INTO {keys} (key, project_id, message_id) "
            f"SELECT named.key, {self.project.pk}, named.id FROM ({named}) AS named "
            "JOIN restored_message ON restored_message.id = named.id ORDER BY named.key "
            "ON CONFLICT (key) DO UPDATE SET project_id = excluded.project_id, message_id = excluded.message_id, purged_at = NULL"
        )

    def _forget_tombstones(self) -> None:
        key = ids.key_in_sql("'session'", str(self.project.pk), "name")
        self._execute(
            f"DELETE FROM {SessionTombstone._meta.db_table} WHERE key IN (SELECT {key} FROM {_staged(SESSIONS)} AS t "
            "JOIN restored_session ON restored_session.id = t.id "
            "CROSS JOIN LATERAL unnest(ARRAY[t.id::text, t.external_id]) AS name WHERE name <> '')"
        )

    def _make_tools(self) -> None:
        """Make the tools that are missing; in another database a tool has another id."""
        self._stage(TOOLS)
        self.report.rows["tools"] += self._execute(
            f"INSERT INTO {TOOLS.table} (project_id, name, description, category) "
            f"SELECT {self.project.pk}, name, description, category FROM {_staged(TOOLS)} ORDER BY name ON CONFLICT DO NOTHING"
        )

    def _traces(self) -> set[str]:
        """Return the traces of the wanted sessions."""
        if self.wanted is None:
            return set()
        column = MESSAGES.place_of("metadata")
        metadata = (msgspec.json.decode(row[column]) for row in self._rows(MESSAGES, ()))
        trace_ids = {document.get("trace_id") for document in metadata if isinstance(document, dict)}
        return {
            str(UUID(trace_id))
            for trace_id in trace_ids
            if isinstance(trace_id, str) and len(trace_id) == 32 and _is_hex(trace_id)
        }

    def _condition_of(self, dataset: Dataset) -> str:
        """Return which staged rows are inserted."""
        below = "t.message_id IN (SELECT id FROM restored_message)"
        if dataset is SPANS:
            return "true"
        if dataset in WITH_SESSION:
            return "t.session_id IN (SELECT id FROM restored_session)"
        if dataset is CONTEXTS:
            return f"({below} OR (t.message_id IS NULL AND t.session_id IN (SELECT id FROM {SESSIONS.table})))"
        if dataset is SCORES:
            return (
                f"({below} OR (t.message_id IS NULL AND t.session_id IN (SELECT id FROM restored_session)) "
                "OR (t.session_id IS NULL))"
            )
        return below

    def _settle(self) -> None:
        """Note the messages in the log, and count them for their sessions."""
        for some in self._batches("SELECT id FROM restored_message WHERE id > %s ORDER BY id LIMIT %s"):
            log_changes(self.db, dict.fromkeys(some, self.project.pk), sealed=some)
        sessions = (
            f"SELECT DISTINCT m.session_id FROM {MESSAGES.table} AS m JOIN restored_message AS r ON r.id = m.id "
            "WHERE m.session_id > %s ORDER BY m.session_id LIMIT %s"
        )
        for some in self._batches(sessions):
            recount(self.db, some)
            # The last run is the newest one again.
            self._execute(
                f"UPDATE {Session._meta.db_table} AS s SET last_run_id = run.id, last_run_failed = run.error <> '', "
                f"last_interruption = CASE WHEN run.is_completed "
                f"AND '{FLAG}' = ANY(run.health) THEN '{NO_NEWS}' ELSE '' END "
                f"FROM (SELECT DISTINCT ON (session_id) session_id, id, error, is_completed, health FROM {Message._meta.db_table} "
                "WHERE session_id = ANY(%(sessions)s) AND role = 'assistant' AND deleted_at IS NULL "
                "ORDER BY session_id, id DESC) AS run WHERE s.id = run.session_id "
                "AND (s.last_run_id IS NULL OR s.last_run_id <= run.id)",
                {"sessions": some},
            )
            # The reason may be encrypted, so that only a cursor reads it.
            interrupted = (
                self.db.rows(Session.with_deleted).filter(pk__in=some, last_interruption=NO_NEWS).values("last_run_id")
            )
            runs = self.db.rows(Message.objects).filter(pk__in=interrupted).values_list("pk", "session_id", "metadata")
            ended = [session for _run, session, metadata in runs if reason_of(metadata) == PROCESS_ENDED]
            self.db.rows(Session.with_deleted).filter(pk__in=ended).update(last_interruption=PROCESS_ENDED)

    def _batches(self, statement: str) -> Iterator[list[UUID]]:
        last = UUID(int=0)
        while True:
            with self.db.cursor() as cursor:
                cursor.execute(statement, [last, _AT_ONCE])
                ids_read = [row[0] for row in cursor.fetchall()]
            if not ids_read:
                return
            yield ids_read
            last = ids_read[-1]

    def _execute(self, statement: str, values: Any = None) -> int:
        with self.db.cursor() as cursor:
            cursor.execute(statement, values)
            return int(cursor.rowcount)

    def _count(self, statement: str) -> int:
        with self.db.cursor() as cursor:
            cursor.execute(statement)
            return int(cursor.fetchone()[0])


def _staged(dataset: Dataset) -> str:
    return f"archived_{dataset.name}"


def _is_link(dataset: Dataset, row: Row) -> bool:
    """Return whether a row says under which trace another one is stored; of no session, because that one may have no message."""
    return dataset is SPANS and row[SPANS.place_of("kind")] == JOINED


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)
