"""Archive periods that have ended, and drop them from the database once they can be read back.

For each period one snapshot of the database is archived, project by project. A period is a partition, or what was archived
before of its time, if partitions were longer or shorter then:

 1. write each dataset to a file of `unfinished/`, rows in the order of ids, some megabytes at a time;
 2. read the files back: every value must be the one that was written;
 3. move the files to their places and replace the manifest in one step;
 4. note the archive and its sessions in the database (`Archive`, `ArchivedSession`);
 5. to drop: a period of which every project is archived and no message has changed goes at once, in constant time. Of other
    periods the messages go that are as they were archived; one that has changed meanwhile stays for the next archive.
    Then sessions without messages go.

A process may be killed at any moment: the next run does the rest. What is in the archive and no longer in the database is
carried over when the period is archived again, because late messages arrived, so an archive never loses a row and never has
one twice.
"""

# ruff: noqa: S608 - SQL is built from the texts in this file and the names of tables and columns

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from django.utils import timezone

from access_app.audit.record import record
from access_app.db import Database
from access_app.db.direct import session_lock
from access_app.db.transactions import in_transaction
from access_app.models import AuditAction, Project
from messages_app.models import Message, Session, session_key
from messages_app.sql.partitions import DROP_PATIENCE_SECONDS, periods_of, settle_periods
from messages_app.sql.periods import Period, parts_beside
from messages_app.sql.snapshot import one_snapshot
from traces_app.ingest.partitions import TABLES
from traces_app.maintenance.purge.archived import (
    Unchanged,
    drop_archived_period,
    remove_archived,
    remove_archived_sessions,
)
from traces_app.maintenance.purge.periods import is_whole
from traces_app.maintenance.purge.reports import PurgeReport
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.models import Archive, ArchivedSession, Score, Span

from .binding import bound
from .datasets import DATASETS, DIGEST_OF_SESSION, MESSAGES, Dataset, Row
from .folder import FORMAT, UNFINISHED, ArchiveError, File, Folder, Manifest, digest_rows

ROW_GROUP_BYTES = 16_000_000
"""Values of a row group in Python: what is in memory at a time."""
_VALUE_BYTES = 50
"""The memory of a value in Python, in addition to its text."""
_SESSIONS_AT_ONCE = 500
_MESSAGES_AT_ONCE = 500
_LOCK = 0x7472_6172
"""The advisory lock that is held while a folder is written."""

Progress = Callable[[int], object]
"""Called with the number of messages archived since the last call."""


@dataclass(frozen=True, kw_only=True)
class Archived:
    """A project and period that was archived, or was archived before and has not changed."""

    project: Project
    period: Period
    manifest: Manifest
    fingerprint: str
    is_new: bool


@dataclass(kw_only=True)
class ArchiveReport:
    """The result of an archive command."""

    archived: list[Archived] = field(default_factory=list)
    dropped: PurgeReport = field(default_factory=PurgeReport)
    messages_kept: int = 0
    """Messages that changed after they were archived, and therefore were not dropped."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A project and period that would be archived, or was archived before and has not changed."""

    project: Project
    period: Period
    messages: int
    """In the database now."""
    is_new: bool


@dataclass(kw_only=True)
class Plan:
    """The effect that an archive command would have."""

    periods: list[Planned] = field(default_factory=list)
    dropped_at_once: list[Period] = field(default_factory=list)
    """The partitions that would go as a whole; of others the messages would go one by one."""


def archive(
    db: Database,
    folder: Folder,
    *,
    before: datetime,
    projects: Sequence[Project] = (),
    drop: bool = False,
    report: ArchiveReport | None = None,
    progress: Progress = lambda _: None,
    patience: float = DROP_PATIENCE_SECONDS,
) -> ArchiveReport:
    """Archive the periods that ended before a time, of these projects or of all; with `drop` remove them from the database.

    Fill in `report` on the way. Safe beside readers and writers; call it outside a transaction. Raise ArchiveError, and
    PeriodInUse like purge.
    """
    report = report or ArchiveReport()
    wanted = _wanted(projects)
    settle_periods(db, TABLES, patience=patience)
    with alone(db):
        folder.remove_unfinished()
        _name_months(db)
        for together, units in _groups(db, folder, wanted, before):
            for period in together:
                _analyze(db, period)
            with one_snapshot(db, read_only=True):
                _plan_for_whole_periods(db)
                archived = [done for unit in units if (done := _archive_period(db, folder, *unit, progress))]
                stored = {period: _fingerprints(db, period, archived) for period in together} if drop else {}
            for done in archived:
                _note(db, folder, done)
            report.archived += archived
            if drop:
                # What is dropped must be there now, whole, and not only when it was written.
                for done in archived:
                    folder.check(done.manifest)
                # The latest first, because its contexts may have entries in an earlier one.
                for period, fingerprints in reversed(stored.items()):
                    _drop(db, folder, period, fingerprints, archived, report, patience)
        if drop:
            _finish_drops(db, folder, wanted, before, report)
    return report


