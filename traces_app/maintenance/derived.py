"""Integrity of what is derived from the rows of traces: counters, keys, partitions, the search index and archives.

`check_derived` yields the problems beside those of traces_app.maintenance.integrity, and `mend` repairs those that the rows
themselves answer. Everything is read some messages at a time, and each mend is a transaction that looks again, so both are safe
beside writers and to repeat.
"""

# ruff: noqa: S608 - SQL is built from the texts in this file and the names of tables

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from access_app.db import Database
from messages_app.change_log import Kind, log_changes, projects_of
from messages_app.models import Message, MessageKey, PurgedPeriod
from messages_app.session_counters import recount
from messages_app.sql.partitions import periods_of, settle_periods, unsettled_periods
from messages_app.sql.periods import Period
from messages_app.sql.snapshot import one_snapshot
from traces_app.ingest.partitions import TABLES
from traces_app.ingest.sql import count_below
from traces_app.models import Archive, SearchRows, SearchSegment
from traces_app.queries.search.segments import ROW
from traces_app.queries.search.texts import texts_of_messages, unindexed
from tracesite_sdk.normalize.rollup import duration_between
from tracesite_sdk.records import ids

from .integrity import Problem
from .statements import fetch

KINDS = {
    "key_missing": "a message with an external id has no key, or that of another: sent again, it is stored twice",
    "key_stray": "a key names a message that does not exist: sent again, it is not stored",
    "month_hidden": "a drop of a period was interrupted, so a part of its rows is hidden",
    "not_indexed": "a message is neither in the search index nor waiting for it: a search does not find it",
    "archive_differs": "an archive lacks its manifest or a file, or they are other ones",
}

_AT_ONCE = 1_000
_WINDOW = 50_000
"""Messages whose ids are in memory at a time."""
_MESSAGES = Message._meta.db_table
_KEYS = MessageKey._meta.db_table
_KEY_OF_MESSAGE = ids.key_in_sql("'message'", "message.session_id", "message.external_id")

Scope = tuple[str, list[Any]]
"""A condition on `message`, with its values."""


def check_derived(db: Database, *, project_id: int | None = None, session_id: UUID | None = None) -> Iterator[Problem]:
    """Yield the problems of all traces, or of one project or session.

    Keys without a message belong to neither, so only a check of all traces finds them.
    """
    scope: Scope = ("true", [])
    if session_id is not None:
        scope = ("message.session_id = %s", [session_id])
    elif project_id is not None:
        scope = ("message.project_id = %s", [project_id])
    is_whole = project_id is None and session_id is None
    purged = [purge.period for purge in db.rows(PurgedPeriod.objects).all()] if is_whole else []
    for period in periods_of(db, _MESSAGES):
        yield from _missing_keys(db, period, scope)
        if is_whole and not any(period.overlaps(period_purged) for period_purged in purged):
            yield from _stray_keys(db, period)
        yield from _unindexed(db, period, scope)
    if session_id is None:
        yield from _archives(db, project_id)


def hidden_periods(db: Database) -> Iterator[Problem]:
    """Yield the periods with hidden rows. Mend them before anything else is counted."""
    for period in unsettled_periods(db, TABLES):
        yield _problem("month_hidden", f"period {period}")


def mend(db: Database, problems: Sequence[Problem]) -> int:
    """Mend those of the problems that can be; return how many were tried. Those that remain, the next check reports.

    Raise PeriodInUse if a hidden period is still read.
    """
    by_kind: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        by_kind[problem.kind].append(problem)
    for kind in by_kind.keys() & MENDERS.keys():
        MENDERS[kind](db, by_kind[kind])
    return sum(len(by_kind[kind]) for kind in by_kind.keys() & MENDERS.keys())


# --- Checks -----------------------------------------------------------------------------------------------------------


