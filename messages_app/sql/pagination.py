"""Pages of rows in the order of their ids, which is reading order: by cursor, by time, or by number.

A cursor is only a position between two rows and a side of it, without page number or filter. So page 10,000 costs as much
as page 1, rows that are inserted or deleted meanwhile shift nothing, and rows of the same time are distinguished.

`before_time` is a position, too, but cannot separate rows of the same time. So a page of older rows that starts at a time,
or at the newest row, never ends between such rows: it contains all of them, beyond `limit` if necessary, and the next page
can start at the time of its oldest row (`finish_ties`).
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from time import monotonic
from typing import Any, Literal, TypeVar
from uuid import UUID

from django.db.models import Max, QuerySet, TextField, UUIDField
from django.db.models.functions import Cast
from django.http import QueryDict
from django.utils.translation import gettext as _
from msgspec import Struct

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.readable import Keys
from messages_app.timestamps import parse_limit
from tracesite_sdk.records import ids

from .batch import LIST_MS, Query, fetch
from .periods import Length, Period

DEFAULT_LIMIT = 20
MAX_LIMIT = 200
MAX_PAGE = 10**9
SIFT_CHUNK = 200
SIFT_LOOKS = 10
SIFT_SECONDS = 10

Order = Literal["asc", "desc"]

_CURSOR = re.compile(r"[A-Za-z0-9_-]{28}", re.ASCII)
_SIDES = {b"o": False, b"n": True}


class IdRange(Struct, frozen=True, kw_only=True):
    """`lower <= id < upper`; None is unbounded."""

    lower: UUID | None = None
    upper: UUID | None = None

    def __and__(self, other: IdRange) -> IdRange:
        lower, upper = self.lower, self.upper
        if other.lower is not None and (lower is None or other.lower > lower):
            lower = other.lower
        if other.upper is not None and (upper is None or other.upper < upper):
            upper = other.upper
        return IdRange(lower=lower, upper=upper)

    def of(self, column: str) -> dict[str, UUID]:
        """Return the range as filter arguments on `column`."""
        bounds = {f"{column}__gte": self.lower, f"{column}__lt": self.upper}
        return {lookup: bound for lookup, bound in bounds.items() if bound is not None}

    def periods_of(self, column: str, length: Length | None = None) -> dict[str, UUID]:
        """Return the whole periods of the range as filter arguments on `column`."""
        return self.widened_to_periods(length).of(column)

    def widened_to_periods(self, length: Length | None = None) -> IdRange:
        """Return the whole periods of the range, as new ones would be, which prune the partitions of rows below messages.

        For the reason against the range itself see json_rows.periods_of.
        """
        lower = None if self.lower is None else Period.of(ids.created_at_of(self.lower), length).first_id
        upper = None if self.upper is None else Period.of(ids.created_at_of(self.upper), length).after_id
        return IdRange(lower=lower, upper=upper)


def ids_below(keys: Collection[UUID]) -> dict[str, UUID]:
    """Return filter arguments for rows below messages with these keys, or rows of their times: their periods, so that others are not
    read. There is one key at least."""
    return IdRange(lower=min(keys), upper=max(keys)).periods_of("pk")


def newest_id(name: str) -> Cast:
    """Return the aggregate of the greatest id in a field. PostgreSQL before version 18 has no max(uuid), and a text would be masked."""
    return Cast(Max(Cast(name, TextField())), UUIDField())


EVERY_ID = IdRange()


class Cursor(Struct, frozen=True, kw_only=True):
    """The rows on one side of `position`: `newer` ones (greater ids) or older ones."""

    position: UUID
    newer: bool

    def __str__(self) -> str:
        body = (b"n" if self.newer else b"o") + self.position.bytes
        return urlsafe_b64encode(body + _checksum(body)).decode()

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Parse the text of a cursor. Raise InvalidInput."""
        if _CURSOR.fullmatch(text):
            decoded = urlsafe_b64decode(text)
            body = decoded[:17]
            position = UUID(bytes=body[1:])
            if decoded[17:] == _checksum(body) and body[:1] in _SIDES and position < ids.END_OF_TIME:
                return cls(position=position, newer=_SIDES[body[:1]])
        raise InvalidInput(
            _("Invalid cursor. Use `next` or `previous` from a response unchanged."),
            field="cursor",
        )

    @property
    def ids(self) -> IdRange:
        if self.newer:
            return IdRange(lower=UUID(int=self.position.int + 1))
        return IdRange(upper=self.position)


