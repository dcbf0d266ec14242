"""Two runs beside each other: the form that chooses the other run, and the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy, ngettext

from access_app.audit.trail import actor_of, note_objects
from access_app.db import Database
from access_app.encryption.errors import NotWhileEncrypted
from access_app.errors import InvalidInput
from access_app.models import AuditAction
from access_app.request_database import database
from access_app.visibility import ProjectScope
from messages_app.admin.filters import ProjectFilter
from messages_app.admin.keyset import KeysetAdmin
from messages_app.admin.walks import request_for
from messages_app.markdown import Prose
from messages_app.models import Message
from messages_app.queries import as_uuid, message_of_page
from messages_app.safe_text import message_duration, one_line, total_cost
from traces_app.queries.comparison import (
    MOST_NODES,
    Pair,
    compare_runs,
    replay_between,
)
from traces_app.queries.questions import last_good_run, near_good_run, question_before
from traces_app.queries.runs.listed import ListedRun, read_listed
from traces_app.queries.runs.outcome import Outcome, outcome_of_run
from traces_app.queries.session_names import read_session_names
from traces_app.queries.similar_runs import likeness_of
from traces_app.queries.word_changes import Pieces, WordChanges

from .compare_rows import read_rows, read_values
from .labels import context_in_session
from .run_page import deciding_failure_of, tokens_of
from .similar_page import SIMILAR, Likeness, SimilarRow, similar_context

MOST_CANDIDATES = 20
MOST_ALIKE = 5
QUESTION_CHARACTERS = 2_000
NAME_CHARACTERS = 60
WORDS_SECONDS = 0.5
"""After this time the other changed texts are shown without their changed words."""
_SIDES = "left", "right"


class CompareForm(forms.Form):
    """The id of the run to compare with, which may be pasted from the address of its page."""

    other = forms.CharField(max_length=500, label=gettext_lazy("Other run"))

    def __init__(self, db: Database, scope: ProjectScope, data: QueryDict | None) -> None:
        super().__init__(data)
        self.db, self.scope = db, scope

    def clean_other(self) -> Message:
        """Return the run. Raise ValidationError if there is none."""
        value = self.cleaned_data["other"].strip()
        for part in reversed(value.replace("?", "/").split("/")):
            try:
                message_id = UUID(part)
            except ValueError:
                continue
            found = message_of_page(self.db, self.scope, message_id)
            if found is not None and found.role == Message.Role.ASSISTANT:
                return found
        raise ValidationError(gettext("There is no such run. Use its ID, or the address of its page."))


@admin.action(description=gettext_lazy("Compare two selected runs"), permissions=["view"])
def compare_selected(model_admin: KeysetAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    """Lead to the comparison of two runs, the earlier one on the left. Say what to select if these are not two runs."""
    selected = request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)
    note_objects(actor_of(request), "message", action=AuditAction.READ)
    if request.POST.get("select_across") == "1":
        problem = gettext("Select exactly two runs to compare, not all that match.")
    elif len(selected) != 2:
        problem = ngettext(
            "Select exactly two runs to compare; %(number)d is selected.",
            "Select exactly two runs to compare; %(number)d are selected.",
            len(selected),
        ) % {"number": len(selected)}
    else:
        runs = queryset.filter(role=Message.Role.ASSISTANT).order_by("pk").values_list("pk", flat=True)
        if len(keys := list(runs)) == 2:
            url = reverse("admin:messages_app_message_compare", args=[keys[0]])
            return HttpResponseRedirect(f"{url}?other={keys[1]}")
        problem = gettext("Only answers of an assistant are runs. Select two of them to compare.")
    model_admin.message_user(request, problem, messages.WARNING)
    return None


def show_comparison(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> HttpResponse:
    """Show a run beside another one, or ask for the other one."""
    db = database(request)
    scope = model_admin.scope(request)
    message = message_of_page(db, scope, message_id)
    if message is None or message.role != Message.Role.ASSISTANT:
        return model_admin.missing(request)
    if "good" in request.GET and (good := _good_run_for(db, message)) is not None:
        return HttpResponseRedirect(f"{request.path}?{urlencode({'other': good})}")
    form = CompareForm(db, scope, request.GET if "other" in request.GET else None)
    found = None
    prose = Prose(raw="raw" in request.GET)
    if form.is_valid():
        try:
            found = compared_runs(db, message, form.cleaned_data["other"], as_uuid(request.GET.get("at", "")), prose)
        except NotWhileEncrypted as error:
            form.add_error("other", error.message)
    context = {
        **context_in_session(model_admin, request, message.session, gettext("Compare runs")),
        "message": message,
        "form": form,
        "prose": prose,
        "query": request.GET.get("q", ""),
        "search_example": "outcome:done agent:planner",
        **(found or searched_runs(model_admin, request, message) or candidates(db, message)),
    }
    return TemplateResponse(request, "admin/traces_app/compare_page.html", context)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of both runs."""

    label: Any
    left: Any
    right: Any
    change: str = ""
    """The change in percent, of figures that are no counts."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the runs: how it ended, and what it was asked."""

    run: Message
    name: str
    outcome: Outcome
    question: Pieces

    @property
    def has_question(self) -> bool:
        return any(text for text, _is_changed in self.question)


