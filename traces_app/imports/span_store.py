"""Store spans, and make the messages of their traces anew of all spans that have arrived.

A trace is a function of the set of its spans (conversation.py), so order, batches and repetition do not matter: each
delivery is stored as it came, and if it is new, the messages of its trace are replaced in the same transaction. A message
keeps its id as long as its beginning and its place stay the same, and stays deleted if somebody deleted it.

Traces of one session may share a call, which one of them requested and another one executed. They are made anew together, and
their spans are stored under the first of them (joined_traces.py).
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import psycopg
from django.db import IntegrityError
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone
from django.utils.translation import gettext as _
from msgspec.structs import replace

from access_app.db import Database
from access_app.db.conflicts import retry_aborted
from access_app.db.statements import read_prepared
from access_app.encryption.keys import key_of
from access_app.masking import masking_of
from messages_app.models import Message, Session
from messages_app.sql.periods import Period
from messages_app.writes import NO_RUN_LEFT, Counts, add_to_session, update_last_run
from traces_app.ingest import large_traces
from traces_app.ingest.batch import SessionOutcome
from traces_app.ingest.joined_traces import JOINED, JoinedTrace, decode_joined, homes_of
from traces_app.ingest.large_traces import large_among, note_delivery
from traces_app.ingest.partitions import ensure_periods, forget
from traces_app.ingest.pipeline import ingest
from traces_app.ingest.removal import remove_messages
from traces_app.ingest.scores import attach_scores, detach_sessions, store_named_scores
from traces_app.ingest.sql import BY_ID, exchange, insert_rows
from traces_app.ingest.tables import SPANS, Row
from traces_app.ingest.turns import TAKE_TURNS, keys_of
from traces_app.models import Context
from traces_app.models import Span as SpanRow
from tracesite_sdk import records
from tracesite_sdk.records import ids, pg_text
from tracesite_sdk.records.health_flags import TRUNCATED
from tracesite_sdk.redaction.engine import redact as redact_value
from tracesite_sdk.redaction.rules import Rules
from tracesite_sdk.spans.conversation import (
    MOST_TAG_CHARACTERS,
    MOST_TAGS,
    SOURCE,
    TRACE_ID,
    WAITING,
    JoinedTraces,
    has_stated_id,
    session_of_trace,
    unjoined_call_ids,
    with_traces_joined,
)
from tracesite_sdk.spans.deliveries import merged
from tracesite_sdk.spans.media import Media, with_flag, with_media
from tracesite_sdk.spans.redaction import redact
from tracesite_sdk.spans.span import MOST_TRACES, LogRecord, Span, SpanEvent, TooManyItems
from tracesite_sdk.spans.wire_scores import scores_in

logger = logging.getLogger(__name__)

TOO_MUCH_MEDIA = "too_much_media"
"""Why a file is refused: those of its trace would be more than MOST_MEDIA_OF_TRACE."""
MOST_SPANS_OF_TRACE = 50_000
"""Deliveries of one trace, in the order of their times, of which its messages are made; further ones are stored and counted."""
SPANS_LEFT_OUT = "spans_left_out"
"""Key in the metadata of the last message of a trace: the deliveries beyond MOST_SPANS_OF_TRACE."""
MOST_MEDIA_OF_TRACE = 64 * 2**20
"""Bytes of the files of one trace as they are stored: in Base64, and encrypted if the project is. All are read to make its
messages; further ones are refused, and of those from before the limit the first are read."""
TRACES_AT_ONCE = 1_000
"""Traces that are stored in one transaction, without those that share calls with them."""
MOST_SHARING = 1_000
"""Traces that are made anew because they share calls with those of one transaction; the calls of further ones are not joined."""
_MOST_HOLDERS = 8
"""Messages of other traces that may have the id of a call. If more have it, it is no id of one call."""
_ATTEMPTS = 5
_HEXADECIMAL = re.compile("[0-9a-f]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = int(ids.EARLIEST.timestamp()) * 10**9
_LATEST = 253_402_300_799 * 10**9
"""Nanoseconds from 1970 to the end of the year 9999, the last that a datetime has."""
# These are prepared, because every request asks them, and Django and PostgreSQL take longer to plan than to answer them.
# The length of a stored text is known without reading it.
_STORED = (
    "SELECT id, trace_id, kind, CASE WHEN kind = 'media' THEN octet_length(content) ELSE 0 END FROM traces_app_span "
    "WHERE project_id = %s AND trace_id = ANY(%s)"
)
_WITH_MESSAGES = (
    "SELECT DISTINCT request_id FROM messages_app_message "
    "WHERE project_id = %s AND request_id = ANY(%s) AND request_id <> '' AND metadata ? %s"
)
# Whether the session of a trace with messages is deleted; no row if the trace has no message.
_REFUSAL = """
    SELECT session.deleted_at IS NOT NULL
    FROM messages_app_message AS message JOIN messages_app_session AS session ON session.id = message.session_id
    WHERE message.project_id = %s AND message.request_id = %s AND message.request_id <> '' AND message.metadata ? %s
    LIMIT 1
    """
_PAUSED = "SELECT id FROM messages_app_session WHERE id = ANY(%s) AND said_status = %s"
# Prepared, because nearly always only the own messages have the ids. Measured with 24 months: 0.5 ms instead of 10.
_WITH_CALLS = "SELECT message_id FROM traces_app_toolcall WHERE call_id = ANY(%s) AND call_id <> '' LIMIT %s"
# Not prepared, because PostgreSQL has to choose between the ids of the calls and the session.
_HOLDERS = """
    SELECT message.session_id, call.call_id, array_agg(DISTINCT message.request_id)
    FROM traces_app_toolcall AS call JOIN messages_app_message AS message ON message.id = call.message_id
    WHERE call.call_id = ANY(%s) AND call.call_id <> '' AND message.session_id = ANY(%s) AND message.metadata ? %s
    AND message.request_id <> ALL(%s)
    GROUP BY message.session_id, call.call_id HAVING count(*) <= %s
    """
_Result = TypeVar("_Result")
_Item = Span | LogRecord | Media
"""A delivered item of a trace."""
_decode_media = msgspec.json.Decoder(Media).decode
_DECODE: Mapping[str, Callable[[str], _Item]] = {
    SpanRow.Kind.SPAN: msgspec.json.Decoder(Span).decode,
    SpanRow.Kind.LOG: msgspec.json.Decoder(LogRecord).decode,
    SpanRow.Kind.MEDIA: _decode_media,
}
_KINDS = {Span: SpanRow.Kind.SPAN, LogRecord: SpanRow.Kind.LOG, Media: SpanRow.Kind.MEDIA}


@dataclass(kw_only=True)
class SpanOutcome:
    """The outcome of the spans of one request."""

    accepted: int = 0
    refused: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    """Messages of the traces that changed: created, or updated."""
    reasons: list[str] = field(default_factory=list)
    """For people: which span, what is wrong, what would be right. One for each kind of fault."""
    refused_traces: dict[str, str] = field(default_factory=dict)
    """Traces of which nothing was stored, with the reason."""

    def refuse(self, reason: str, count: int = 1) -> None:
        self.refused += count
        if reason not in self.reasons and len(self.reasons) < 10:
            self.reasons.append(reason)


@dataclass(frozen=True, kw_only=True)
class _Delivery:
    """A redacted item with the row that it becomes."""

    item: _Item
    time: datetime
    row: Row

    @property
    def trace_id(self) -> str:
        return self.item.trace_id


@dataclass(kw_only=True)
class _Pieces:
    """The deliveries of a trace."""

    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    media: list[Media] = field(default_factory=list)
    row_ids: list[UUID] = field(default_factory=list)
    left_out: int = 0
    """Further ones, beyond MOST_SPANS_OF_TRACE."""

    def add(self, row_id: UUID, item: _Item) -> None:
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


def record_spans(
    db: Database,
    project_id: int,
    spans: Iterable[Span],
    logs: Iterable[LogRecord] = (),
    *,
    outcome: SpanOutcome | None = None,
    now: datetime | None = None,
    at_once: bool = False,
) -> SpanOutcome:
    """Store the valid ones of these spans and log records, and update the messages of their traces.

    When it returns, everything accepted is committed. The messages of a large trace follow later, by a job, unless all are to be
    made `at_once`. Invalid ones, and those of purged or deleted traces, are refused one
    by one, in the `outcome`, which may have others already. Raise TooManyItems for more than MOST_TRACES, of which nothing is
    stored.
    """
    now = now or timezone.now()
    outcome = outcome or SpanOutcome()
    items: list[Span | LogRecord] = [*spans, *logs]
    valid = [item for item in items if _is_valid(item, outcome)]
    if len({item.trace_id for item in valid}) > MOST_TRACES:
        raise TooManyItems(MOST_TRACES, "traces")
    deliveries = [_delivery(project_id, item, now) for item in redact(valid, masking_of(project_id))]
    if not deliveries:
        return outcome
    refused: dict[str, str] = {}
    large = set() if at_once else large_among(db, project_id, {delivery.trace_id for delivery in deliveries})
    for trace_id in sorted(large):
        of_trace = [delivery for delivery in deliveries if delivery.trace_id == trace_id]
        try:
            if reason := _patiently(partial(_add_to_large, db, project_id, trace_id, of_trace, now)):
                refused[trace_id] = reason
        except _NotLargeError:
            large.remove(trace_id)
    for some in _of_some_traces([delivery for delivery in deliveries if delivery.trace_id not in large]):
        reasons, messages = _patiently(partial(_store, db, project_id, some))
        refused |= reasons
        outcome.messages += messages
    for delivery in deliveries:
        if reason := refused.get(delivery.trace_id):
            outcome.refused_traces[delivery.trace_id] = reason
            outcome.refuse(
                _("Trace %(trace)s is not stored: %(reason)s.") % {"trace": delivery.trace_id, "reason": reason}
            )
        else:
            outcome.accepted += 1
    return outcome


def _of_some_traces(deliveries: Sequence[_Delivery]) -> Iterator[Sequence[_Delivery]]:
    """Yield the deliveries by at most TRACES_AT_ONCE traces: each is locked, and PostgreSQL's table of locks is for all."""
    traces = list(dict.fromkeys(delivery.trace_id for delivery in deliveries))
    if len(traces) <= TRACES_AT_ONCE:
        if traces:
            yield deliveries
        return
    of_trace: dict[str, list[_Delivery]] = defaultdict(list)
    for delivery in deliveries:
        of_trace[delivery.trace_id].append(delivery)
    for first in range(0, len(traces), TRACES_AT_ONCE):
        yield [delivery for trace_id in traces[first : first + TRACES_AT_ONCE] for delivery in of_trace[trace_id]]


