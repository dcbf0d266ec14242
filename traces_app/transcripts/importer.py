"""Reads transcripts from files and stores them: what was read of each file, what was not, and why.

A file is decoded (JSON, or JSON lines where the file as a whole is none; see documents.py, and archives.py for what is
packed), its format told by its content, and its sessions are stored in batches. A file of lines may have any size: each
transcript is gone through once for its outline, and a long one once more for its messages, which are stored in parts.
Importing a file again, or a longer version of it, adds what is new and changes nothing else.

A session's identity is the id that the transcript gives itself, else derived from how the conversation begins; so two
runs of one task would be one session, and two files that call different things by one id too. What tells them apart is
what they say: where they part from the session of their name, neither being a start of the other, they get a name of
their own (`_settle`), and nothing is overwritten.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from django.db import DatabaseError, OperationalError, connection
from django.utils import timezone
from msgspec.structs import replace

from access_app.errors import ApiError
from messages_app.models import Session
from traces_app.ingest.pipeline import ingest
from traces_app.normalize.records import normalise
from traces_app.schema import records
from traces_app.schema.health_flags import INVALID_ARGUMENTS, ORPHAN_RESULT
from traces_app.schema.pg_text import text

from .files.archives import BrokenArchive, Budget, Zip, files_in, is_packed, kept
from .files.documents import Document, Skip, Source, Unreadable, ValueBudget, file_source, read
from .formats import claude_code
from .formats.registry import Format, format_of, is_of
from .outline import DERIVED, DIGEST_BYTES, Outline, messages_of, outline
from .session_tails import trash_tails
from .sub_agents import place_shares, with_shares_placed

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj")
"""Files that call themselves JSON: that one of them is none is a failure. Others are read where their content looks like it."""

_SNIFFED = 512
_BATCH = 2_000
"""Rows in one transaction, about; a single message is never split."""
_BATCH_CHARACTERS = 8_000_000
"""Of transcripts that are held together."""
_BATCH_CHARACTERS_OF_A_ROW = 4_000
"""A text of so many characters counts as a row more."""
_LONGEST = 1_000
"""Characters of a path or a reason in a report."""
_MOST_LEFT_OUT = 100_000
"""Entries of one file, and files of one archive, that an upload may hold and that are left out: each costs time."""
_SHOWN = 50
"""Entries left out that a report names one by one; the others are counted."""


@dataclass(kw_only=True)
class Counts:
    """What records say, added up."""

    sessions: int = 0
    """Those of which several files hold parts are counted once."""
    messages: Counter[str] = field(default_factory=Counter)
    """By role."""
    steps: int = 0
    tool_calls: Counter[str] = field(default_factory=Counter)
    """By name of the tool, as are the errors; placeholders of orphan results are not among them."""
    tool_results: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    calls_without_result: int = 0
    orphan_results: int = 0
    broken_arguments: int = 0
    """Calls whose arguments are a text that is no JSON; they are kept as that text."""
    health: Counter[str] = field(default_factory=Counter)
    """Messages about which something is odd, by flag: see health.py."""

    def __post_init__(self) -> None:
        # No field, for it is nothing that a report says.
        self._in_parts: set[str] = set()

    def add_sessions(self, count: int, in_parts: Collection[str]) -> None:
        """So many more sessions; of those in `in_parts` other files may hold parts."""
        self.sessions += count - len(self._in_parts.intersection(in_parts))
        self._in_parts.update(in_parts)

    def add(self, message: records.Message, normal: records.Message) -> None:
        """One more message, as it came and in its normal form."""
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
    renamed: list[tuple[str, str]] = field(default_factory=list)
    """Ids of transcripts whose session holds another conversation, and the ids that they are stored under instead."""
    stored: Counter[str] = field(default_factory=Counter)
    """Messages by what the store said: created, updated, unchanged, or why it refused them. Empty for a dry run."""

    def __post_init__(self) -> None:
        # Names of files are bytes, and not always text. Those in archives may be as long as somebody likes.
        self.path = _cut(text(self.path))

    def leave_out(self, where: str, why: str) -> None:
        self.left_out_count += 1
        if len(self.left_out) < _SHOWN:
            self.left_out.append((_cut(text(where)), _cut(text(why))))


def _cut(said: str) -> str:
    return said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…"


class TooMuchLeftOut(Exception):
    """So much of an upload is no transcript that the rest is not read."""

    def __init__(self) -> None:
        super().__init__(f"more than {_MOST_LEFT_OUT} entries of it are no transcript; nothing behind them was read")


Watch = Callable[[Source], Source]
"""Given a file before it is read; what it gives back is read instead. For who wants to see how far it is."""


def import_paths(
    paths: Iterable[Path], project_id: int | None, *, format_: Format | None = None, watch: Watch | None = None
) -> Iterator[FileReport]:
    """Imports files, what lies below folders, and standard input ("-"); a report for each file, also of those in archives.

    Into a project; with None nothing is stored. What fails is in its report and never stops the others. Of a `format_`
    or, without one, of whatever format knows the content.
    """
    seen: set[Path] = set()
    for path in paths:
        if str(path) == "-":
            with kept(sys.stdin.buffer, "standard input") as source:
                yield from import_source(source, project_id, format_=format_)
            continue
        for file, reason in _below(path) if path.is_dir() else [(path, "")]:
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
    """Imports a file, or all files of an archive; a report for each of them.

    A file that is no transcript has failed when somebody named it, or it calls itself JSON, and else is skipped. What
    is packed unpacks to no more than the `budget`.
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
                    yield _imported(file.files, claimed, report, project_id, _left_out_of(report, is_bounded))
                continue
            found += 1
            if file.name != source.name and (reason := _reason_to_pass_over(file.name)):
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
        yield FileReport(path=source.name, status="failed" if named else "skipped", reason="an archive of no files")


