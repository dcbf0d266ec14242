"""Import transcripts from files, and report for each file how much was read and the reasons for the rest.

A file is decoded (as JSON, otherwise as JSON lines; see documents.py, and archives.py for packed files), its content
decides its format, and its sessions are stored in batches. A file of lines may have any size: each transcript is read once
for its outline, and a long one again for its messages, which are stored in parts. The import is idempotent: importing a
file again, or a longer version of it, adds the new entries and changes nothing else.

A session is identified by the transcript's own id, otherwise by one derived from the start of the conversation. So two
runs of one task have the same name, as have two files that use one id for different conversations. Their entries
distinguish them: a transcript that diverges from the session of its name gets another name (`_assign_names`), and nothing
is overwritten.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from django.db import DatabaseError, OperationalError
from django.utils import timezone
from msgspec.structs import replace

from access_app.db import connection
from access_app.errors import ApiError
from messages_app.models import Session
from traces_app.ingest.pipeline import ingest
from traces_app.normalize.records import normalise
from traces_app.schema import records
from traces_app.schema.health_flags import INVALID_ARGUMENTS, ORPHAN_RESULT
from traces_app.schema.pg_text import text

from .files.archives import BrokenArchive, Budget, Zip, files_in, is_packed, kept
from .files.documents import Document, Skip, Source, Unreadable, ValueBudget, file_source, read
from .formats import claude_code, otlp
from .formats.registry import Format, format_of, is_of
from .outline import DERIVED, DIGEST_BYTES, Outline, messages_of, outline
from .session_tails import trash_tails
from .span_store import record_spans
from .spans.conversation import session_of_trace
from .spans.span import Span
from .sub_agents import place_shares, with_shares_placed

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj")
"""Names of JSON files: one that is not JSON has failed. Other files are skipped unless their content looks like JSON."""

_SNIFFED = 512
_BATCH = 2_000
"""Rows in one transaction, roughly; a single message is never split."""
_BATCH_CHARACTERS = 8_000_000
"""Size of the transcripts that are held in memory together."""
_BATCH_CHARACTERS_OF_A_ROW = 4_000
"""A text counts as one more row for each of these."""
_LONGEST = 1_000
"""Characters of a path or a reason in a report."""
_MOST_LEFT_OUT = 100_000
"""Omitted entries of one file, and skipped files of one archive, in an upload. Limited because each takes time."""
_SHOWN = 50
"""Omitted entries that a report lists; the others are counted."""


@dataclass(kw_only=True)
class Counts:
    """Totals of records."""

    sessions: int = 0
    """A session with parts in several files counts once."""
    messages: Counter[str] = field(default_factory=Counter)
    """Number of messages by role."""
    steps: int = 0
    tool_calls: Counter[str] = field(default_factory=Counter)
    """By name of the tool, as are the errors; without the placeholders of orphan results."""
    tool_results: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    calls_without_result: int = 0
    orphan_results: int = 0
    broken_arguments: int = 0
    """Calls whose arguments are text but not JSON; the text is kept."""
    health: Counter[str] = field(default_factory=Counter)
    """Messages with oddities, by flag: see health_flags.py."""

    def __post_init__(self) -> None:
        # Not a field, because reports do not contain it.
        self._in_parts: set[str] = set()

    def add_sessions(self, count: int, in_parts: Collection[str]) -> None:
        """Add `count` sessions; other files may hold parts of those named in `in_parts`."""
        self.sessions += count - len(self._in_parts.intersection(in_parts))
        self._in_parts.update(in_parts)

    def add(self, message: records.Message, normal: records.Message) -> None:
        """Add a message, given as parsed and as normalized."""
        self.messages[message.role] += 1
        self.health.update(normal.health or ())
        for step in normal.agent_steps or ():
            self.steps += 1
            for call in step.tool_calls or ():
                self._add_call(call)
        if INVALID_ARGUMENTS in (normal.health or ()):
            calls = (call for step in message.agent_steps or () for call in step.tool_calls or ())
            self.broken_arguments += sum(_is_broken(call.args) for call in calls)

    def include(self, other: Counts) -> None:
        self.add_sessions(other.sessions, other._in_parts)
        self.messages += other.messages
        self.steps += other.steps
        self.tool_calls += other.tool_calls
        self.tool_results += other.tool_results
        self.errors += other.errors
        self.calls_without_result += other.calls_without_result
        self.orphan_results += other.orphan_results
        self.broken_arguments += other.broken_arguments
        self.health += other.health

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
    """The outcome of one file."""

    path: str
    status: Literal["read", "skipped", "failed"] = "read"
    reason: str = ""
    """The reason if skipped or failed."""
    format: str = ""
    counts: Counts = field(default_factory=Counts)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """The first omitted entries, each with its place and the reason."""
    left_out_count: int = 0
    renamed: list[tuple[str, str]] = field(default_factory=list)
    """Ids whose session holds another conversation, each with the id that the transcript is stored under instead."""
    stored: Counter[str] = field(default_factory=Counter)
    """Messages by outcome: created, updated, unchanged, or the reason of a refusal. Empty for a dry run."""

    def __post_init__(self) -> None:
        # File names are bytes, not always valid text; in an archive they may have any length.
        self.path = _cut(text(self.path))

    def leave_out(self, where: str, why: str) -> None:
        self.left_out_count += 1
        if len(self.left_out) < _SHOWN:
            self.left_out.append((_cut(text(where)), _cut(text(why))))


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"


class TooMuchLeftOut(Exception):
    """Too many entries or files of an upload are not transcripts; the rest is not read."""

    def __init__(self) -> None:
        super().__init__(f"more than {_MOST_LEFT_OUT} entries are not part of a transcript; the rest was not read")


Watch = Callable[[Source], Source]
"""Called with each file before it is read; returns the source to read instead, for example one that reports progress."""


def import_paths(
    paths: Iterable[Path], project_id: int | None, *, format_: Format | None = None, watch: Watch | None = None
) -> Iterator[FileReport]:
    """Import files, the files below folders, and standard input ("-"); yield a report for each file, archived ones included.

    Nothing is stored if `project_id` is None. A failure is reported and does not stop the other files. Without a `format_`
    the content decides the format.
    """
    seen: set[Path] = set()
    for path in paths:
        if str(path) == "-":
            with kept(sys.stdin.buffer, "standard input") as source:
                yield from import_source(source, project_id, format_=format_)
            continue
        for file, reason in _files_below(path) if path.is_dir() else [(path, "")]:
            if (real := file.resolve()) in seen:
                continue
            seen.add(real)
            if reason:
                yield FileReport(path=str(file), status="skipped", reason=reason)
                continue
            yield from _import_file(file, project_id, named=file is path, format_=format_, watch=watch)


def import_source(
    source: Source,
    project_id: int | None,
    *,
    named: bool = True,
    format_: Format | None = None,
    budget: Budget | None = None,
) -> Iterator[FileReport]:
    """Import a file, or all files of an archive; yield a report for each.

    A file without a transcript has failed if the caller `named` it or its suffix is in SUFFIXES; otherwise it is skipped.
    Packed data may unpack to no more than the `budget`.
    """
    skipped: list[FileReport] = []

    is_bounded = budget is not None and budget.values is not None

    def skip(path: str, reason: str) -> None:
        skipped.append(FileReport(path=path, status="skipped", reason=reason))
        if is_bounded and len(skipped) > _MOST_LEFT_OUT:
            raise TooMuchLeftOut

    found = 0
    try:
        for file in files_in(source, skip, budget):
            found += len(skipped)
            yield from skipped
            skipped.clear()
            if isinstance(file, Zip):
                claimed = _format_of(file.files, format_)
                if claimed is not None:
                    file.claimed = True
                    found += 1
                    report = FileReport(path=file.name)
                    yield _import_document(file.files, claimed, report, project_id, _skip_into(report, is_bounded))
                continue
            found += 1
            if file.name != source.name and (reason := _archive_skip_reason(file.name)):
                yield FileReport(path=file.name, status="skipped", reason=reason)
                continue
            is_named = named and file.name == source.name
            values = budget.values if budget is not None else None
            yield _import_one(file, project_id, named=is_named, format_=format_, values=values)
    except (OSError, BrokenArchive, TooMuchLeftOut) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if not isinstance(error, TooMuchLeftOut):
            yield from skipped
        yield FileReport(path=source.name, status="failed", reason=reason)
        return
    yield from skipped
    if not found + len(skipped):
        yield FileReport(path=source.name, status="failed" if named else "skipped", reason="the archive has no files")


def _import_file(
    path: Path, project_id: int | None, *, named: bool, format_: Format | None, watch: Watch | None
) -> Iterator[FileReport]:
    source = file_source(path)
    try:
        if path.exists() and not path.is_file():
            # A pipe, such as <(command), can be read only once.
            with source.open() as stream, kept(stream, source.name) as copy:
                yield from import_source(copy, project_id, named=named, format_=format_)
                return
    except OSError as error:
        yield FileReport(path=source.name, status="failed", reason=error.strerror or str(error))
        return
    yield from import_source(watch(source) if watch else source, project_id, named=named, format_=format_)


def _import_one(
    source: Source, project_id: int | None, *, named: bool, format_: Format | None, values: ValueBudget | None
) -> FileReport:
    report = FileReport(path=source.name)
    leave_out = _skip_into(report, values is not None)
    is_wanted = named or source.name.lower().endswith(SUFFIXES)
    try:
        document = read(source, leave_out, values)
        found = _format_of(document, format_)
    except OSError as error:
        report.status, report.reason = "failed", error.strerror or str(error)
        return report
    except TooMuchLeftOut as error:
        report.status, report.reason = "failed", str(error)
        return report
    except Unreadable as error:
        report.status, report.reason = "failed" if is_wanted else "skipped", str(error)
        return report
    if found is None:
        report.status = "failed" if named else "skipped"
        report.reason = f"not a transcript in {'a known format' if format_ is None else f'the format {format_.NAME}'}"
        return report
    return _import_document(document, found, report, project_id, leave_out)


def _skip_into(report: FileReport, is_bounded: bool) -> Skip:
    """Return a function that adds omitted entries to the report."""

    def leave_out(where: str, why: str) -> None:
        report.leave_out(where, why)
        if is_bounded and report.left_out_count > _MOST_LEFT_OUT:
            raise TooMuchLeftOut

    return leave_out


def _import_document(
    document: Document, format_: Format, report: FileReport, project_id: int | None, leave_out: Skip
) -> FileReport:
    report.format = format_.NAME
    is_second_time = False

    def skip(where: str, why: str) -> None:
        # The first pass over the entries has reported their omissions.
        if not is_second_time:
            leave_out(where, why)

    try:
        if format_ is otlp:
            _store_spans(otlp.spans(document, leave_out), project_id, report)
            return report
        found = (outline(transcript, format_.NAME) for transcript in format_.transcripts(document, skip))
        for batch in _batches(found):
            is_second_time = True
            _store(batch, project_id, report)
            is_second_time = False
    except OperationalError:
        # The database is down or out of order, so the other files would fail, too.
        raise
    except (ApiError, DatabaseError, OSError, TooMuchLeftOut) as error:
        report.status, report.reason = "failed", str(error)
    return report


def totals_of(reports: Iterable[FileReport]) -> Counts:
    totals = Counts()
    for report in reports:
        totals.include(report.counts)
    return totals


def _format_of(document: Document, wanted: Format | None) -> Format | None:
    if wanted is None:
        return format_of(document)
    return wanted if is_of(document, wanted) else None


# --- Files ----------------------------------------------------------------------------------------------------------


def _files_below(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files below a folder in the order of their names, each with the reason to skip it, or ""."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in [name for name in folders if name.startswith(".")]:
            folders.remove(name)
            yield Path(root, name), "a hidden folder"
        for name in sorted(files):
            path = Path(root, name)
            yield path, "a hidden file" if name.startswith(".") else _skip_reason(path)


def _archive_skip_reason(name: str) -> str:
    """Return the reason to skip a file of an archive, or "".

    macOS packs the attributes of a file beside it, with the same suffix. Hidden folders are read, because many transcripts
    are in one, such as ~/.claude, and are packed with it.
    """
    *folders, last = name.split("/")
    if last.startswith("._") or "__MACOSX" in folders:
        return "macOS metadata"
    return "a hidden file" if last.startswith(".") else ""


def _skip_reason(path: Path) -> str:
    if path.suffix.lower() in SUFFIXES:
        return ""
    try:
        if not path.is_file():
            return "not a readable file"
        with path.open("rb") as stream:
            head = stream.read(_SNIFFED)
    except OSError as error:
        return error.strerror or str(error)
    looks_like_json = head.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"["))
    return "" if looks_like_json or is_packed(head) else "neither JSON nor an archive"


# --- Storing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Named:
    """A transcript with the name and the start of its session."""

    transcript: Outline
    name: str
    start: datetime
    digests: bytes
    """Those of the longest known transcript of the session."""
    is_outgrown: bool = False
    """Whether that transcript is longer than this one, which is its start."""


def _batches(transcripts: Iterable[Outline]) -> Iterator[list[Outline]]:
    """Yield lists of transcripts, each large enough to fill a transaction and small enough to be held in memory."""
    batch: list[Outline] = []
    entries = characters = 0
    for transcript in transcripts:
        batch.append(transcript)
        entries += transcript.count
        characters += transcript.characters
        if entries >= _BATCH or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, entries, characters = [], 0, 0
    if batch:
        yield batch


def _store(batch: list[Outline], project_id: int | None, report: FileReport) -> None:
    """Count the records of a batch and, unless `project_id` is None, store them."""
    now = timezone.now()
    if project_id is None:
        named = [
            _Named(transcript=transcript, name=_own_name(transcript), start=now, digests=b"") for transcript in batch
        ]
    else:
        named = _keep_titles(_assign_names(batch, project_id), project_id)
    for one in named:
        own = _own_name(one.transcript)
        if one.name != own and not own.startswith(DERIVED):
            report.renamed.append((own, one.name))
    new_digests = {one.name: one.digests for one in named if one.digests}
    # A transcript can be a part of a session only if it has ids of its own, see Transcript.has_own_ids.
    in_parts = {one.name for one in named if not one.digests}
    partial_names = {_own_name(transcript) for transcript in batch if not transcript.digests}
    report.counts.add_sessions(
        sum(bool(transcript.digests) for transcript in batch) + len(partial_names), partial_names
    )
    outgrown = set() if project_id is None else _stored_outgrown(named, project_id)
    for piece in _pieces(named):
        normal = [normalise(session, now=now) for session in piece]
        for session, normal_session in zip(piece, normal, strict=True):
            for message, normal_message in zip(session.messages or (), normal_session.messages or (), strict=True):
                report.counts.add(message, normal_message)
        if project_id is None:
            continue
        if outgrown:
            report.stored.update(
                "unchanged" for one in normal if one.external_id in outgrown for _ in one.messages or ()
            )
            normal = [one for one in normal if one.external_id not in outgrown]
        placed = [with_shares_placed(project_id, one) if one.external_id in in_parts else one for one in normal]
        for outcome in ingest(project_id, placed, source="import"):
            for message_outcome in outcome.messages:
                report.stored[message_outcome.refused or message_outcome.state] += 1
        # As soon as the session exists, so that a later import recognises it even if this one is interrupted.
        stored = {session.external_id or "" for session in piece}
        _store_digests(project_id, {name: new_digests.pop(name) for name in stored & new_digests.keys()})
    if in_parts and project_id is not None:
        place_shares(project_id, in_parts)
        if report.format == claude_code.NAME:
            trash_tails(project_id, in_parts)


def _store_spans(spans: Iterable[Span], project_id: int | None, report: FileReport) -> None:
    """Count the messages of the traces of a file and, unless `project_id` is None, store the spans."""
    now = timezone.now()
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    names: set[str] = set()
    for trace in traces.values():
        session = session_of_trace(trace)
        names.add(session.external_id or "")
        for message, normal in zip(session.messages or (), normalise(session, now=now).messages or (), strict=True):
            report.counts.add(message, normal)
        if project_id is not None:
            outcome = record_spans(project_id, trace, now=now)
            report.stored.update(outcome.messages)
            if not (outcome.messages or outcome.refused):
                report.stored["unchanged"] += len(session.messages or ())
            for reason in outcome.reasons:
                report.leave_out(trace[0].trace_id, reason)
    report.counts.add_sessions(len(names), ())


def _stored_outgrown(named: Sequence[_Named], project_id: int) -> set[str]:
    """Return the names of stored sessions of which the batch holds an earlier state only.

    They are left unchanged, because an earlier state may end in the middle of a turn and would undo the rest of it.
    Deleted sessions are not among them: the store refuses their messages.
    """
    names = {one.name for one in named if one.is_outgrown} - {one.name for one in named if not one.is_outgrown}
    if not names:
        return names
    return set(
        Session.objects.filter(project_id=project_id, external_id__in=names).values_list("external_id", flat=True)
    )


def _store_digests(project_id: int, digests: Mapping[str, bytes]) -> None:
    """Store the digests of sessions, by name."""
    if not digests:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE messages_app_session AS session SET import_digests = new.digests "
            "FROM unnest(%s::text[], %s::bytea[]) AS new (external_id, digests) "
            "WHERE session.project_id = %s AND session.external_id = new.external_id AND session.external_id <> '' "
            "AND session.import_digests <> new.digests",
            [list(digests), list(digests.values()), project_id],
        )


def _pieces(named: Iterable[_Named]) -> Iterator[list[records.Session]]:
    """Yield the sessions in lists that fit a transaction: a part of a session is a session with fewer messages."""
    piece: list[records.Session] = []
    size = 0
    for one in named:
        transcript = one.transcript
        session = replace(
            transcript.session, external_id=one.name, created_at=transcript.session.created_at or one.start
        )
        part: list[records.Message] = []
        for message in messages_of(transcript, one.start):
            if size >= _BATCH:
                yield [*piece, replace(session, messages=part)]
                piece, part, size = [], [], 0
            part.append(message)
            size += _size(message)
        piece.append(replace(session, messages=part))
    if piece:
        yield piece


def _size(message: records.Message) -> int:
    """Return the number of rows, roughly; a large text counts as several."""
    size = 1 + _length(message.content)
    for step in message.agent_steps or ():
        size += 1 + _length(step.thought)
        for call in step.tool_calls or ():
            size += 1 + (_length(call.result.output) if isinstance(call.result, records.ToolResult) else 0)
    return size


def _length(value: Any) -> int:
    return len(value) // _BATCH_CHARACTERS_OF_A_ROW if isinstance(value, str) else 0


def _assign_names(batch: Sequence[Outline], project_id: int) -> list[_Named]:
    """Return the transcripts with the names of their sessions.

    A stored session keeps its own start, so that entries added to its transcript follow the stored ones. A new one starts
    now.
    """
    looked_up: dict[str, tuple[bytes, datetime] | None] = {}
    wanted = {_own_name(transcript) for transcript in batch}
    now = timezone.now()
    while wanted:
        looked_up |= dict.fromkeys(wanted)
        looked_up |= {
            name: (bytes(digests), created_at)
            for name, digests, created_at in Session.with_deleted.filter(
                project_id=project_id, external_id__in=wanted
            ).values_list("external_id", "import_digests", "created_at")
        }
        # The sessions found decide which other names are needed; whether those exist shows only the next lookup.
        named, wanted = _assign_known_names(batch, looked_up, now)
    return named


def _assign_known_names(
    batch: Sequence[Outline], looked_up: Mapping[str, tuple[bytes, datetime] | None], now: datetime
) -> tuple[list[_Named], set[str]]:
    """Return the assignment by the names looked up so far, and the names that are still to be looked up."""
    existing = {name: found for name, found in looked_up.items() if found is not None}
    named = []
    missing = set()
    for transcript in batch:
        name = _session_name(transcript, existing)
        if name not in looked_up:
            missing.add(name)
        known, start = existing.get(name, (b"", now))
        # If the transcript is the start of a known longer one, the digests of the longer one stay.
        longest = max(transcript.digests, known, key=len)
        existing[name] = longest, start
        is_outgrown = len(transcript.digests) < len(longest)
        named.append(_Named(transcript=transcript, name=name, start=start, digests=longest, is_outgrown=is_outgrown))
    return named, missing


def _keep_titles(named: list[_Named], project_id: int) -> list[_Named]:
    """Return the transcripts without derived titles for sessions that have a title.

    A title derived from a part of a transcript would differ, because the part begins with another prompt.
    """
    untitled = {one.name for one in named if not one.transcript.is_titled}
    titled = set(
        Session.with_deleted.filter(project_id=project_id, external_id__in=untitled)
        .exclude(title="")
        .values_list("external_id", flat=True)
    )
    return [
        replaced(one, transcript=replaced(one.transcript, session=replace(one.transcript.session, title=None)))
        if one.name in untitled & titled
        else one
        for one in named
    ]


def _session_name(transcript: Outline, existing: Mapping[str, tuple[bytes, datetime]]) -> str:
    """Return the transcript's own name, or if that session diverges, the name with the digest of the diverging entry.

    The session of that name may diverge at a later entry, and so on. The name depends only on entries up to the
    divergence, so a transcript that has grown gets the same name again.
    """
    digests = transcript.digests
    own = _own_name(transcript)
    name, index = own, -1
    while name in existing and (next_index := _divergence(existing[name][0], digests)) > index:
        digest = digests[next_index * DIGEST_BYTES : (next_index + 1) * DIGEST_BYTES]
        name, index = f"{own}-{digest.hex()}", next_index
    return name


def _divergence(some: bytes, others: bytes) -> int:
    """Return the index of the first entry in which two transcripts differ; -1 if one is the start of the other."""
    length = min(len(some), len(others))
    if some[:length] == others[:length]:
        return -1
    # Binary search: a digest covers all earlier entries, so all digests after the first different one differ.
    same, different = 0, length // DIGEST_BYTES
    while different - same > 1:
        middle = (same + different) // 2
        if some[: middle * DIGEST_BYTES] == others[: middle * DIGEST_BYTES]:
            same = middle
        else:
            different = middle
    return same


def _own_name(transcript: Outline) -> str:
    assert transcript.session.external_id is not None, "transcripts.outline names every session"
    return text(transcript.session.external_id)


def _is_broken(args: Any) -> bool:
    if not isinstance(args, str) or not args:
        return False
    try:
        msgspec.json.decode(args)
    except (msgspec.DecodeError, RecursionError):
        return True
    return False
