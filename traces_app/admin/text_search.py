"""The search of the admin's lists: rows by what they say, beside rows by their names."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _

from access_app.errors import InvalidInput
from messages_app import ids
from messages_app.admin.filters import CURSOR
from messages_app.admin.keyset import is_walk, note_end_of_search
from messages_app.models import Message
from messages_app.safe_text import moment
from messages_app.sql.pagination import Cursor, IdRange
from traces_app.queries.search.found import Found, Unit, find
from traces_app.queries.search.query import SearchQuery, parse

SESSIONS_OF_MESSAGES = 300
"""Messages whose sessions the list of sessions shows."""


def named_or_saying(
    request: HttpRequest, queryset: QuerySet[Any], named: QuerySet[Any], text: str, unit: Unit, page_size: int
) -> QuerySet[Any]:
    """Return the rows of the requested page of `queryset`, and the first one behind it: those that are `named` so, and those
    that have the terms of the search.

    Tell the reader (of a walk: the walk) if the search had to stop, or what is wrong with the text.
    """
    cursor = _cursor_in(request)
    keys = set(_keys_of_page(named, cursor, page_size))
    query = _parsed(request, text)
    if query is not None:
        keys.update(_keys_saying(request, queryset, query, unit, cursor, page_size))
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
    request: HttpRequest, queryset: QuerySet[Any], query: SearchQuery, unit: Unit, cursor: Cursor | None, page_size: int
) -> list[UUID]:
    def among(keys: list[UUID]) -> list[UUID]:
        return list(queryset.order_by().filter(pk__in=keys).values_list("pk", flat=True))

    def page(place: Cursor | None) -> Found:
        newest_first = place is None or not place.newer
        range_ = IdRange() if place is None else place.ids
        return find(query, unit, among, range_, newest_first=newest_first, limit=page_size + 1)

    found = page(cursor)
    if cursor is not None and cursor.newer and len(found.ids) <= page_size:
        found = page(None)
    _tell_end(request, found)
    return found.ids


def sessions_saying(request: HttpRequest, queryset: QuerySet[Any], text: str) -> list[UUID]:
    """Return the sessions of `queryset` whose newest messages have the terms."""
    query = _parsed(request, text)
    if query is None:
        return []

    def among(keys: list[UUID]) -> list[UUID]:
        rows = Message.objects.filter(pk__in=keys, session__in=queryset.order_by().values("pk"))
        return list(rows.order_by().values_list("pk", flat=True))

    found = find(query, "message", among, IdRange(), newest_first=True, limit=SESSIONS_OF_MESSAGES)
    return list(Message.objects.filter(pk__in=found.ids).order_by().values_list("session_id", flat=True).distinct())


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
    if found.reached is None:
        return
    if is_walk(request):
        note_end_of_search(request, found.reached)
        return
    parameters = request.GET.copy()
    parameters[CURSOR] = str(Cursor(position=found.reached, newer=False))
    words = _("The search took long and stopped at %(time)s (%(zone)s).") % {
        "time": moment(ids.created_at_of(found.reached)),
        "zone": timezone.get_current_timezone_name(),
    }
    link = format_html('<a href="?{}">{}</a>', parameters.urlencode(), _("Continue the search from there"))
    messages.info(request, format_html("{} {}", words, link))
