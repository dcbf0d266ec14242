"""Two runs beside each other: the form that chooses the other run, and the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.core.exceptions import ValidationError
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.formats import localize
from django.utils.translation import gettext, gettext_lazy, ngettext

from access_app.audit.trail import actor_of, note_objects
from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.models import AuditAction
from access_app.request_database import database
from access_app.visibility import ProjectScope
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import Message
from messages_app.queries import message_of_page
from messages_app.safe_text import message_duration, one_line, tokens_in_words, total_cost_in_words
from messages_app.sql.beginnings import Beginning
from traces_app.queries.comparison import (
    MOST_NODES,
    Comparison,
    Node,
    Pair,
    Replay,
    compare,
    compare_replay,
    replay_between,
)
from traces_app.queries.questions import MESSAGES_SEARCHED, last_good_run, question_before
from traces_app.queries.word_changes import Pieces, WordChanges

from .labels import context_in_session, session_name
from .similar_page import similar_context

MOST_CANDIDATES = 20
MOST_ALIKE = 5
ANSWER_CHARACTERS = 2_000
TEXT_CHARACTERS = 300
"""The longest text of the arguments, thought or result of a step or call."""
WORDS_SECONDS = 0.5
"""After this time the other changed texts are shown without their changed words."""


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
    if "good" in request.GET:
        return _compare_with_good(model_admin, request, message)
    context = {
        **context_in_session(model_admin, request, message.session, gettext("Compare runs")),
        "message": message,
        "form": CompareForm(db, scope, request.GET if "other" in request.GET else None),
    }
    if context["form"].is_valid():
        other = context["form"].cleaned_data["other"]
        context |= compared_runs(db, message, other)
    else:
        context |= candidates(db, message)
    return TemplateResponse(request, "admin/traces_app/compare_page.html", context)


def _compare_with_good(model_admin: KeysetAdmin, request: HttpRequest, message: Message) -> HttpResponse:
    """Lead to the comparison with the last good run of the same question, or say that there is none and list good runs like this one.

    It is looked for when somebody asks, because each failed run would pay for it otherwise.
    """
    db = database(request)
    try:
        good = last_good_run(db, message)
    except InvalidInput:
        slow = gettext("Finding a good run of the same question took too long.")
        model_admin.message_user(request, slow, messages.WARNING)
    else:
        if good is not None:
            return HttpResponseRedirect(f"{request.path}?other={good}")
        none = gettext("No good run answers exactly the same question (newest %(number)s messages).")
        model_admin.message_user(request, none % {"number": localize(MESSAGES_SEARCHED)}, messages.INFO)
        if not message.deleted_at and not message.session.deleted_at:
            return HttpResponseRedirect(f"{reverse('admin:messages_app_message_similar', args=[message.pk])}?by=good")
    return HttpResponseRedirect(request.path)


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A figure of both runs."""

    label: Any
    left: Any
    right: Any

    @property
    def is_same(self) -> bool:
        return bool(self.left == self.right)


@dataclass(frozen=True, kw_only=True)
class Side:
    """A step or call of one of the runs, with its texts in pieces."""

    node: Node
    number: int
    """The number of a step, counted from 1 on this side; 0 for a call."""
    text: Pieces
    result: Pieces


@dataclass(frozen=True, kw_only=True)
class PairRow:
    """Two steps or calls that are shown beside each other."""

    pair: Pair
    left: Side | None
    right: Side | None
    is_first_difference: bool


def _rows(pairs: Iterable[Pair], words: WordChanges) -> Iterator[PairRow]:
    numbers, differs = [0, 0], False
    for pair in pairs:
        for side, node in enumerate((pair.left, pair.right)):
            numbers[side] += node is not None and node.kind == "step"
        is_first = not differs and pair.change != "same"
        yield _row(pair, words, numbers, is_first_difference=is_first)
        differs = differs or is_first


