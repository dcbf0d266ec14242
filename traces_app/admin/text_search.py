"""The search of the admin's lists: rows by what they say, beside rows by their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.errors import InvalidInput
from messages_app.admin.filters import CURSOR
from messages_app.admin.walks import end_of_search, is_walk, note_end_of_search
from messages_app.safe_text import marked, moment
from messages_app.sql.pagination import Cursor, IdRange
from traces_app.queries.search.found import Hit, SearchHits, Unit, find
from traces_app.queries.search.pages import indexed_until
from traces_app.queries.search.places import page_path
from traces_app.queries.search.query import SearchQuery, parse
from traces_app.queries.search.texts import Mark
from traces_app.queries.session_names import sessions_beginning
from tracesite_sdk.records import ids

from .run_search import FIELD_LABELS

PLACES_SHOWN = 3
"""In a row of a list."""


@dataclass(kw_only=True)
class _CameTo:
    """The outcome of the search of a list in all databases that were asked."""

    hits: dict[UUID, Sequence[Hit]] = field(default_factory=dict)
    """The places in each row."""
    fault: str = ""
    """The error in the text."""
    indexed_until: datetime | None = None
    """The time since when messages wait for the index; None if it has all."""


def _came_to(request: HttpRequest) -> _CameTo:
    found: _CameTo | None = getattr(request, "search_came_to", None)
    if found is None:
        found = request.search_came_to = _CameTo()  # type: ignore[attr-defined]  # read only here
    return found


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

    In the database in use: the list asks each that it shows, and `with_found` tells what it came to.
    """
    cursor = _cursor_in(request)
    keys = set(_keys_of_page(named, cursor, page_size))
    try:
        query = parse(text)
    except InvalidInput as error:
        _came_to(request).fault = error.message
    else:
        keys.update(_keys_saying(request, queryset, query, unit, cursor, page_size, mark))
    return queryset.filter(pk__in=keys)


def beginning_with(request: HttpRequest, db: Database, sessions: QuerySet[Any], term: str) -> list[UUID]:
    """Return the keys of `sessions` whose id or external id begins with a term; none, and tell the reader, if it takes too long."""
    try:
        return sessions_beginning(db, sessions, term)
    except InvalidInput as error:
        messages.warning(
            request, _("Beginnings of external IDs were not searched. %(reason)s") % {"reason": error.message}
        )
        return []


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
    db = Database.of(queryset)

    def among(keys: list[UUID]) -> list[UUID]:
        return list(queryset.order_by().filter(pk__in=keys).values_list("pk", flat=True))

    def page(place: Cursor | None) -> SearchHits:
        newest_first = place is None or not place.newer
        range_ = IdRange() if place is None else place.ids
        return find(db, query, unit, among, range_, newest_first=newest_first, limit=page_size + 1, mark=mark)

    found = page(cursor)
    if cursor is not None and cursor.newer and len(found.ids) <= page_size:
        found = page(None)
    if found.reached is not None:
        note_end_of_search(request, found.reached)
    if not is_walk(request):
        came_to = _came_to(request)
        came_to.hits.update(found.hits)
        came_to.indexed_until = min(filter(None, (came_to.indexed_until, indexed_until(db))), default=None)
    return found.ids


_RANKS: Mapping[str, int] = {"title": 0, "tool": 1, "error": 1}
"""By the field of a place; others come last."""


def best_first(request: HttpRequest, rows: Sequence[Any], name_of: Callable[[Any], str]) -> list[Any]:
    """Return the rows of a page in the order of where their search found them: in their name or title, in tools and errors, elsewhere.

    Each row counts as the worst of its terms. Rows that were found as well keep their order.
    """
    hits = _came_to(request).hits

    def rank(row: Any) -> int:
        name = name_of(row).casefold()
        return max(
            (0 if hit.match.casefold() in name else _RANKS.get(hit.field, 2) for hit in hits.get(row.pk, ())), default=0
        )

    return sorted(rows, key=rank)