def record_media(db: Database, project_id: int, media: Media) -> str | None:
    """Store a file of a trace, and put it into the messages of the trace. Return why the trace is refused, if it is."""
    now = timezone.now()
    refused, _messages = _patiently(partial(_store, db, project_id, [_delivery(project_id, media, now)]))
    return refused.get(media.trace_id)


def has_media(db: Database, project_id: int, trace_id: str, media_id: str) -> bool:
    """Return whether a trace has a file. The content of no file is read."""
    traces = {UUID(trace_id), *(UUID(home) for home in homes_of(db, project_id, [trace_id]).values())}
    rows = db.rows(SpanRow.objects).filter(project_id=project_id, trace_id__in=traces, kind=SpanRow.Kind.MEDIA)
    return any(_is_of(pk, project_id, trace_id, media_id) for pk in rows.values_list("pk", flat=True))


def traces_of(db: Database, session_id: UUID) -> list[str]:
    """Return the ids under which the spans of a session are stored: of the traces that made its messages, in their order, or
    else of the one that has the name of the session, because none of its spans made a message."""
    rows = db.rows(Message.objects).filter(session_id=session_id, metadata__has_key=TRACE_ID).order_by("pk")
    # A sender may give anything as the id of a trace.
    names = dict.fromkeys(
        name for _id, name in rows.values_list("pk", f"metadata__{TRACE_ID}") if isinstance(name, str)
    )
    trace_ids = [name for name in names if _is_id(name, 32)]
    if trace_ids:
        return trace_ids
    names_of_session = (
        db.rows(Session.with_deleted)
        .filter(pk=session_id, metadata__source=SOURCE)
        .values_list("external_id", flat=True)
    )
    return [name for name in names_of_session if _is_id(name, 32)]