class PageRequest(Struct, frozen=True, kw_only=True):
    """The page that a client requests."""

    limit: int = DEFAULT_LIMIT
    order: Order = "desc"
    """The order of the rows within the page."""
    towards_newer: bool = False
    """The direction of the pages: whether `next` leads to newer rows."""
    cursor: Cursor | None = None
    before: datetime | None = None
    """Limits the page to rows before this time, exact to the microsecond; `next` leads to older rows."""
    number: int | None = None
    """The number of the page, from 1 at the oldest row; only `limit` applies, too."""
    finish_ties: bool = False

    @property
    def ids(self) -> IdRange:
        """The range of ids of the page, as limited by the request."""
        before = IdRange() if self.before is None else IdRange(upper=ids.first_id_at(self.before))
        return before if self.cursor is None else before & self.cursor.ids


class Page(Struct, frozen=True, kw_only=True):
    """The ids of a page, in order, and the cursors (or numbers) of the next and previous pages."""

    ids: list[Any]
    """UUIDs or their texts; whole numbers if these are the primary key."""
    next: str | int | None
    previous: str | int | None
    tie: Tie | None = None
    """The rest of the page, if more rows than `ids` can hold have the time of its oldest row."""

    def chunks(self) -> Iterator[list[Any]]:
        """Yield all ids of the page in order, in lists of at most two times MAX_LIMIT."""
        if self.tie is None:
            yield self.ids
        elif self.tie.order == "asc":
            yield from self.tie.chunks()
            yield self.ids
        else:
            yield self.ids
            yield from self.tie.chunks()


def page_request(parameters: QueryDict, *, by_time: bool = False, newest_page_first: bool = False) -> PageRequest:
    """Parse `limit`, `cursor` and `order`, and with `by_time` also `before_time`, `page` and `page_size`.

    Without `order` a list is read newest first; `newest_page_first` reads the same pages, but each answered oldest
    first. Raise InvalidInput with the name of the parameter.
    """
    if by_time and (parameters.get("page") or parameters.get("page_size")):
        return _numbered(parameters)
    order = _order(parameters)
    before = _instant(parameters, "before_time") if by_time else None
    cursor = parameters.get("cursor")
    return PageRequest(
        limit=whole_number(parameters, "limit", DEFAULT_LIMIT, at_least=1, at_most=MAX_LIMIT),
        order=order or ("asc" if newest_page_first else "desc"),
        # Pages from a time lead to older rows, however a page is sorted.
        towards_newer=order == "asc" and before is None,
        cursor=Cursor.parse(cursor) if cursor else None,
        before=before,
        finish_ties=by_time and not cursor,
    )


@dataclass(frozen=True)
class QuerySetKeys:
    """A QuerySet as `Keys` for pagination.read_page."""

    queryset: QuerySet[Any]

    def within(self, ids: IdRange) -> QuerySetKeys:
        return QuerySetKeys(_within(self.queryset, ids))

    def keys(self, *, newest_first: bool, limit: int, offset: int = 0) -> list[Any]:
        return list(_keys(self.queryset, newest_first, limit, offset))


@dataclass(frozen=True, kw_only=True)
class ListRows:
    """The rows of a list of the API as `Keys`, each statement limited to LIST_MS."""

    db: Database
    find: Callable[[IdRange], QuerySet[Any, Any]]
    """Return the QuerySet for a page in this range, not ordered. It searches rows below only in the months of the range."""
    ids: IdRange = EVERY_ID
    project_id: int | None = None
    """The project, if the reader may see exactly one."""

    @property
    def queryset(self) -> QuerySet[Any, Any]:
        return _within(self.find(self.ids), self.ids)

    def within(self, ids: IdRange) -> ListRows:
        return replace(self, ids=self.ids & ids)

    def keys(self, *, newest_first: bool, limit: int, offset: int = 0) -> list[Any]:
        """Return the ids of the first rows in one of the two orders. Raise InvalidInput if it takes longer than LIST_MS."""
        return _fetched(self.db, _keys(self.queryset, newest_first, limit, offset))

    def among(self, keys: Collection[UUID]) -> list[UUID]:
        """Return those of some ids that are ids of these rows, in order."""
        if not keys:
            return []
        rows = self.within(IdRange(lower=min(keys), upper=UUID(int=max(keys).int + 1))).queryset
        return _fetched(self.db, _keys(rows.filter(pk__in=keys), newest_first=False, limit=len(keys)))


