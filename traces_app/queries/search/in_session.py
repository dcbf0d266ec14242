"""Find the messages of one session that have the terms of a search, in themselves or below them."""

from __future__ import annotations

from uuid import UUID

from django.http import QueryDict

from access_app.db import Database
from access_app.readable import ReadableRows
from access_app.visibility import ProjectScope
from messages_app.models import Message
from messages_app.queries import FoundSession
from messages_app.sql.pagination import Cursor, IdRange, PageRequest
from traces_app.queries.filters import MessageFilterSet

from .pages import FoundPage, found_page
from .query import SearchQuery

MESSAGES = 20
"""Messages of a page."""


def find_in_session(
    db: Database, query: SearchQuery, session: FoundSession, cursor: Cursor | None = None
) -> FoundPage | None:
    """Return a page of the messages of a live session that have all terms, oldest first, whatever its title says; None if it has no messages."""
    alive = db.rows(Message.objects).filter(session_id=session.pk).values_list("pk", flat=True)
    first, last = alive.order_by("pk").first(), alive.order_by("-pk").first()
    if first is None or last is None:
        return None
    rows = MessageFilterSet(QueryDict(), mask=None).found(db, ProjectScope(frozenset([session.project_id])), session)
    # Without a range every part of the index would be read.
    within = IdRange(lower=first, upper=UUID(int=last.int + 1))
    request = PageRequest(limit=MESSAGES, order="asc", towards_newer=True, cursor=cursor)
    # The title is a text of all messages: a word of it would find each of them.
    here = ReadableRows(parts={db: rows.within(within)})
    return found_page(here, query, "message", request, without=("title",))