def _import_file(
    path: Path, project_id: int | None, *, named: bool, format_: Format | None, watch: Watch | None
) -> Iterator[FileReport]:
    source = file_source(path)
    try:
        if path.exists() and not path.is_file():
            # A pipe, as of <(command): it can be read once.
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
    leave_out = _left_out_of(report, values is not None)
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
        report.reason = f"no transcript of {'a known format' if format_ is None else f'the format {format_.NAME}'}"
        return report
    return _imported(document, found, report, project_id, leave_out)


def _left_out_of(report: FileReport, is_bounded: bool) -> Skip:
    """Return what notes in a report what is left out of its file."""

    def leave_out(where: str, why: str) -> None:
        report.leave_out(where, why)
        if is_bounded and report.left_out_count > _MOST_LEFT_OUT:
            raise TooMuchLeftOut

    return leave_out


def _imported(
    document: Document, format_: Format, report: FileReport, project_id: int | None, leave_out: Skip
) -> FileReport:
    report.format = format_.NAME
    is_second_time = False

    def skip(where: str, why: str) -> None:
        # What is left out was told when the entries were gone through first.
        if not is_second_time:
            leave_out(where, why)

    try:
        found = (outline(transcript, format_.NAME) for transcript in format_.transcripts(document, skip))
        for batch in _batches(found):
            is_second_time = True
            _store(batch, project_id, report)
            is_second_time = False
    except OperationalError:
        # The database is not there, or not in order: no other file will fare better.
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


