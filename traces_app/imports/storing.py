"""Store the transcripts of a file in batches, under names that tell them apart.

A session is identified by the transcript's own id, otherwise by one derived from the start of the conversation. So two
runs of one task have the same name, as have two files that use one id for different conversations. Their entries
distinguish them: a transcript that diverges from the session of its name gets another name (`_assign_names`), and nothing
is overwritten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from datetime import datetime
from typing import Any

from django.utils import timezone
from msgspec.structs import replace

from access_app.db import Database
from messages_app.models import Session
from traces_app.ingest.pipeline import ingest
from traces_app.spans.deliveries import record_spans
from traces_app.spans.projection import Projection, make_messages
from tracesite_sdk import records
from tracesite_sdk.formats import claude_code
from tracesite_sdk.normalize.records import normalise
from tracesite_sdk.records.pg_text import text
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.outline import DERIVED, DIGEST_BYTES, Outline, messages_of

from .reports import SESSIONS_LISTED, FileReport
from .session_tails import trash_tails
from .sub_agents import place_shares, with_shares_placed

_BATCH = 2_000
"""Rows in one transaction, roughly; a single message is never split."""
_BATCH_CHARACTERS = 8_000_000
"""Size of the transcripts that are held in memory together."""
_BATCH_CHARACTERS_OF_A_ROW = 4_000
"""A text counts as one more row for each of these."""


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


def batches(transcripts: Iterable[Outline]) -> Iterator[list[Outline]]:
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


def store(db: Database, batch: list[Outline], project_id: int | None, report: FileReport) -> None:
    """Count the records of a batch and, unless `project_id` is None, store them."""
    now = timezone.now()
    if project_id is None:
        named = [
            _Named(transcript=transcript, name=_own_name(transcript), start=now, digests=b"") for transcript in batch
        ]
    else:
        named = _keep_titles(db, _assign_names(db, batch, project_id), project_id)
    for item in named:
        own = _own_name(item.transcript)
        if item.name != own and not own.startswith(DERIVED):
            report.renamed.append((own, item.name))
    new_digests = {item.name: item.digests for item in named if item.digests}
    # A transcript can be a part of a session only if it has ids of its own, see Transcript.has_own_ids.
    in_parts = {item.name for item in named if not item.digests}
    partial_names = {_own_name(transcript) for transcript in batch if not transcript.digests}
    report.counts.add_sessions(
        sum(bool(transcript.digests) for transcript in batch) + len(partial_names), partial_names
    )
    outgrown = set() if project_id is None else _stored_outgrown(db, named, project_id)
    for piece in _pieces(named):
        normal = [normalise(session, now=now) for session in piece]
        for session, normal_session in zip(piece, normal, strict=True):
            for message, normal_message in zip(session.messages or (), normal_session.messages or (), strict=True):
                report.counts.add(message, normal_message)
        if project_id is None:
            continue
        if outgrown:
            report.stored.update(
                "unchanged" for session in normal if session.external_id in outgrown for _ in session.messages or ()
            )
            normal = [session for session in normal if session.external_id not in outgrown]
        placed = [
            with_shares_placed(db, project_id, session) if session.external_id in in_parts else session
            for session in normal
        ]
        for outcome in ingest(db, project_id, placed, source="import"):
            for message_outcome in outcome.messages:
                report.stored[message_outcome.refused or message_outcome.state] += 1
        # As soon as the session exists, so that a later import recognises it even if this one is interrupted.
        stored = {session.external_id or "" for session in piece}
        _store_digests(db, project_id, {name: new_digests.pop(name) for name in stored & new_digests.keys()})
    if in_parts and project_id is not None:
        place_shares(db, project_id, in_parts)
        if report.format == claude_code.NAME:
            trash_tails(db, project_id, in_parts)
    if project_id is not None and len(report.sessions) < SESSIONS_LISTED:
        report.add_stored(db, project_id, dict.fromkeys(item.name for item in named))


def store_spans(db: Database, spans: Iterable[Span], project_id: int | None, report: FileReport) -> None:
    """Count the messages of the traces of a file and, unless `project_id` is None, store the spans."""
    now = timezone.now()
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    names: dict[str, None] = {}
    for trace in traces.values():
        session = session_of_trace(trace)
        names[session.external_id or ""] = None
        for message, normal in zip(session.messages or (), normalise(session, now=now).messages or (), strict=True):
            report.counts.add(message, normal)
        if project_id is not None:
            outcome = record_spans(db, project_id, trace, now=now, is_made_by_caller=True)
            for reason in outcome.reasons:
                report.leave_out(trace[0].trace_id, reason)
            projection = make_messages(db, project_id, outcome.changed) if outcome.changed else Projection()
            report.stored.update(projection.messages)
            for trace_id, refusal in projection.refused.items():
                report.leave_out(trace_id, refusal)
            if not (projection.messages or projection.refused or outcome.refused):
                report.stored["unchanged"] += len(session.messages or ())
    report.counts.add_sessions(len(names), ())
    if project_id is not None:
        report.add_stored(db, project_id, names)


def _stored_outgrown(db: Database, named: Sequence[_Named], project_id: int) -> set[str]:
    """Return the names of stored sessions of which the batch holds an earlier state only.

    They are left unchanged, because an earlier state may end in the middle of a turn and would undo the rest of it.
    Deleted sessions are not among them: the store refuses their messages.
    """
    names = {item.name for item in named if item.is_outgrown} - {item.name for item in named if not item.is_outgrown}
    if not names:
        return names
    return set(
        db.rows(Session.objects)
        .filter(project_id=project_id, external_id__in=names)
        .values_list("external_id", flat=True)
    )


def _store_digests(db: Database, project_id: int, digests: Mapping[str, bytes]) -> None:
    """Store the digests of sessions, by name."""
    if not digests:
        return
    with db.cursor() as cursor:
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
    for item in named:
        transcript = item.transcript
        session = replace(
            transcript.session, external_id=item.name, created_at=transcript.session.created_at or item.start
        )
        part: list[records.Message] = []
        for message in messages_of(transcript, item.start):
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


def _assign_names(db: Database, batch: Sequence[Outline], project_id: int) -> list[_Named]:
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
            for name, digests, created_at in db.rows(Session.with_deleted)
            .filter(project_id=project_id, external_id__in=wanted)
            .values_list("external_id", "import_digests", "created_at")
        }
        # The sessions found decide which other names are needed; whether those exist shows only the next lookup.
        named, wanted = _assign_known_names(batch, looked_up, now)
    return named


def _assign_known_names(
    batch: Sequence[Outline], looked_up: Mapping[str, tuple[bytes, datetime] | None], now: datetime
) -> tuple[list[_Named], set[str]]:
    """Return the assignment by the names looked up so far, and the names that are still to be looked up."""
    existing = {name: known_name for name, known_name in looked_up.items() if known_name is not None}
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


def _keep_titles(db: Database, named: list[_Named], project_id: int) -> list[_Named]:
    """Return the transcripts without derived titles for sessions that have a title.

    A title derived from a part of a transcript would differ, because the part begins with another prompt.
    """
    untitled = {item.name for item in named if not item.transcript.is_titled}
    titled = set(
        db.rows(Session.with_deleted)
        .filter(project_id=project_id, external_id__in=untitled)
        .exclude(title="")
        .values_list("external_id", flat=True)
    )
    return [
        replaced(item, transcript=replaced(item.transcript, session=replace(item.transcript.session, title=None)))
        if item.name in untitled & titled
        else item
        for item in named
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
