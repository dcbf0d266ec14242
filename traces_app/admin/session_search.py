"""The search within a session, on its page: messages in reading order, each with the places where the terms were found. The path marks
the rows of its messages instead (run_search.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec
from django.contrib.admin.utils import quote
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import Message, Session
from messages_app.queries import FoundSession, session_of_page
from messages_app.safe_text import one_line
from messages_app.sql.pagination import Cursor, ids_below
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.runs.outline import NAME_CHARACTERS
from traces_app.queries.runs.reading_order import step_numbers
from traces_app.queries.search.found import Hit
from traces_app.queries.search.in_run import OF_SESSION
from traces_app.queries.search.in_session import find_in_session
from traces_app.queries.search.places import page_path
from traces_app.queries.search.query import parse
from traces_app.queries.search.texts import Kind

from .conversation import ids_of_conversation, place_in_conversation
from .run_page import SKELETON_ROWS
from .run_search import TermMatch, place_of, search_runs
from .session_outline import cursor_of


@dataclass(frozen=True, kw_only=True)
class FoundPlace:
    """A place where a term was found, and the link that opens it."""

    url: str
    name: str
    """The step, and the tool of a call; empty for what the message itself says."""
    place: TermMatch


@dataclass(frozen=True, kw_only=True)
class FoundMessage:
    """A message that has all terms."""

    number: int
    """Counted from 1, without deleted messages."""
    message: Message
    url: str
    """The page of its place in the conversation."""
    places: Iterable[FoundPlace]


@dataclass(frozen=True, kw_only=True)
class SessionSearch:
    """A page of the answer to a search."""

    query: str
    error: str = ""
    """The fault of the query or of the cursor, empty if there is none."""
    messages: Collection[FoundMessage] = ()
    next: str | None = None
    previous: str | None = None
    searched_to: datetime | None = None
    """The time at which the search stopped, because it took too long; None if nothing was left out."""


def send_matches(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Send the messages, steps and calls of the page of a session that `?cursor=` or `?newest` names, as far as they have the terms of `q`,
    as JSON; 400 for an invalid cursor."""
    db = database(request)
    session = session_of_page(db, model_admin.scope(request), session_id)
    if session is None:
        raise Http404
    on_page = ids_of_conversation(db, session, cursor=cursor_of(request), newest="newest" in request.GET)
    found = search_runs(db, on_page, request.GET.get("q", ""), kinds=OF_SESSION)
    return HttpResponse(msgspec.json.encode(found), content_type="application/json")


def search_session(db: Database, session: Session, query: str, cursor: str = "") -> SessionSearch:
    """Return a page of the messages of a live session that have the terms of `query`."""
    try:
        found = find_in_session(
            db, parse(query), FoundSession(session.pk, session.project_id), Cursor.parse(cursor) if cursor else None
        )
    except InvalidInput as error:
        return SessionSearch(query=query, error=error.message)
    if found is None:
        return SessionSearch(query=query)
    numbers = _numbers(db, session, found.page.ids)
    rows = db.rows(Message.objects).only("role", "created_at", "session_id").in_bulk(found.page.ids)
    shown = [message_id for message_id in found.page.ids if message_id in numbers and message_id in rows]
    names = _names(db, (hit for message_id in shown for hit in found.hits[message_id]))
    page = reverse("admin:messages_app_session_change", args=[quote(session.pk)])
    return SessionSearch(
        query=query,
        messages=[
            FoundMessage(
                number=numbers[message_id],
                message=rows[message_id],
                url=f"{page}{place_in_conversation(session, message_id)}",
                places=[
                    FoundPlace(
                        url=_url(page, session, message_id, hit), name=names.get(hit.row_id, ""), place=place_of(hit)
                    )
                    for hit in found.hits[message_id]
                ],
            )
            for message_id in shown
        ],
        next=_cursor(found.page.next),
        previous=_cursor(found.page.previous),
        searched_to=found.searched_to,
    )


def _cursor(text: str | int | None) -> str | None:
    return None if text is None else str(text)


def _url(page: str, session: Session, message_id: UUID, hit: Hit) -> str:
    if hit.kind == Kind.MESSAGE:
        return f"{page}{place_in_conversation(session, message_id)}"
    return page_path(hit)


def _numbers(db: Database, session: Session, messages: Collection[UUID]) -> dict[UUID, int]:
    """Return the numbers of messages of a session, counted from 1. One query."""
    if not messages:
        return {}
    alive = db.rows(Message.objects).filter(session_id=session.pk, pk__lte=max(messages)).order_by()
    up_to = {f"number_{place}": Count("pk", filter=Q(pk__lte=key)) for place, key in enumerate(messages)}
    return dict(zip(messages, alive.aggregate(**up_to).values(), strict=True))


def _names(db: Database, hits: Iterable[Hit]) -> dict[UUID, str]:
    """Return the names of the steps and calls of hits: "Step 2", "Step 2 · search_orders". At most three queries."""
    by_kind: dict[Kind, set[UUID]] = defaultdict(set)
    for hit in hits:
        by_kind[hit.kind].add(hit.row_id)
    step_ids = by_kind[Kind.STEP]
    calls: list[tuple[UUID, UUID, str]] = []
    if call_ids := by_kind[Kind.CALL]:
        found = db.rows(ToolCall.with_deleted).filter(pk__in=list(call_ids), **ids_below(call_ids)).order_by()
        calls = list(found.values_list("pk", "step_id", "tool__name"))
    step_ids |= {step for _call, step, _tool in calls}
    if not step_ids:
        return {}
    numbers = _step_numbers(db, step_ids)
    names = {step: _("Step %(number)s") % {"number": numbers[step]} for step in step_ids if step in numbers}
    return names | {
        call: f"{names.get(step, '')} · {one_line(tool, NAME_CHARACTERS) or _('(no name)')}"
        for call, step, tool in calls
    }


def _step_numbers(db: Database, step_ids: Collection[UUID]) -> dict[UUID, str]:
    """Return the displayed numbers of steps of several runs. Two queries."""
    steps = db.rows(AgentStep.with_deleted).filter(**ids_below(step_ids))
    places = list(steps.filter(pk__in=list(step_ids)).order_by().values_list("message_id", "iteration"))
    beside = steps.filter(
        message_id__in={run for run, _iteration in places},
        iteration__in={iteration for _run, iteration in places},
    ).order_by("message_id", "iteration", "ordinal", "pk")
    of_runs: dict[UUID, list[tuple[UUID, int]]] = defaultdict(list)
    for run, step, iteration in beside.values_list("message_id", "pk", "iteration")[:SKELETON_ROWS]:
        of_runs[run].append((step, iteration))
    return {step: number for rows in of_runs.values() for step, number in step_numbers(rows).items()}
