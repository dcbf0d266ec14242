"""Reads transcripts from files and stores them: what was read of each file, what was not, and why.

A file is decoded (JSON, or JSON lines where the file as a whole is none), its format told by its content, and its
sessions are stored in batches. Memory is bounded by the largest file. Importing a file again, or a longer version of
it, adds what is new and changes nothing else.

Formats without ids of their own derive a session's identity from how the conversation begins, so two runs of one task
would be one session. What tells them apart is the first reply: where a session of that name has another one, the
run gets a name of its own (`_settle`).
"""

from __future__ import annotations

import codecs
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from django.db import DatabaseError
from django.utils import timezone
from msgspec.structs import replace

from access_app.errors import ApiError
from messages_app.models import Session

from . import records
from .formats.registry import format_of
from .ingest import ingest
from .rows import holdable
from .transcripts import FIRST_REPLY, ORPHAN_RESULT, with_times

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj")
"""What is read of a folder; a file that is named itself is read whatever its name."""

_BATCH = 2_000
"""Rows in one transaction, about; a single message is never split."""
_SHOWN = 50
"""Entries left out that a report names one by one; the others are counted."""


@dataclass(kw_only=True)
class Counts:
    """What records say, added up."""

    sessions: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    """By role."""
    steps: int = 0
    tool_calls: Counter[str] = field(default_factory=Counter)
    """By name of the tool, as are the errors; placeholders of orphan results are not among them."""
    tool_results: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    calls_without_result: int = 0
    orphan_results: int = 0

    def add(self, session: records.Session) -> None:
        self.sessions += 1
        for message in session.messages or ():
            self.messages[message.role] += 1
            for step in message.agent_steps or ():
                self.steps += 1
                for call in step.tool_calls or ():
                    self._add_call(call)

    def include(self, other: Counts) -> None:
        self.sessions += other.sessions
        self.messages += other.messages
        self.steps += other.steps
        self.tool_calls += other.tool_calls
        self.tool_results += other.tool_results
        self.errors += other.errors
        self.calls_without_result += other.calls_without_result
        self.orphan_results += other.orphan_results

    def _add_call(self, call: records.ToolCall) -> None:
        if call.status == "error":
            self.errors[call.name or ""] += 1
        if call.metadata and call.metadata.get(ORPHAN_RESULT):
            self.orphan_results += 1
            return
        self.tool_calls[call.name or ""] += 1
        if call.result is None:
            self.calls_without_result += 1
        else:
            self.tool_results += 1


@dataclass(kw_only=True)
class FileReport:
    """What became of one file."""

    path: str
    status: Literal["read", "skipped", "failed"] = "read"
    reason: str = ""
    """Why it was skipped or failed."""
    format: str = ""
    counts: Counts = field(default_factory=Counts)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """The first entries that were not taken over: where, and why."""
    left_out_count: int = 0
    stored: Counter[str] = field(default_factory=Counter)
    """Messages by what the store said: created, updated, unchanged, or why it refused them. Empty for a dry run."""

    def leave_out(self, where: str, why: str) -> None:
        self.left_out_count += 1
        if len(self.left_out) < _SHOWN:
            self.left_out.append((where, why))


class Unreadable(Exception):
    """The file holds no JSON; the text says where it stops being any."""


def import_paths(paths: Iterable[Path], project_id: int | None) -> Iterator[FileReport]:
    """Imports files, and what lies below folders, into a project; with None nothing is stored. A report for each file.

    What fails is in its report and never stops the others.
    """
    seen: set[Path] = set()
    for path in paths:
        for file, reason in _below(path) if path.is_dir() else [(path, "")]:
            if (real := file.resolve()) in seen:
                continue
            seen.add(real)
            if reason:
                yield FileReport(path=str(file), status="skipped", reason=reason)
            else:
                yield import_file(file, project_id, named=file is path)


def import_file(path: Path, project_id: int | None, *, named: bool = True) -> FileReport:
    """Imports one file; a file that no format knows has failed when somebody named it, and else is skipped."""
    report = FileReport(path=str(path))
    try:
        document = read_document(path, report.leave_out)
    except OSError as error:
        report.status, report.reason = "failed", error.strerror or str(error)
        return report
    except Unreadable as error:
        report.status, report.reason = "failed", str(error)
        return report
    format_ = format_of(document)
    if format_ is None:
        report.status = "failed" if named else "skipped"
        report.reason = "no transcript of a known format"
        return report
    report.format = format_.NAME
    try:
        for batch in _batches(_counted(format_.sessions(document, report.leave_out), report.counts)):
            if project_id is not None:
                _store(batch, project_id, report.stored)
    except (ApiError, DatabaseError) as error:
        report.status, report.reason = "failed", str(error)
    return report


