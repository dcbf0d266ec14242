"""The action that gives one score to all selected sessions, messages or tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import model_ngettext
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.db import Database
from access_app.masking import masking_of
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import Message
from messages_app.safe_text import one_line
from traces_app.ingest.decode import invalid
from traces_app.ingest.scores import (
    PlacedScore,
    ScoreTarget,
    identity_of,
    place_of_message,
    places_of_calls,
    store_scores,
)
from traces_app.models import ToolCall
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score

NAME_CHARACTERS = 80
_YES_AND_NO = {"yes": True, "true": True, "是": True, "no": False, "false": False, "否": False}


class ScoreForm(forms.Form):
    """A score without what it is about; `cleaned_data["score"]` is its record."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=512)
    value = forms.CharField(
        label=gettext_lazy("Value"),
        max_length=512,
        required=False,
        help_text=gettext_lazy("A number, yes or no, or the name of a category."),
    )
    comment = forms.CharField(
        label=gettext_lazy("Comment"), max_length=20_000, required=False, widget=forms.Textarea(attrs={"rows": 3})
    )

    def clean(self) -> dict[str, Any]:
        fields = self.cleaned_data
        if not (fields.get("value") or fields.get("comment")):
            raise ValidationError(_("Give a value or a comment."))
        if "name" in fields:
            given = {"name": fields["name"], "value": _value_of(fields.get("value", ""))}
            given |= {"comment": fields.get("comment") or None, "source": "person"}
            try:
                fields["score"] = msgspec.convert(given, records.Score)
            except msgspec.ValidationError as error:
                reason = invalid(error, given, records.Score).message
                raise ValidationError(_("This score is not valid: %(reason)s") % {"reason": reason}) from error
        return fields


def _value_of(text: str) -> bool | float | str | None:
    if text.lower() in _YES_AND_NO:
        return _YES_AND_NO[text.lower()]
    try:
        return float(text)
    except ValueError:
        return text or None


@admin.action(description=gettext_lazy("Add a score to selected %(verbose_name_plural)s"), permissions=["editor"])
def score_selected(model_admin: KeysetAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    """Ask for a score, then give it to the rows; one of the same name that the user gave them so before is replaced."""
    db = Database.of(queryset)
    selection = model_admin.bulk.selection(model_admin, request, queryset)
    form = ScoreForm(request.POST if request.POST.get("post") else None)
    if form.is_valid():
        score = msgspec.structs.replace(form.cleaned_data["score"], author=request.user.get_username())
        rows = list(selection.rows)
        _give(db, score, rows)
        for row in rows:
            model_admin.log_change(request, row, [{"added": {"name": _("score"), "object": score.name}}])
        text = ngettext(
            "%(count)s %(rows)s has the score “%(name)s” now.",
            "%(count)s %(rows)s have the score “%(name)s” now.",
            len(rows),
        )
        words = {"rows": model_ngettext(model_admin.opts, len(rows)), "name": one_line(score.name, NAME_CHARACTERS)}
        model_admin.message_user(request, text % {"count": f"{len(rows):,}", **words}, messages.SUCCESS)
        return None
    context = {
        **model_admin.admin_site.each_context(request),
        **model_admin.bulk.confirmation(model_admin, selection),
        "title": _("Add a score"),
        "opts": model_admin.opts,
        "form": form,
        "rows_named": model_ngettext(model_admin.opts, len(selection.rows)),
    }
    return TemplateResponse(request, "admin/traces_app/score_selected.html", context)


def _give(db: Database, score: records.Score, rows: Sequence[Any]) -> None:
    """Store the score for each of `rows`, which are of one kind: all of a project or none."""
    of_project: dict[int, list[PlacedScore]] = {}
    for row, place in _places(db, rows):
        about: list[object] = [place.session_id, place.trace_id, place.message_name or place.message_id]
        if place.call_id is not None:
            about.append(place.span_id or place.call_id)
        identity = identity_of("admin", score.author, score.name, *about)
        of_row = msgspec.structs.replace(score, external_id=identity)
        redacted = redact_score(of_row, masking_of(row.project_id))
        of_project.setdefault(row.project_id, []).append(PlacedScore(redacted=redacted, place=place))
    for project_id, scores in of_project.items():
        store_scores(db, project_id, scores)


def _places(db: Database, rows: Sequence[Any]) -> list[tuple[Any, ScoreTarget]]:
    # Messages and calls with the names by which a trace that is made anew finds them again.
    keys = [row.pk for row in rows]
    columns = ("project_id", "session_id", "external_id", "request_id", "metadata")
    if rows and isinstance(rows[0], ToolCall):
        of_messages = ("project_id", "call_id", *(f"message__{name}" for name in columns))
        calls = list(
            db.rows(ToolCall.objects).filter(pk__in=keys).select_related("message").order_by().only(*of_messages)
        )
        return list(zip(calls, places_of_calls(db, calls), strict=True))
    if rows and isinstance(rows[0], Message):
        named = db.rows(Message.objects).filter(pk__in=keys)
        return [(row, place_of_message(row)) for row in named.order_by().only(*columns)]
    return [(row, ScoreTarget(session_id=row.pk)) for row in rows]