def _within(rows: QuerySet[Any, Any], ids: IdRange) -> QuerySet[Any, Any]:
    bounds: dict[str, Any] = dict(ids.of("pk"))
    if not isinstance(rows.model._meta.pk, UUIDField):
        bounds = {lookup: bound.int for lookup, bound in bounds.items()}
    return rows.filter(**bounds) if bounds else rows


def _keys(rows: QuerySet[Any, Any], newest_first: bool, limit: int, offset: int = 0) -> QuerySet[Any, Any]:
    keys = rows.order_by("-pk" if newest_first else "pk").values_list("pk", flat=True)
    return keys[offset : offset + limit]


def _fetched(db: Database, keys: QuerySet[Any, Any]) -> list[Any]:
    (rows,) = fetch(db, [Query.of(keys)], at_most_ms=LIST_MS)
    return [row[0] for row in rows]


def read_page(rows: Keys, request: PageRequest) -> Page:
    """Return the requested page of `rows`, whose primary key is a UUID or a whole number."""
    if request.number is not None:
        return _page_by_number(rows, request.limit, request.number)
    newer = request.towards_newer if request.cursor is None else request.cursor.newer
    page = rows.within(request.ids).keys(newest_first=not newer, limit=request.limit + 1)
    more = len(page) > request.limit
    if request.finish_ties and not newer and more and ids.created_at_of(page[-2]) == ids.created_at_of(page[-1]):
        return _page_with_tie(rows, request, page[:-1])
    page = page[: request.limit]
    if newer != (request.order == "asc"):
        page.reverse()
    return Page(ids=page, **_links(request, page, newer=newer, more=more))


def read_sifted_page(rows: Keys, request: PageRequest, keep: Callable[[list[UUID]], Collection[UUID]]) -> Page:
    """Return the page of those `rows` that `keep` accepts, for a condition that is slow in SQL but fast for many rows at once.

    At most SIFT_LOOKS times SIFT_CHUNK rows are read, and no read begins after SIFT_SECONDS. So a page can have fewer rows
    than its limit, even none, although `next` leads to more rows.
    """
    newer = request.towards_newer if request.cursor is None else request.cursor.newer
    remaining = request.ids
    page: list[UUID] = []
    more = True
    until = monotonic() + SIFT_SECONDS
    for _look in range(SIFT_LOOKS):
        chunk = rows.within(remaining).keys(newest_first=not newer, limit=SIFT_CHUNK)
        passed = keep(chunk) if chunk else ()
        page += [key for key in chunk if key in passed]
        more = len(chunk) == SIFT_CHUNK
        if len(page) > request.limit or not more or monotonic() >= until:
            break
        remaining &= Cursor(position=chunk[-1], newer=newer).ids
    return page_of(page, request, reached=chunk[-1] if more and len(page) <= request.limit else None)


def page_of(ids: Sequence[UUID], request: PageRequest, *, reached: UUID | None = None) -> Page:
    """Return the page of rows that were found in the direction of the request, one more than its limit if there are more.

    `reached` is the row at which the search for them stopped early.
    """
    newer = request.towards_newer if request.cursor is None else request.cursor.newer
    more = len(ids) > request.limit or reached is not None
    page = list(ids[: request.limit])
    if len(ids) > request.limit:
        reached = None
    if newer != (request.order == "asc"):
        page.reverse()
    return Page(ids=page, **_links(request, page, newer=newer, more=more, reached=reached))


# --- Parsing the parameters -----------------------------------------------------------------------------------------


N = TypeVar("N", int, int | None)


def whole_number(parameters: QueryDict, name: str, default: N, *, at_least: int = 0, at_most: int) -> int | N:
    """Parse a parameter that is a whole number; return `default` without it. Raise InvalidInput."""
    text = parameters.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and at_least <= int(text) <= at_most):
        raise InvalidInput(
            _("Expected a whole number from %(least)d to %(most)d.") % {"least": at_least, "most": at_most}, field=name
        )
    return int(text)


