"""Store spans, log records and files of traces as they arrive, and note that their traces are due.

This reads nothing of a trace but whether it is refused, and locks nothing that others write, so it takes as long however large the
trace is. The messages are made later, of all spans of a trace (projection.py), so order, batches and repetition do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import TypeVar
from uuid import UUID

import msgspec
import psycopg
from django.db import IntegrityError
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from access_app.audit.trail import note_counts
from access_app.db import Database
from access_app.db.conflicts import retry_aborted
from access_app.db.statements import prepared_cursor
from access_app.encryption.keys import key_of
from access_app.masking import masking_of
from messages_app.sql.periods import Period
from traces_app.ingest.joined_traces import JOINED, decode_joined, homes_of
from traces_app.ingest.partitions import ensure_periods, forget
from traces_app.ingest.sql import BY_ID, exchange
from traces_app.ingest.tables import SPANS, Row
from traces_app.ingest.turns import DELIVER, TAKE_TURNS, delivery_keys_of
from traces_app.models import Span as SpanRow
from tracesite_sdk.records import ids, pg_text
from tracesite_sdk.redaction.engine import redact as redact_value
from tracesite_sdk.spans.conversation import TRACE_ID
from tracesite_sdk.spans.media import Media
from tracesite_sdk.spans.redaction import redact
from tracesite_sdk.spans.span import MOST_TRACES, LogRecord, Span, TooManyItems

from . import stored
from .due import LEASE, NOTE, SOON
from .stored import Item, is_ended_root, is_id

TOO_MUCH_MEDIA = "too_much_media"
"""Why a file is refused: those of its trace would be more than MOST_MEDIA_OF_TRACE."""
TRACES_AT_ONCE = 1_000
"""Traces that are stored in one transaction: each is locked, and PostgreSQL's table of locks is for all."""
_ATTEMPTS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = int(ids.EARLIEST.timestamp()) * 10**9
_LATEST = 253_402_300_799 * 10**9
"""Nanoseconds from 1970 to the end of the year 9999, the last that a datetime has."""
_KINDS = {Span: SpanRow.Kind.SPAN, LogRecord: SpanRow.Kind.LOG, Media: SpanRow.Kind.MEDIA}
# These are prepared, because every request asks them, and PostgreSQL takes longer to plan than to answer them.
# Of the traces with messages: whether a session of theirs is deleted, and whether a span is stored.
_WITH_MESSAGES = """
    SELECT message.request_id, bool_or(session.deleted_at IS NOT NULL), EXISTS (
        SELECT FROM traces_app_span WHERE project_id = %s AND trace_id = message.request_id::uuid
    )
    FROM messages_app_message AS message JOIN messages_app_session AS session ON session.id = message.session_id
    WHERE message.project_id = %s AND message.request_id = ANY(%s) AND message.request_id <> '' AND message.metadata ? %s
    GROUP BY message.request_id
    """
# Which of them are stored under another one.
_JOINED = f"SELECT id FROM traces_app_span WHERE project_id = %s AND trace_id = ANY(%s) AND kind = '{JOINED}'"  # noqa: S608 - a constant
_INSERT = f"WITH new AS ({SPANS.insert} ON CONFLICT DO NOTHING RETURNING project_id, trace_id) {NOTE}"
_Result = TypeVar("_Result")


@dataclass(kw_only=True)
class SpanOutcome:
    """The outcome of the spans of one request."""

    accepted: int = 0
    refused: int = 0
    changed: set[str] = field(default_factory=set)
    """Traces of which something was new."""
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

    item: Item
    time: datetime
    row: Row

    @property
    def trace_id(self) -> str:
        return self.item.trace_id


def record_spans(
    db: Database,
    project_id: int,
    spans: Iterable[Span],
    logs: Iterable[LogRecord] = (),
    *,
    outcome: SpanOutcome | None = None,
    now: datetime | None = None,
    is_made_by_caller: bool = False,
) -> SpanOutcome:
    """Store the valid ones of these spans and log records; the messages of their traces follow.

    When it returns, everything accepted is committed. Invalid ones, and those of purged or deleted traces, are refused one by
    one, in the `outcome`, which may have others already. The messages are made by a job, or if `is_made_by_caller` at once by the
    caller, who leaves them to the job if it is killed. Raise TooManyItems for more than MOST_TRACES, of which nothing is stored.
    """
    now = now or timezone.now()
    outcome = outcome or SpanOutcome()
    items: list[Span | LogRecord] = [*spans, *logs]
    valid = [item for item in items if _is_valid(item, outcome)]
    if len({item.trace_id for item in valid}) > MOST_TRACES:
        raise TooManyItems(MOST_TRACES, "traces")
    deliveries = [_delivery(project_id, item, now) for item in redact(valid, masking_of(project_id))]
    refused: dict[str, str] = {}
    for some in _of_some_traces(deliveries):
        reasons, changed = _patiently(partial(_store, db, project_id, some, is_made_by_caller=is_made_by_caller))
        refused |= reasons
        outcome.changed |= changed
    for delivery in deliveries:
        if reason := refused.get(delivery.trace_id):
            outcome.refused_traces[delivery.trace_id] = reason
            outcome.refuse(
                _("Trace %(trace)s is not stored: %(reason)s.") % {"trace": delivery.trace_id, "reason": reason}
            )
        else:
            outcome.accepted += 1
    note_counts(db.actor, project_id, spans=outcome.accepted)
    return outcome


