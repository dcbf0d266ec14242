"""Find the messages, calls or sessions of a list that have the terms of a search, in the order of their ids, within a time.

The index names candidates: rows that may have a term. Their texts are read and compared as they are now, and the list's own
QuerySet decides which of them its reader may see. So a hit is never outdated, deleted or somebody else's, whatever the index
holds. Messages that are not indexed yet are candidates themselves.

Sources (segments of the index, some of the messages that are not indexed) are read in the order of their bounds, and no hit is
returned before all sources are read that may have one before it. A session is found by any of its messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal
from uuid import UUID

import numpy as np
from django.db.models import Q
from msgspec import Struct
from numpy.typing import NDArray

from access_app.db import Database
from messages_app.models import Message
from messages_app.sql.pagination import IdRange, ids_below
from messages_app.sql.snapshot import one_snapshot
from traces_app.models import ToolCall

from .grams import fold
from .query import SearchQuery, Term
from .segments import Sizes, numbers_with, numbers_with_all, rows_of, segments_within
from .texts import Kind, Mark, RowTexts, kinds_with, sessions_of, texts_of_messages, texts_of_rows, unindexed

SECONDS = 2.0
"""After this time a search answers what it has, and where it stopped."""
MOST_SOURCES = 16
"""Sources that are loaded at once."""
_SECONDS_OF_LOAD = 0.2
"""After a load that took longer, fewer sources are loaded at once, because a search stops only between loads."""
COMPARED_AT_A_TIME = 50
_MESSAGES_OF_SESSION = (1, 4, 20)
"""Messages of a session that are compared: the newest first, then many at a time."""
_MOST_CANDIDATES = 3_200
UNINDEXED_AT_A_TIME = 200
_ROWS_OF_TERM = (4, 60)
"""Rows of a message that are read for a term: a few first, then many at a time."""
_AROUND = 60
"""Characters of a snippet before and after what was found."""
_LOW_BITS = (1 << 64) - 1

Unit = Literal["message", "call", "session"]
"""The unit of results: messages that have all terms anywhere below them, calls that have all terms, or sessions with such a
message."""
Texts = Sequence[tuple[str, str, str]]
"""Field, text and folded text."""
Among = Callable[[list[UUID]], Collection[UUID]]
"""Returns those of some rows that are in the list."""


class Hit(Struct, frozen=True, kw_only=True):
    """One place where a term was found."""

    kind: Kind
    row_id: UUID
    message_id: UUID
    field: str
    before: str
    match: str
    after: str


class SearchHits(Struct, frozen=True, kw_only=True):
    """The first rows that were found, and the end of a search that took too long."""

    ids: list[UUID]
    hits: Mapping[UUID, Sequence[Hit]]
    """One for each term, in the order of the search."""
    reached: UUID | None = None
    """The id up to which everything was searched; None if the search ended or found enough."""


def find(
    db: Database,
    query: SearchQuery,
    unit: Unit,
    among: Among,
    ids: IdRange,
    *,
    newest_first: bool,
    limit: int,
    seconds: float | None = None,
    without: Collection[str] = (),
    mark: Mark | None = None,
) -> SearchHits:
    """Return the first `limit` rows in a range of ids. Fields in `without` are not searched.

    With a mark the list must have only calls that have it: others are not even candidates then.
    """
    # One snapshot: a merge replaces the segments that the search goes through.
    with one_snapshot(db, read_only=True):
        return _Search(
            db=db,
            query=query,
            unit=unit,
            among=among,
            ids=ids,
            newest_first=newest_first,
            limit=limit,
            until=monotonic() + (SECONDS if seconds is None else seconds),
            without=without,
            mark=mark,
        ).run()


@dataclass
class _Source:
    """Messages that are read together: a segment, or some that are not indexed."""

    bound: UUID
    """The first message (or session) in reading order, or one before it."""
    segment: UUID | None = None
    unindexed: Sequence[UUID] = ()
    """Messages, or sessions of messages."""


@dataclass
class _TermRows:
    """The rows of a segment that may have a term, sorted by their key: their message, or themselves if they are calls."""

    keys: NDArray[np.bytes_]
    rows: NDArray[Any]


@dataclass(kw_only=True)
class _Search:
    db: Database
    query: SearchQuery
    unit: Unit
    among: Among
    ids: IdRange
    newest_first: bool
    limit: int
    until: float
    without: Collection[str]
    mark: Mark | None
    loaded: list[list[_TermRows]] = field(default_factory=list)
    """The rows of each loaded segment, for each indexed term."""
    in_sessions: list[tuple[NDArray[np.bytes_], NDArray[np.bytes_]]] = field(default_factory=list)
    """The candidates of each loaded segment for a search of sessions: sessions, ascending, and their messages."""
    unindexed_of: dict[UUID, list[UUID]] = field(default_factory=dict)
    """The messages of each session that are not indexed, for a search of sessions."""
    sizes: Sizes = field(default_factory=dict)
    pool: NDArray[np.bytes_] = field(default_factory=lambda: np.zeros(0, dtype="S16"))
    """Candidates that were not compared yet, ascending."""
    sources_at_a_time: int = 1
    candidates_at_a_time: int = COMPARED_AT_A_TIME
    listed: list[UUID] = field(default_factory=list)
    """The next candidates, in reading order, that are in the list."""
    unindexed: set[UUID] = field(default_factory=set)
    """Messages that the index does not have as they are."""
    hits: dict[UUID, list[Hit]] = field(default_factory=dict)
    refused: set[UUID] = field(default_factory=set)
    """Candidates with an excluded term."""

    def __post_init__(self) -> None:
        self.indexed = [term for term in self.query.wanted if term.is_indexed]

    def run(self) -> SearchHits:
        sources = self._sources()
        ids: list[UUID] = []
        has_advanced = False  # else the next search would begin where this one did
        while len(ids) < self.limit:
            if self.listed:
                ids += self._compare(self.listed[:COMPARED_AT_A_TIME])
                del self.listed[:COMPARED_AT_A_TIME]
                has_advanced = True
            elif candidates := self._pop(sources[0].bound if sources else None):
                among = set(self.among(candidates))
                self.listed = [message_id for message_id in candidates if message_id in among]
                # A filter that few candidates pass is asked about many at once.
                self.candidates_at_a_time = min(4 * self.candidates_at_a_time, _MOST_CANDIDATES)
                has_advanced = has_advanced or not self.listed
            elif sources:
                began = monotonic()
                self._load(sources[: self.sources_at_a_time])
                del sources[: self.sources_at_a_time]
                # Most searches end in the first source; those that find little read many at once.
                more = self.sources_at_a_time * (2 if monotonic() - began < _SECONDS_OF_LOAD else 0.5)
                self.sources_at_a_time = min(max(int(more), 1), MOST_SOURCES)
                has_advanced = has_advanced or not len(self.pool)
            else:
                break
            if has_advanced and len(ids) < self.limit and monotonic() > self.until:
                return self._found(ids, self._reached(sources))
        return self._found(ids, None)

    def _found(self, compared: list[UUID], reached: UUID | None) -> SearchHits:
        ids = compared[: self.limit]
        return SearchHits(ids=ids, hits={key: self.hits[key] for key in ids}, reached=reached)

    # --- Sources ------------------------------------------------------------------------------------------------------

    def _sources(self) -> list[_Source]:
        within = {} if self.unit == "session" else self._messages().of("message_id")
        # Before the segments: what is indexed meanwhile is in both, and never in none.
        self.unindexed = unindexed(self.db, within=Q(**within))
        in_order = sorted(
            self._unindexed_sessions() if self.unit == "session" else self.unindexed, reverse=self.newest_first
        )
        sources = [
            _Source(bound=in_order[first], unindexed=in_order[first : first + UNINDEXED_AT_A_TIME])
            for first in range(0, len(in_order), UNINDEXED_AT_A_TIME)
        ]
        of: Literal["message", "session"] = "session" if self.unit == "session" else "message"
        sources += [
            _Source(bound=getattr(segment, f"last_{of}" if self.newest_first else f"first_{of}"), segment=segment.pk)
            for segment in segments_within(self.db, self._messages(), of=of)
        ]
        return sorted(sources, key=lambda source: source.bound, reverse=self.newest_first)

    def _unindexed_sessions(self) -> Collection[UUID]:
        for message_id, session_id in sessions_of(self.db, self.unindexed).items():
            self.unindexed_of.setdefault(session_id, []).append(message_id)
        return self.unindexed_of

    def _messages(self) -> IdRange:
        """Return the range of the messages (or sessions). The rows below a message share the upper half of its id."""
        if self.unit != "call":
            return self.ids
        lower, upper = self.ids.lower, self.ids.upper
        return IdRange(
            lower=None if lower is None else UUID(int=lower.int & ~_LOW_BITS),
            upper=None if upper is None else UUID(int=(upper.int | _LOW_BITS) + 1),
        )

    def _load(self, sources: Sequence[_Source]) -> None:
        candidates = [
            self.pool,
            *(self._unindexed_candidates(source.unindexed) for source in sources if source.unindexed),
        ]
        segments = [source.segment for source in sources if source.segment is not None]
        if self.unit == "call":
            # A call is one row, so rows that lack a term need not be read.
            of_calls = numbers_with_all(self.db, segments, self.indexed, self.mark, self.sizes)
            numbers_of = {segment: [numbers] * len(self.indexed) for segment, numbers in of_calls.items()}
        else:
            numbers_of = numbers_with(self.db, segments, self.indexed, self.sizes)
        every_of = {segment: np.unique(np.concatenate(numbers)) for segment, numbers in numbers_of.items()}
        rows_in = rows_of(self.db, every_of)
        for segment, numbers in numbers_of.items():
            every, rows = every_of[segment], rows_in[segment]
            terms = [
                self._term_rows(term, rows[np.searchsorted(every, number)])
                for term, number in zip(self.indexed, numbers, strict=True)
            ]
            keys = terms[0].keys
            for other in terms[1:]:
                keys = np.intersect1d(keys, other.keys)
            if len(keys):
                self.loaded.append(terms)
                candidates.append(self._within(self._sessions(terms[0], keys) if self.unit == "session" else keys))
        self.pool = np.unique(np.concatenate(candidates))

    def _sessions(self, term: _TermRows, messages: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
        """Return the sessions of messages, and remember which ones these are."""
        rows = term.rows[np.searchsorted(term.keys, messages)]
        sessions = np.ascontiguousarray(rows["session"]).view("S16")
        order = np.argsort(sessions, kind="stable")
        self.in_sessions.append((sessions[order], messages[order]))
        return np.unique(sessions)

    def _unindexed_candidates(self, messages: Sequence[UUID]) -> NDArray[np.bytes_]:
        rows: Iterable[UUID] = messages
        if self.unit == "call":
            periods = ids_below(messages)
            calls = self.db.rows(ToolCall.with_deleted).filter(message_id__in=messages, **periods).order_by()
            rows = calls.values_list("pk", flat=True)
        return self._within(np.array([row.bytes for row in rows], dtype="S16"))

    def _term_rows(self, term: Term, rows: NDArray[Any]) -> _TermRows:
        kinds = kinds_with(term.field)
        if self.unit == "call":
            kinds &= {Kind.CALL}
        rows = rows[np.isin(rows["kind"], list(kinds))]
        keys = np.ascontiguousarray(rows["id" if self.unit == "call" else "message"]).view("S16")
        order = np.argsort(keys, kind="stable")
        return _TermRows(keys[order], rows[order])

    def _within(self, keys: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
        if self.ids.lower is not None:
            keys = keys[keys >= self.ids.lower.bytes]
        if self.ids.upper is not None:
            keys = keys[keys < self.ids.upper.bytes]
        return keys

    def _pop(self, bound: UUID | None) -> list[UUID]:
        """Take the next candidates in reading order, before the bound of the sources that are not loaded."""
        ready = len(self.pool)
        if bound is not None:
            # Rows of a message with the time of the bound may be on both sides of it.
            if self.newest_first:
                ready -= int(np.searchsorted(self.pool, UUID(int=bound.int | _LOW_BITS).bytes, side="right"))
            else:
                ready = int(np.searchsorted(self.pool, UUID(int=bound.int & ~_LOW_BITS).bytes, side="left"))
        count = min(ready, self.candidates_at_a_time)
        if not count:
            return []
        if self.newest_first:
            taken, self.pool = self.pool[-count:][::-1], self.pool[:-count]
        else:
            taken, self.pool = self.pool[:count], self.pool[count:]
        return [_uuid(key) for key in taken]

    def _reached(self, sources: Sequence[_Source]) -> UUID | None:
        """Return the id up to which everything was searched; None if nothing is left."""
        left = [*self.listed[:1], *(source.bound for source in sources[:1])]
        if len(self.pool):
            left.append(_uuid(self.pool[-1 if self.newest_first else 0]))
        if not left:
            return None
        # The page goes on behind this id, at the first one that is left.
        return UUID(int=max(left).int + 1) if self.newest_first else UUID(int=max(min(left).int - 1, 0))

    # --- Comparing ----------------------------------------------------------------------------------------------------

    def _compare(self, candidates: Sequence[UUID]) -> list[UUID]:
        """Return the candidates that have the terms."""
        if self.unit == "session":
            self._compare_sessions(candidates)
        else:
            self.hits.update(self._hits_of(candidates))
        return [key for key in candidates if key in self.hits]

    def _compare_sessions(self, sessions: Sequence[UUID]) -> None:
        """Compare the messages of sessions, newest first, until one of each session has the terms."""
        left = {session: self._messages_of(session) for session in sessions}
        for count in _growing(_MESSAGES_OF_SESSION):
            session_of = {message: session for session, some in left.items() for message in some[:count]}
            if not session_of:
                return
            periods = ids_below(session_of)
            # Whether the session is deleted is for its list to decide.
            alive = (
                self.db.rows(Message.with_deleted)
                .filter(pk__in=session_of, deleted_at__isnull=True, **periods)
                .order_by()
            )
            in_order = sorted(alive.values_list("pk", flat=True), reverse=True)
            for first in range(0, len(in_order), COMPARED_AT_A_TIME):
                for message, hits in self._hits_of(in_order[first : first + COMPARED_AT_A_TIME]).items():
                    self.hits.setdefault(session_of[message], hits)
            left = {session: some[count:] for session, some in left.items() if session not in self.hits}

    def _messages_of(self, session: UUID) -> list[UUID]:
        """Return the messages of a session that may have the terms, newest first."""
        messages_found = set(self.unindexed_of.get(session, ()))
        for sessions, messages in self.in_sessions:
            first, after = (np.searchsorted(sessions, session.bytes, side=side) for side in ("left", "right"))
            messages_found.update(map(_uuid, messages[first:after]))
        return sorted(messages_found, reverse=True)

    def _hits_of(self, candidates: Sequence[UUID]) -> dict[UUID, list[Hit]]:
        """Return those of some messages or calls that have the terms, and where."""
        hits: dict[UUID, dict[int, Hit]] = {key: {} for key in candidates}
        if self.unit == "call":
            for row in texts_of_rows(self.db, {Kind.CALL: list(hits)}):
                self._look_at(row, row.id, hits[row.id], is_whole=True)
        else:
            self._compare_messages(hits)
        wanted = len(self.query.wanted)
        return {
            key: [by_term[number] for number in range(wanted)]
            for key, by_term in hits.items()
            if len(by_term) == wanted and key not in self.refused
        }

    def _compare_messages(self, hits: dict[UUID, dict[int, Hit]]) -> None:
        for row in texts_of_messages(self.db, [key for key in hits if key in self.unindexed]):
            self._look_at(row, row.message_id, hits[row.message_id], is_whole=True)
        first = 0
        for count in _growing(_ROWS_OF_TERM):
            asked = self._rows_to_read(hits, first, first + count)
            if not asked:
                break
            for row in texts_of_rows(self.db, asked):
                self._look_at(row, row.message_id, hits[row.message_id])
            first += count
        # What the index does not tell is looked for in all rows.
        if self.query.excluded or len(self.indexed) < len(self.query.wanted):
            left = [key for key, by_term in hits.items() if key not in self.unindexed and self._has_indexed(by_term)]
            for row in texts_of_messages(self.db, left):
                self._look_at(row, row.message_id, hits[row.message_id], is_whole=True)

    def _rows_to_read(self, hits: Mapping[UUID, Mapping[int, Hit]], first: int, after: int) -> dict[Kind, set[UUID]]:
        """Return the rows that may have terms not found yet: from the first to before the last candidate of each term."""
        rows: dict[Kind, set[UUID]] = defaultdict(set)
        for message, by_term in hits.items():
            missing = [number for number in range(len(self.indexed)) if number not in by_term]
            for number in missing if message not in self.unindexed else ():
                for kind, row_id in self._candidates(message, number)[first:after]:
                    rows[kind].add(row_id)
        return rows

    def _has_indexed(self, by_term: Mapping[int, Hit]) -> bool:
        return all(number in by_term for number in range(len(self.indexed)))

    def _candidates(self, message: UUID, number: int) -> list[tuple[Kind, UUID]]:
        """Return the rows of a message that may have a wanted term, each once."""
        candidates: dict[tuple[Kind, UUID], None] = {}
        for terms in self.loaded:
            term = terms[number]
            first, after = (np.searchsorted(term.keys, message.bytes, side=side) for side in ("left", "right"))
            for row in term.rows[first:after]:
                candidates[Kind(int(row["kind"])), UUID(bytes=row["id"].tobytes())] = None
        return list(candidates)

    def _look_at(self, row: RowTexts, key: UUID, by_term: dict[int, Hit], *, is_whole: bool = False) -> None:
        """Note where a row of a message or call has terms; of one whose rows are all looked at, also whether it is refused."""
        # Folded once for all terms, because this takes most of the time of a comparison.
        texts = [text for text in _folded(row) if text[0] not in self.without]
        for number, term in enumerate(self.query.wanted):
            if number not in by_term:
                hit = _hit(row, texts, term)
                if hit is not None:
                    by_term[number] = hit
        if is_whole and _has_any(texts, self.query.excluded):
            self.refused.add(key)


def _uuid(key: np.bytes_) -> UUID:
    # NumPy leaves out zeros at the end.
    return UUID(bytes=bytes(key).ljust(16, b"\0"))


def _growing(counts: Sequence[int]) -> Iterator[int]:
    yield from counts
    while True:
        yield counts[-1]


def hits_of(row: RowTexts, query: SearchQuery) -> list[Hit] | None:
    """Return one place for each wanted term, in their order; None if the row lacks one or has an excluded one."""
    texts = _folded(row)
    hits = [hit for term in query.wanted if (hit := _hit(row, texts, term)) is not None]
    return hits if len(hits) == len(query.wanted) and not _has_any(texts, query.excluded) else None


def _folded(row: RowTexts) -> Texts:
    return [(name, text, fold(text)) for name, text in row.texts]


def _has_any(texts: Texts, terms: Iterable[Term]) -> bool:
    return any(term.is_in(name, folded) for term in terms for name, _text, folded in texts)


def _hit(row: RowTexts, texts: Texts, term: Term) -> Hit | None:
    for name, text, folded in texts:
        if term.is_in(name, folded):
            begin, end = _place(text, folded, folded.index(term.text), len(term.text))
            first, last = max(begin - _AROUND, 0), end + _AROUND
            return Hit(
                kind=row.kind,
                row_id=row.id,
                message_id=row.message_id,
                field=name,
                before=("…" if first else "") + text[first:begin],
                match=text[begin:end],
                after=text[end:last] + ("…" if last < len(text) else ""),
            )
    return None


def _place(text: str, folded: str, at: int, length: int) -> tuple[int, int]:
    """Return where a part of the folded text is in the text. Folding only makes characters longer."""
    if len(folded) == len(text):
        return at, at + length
    begin = end = None
    position = 0
    for index, character in enumerate(text):
        position += len(fold(character))
        if begin is None and position > at:
            begin = index
        if position >= at + length:
            end = index + 1
            break
    assert begin is not None and end is not None, "the part is in the folded text"
    return begin, end