def spans_of(db: Database, project_id: int, trace_id: str) -> list[Span]:
    """Return the spans that are stored under a trace, each once and as it came but redacted, with its log records as events; none
    of what is no id of a trace."""
    if not _is_id(trace_id, 32):
        return []
    spans = [
        span
        for trace in _pieces(db, project_id, [trace_id], with_files=()).values()
        for span in _with_logs(merged(trace.spans), trace.logs)
    ]
    return sorted(spans, key=lambda span: (span.start, span.span_id))


# --- Validation -------------------------------------------------------------------------------------------------------


def _is_valid(item: Span | LogRecord, outcome: SpanOutcome) -> bool:
    if isinstance(item, LogRecord) and not item.trace_id:
        outcome.refuse(_("A log record has no traceId: only those that belong to a span are stored."))
        return False
    for name, value, digits in (("traceId", item.trace_id, 32), ("spanId", item.span_id, 16)):
        if not _is_id(value, digits):
            outcome.refuse(
                _("%(name)s “%(value)s”: expected %(bytes)d bytes that are not all zero.")
                % {"name": name, "value": redact_value(value)[0][:40], "bytes": digits // 2}
            )
            return False
    if isinstance(item, Span) and item.parent_id and not _is_id(item.parent_id, 16) and item.parent_id != "0" * 16:
        outcome.refuse(
            _("%(name)s “%(value)s”: expected %(bytes)d bytes that are not all zero.")
            % {"name": "parentSpanId", "value": redact_value(item.parent_id)[0][:40], "bytes": 8}
        )
        return False
    return True


def _is_id(value: str, digits: int) -> bool:
    return len(value) == digits and _HEXADECIMAL.fullmatch(value) is not None and value != "0" * digits


# --- Rows -------------------------------------------------------------------------------------------------------------


def _delivery(project_id: int, item: _Item, now: datetime) -> _Delivery:
    # JSON escapes what PostgreSQL cannot store as text.
    content = msgspec.json.encode(item)
    nanoseconds = 0
    if isinstance(item, Span):
        nanoseconds = item.start or item.end
    elif isinstance(item, LogRecord):
        nanoseconds = item.time
    time = _in_range(nanoseconds, now)
    if isinstance(item, Media):
        id_ = _media_row_id(time, project_id, item.trace_id, item.media_id)
    else:
        id_ = _row_id(time, b"%d %b" % (project_id, content))
    kind = _KINDS[type(item)].value
    row = SPANS.Row(id=id_, project_id=str(project_id), trace_id=item.trace_id, kind=kind, content=content.decode())
    return _Delivery(item=item, time=time, row=row)


def _row_id(time: datetime, identity: bytes) -> str:
    return ids.child_hex(ids.first_id_at(time).int, blake2b(identity, digest_size=8).hexdigest())


def _media_row_id(time: datetime, project_id: int, trace_id: str, media_id: str) -> str:
    # By its name, so that a file is found without reading it.
    return _row_id(time, f"{project_id} media {trace_id} {media_id}".encode())


def _is_of(row_id: UUID, project_id: int, trace_id: str, media_id: str) -> bool:
    """Return whether a row has this file, which may have arrived at any time."""
    return row_id.hex == _media_row_id(ids.created_at_of(row_id), project_id, trace_id, media_id)


def _in_range(nanoseconds: int, now: datetime) -> datetime:
    """Return the time of a span; `now` if a clock was so wrong that no month can be made for it."""
    if not _EARLIEST <= nanoseconds < _LATEST:
        return now
    time = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    return time if time < now + ids.LATEST_AHEAD else now


# --- Traces -----------------------------------------------------------------------------------------------------------


def _patiently(store: Callable[[], _Result]) -> _Result:
    """Store, and try again if another sender or a purge interferes."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return retry_aborted(store)
        except IntegrityError as error:
            if not isinstance(error.__cause__, psycopg.errors.CheckViolation) or not attempts_left:
                raise
            # "No partition of relation": a purge dropped a month that is still in our cache.
            forget()
    raise AssertionError("the last attempt returned or raised")


class _NotLargeError(Exception):
    """A trace is not large any more, so its messages are made with the delivery."""


def _add_to_large(
    db: Database, project_id: int, trace_id: str, deliveries: Sequence[_Delivery], now: datetime
) -> str | None:
    """Store deliveries of a large trace, and note that it is due. Return why it is refused, if it is. Raise _NotLargeError.

    Nothing of the trace is locked or read, so this takes as long however large it is, also while its messages are made.
    """
    ensure_periods(db, {Period.of(delivery.time) for delivery in deliveries})
    rows = SPANS.encrypted([delivery.row for delivery in deliveries], key_of(project_id))
    is_over = any(
        isinstance(delivery.item, Span) and delivery.item.end and not delivery.item.parent_id for delivery in deliveries
    )
    with db.atomic():
        with db.cursor() as cursor:
            cursor.execute(_REFUSAL, [project_id, trace_id, TRACE_ID])
            found = cursor.fetchone()
            if found is None or found[0]:
                return "session_deleted" if found else "message_purged"
            columns = map(pg_text.array, zip(*sorted(rows, key=BY_ID), strict=True))
            cursor.execute(f"{SPANS.insert} ON CONFLICT DO NOTHING", [*columns])
            is_new = bool(cursor.rowcount)
        if is_new and not note_delivery(db, project_id, trace_id, now, is_over=is_over):
            raise _NotLargeError
    return None


def make_again(db: Database, project_id: int, trace_id: str) -> bool:
    """Make the messages of a stored trace anew. Return False if it was deleted or purged; purged spans are removed."""
    with db.cursor() as cursor:
        cursor.execute(_REFUSAL, [project_id, trace_id, TRACE_ID])
        found = cursor.fetchone()
    if found is None:
        # A purge removed its messages, and its spans but those that came at the same time.
        db.rows(SpanRow.objects).filter(project_id=project_id, trace_id=UUID(trace_id)).delete()
        return False
    refused, _messages = _patiently(partial(_store, db, project_id, [], {trace_id}))
    return trace_id not in refused


def _store(
    db: Database, project_id: int, deliveries: Sequence[_Delivery], again: Set[str] = frozenset()
) -> tuple[dict[str, str], Counter[str]]:
    """Store the deliveries and the traces that they change, and make the traces `again` anew, in one transaction.

    Return why traces were refused, and the number of messages created and updated.
    """
    ensure_periods(db, {Period.of(delivery.time) for delivery in deliveries})
    sharing: set[str] = set()
    refused: dict[str, str] = {}
    while True:
        # From the beginning after an error, because all traces are locked in one order, and because a savepoint for what was
        # written of refused traces would cost every delivery two round trips.
        try:
            with db.atomic():
                return _store_with(db, project_id, deliveries, sharing, again, refused)
        except _SharingError as error:
            sharing |= error.trace_ids
        except _RefusedError as error:
            refused |= error.reasons


def _store_with(
    db: Database,
    project_id: int,
    deliveries: Sequence[_Delivery],
    sharing: Set[str],
    again: Set[str],
    known_refused: Mapping[str, str],
) -> tuple[dict[str, str], Counter[str]]:
    """Store as `_store` does, and make the traces `again` and those `sharing` calls with them anew.

    Raise _SharingError, and _RefusedError for other traces than those `known_refused`.
    """
    stored = _insert(db, project_id, deliveries, sharing, again)
    refused = {**stored.refused, **known_refused}
    made = {
        id_: _with_ids(project_id, id_, trace.session())
        for id_, trace in stored.pieces.items()
        if trace.spans and id_ not in refused
    }
    # A trace is not made anew without those that share its calls.
    of_group = {stored.home(id_): reason for id_, reason in refused.items()}
    refused |= {id_: of_group[stored.home(id_)] for id_ in made if stored.home(id_) in of_group}
    made = {id_: session for id_, session in made.items() if id_ not in refused}
    if made:
        sessions, homes = _with_traces_joined(db, project_id, made)
        outcomes = _replace_messages(db, project_id, sessions, stored, homes)
        _find_sharing(db, sessions, outcomes, sharing)
        _keep_together(db, project_id, stored, sessions, homes)
        _note_large(db, project_id, stored, sessions, homes)
        names = {session.external_id for session in sessions.values() if session.external_id}
        carried = [score for id_ in sessions for score in scores_in(stored.pieces[id_].spans, stored.pieces[id_].logs)]
        store_named_scores(db, project_id, carried, keep_existing=True)
        attach_scores(db, project_id, list(sessions), names)
    if refused:
        ids_ = [UUID(delivery.row.id) for delivery in deliveries if delivery.trace_id in refused]
        db.rows(SpanRow.objects).filter(pk__in=ids_).delete()
    messages: Counter[str] = Counter()
    for id_ in made:
        messages["created" if id_ in stored.first_of_trace else "updated"] += len(sessions[id_].messages or ())
    return refused, messages


class _SharingError(Exception):
    """Traces that share calls with those of a transaction, and are not locked by it."""

    def __init__(self, trace_ids: Set[str]) -> None:
        super().__init__(trace_ids)
        self.trace_ids = trace_ids


class _RefusedError(Exception):
    """Traces whose session or messages were deleted or purged, with the reasons."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(reasons)
        self.reasons = dict(reasons)


@dataclass(kw_only=True)
class _Stored:
    """What is stored of traces."""

    pieces: dict[str, _Pieces] = field(default_factory=dict)
    """Everything of the traces that are made anew."""
    first_of_trace: set[str] = field(default_factory=set)
    """Those of them of which no span was stored before."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why files of traces, or all of them, were refused."""
    homes: dict[str, str] = field(default_factory=dict)
    """The traces that are stored under another one, with that one."""
    links: dict[UUID, JoinedTrace] = field(default_factory=dict)
    """The rows that say so."""

    def home(self, trace_id: str) -> str:
        """Return the trace under which a trace is stored."""
        return self.homes.get(trace_id, trace_id)


def _insert(
    db: Database, project_id: int, deliveries: Sequence[_Delivery], sharing: Set[str], again: Set[str]
) -> _Stored:
    """Lock the traces, and insert the deliveries that are new.

    Return everything that is stored of the traces that changed or are made `again`, and if there are any, of those `sharing` calls
    with them. Raise _SharingError if a trace is stored together with others that are not locked.
    """
    stored = _Stored()
    new = {delivery.row.id: delivery for delivery in deliveries}
    trace_ids = {delivery.trace_id for delivery in deliveries} | sharing | again
    traces = {UUID(trace_id) for trace_id in trace_ids}
    known: set[str] = set()
    with_spans: Counter[str] = Counter()
    """Spans and log records that are stored under each trace."""
    files = {id_: delivery.item for id_, delivery in new.items() if isinstance(delivery.item, Media)}
    media: Counter[str] = Counter()
    """Bytes of the stored files of each trace, with those of the traces that are stored under it."""
    links: list[UUID] = []
    # In one pipeline, with the beginning of the transaction. The second statement sees what was committed before the lock.
    with exchange(db) as ask:
        ask(TAKE_TURNS, keys_of(project_id, trace_ids))
        rows_of_traces = ask(_STORED, project_id, list(traces))
    for pk, trace_id, kind, size in rows_of_traces.fetchall():
        new.pop(pk.hex, None)
        known.add(trace_id.hex)
        if kind == JOINED:
            links.append(pk)
        elif kind == SpanRow.Kind.MEDIA:
            media[trace_id.hex] += size
            for id_, file in files.items():
                if _is_of(pk, project_id, file.trace_id, file.media_id):
                    new.pop(id_, None)
        else:
            with_spans[trace_id.hex] += 1
    if links:
        rows = db.rows(SpanRow.objects).filter(pk__in=links).order_by("pk").values_list("pk", "content")
        stored.links = {pk: decode_joined(content) for pk, content in rows}
        stored.homes = {joined.trace_id: joined.home for joined in stored.links.values()}
        if others := {*stored.homes, *stored.homes.values()} - {trace_id.hex for trace_id in traces}:
            raise _SharingError(others)
        # The spans of the group were purged, with one of their messages.
        stored.refused = {id_: "message_purged" for id_, home in stored.homes.items() if home not in with_spans}
    for id_ in files.keys() & new.keys():
        trace = new[id_].trace_id
        media[stored.home(trace)] += len(new[id_].row.content)
        if media[stored.home(trace)] > MOST_MEDIA_OF_TRACE:
            stored.refused[trace] = TOO_MUCH_MEDIA
            del new[id_]
    inserted = [delivery.row._replace(trace_id=stored.home(delivery.trace_id)) for delivery in new.values()]
    insert_rows(db, [(SPANS, SPANS.encrypted(inserted, key_of(project_id)))])
    if not new and not again:
        return stored
    changed = {delivery.trace_id for delivery in new.values()} | again
    stored.first_of_trace = {trace_id for trace_id in changed if stored.home(trace_id) not in with_spans}
    homes = {stored.home(trace_id) for trace_id in changed | sharing if trace_id in known}
    with_spans.update(
        stored.home(delivery.trace_id) for delivery in new.values() if not isinstance(delivery.item, Media)
    )
    too_large = {home for home in homes if with_spans[home] > MOST_SPANS_OF_TRACE}
    stored.pieces = _pieces(db, project_id, homes - too_large, with_files=homes & media.keys() - too_large)
    for home in too_large:
        stored.pieces |= _pieces(db, project_id, [home], with_files={home} & media.keys(), most=MOST_SPANS_OF_TRACE)
        stored.pieces[home].left_out = with_spans[home] - MOST_SPANS_OF_TRACE
    # What was just inserted need not be read, and most deliveries are of new traces.
    for id_, delivery in sorted(new.items()):
        if delivery.trace_id not in known:
            stored.pieces.setdefault(delivery.trace_id, _Pieces()).add(UUID(id_), delivery.item)
    return stored


def _pieces(
    db: Database, project_id: int, trace_ids: Collection[str], *, with_files: Collection[str], most: int | None = None
) -> dict[str, _Pieces]:
    """Return everything that is stored under these traces, by its own trace; the files only of those `with_files`.

    With `most` return so many spans and log records at most, the earliest ones.
    """
    traces = {trace_id: _Pieces() for trace_id in trace_ids}
    of_project = db.rows(SpanRow.objects).filter(project_id=project_id).order_by("id")
    rows = of_project.filter(trace_id__in=[UUID(trace_id) for trace_id in trace_ids]).exclude(
        kind__in=(SpanRow.Kind.MEDIA, JOINED)
    )
    for pk, kind, content in rows.values_list("id", "kind", "content")[:most].iterator():
        item = _DECODE[kind](content)
        traces.setdefault(item.trace_id, _Pieces()).add(pk, item)
    for trace in with_files:
        files = of_project.filter(trace_id=UUID(trace), kind=SpanRow.Kind.MEDIA).values_list("id", "content")
        size = 0
        # One by one, because those from before the limits may be many and large.
        for pk, content in files.iterator(chunk_size=1):
            file = _decode_media(content)
            size += len(content)
            traces.setdefault(file.trace_id, _Pieces()).add(
                pk, file if size <= MOST_MEDIA_OF_TRACE else replace(file, data="")
            )
    return traces


def masked_content(kind: str, content: str, rules: Rules) -> str | None:
    """Return the content of a stored span or log record without what the rules find; None if they find nothing."""
    if kind not in (SpanRow.Kind.SPAN, SpanRow.Kind.LOG):
        return None
    item = _DECODE[kind](content)
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


def _with_ids(project_id: int, trace_id: str, session: records.Session) -> records.Session:
    """Return the session with the ids of its messages, which do not depend on the time of arrival."""
    messages = [
        replace(
            message, id=str(ids.message_id(message.created_at, message.role, index, (project_id, message.external_id)))
        )
        if message.created_at is not None
        else message
        for index, message in enumerate(session.messages or ())
    ]
    if not messages:
        # It is removed when the trace gets a message in another session.
        return replace(session, external_id=trace_id)
    return replace(session, messages=messages)


def _event_of(log: LogRecord) -> SpanEvent:
    attributes = {**log.attributes, **({"body": log.body} if log.body is not None else {})}
    name = log.name or str(log.attributes.get("event.name", ""))
    return SpanEvent(name=name, time=log.time, attributes=attributes)


def _with_traces_joined(db: Database, project_id: int, sessions: Mapping[str, records.Session]) -> JoinedTraces:
    """Join the calls that traces share. What is deleted keeps what it executed, so that it stays deleted."""
    joined = with_traces_joined(sessions)
    if not joined.homes:
        return joined
    deleted = db.rows(Message.with_deleted).filter(
        project_id=project_id, request_id__in=list(sessions), metadata__has_key=TRACE_ID, deleted_at__isnull=False
    )
    kept = [external_id for _id, external_id in deleted.values_list("pk", "external_id")]
    return with_traces_joined(sessions, kept=kept) if kept else joined


def _find_sharing(
    db: Database, sessions: Mapping[str, records.Session], outcomes: Mapping[str, SessionOutcome], known: Set[str]
) -> None:
    """Raise _SharingError if other traces than these and the `known` ones have calls with the ids of calls that wait for another
    trace.

    The rows of the sessions are locked, because their messages were replaced: of two senders the second sees what the first
    has stored.
    """
    unjoined = {
        (outcomes[trace_id].id, pg_text.text(call_id))
        for trace_id, session in sessions.items()
        if has_stated_id(session, trace_id)
        for call_id in unjoined_call_ids(session)
    }
    if not unjoined or len(known) >= MOST_SHARING:
        return
    of_sessions, call_ids = ([*set(column)] for column in zip(*unjoined, strict=True))
    own = {message.id for outcome in outcomes.values() for message in outcome.messages}
    most = 2 * len(call_ids) + _MOST_HOLDERS
    with_calls = [pk for (pk,) in read_prepared(_WITH_CALLS, [call_ids, most], db.connection)]
    if len(with_calls) < most and own.issuperset(with_calls):
        return
    with db.cursor() as cursor:
        cursor.execute(_HOLDERS, [call_ids, of_sessions, TRACE_ID, [*{*sessions, *known}], _MOST_HOLDERS])
        found = {
            trace_id
            for session_id, call_id, trace_ids in cursor.fetchall()
            if (session_id, call_id) in unjoined
            for trace_id in trace_ids
            if _is_id(trace_id, 32)
        }
    if found:
        raise _SharingError(found)


def _note_large(
    db: Database, project_id: int, stored: _Stored, sessions: Mapping[str, records.Session], homes: Mapping[str, str]
) -> None:
    """Note which of these traces are large now. Those that share calls are always made together, so they are not."""
    joined = {*homes, *homes.values()}
    many = {id_ for id_ in sessions if len(stored.pieces[id_].row_ids) >= large_traces.MANY_SPANS}
    # Of a trace without a message nobody knows whether its messages were purged.
    large = {id_ for id_ in many if sessions[id_].messages} - joined
    if large:
        large_traces.note_large(db, project_id, large, timezone.now())
    if others := joined | many - large:
        large_traces.forget_large(db, project_id, others)


def _keep_together(
    db: Database,
    project_id: int,
    stored: _Stored,
    sessions: Mapping[str, records.Session],
    homes: Mapping[str, str],
) -> None:
    """Store each trace under the first of those with which it shares calls, from `homes`."""
    moved = {trace_id for trace_id in sessions if homes.get(trace_id, trace_id) != stored.home(trace_id)}
    if not moved:
        return
    for trace_id in moved:
        rows = db.rows(SpanRow.objects).filter(pk__in=stored.pieces[trace_id].row_ids)
        rows.update(trace_id=UUID(homes.get(trace_id, trace_id)))
    outdated = [pk for pk, joined in stored.links.items() if joined.trace_id in moved]
    db.rows(SpanRow.objects).filter(pk__in=outdated).delete()
    rows_of_links = []
    for trace_id in moved & homes.keys():
        content = msgspec.json.encode(JoinedTrace(trace_id=trace_id, home=homes[trace_id]))
        for under in (trace_id, homes[trace_id]):
            # In the month of the spans beside it.
            time = ids.created_at_of(min(stored.pieces[under].row_ids))
            rows_of_links.append(
                SPANS.Row(
                    id=_row_id(time, b"%d %s %b" % (project_id, under.encode(), content)),
                    project_id=str(project_id),
                    trace_id=under,
                    kind=JOINED,
                    content=content.decode(),
                )
            )
    insert_rows(db, [(SPANS, SPANS.encrypted(rows_of_links, key_of(project_id)))])


def _replace_messages(
    db: Database,
    project_id: int,
    sessions: Mapping[str, records.Session],
    stored: _Stored,
    homes: Mapping[str, str],
) -> dict[str, SessionOutcome]:
    """Put the messages of these traces in the place of those that they had.

    `homes` are the first traces of the groups that share calls. Raise _RefusedError.
    """
    first_of_trace = stored.first_of_trace
    known = [trace_id for trace_id in sessions if trace_id not in first_of_trace]
    of_traces = db.rows(Message.with_deleted).filter(
        project_id=project_id, request_id__in=known, metadata__has_key=TRACE_ID
    )
    old = list(of_traces.order_by("pk").select_related("session")) if known else []
    refused = {message.request_id: "session_deleted" for message in old if message.session.deleted_at is not None}
    # The spans of these were purged, with one of their messages; the others cannot be made anew.
    purged = read_prepared(
        _WITH_MESSAGES, [project_id, sorted(sessions.keys() & first_of_trace), TRACE_ID], db.connection
    )
    refused |= {trace_id: "message_purged" for (trace_id,) in purged}
    if refused:
        raise _RefusedError(refused)
    remove_messages(db, [message.pk for message in old])
    outcomes = ingest(db, project_id, list(sessions.values()))
    refused |= {
        trace_id: reason
        for trace_id, outcome in zip(sessions, outcomes, strict=True)
        if (
            reason := outcome.refused
            or next((message.refused for message in outcome.messages if message.refused), None)
        )
    }
    if refused:
        raise _RefusedError(refused)
    receipts: dict[UUID, list[Any]] = defaultdict(list)
    lasts = {
        trace_id: last
        for trace_id, outcome in zip(sessions, outcomes, strict=True)
        if outcome.messages and (last := outcome.messages[-1].id) is not None
    }
    for trace_id, outcome in zip(sessions, outcomes, strict=True):
        _hide_again(db, outcome, [message for message in old if message.request_id == trace_id and message.deleted_at])
        trace = stored.pieces[trace_id]
        if (last := lasts.get(trace_id) or _last_of_group(trace_id, lasts, homes)) is not None:
            receipts[last] += [receipt for span in trace.spans for receipt in span.redactions]
            receipts[last] += [receipt for log in trace.logs for receipt in log.redactions]
        assert outcome.id is not None, "refused ones were raised"
        _tag(
            db,
            outcome.id,
            [message for message in old if message.request_id == trace_id],
            sessions[trace_id].messages or (),
        )
        if not outcome.messages and all(span.end for span in merged(trace.spans)):
            # A session without messages counts as running until it had one.
            rows = db.rows(Session.objects).filter(pk=outcome.id, message_count=0, last_run_id=None)
            rows.update(last_run_id=NO_RUN_LEFT)
    for last, of_message in receipts.items():
        if of_message:
            db.rows(Message.with_deleted).filter(pk=last).update(redactions=of_message)
    for session_id in sorted({message.session_id for message in old}):
        update_last_run(db, session_id)
    paused = read_prepared(_PAUSED, [[outcome.id for outcome in outcomes], Session.Status.PAUSED.value], db.connection)
    for session in db.rows(Session.objects).filter(pk__in=[pk for (pk,) in paused]) if paused else ():
        _go_on(db, session, [message for message in old if message.session_id == session.pk])
    if known:
        _remove_empty_sessions(db, project_id, known, old, outcomes)
    return dict(zip(sessions, outcomes, strict=True))


def _last_of_group(trace_id: str, lasts: Mapping[str, UUID], homes: Mapping[str, str]) -> UUID | None:
    """Return a message that has calls of a trace without messages."""
    home = homes.get(trace_id, trace_id)
    return next((last for other, last in lasts.items() if homes.get(other, other) == home), None)


def _go_on(db: Database, session: Session, old: Sequence[Message]) -> None:
    """End the pause of a session whose last run does not wait for a person. `old` are messages that it had before."""
    answers = db.rows(Message.objects).filter(session_id=session.pk, role="assistant").order_by("pk")
    last = answers.values_list("pk", flat=True).last()
    waited = [*answers.filter(metadata__has_key=WAITING).values_list("pk", flat=True)]
    if last in waited or not (waited or any(WAITING in message.metadata for message in old)):
        return
    completed = []
    for pk in waited:
        # Until the next run of the session began.
        until = ids.created_at_of(answers.filter(pk__gt=pk).values_list("pk", flat=True)[0])
        completed.append(records.Message(id=str(pk), role="assistant", is_completed=True, completed_at=until))
    if completed:
        ingest(db, session.project_id, [records.Session(id=str(session.pk), messages=completed)])
    db.rows(Session.objects).filter(pk=session.pk).update(said_status="")


def _remove_empty_sessions(
    db: Database, project_id: int, trace_ids: Sequence[str], old: Sequence[Message], outcomes: Sequence[SessionOutcome]
) -> None:
    """Remove the sessions that the messages of traces have left.

    The first spans of a trace may name another session than the root, or none, and may have no messages.
    """
    empty = (
        db.rows(Session.with_deleted)
        .filter(
            Q(id__in={message.session_id for message in old}) | Q(project_id=project_id, external_id__in=trace_ids),
            ~Q(id__in=[stored.id for stored in outcomes]),
            metadata__source=SOURCE,
            message_count=0,
        )
        .exclude(Exists(db.rows(Message.with_deleted).filter(session_id=OuterRef("pk"))))
    )
    if gone := list(empty.values_list("pk", flat=True)):
        detach_sessions(db, gone)
        # What models were asked in them; no run refers to it any more.
        db.rows(Context.objects).filter(session_id__in=gone, kind="entry").delete()
        db.rows(Session.with_deleted).filter(pk__in=gone).delete()


def _tag(db: Database, session_id: UUID, old: Sequence[Message], new: Sequence[records.Message]) -> None:
    """Put the tags of a trace in the place of those that it had before, among the tags of its session."""
    before = {tag for message in old if message.session_id == session_id for tag in _tags(message.metadata)}
    now = {tag for message in new for tag in _tags(message.metadata)}
    if before == now:
        return
    if gone := before - now:
        others = db.rows(Message.with_deleted).filter(session_id=session_id, metadata__has_key="tags")
        gone -= {tag for _id, metadata in others.values_list("pk", "metadata") for tag in _tags(metadata)}
    session = db.rows(Session.with_deleted).select_for_update(of=("self",), no_key=True).get(pk=session_id)
    session.tags = sorted(({*session.tags} - gone) | now)[:MOST_TAGS]
    session.save(update_fields=["tags"])


def _tags(metadata: Mapping[str, Any] | None) -> set[str]:
    return {pg_text.text(tag[:MOST_TAG_CHARACTERS]) for tag in (metadata or {}).get("tags", ())}


def _hide_again(db: Database, stored: SessionOutcome, deleted: Sequence[Message]) -> None:
    """Delete the messages that were deleted before they were made anew."""
    new = {message.external_id: message.id for message in stored.messages}
    for message in deleted:
        if (message_id := new.get(message.external_id)) is not None:
            rows = db.rows(Message.with_deleted).filter(pk=message_id)
            rows.update(deleted_at=message.deleted_at, deleted_by=message.deleted_by)
            row = rows.get()
            add_to_session(db, row.session_id, -Counts.of(row))
