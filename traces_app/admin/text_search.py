"""The search of the admin's lists: rows by what they say, beside rows by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from access_app.errors import InvalidInput
from messages_app import ids
from messages_app.admin.filters import CURSOR
from messages_app.admin.keyset import is_walk, note_end_of_search
from messages_app.safe_text import moment, visible
from messages_app.sql.pagination import Cursor, IdRange
from traces_app.queries.search.found import Found, Hit, Unit, find
from traces_app.queries.search.pages import indexed_until
from traces_app.queries.search.places import page_path
from traces_app.queries.search.query import SearchQuery, parse
from traces_app.queries.search.texts import Mark

from .run_search import FIELD_LABELS

PLACES_SHOWN = 3
"""In a row of a list."""


def named_or_saying(
    request: HttpRequest,
    queryset: QuerySet[Any],
    named: QuerySet[Any],
    text: str,
    unit: Unit,
    page_size: int,
    mark: Mark | None = None,
) -> QuerySet[Any]:
    """Return the rows of the requested page of `queryset`, and the first one behind it: those that are `named` so, and those
    that have the terms of the search. With a mark all rows of `queryset` are calls that have it.

    Tell the reader (of a walk: the walk) if the search had to stop, or what is wrong with the text.
    """
    cursor = _cursor_in(request)
    keys = set(_keys_of_page(named, cursor, page_size))
    query = _parsed(request, text)
    if query is not None:
        keys.update(_keys_saying(request, queryset, query, unit, cursor, page_size, mark))
    return queryset.filter(pk__in=keys)


def _keys_of_page(rows: QuerySet[Any], cursor: Cursor | None, page_size: int) -> list[UUID]:
    newest = rows.order_by("-pk").values_list("pk", flat=True)
    if cursor is None:
        return list(newest[: page_size + 1])
    if not cursor.newer:
        return list(newest.filter(**cursor.ids.of("pk"))[: page_size + 1])
    found = list(rows.filter(**cursor.ids.of("pk")).order_by("pk").values_list("pk", flat=True)[: page_size + 1])
    # The way back ends at the first page, which is full.
    return found if len(found) > page_size else list(newest[: page_size + 1])


def _keys_saying(
    request: HttpRequest,
    queryset: QuerySet[Any],
    query: SearchQuery,
    unit: Unit,
    cursor: Cursor | None,
    page_size: int,
    mark: Mark | None,
) -> list[UUID]:
    def among(keys: list[UUID]) -> list[UUID]:
        return list(queryset.order_by().filter(pk__in=keys).values_list("pk", flat=True))

    def page(place: Cursor | None) -> Found:
        newest_first = place is None or not place.newer
        range_ = IdRange() if place is None else place.ids
        return find(query, unit, among, range_, newest_first=newest_first, limit=page_size + 1, mark=mark)

    found = page(cursor)
    if cursor is not None and cursor.newer and len(found.ids) <= page_size:
        found = page(None)
    request.found_places = found.hits  # type: ignore[attr-defined]  # read only by `found_column`
    _tell_end(request, found)
    return found.ids


def is_searched(request: HttpRequest) -> bool:
    return bool(request.GET.get("q", "").strip())


def found_column(request: HttpRequest) -> Callable[[Any], SafeString | None]:
    """Return the column with the places where the terms of the search of a list were found, with links to them."""

    @admin.display(description=_("found"), empty_value="")
    def found(row: Any) -> SafeString | None:
        places: Mapping[UUID, Sequence[Hit]] = getattr(request, "found_places", {})
        # Terms that stand together are one place for a reader.
        shown = {(hit.row_id, hit.field, hit.match): hit for hit in places.get(row.pk, ())}
        lines = list(shown.values())[:PLACES_SHOWN]
        return format_html_join("", _PLACE, (_place(hit) for hit in lines)) if lines else None

    return found


def with_found(request: HttpRequest, columns: list[Any], in_trash: bool = False) -> list[Any]:
    """Return the columns of a list, with the places of its search behind the first."""
    return columns if in_trash or not is_searched(request) else [columns[0], found_column(request), *columns[1:]]


_PLACE = '<div class="found-place"><a href="{}"><span class="quiet">{}:</span> <bdi>{}<mark>{}</mark>{}</bdi></a></div>'


def _place(hit: Hit) -> tuple[str, str, SafeString, SafeString, SafeString]:
    return page_path(hit), str(FIELD_LABELS[hit.field]), visible(hit.before), visible(hit.match), visible(hit.after)


def _parsed(request: HttpRequest, text: str) -> SearchQuery | None:
    try:
        return parse(text)
    except InvalidInput as error:
        messages.info(request, _("Only names and IDs were searched. %(reason)s") % {"reason": error.message})
        return None


def _cursor_in(request: HttpRequest) -> Cursor | None:
    text = request.GET.get(CURSOR)
    try:
        return Cursor.parse(text) if text else None
    except InvalidInput:
        return None  # the list refuses it


def _tell_end(request: HttpRequest, found: Found) -> None:
    if is_walk(request):
        if found.reached is not None:
            note_end_of_search(request, found.reached)
        return
    until = indexed_until()
    if until is not None:
        words = _("Indexed up to %(time)s; newer messages were read directly.") % {"time": "{}"}
        messages.info(request, format_html(words, moment(until)))
    if found.reached is None:
        return
    parameters = request.GET.copy()
    parameters[CURSOR] = str(Cursor(position=found.reached, newer=False))
    words = _("The search took long and stopped at %(time)s (%(zone)s).") % {"time": "{}", "zone": "{}"}
    stopped = format_html(words, moment(ids.created_at_of(found.reached)), timezone.get_current_timezone_name())
    link = format_html('<a href="?{}">{}</a>', parameters.urlencode(), _("Continue the search from there"))
    messages.info(request, format_html("{} {}", stopped, link))