def _below(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files below a folder in the order of their names, with the reason why one is not read."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in [name for name in folders if name.startswith(".")]:
            folders.remove(name)
            yield Path(root, name), "a hidden folder"
        for name in sorted(files):
            path = Path(root, name)
            yield path, "a hidden file" if name.startswith(".") else _reason_not_to_read(path)


def _reason_to_pass_over(name: str) -> str:
    """Why a file of an archive is not read; "" where it is.

    macOS packs the attributes of a file beside it, under the same ending. Hidden folders are read: many transcripts lie in
    one, such as ~/.claude, and are packed with it.
    """
    *folders, last = name.split("/")
    if last.startswith("._") or "__MACOSX" in folders:
        return "what macOS keeps of a file"
    return "a hidden file" if last.startswith(".") else ""


def _reason_not_to_read(path: Path) -> str:
    if path.suffix.lower() in SUFFIXES:
        return ""
    try:
        if not path.is_file():
            return "no file that can be read"
        with path.open("rb") as stream:
            head = stream.read(_SNIFFED)
    except OSError as error:
        return error.strerror or str(error)
    looks_like_json = head.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"["))
    return "" if looks_like_json or is_packed(head) else "neither JSON nor an archive"


# --- Storing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Settled:
    """A transcript with the name that its session has, and when that began."""

    transcript: Outline
    name: str
    start: datetime
    digests: bytes
    """Of the longest transcript that the session is known of."""
    is_outgrown: bool = False
    """Whether that is a longer one, which begins as this one does."""


def _batches(transcripts: Iterable[Outline]) -> Iterator[list[Outline]]:
    """As many as it takes to fill a transaction, or that may be held."""
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
    """Counts what is said in a batch, and stores it in a project, if there is one."""
    now = timezone.now()
    if project_id is None:
        settled = [_Settled(transcript=one, name=_own_name(one), start=now, digests=b"") for one in batch]
    else:
        settled = _with_titles_kept(_settle(batch, project_id), project_id)
    for one in settled:
        own = _own_name(one.transcript)
        if one.name != own and not _is_derived(one.transcript):
            report.renamed.append((own, one.name))
    unmarked = {one.name: one.digests for one in settled if one.digests}
    # Only what has ids of its own can be a part of something, see Transcript.has_own_ids.
    in_parts = {one.name for one in settled if not one.digests}
    partial_names = {_own_name(one) for one in batch if not one.digests}
    report.counts.add_sessions(sum(bool(one.digests) for one in batch) + len(partial_names), partial_names)
    outgrown = set() if project_id is None else _kept_as_they_are(settled, project_id)
    for piece in _pieces(settled):
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
            for said in outcome.messages:
                report.stored[said.refused or said.state] += 1
        # As soon as the session is there: an import that ends in its middle leaves one that is known.
        there = {session.external_id or "" for session in piece}
        _mark(project_id, {name: unmarked.pop(name) for name in there & unmarked.keys()})
    if in_parts and project_id is not None:
        place_shares(project_id, in_parts)
        if report.format == claude_code.NAME:
            trash_tails(project_id, in_parts)


def _kept_as_they_are(settled: Sequence[_Settled], project_id: int) -> set[str]:
    """The names of sessions of which an earlier state is imported: that ended in the middle of a turn, and would take back
    how it went on. Of what was deleted the store says so itself."""
    names = {one.name for one in settled if one.is_outgrown} - {one.name for one in settled if not one.is_outgrown}
    if not names:
        return names
    return set(
        Session.objects.filter(project_id=project_id, external_id__in=names).values_list("external_id", flat=True)
    )


def _mark(project_id: int, digests: Mapping[str, bytes]) -> None:
    """Keeps what sessions are known to say."""
    if not digests:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE messages_app_session AS session SET import_digests = said.digests "
            "FROM unnest(%s::text[], %s::bytea[]) AS said (external_id, digests) "
            "WHERE session.project_id = %s AND session.external_id = said.external_id AND session.external_id <> '' "
            "AND session.import_digests <> said.digests",
            [list(digests), list(digests.values()), project_id],
        )


def _pieces(settled: Iterable[_Settled]) -> Iterator[list[records.Session]]:
    """The sessions in parts that fit a transaction: a part of a session is a session with fewer messages."""
    piece: list[records.Session] = []
    size = 0
    for one in settled:
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
    """Rows, about; what is large counts as several."""
    size = 1 + _length(message.content)
    for step in message.agent_steps or ():
        size += 1 + _length(step.thought)
        for call in step.tool_calls or ():
            size += 1 + (_length(call.result.output) if isinstance(call.result, records.ToolResult) else 0)
    return size