def plan(db: Database, folder: Folder, *, before: datetime, projects: Sequence[Project] = ()) -> Plan:
    """Return what `archive` would write, and drop if it is to, and change neither the database nor the folder.

    Call it outside a transaction. Raise ArchiveError.
    """
    planned = Plan()
    for together, units in _groups(db, folder, _wanted(projects), before):
        with one_snapshot(db, read_only=True):
            _plan_for_whole_periods(db)
            fingerprints = [
                (project, period, fingerprint)
                for project, period in units
                if (fingerprint := fingerprint_of(db, project.pk, period, Message._meta.db_table)) != _NOTHING
            ]
        for project, period, fingerprint in fingerprints:
            is_new = not _is_archived(db, folder, folder.manifest(project.slug, str(period)), fingerprint)
            messages = _number_of_messages(fingerprint)
            planned.periods.append(Planned(project=project, period=period, messages=messages, is_new=is_new))
        for partition in together:
            owners = tuple({project.pk for project, period, _fingerprint in fingerprints if period.overlaps(partition)})
            if owners and is_whole(db, [PurgeScope(created_before=partition.ends_at, project_ids=owners)], partition):
                planned.dropped_at_once.append(partition)
    return planned


def _wanted(projects: Sequence[Project]) -> list[Project]:
    return list(projects) or list(Project.objects.order_by("slug"))


def _groups(
    db: Database, folder: Folder, projects: Sequence[Project], before: datetime
) -> Iterator[tuple[list[Period], list[tuple[Project, Period]]]]:
    """Yield the partitions that ended before a time, those together that are archived together, with what is archived of them."""
    archived = {project.pk: [Period.parse(name) for name in folder.periods(project.slug)] for project in projects}
    ended = [period for period in periods_of(db, Message._meta.db_table) if period.ends_at <= before]
    for together in _together(ended, [period for periods in archived.values() for period in periods]):
        yield together, [(project, unit) for project in projects for unit in _units(archived[project.pk], together)]


def _together(ended: Sequence[Period], archived: Sequence[Period]) -> Iterator[list[Period]]:
    """Yield the partitions one by one, but those together that are archived as one period, because they were longer then."""
    group: list[Period] = []
    for period in ended:
        if group and not any(earlier.overlaps(period) and earlier.overlaps(group[-1]) for earlier in archived):
            yield group
            group = []
        group.append(period)
    if group:
        yield group


def _units(archived: Sequence[Period], partitions: Sequence[Period]) -> list[Period]:
    """Return the periods by which partitions of a project are archived: as they were before, so that no row is there twice."""
    return sorted({unit for period in partitions for unit in parts_beside(archived, period)})


def _analyze(db: Database, period: Period) -> None:
    """Let the planner know the sizes of a period, which may just have been filled."""
    with db.cursor() as cursor:
        for table in TABLES:
            cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [period.leaf(table.name)])
            if cursor.fetchone() == (True,):
                cursor.execute(f"ANALYZE {period.leaf(table.name)}")


def _plan_for_whole_periods(db: Database) -> None:
    """Join whole periods by hashes, for the rest of the transaction.

    Measured with 20,000 messages of a project: 118 s with the plans of short reads.
    """
    with db.cursor() as cursor:
        cursor.execute(
            "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL cursor_tuple_fraction = 1; SET LOCAL enable_nestloop = off"
        )


@contextmanager
def alone(db: Database) -> Iterator[None]:
    """Hold the lock of those who write archives or read them into the database. Raise ArchiveError if another one does."""
    with session_lock(db, _LOCK) as is_alone:
        if not is_alone:
            raise ArchiveError("Another command is writing or restoring an archive. Try again later.")
        yield


# --- Writing ----------------------------------------------------------------------------------------------------------


