"""Walks over all rows that a list is filtered to, a page at a time, for exports and for actions on all of them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.http import HttpRequest, QueryDict

from messages_app.sql.pagination import Cursor

from .filters import CURSOR

if TYPE_CHECKING:
    from .keyset import KeysetAdmin

ROWS_AT_A_TIME = 200
"""Rows of a page of a walk."""


class TookTooLong(Exception):
    """A walk over a list was stopped, because reading a page of it took longer than the list may take."""


def all_keys(model_admin: KeysetAdmin, request: HttpRequest, most: int) -> Iterator[list[Any]]:
    """Yield the primary keys of the rows that the list is filtered to, newest first, at most `most`, in lists.

    It walks over the pages of the list, each with the time limit of a page. Raise IncorrectLookupParameters for an
    invalid filter, and TookTooLong.
    """
    cursor, left = None, most
    while left > 0:
        parameters = request.GET.copy()
        parameters.pop(CURSOR, None)
        if cursor is not None:
            parameters[CURSOR] = cursor
        page = request_for(request, parameters)
        page.is_walk = True  # type: ignore[attr-defined]  # read only by `is_walk`
        found = model_admin.keyset_list(page)
        if found.was_stopped:
            raise TookTooLong
        keys, cursor = [row.pk for row in found.result_list], found.older_cursor
        reached = end_of_search(page)
        if reached is not None:
            # Rows that were found by their names may be older than what was searched; the next page has them again.
            keys = [key for key in keys if key >= reached]
            cursor = str(Cursor(position=reached, newer=False))
        yield keys[:left]
        left -= len(keys)
        if cursor is None:
            return


def request_for(request: HttpRequest, parameters: QueryDict) -> HttpRequest:
    """Return a request of the same reader for a list with other parameters, of which nothing was read yet."""
    page = copy(request)
    page.GET = parameters  # type: ignore[assignment]  # nothing changes it
    page.search_reached = None  # type: ignore[attr-defined]  # not that of the request
    return page


def is_walk(request: HttpRequest) -> bool:
    """Return whether the request stands for a page of a walk over the whole list."""
    return getattr(request, "is_walk", False)


def page_size(model_admin: KeysetAdmin, request: HttpRequest) -> int:
    """Return the number of rows of a page."""
    return ROWS_AT_A_TIME if is_walk(request) else model_admin.list_per_page


def note_end_of_search(request: HttpRequest, reached: UUID) -> None:
    """Note that the search of a list stopped early: what is older than `reached` was not searched yet, in one of its databases."""
    known = end_of_search(request)
    request.search_reached = reached if known is None else max(known, reached)  # type: ignore[attr-defined]


def end_of_search(request: HttpRequest) -> UUID | None:
    """Return the place where the search of a list stopped; None if it did not stop early."""
    return getattr(request, "search_reached", None)
