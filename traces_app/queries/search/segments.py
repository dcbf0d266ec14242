"""Segments of the search index: how their rows and postings are stored, and which rows may have the terms of a search.

A segment is written once. It numbers up to 65,536 rows of messages of one month and has, for each gram, the numbers of the
rows that have it. A row that has all grams of a term may have the term; `found` compares the text itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Literal
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from access_app.db import Database
from messages_app.sql.pagination import IdRange
from messages_app.sql.periods import Length
from traces_app.models import SearchPosting, SearchRows, SearchSegment

from .grams import MOST_ROWS, Keys, gram_ranges, grams_in, keys_of_mark, rows_in
from .query import Term
from .texts import Kind, Mark

CHUNK = 1_024
"""Rows in one value of SearchRows."""
ROW = np.dtype([("kind", "u1"), ("id", "V16"), ("message", "V16"), ("session", "V16"), ("version", "<i8")])
"""A row of the index: its kind, its id, those of its message and session, and the version of the message, which grows each
time it is indexed."""
_AS_BITS_FROM = 4_096
_PAGE_BYTES = 8_192
"""The bytes of rows in a page, before compression."""
_MOST_GRAMS = 12
"""The grams of a long term that are looked up. More hardly exclude another row, and the text is compared anyway."""
_PROBES = 3
"""Those of them that are looked up first."""
_FEW = 4
"""Rows of a segment for each term whose texts are compared rather than the other grams looked up."""
_BEGINS = 0
"""The gram of the rows with which a message begins; that of no text and no mark."""

Numbers = NDArray[np.uint16]
"""Numbers of rows in a segment, in order."""
Range = tuple[int, int]
"""The first and last gram of those that begin with the same units; one gram twice."""
Sizes = dict[Range, int]
"""How many rows the grams have in one of the segments that a search has read."""


# --- Encoding ---------------------------------------------------------------------------------------------------------


def encode_pages(keys: Keys) -> Iterator[tuple[int, bytes]]:
    """Pack sorted keys into pages; yield the first gram and the content of each.

    A page is compressed by zlib: the number of its grams, the grams, the number of the rows of each, and the rows, all
    little-endian. The rows of a gram are 16-bit differences from one to the next. A gram with 4,096 rows or more has a page of its
    own, with a bit for each row of the segment.
    """
    if not len(keys):
        return
    grams, rows = grams_in(keys), rows_in(keys)
    starts = np.flatnonzero(np.diff(grams, prepend=-1))
    counts = np.diff(starts, append=len(keys))
    differences = np.diff(rows, prepend=np.uint16(0))
    differences[starts] = rows[starts]
    is_dense = counts >= _AS_BITS_FROM
    # A page begins where the rows before fill another one, and around each dense gram.
    number = np.cumsum(counts) * 2 // _PAGE_BYTES + 2 * np.cumsum(is_dense) - is_dense
    begins = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    for first, after in pairwise([*begins, len(starts)]):
        begin = int(starts[first])
        end = begin + int(counts[first:after].sum())
        if is_dense[first]:
            bits = np.zeros(MOST_ROWS, dtype=bool)
            bits[rows[begin:end]] = True
            body = np.packbits(bits, bitorder="little").tobytes()
        else:
            body = differences[begin:end].astype("<u2").tobytes()
        head = np.array([after - first], dtype="<u4").tobytes()
        grams_of_page = grams[starts[first:after]].astype("<i8").tobytes()
        counts_of_page = counts[first:after].astype("<u4").tobytes()
        yield int(grams[begin]), zlib.compress(b"".join([head, grams_of_page, counts_of_page, body]), level=1)


def decode_page(page: bytes | memoryview) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint16]]:
    """Return the grams of a page, the number of the rows of each, and the rows."""
    data = zlib.decompress(page)
    (count,) = np.frombuffer(data, dtype="<u4", count=1).tolist()
    grams = np.frombuffer(data, dtype="<i8", count=count, offset=4)
    counts = np.frombuffer(data, dtype="<u4", count=count, offset=4 + 8 * count).astype(np.int64)
    body = data[4 + 12 * count :]
    if counts[0] >= _AS_BITS_FROM:
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8), bitorder="little")
        return grams, counts, np.flatnonzero(bits.view(bool)).astype(np.uint16)
    # Sums over the whole page, from which the sum before each gram is taken; 16 bits overflow alike.
    sums = np.cumsum(np.frombuffer(body, dtype="<u2"), dtype=np.uint16)
    before = np.concatenate([np.zeros(1, dtype=np.uint16), sums])[np.cumsum(counts) - counts]
    return grams, counts, sums - np.repeat(before, counts)


def keys_of_begins(rows: NDArray[Any]) -> Keys:
    """Return the keys of those rows of a segment that begin another message."""
    messages = rows["message"]
    return keys_of_mark(_BEGINS, np.flatnonzero(np.append(True, messages[1:] != messages[:-1])))


def encode_rows(rows: Sequence[tuple[Kind, UUID, UUID, UUID]], version: int) -> NDArray[Any]:
    """Encode rows: kind, id, message and session of each."""
    return np.array([(kind, *(row_id.bytes for row_id in row_ids), version) for kind, *row_ids in rows], dtype=ROW)


# --- Reading ----------------------------------------------------------------------------------------------------------


def segments_within(db: Database, ids: IdRange, *, of: Literal["message", "session"]) -> list[SearchSegment]:
    """Return the segments that may have rows of the messages, or sessions, in a range."""
    # The messages of a session may be of any later period.
    # A segment is anywhere in the period of its messages, which is not longer than a month.
    segments = db.rows(SearchSegment.objects).filter(**(ids.periods_of("pk", Length.MONTH) if of == "message" else {}))
    if ids.lower is not None:
        segments = segments.filter(**{f"last_{of}__gte": ids.lower})
    if ids.upper is not None:
        segments = segments.filter(**{f"first_{of}__lt": ids.upper})
    return list(segments)


def numbers_with(
    db: Database, segments: Collection[UUID], terms: Sequence[Term], sizes: Sizes
) -> dict[UUID, list[Numbers]]:
    """Return the rows that may have each term, in order, for each segment in which a message may have every term.

    Only rows of such messages are returned. `sizes` is empty at the beginning of a search and passed to each of its calls.
    """
    ranges_of = [_ranges_of(term) for term in terms]
    return _numbers(db, segments, _probes(ranges_of, _PROBES, sizes), ranges_of, sizes)


def numbers_with_all(
    db: Database, segments: Collection[UUID], terms: Sequence[Term], mark: Mark | None, sizes: Sizes
) -> dict[UUID, Numbers]:
    """Return the rows that may have all of the terms, and have the mark, in order, for each segment with such rows."""
    marked: list[Range] = [] if mark is None else [(mark.value, mark.value)]
    ranges_of = [_ranges_of(term) for term in terms]
    # Terms exclude segments together, so fewer grams of each are enough.
    probes = max(_PROBES // len(terms), 1)
    first = [*marked, *chain.from_iterable(_probes(ranges_of, probes, sizes))]
    every = [*marked, *chain.from_iterable(ranges_of)]
    return {segment: numbers for segment, (numbers,) in _numbers(db, segments, [first], [every], sizes).items()}


def _numbers(
    db: Database,
    segments: Collection[UUID],
    first: Sequence[Sequence[Range]],
    every: Sequence[Sequence[Range]],
    sizes: Sizes,
) -> dict[UUID, list[Numbers]]:
    """Return the rows with a gram of each range of some, for each list of ranges, of the messages that have such rows for each
    list, for each segment with such messages."""
    if not segments:
        return {}
    # A few grams exclude most segments, so the others are read of those that are left.
    probes = set(chain.from_iterable(first))
    if len(every) > 1:
        probes.add((_BEGINS, _BEGINS))
    probed = _rows_of_ranges(db, segments, probes)
    numbers_of = {segment: _in_lists(first, rows_of_range) for segment, rows_of_range in probed.items()}
    # A few rows are compared at once, if the probes are of all terms.
    few = _FEW * len(every) if len(first) == len(every) else 0
    left = [segment for segment, numbers in numbers_of.items() if sum(map(len, numbers)) > few]
    others = set(chain.from_iterable(every)) - probes
    rest = _rows_of_ranges(db, left, others) if left and others else {}
    for segment in left:
        numbers_of[segment] = _in_lists(every, {**probed[segment], **rest.get(segment, {})})
    for rows_of_range in (*probed.values(), *rest.values()):
        sizes.update((range_, len(rows)) for range_, rows in rows_of_range.items())
    return {segment: numbers for segment, numbers in numbers_of.items() if numbers}


def _in_lists(lists: Sequence[Sequence[Range]], rows_of_range: Mapping[Range, Numbers]) -> list[Numbers]:
    """Return the rows that have a gram of each range of a list, of the messages with such rows for each list; none if there are
    no such messages."""
    numbers = [_in_ranges(ranges, rows_of_range) for ranges in lists]
    if not all(len(some) for some in numbers):
        return []
    if len(lists) == 1:
        return numbers
    message_of = np.zeros(MOST_ROWS, dtype=np.uint16)
    message_of[rows_of_range[_BEGINS, _BEGINS]] = 1
    message_of = np.cumsum(message_of, dtype=np.uint16)
    messages = [message_of[some] for some in numbers]
    wanted = _in_all(messages)
    is_wanted = np.zeros(MOST_ROWS, dtype=bool)
    is_wanted[wanted] = True
    return [some[is_wanted[message]] for some, message in zip(numbers, messages, strict=True)] if len(wanted) else []


def _rows_of_ranges(
    db: Database, segments: Collection[UUID], ranges: Collection[Range]
) -> dict[UUID, dict[Range, Numbers]]:
    """Return the rows of the grams in each of some ranges, for each segment."""
    parts: dict[UUID, dict[Range, list[Numbers]]] = {segment: {range_: [] for range_ in ranges} for segment in segments}
    for segment, page in _pages(db, segments, sorted(ranges)):
        grams, counts, rows = decode_page(page)
        ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        for first, last in ranges:
            if first <= grams[-1] and last >= grams[0]:
                begin, end = np.searchsorted(grams, first, side="left"), np.searchsorted(grams, last, side="right")
                parts[segment][first, last].append(rows[ends[begin] : ends[end]])
    return {
        segment: {
            range_: some[0] if range_[0] == range_[1] and some else _in_any(some) for range_, some in of_ranges.items()
        }
        for segment, of_ranges in parts.items()
    }


def _pages(db: Database, segments: Collection[UUID], ranges: Sequence[Range]) -> list[tuple[UUID, bytes]]:
    """Return the pages of segments that have the grams of some ranges."""
    table = SearchPosting._meta.db_table
    # The page of a gram is the last one that begins at or before it. The rows are joined with LIMIT, because PostgreSQL would
    # hash the whole table for a plain join with a dozen segments.
    statement = f"""
        WITH wanted AS (
            SELECT DISTINCT segment.id, page.gram
            FROM unnest(%s::uuid[]) AS segment (id)
            CROSS JOIN unnest(%s::bigint[], %s::bigint[]) AS range (first, last)
            CROSS JOIN LATERAL (
                (SELECT gram FROM {table} WHERE id = segment.id AND gram <= range.first ORDER BY gram DESC LIMIT 1)
                UNION ALL
                SELECT gram FROM {table} WHERE id = segment.id AND gram > range.first AND gram <= range.last
            ) AS page
        )
        SELECT wanted.id, posting.rows FROM wanted
        CROSS JOIN LATERAL (SELECT rows FROM {table} WHERE id = wanted.id AND gram = wanted.gram LIMIT 1) AS posting
    """  # noqa: S608 - a table's name
    firsts, lasts = [first for first, _last in ranges], [last for _first, last in ranges]
    with db.read_cursor() as cursor:
        cursor.execute(statement, [list(segments), firsts, lasts])
        pages: list[tuple[UUID, bytes]] = cursor.fetchall()
    return pages


def rows_of(db: Database, numbers_of: Mapping[UUID, Numbers]) -> dict[UUID, NDArray[Any]]:
    """Return the rows with these numbers, for each segment."""
    chunks_of = {segment: numbers // CHUNK for segment, numbers in numbers_of.items()}
    wanted = [(segment, chunk) for segment, chunks in chunks_of.items() for chunk in np.unique(chunks).tolist()]
    rows_found = {segment: np.zeros(len(numbers), dtype=ROW) for segment, numbers in numbers_of.items()}
    for segment, chunk, rows in _chunks(db, wanted):
        here = chunks_of[segment] == chunk
        rows_found[segment][here] = np.frombuffer(rows, dtype=ROW)[numbers_of[segment][here] - chunk * CHUNK]
    return rows_found


def _chunks(db: Database, wanted: Sequence[tuple[UUID, int]]) -> Iterator[tuple[UUID, int, bytes]]:
    """Yield the segment, number and rows of some chunks."""
    if not wanted:
        return
    # LIMIT as in _pages. Binary, because rows of many segments take longer to decode from text than to read.
    statement = sql.SQL("""
        COPY (
            SELECT wanted.id, wanted.chunk, stored.rows
            FROM unnest({segments}::uuid[], {chunks}::integer[]) AS wanted (id, chunk)
            CROSS JOIN LATERAL (SELECT rows FROM {table} WHERE id = wanted.id AND chunk = wanted.chunk LIMIT 1) AS stored
        ) TO STDOUT (FORMAT BINARY)
    """).format(
        table=sql.Identifier(SearchRows._meta.db_table),
        segments=sql.Literal([segment for segment, _chunk in wanted]),
        chunks=sql.Literal([chunk for _segment, chunk in wanted]),
    )
    connection = db.read_connection
    # Django's cursors have no parameters for copy(), and do not wrap its errors.
    with (
        connection.wrap_database_errors,
        connection.cursor() as cursor,
        cursor.copy(statement.as_string(connection.connection)) as copy,
    ):
        copy.set_types(["uuid", "int4", "bytea"])
        yield from copy.rows()


def _ranges_of(term: Term) -> list[Range]:
    return _some(gram_ranges(term.text), _MOST_GRAMS)


def _probes(ranges_of: Sequence[list[Range]], most: int, sizes: Sizes) -> list[list[Range]]:
    """Return some of the ranges of each term, the rarest ones if they are known, without terms of two or three units, which have
    many pages, if there are others."""
    long = [ranges for ranges in ranges_of if ranges[0][0] == ranges[0][1]]
    return [
        sorted(ranges, key=sizes.__getitem__)[:most] if sizes.keys() >= set(ranges) else _some(ranges, most)
        for ranges in long or ranges_of
    ]


def _some(ranges: list[Range], most: int) -> list[Range]:
    """Return at most so many of the ranges, spread over all."""
    if len(ranges) <= most:
        return ranges
    return [ranges[round(position)] for position in np.linspace(0, len(ranges) - 1, most)]


def _in_ranges(ranges: Sequence[Range], rows_of_range: Mapping[Range, Numbers]) -> Numbers:
    """Return the rows that have a gram of each range."""
    return _in_all([rows_of_range[range_] for range_ in ranges])


def _in_any(some: Sequence[Numbers]) -> Numbers:
    """Return the rows that are in any of some."""
    is_in = np.zeros(MOST_ROWS, dtype=bool)
    for numbers in some:
        is_in[numbers] = True
    return np.flatnonzero(is_in).astype(np.uint16)


def _in_all(some: Sequence[Numbers]) -> Numbers:
    """Return the rows that are in each of some."""
    shortest_first = sorted(some, key=len)
    numbers = shortest_first[0]
    for other in shortest_first[1:]:
        if not len(numbers):
            break
        # A table of all rows, because intersect1d would sort both.
        is_in_other = np.zeros(MOST_ROWS, dtype=bool)
        is_in_other[other] = True
        numbers = numbers[is_in_other[numbers]]
    return numbers