def _row(pair: Pair, words: WordChanges, numbers: Sequence[int], *, is_first_difference: bool) -> PairRow:
    texts, results = (
        words.of(*(one_line(getattr(node, name) if node else "", TEXT_CHARACTERS) for node in (pair.left, pair.right)))
        if pair.change == "changed"
        else [
            [(one_line(getattr(node, name), TEXT_CHARACTERS), False)] if node else ()
            for node in (pair.left, pair.right)
        ]
        for name in ("text", "result")
    )
    left, right = (
        Side(node=node, number=number if node.kind == "step" else 0, text=text, result=result) if node else None
        for node, number, text, result in zip((pair.left, pair.right), numbers, texts, results, strict=True)
    )
    return PairRow(pair=pair, left=left, right=right, is_first_difference=is_first_difference)


def compared_runs(db: Database, message: Message, other: Message) -> dict[str, Any]:
    """Return the context of the page for two runs."""
    swap = reverse("admin:messages_app_message_compare", args=[other.pk])
    replay = replay_between(message.session, other.session)
    comparison = compare(db, message.pk, other.pk) if replay is None else _compared_replay(db, message, other, replay)
    words = WordChanges(WORDS_SECONDS)
    rows = list(_rows(comparison.pairs, words))
    answers = words.of(*(one_line(run.error or run.content, ANSWER_CHARACTERS) for run in (message, other)))
    asked = _question_of(db, message), _question_of(db, other)
    questions = words.of(*asked)
    return {
        "other": other,
        "replayed_since": None if replay is None else replay.since,
        "comparison": comparison,
        "rows": rows,
        "differs": any(row.is_first_difference for row in rows),
        "most": MOST_NODES,
        "swapped": f"{swap}?other={message.pk}",
        "sides": [
            {
                "message": run,
                "name": session_name(run.session),
                "question": question,
                "answer": answer,
            }
            for run, question, answer in zip((message, other), questions, answers, strict=True)
        ],
        "is_same_question": asked[0] == asked[1],
        "is_same_answer": (message.content, message.error) == (other.content, other.error),
        # Those of a replay are of its last message, so they compare with nothing.
        "facts": []
        if replay is not None
        else [
            Fact(label=label, left=read(message), right=read(other))
            for label, read in (
                (gettext("Duration"), message_duration),
                (gettext("Steps"), lambda run: run.step_count),
                (gettext("Tool calls"), lambda run: run.call_count),
                (gettext("Failed calls"), lambda run: run.failure_count),
                (gettext("Tokens"), lambda run: tokens_in_words(run.input_tokens, run.output_tokens)),
                (gettext("Cost"), lambda run: total_cost_in_words(run) or "—"),
            )
        ],
    }


def _compared_replay(db: Database, message: Message, other: Message, replay: Replay) -> Comparison:
    """Return the comparison of two sessions of which one has replayed the other one: a replay has a message for each node."""
    left, right = (
        list(
            db.rows(Message.objects)
            .filter(session_id=run.session_id)
            .order_by("pk")
            .values_list("pk", flat=True)[:MOST_NODES]
        )
        for run in (message, other)
    )
    return compare_replay(db, left, right, replay)


def candidates(db: Database, message: Message) -> dict[str, Any]:
    """Return the context of the page that asks for the other run: those that are most like this one, and the newest other ones of the session."""
    is_deleted = message.deleted_at or message.session.deleted_at
    alike = [] if is_deleted else similar_context(db, message, "everything", only_good=False)["rows"]
    runs = (
        db.rows(Message.objects)
        .filter(session_id=message.session_id, role=Message.Role.ASSISTANT)
        .exclude(pk=message.pk)
    )
    question = Subquery(question_before(db, message.session_id, OuterRef("pk"), 200))
    newest = runs.order_by("-pk").annotate(excerpt=Beginning("content", 200), question=question)[:MOST_CANDIDATES]
    return {"question": _question_of(db, message), "alike": alike[:MOST_ALIKE], "candidates": newest}


def _question_of(db: Database, run: Message) -> str:
    """Return the beginning of what the user said last before a run, or ""."""
    return one_line("".join(question_before(db, run.session_id, run.pk, ANSWER_CHARACTERS)), ANSWER_CHARACTERS)