def _archive_period(
    db: Database, folder: Folder, project: Project, period: Period, progress: Progress
) -> Archived | None:
    """Archive a project and period; return None if there is nothing of it in the database."""
    fingerprint = fingerprint_of(db, project.pk, period, Message._meta.db_table)
    if fingerprint == _NOTHING:
        return None
    earlier = folder.manifest(project.slug, str(period))
    if earlier is not None:
        if _is_archived(db, folder, earlier, fingerprint):
            return Archived(project=project, period=period, manifest=earlier, fingerprint=fingerprint, is_new=False)
        folder.check(earlier)
    manifest = write_manifest(
        folder,
        project.slug,
        str(period),
        lambda dataset: _rows(db, folder, dataset, project, period, earlier),
        progress,
    )
    return Archived(project=project, period=period, manifest=manifest, fingerprint=fingerprint, is_new=True)


def _is_archived(db: Database, folder: Folder, earlier: Manifest | None, fingerprint: str) -> bool:
    """Return whether a project and period is archived in the folder as the database has it now."""
    return (
        earlier is not None
        and db.rows(Archive.objects).filter(pk=earlier.id, url=folder.url, fingerprint=fingerprint).exists()
        and folder.is_whole(earlier)
    )


def write_manifest(
    folder: Folder,
    project: str,
    period: str,
    rows_of: Callable[[Dataset], Iterable[list[Row]]],
    progress: Progress = lambda _: None,
) -> Manifest:
    """Write the rows of each dataset, read them back, and let them take the place of what was archived of the period."""
    archive_id = uuid4()
    drafts: dict[str, str] = {}
    tables: dict[str, File] = {}
    for dataset in DATASETS:
        draft = folder.path(UNFINISHED, str(archive_id), f"{dataset.name}.parquet")
        count, digest = _write(folder, draft, dataset, rows_of(dataset), progress)
        if count:
            drafts[dataset.name] = draft
            tables[dataset.name] = _read_back(
                folder, draft, dataset, count, digest, folder.place_of(dataset.name, project, period, archive_id)
            )
    manifest = Manifest(
        format=FORMAT, id=archive_id, project=project, period=period, created_at=timezone.now(), tables=tables
    )
    folder.publish(manifest, drafts)
    return manifest


def _write(
    folder: Folder, path: str, dataset: Dataset, batches: Iterable[list[Row]], progress: Progress
) -> tuple[int, str]:
    """Write rows to a file; return their number and digest. Without rows there is no file."""
    digest, count = hashlib.sha256(), 0
    groups = _row_groups(batches)
    first = next(groups, None)
    if first is None:
        return 0, digest.hexdigest()
    folder.files.makedirs(path.rpartition("/")[0], exist_ok=True)
    found_by = [column.name for column in dataset.columns if column.name == "id" or column.name.endswith("_id")]
    with (
        folder.files.open(path, "wb") as sink,
        # Statistics of ids only: those of texts would repeat some of them, uncompressed.
        pq.ParquetWriter(sink, dataset.schema, compression="zstd", write_statistics=found_by) as writer,
    ):
        group: list[Row] | None = first
        while group is not None:
            digest_rows(digest, group)
            columns = zip(*group, strict=True)
            arrays = [pa.array(values, kind) for values, kind in zip(columns, dataset.schema.types, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=dataset.schema))
            count += len(group)
            if dataset is MESSAGES:
                progress(len(group))
            group = next(groups, None)
    return count, digest.hexdigest()


def _row_groups(batches: Iterable[list[Row]]) -> Iterator[list[Row]]:
    group: list[Row] = []
    size = 0
    for batch in batches:
        group += batch
        size += sum(
            _VALUE_BYTES + len(value) if isinstance(value, str | bytes) else _VALUE_BYTES
            for row in batch
            for value in row
        )
        if size >= ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _read_back(folder: Folder, draft: str, dataset: Dataset, count: int, digest: str, path: str) -> File:
    """Return the entry of a file that was written, after a comparison of every value."""
    file = File(path=path, rows=count, bytes=folder.files.size(draft), sha256=folder.sha256(draft), rows_sha256=digest)
    read = hashlib.sha256()
    for rows in folder.rows(
        dataset, File(path=draft.removeprefix(folder.path("")), rows=0, bytes=0, sha256="", rows_sha256="")
    ):
        digest_rows(read, rows)
    if read.hexdigest() != digest:
        raise ArchiveError(
            f"{dataset.name} of {path} could not be read back from {folder.url} as it was written. Nothing was dropped."
        )
    return file