def _numbered(parameters: QueryDict) -> PageRequest:
    for name in ("cursor", "before_time", "limit", "order"):
        if parameters.get(name):
            raise InvalidInput(
                _("%(name)s cannot be combined with page and page_size.") % {"name": name},
                field=name,
            )
    return PageRequest(
        limit=whole_number(parameters, "page_size", 0, at_most=MAX_LIMIT) or DEFAULT_LIMIT,
        order="asc",
        number=whole_number(parameters, "page", 0, at_most=MAX_PAGE) or 1,
    )


def _order(parameters: QueryDict) -> Order | None:
    match parameters.get("order") or None:
        case "asc":
            return "asc"
        case "desc":
            return "desc"
        case None:
            return None
    raise InvalidInput(_("Invalid order. Allowed: asc (oldest first), desc (newest first)."), field="order")


def _instant(parameters: QueryDict, name: str) -> datetime | None:
    text = parameters.get(name)
    if not text:
        return None
    try:
        return parse_limit(text)
    except ValueError as error:
        raise InvalidInput(str(error), field=name) from error


# --- Finding the ids --------------------------------------------------------------------------------------------------


def _page_by_number(rows: Keys, size: int, number: int) -> Page:
    page = rows.keys(newest_first=False, limit=size + 1, offset=(number - 1) * size)
    return Page(
        ids=page[:size],
        next=number + 1 if len(page) > size else None,
        previous=number - 1 if number > 1 else None,
    )


def _page_with_tie(rows: Keys, request: PageRequest, page: list[UUID]) -> Page:
    """Return the page with the rows that have the same time as its oldest row, the last of `page`."""
    first = ids.first_id_at(ids.created_at_of(page[-1]))
    tie = Tie(rows=rows, ids=IdRange(lower=first, upper=page[-1]), order=request.order)
    more = bool(rows.within(IdRange(upper=first)).keys(newest_first=True, limit=1))
    if request.order == "asc":
        page.reverse()
    links = _links(request, page, newer=False, more=more, reached=first)
    rest = tie.few()
    if rest is None:
        return Page(ids=page, tie=tie, **links)
    return Page(ids=rest + page if request.order == "asc" else page + rest, **links)


class Tie(Struct, frozen=True, kw_only=True):
    """The rows of one time that exceed the limit of their page."""

    rows: Keys
    ids: IdRange
    order: Order

    def few(self) -> list[UUID] | None:
        """Return all of them, or None if they are more than MAX_LIMIT."""
        ids = self._next(self.ids, MAX_LIMIT + 1)
        return ids if len(ids) <= MAX_LIMIT else None

    def chunks(self) -> Iterator[list[UUID]]:
        remaining = self.ids
        while chunk := self._next(remaining, MAX_LIMIT):
            yield chunk
            remaining &= Cursor(position=chunk[-1], newer=self.order == "asc").ids

    def _next(self, remaining: IdRange, limit: int) -> list[UUID]:
        return self.rows.within(remaining).keys(newest_first=self.order == "desc", limit=limit)


def _links(
    request: PageRequest, page: Sequence[UUID | str | int], *, newer: bool, more: bool, reached: UUID | None = None
) -> dict[str, Any]:
    """Return `next` and `previous` of a page that was read in the direction `newer`; `more` rows may follow it there.

    `reached` is the end of the page in that direction, if it is beyond its last row.
    """
    # The page of a cursor or time has at least one row behind it: the one of the cursor.
    has_start = request.cursor is not None or request.before is not None
    has_newer, has_older = (more, has_start) if newer else (has_start, more)
    if page:
        ends = sorted((_as_uuid(page[0]), _as_uuid(page[-1])))
    else:
        # An empty page: the opposite direction starts with the row at the position itself.
        bound = request.ids.lower if newer else request.ids.upper
        number = 0 if bound is None else bound.int
        ends = [UUID(int=number), UUID(int=max(number - 1, 0))]
    if reached is not None:
        ends[newer] = reached
    to_older = str(Cursor(position=ends[0], newer=False)) if has_older else None
    to_newer = str(Cursor(position=ends[1], newer=True)) if has_newer else None
    return (
        {"next": to_newer, "previous": to_older} if request.towards_newer else {"next": to_older, "previous": to_newer}
    )


def _as_uuid(pk: UUID | str | int) -> UUID:
    if isinstance(pk, UUID):
        return pk
    return UUID(pk) if isinstance(pk, str) else UUID(int=pk)


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=4, person=b"cursor").digest()