def _length(value: Any) -> int:
    return len(value) // _BATCH_CHARACTERS_OF_A_ROW if isinstance(value, str) else 0


def _settle(batch: Sequence[Outline], project_id: int) -> list[_Settled]:
    """The transcripts with the names of their sessions.

    A session that is there goes on from its own start, so that what was added to a transcript comes after what was
    there. A new one starts now.
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
        # Which other names are asked for is known only now, and that they are taken only after looking again.
        settled, wanted = _settled(batch, looked_up, now)
    return settled


def _settled(
    batch: Sequence[Outline], looked_up: Mapping[str, tuple[bytes, datetime] | None], now: datetime
) -> tuple[list[_Settled], set[str]]:
    """What is settled as far as names were looked up, and the names that have yet to be."""
    there = {name: found for name, found in looked_up.items() if found is not None}
    settled = []
    missing = set()
    for transcript in batch:
        name = _settled_name(transcript, there)
        if name not in looked_up:
            missing.add(name)
        known, start = there.get(name, (b"", now))
        # The start of a longer transcript that is there: what is known of the longer one stays.
        longest = max(transcript.digests, known, key=len)
        there[name] = longest, start
        is_outgrown = len(transcript.digests) < len(longest)
        settled.append(
            _Settled(transcript=transcript, name=name, start=start, digests=longest, is_outgrown=is_outgrown)
        )
    return settled, missing


def _with_titles_kept(settled: list[_Settled], project_id: int) -> list[_Settled]:
    """A session that has a title keeps it where a transcript has none of its own: a part of one begins with other words."""
    untitled = {one.name for one in settled if not one.transcript.is_titled}
    titled = set(
        Session.with_deleted.filter(project_id=project_id, external_id__in=untitled)
        .exclude(title="")
        .values_list("external_id", flat=True)
    )
    return [
        replaced(one, transcript=replaced(one.transcript, session=replace(one.transcript.session, title=None)))
        if one.name in untitled & titled
        else one
        for one in settled
    ]


def _settled_name(transcript: Outline, there: Mapping[str, tuple[bytes, datetime]]) -> str:
    """The first name unless its session says something else; then the name of where they part, and so on.

    A session of that name said the same up to there, so each name lies further on. As it depends on nothing that may
    yet be said, a transcript that has grown finds its name again.
    """
    digests = transcript.digests
    own = _own_name(transcript)
    name, parted = own, -1
    while name in there and (further := _parting(there[name][0], digests)) > parted:
        digest = digests[further * DIGEST_BYTES : (further + 1) * DIGEST_BYTES]
        name, parted = f"{own}-{digest.hex()}", further
    return name


def _parting(some: bytes, others: bytes) -> int:
    """Where two transcripts part, as the index of an entry; -1 when one is the start of the other."""
    length = min(len(some), len(others))
    if some[:length] == others[:length]:
        return -1
    # Once they part they say other things for ever.
    same, other = 0, length // DIGEST_BYTES
    while other - same > 1:
        middle = (same + other) // 2
        if some[: middle * DIGEST_BYTES] == others[: middle * DIGEST_BYTES]:
            same = middle
        else:
            other = middle
    return same


def _own_name(transcript: Outline) -> str:
    assert transcript.session.external_id is not None, "transcripts.outline names every session"
    return text(transcript.session.external_id)


def _is_derived(transcript: Outline) -> bool:
    return _own_name(transcript).startswith(DERIVED)


def _is_broken(args: Any) -> bool:
    if not isinstance(args, str) or not args:
        return False
    try:
        msgspec.json.decode(args)
    except (msgspec.DecodeError, RecursionError):
        return True
    return False