def _rows(
    db: Database, folder: Folder, dataset: Dataset, project: Project, period: Period, earlier: Manifest | None
) -> Iterator[list[Row]]:
    """Yield the rows of the database, then those of the earlier archive that the database no longer has."""
    column = dataset.place_of(dataset.key)
    carries = earlier is not None and dataset.name in earlier.tables
    seen: set[object] = set()
    for rows in bound(dataset, dataset.read(db, project.pk, period)):
        if carries:
            seen.update(row[column] for row in rows)
        yield rows
    if earlier is None or dataset.name not in earlier.tables:
        return
    has_message = "message_id" in dataset.schema.names
    for rows in folder.rows(dataset, earlier.tables[dataset.name]):
        rest = [row for row in rows if row[column] not in seen]
        if has_message:
            # A message in the database has the rows below it that it has now.
            below = dataset.place_of("message_id")
            stored = _stored_messages(db, {row[below] for row in rest if row[below]})
            rest = [row for row in rest if row[below] not in stored]
        if rest:
            yield rest


def _stored_messages(db: Database, message_ids: Iterable[str]) -> set[str]:
    wanted = [UUID(message_id) for message_id in message_ids]
    if not wanted:
        return set()
    existing = db.rows(Message.with_deleted).filter(pk__in=wanted, pk__gte=min(wanted), pk__lte=max(wanted)).order_by()
    return {str(message_id) for message_id in existing.values_list("pk", flat=True)}


# --- What has changed -------------------------------------------------------------------------------------------------


def fingerprint_of(db: Database, project_id: int, period: Period, messages: str) -> str:
    """Return a text that changes with every write to a project and period; `messages` is the table or the leaf of the period.

    Every write to what is below a message changes the row of the message, and PostgreSQL gives each version of a row the
    number of its transaction (xmin).
    """
    parts = [
        (f"{messages} AS t", "t.id::text || t.xmin::text", "t.project_id = %(project)s AND t.id >= %(first)s AND t.id < %(after)s"),
        (
            f"{Score._meta.db_table} AS t",
            "t.id::text || t.xmin::text",
            "t.project_id = %(project)s AND t.message_id >= %(first)s AND t.message_id < %(after)s",
        ),
        (f"{Span._meta.db_table} AS t", "t.id::text", "t.project_id = %(project)s AND t.id >= %(first)s AND t.id < %(after)s"),
        (
            f"{Session._meta.db_table} AS t",
            f"t.id::text || {DIGEST_OF_SESSION}",
            "t.project_id = %(project)s AND t.id >= %(first)s AND t.id < %(after)s "
            f"AND NOT EXISTS (SELECT 1 FROM {Message._meta.db_table} AS m WHERE m.session_id = t.id)",
        ),
    ]  # fmt: skip
    values: dict[str, int | UUID] = {"project": project_id, "first": period.first_id, "after": period.after_id}
    counts = []
    with db.cursor() as cursor:
        for source, row, condition in parts:
            cursor.execute(
                f"SELECT count(*), coalesce(sum(hashtextextended({row}, 0)::numeric), 0) FROM {source} WHERE {condition}",
                values,
            )
            counts.append("{}:{:x}".format(*map(int, cursor.fetchone())))
    return ";".join(counts)


_NOTHING = "0:0;0:0;0:0;0:0"


def _messages_part(fingerprint: str) -> str:
    """Return the part of messages, scores and spans; that of sessions changes when the period is hidden."""
    return fingerprint.rpartition(";")[0]


def _number_of_messages(fingerprint: str) -> int:
    return int(fingerprint.partition(":")[0])


# --- What the database knows ------------------------------------------------------------------------------------------


def _name_months(db: Database) -> None:
    """Name the months that the version before has archived, which may still have run beside this one."""
    for archive in db.rows(Archive.objects).filter(period=""):
        archive.period = str(Period.month(archive.month.year, archive.month.month))
        archive.save(update_fields=["period"])


@in_transaction
def _note(db: Database, folder: Folder, done: Archived) -> None:
    """Store where a project and period is, and the keys of its sessions."""
    if not done.is_new:
        return
    db.rows(Archive.objects).filter(project=done.project, period=str(done.period), url=folder.url).delete()
    noted = db.rows(Archive.objects).create(
        pk=done.manifest.id,
        project=done.project,
        month=done.period.begin,
        period=str(done.period),
        url=folder.url,
        rows=done.manifest.rows,
        fingerprint=done.fingerprint,
        created_at=done.manifest.created_at,
    )
    note_sessions(db, folder, noted, done.manifest)
    record(
        AuditAction.EXPORT,
        db.actor,
        project_id=done.project.pk,
        object_type="archive",
        object_id=noted.pk,
        object_name=str(noted),
        detail={"rows": done.manifest.rows, "period": done.manifest.period},
    )