def read_document(path: Path, leave_out: Callable[[str, str], None]) -> object:
    """The JSON value of a file, or the list of its lines' values; a broken line is left out with its number.

    Raises OSError, and Unreadable when neither the file nor its first line is JSON.
    """
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise Unreadable("the file is empty")
    try:
        return _decoded(data)
    except ValueError as error:
        whole = error
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    values = []
    for number, line in lines:
        try:
            values.append(_decoded(line))
        except ValueError as error:
            if not values:
                raise Unreadable(f"not JSON: {whole}") from error
            leave_out(f"line {number}", f"not JSON: {error}")
    return values


# --- Files ----------------------------------------------------------------------------------------------------------


def _below(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files below a folder in the order of their names, with the reason why one is not read."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in [name for name in folders if name.startswith(".")]:
            folders.remove(name)
            yield Path(root, name), "a hidden folder"
        for name in sorted(files):
            path = Path(root, name)
            wanted = path.suffix.lower() in SUFFIXES and not name.startswith(".")
            yield path, "" if wanted else f"not one of {', '.join(SUFFIXES)}"


def _decoded(data: bytes) -> Any:
    """The value of a JSON text. Raises ValueError, which says where it is broken."""
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except msgspec.MsgspecError:
        pass
    # Python's own reader also takes what it writes: NaN, and halves of surrogate pairs, which no table can hold.
    try:
        return holdable(json.loads(data, parse_constant=lambda _name: None))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


# --- Storing --------------------------------------------------------------------------------------------------------


def _counted(sessions: Iterable[records.Session], counts: Counts) -> Iterator[records.Session]:
    for session in sessions:
        counts.add(session)
        yield session


def _store(batch: list[records.Session], project_id: int, stored: Counter[str]) -> None:
    for piece in _pieces(_settle(batch, project_id)):
        for outcome in ingest(project_id, piece, source="import"):
            for message in outcome.messages:
                stored[message.refused or message.state] += 1


def _batches(sessions: Iterable[records.Session]) -> Iterator[list[records.Session]]:
    """Whole sessions, as many as it takes to fill a transaction."""
    batch: list[records.Session] = []
    size = 0
    for session in sessions:
        batch.append(session)
        size += sum(map(_size, session.messages or ()))
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _pieces(batch: list[records.Session]) -> Iterator[list[records.Session]]:
    """The batch as it is, or in parts that fit a transaction: a part of a session is a session with fewer messages."""
    piece: list[records.Session] = []
    size = 0
    for session in batch:
        part: list[records.Message] = []
        for message in session.messages or ():
            if size >= _BATCH:
                yield [*piece, replace(session, messages=part)]
                piece, part, size = [], [], 0
            part.append(message)
            size += _size(message)
        piece.append(replace(session, messages=part))
    yield piece


def _size(message: records.Message) -> int:
    """Rows, about."""
    return 1 + sum(1 + len(step.tool_calls or ()) for step in message.agent_steps or ())


def _settle(batch: list[records.Session], project_id: int) -> list[records.Session]:
    """The sessions with their final names, and with times where they have none.

    A session that is there goes on from its own start, so that what was added to a transcript comes after what was
    there. A new one starts now.
    """
    names = {name for session in batch for name in _names(session)}
    there: dict[str, tuple[str | None, datetime]] = {
        name: (first_reply, created_at)
        for name, first_reply, created_at in Session.with_deleted.filter(
            project_id=project_id, external_id__in=names
        ).values_list("external_id", f"metadata__{FIRST_REPLY}", "created_at")
    }
    settled = []
    for session in batch:
        name, *others = _names(session)
        first_reply = (session.metadata or {}).get(FIRST_REPLY)
        known = there.get(name)
        if known and known[0] and first_reply and known[0] != first_reply:
            name = others[0]
            known = there.get(name)
        start = known[1] if known else timezone.now()
        settled.append(with_times(replace(session, external_id=name), start))
    return settled


def _names(session: records.Session) -> list[str]:
    """The names that a session may have: its own, and the one it takes where another run has that."""
    assert session.external_id is not None, "transcripts.session names every session"
    first_reply = (session.metadata or {}).get(FIRST_REPLY)
    return [session.external_id, *([f"{session.external_id}-{first_reply}"] if first_reply else [])]