def _missing_keys(db: Database, period: Period, scope: Scope) -> Iterator[Problem]:
    condition, values = scope
    last = period.first_id
    while True:
        missing = fetch(
            db,
            f"SELECT message.id, message.session_id, (SELECT message_id FROM {_KEYS} WHERE key = {_KEY_OF_MESSAGE}) "
            f"FROM {_MESSAGES} AS message WHERE {condition} AND message.id >= %s AND message.id < %s "
            f"AND message.external_id <> '' AND NOT EXISTS (SELECT 1 FROM {_KEYS} AS known "
            f"WHERE known.key = {_KEY_OF_MESSAGE} AND known.message_id = message.id) ORDER BY message.id LIMIT {_AT_ONCE}",
            [*values, last, period.after_id],
        )
        for message_id, of_session, other in missing:
            detail = "no key" if other is None else f"its key is that of message {other}"
            yield _problem("key_missing", detail, of_session, message_id)
        if len(missing) < _AT_ONCE:
            return
        last = _after(missing[-1][0])


def _stray_keys(db: Database, period: Period) -> Iterator[Problem]:
    last = period.first_id
    while True:
        stray = fetch(
            db,
            f"SELECT message_id FROM {_KEYS} AS known WHERE message_id >= %s AND message_id < %s AND purged_at IS NULL "
            f"AND NOT EXISTS (SELECT 1 FROM {_MESSAGES} AS message WHERE message.id = known.message_id AND message.id >= %s "
            f"AND message.id < %s) ORDER BY message_id LIMIT {_AT_ONCE}",
            [last, period.after_id, period.first_id, period.after_id],
        )
        for (message_id,) in stray:
            yield _problem("key_stray", "no such message", None, message_id)
        if len(stray) < _AT_ONCE:
            return
        last = _after(stray[-1][0])


def _unindexed(db: Database, period: Period, scope: Scope) -> Iterator[Problem]:
    condition, values = scope
    last = period.first_id
    while True:
        with one_snapshot(db, read_only=True):
            page = dict(
                fetch(
                    db,
                    f"SELECT message.id, message.session_id FROM {_MESSAGES} AS message WHERE {condition} "
                    f"AND message.id >= %s AND message.id < %s ORDER BY message.id LIMIT {_WINDOW}",
                    [*values, last, period.after_id],
                )
            )
            waiting = unindexed(db, page)
            missing = _not_in_index(db, [message_id for message_id in page if message_id not in waiting])
        for message_id in missing:
            yield _problem("not_indexed", "has texts", page[message_id], message_id)
        if len(page) < _WINDOW:
            return
        last = _after(max(page))


def _not_in_index(db: Database, message_ids: Sequence[UUID]) -> list[UUID]:
    """Return the messages, given in order, that have texts and are not in the index."""
    if not message_ids:
        return []
    first, last = message_ids[0], message_ids[-1]
    missing = {message_id.bytes for message_id in message_ids}
    segments = (
        db.rows(SearchSegment.objects)
        .filter(first_message__lte=last, last_message__gte=first)
        .values_list("pk", flat=True)
    )
    for segment in segments:
        for chunk in db.rows(SearchRows.objects).filter(segment_id=segment).values_list("rows", flat=True):
            missing.difference_update(np.frombuffer(chunk, dtype=ROW)["message"].tolist())
        if not missing:
            return []
    left = sorted(UUID(bytes=key) for key in missing)
    not_indexed: list[UUID] = []
    for start in range(0, len(left), _AT_ONCE):
        # Messages without any text have no rows there.
        not_indexed += sorted(
            {row.message_id for row in texts_of_messages(db, left[start : start + _AT_ONCE]) if row.texts}
        )
    return not_indexed


def _archives(db: Database, project_id: int | None) -> Iterator[Problem]:
    archives = db.rows(Archive.objects).select_related("project").order_by("url", "project__slug", "period")
    if project_id is not None:
        archives = archives.filter(project=project_id)
    for archive in archives.iterator():
        for fault in _faults_of(archive):
            yield _problem("archive_differs", f"{archive.url}, {archive.period} of {archive.project.slug}: {fault}")