def compared_runs(db: Database, message: Message, other: Message, at: UUID | None, prose: Prose) -> dict[str, Any]:
    """Return the context of the page for two runs; the pair of the step, call or answer `at` is selected."""
    runs = message, other
    replay = replay_between(message.session, other.session)
    comparison = compare_runs(db, message, other)
    asked = _question_of(db, message), _question_of(db, other)
    rows = read_rows(db, comparison.pairs, runs, asked, at)
    words = WordChanges(WORDS_SECONDS)
    swap = reverse("admin:messages_app_message_compare", args=[other.pk])
    names = read_session_names(run.session for run in runs)
    figures, same = _figures(db, *runs, comparison.pairs)
    return {
        "other": other,
        "replayed_since": None if replay is None else replay.since,
        "comparison": comparison,
        "rows": rows,
        "values": read_values(db, rows.selected, runs, words, prose),
        "good_run": near_good_run(db, message) if message.has_errors else None,
        "most": MOST_NODES,
        "swapped": f"{swap}?{urlencode({'other': message.pk} | ({'at': at} if at else {}))}",
        "sides": [
            Side(run=run, name=names[run.session_id], outcome=_outcome_of(db, run), question=question)
            for run, question in zip(runs, words.of(*asked), strict=True)
        ],
        "question": asked[0],
        "likeness": _likeness(db, *runs) if all(asked) and asked[0] != asked[1] else None,
        # Those of a replay are of its last message, so they compare with nothing.
        "figures": figures if replay is None else [],
        "same": [*([gettext("question")] if asked[0] == asked[1] else []), *same] if replay is None else [],
    }


def _likeness(db: Database, message: Message, other: Message) -> Likeness | None:
    found = likeness_of(db, message.pk, other.pk)
    return None if found is None else Likeness(found=found)


def _outcome_of(db: Database, run: Message) -> Outcome:
    """Return how a run ended. At most six queries."""
    has_failed = bool(run.error) or deciding_failure_of(db, run) is not None
    return outcome_of_run(run, run.session, has_failed=has_failed)


def _figures(db: Database, message: Message, other: Message, pairs: Sequence[Pair]) -> tuple[list[Figure], list[str]]:
    """Return the figures of two runs, and what has no figure because it is the same."""
    runs = message, other
    tokens = [sum(tokens_of(db, run)) for run in runs]
    figures = [
        Figure(label=label, left=left, right=right, change=_change(*numbers))
        for label, (left, right), numbers in (
            (gettext("Failed calls"), [run.failure_count for run in runs], ()),
            (gettext("Duration"), [message_duration(run) or "—" for run in runs], [run.took_ms for run in runs]),
            (gettext("Steps"), [run.step_count for run in runs], ()),
            (gettext("Tool calls"), [run.call_count for run in runs], ()),
            (gettext("Tokens"), [f"{number:,}" for number in tokens], tokens),
            (gettext("Cost"), [total_cost(run) or "—" for run in runs], [run.cost for run in runs]),
        )
    ]
    same = []
    steps = [[node for pair in pairs if (node := getattr(pair, side)) and node.kind == "step"] for side in _SIDES]
    for label, capital, field in (
        (gettext("agent"), gettext("Agent"), "name"),
        (gettext("model"), gettext("Model"), "result"),
    ):
        left, right = (
            ", ".join(filter(None, dict.fromkeys(one_line(getattr(node, field), NAME_CHARACTERS) for node in nodes)))
            for nodes in steps
        )
        if left != right:
            figures.append(Figure(label=capital, left=left or "—", right=right or "—"))
        elif left:
            same.append(label)
    return figures, same


