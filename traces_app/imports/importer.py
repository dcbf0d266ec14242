"""Import transcripts from files, and report for each file how much was read and the reasons for the rest.

A file is decoded (as JSON, JSON lines or text; see documents.py, and archives.py for packed files), its content
decides its format, and its sessions are stored in batches. A file of lines may have any size: each transcript is read once
for its outline, and a long one again for its messages, which are stored in parts. The import is idempotent: importing a
file again, or a longer version of it, adds the new entries and changes nothing else.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

from django.db import DatabaseError, OperationalError

from access_app.conf import conf
from access_app.db import Database
from access_app.errors import ApiError
from tracesite_sdk.formats.registry import Format, SpanFormat, document_of, format_of, is_of, is_text_transcript
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts import databases
from tracesite_sdk.transcripts.documents import (
    BEGINNING_OF_A_TEXT,
    Document,
    Files,
    Skip,
    Source,
    Unreadable,
    ValueBudget,
    file_source,
    read,
    skip_silently,
)
from tracesite_sdk.transcripts.outline import Outline, outline

from . import cpu_time
from .archives import BrokenArchive, Budget, Zip, files_in, is_packed, kept
from .cpu_time import TookTooMuchCpuTime
from .reports import FileReport
from .storing import batches, store, store_spans

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj")
"""Names of JSON files: one that is not JSON has failed. Other files are skipped unless their content looks like JSON."""

_MEBIBYTE = 1024 * 1024
_MOST_LEFT_OUT = 100_000
"""Omitted entries of one file, and skipped files of one archive, in an upload. Limited because each takes time."""


class TooMuchLeftOut(Exception):
    """Too many entries or files of an upload are not transcripts; the rest is not read."""

    def __init__(self) -> None:
        super().__init__(f"more than {_MOST_LEFT_OUT} entries are not part of a transcript; the rest was not read")


T = TypeVar("T")
Bound = Callable[[], AbstractContextManager[None]]
"""Returns a context manager that bounds the CPU time of its block."""
Watch = Callable[[Source], Source]
"""Called with each file before it is read; returns the source to read instead, for example one that reports progress."""


def import_paths(
    db: Database,
    paths: Iterable[Path],
    project_id: int | None,
    *,
    format_: Format | None = None,
    watch: Watch | None = None,
) -> Iterator[FileReport]:
    """Import files, the files below folders, and standard input ("-"); yield a report for each file, archived ones included.

    Nothing is stored if `project_id` is None. A failure is reported and does not stop the other files. Without a `format_`
    the content decides the format. A file, or one of an archive, may take conf.REQUEST_CPU_SECONDS of CPU time for each MiB
    begun of what was given; of an archive the rest is not read then.
    """
    seen: set[Path] = set()
    for path in paths:
        if str(path) == "-":
            with kept(sys.stdin.buffer, "standard input") as source:
                yield from import_source(db, source, project_id, format_=format_, cpu_seconds=conf.REQUEST_CPU_SECONDS)
            continue
        if path.is_dir():
            folder = _folder(path)
            yield from _import_folder(db, path, folder, project_id, format_=format_)
            seen.update((path / name).resolve() for name in folder.taken)
        for file, reason in _files_below(path) if path.is_dir() else [(path, "")]:
            if (real := file.resolve()) in seen:
                continue
            seen.add(real)
            if reason:
                yield FileReport(path=str(file), status="skipped", reason=reason)
                continue
            yield from _import_file(db, file, project_id, named=file is path, format_=format_, watch=watch)


def import_source(
    db: Database,
    source: Source,
    project_id: int | None,
    *,
    named: bool = True,
    format_: Format | None = None,
    budget: Budget | None = None,
    cpu_seconds: float | None = None,
) -> Iterator[FileReport]:
    """Import a file, or all files of an archive; yield a report for each.

    A file without a transcript has failed if the caller `named` it or its suffix is in SUFFIXES; otherwise it is skipped.
    Packed data may unpack to no more than the `budget`. Each file may take `cpu_seconds` of CPU time for each MiB begun of the
    source; None if that is bounded elsewhere.
    """
    skipped: list[FileReport] = []

    is_bounded = budget is not None and budget.values is not None

    def skip(path: str, reason: str) -> None:
        skipped.append(FileReport(path=path, status="skipped", reason=reason))
        if is_bounded and len(skipped) > _MOST_LEFT_OUT:
            raise TooMuchLeftOut

    count = 0
    try:
        bound = nullcontext if cpu_seconds is None else partial(cpu_time.at_most, cpu_seconds * _mebibytes(source))
        for file in _each(files_in(source, skip, budget), bound):
            count += len(skipped)
            yield from skipped
            skipped.clear()
            report = FileReport(path=file.name)
            values = budget.values if budget is not None else None
            try:
                with bound():
                    if isinstance(file, Zip):
                        claimed = _format_of(file.files, format_)
                        if claimed is None:
                            continue
                        leave_out = _skip_into(report, is_bounded)
                        _import_document(db, file.files, claimed, report, project_id, leave_out, values)
                    elif file.name != source.name and (reason := _archive_skip_reason(file)):
                        report.status, report.reason = "skipped", reason
                    else:
                        is_named = named and file.name == source.name
                        _import_one(db, file, report, project_id, named=is_named, format_=format_, values=values)
            except TookTooMuchCpuTime as error:
                _stop_at(db, report, error, is_in_archive=file.name != source.name)
                yield report
                return
            count += 1
            yield report
    except (OSError, BrokenArchive, TooMuchLeftOut, TookTooMuchCpuTime) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if not isinstance(error, TooMuchLeftOut):
            yield from skipped
        yield FileReport(path=source.name, status="failed", reason=reason)
        return
    yield from skipped
    if not count + len(skipped):
        yield FileReport(path=source.name, status="failed" if named else "skipped", reason="the archive has no files")


def _import_folder(
    db: Database, path: Path, folder: Files, project_id: int | None, *, format_: Format | None
) -> Iterator[FileReport]:
    """Import the transcripts of a folder that are several files each; yield a report if there are some."""
    # As much CPU time as its files may take one by one.
    report = _import_whole(db, path, folder, project_id, format_=format_, mebibytes=1 + len(folder.names))
    if report is not None:
        yield report


def _import_whole(
    db: Database, path: Path, document: Document, project_id: int | None, *, format_: Format | None, mebibytes: int
) -> FileReport | None:
    """Import a document that is more than one file; return None if it is not of a known format."""
    report = FileReport(path=str(path))
    try:
        with cpu_time.at_most(conf.REQUEST_CPU_SECONDS * mebibytes):
            claimed = _format_of(document, format_)
            if claimed is None:
                return None
            _import_document(db, document, claimed, report, project_id, _skip_into(report, False), None)
    except TookTooMuchCpuTime as error:
        _stop_at(db, report, error, is_in_archive=False)
    return report


def _import_database(
    db: Database, path: Path, project_id: int | None, *, named: bool, format_: Format | None
) -> Iterator[FileReport]:
    """Import the transcripts in an SQLite database; yield its report."""
    try:
        with databases.opened(path) as document:
            mebibytes = 1 + path.stat().st_size // _MEBIBYTE
            report = _import_whole(db, path, document, project_id, format_=format_, mebibytes=mebibytes)
        reason = "not a database of a known format"
    except (OSError, Unreadable) as error:
        report, reason = None, str(error)
    yield report or FileReport(path=str(path), status="failed" if named else "skipped", reason=reason)


def _import_file(
    db: Database, path: Path, project_id: int | None, *, named: bool, format_: Format | None, watch: Watch | None
) -> Iterator[FileReport]:
    source = file_source(path)
    try:
        if path.exists() and not path.is_file():
            # A pipe, such as <(command), can be read only once.
            with source.open() as stream, kept(stream, source.name) as copy:
                yield from import_source(
                    db, copy, project_id, named=named, format_=format_, cpu_seconds=conf.REQUEST_CPU_SECONDS
                )
                return
        with source.open() as stream:
            is_database = stream.read(len(databases.MAGIC)) == databases.MAGIC
    except OSError as error:
        yield FileReport(path=source.name, status="failed", reason=error.strerror or str(error))
        return
    if is_database:
        yield from _import_database(db, path, project_id, named=named, format_=format_)
        return
    watched = watch(source) if watch else source
    yield from import_source(
        db, watched, project_id, named=named, format_=format_, cpu_seconds=conf.REQUEST_CPU_SECONDS
    )


def _mebibytes(source: Source) -> int:
    """Return how many MiB of a source are begun, at least one. Raises OSError."""
    with source.open() as stream:
        return 1 + stream.seek(0, os.SEEK_END) // _MEBIBYTE


def _each(files: Iterator[T], bound: Bound) -> Iterator[T]:
    """Yield the files; the CPU time of finding each is bounded."""
    while True:
        with bound():
            file = next(files, None)
        if file is None:
            return
        yield file


def _stop_at(db: Database, report: FileReport, error: TookTooMuchCpuTime, *, is_in_archive: bool) -> None:
    """Report a file that was stopped."""
    report.status = "failed"
    report.reason = f"{error}; the rest of the archive was not read" if is_in_archive else str(error)
    if not db.connection.in_atomic_block:
        # A statement may have been under way. The next one gets a new connection.
        db.connection.close()


def _import_one(
    db: Database,
    source: Source,
    report: FileReport,
    project_id: int | None,
    *,
    named: bool,
    format_: Format | None,
    values: ValueBudget | None,
) -> None:
    leave_out = _skip_into(report, values is not None)
    is_wanted = named or source.name.lower().endswith(SUFFIXES)
    try:
        document = document_of(source, leave_out, values)
        document_format = _format_of(document, format_)
    except OSError as error:
        report.status, report.reason = "failed", error.strerror or str(error)
        return
    except TooMuchLeftOut as error:
        report.status, report.reason = "failed", str(error)
        return
    except Unreadable as error:
        report.status, report.reason = "failed" if is_wanted else "skipped", str(error)
        return
    if document_format is None:
        report.status = "failed" if named else "skipped"
        report.reason = f"not a transcript in {'a known format' if format_ is None else f'the format {format_.NAME}'}"
        return
    _import_document(db, document, document_format, report, project_id, leave_out, values)


def _skip_into(report: FileReport, is_bounded: bool) -> Skip:
    """Return a function that adds omitted entries to the report."""

    def leave_out(where: str, why: str) -> None:
        report.leave_out(where, why)
        if is_bounded and report.left_out_count > _MOST_LEFT_OUT:
            raise TooMuchLeftOut

    return leave_out


def _import_document(
    db: Database,
    document: Document,
    format_: Format,
    report: FileReport,
    project_id: int | None,
    leave_out: Skip,
    values: ValueBudget | None,
) -> None:
    report.format = format_.NAME
    is_second_time = False

    def skip(where: str, why: str) -> None:
        # The first pass over the entries has reported their omissions.
        if not is_second_time:
            leave_out(where, why)

    try:
        if isinstance(format_, SpanFormat):
            store_spans(db, _spans_within(format_.spans(document, leave_out), values), project_id, report)
            return
        outlines = (outline(transcript, format_.NAME) for transcript in format_.transcripts(document, skip))
        for batch in batches(_within(outlines, values)):
            is_second_time = True
            store(db, batch, project_id, report)
            is_second_time = False
    except OperationalError:
        # The database is down or out of order, so the other files would fail, too.
        raise
    except (ApiError, DatabaseError, OSError, TooMuchLeftOut, Unreadable) as error:
        report.status, report.reason = "failed", str(error)


def _within(outlines: Iterable[Outline], values: ValueBudget | None) -> Iterator[Outline]:
    """Yield the transcripts, as long as they are within the budget. Raise Unreadable."""
    for item in outlines:
        if values is not None:
            values.take_entries(item.count)
            values.take_put_in(item.put_in)
        yield item


def _spans_within(spans: Iterable[Span], values: ValueBudget | None) -> Iterator[Span]:
    """Yield the spans, as long as they are within the budget. Raise Unreadable."""
    for span in spans:
        if values is not None:
            values.take_entries(1)
        yield span


def _format_of(document: Document, wanted: Format | None) -> Format | None:
    if wanted is None:
        return format_of(document)
    return wanted if is_of(document, wanted) else None


# --- Files ----------------------------------------------------------------------------------------------------------


def _folder(path: Path) -> Files:
    """Return the JSON files below a folder that are not hidden."""
    below = (file.relative_to(path) for file in path.rglob("*.json"))
    names = sorted(file.as_posix() for file in below if not any(part.startswith(".") for part in file.parts))

    def read_file(name: str) -> Document:
        try:
            return read(file_source(path / name), skip_silently)
        except OSError as error:
            raise Unreadable(error.strerror or str(error)) from error

    return Files(tuple(names), read_file)


def _files_below(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files below a folder in the order of their names, each with the reason to skip it, or ""."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in [name for name in folders if name.startswith(".")]:
            folders.remove(name)
            yield Path(root, name), "a hidden folder"
        for name in sorted(files):
            path = Path(root, name)
            yield path, _skip_reason(path)


def _archive_skip_reason(file: Source) -> str:
    """Return the reason to skip a file of an archive, or "".

    macOS packs the attributes of a file beside it, with the same suffix. Hidden folders are read, because many transcripts
    are in one, such as ~/.claude, and are packed with it.
    """
    *folders, last = file.name.split("/")
    if last.startswith("._") or "__MACOSX" in folders:
        return "macOS metadata"
    if not last.startswith("."):
        return ""
    try:
        with file.open() as stream:
            return _hidden_skip_reason(stream.read(BEGINNING_OF_A_TEXT))
    except OSError as error:
        return str(error)


def _hidden_skip_reason(head: bytes) -> str:
    """Return the reason to skip a hidden file. Aider's history is one, beside the code that it is about."""
    return "" if is_text_transcript(head) else "a hidden file"


def _skip_reason(path: Path) -> str:
    is_hidden = path.name.startswith(".")
    if not is_hidden and path.suffix.lower() in SUFFIXES:
        return ""
    try:
        if not path.is_file():
            return "not a readable file"
        with path.open("rb") as stream:
            head = stream.read(BEGINNING_OF_A_TEXT)
    except OSError as error:
        return error.strerror or str(error)
    if is_hidden:
        return _hidden_skip_reason(head)
    looks_like_json = head.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"["))
    is_read = looks_like_json or is_packed(head) or head.startswith(databases.MAGIC) or is_text_transcript(head)
    return "" if is_read else "neither JSON nor an archive"
