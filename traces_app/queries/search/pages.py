"""A page of what a search found in a list, and how complete it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import Min
from django.utils.translation import gettext as _
from msgspec import Struct

from access_app.db import Database
from access_app.encryption.keys import refuse_encrypted
from access_app.errors import InvalidInput
from access_app.readable import ReadableRows
from messages_app.change_log import Reader, unread
from messages_app.models import Message
from messages_app.sql.pagination import ListRows, Page, PageRequest, page_of, read_page
from traces_app.models import ToolCall
from tracesite_sdk.records import ids

from .found import Hit, SearchHits, Unit, find
from .query import SearchQuery
from .texts import Mark


class FoundPage(Struct, frozen=True, kw_only=True):
    page: Page
    hits: Mapping[UUID, Sequence[Hit]]
    searched_to: datetime | None
    """The time at which the search stopped, because it took too long; None if nothing was left out."""


def found_page(
    rows: ReadableRows[ListRows],
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
    newer = request.towards_newer if request.cursor is None else request.cursor.newer

    def find_in(part: ListRows) -> SearchHits:
        if part.project_id is not None:
            refuse_encrypted(part.project_id, field="q")
        return find(
            part.db,
            query,
            unit,
            part.among,
            part.ids & request.ids,
            newest_first=not newer,
            limit=request.limit + 1,
            without=without,
            mark=mark,
        )

    of_each = rows.each(find_in)
    keys = list(rows.in_order([part.ids for part in of_each], newest_first=not newer))
    # Beyond the place where the first of them stopped the others would look complete.
    ends = [part.reached for part in of_each if part.reached is not None]
    reached = (min(ends) if newer else max(ends)) if ends else None
    if reached is not None:
        keys = [key for key in keys if (key <= reached if newer else key >= reached)]
    return FoundPage(
        page=page_of(keys, request, reached=reached),
        hits={key: hits for part in of_each for key, hits in part.hits.items()},
        searched_to=None if reached is None or len(keys) > request.limit else ids.created_at_of(reached),
    )


def found_messages(db: Database, ids: Sequence[UUID]) -> list[Message]:
    """Return the messages of a page, in its order, with what names them and their project. One query."""
    rows = (
        db.rows(Message.with_deleted)
        .select_related("project")
        .only("session_id", "role", "created_at", "project__slug")
        .in_bulk(ids)
    )
    return [rows[key] for key in ids if key in rows]


def list_page(
    rows: ReadableRows[ListRows],
    query: SearchQuery | None,
    unit: Unit,
    request: PageRequest,
    mark: Mark | None = None,
) -> Page:
    """Return the requested page of a list, or of what was found in it."""
    return read_page(rows, request) if query is None else found_page(rows, query, unit, request, mark=mark).page


def mark_of_status(status: str | None) -> Mark | None:
    """Return the mark of the calls that a list by status has."""
    return Mark.FAILED if status == ToolCall.Status.ERROR else None


def indexed_until(db: Database) -> datetime | None:
    """Return the time since when messages wait for the index; None if it has all. They are searched, too, but slowly."""
    oldest: datetime | None = unread(db, Reader.SEARCH).aggregate(oldest=Min("at"))["oldest"]
    return oldest


def indexed_until_in(rows: ReadableRows[ListRows]) -> datetime | None:
    """Return the earliest such time of the databases that have the rows."""
    return min(filter(None, rows.each(lambda part: indexed_until(part.db))), default=None)
