"""The page of the runs that are most like a run, or that failed in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.db import Database
from access_app.encryption.errors import NotWhileEncrypted
from access_app.errors import InvalidInput
from access_app.request_database import database
from access_app.visibility import ProjectScope
from messages_app.admin.keyset import KeysetAdmin
from messages_app.markdown import Prose
from messages_app.models import Message
from messages_app.queries import message_of_page
from messages_app.safe_text import one_line
from traces_app.models import ToolCall
from traces_app.queries.comparison import compare
from traces_app.queries.filters import SimilarFilterSet
from traces_app.queries.first_difference import first_difference
from traces_app.queries.runs.addresses import url_in_run
from traces_app.queries.runs.listed import ListedRun, read_listed
from traces_app.queries.runs.outline import NAME_CHARACTERS, RowWords, read_words
from traces_app.queries.schemas.similar_runs import SimilarBy, SimilarRun
from traces_app.queries.similar_runs import similar_runs
from tracesite_sdk.records import ids

from .labels import context_in_session
from .run_outline import good_call_like
from .run_page import MOST_COUNTED, deciding_failure_of, failures_like, last_success_of_tool

RUNS_LISTED = 20
CALLS_LISTED = 5
CALLS_READ = 200
"""The newest failed calls, of which the last one of each run is listed."""
LEAST_SCORE = 0.3
"""Runs that are less alike are not listed."""
_SAME, SIMILAR = 0.995, 0.5
"""From which score on a part is called the same, and similar."""
_PARTS = (
    ("question_score", gettext_lazy("same question"), gettext_lazy("similar question")),
    ("tools_score", gettext_lazy("same tools"), gettext_lazy("similar tools")),
    ("errors_score", gettext_lazy("same errors"), gettext_lazy("similar errors")),
)


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """How much another run is like the one of the page, in words."""

    found: SimilarRun

    @property
    def percent(self) -> str:
        """Never 100% unless all parts are the same."""
        return f"{int(100 * self.found.score + 1e-6)}%"

    @property
    def common(self) -> list[tuple[Any, bool]]:
        """Return the words that the runs have in common, and whether they are the same."""
        scores = [(getattr(self.found, name), same, similar) for name, same, similar in _PARTS]
        return [
            (same, True) if score >= _SAME else (similar, False) for score, same, similar in scores if score >= SIMILAR
        ]


@dataclass(frozen=True, kw_only=True)
class SimilarRow(Likeness):
    """A run that is like the one of the page."""

    listed: ListedRun
    compare_url: str


@dataclass(frozen=True, kw_only=True)
class SimilarCall:
    """A call of another run: with the same error, or one that succeeded."""

    url: str
    tool: str
    words: RowWords
    listed: ListedRun


def send_similar_calls(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID, node_id: UUID) -> HttpResponse:
    """Send how often the error of a failed call occurred, the newest other runs with it, and a call of its tool that succeeded, as
    a part for the panel."""
    db, scope = database(request), model_admin.scope(request)
    calls = db.rows(ToolCall.with_deleted).select_related("project", "tool")
    failed = calls.filter(pk=node_id, message_id=message_id, status=ToolCall.Status.ERROR).first()
    message = message_of_page(db, scope, message_id)
    if failed is None or message is None:
        raise Http404
    counted, keys = failures_like(db, failed)
    others = db.rows(ToolCall.objects).filter(pk__in=keys[:CALLS_READ]).exclude(message=message_id).order_by("-pk")
    newest: dict[UUID, UUID] = {}
    for key, run in others.values_list("pk", "message_id"):
        newest.setdefault(run, key)
    try:
        good = good_call_like(db, scope, message, node_id)
    except InvalidInput:
        good = None
    success = good or last_success_of_tool(db, failed)
    rows = calls_shown(db, [*[*newest.values()][:CALLS_LISTED], *([success] if success else [])])
    example = rows.pop(success, None) if success else None
    context = {
        "counted": counted,
        "first": ids.created_at_of(keys[-1]) if 1 < len(keys) <= MOST_COUNTED else None,
        "last": ids.created_at_of(keys[0]) if len(keys) > 1 else None,
        "calls": rows.values(),
        "example": example,
        "is_same_question": good is not None,
        "compare_url": example and _compare_url(message_id, example.listed.run.pk, message.deleted_at),
    }
    return TemplateResponse(request, "admin/traces_app/similar_calls.html", context)


def calls_shown(db: Database, keys: Sequence[UUID]) -> dict[UUID, SimilarCall]:
    """Return calls with their runs by their ids. One that was deleted meanwhile is left out. Ten queries."""
    found = db.rows(ToolCall.objects).filter(pk__in=keys).values_list("pk", "message_id", "tool__name")
    of_calls = {key: (run, tool) for key, run, tool in found}
    runs = [run for run, _tool in of_calls.values()]
    listed = read_listed(db, runs)
    words = read_words(db, list(of_calls), message_id__in=runs)
    return {
        key: SimilarCall(
            url=url_in_run(of_calls[key][0], key),
            tool=one_line(of_calls[key][1], NAME_CHARACTERS) or _("(no name)"),
            words=words.get(str(key), RowWords()),
            listed=listed[of_calls[key][0]],
        )
        for key in keys
        if key in of_calls and of_calls[key][0] in listed
    }


def _compare_url(message_id: UUID, other: UUID, deleted_at: datetime | None) -> str:
    """Return the URL of the comparison of two runs; "" if the first one is in the trash, or both are the same."""
    if deleted_at is not None or message_id == other:
        return ""
    return reverse("admin:messages_app_message_compare", args=[message_id], query={"other": str(other)})


def show_similar(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> HttpResponse:
    """List the runs that are most like a run, or that failed in the same way, and show one of them."""
    db = database(request)
    message = message_of_page(db, model_admin.scope(request), message_id, deleted_too=False)
    if message is None or message.role != Message.Role.ASSISTANT:
        return model_admin.missing(request)
    asked = request.GET.get("by")
    by: SimilarBy = "errors" if asked == "errors" else "everything"
    titles = {"errors": _("Failures like this one"), "good": _("Good runs like this one")}
    title = titles.get(asked or "", _("Runs like this one"))
    similar = similar_context(db, message, by, only_good=asked == "good")
    rows = similar["rows"]
    selected = next(
        (row for row in rows if str(row.listed.run.pk) == request.GET.get("run")), rows[0] if rows else None
    )
    context = {
        **context_in_session(model_admin, request, message.session, title),
        "message": message,
        "prose": Prose(raw="raw" in request.GET),
        **similar,
        "selected": selected,
        **(_COMPARED[by](db, similar["listed"], selected.listed) if selected else {}),
    }
    return TemplateResponse(request, "admin/traces_app/similar_page.html", context)


def _first_difference(db: Database, one: ListedRun, other: ListedRun) -> dict[str, Any]:
    """Return the context of the first difference of two runs beside their answers; empty if there is none. Four queries."""
    try:
        pairs = compare(db, one.run.pk, other.run.pk).pairs
    except NotWhileEncrypted:
        return {}
    place = first_difference(pairs, (one.question, other.question)).place
    if place is None:
        return {}
    nodes = pairs[place].left, pairs[place].right
    return {
        "differs_at": next(node.id for node in nodes if node),
        "sides": [
            (label, node.name, node.text if node.kind == "step" else node.result or node.text)
            if node
            else (label, "", "")
            for label, node in zip((_("This run"), _("The selected run")), nodes, strict=True)
        ],
    }


def _failures(db: Database, one: ListedRun, other: ListedRun) -> dict[str, Any]:
    """Return the context of the failures that decided two runs, once if they are the same. At most twelve queries."""
    failures = [deciding_failure_of(db, listed.run) for listed in (one, other)]
    tools = [failure.tool if failure else "" for failure in failures]
    if tools[0] == tools[1] and one.error == other.error:
        return {"sides": [("", tools[0], one.error)]}
    labels = _("This run"), _("The selected run")
    return {"sides": list(zip(labels, tools, (one.error, other.error), strict=True))}


_COMPARED = {"everything": _first_difference, "errors": _failures}


def similar_context(db: Database, message: Message, by: SimilarBy, *, only_good: bool) -> dict[str, Any]:
    """Return the context of the page, of all runs or only of those that ended without errors; without `found` if comparing the runs took too long."""
    filters = SimilarFilterSet(QueryDict("has_errors=false&is_completed=true" if only_good else ""), mask=None)
    rows = filters.found(db, ProjectScope(frozenset([message.project_id])))
    try:
        found = similar_runs(db, message.pk, rows, RUNS_LISTED, by, is_filtered=only_good)
    except InvalidInput:
        found = None
    alike = [one for one in (found.results if found else ()) if one.score >= LEAST_SCORE or by == "errors"]
    compare = reverse("admin:messages_app_message_compare", args=[message.pk])
    listed = read_listed(db, [message.pk, *(UUID(one.id) for one in alike)])
    return {
        "by": by,
        "only_good": only_good,
        "found": found,
        "listed": listed[message.pk],
        "rows": [
            SimilarRow(
                found=one,
                listed=listed[UUID(one.id)],
                compare_url=f"{compare}?{urlencode({'other': one.id})}",
            )
            for one in alike
            if UUID(one.id) in listed  # not deleted meanwhile
        ],
    }