def is_searched(request: HttpRequest) -> bool:
    return bool(request.GET.get("q", "").strip())


Says = Callable[[Any], Mapping[str, str]]
"""Returns what a row of a list shows anyway, by the field of the search."""


def with_found(request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any], says: Says) -> list[Any]:
    """Return the columns of a list; if its search found texts that `rows` do not show anyway, with their places behind the first.

    What a row shows anyway gets its terms as `found_terms`, by their field, to be marked there. Tell the reader if the search
    had to stop, or what is wrong with its text.
    """
    _tell_end(request)
    places = {row.pk: _lines(row, request, says(row))[:PLACES_SHOWN] for row in rows}
    if not any(places.values()):
        return list(columns)

    @admin.display(description=_("found"), empty_value="")
    def found(row: Any) -> SafeString | None:
        return format_html_join("", _PLACE, map(_place, places[row.pk])) if places[row.pk] else None

    first = 1 + (columns[0] == "action_checkbox")
    return [*columns[:first], found, *columns[first:]]


_PLACE = '<div class="found-place"><a href="{}"><span class="quiet">{}:</span> <bdi>{}</bdi></a></div>'


def _lines(row: Any, request: HttpRequest, shown: Mapping[str, str]) -> list[tuple[Hit, list[str]]]:
    """Return the places of a row without repetition, each with the terms to mark: one text has all terms that it shows."""
    lines: list[tuple[Hit, list[str]]] = []
    row.found_terms = defaultdict(list)
    for hit in _came_to(request).hits.get(row.pk, ()):
        # The content of a message below a session, for example, is not what the row shows.
        if hit.match in shown.get(hit.field, "") and (hit.row_id == row.pk or hit.field == "title"):
            row.found_terms[hit.field].append(hit.match)
            continue
        for line, terms in lines:
            if (line.row_id, line.field) == (hit.row_id, hit.field) and hit.match in _text(line):
                terms.append(hit.match)
                break
        else:
            lines.append((hit, [hit.match]))
    return lines


def _text(hit: Hit) -> str:
    return f"{hit.before}{hit.match}{hit.after}"


def _place(line: tuple[Hit, list[str]]) -> tuple[str, str, SafeString]:
    hit, terms = line
    return page_path(hit), str(FIELD_LABELS[hit.field]), marked(_text(hit), terms)


def _cursor_in(request: HttpRequest) -> Cursor | None:
    text = request.GET.get(CURSOR)
    try:
        return Cursor.parse(text) if text else None
    except InvalidInput:
        return None  # the list refuses it


def tell_fault(request: HttpRequest, of: HttpRequest) -> None:
    """Tell the reader what is wrong with the text of the search of a list, whose request is `of`."""
    if fault := _came_to(of).fault:
        messages.info(request, _("Only names and IDs were searched. %(reason)s") % {"reason": fault})


def _tell_end(request: HttpRequest) -> None:
    # A page of several lists tells what concerns them all once.
    if is_walk(request) or getattr(request, "is_of_several", False):
        return
    came_to, reached = _came_to(request), end_of_search(request)
    tell_fault(request, request)
    if came_to.indexed_until is not None:
        words = _("Indexed up to %(time)s; newer messages were read directly.") % {"time": "{}"}
        messages.info(request, format_html(words, moment(came_to.indexed_until)))
    if reached is None:
        return
    parameters = request.GET.copy()
    parameters[CURSOR] = str(Cursor(position=reached, newer=False))
    words = _("The search took long and stopped at %(time)s (%(zone)s).") % {"time": "{}", "zone": "{}"}
    stopped = format_html(words, moment(ids.created_at_of(reached)), timezone.get_current_timezone_name())
    link = format_html('<a href="?{}">{}</a>', parameters.urlencode(), _("Continue the search from there"))
    messages.info(request, format_html("{} {}", stopped, link))
