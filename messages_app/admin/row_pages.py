"""Pages of rows for the admin's lists, found by the row beside them, and limits of the queries that read them.

The ids of a page are read first (messages_app.sql.pagination), then its rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nlargest
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.db.models.expressions import Combinable
from django.utils.translation import gettext as _
from msgspec.structs import replace

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.readable import ReadableRows
from messages_app.sql.pagination import PageRequest, QuerySetKeys, read_page
from tracesite_sdk.records import ids

from .filters import CURSOR

SORTED_ROWS = 10_000
"""The newest rows of a list, which alone are sorted where no index has the order."""
_TIME_CURSOR = re.compile(r"(?P<side>[no])(?P<at>[0-9]{1,17})-(?P<pk>[0-9a-f]{32})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class RowPage:
    """The rows of a page, and the cursors of the next and previous pages; None at either end."""

    rows: list[Any]
    next: str | None = None
    previous: str | None = None


ReadKeys = Callable[[Database, Sequence[Any]], Mapping[Any, Any]]
"""A function that returns the rows of some primary keys in a database, by key."""


def read_rows(rows: ReadableRows[QuerySetKeys], request: PageRequest, read_keys: ReadKeys) -> RowPage:
    """Return the requested page of `rows`. Going back to the first page returns it with the newest rows.

    The ids are read first, so that joins, annotations and texts are computed only for the rows of the page. `read_keys`
    may read these without the filters, which apply to rows below and need not be looked up twice.
    """
    page = read_page(rows, request)
    if request.cursor is not None and page.previous is None:
        page = read_page(rows, replace(request, cursor=None))
    return RowPage(rows=rows_with(rows, page.ids, read_keys), next=_text(page.next), previous=_text(page.previous))


def rows_with(rows: ReadableRows[Any], keys: Sequence[Any], read_keys: ReadKeys) -> list[Any]:
    """Return the rows with keys that were found, in their order."""
    found: dict[Any, Any] = {}
    for part in rows.ask(keys, read_keys):
        found |= part
    # A row may have been deleted between the two reads.
    return [found[key] for key in keys if key in found]


@dataclass(frozen=True, kw_only=True)
class TimeCursor:
    """A position between two rows in the order of a time and the id, and a side of it."""

    at: datetime
    pk: UUID
    newer: bool

    def __str__(self) -> str:
        return f"{'n' if self.newer else 'o'}{(self.at - ids.EPOCH) // timedelta(microseconds=1)}-{self.pk.hex}"

    @classmethod
    def parse(cls, text: str) -> TimeCursor:
        """Parse the `str` of a cursor. Raise InvalidInput for any other text."""
        match = _TIME_CURSOR.fullmatch(text)
        if match is None:
            raise InvalidInput(_("Invalid cursor. Use the links on the page."), field=CURSOR)
        at = ids.EPOCH + timedelta(microseconds=int(match["at"]))
        return cls(at=at, pk=UUID(match["pk"]), newer=match["side"] == "n")

    def beyond(self, column: str) -> Q:
        """Return the condition for the rows on the side of the cursor. Its first part lets the index scan start there."""
        side = "gt" if self.newer else "lt"
        later = Q(**{f"{column}__{side}": self.at}) | Q(**{f"pk__{side}": self.pk})
        return Q(**{f"{column}__{side}e": self.at}) & later


def read_rows_by_time(
    rows: ReadableRows[QuerySetKeys], column: str, limit: int, cursor: TimeCursor | None, read_keys: ReadKeys
) -> RowPage:
    """Return the page of `rows` at `cursor`, latest time in `column` first; `read_keys` as of read_rows.
    A row whose time changes meanwhile moves to the first page; the others keep their places.

    Each such column has an index with the primary key behind it.
    """
    newer = cursor is not None and cursor.newer
    order = (column, "pk") if newer else (f"-{column}", "-pk")

    def keys_of(part: QuerySetKeys) -> list[tuple[datetime, UUID]]:
        beyond = part.queryset if cursor is None else part.queryset.filter(cursor.beyond(column))
        return list(beyond.order_by(*order).values_list(column, "pk")[: limit + 1])

    of_each = rows.each(keys_of)
    keys = list(islice(rows.in_order(of_each, newest_first=not newer, text=lambda one: str(one[1])), limit + 1))
    more = len(keys) > limit
    if newer and not more:
        return read_rows_by_time(rows, column, limit, None, read_keys)  # the first page with the newest rows
    keys = keys[:limit]
    if newer:
        keys.reverse()
    has_newer, has_older = (more, True) if newer else (cursor is not None, more)
    return RowPage(
        rows=rows_with(rows, [pk for _at, pk in keys], read_keys),
        next=str(TimeCursor(at=keys[-1][0], pk=keys[-1][1], newer=False)) if keys and has_older else None,
        previous=str(TimeCursor(at=keys[0][0], pk=keys[0][1], newer=True)) if keys and has_newer else None,
    )


def read_sorted(
    rows: ReadableRows[QuerySetKeys], value: Combinable, limit: int, number: int, read_keys: ReadKeys
) -> RowPage:
    """Return a page of the newest SORTED_ROWS of `rows`, greatest value first, unknown ones last; `read_keys` as of read_rows. The cursor
    is the number of the page, from 1, because values change and few pages of such a list are read."""

    def keys_of(part: QuerySetKeys) -> list[tuple[bool, Any, UUID]]:
        newest = part.queryset.order_by("-pk").annotate(sorted_by=value).values_list("sorted_by", "pk")[:SORTED_ROWS]
        keys = ((found is not None, 0 if found is None else found, pk) for found, pk in newest)
        return nlargest(number * limit + 1, keys)

    of_each = rows.each(keys_of)
    keys = list(
        islice(
            rows.in_order(of_each, newest_first=True, text=lambda one: str(one[2])),
            (number - 1) * limit,
            number * limit + 1,
        )
    )
    return RowPage(
        rows=rows_with(rows, [pk for _is_known, _value, pk in keys[:limit]], read_keys),
        next=str(number + 1) if len(keys) > limit else None,
        previous=str(number - 1) if number > 1 else None,
    )


def page_number(cursor: str | None) -> int:
    """Return the number of a page of `read_sorted`. Raise InvalidInput."""
    if cursor is None:
        return 1
    if not cursor.isascii() or not cursor.isdecimal() or not 1 <= int(cursor[:5]) <= SORTED_ROWS:
        raise InvalidInput(_("Invalid cursor. Use the links on the page."), field=CURSOR)
    return int(cursor[:5])


@contextmanager
def nested_loops(db: Database) -> Iterator[None]:
    """Let the statements of the block look up joined rows one by one: for few rows by primary key, in a transaction.

    The planner expects each id in each month, so it would read all results for 50 calls of 13 months (325 ms instead of 3),
    and start a worker, which takes 15 ms.
    """
    settings = {"enable_hashjoin": "off", "enable_mergejoin": "off", "max_parallel_workers_per_gather": "0"}
    with db.read_cursor() as cursor:
        cursor.execute("; ".join(f"SET LOCAL {name} TO {value}" for name, value in settings.items()))
        yield
        cursor.execute("; ".join(f"SET LOCAL {name} TO DEFAULT" for name in settings))


def _text(cursor: str | int | None) -> str | None:
    assert cursor is None or isinstance(cursor, str), "the admin never requests pages by number"
    return cursor
