"""Erase what belongs to a person from an archive: periods that have something of it are written again without it.

What is to go is searched in the archive itself, so it is found after the database has forgotten it. The new files take the
place of the old ones in one step; those of a process that was killed are removed first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from access_app.db import Database
from access_app.db.transactions import in_transaction
from access_app.models import Project
from messages_app.sql.periods import Period
from traces_app.maintenance.erasure import Subject, SubjectRows, forms_of, has_text
from traces_app.models import Archive

from .archiving import alone, note_sessions, write_manifest
from .datasets import (
    BY_NAME,
    CALLS,
    CONTEXTS,
    DATASETS,
    MESSAGES,
    SCORES,
    SESSIONS,
    SPANS,
    TOOLS,
    WITH_SESSION,
    Dataset,
    Row,
)
from .folder import ArchiveError, Folder, Manifest


@dataclass(frozen=True, kw_only=True)
class Erased:
    """The rows that an erasure removed from a project and period of an archive, or would remove."""

    url: str
    project: str
    period: str
    rows: dict[str, int]
    """Rows by the name of the dataset."""
    before: str
    """The id of the manifest."""
    after: str | None = None
    """That of the manifest without it; None if nothing is left."""


@dataclass(kw_only=True)
class _Doomed:
    """Rows of a manifest that go: their ids as text."""

    sessions: set[str] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)
    traces: set[str] = field(default_factory=set)
    snapshots: set[str] = field(default_factory=set)
    """Sessions of which only the snapshots go."""
    rows: dict[str, set[Any]] = field(default_factory=lambda: {dataset.name: set() for dataset in DATASETS})
    """Single rows, by dataset; of tools those whose description goes."""
    tool_names: set[str] = field(default_factory=set)
    """Tools whose name goes, with all of their calls."""

    def __bool__(self) -> bool:
        return bool(self.sessions or self.messages or self.snapshots or any(self.rows.values()))

    def has(self, dataset: Dataset) -> Callable[[Row], bool]:
        """Return the function that tells whether a row of a dataset goes."""
        own, at = self.rows[dataset.name], dataset.place_of(dataset.key)
        names = dataset.schema.names
        above: list[tuple[int, set[str]]] = []
        if dataset is SESSIONS:
            above = [(at, self.sessions)]
        elif dataset is SPANS:
            above = [(dataset.place_of("trace_id"), self.traces)]
        elif dataset in WITH_SESSION:
            above = [(names.index("session_id"), self.sessions | self.snapshots)]
        elif dataset is not TOOLS:
            message = at if dataset is MESSAGES else names.index("message_id")
            above = [(names.index("session_id"), self.sessions), (message, self.messages)]
        return lambda row: row[at] in own or any(row[column] in ids for column, ids in above)


def erase_from(
    db: Database, folder: Folder, subject: Subject, matches: SubjectRows, *, dry_run: bool = False
) -> list[Erased]:
    """Erase what belongs to a subject, and the sessions and messages that the database had of it, from an archive.

    Raise ArchiveError.
    """
    erased = []
    slugs = {project.slug for project in subject.projects}
    with alone(db):
        if not dry_run:
            # An erasure that was killed may have left the files that it replaced.
            folder.remove_all_leftovers()
        for manifest in folder.manifests():
            if slugs and manifest.project not in slugs:
                continue
            if not dry_run:
                _note(db, folder, manifest, manifest)
            doomed = _doomed(folder, manifest, subject, matches)
            if doomed:
                erased.append(_erase(db, folder, manifest, doomed, dry_run=dry_run))
    return erased


def _erase(db: Database, folder: Folder, manifest: Manifest, doomed: _Doomed, *, dry_run: bool) -> Erased:
    folder.check(manifest)
    counts: dict[str, int] = {}

    def rest(dataset: Dataset) -> Iterator[list[Row]]:
        goes = doomed.has(dataset)
        if dataset.name in manifest.tables:
            for rows in folder.rows(dataset, manifest.tables[dataset.name]):
                stay = (
                    _without_descriptions(rows, doomed) if dataset is TOOLS else [row for row in rows if not goes(row)]
                )
                if changed := len(set(rows).difference(stay)) if dataset is TOOLS else len(rows) - len(stay):
                    counts[dataset.name] = counts.get(dataset.name, 0) + changed
                if stay:
                    yield stay

    after: Manifest | None = None
    if dry_run:
        for dataset in DATASETS:
            for _rows in rest(dataset):
                pass
    else:
        after = write_manifest(folder, manifest.project, manifest.period, rest)
        if not after.tables:
            folder.remove(after)
        _note(db, folder, manifest, after)
    return Erased(
        url=folder.url,
        project=manifest.project,
        period=manifest.period,
        rows=counts,
        before=str(manifest.id),
        after=str(after.id) if after and after.tables else None,
    )


def _without_descriptions(rows: list[Row], doomed: _Doomed) -> list[Row]:
    """Return tools without those that are named by what is erased; of the others that have it, without their descriptions."""
    at, name, *said = (TOOLS.place_of(column) for column in ("id", "name", "description", "category"))
    rest = [row for row in rows if row[name] not in doomed.tool_names]
    return [
        tuple("" if index in said and row[at] in doomed.rows["tools"] else value for index, value in enumerate(row))
        for row in rest
    ]


@in_transaction
def _note(db: Database, folder: Folder, before: Manifest, after: Manifest) -> None:
    """Let the database know the manifest that is there, and the keys of its sessions."""
    project = Project.objects.filter(slug=before.project).first()
    if project is None or db.rows(Archive.objects).filter(pk=after.id).exists():
        return
    known = db.rows(Archive.objects).filter(project=project, period=before.period, url=folder.url)
    dropped_at = known.values_list("dropped_at", flat=True).first()
    known.delete()
    if after.tables:
        noted = db.rows(Archive.objects).create(
            pk=after.id,
            project=project,
            month=Period.parse(before.period).begin,
            period=before.period,
            url=folder.url,
            rows=after.rows,
            fingerprint="",
            created_at=after.created_at,
            dropped_at=dropped_at,
        )
        note_sessions(db, folder, noted, after)


# --- Finding ----------------------------------------------------------------------------------------------------------


def _doomed(folder: Folder, manifest: Manifest, subject: Subject, wanted: SubjectRows) -> _Doomed:
    doomed = _Doomed()
    there = _values(folder, manifest, SESSIONS, ["id", "external_id", "end_user"])
    known = {str(session_id) for session_id in wanted.sessions}
    for session_id, external_id, end_user in there:
        is_meant = (subject.kind == "session" and subject.text in (session_id, external_id)) or (
            subject.kind == "end_user" and subject.text == end_user
        )
        if is_meant or session_id in known:
            doomed.sessions.add(session_id)
    if subject.kind == "end_user":
        doomed.rows["scores"].update(
            score for score, author in _values(folder, manifest, SCORES, ["id", "author"]) if author == subject.text
        )
    messages = {str(message_id) for message_id in wanted.messages}
    matches = (
        {dataset.name: _matches(folder, manifest, dataset, forms_of(subject.text)) for dataset in DATASETS}
        if subject.kind == "match"
        else {}
    )
    if matches:
        _add_matches(folder, manifest, matches, doomed)
        names = _values(folder, manifest, TOOLS, ["name"])
        doomed.tool_names.update(
            name for (name,) in names if any(form in name.lower() for form in forms_of(subject.text))
        )
    for message_id, session_id, metadata in _values(folder, manifest, MESSAGES, ["id", "session_id", "metadata"]):
        trace = _trace_of(metadata)
        if message_id in messages or (trace and trace in doomed.traces):
            doomed.messages.add(message_id)
        if trace and (message_id in doomed.messages or session_id in doomed.sessions):
            doomed.traces.add(trace)
    return doomed


def _add_matches(folder: Folder, manifest: Manifest, matches: dict[str, list[dict[str, Any]]], doomed: _Doomed) -> None:
    doomed.sessions.update(row["id"] for row in matches["sessions"])
    entries: set[str] = set()
    for name, rows in matches.items():
        if name == "messages":
            doomed.messages.update(row["id"] for row in rows)
        elif name == "spans":
            doomed.traces.update(row["trace_id"] for row in rows)
        elif name.startswith("snapshot"):
            doomed.snapshots.update(row["session_id"] for row in rows)
        elif name in ("scores", "tools"):
            doomed.rows[name].update(row["id"] for row in rows)
        elif name != "sessions":
            doomed.messages.update(row["message_id"] for row in rows if row["message_id"])
            entries.update(row["id"] for row in rows if not row["message_id"])
    doomed.rows["contexts"].update(entries)
    doomed.rows["spans"].update(row["id"] for row in matches["spans"])
    if entries:
        for message_id, used in _values(folder, manifest, CONTEXTS, ["message_id", "entries"]):
            if message_id and not entries.isdisjoint(used or ()):
                doomed.messages.add(message_id)


def _matches(folder: Folder, manifest: Manifest, dataset: Dataset, forms: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of which a text has one of the forms, with their ids only."""
    file = manifest.tables.get(dataset.name)
    if file is None:
        return []
    texts = [field.column for field in dataset.model._meta.concrete_fields if field.column and has_text(field)]
    if dataset is CALLS:
        texts.append("tool")
    matches: list[dict[str, Any]] = []
    for batch in folder.batches(folder.path(file.path)):
        hits = pa.array([False] * len(batch))
        for name in set(texts) & set(batch.schema.names):
            column = batch.column(name)
            if pa.types.is_binary(column.type):
                column = column.cast(pa.string())
            if pa.types.is_list(column.type):
                column = pa.array(["\n".join(texts or ()) for texts in column.to_pylist()], pa.string())
            lower = pc.utf8_lower(column)
            for form in forms:
                hits = pc.or_(hits, pc.fill_null(pc.match_substring(lower, form), fill_value=False))
        kept = [name for name in batch.schema.names if name in ("id", "session_id", "message_id", "trace_id")]
        matches += batch.select(kept).filter(hits).to_pylist()
    return matches


def _values(folder: Folder, manifest: Manifest, dataset: Dataset, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    file = manifest.tables.get(dataset.name)
    if file is not None:
        for batch in folder.batches(folder.path(file.path), columns):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)


def _trace_of(metadata: str) -> str | None:
    trace = msgspec.json.decode(metadata).get("trace_id")
    if not isinstance(trace, str) or len(trace) != 32:
        return None
    try:
        return str(UUID(trace))
    except ValueError:
        return None


def check_erased(folder: Folder, subject: Subject) -> None:
    """Raise ArchiveError if an archive still has the text of a subject that is matched."""
    if subject.kind != "match":
        return
    slugs = {project.slug for project in subject.projects}
    for manifest in folder.manifests():
        for name in manifest.tables if not slugs or manifest.project in slugs else ():
            if rows := _matches(folder, manifest, BY_NAME[name], forms_of(subject.text)):
                raise ArchiveError(
                    f"{len(rows)} rows of {name} in {manifest.period} of {manifest.project} still have it in {folder.url}."
                )