def note_sessions(db: Database, folder: Folder, noted: Archive, manifest: Manifest) -> None:
    """Store the keys of the sessions of an archive."""
    if "sessions" not in manifest.tables:
        return
    for batch in folder.batches(folder.path(manifest.tables["sessions"].path), ["id", "external_id"]):
        names = zip(batch.column("id").to_pylist(), batch.column("external_id").to_pylist(), strict=True)
        keys = {session_key(noted.project_id, name) for both in names for name in both if name}
        db.rows(ArchivedSession.objects).bulk_create(
            ArchivedSession(archive=noted, project_id=noted.project_id, key=key) for key in keys
        )


# --- Dropping ---------------------------------------------------------------------------------------------------------


def _fingerprints(db: Database, period: Period, archived: Sequence[Archived]) -> dict[int, str]:
    """Return the fingerprint of a partition for each project that was archived with it."""
    within = [done for done in archived if done.period.overlaps(period)]
    known = {done.project.pk: done.fingerprint for done in within if done.period == period}
    others = {done.project.pk for done in within} - known.keys()
    return known | {project: fingerprint_of(db, project, period, Message._meta.db_table) for project in others}


def _drop(
    db: Database,
    folder: Folder,
    period: Period,
    fingerprints: dict[int, str],
    archived: Sequence[Archived],
    report: ArchiveReport,
    patience: float,
) -> None:
    """Remove the messages of a partition that are as they were archived."""
    if not fingerprints:
        return
    leaf = period.leaf(Message._meta.db_table)

    def is_archived() -> bool:
        return all(
            _messages_part(fingerprint_of(db, project, period, leaf)) == _messages_part(fingerprint)
            for project, fingerprint in fingerprints.items()
        )

    if drop_archived_period(db, period, list(fingerprints), is_archived, report.dropped, patience=patience):
        return
    for done in archived:
        if "messages" in done.manifest.tables and done.period.overlaps(period):
            for batch in _unchanged(db, folder, done.manifest, period):
                removed = remove_archived(db, batch, done.manifest.created_at, report.dropped)
                report.messages_kept += len(batch) - removed


def _unchanged(db: Database, folder: Folder, manifest: Manifest, period: Period) -> Iterator[list[Unchanged]]:
    """Yield the archived messages of a partition that the database may still have, with what shows whether they have changed."""
    columns = ["id", "version", "updated_at"]
    first, after = period.first_id, period.after_id
    for batch in folder.batches(folder.path(manifest.tables["messages"].path), columns):
        values = [batch.column(name).to_pylist() for name in columns]
        unchanged = [Unchanged(UUID(row[0]), row[1], row[2]) for row in zip(*values, strict=True)]
        unchanged = [message for message in unchanged if first <= message.id < after]
        stored = _stored_messages(db, (str(message.id) for message in unchanged))
        if rest := [message for message in unchanged if str(message.id) in stored]:
            yield rest


def _finish_drops(
    db: Database, folder: Folder, projects: Sequence[Project], before: datetime, report: ArchiveReport
) -> None:
    """Remove the archived sessions that have no messages any more, and note what was dropped; also of a run that was killed."""
    undropped = (
        db.rows(Archive.objects).filter(project__in=projects, url=folder.url, dropped_at=None).select_related("project")
    )
    for noted in undropped.order_by("period", "project__slug"):
        period = Period.parse(noted.period)
        if period.ends_at > before:
            continue
        in_month = db.rows(Message.with_deleted).filter(
            project=noted.project_id, pk__gte=period.first_id, pk__lt=period.after_id
        )
        manifest = folder.manifest(noted.project.slug, str(period))
        if manifest is None or manifest.id != noted.pk or in_month.exists():
            continue
        if "sessions" in manifest.tables:
            columns = ["id", "digest"]
            for batch in folder.batches(folder.path(manifest.tables["sessions"].path), columns):
                session_ids = [UUID(session_id) for session_id in batch.column("id").to_pylist()]
                remove_archived_sessions(
                    db,
                    session_ids,
                    batch.column("digest").to_pylist(),
                    DIGEST_OF_SESSION,
                    manifest.created_at,
                    report.dropped,
                )
        with db.atomic():
            noted.dropped_at = timezone.now()
            noted.save(update_fields=["dropped_at"])
            record(
                AuditAction.PURGE,
                db.actor,
                project_id=noted.project_id,
                object_type="archive",
                object_id=noted.pk,
                object_name=str(noted),
                detail={"rows": noted.rows, "period": str(period)},
            )
