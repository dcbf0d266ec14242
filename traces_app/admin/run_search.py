"""The search within a run or session, for its path and for the form of the text of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.safe_text import one_line
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.runs.outline import NAME_CHARACTERS
from traces_app.queries.runs.reading_order import step_numbers
from traces_app.queries.search.found import Hit
from traces_app.queries.search.in_run import OF_RUN, find_in_runs
from traces_app.queries.search.query import parse
from traces_app.queries.search.texts import Kind

from .run_outline import sees
from .run_tree import Key

MATCHES_LISTED = 50
"""In the text of a run."""
FIELD_LABELS: Mapping[str, str | Promise] = {
    "agent": gettext_lazy("Agent"),
    "args": gettext_lazy("Arguments"),
    "content": gettext_lazy("Content"),
    "error": gettext_lazy("Error"),
    "event": gettext_lazy("Event"),
    "id": gettext_lazy("Call ID"),
    "model": gettext_lazy("Model"),
    "output": gettext_lazy("Output"),
    "reference": gettext_lazy("Reference"),
    "thought": gettext_lazy("Thought"),
    "title": gettext_lazy("Title"),
    "tool": gettext_lazy("Tool"),
}


@dataclass(frozen=True, kw_only=True)
class TermMatch:
    """A place where a term was found."""

    field: str
    """In the language of the reader."""
    before: str
    match: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Match:
    """A step or call that has all terms."""

    id: Key
    is_call: bool
    places: Sequence[TermMatch]
    """One for each term."""
    name: str = ""
    """The number of the step, and the tool of a call; empty for the explorer, which knows them."""


@dataclass(frozen=True, kw_only=True)
class RunSearch:
    """The answer to a search."""

    query: str
    error: str
    """The fault of the query, empty if there is none."""
    matches: Sequence[Match]
    is_cut: bool


def send_matches(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> HttpResponse:
    """Send the steps and calls of a run that have the terms of `q` as JSON.

    A fault of the query is in the answer, because browsers log other statuses as errors and the reader is still typing.
    """
    db = database(request)
    if not sees(model_admin, request, message_id):
        raise Http404
    found = search_runs(db, [message_id], request.GET.get("q", ""))
    return HttpResponse(msgspec.json.encode(found), content_type="application/json")


def search_runs(
    db: Database, message_ids: Sequence[UUID], query: str, *, kinds: Collection[Kind] = OF_RUN, named: int = 0
) -> RunSearch:
    """Return the matches in the runs of messages; with `named`, those of a single run, the first so many in reading order, each with
    its name."""
    try:
        found = find_in_runs(db, parse(query), message_ids, kinds)
    except InvalidInput as error:
        return RunSearch(query=query, error=error.message, matches=[], is_cut=False)
    names = _names(db, message_ids[0], found.hits) if named and found.hits else {}
    order = {row: place for place, row in enumerate(names)}
    hits = sorted(found.hits.items(), key=lambda hit: order.get(hit[0], len(order)))
    shown = hits[:named] if named else hits
    return RunSearch(
        query=query,
        error="",
        matches=[
            Match(
                id=str(row),
                is_call=places[0].kind == Kind.CALL,
                places=[place_of(hit) for hit in places],
                name=names.get(row, ""),
            )
            for row, places in shown
        ],
        is_cut=found.is_cut or len(shown) < len(hits),
    )


def place_of(hit: Hit) -> TermMatch:
    """Return a place with the label of its field."""
    return TermMatch(field=str(FIELD_LABELS[hit.field]), before=hit.before, match=hit.match, after=hit.after)


def _names(db: Database, message_id: UUID, rows: Collection[UUID]) -> dict[UUID, str]:
    """Return the names of the steps of a run and of these calls, in reading order. Two queries."""
    steps = list(
        db.rows(AgentStep.with_deleted)
        .filter(message_id=message_id)
        .order_by("iteration", "ordinal", "pk")
        .values_list("pk", "iteration")
    )
    calls: dict[UUID, list[tuple[UUID, str]]] = defaultdict(list)
    found = db.rows(ToolCall.with_deleted).filter(pk__in=rows).order_by("position", "pk")
    for key, step, tool in found.values_list("pk", "step_id", "tool__name"):
        calls[step].append((key, one_line(tool, NAME_CHARACTERS) or _("(no name)")))
    names: dict[UUID, str] = {}
    for step, number in step_numbers(steps).items():
        names[step] = _("Step %(number)s") % {"number": number}
        names |= {key: f"{names[step]} · {tool}" for key, tool in calls[step]}
    return names
