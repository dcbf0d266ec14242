"""The spans of a trace as they are stored: what all of them are, and the session that is made of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from django.db.models import F, Func, IntegerField, QuerySet
from msgspec.structs import replace

from access_app.db import Database
from messages_app.models import Message, Session
from traces_app.ingest.joined_traces import JOINED
from traces_app.models import Span as SpanRow
from tracesite_sdk import records
from tracesite_sdk.records import ids
from tracesite_sdk.records.health_flags import TRUNCATED
from tracesite_sdk.redaction.rules import Rules
from tracesite_sdk.spans.conversation import SOURCE, TRACE_ID, session_of_trace
from tracesite_sdk.spans.deliveries import merged
from tracesite_sdk.spans.media import Media, with_flag, with_media
from tracesite_sdk.spans.redaction import redact
from tracesite_sdk.spans.span import LogRecord, Span, SpanEvent

MOST_SPANS_OF_TRACE = 50_000
"""Deliveries of one trace, in the order of their times, of which its messages are made; further ones are stored and counted."""
SPANS_LEFT_OUT = "spans_left_out"
"""Key in the metadata of the last message of a trace: the deliveries beyond MOST_SPANS_OF_TRACE."""
MOST_MEDIA_OF_TRACE = 64 * 2**20
"""Bytes of the files of one trace as they are stored: in Base64, and encrypted if the project is. All are read to make its
messages; further ones are refused, and of those from before the limit the first are read."""
_MARGIN = timedelta(seconds=1)
"""Before the start and after the end of a span, because durations are rounded and its end may be logged a little later."""
_HEXADECIMAL = re.compile("[0-9a-f]+")
Item = Span | LogRecord | Media
"""A delivered item of a trace."""
decode_media = msgspec.json.Decoder(Media).decode
DECODE: Mapping[str, Callable[[str], Item]] = {
    SpanRow.Kind.SPAN: msgspec.json.Decoder(Span).decode,
    SpanRow.Kind.LOG: msgspec.json.Decoder(LogRecord).decode,
    SpanRow.Kind.MEDIA: decode_media,
}


SIZE = Func(F("content"), function="octet_length", output_field=IntegerField())
"""Bytes of the content of a stored row, known without reading it."""


def is_ended_root(item: Item) -> bool:
    """Return whether this is the end of a run."""
    return isinstance(item, Span) and bool(item.end) and not item.parent_id


def is_id(value: str, digits: int) -> bool:
    """Return whether a text is an id of a trace (32 digits) or span (16)."""
    return len(value) == digits and _HEXADECIMAL.fullmatch(value) is not None and value != "0" * digits


@dataclass(kw_only=True)
class Pieces:
    """The deliveries of a trace."""

    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    media: list[Media] = field(default_factory=list)
    row_ids: list[UUID] = field(default_factory=list)
    left_out: int = 0
    """Further ones, beyond MOST_SPANS_OF_TRACE."""

    def add(self, row_id: UUID, item: Item) -> None:
        self.row_ids.append(row_id)
        if len(self.spans) + len(self.logs) >= MOST_SPANS_OF_TRACE and not isinstance(item, Media):
            self.left_out += 1
        elif isinstance(item, Span):
            self.spans.append(item)
        elif isinstance(item, LogRecord):
            self.logs.append(item)
        else:
            self.media.append(item)

    def session(self) -> records.Session:
        """Return the session of the trace, of its spans with their log records and the files that they name."""
        spans, left_out = with_media(_with_logs(self.spans, self.logs), self.media)
        session = session_of_trace(spans)
        messages = with_flag(session.messages or (), left_out) if left_out else [*(session.messages or ())]
        if self.left_out and messages:
            last = messages[-1]
            metadata = {**(last.metadata or {}), SPANS_LEFT_OUT: self.left_out}
            messages[-1] = replace(last, metadata=metadata, health=sorted({*(last.health or ()), TRUNCATED}))
        return replace(session, messages=messages)


def traces_of(db: Database, session_id: UUID) -> list[str]:
    """Return the ids under which the spans of a session are stored: of the traces that made its messages, in their order, or
    else of the one that has the name of the session, because none of its spans made a message."""
    rows = db.rows(Message.objects).filter(session_id=session_id, metadata__has_key=TRACE_ID).order_by("pk")
    # A sender may give anything as the id of a trace.
    names = dict.fromkeys(
        name for _id, name in rows.values_list("pk", f"metadata__{TRACE_ID}") if isinstance(name, str)
    )
    trace_ids = [name for name in names if is_id(name, 32)]
    if trace_ids:
        return trace_ids
    names_of_session = (
        db.rows(Session.with_deleted)
        .filter(pk=session_id, metadata__source=SOURCE)
        .values_list("external_id", flat=True)
    )
    return [name for name in names_of_session if is_id(name, 32)]


IdRange = tuple[UUID, UUID]
"""The smallest id of the rows that are read, and the smallest id above them."""


def within(start: datetime | None, duration_ms: int | None) -> IdRange | None:
    """Return the ids of the deliveries of a span that began and took so long, with its log records; None if that is unknown.

    The id of a row carries the start of the span, of a delivery without one its end.
    """
    if start is None or duration_ms is None:
        return None
    return ids.first_id_at(start - _MARGIN), ids.first_id_at(start + timedelta(milliseconds=duration_ms) + _MARGIN)


def spans_of(db: Database, project_id: int, trace_id: str, of_rows: IdRange | None = None) -> list[Span]:
    """Return the spans that are stored under a trace, each once and as it came but redacted, with its log records as events; none
    of what is no id of a trace. With `of_rows` only those of these rows."""
    if not is_id(trace_id, 32):
        return []
    rows = _rows_of(db, project_id, [trace_id]).exclude(kind__in=(SpanRow.Kind.MEDIA, JOINED))
    pieces: dict[str, Pieces] = {}
    _add(pieces, rows if of_rows is None else rows.filter(pk__gte=of_rows[0], pk__lt=of_rows[1]))
    spans = [span for trace in pieces.values() for span in _with_logs(merged(trace.spans), trace.logs)]
    return sorted(spans, key=lambda span: (span.start, span.span_id))


def pieces_of(
    db: Database, project_id: int, counts: Mapping[str, int], with_files: Set[str] = frozenset()
) -> dict[str, Pieces]:
    """Return what is stored under traces, by its own trace: the spans and log records of those in `counts`, with their numbers,
    of each the earliest MOST_SPANS_OF_TRACE, and the files of those `with_files`."""
    too_large = {trace_id for trace_id, count in counts.items() if count > MOST_SPANS_OF_TRACE}
    pieces: dict[str, Pieces] = {}
    rows = _rows_of(db, project_id, counts.keys() - too_large).exclude(kind__in=(SpanRow.Kind.MEDIA, JOINED))
    _add(pieces, rows)
    for trace_id in too_large:
        rows = _rows_of(db, project_id, [trace_id]).exclude(kind__in=(SpanRow.Kind.MEDIA, JOINED))
        _add(pieces, rows[:MOST_SPANS_OF_TRACE])
        pieces[trace_id].left_out = counts[trace_id] - MOST_SPANS_OF_TRACE
    for trace_id in with_files:
        files = _rows_of(db, project_id, [trace_id]).filter(kind=SpanRow.Kind.MEDIA).values_list("id", "content")
        size = 0
        # One by one, because those from before the limits may be many and large.
        for pk, content in files.iterator(chunk_size=1):
            file = decode_media(content)
            size += len(content)
            pieces.setdefault(file.trace_id, Pieces()).add(
                pk, file if size <= MOST_MEDIA_OF_TRACE else replace(file, data="")
            )
    return pieces


def _rows_of(db: Database, project_id: int, trace_ids: Collection[str]) -> QuerySet[SpanRow]:
    traces = [UUID(trace_id) for trace_id in trace_ids]
    return db.rows(SpanRow.objects).filter(project_id=project_id, trace_id__in=traces).order_by("id")


def _add(pieces: dict[str, Pieces], rows: QuerySet[SpanRow]) -> None:
    for pk, kind, content in rows.values_list("id", "kind", "content").iterator():
        item = DECODE[kind](content)
        pieces.setdefault(item.trace_id, Pieces()).add(pk, item)


def masked_content(kind: str, content: str, rules: Rules) -> str | None:
    """Return the content of a stored span or log record without what the rules find; None if they find nothing."""
    if kind not in (SpanRow.Kind.SPAN, SpanRow.Kind.LOG):
        return None
    item = DECODE[kind](content)
    assert isinstance(item, Span | LogRecord)
    (clean,) = redact([item], rules)
    return None if clean is item else msgspec.json.encode(clean).decode()


def _with_logs(spans: Sequence[Span], logs: Sequence[LogRecord]) -> list[Span]:
    """Return the spans, with the log records that belong to them as events."""
    if not logs:
        return list(spans)
    merged: dict[str, list[LogRecord]] = defaultdict(list)
    for log in logs:
        merged[log.span_id].append(log)
    return [
        replace(
            span, events=sorted([*span.events, *map(_event_of, merged[span.span_id])], key=lambda event: event.time)
        )
        if span.span_id in merged
        else span
        for span in spans
    ]


def _event_of(log: LogRecord) -> SpanEvent:
    attributes = {**log.attributes, **({"body": log.body} if log.body is not None else {})}
    name = log.name or str(log.attributes.get("event.name", ""))
    return SpanEvent(name=name, time=log.time, attributes=attributes)