def record_media(db: Database, project_id: int, media: Media) -> str | None:
    """Store a file of a trace, which the messages of the trace will have. Return why the trace is refused, if it is."""
    refused, _changed = _patiently(partial(_store_file, db, project_id, media))
    return refused.get(media.trace_id)


def has_media(db: Database, project_id: int, trace_id: str, media_id: str) -> bool:
    """Return whether a trace has a file. The content of no file is read."""
    files = _files(db, project_id, trace_id).values_list("pk", flat=True)
    return any(_is_of(pk, project_id, trace_id, media_id) for pk in files)


def _files(db: Database, project_id: int, trace_id: str) -> QuerySet[SpanRow]:
    """Return the files that are stored under a trace or the one of its group."""
    traces = {UUID(trace_id), *(UUID(home) for home in homes_of(db, project_id, [trace_id]).values())}
    return db.rows(SpanRow.objects).filter(project_id=project_id, trace_id__in=traces, kind=SpanRow.Kind.MEDIA)


def _of_some_traces(deliveries: Sequence[_Delivery]) -> Iterator[Sequence[_Delivery]]:
    """Yield the deliveries by at most TRACES_AT_ONCE traces."""
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


# --- Validation -------------------------------------------------------------------------------------------------------


def _is_valid(item: Span | LogRecord, outcome: SpanOutcome) -> bool:
    if isinstance(item, LogRecord) and not item.trace_id:
        outcome.refuse(_("A log record has no traceId: only those that belong to a span are stored."))
        return False
    for name, value, digits in (("traceId", item.trace_id, 32), ("spanId", item.span_id, 16)):
        if not is_id(value, digits):
            outcome.refuse(
                _("%(name)s “%(value)s”: expected %(bytes)d bytes that are not all zero.")
                % {"name": name, "value": redact_value(value)[0][:40], "bytes": digits // 2}
            )
            return False
    if isinstance(item, Span) and item.parent_id and not is_id(item.parent_id, 16) and item.parent_id != "0" * 16:
        outcome.refuse(
            _("%(name)s “%(value)s”: expected %(bytes)d bytes that are not all zero.")
            % {"name": "parentSpanId", "value": redact_value(item.parent_id)[0][:40], "bytes": 8}
        )
        return False
    return True


# --- Rows -------------------------------------------------------------------------------------------------------------


def _delivery(project_id: int, item: Item, now: datetime) -> _Delivery:
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
        id_ = row_id(time, b"%d %b" % (project_id, content))
    kind = _KINDS[type(item)].value
    row = SPANS.Row(id=id_, project_id=str(project_id), trace_id=item.trace_id, kind=kind, content=content.decode())
    return _Delivery(item=item, time=time, row=row)


def row_id(time: datetime, identity: bytes) -> str:
    """Return the id of a row: it carries a time, and the rest is a digest."""
    return ids.child_hex(ids.first_id_at(time).int, blake2b(identity, digest_size=8).hexdigest())


def _media_row_id(time: datetime, project_id: int, trace_id: str, media_id: str) -> str:
    # By its name, so that a file is found without reading it.
    return row_id(time, f"{project_id} media {trace_id} {media_id}".encode())


def _is_of(row_id: UUID, project_id: int, trace_id: str, media_id: str) -> bool:
    """Return whether a row has this file, which may have arrived at any time."""
    return row_id.hex == _media_row_id(ids.created_at_of(row_id), project_id, trace_id, media_id)


def _in_range(nanoseconds: int, now: datetime) -> datetime:
    """Return the time of a span; `now` if a clock was so wrong that no month can be made for it."""
    if not _EARLIEST <= nanoseconds < _LATEST:
        return now
    time = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    return time if time < now + ids.LATEST_AHEAD else now


# --- Storing ----------------------------------------------------------------------------------------------------------


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


def _store(
    db: Database, project_id: int, deliveries: Sequence[_Delivery], *, is_made_by_caller: bool
) -> tuple[dict[str, str], set[str]]:
    """Store deliveries, and note that their traces are due, in one transaction.

    Return why traces were refused, and those of which something was new.
    """
    trace_ids = {delivery.trace_id for delivery in deliveries}
    ensure_periods(db, {Period.of(delivery.time) for delivery in deliveries})
    with db.atomic():
        refused = _refused(db, project_id, trace_ids, DELIVER)
        admitted = [delivery for delivery in deliveries if delivery.trace_id not in refused]
        return refused, _insert(db, project_id, admitted, is_made_by_caller=is_made_by_caller)


def _store_file(db: Database, project_id: int, media: Media) -> tuple[dict[str, str], set[str]]:
    """Store a file as `_store` does, unless it is stored already or those of its trace are too large."""
    delivery = _delivery(project_id, media, timezone.now())
    ensure_periods(db, {Period.of(delivery.time)})
    with db.atomic():
        # One at a time, so that no file is stored twice.
        refused = _refused(db, project_id, {media.trace_id}, TAKE_TURNS)
        if refused or has_media(db, project_id, media.trace_id, media.media_id):
            return refused, set()
        sizes = _files(db, project_id, media.trace_id).annotate(size=stored.SIZE).values_list("pk", "size")
        if sum(size for _pk, size in sizes) + len(delivery.row.content) > stored.MOST_MEDIA_OF_TRACE:
            return {media.trace_id: TOO_MUCH_MEDIA}, set()
        return {}, _insert(db, project_id, [delivery], is_made_by_caller=False)


def _refused(db: Database, project_id: int, trace_ids: Collection[str], lock: str) -> dict[str, str]:
    """Lock the traces, so that none is purged meanwhile, and return why those are refused that are."""
    asked = [*trace_ids]
    with exchange(db) as ask:
        ask(lock, delivery_keys_of(project_id, asked))
        with_messages = ask(_WITH_MESSAGES, project_id, project_id, asked, TRACE_ID)
        joined = ask(_JOINED, project_id, [UUID(trace_id) for trace_id in asked])
    refused = {}
    for trace_id, is_deleted, has_spans in with_messages.fetchall():
        if is_deleted:
            refused[trace_id] = "session_deleted"
        elif not has_spans:
            # They were purged, with one of its messages; the others cannot be made anew.
            refused[trace_id] = "message_purged"
    if links := [pk for (pk,) in joined.fetchall()]:
        refused |= _refused_of_groups(db, project_id, asked, links)
    return refused


def _refused_of_groups(
    db: Database, project_id: int, trace_ids: Collection[str], links: Sequence[UUID]
) -> dict[str, str]:
    """Return those of traces whose spans were under another trace, and were purged there."""
    rows = db.rows(SpanRow.objects).filter(pk__in=links).order_by("pk").values_list("pk", "content")
    joined = (decode_joined(content) for _pk, content in rows)
    homes = {one.trace_id: one.home for one in joined if one.trace_id in trace_ids}
    rows_of_project = db.rows(SpanRow.objects).filter(project_id=project_id).exclude(kind=JOINED)
    under = (
        rows_of_project.filter(trace_id__in={UUID(home) for home in homes.values()})
        .order_by("trace_id")
        .distinct("trace_id")
    )
    there = {trace_id.hex for trace_id in under.values_list("trace_id", flat=True)}
    return {trace_id: "message_purged" for trace_id, home in homes.items() if home not in there}


def _insert(db: Database, project_id: int, deliveries: Sequence[_Delivery], *, is_made_by_caller: bool) -> set[str]:
    """Insert deliveries, and note that the traces of the new ones are due; return these."""
    if not deliveries:
        return set()
    is_over: dict[str, bool] = defaultdict(bool)
    for delivery in deliveries:
        is_over[delivery.trace_id] |= is_ended_root(delivery.item)
    now = timezone.now()
    due = [now + LEASE if is_made_by_caller else now if over else now + SOON for over in is_over.values()]
    rows = SPANS.encrypted([delivery.row for delivery in deliveries], key_of(project_id))
    columns = map(pg_text.array, zip(*sorted(rows, key=BY_ID), strict=True))
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(_INSERT, [*columns, [*map(UUID, is_over)], [*is_over.values()], due])
        return {trace_id.hex for (trace_id,) in cursor.fetchall()}