def _change(left: float | Decimal | None = None, right: float | Decimal | None = None) -> str:
    """Return the change of a figure in percent; "" if one is unknown, or if there is none."""
    if not left or right is None or left == right:
        return ""
    percent = round(100 * (float(right) / float(left) - 1))
    return f"{'−' if percent < 0 else '+'}{abs(percent):,} %"


def searched_runs(model_admin: KeysetAdmin, request: HttpRequest, message: Message) -> dict[str, Any]:
    """Return the context of the page that asks for the other run with those that a search finds in the list of runs of the project,
    good ones first; {} without a search."""
    if not request.GET.get("q", "").strip():
        return {}
    db = database(request)
    given = request.GET.copy()
    given.setdefault(ProjectFilter.parameter_name, message.project.slug)
    given["role"] = Message.Role.ASSISTANT
    given = model_admin.with_typed_filters(request_for(request, given)) or given
    try:
        rows = model_admin.keyset_list(request_for(request, given)).result_list
    except IncorrectLookupParameters:
        rows = []  # the page says which filter is invalid
    listed = read_listed(db, [message.pk, *(row.pk for row in rows)])
    return {
        "question": _question_of(db, message),
        "listed": listed.pop(message.pk, None),
        "found_url": model_admin.list_url(given.urlencode()),
        "found": _good_first(listed.values())[:MOST_CANDIDATES],
    }


def candidates(db: Database, message: Message) -> dict[str, Any]:
    """Return the context of the page that asks for the other run: of a run with errors good ones first, those that are
    most like this one, and the newest other ones of the session."""
    is_deleted = message.deleted_at or message.session.deleted_at
    alike = [] if is_deleted else similar_context(db, message, "everything", only_good=False)["rows"]
    good = _good_like(db, message, alike)[:MOST_ALIKE] if message.has_errors and not is_deleted else []
    listed_first = {row.listed.run.pk for row in good}
    runs = db.rows(Message.objects).filter(session_id=message.session_id, role=Message.Role.ASSISTANT)
    newest = runs.exclude(pk=message.pk).order_by("-pk").values_list("pk", flat=True)[:MOST_CANDIDATES]
    listed = read_listed(db, newest)
    return {
        "question": _question_of(db, message),
        "listed": read_listed(db, [message.pk]).get(message.pk),
        "good_run": _last_good_run(db, message),
        "good": good,
        "alike": [row for row in alike if row.listed.run.pk not in listed_first][:MOST_ALIKE],
        "candidates": _good_first(listed.values()),
    }


def _good_run_for(db: Database, message: Message) -> UUID | None:
    """Return the last good run of the question of a run, otherwise the good run that is most like it of those with a similar question;
    None if there is none, so that the reader chooses: runs that only call the same tools have little in common to compare."""
    if message.deleted_at or message.session.deleted_at:
        return None
    if (good := _last_good_run(db, message)) is not None:
        return good
    alike = similar_context(db, message, "everything", only_good=False)["rows"]
    similar = (row for row in _good_like(db, message, alike) if row.found.question_score >= SIMILAR)
    return next((row.listed.run.pk for row in similar), None)


def _good_like(db: Database, message: Message, alike: Sequence[SimilarRow]) -> list[SimilarRow]:
    """Return the runs that are like a run and ended well, the most similar ones first: those without errors, and of those `alike`,
    which is any, the ones whose failures were made good. Without calls none is a good one for a run with calls."""
    found = {row.found.id: row for row in (*similar_context(db, message, "everything", only_good=True)["rows"], *alike)}
    good = (
        row
        for row in found.values()
        if row.listed.outcome == Outcome.DONE and (row.found.call_count or not message.call_count)
    )
    return sorted(good, key=lambda row: -row.found.score)


def _good_first(listed: Iterable[ListedRun]) -> list[ListedRun]:
    # What went well tells more beside a failure.
    return sorted(listed, key=lambda each: (each.outcome == Outcome.FAILED, -each.run.pk.int))


def _last_good_run(db: Database, message: Message) -> UUID | None:
    """Return the last good run of the question of a run with errors; None if there is none, or finding it takes too long."""
    try:
        return last_good_run(db, message) if message.has_errors else None
    except InvalidInput:
        return None


def _question_of(db: Database, run: Message) -> str:
    """Return the beginning of what the user said last before a run, or ""."""
    return one_line("".join(question_before(db, run.session_id, run.pk, QUESTION_CHARACTERS)), QUESTION_CHARACTERS)
