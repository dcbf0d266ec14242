"""A page of what a search found in a list, and how complete it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import Min
from django.utils.translation import gettext as _
from msgspec import Struct

from access_app.encryption.keys import refuse_encrypted
from access_app.errors import InvalidInput
from messages_app import ids
from messages_app.sql.compiled import CompiledRows
from messages_app.sql.pagination import Page, PageRequest, page_of, read_page
from traces_app.models import ToolCall, UnindexedMessage

from .found import Hit, Unit, find
from .query import SearchQuery
from .texts import Mark


class FoundPage(Struct, frozen=True, kw_only=True):
    page: Page
    hits: Mapping[UUID, Sequence[Hit]]
    searched_to: datetime | None
    """The time at which the search stopped, because it took too long; None if nothing was left out."""


def found_page(
    rows: CompiledRows,
    query: SearchQuery,
    unit: Unit,
    request: PageRequest,
    *,
    without: Collection[str] = (),
    mark: Mark | None = None,
) -> FoundPage:
    """Return the requested page of the rows of a list that have the terms. Raise InvalidInput for a page by number.

    Fields in `without` are not searched. With a mark all rows must be calls that have it.
    """
    if request.number is not None:
        raise InvalidInput(_("%(name)s cannot be combined with page and page_size.") % {"name": "q"}, field="q")
    if "project" in rows.values:
        refuse_encrypted(rows.values["project"], field="q")
    newer = request.towards_newer if request.cursor is None else request.cursor.newer
    within = rows.ids & request.ids
    found = find(
        query,
        unit,
        rows.among,
        within,
        newest_first=not newer,
        limit=request.limit + 1,
        without=without,
        mark=mark,
    )
    return FoundPage(
        page=page_of(found.ids, request, reached=found.reached),
        hits=found.hits,
        searched_to=None if found.reached is None else ids.created_at_of(found.reached),
    )


def list_page(
    rows: CompiledRows, query: SearchQuery | None, unit: Unit, request: PageRequest, mark: Mark | None = None
) -> Page:
    """Return the requested page of a list, or of what was found in it."""
    return read_page(rows, request) if query is None else found_page(rows, query, unit, request, mark=mark).page


def mark_of_status(status: str | None) -> Mark | None:
    """Return the mark of the calls that a list by status has."""
    return Mark.FAILED if status == ToolCall.Status.ERROR else None


def indexed_until() -> datetime | None:
    """Return the time since when messages wait for the index; None if it has all. They are searched, too, but slowly."""
    oldest: datetime | None = UnindexedMessage.objects.aggregate(oldest=Min("queued_at"))["oldest"]
    return oldest
