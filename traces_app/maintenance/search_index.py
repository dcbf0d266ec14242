"""Bring the search index up to date (`index_changed`), merge its segments, and build it again (`reindex`).

`index_changed` takes messages from the log of changes (messages_app.change_log), reads everything that they say, writes
segments of it and moves its place in the log, in one transaction. A message that changes is indexed again as a whole. Its older
rows in the index stay until a merge and do no harm, because a search compares the texts as they are now; so do the rows of
removed messages. An open message with many calls waits longer, because all of them are read each time.

Small segments are merged, so that a search reads few: eight of a size become one, so each row is written at most five
times. A merge leaves out rows that a younger segment has, too, and those of messages that no longer exist.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import sleep
from typing import Any
from uuid import UUID, uuid4

import numpy as np
from django.utils import timezone
from numpy.typing import NDArray

from access_app.db import Database
from access_app.db.transactions import in_transaction
from messages_app import change_log
from messages_app.change_log import Kind as Changed
from messages_app.change_log import Reader, log_changes, may_wait, move, next_changes, place_of, projects_of, turn_of
from messages_app.models import Change, Message
from messages_app.sql.partitions import make_periods, periods_of
from messages_app.sql.periods import Period, period_at
from traces_app.ingest.partitions import TABLES
from traces_app.models import SearchPosting, SearchRows, SearchSegment
from traces_app.queries.search.grams import (
    MOST_ROWS,
    Keys,
    fold,
    grams_in,
    keys_of,
    keys_of_grams,
    keys_of_mark,
    rows_in,
    unique,
    with_rows,
)
from traces_app.queries.search.segments import CHUNK, ROW, decode_page, encode_pages, encode_rows, keys_of_begins
from traces_app.queries.search.texts import Kind, Mark, RowTexts, sessions_of, texts_of_messages, unindexed
from tracesite_sdk.records import ids

PATIENCE = timedelta(seconds=5)
"""How long a message waits, so that one that is written often is not indexed each time."""
CHANGES_AT_A_TIME = 1_000
"""Changes of one transaction."""
MERGED = 8
"""Segments of a size that become one."""
_CHARACTERS_AT_A_TIME = 250_000
_MOST_KEYS = 6_000_000
"""Keys in memory, 8 bytes each: the end of a segment, or of a part of a merge."""
_PAGES_AT_A_TIME = 50
"""Pages of a segment in memory while it is merged."""
_PAUSE_SECONDS = 0.2
_CALLS_OF_PATIENCE = 500
"""An open message waits this many calls longer by another PATIENCE, because all of them are read each time."""


@dataclass(kw_only=True)
class IndexReport:
    """The work of one run."""

    messages: int = 0
    rows: int = 0
    segments: int = 0
    merged: int = 0
    """Segments that became parts of others."""


def index_changed(
    db: Database, *, patience: timedelta = PATIENCE, is_stopped: Callable[[], bool] = lambda: False
) -> IndexReport:
    """Index the messages that changed and merge segments; end early if `is_stopped`, or if another process does the same."""
    report = IndexReport()
    _index_all(db, report, patience, is_stopped)
    _merge_all(db, report, is_stopped)
    return report


def reindex(db: Database, period: Period, *, is_stopped: Callable[[], bool] = lambda: False) -> IndexReport:
    """Build the index of a period again while it is used: its messages are indexed, then its older segments go.

    They go into the log CHANGES_AT_A_TIME, because searches read what is not indexed. Stopped early, the older segments stay.
    """
    report = IndexReport()
    before = list(_of_period(db, period).values_list("pk", flat=True))
    messages = db.rows(Message.with_deleted).filter(pk__gte=period.first_id, pk__lt=period.after_id).order_by("pk")
    left = messages
    while some := dict(left.values_list("pk", "project_id")[:CHANGES_AT_A_TIME]):
        log_changes(db, some, Changed.INDEX)
        _index_all(db, report, timedelta(0), is_stopped)
        while not is_stopped() and unindexed(db, some):
            # It is another process's turn, an older transaction is open, or a writer has changed one of them again.
            sleep(_PAUSE_SECONDS)
            _index_all(db, report, timedelta(0), is_stopped)
        if is_stopped():
            return report
        left = messages.filter(pk__gt=max(some))
    with db.atomic():
        _delete(db, before)
    # Not before, because a merge would keep the older rows of messages that were not indexed again yet.
    _merge_all(db, report, is_stopped)
    return report


def _index_all(db: Database, report: IndexReport, patience: timedelta, is_stopped: Callable[[], bool]) -> None:
    with turn_of(db, Reader.SEARCH) as is_mine:
        while is_mine and not is_stopped() and _index_next(db, report, patience):
            pass


def _merge_all(db: Database, report: IndexReport, is_stopped: Callable[[], bool]) -> None:
    with turn_of(db, Reader.SEARCH) as is_mine:
        while is_mine and not is_stopped() and _merge_next(db, report):
            pass


def forget_messages(db: Database, message_ids: Collection[UUID]) -> int:
    """Remove the segments that have rows of these messages, which are to be removed, and have the other messages in them
    indexed again.

    Return the number of segments. Searches find the other messages meanwhile, because they read what is not indexed.
    """
    gone = {message_id.bytes for message_id in message_ids}
    if not gone:
        return 0
    first, last = (UUID(bytes=one) for one in (min(gone), max(gone)))
    forgotten = 0
    for segment_id in (
        db.rows(SearchSegment.objects).filter(first_message__lte=last, last_message__gte=first).values_list("pk")
    ):
        with db.atomic():
            chunks = db.rows(SearchRows.objects).filter(segment_id=segment_id[0]).values_list("rows", flat=True)
            found = {one for chunk in chunks for one in np.frombuffer(chunk, dtype=ROW)["message"].tolist()}
            if found.isdisjoint(gone):
                continue
            log_changes(db, projects_of(db, [UUID(bytes=one) for one in found - gone]), Changed.INDEX)
            _delete(db, [segment_id[0]])
            forgotten += 1
    return forgotten


# --- Indexing ---------------------------------------------------------------------------------------------------------


def _index_next(db: Database, report: IndexReport, patience: timedelta) -> bool:
    """Index the messages that changed next; return whether there may be more."""
    place = place_of(db, Reader.SEARCH)
    changes = next_changes(db, place, CHANGES_AT_A_TIME)
    now = timezone.now()
    if may_wait(changes, patience):
        changes = []
    since = {UUID(key): datetime.fromisoformat(at) for key, at in place.state.get("waiting", {}).items()}
    for change in changes:
        if change.kind in Reader.SEARCH.kinds:
            since.setdefault(change.message_id, change.at)
    due = _due(db, since, now, patience)
    if not (changes or due):
        return False
    stored = periods_of(db, Message._meta.db_table)
    by_period: dict[Period, list[UUID]] = defaultdict(list)
    for message_id in due:
        # A period without partition has been dropped with its messages.
        if period := period_at(stored, ids.created_at_of(message_id)):
            by_period[period].append(message_id)
    make_periods(db, TABLES, by_period)
    with db.atomic():
        for period, message_ids in by_period.items():
            _index(db, _Segment(period, _next_version(db)), message_ids, report)
        waiting = {str(key): at.isoformat() for key, at in since.items() if key not in due}
        place.state = {"waiting": waiting} if waiting else {}
        move(db, place, changes)
    report.messages += len(due)
    return len(changes) > change_log.ENOUGH // 2


def _due(db: Database, since: Mapping[UUID, datetime], now: datetime, patience: timedelta) -> set[UUID]:
    """Return the messages that are indexed now, of those that have changed since a time."""
    rows = db.rows(Message.with_deleted).filter(pk__in=list(since), is_completed=False)
    calls = dict(rows.values_list("pk", "call_count"))
    return {
        message_id
        for message_id, at in since.items()
        if now - at >= patience * (calls.get(message_id, 0) // _CALLS_OF_PATIENCE)
    }


def _next_version(db: Database) -> int:
    """Return a number that is higher than those of all segments before."""
    with db.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence(%s, 'position'))", [Change._meta.db_table])
        (version,) = cursor.fetchone()
    return int(version)


def _index(db: Database, segment: _Segment, message_ids: Collection[UUID], report: IndexReport) -> None:
    """Write segments of messages of a period, beginning with an empty one."""
    sessions = sessions_of(db, message_ids)
    by_message: dict[UUID, list[RowTexts]] = defaultdict(list)
    for row in texts_of_messages(db, message_ids):
        by_message[row.message_id].append(row)
    for message_id in sorted(by_message):
        rows = by_message.pop(message_id)
        if len(segment.rows) + len(rows) > MOST_ROWS:
            segment = segment.followed(db, report)
        for row in rows:
            # A single message may have more rows, and more keys, than a segment.
            if len(segment.rows) == MOST_ROWS or segment.key_count > _MOST_KEYS:
                segment = segment.followed(db, report)
            segment.add(row, sessions[message_id])
    segment.write(db, report)


class _Segment:
    """A segment that is being written."""

    def __init__(self, period: Period, version: int) -> None:
        self.period = period
        self.version = version
        self.rows: list[tuple[Kind, UUID, UUID, UUID]] = []
        self.key_count = 0
        self._texts: list[str] = []
        self._characters = 0
        self._keys: list[Keys] = []
        self._marked: dict[Mark, list[int]] = defaultdict(list)

    def add(self, row: RowTexts, session_id: UUID) -> None:
        if not row.texts:
            return
        for mark in row.marks:
            self._marked[mark].append(len(self.rows))
        self.rows.append((row.kind, row.id, row.message_id, session_id))
        # A newline, so that no gram of two values comes into being that a person would search.
        text = fold("\n".join(text for _field, text in row.texts))
        self._texts.append(text)
        self._characters += len(text)
        if self._characters > _CHARACTERS_AT_A_TIME:
            self._cut()

    def write(self, db: Database, report: IndexReport) -> None:
        self._cut()
        if self.rows:
            rows = encode_rows(self.rows, self.version)
            marks = [keys_of_mark(mark, numbers) for mark, numbers in self._marked.items()]
            keys = unique(np.concatenate([keys_of_begins(rows), *marks, *self._keys]))
            write_segment(db, self.period, rows, [keys])
            report.segments += 1
            report.rows += len(self.rows)

    def followed(self, db: Database, report: IndexReport) -> _Segment:
        """Write it, and return the next one."""
        self.write(db, report)
        return _Segment(self.period, self.version)

    def _cut(self) -> None:
        if self._texts:
            self._keys.append(keys_of(self._texts, len(self.rows) - len(self._texts)))
            self.key_count += len(self._keys[-1])
        self._texts, self._characters = [], 0


def write_segment(db: Database, period: Period, rows: NDArray[Any], keys: Iterable[Keys]) -> None:
    """Write a segment of rows and their keys, which come in parts of ascending grams."""
    segment_id = _segment_id(period)
    messages, sessions = (
        sorted(UUID(bytes=one) for one in set(rows[name].tolist())) for name in ("message", "session")
    )
    db.rows(SearchSegment.objects).create(
        pk=segment_id,
        rows=len(rows),
        first_message=messages[0],
        last_message=messages[-1],
        first_session=sessions[0],
        last_session=sessions[-1],
    )
    db.rows(SearchRows.objects).bulk_create(
        SearchRows(segment_id=segment_id, chunk=first // CHUNK, rows=rows[first : first + CHUNK].tobytes())
        for first in range(0, len(rows), CHUNK)
    )
    for part in keys:
        _copy(db, segment_id, part)


def _copy(db: Database, segment_id: UUID, keys: Keys) -> None:
    statement = f"COPY {SearchPosting._meta.db_table} (id, gram, rows) FROM STDIN (FORMAT BINARY)"
    # Django does not wrap copy(), so its errors would be psycopg's own.
    with db.connection.wrap_database_errors, db.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(["uuid", "int8", "bytea"])
        for gram, page in encode_pages(keys):
            copy.write_row((segment_id, gram, page))


def _segment_id(period: Period) -> UUID:
    """Return a random id within the period."""
    first, after = period.first_id.int, period.after_id.int
    return UUID(int=first + uuid4().int % (after - first))


# --- Merging ----------------------------------------------------------------------------------------------------------


@in_transaction
def _merge_next(db: Database, report: IndexReport) -> bool:
    """Merge some segments of a period and size; return whether there may be others."""
    sizes: dict[tuple[Period, int], list[SearchSegment]] = defaultdict(list)
    stored = periods_of(db, SearchSegment._meta.db_table)
    for segment in db.rows(SearchSegment.objects).order_by("first_message"):
        period = period_at(stored, ids.created_at_of(segment.pk))
        if period and segment.rows <= MOST_ROWS // 2:
            sizes[period, (segment.rows.bit_length() - 1) // 3].append(segment)
    for (period, _size), segments in sorted(sizes.items()):
        if len(segments) >= MERGED:
            chosen = _that_fit(segments)
            if len(chosen) > 1:
                _merge(db, period, chosen)
                report.merged += len(chosen)
                return True
    return False


def _that_fit(segments: Sequence[SearchSegment]) -> list[SearchSegment]:
    """Return the first segments, whose rows fit into one."""
    chosen: list[SearchSegment] = []
    for segment in segments[:MERGED]:
        if sum(one.rows for one in chosen) + segment.rows > MOST_ROWS:
            break
        chosen.append(segment)
    return chosen


def _merge(db: Database, period: Period, segments: Sequence[SearchSegment]) -> None:
    """Replace segments by one, without rows that are in a younger one of them or in no table any more."""
    old_to_new, rows = _kept_rows(db, segments)
    if len(rows):
        write_segment(db, period, rows, _merged_keys(db, old_to_new))
    _delete(db, [segment.pk for segment in segments])


def _kept_rows(db: Database, segments: Sequence[SearchSegment]) -> tuple[dict[UUID, NDArray[np.int32]], NDArray[Any]]:
    """Return the new numbers of the rows of each segment, -1 for those that are left out, and the rows in their new order."""
    stored: dict[UUID, NDArray[Any]] = {}
    for segment in segments:
        chunks = (
            db.rows(SearchRows.objects).filter(segment_id=segment.pk).order_by("chunk").values_list("rows", flat=True)
        )
        stored[segment.pk] = np.concatenate([np.frombuffer(chunk, dtype=ROW) for chunk in chunks])
    existing = _existing(db, stored.values())
    youngest: dict[bytes, int] = {}
    for rows in stored.values():
        for message, version in zip(rows["message"].tolist(), rows["version"].tolist(), strict=True):
            youngest[message] = max(version, youngest.get(message, 0))
    old_to_new = {}
    kept = []
    count = 0
    for segment in segments:
        rows = stored[segment.pk]
        versions = zip(rows["message"].tolist(), rows["version"].tolist(), strict=True)
        keep = np.array([message in existing and version == youngest[message] for message, version in versions])
        numbers = np.full(len(keep), -1, dtype=np.int32)
        numbers[keep] = np.arange(count, count + keep.sum())
        old_to_new[segment.pk] = numbers
        kept.append(rows[keep])
        count += int(keep.sum())
    return old_to_new, np.concatenate(kept)


def _existing(db: Database, rows: Iterable[NDArray[Any]]) -> set[bytes]:
    """Return the messages of rows that still exist."""
    messages = sorted({UUID(bytes=one) for part in rows for one in part["message"].tolist()})
    found: set[bytes] = set()
    for first in range(0, len(messages), 5_000):
        some = db.rows(Message.with_deleted).filter(pk__in=messages[first : first + 5_000]).order_by()
        found.update(message_id.bytes for message_id in some.values_list("pk", flat=True))
    return found


def _merged_keys(db: Database, old_to_new: dict[UUID, NDArray[np.int32]]) -> Iterator[Keys]:
    """Yield the keys of the rows that stay, in parts of ascending grams."""
    pages = {segment_id: _Pages(db, segment_id) for segment_id in old_to_new}
    while True:
        # All segments are read up to the same gram, which the one that has got least far has whole.
        least = min((reader.last for reader in pages.values() if not reader.is_at_end), default=None)
        parts = []
        for segment_id, reader in pages.items():
            keys = reader.up_to(least)
            new = old_to_new[segment_id][rows_in(keys)]
            parts.append(with_rows(keys[new >= 0], new[new >= 0].astype(np.uint16)))
        yield unique(np.concatenate(parts))
        if least is None:
            return
        for reader in pages.values():
            reader.read(db)


class _Pages:
    """The keys of a segment in order, read some pages at a time."""

    def __init__(self, db: Database, segment_id: UUID) -> None:
        self.segment_id = segment_id
        self.is_at_end = False
        self.last = -1
        """The last gram that was read."""
        self._last_page = -1
        self._waiting: Keys = np.zeros(0, dtype=np.uint64)
        self.read(db)

    def read(self, db: Database) -> None:
        """Read on, unless keys are waiting."""
        if len(self._waiting) or self.is_at_end:
            return
        pages = (
            db.rows(SearchPosting.objects).filter(segment_id=self.segment_id, gram__gt=self._last_page).order_by("gram")
        )
        found = list(pages.values_list("gram", "rows")[:_PAGES_AT_A_TIME])
        self.is_at_end = len(found) < _PAGES_AT_A_TIME
        if found:
            self._waiting = np.concatenate([keys_of_grams(*decode_page(page)) for _first, page in found])
            self._last_page = found[-1][0]
            self.last = int(grams_in(self._waiting[-1:])[0])

    def up_to(self, gram: int | None) -> Keys:
        """Take the keys that are waiting, up to this gram."""
        count = len(self._waiting)
        if gram is not None:
            count = int(np.searchsorted(grams_in(self._waiting), gram, side="right"))
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken


def _delete(db: Database, segment_ids: Sequence[UUID]) -> None:
    db.rows(SearchPosting.objects).filter(segment_id__in=segment_ids).delete()
    db.rows(SearchRows.objects).filter(segment_id__in=segment_ids).delete()
    db.rows(SearchSegment.objects).filter(pk__in=segment_ids).delete()


def _of_period(db: Database, period: Period) -> Any:
    return db.rows(SearchSegment.objects).filter(pk__gte=period.first_id, pk__lt=period.after_id)