def _faults_of(archive: Archive) -> Iterator[str]:
    try:
        from .archive.folder import ArchiveError, open_folder
    except ImportError as error:  # the extra is missing
        yield f"not checked, because this installation lacks the package {error.name}"
        return
    try:
        folder = open_folder(archive.url)
        manifest = folder.manifest(archive.project.slug, archive.period)
        if manifest is None:
            yield "no manifest"
            return
        if manifest.id != archive.pk:
            yield "another manifest than the one that was written"
        elif manifest.rows != archive.rows:
            yield f"{manifest.rows} rows in the manifest, {archive.rows} were written"
        for file in manifest.tables.values():
            path = folder.path(file.path)
            if not folder.files.exists(path):
                yield f"{file.path} is missing"
            elif folder.files.size(path) != file.bytes:
                yield f"{file.path} has {folder.files.size(path)} bytes, not {file.bytes}"
    except (ArchiveError, OSError) as error:
        yield str(error)


# --- Mends ------------------------------------------------------------------------------------------------------------


def _mend_message_counts(db: Database, problems: Sequence[Problem]) -> None:
    for message_id in _messages_of(problems)[0]:
        with db.atomic():
            row = db.rows(Message.with_deleted).select_for_update().filter(pk=message_id).first()
            if row is None:
                continue
            counts = count_below(db, row)
            counts = counts._replace(duration_ms=duration_between(row.created_at, row.completed_at, counts.duration_ms))
            for name, value in counts._asdict().items():
                setattr(row, name, value)
            row.save(update_fields=list(counts._fields))
            log_changes(db, {row.pk: row.project_id}, Kind.FIGURES, sealed=[row.pk])
            recount(db, [row.session_id])


def _mend_session_counts(db: Database, problems: Sequence[Problem]) -> None:
    recount(db, sorted(problem.session_id for problem in problems if problem.session_id))


def _mend_missing_keys(db: Database, problems: Sequence[Problem]) -> None:
    with db.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {_KEYS} (key, project_id, message_id) "
            f"SELECT {_KEY_OF_MESSAGE}, message.project_id, message.id FROM {_MESSAGES} AS message "
            "WHERE message.id = ANY(%s) AND message.id BETWEEN %s AND %s ON CONFLICT DO NOTHING",
            _messages_of(problems),
        )


def _mend_stray_keys(db: Database, problems: Sequence[Problem]) -> None:
    with db.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {_KEYS} AS known WHERE message_id = ANY(%s) AND purged_at IS NULL AND NOT EXISTS "
            f"(SELECT 1 FROM {_MESSAGES} AS message WHERE message.id = known.message_id AND message.id BETWEEN %s AND %s)",
            _messages_of(problems),
        )


def _mend_index(db: Database, problems: Sequence[Problem]) -> None:
    log_changes(db, projects_of(db, [problem.message_id for problem in problems if problem.message_id]), Kind.INDEX)


def _mend_months(db: Database, problems: Sequence[Problem]) -> None:
    settle_periods(db, TABLES)


MENDERS: Mapping[str, Callable[[Database, Sequence[Problem]], None]] = {
    "message_counts": _mend_message_counts,
    "session_counts": _mend_session_counts,
    "key_missing": _mend_missing_keys,
    "key_stray": _mend_stray_keys,
    "month_hidden": _mend_months,
    "not_indexed": _mend_index,
}
"""How to mend problems of a kind; of other kinds, what is right cannot be known from the rows."""


def _messages_of(problems: Sequence[Problem]) -> list[Any]:
    """Return the ids of the messages, and the first and the last of them."""
    message_ids = sorted(problem.message_id for problem in problems if problem.message_id)
    return [message_ids, message_ids[0], message_ids[-1]]


def _problem(kind: str, detail: str, session_id: UUID | None = None, message_id: UUID | None = None) -> Problem:
    return Problem(kind=kind, session_id=session_id, message_id=message_id, detail=detail)


def _after(row_id: UUID) -> UUID:
    return UUID(int=row_id.int + 1)
