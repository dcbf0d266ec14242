"""Read sessions and messages for WeKnora's clients: the queries of the REST API, in WeKnora's orders."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Max, QuerySet, Value
from django.db.models.fields.json import KeyTextTransform
from django.http import QueryDict

from access_app.db import Database
from access_app.visibility import ALL_PROJECTS, ProjectScope
from messages_app.http.filters import SessionFilterSet
from messages_app.models import Message as MessageRow
from messages_app.models import Session as SessionRow
from messages_app.queries import FoundSession
from messages_app.sql.batch import LIST_MS, Query, fetch
from messages_app.sql.beginnings import Beginning
from messages_app.sql.json_rows import Column, Source
from messages_app.sql.pagination import MAX_LIMIT, ListRows, Page
from traces_app.models import Event
from traces_app.queries.filters import MessageFilterSet
from traces_app.queries.messages import messages
from tracesite_sdk.records.ids import range_below

from .shapes import WeknoraSession, loaded_message_of

# Characters of a message that are read to derive a title.
_BEGINNING = 1000
# Pinned sessions first. No index: one on updated_at would slow down every write to a session, for this list alone.
_ORDER = (F("pinned_at").desc(nulls_last=True), "-updated_at", "-pk")


def messages_in(db: Database, session: FoundSession) -> ListRows:
    """Return the messages of a session that is not deleted."""
    return MessageFilterSet(QueryDict(), mask=None).found(db, ALL_PROJECTS, session)


def messages_of(db: Database, page: Page) -> Iterator[dict[str, Any]]:
    """Yield the messages of a page, read in small batches because a page can be long."""
    for ids in page.chunks():
        for first in range(0, len(ids), MAX_LIMIT):
            yield from map(loaded_message_of, messages(db, [str(key) for key in ids[first : first + MAX_LIMIT]]))


def sessions(db: Database, ids: Collection[str]) -> list[WeknoraSession]:
    """Return the sessions of `ids` in this order, with at most one query."""
    rows = _SESSIONS.read(db, ids)
    found = dict(zip((row[0] for row in rows), _SESSIONS.make(rows), strict=True))
    return [found[session_id] for session_id in ids if session_id in found]


def session_page(
    db: Database, scope: ProjectScope, parameters: QueryDict, *, number: int, size: int
) -> tuple[list[WeknoraSession], int]:
    """Return a page of sessions and their total number, filtered by `keyword`, `source` and `agent_id`.

    Raises InvalidInput, also if the query exceeds its time limit.
    """
    title = QueryDict(mutable=True)
    title["title"] = parameters.get("keyword", "")
    rows = SessionFilterSet(title, db.rows(SessionRow.objects).visible_to(scope), mask=db.read_connection.mask).qs
    for name in ("source", "agent_id"):
        if value := parameters.get(name, "").replace("\x00", ""):
            rows = rows.alias(**{name: KeyTextTransform(name, "metadata")}).filter(**{name: value})
    first = (number - 1) * size
    page = rows.order_by(*_ORDER).values_list("pk")[first : first + size]
    # Grouped, so that no matching session gives no row rather than a 0.
    counted = rows.order_by().values(every=Value(1)).annotate(total=Count("*")).values_list("total")
    total, found = fetch(db, [Query.of(counted), Query.of(page)], at_most_ms=LIST_MS)
    return sessions(db, [str(row[0]) for row in found]), total[0][0] if total else 0


def first_question(db: Database, session_id: UUID) -> str:
    """Return the beginning of the first user message; "" if there is none."""
    asked = db.rows(MessageRow.objects).filter(session_id=session_id, role=MessageRow.Role.USER).order_by("pk")
    return asked.annotate(beginning=Beginning("content", _BEGINNING)).values_list("beginning", flat=True).first() or ""


def has_events(db: Database, session_id: UUID, message_id: UUID) -> bool:
    """Return whether a message is built from events."""
    return _events_of(db, session_id, message_id).exists()


def last_number(db: Database, session_id: UUID, message_id: UUID) -> int | None:
    """Return the largest producer-given event number of a message; None if the producer does not number events."""
    found: int | None = _events_of(db, session_id, message_id).aggregate(Max("number"))["number__max"]
    return found


def _events_of(db: Database, session_id: UUID, message_id: UUID) -> QuerySet[Event]:
    first, end = range_below(message_id)
    return db.rows(Event.objects).filter(pk__gte=first, pk__lt=end, session_id=session_id, message_id=message_id)


_SESSIONS = Source(
    resource=WeknoraSession,
    model=SessionRow,
    table="messages_app_session",
    partitioned=False,
    columns={
        "tenant_id": Column(sql="project_id"),
        "user_id": Column(sql="end_user"),
        "is_pinned": Column(sql="pinned_at IS NOT NULL"),
        "last_request_state": Column(sql="NULL"),
    },
)
