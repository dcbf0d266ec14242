"""The pages of a project's masking rules: what they make of a text, what they would change in stored traces, and applying them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from time import monotonic
from typing import Any, ClassVar, Final, NamedTuple
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.humanize.templatetags.humanize import intcomma
from django.core.exceptions import ValidationError
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.admin import MaskingRuleForm
from access_app.admin_roles import Page, RoleAdmin
from access_app.audit.trail import actor_of, note_counts, note_objects
from access_app.db import Database
from access_app.masking import MOST_RULES, RuleRow, check_masking, compiled, stored_rules
from access_app.models import AuditAction, MaskingKind, MaskingMoment, MaskingRule, Project, Role
from access_app.people import with_people
from access_app.request_database import database
from access_app.visibility import visible_to
from messages_app.admin.time_zones import with_zone
from messages_app.models import Message, Session
from traces_app.maintenance.masking import Change, preview_masking
from traces_app.maintenance.masking_runs import request_run
from traces_app.models import MaskingRun, Score, ToolCall, ToolResult
from traces_app.queries.session_names import read_names_around, read_session_names
from tracesite_sdk.records import ids
from tracesite_sdk.redaction.engine import redact
from tracesite_sdk.redaction.presets import PRESETS
from tracesite_sdk.redaction.rules import MARKER

from .labels import counts_in_words, title_of

SECONDS: Final = 5
"""After these a preview reads no more."""
SHOWN: Final = 50
"""Rows with changes that a preview shows."""
RUNS: Final = 10
LONGEST_TEXT: Final = 50_000
"""Characters of a text to try."""
_CHARACTERS: Final = 160
_ANOTHER: Final = "+"
"""In place of the name of a rule, which has no such character."""


class Difference(NamedTuple):
    """A changed value of a preview."""

    place: str
    paths: str
    rules: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class PreviewRow:
    """A message or session with what would change in it."""

    url: str
    name: str
    kind: str
    differences: list[Difference]


@dataclass(frozen=True, kw_only=True)
class Preview:
    """The changes that rules would make."""

    messages: int
    """How many were read."""
    sessions: int
    is_whole: bool
    """False if time was up before everything was read."""
    back_to: datetime | None
    """The time of the oldest message that was read."""
    rows: list[PreviewRow]
    has_more: bool
    removed: list[tuple[str, str]]
    """What each rule would remove, in words, with its name."""
    spans: int
    """How many would change."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What rules make of a text."""

    label: str
    text: str
    removed: dict[str, int]
    """Numbers of values, by name of the rule."""


class TriedRuleForm(MaskingRuleForm):
    """A rule of the page of a project, which needs no name to be tried."""

    name = forms.CharField(required=False, max_length=64)

    class Meta(MaskingRuleForm.Meta):
        fields: ClassVar[tuple[str, ...]] = ("kind", "value", "when", "enabled")
        """Without the name, so that it is not checked as one that is stored."""

    def clean_name(self) -> str:
        return self.cleaned_data["name"] or self.title

    @property
    def title(self) -> str:
        """The name as it was sent, or the number of the row."""
        number = int((self.prefix or "-0").rpartition("-")[2]) + 1
        return self["name"].data or _("Rule %(number)s") % {"number": number}

    def faults(self) -> Iterator[str]:
        """Yield the errors, each with the names of the rule and of the field."""
        for name, errors in self.errors.items():
            place = f"{self.title}, {self.fields[name].label}" if name in self.fields else self.title
            for error in errors:
                yield f"{place}: {error}"


EditedRules = forms.inlineformset_factory(Project, MaskingRule, form=TriedRuleForm, extra=0, max_num=MOST_RULES)
"""The rules of a project as its page sends them."""


class RulesForm(forms.Form):
    """The stored rules to preview or to apply."""

    rule = forms.ChoiceField(label=gettext_lazy("Rules"), required=False)

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.project = project
        names = project.masking_rules.order_by("id").values_list("name", flat=True)
        self.choices = [("", _("All rules for new data")), *((name, name) for name in names)]
        self.fields["rule"].choices = self.choices  # type: ignore[attr-defined] # it is a ChoiceField

    @property
    def rows(self) -> tuple[RuleRow, ...]:
        """The chosen rules. Empty if the project has none for new data."""
        return stored_rules(self.project, self.cleaned_data["rule"] or None)


class PreviewForm(RulesForm):
    """The rules to preview: stored ones, or one that is not stored yet."""

    kind = forms.ChoiceField(
        label=gettext_lazy("Kind"), required=False, choices=[("", "---------"), *MaskingKind.choices]
    )
    value = forms.CharField(label=gettext_lazy("Name or pattern"), required=False, max_length=500)
    value.widget.attrs["list"] = "masking-presets"

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(project, *args, **kwargs)
        another = (_ANOTHER, _("Another rule, which is not stored yet"))
        self.fields["rule"].choices = [*self.choices, another]  # type: ignore[attr-defined] # it is a ChoiceField

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if fields.get("rule") == _ANOTHER:
            for name in ("kind", "value"):
                if not fields.get(name) and name not in self.errors:
                    self.add_error(name, _("This is needed to try another rule."))
            if not self.errors:
                check_masking(fields["kind"], fields["value"])
        return fields

    @property
    def is_stored(self) -> bool:
        """Whether the rules of a valid form are stored ones, which can be applied."""
        return bool(self.cleaned_data["rule"] != _ANOTHER)

    @property
    def rows(self) -> tuple[RuleRow, ...]:
        if self.cleaned_data["rule"] == _ANOTHER:
            return ((_("another rule"), self.cleaned_data["kind"], self.cleaned_data["value"]),)
        return super().rows


class ApplyForm(RulesForm):
    """The stored rules to apply, as they were previewed, with the typed name of the project."""

    previewed = forms.CharField(required=False)
    sure = forms.CharField()

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if not self.errors and fields["previewed"] != _digest_of(self.rows):
            self.add_error(
                None, _("These rules were not previewed as they are now. Look at the preview, then apply them.")
            )
        return fields

    def clean_sure(self) -> str:
        typed: str = self.cleaned_data["sure"]
        if typed != self.project.slug:
            raise ValidationError(_("Type the short name of the project."))
        return typed


def show_masking(model_admin: RoleAdmin, request: HttpRequest, project_pk: int) -> HttpResponse:
    """Show what the rules of a project would change; apply them."""
    db = database(request)
    project = _project_or_404(model_admin, request, project_pk)
    preview, form, apply = None, PreviewForm(project), None
    if request.method == "POST":
        apply = ApplyForm(project, request.POST) if "apply" in request.POST else None
        if apply is not None and _is_usable(apply) and _apply(model_admin, request, apply):
            return HttpResponseRedirect(reverse("admin:traces_app_maskingrun_project", args=[project.pk]))
        if apply is None or "rule" not in apply.errors:
            form = PreviewForm(project, request.POST)
        if form.is_bound and _is_usable(form):
            preview = _preview(db, project.pk, form.rows)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Masking of stored traces"),
        "opts": model_admin.opts,
        "project": project,
        "form": form,
        "apply": apply,
        "preview": preview,
        "to_apply": form.rows if preview and form.is_stored else (),
        "previewed": _digest_of(form.rows) if preview else "",
        "presets": PRESETS,
        "seconds": SECONDS,
        "requested": with_zone(_("Requested")),
        "runs": [
            (run, _removed_by(run))
            for run in with_people(MaskingRun.objects.filter(project=project), "requested_by").order_by("-pk")[:RUNS]
        ],
    }
    return TemplateResponse(request, "admin/traces_app/masking_page.html", context)


def try_rules(model_admin: RoleAdmin, request: HttpRequest, project_pk: int) -> HttpResponse:
    """Show what rules as they are edited on the page of their project, whose form is sent, make of a text. Store nothing."""
    project = _project_or_404(model_admin, request, project_pk)
    if request.method != "POST":
        return HttpResponseRedirect(reverse("admin:access_app_project_change", args=[project.pk]))
    edited = EditedRules(request.POST, instance=project)
    text = request.POST.get("text", "")
    errors, trials = [], []
    if not edited.is_valid():
        errors = [*edited.non_form_errors(), *(fault for row in edited.forms for fault in row.faults())]
    elif len(text) > LONGEST_TEXT:
        errors = [_("The text may have %(count)s characters.") % {"count": f"{LONGEST_TEXT:,}"}]
    else:
        rules = [row.cleaned_data for row in edited.forms if _is_tried(row.cleaned_data)]
        stored = [row for row in rules if row["when"] == MaskingMoment.STORE]
        trials = [_trial(_("It is stored as"), text, stored)]
        if len(rules) > len(stored):
            trials.append(_trial(_("A viewer reads"), text, rules))
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Try masking rules"),
        "opts": model_admin.opts,
        "project": project,
        "errors": errors,
        "trials": trials,
        "marker": [MARKER],
    }
    return TemplateResponse(request, "admin/traces_app/masking_trial.html", context)


def _is_tried(rule: Mapping[str, Any]) -> bool:
    return bool(rule.get("enabled")) and not rule.get("DELETE")


def _trial(label: str, text: str, rules: Iterable[Mapping[str, Any]]) -> Trial:
    """Return what rules make of a text. JSON is searched as the values of a trace are, by its keys and places."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    is_json = isinstance(value, dict | list)
    rows = tuple((rule["name"], rule["kind"], rule["value"]) for rule in rules)
    clean, receipts = redact(value if is_json else text, compiled(rows))
    removed, names = Counter[str](), {name for name, _kind, _value in rows}
    for receipt in receipts:
        removed[rule_label(receipt.rule, names)] += receipt.count
    after = json.dumps(clean, indent=2, ensure_ascii=False) if is_json else str(clean)
    return Trial(label=label, text=after, removed=dict(sorted(removed.items())))


def _project_or_404(model_admin: RoleAdmin, request: HttpRequest, project_pk: int) -> Project:
    project = visible_to(Project.objects.all(), model_admin.scope(request), "pk").filter(pk=project_pk).first()
    if project is None:
        raise Http404
    note_objects(actor_of(request), "maskingrun", project_id=project.pk)
    return project


def _is_usable(form: RulesForm) -> bool:
    """Return whether the chosen rules can be applied; otherwise the form has an error."""
    if not form.is_valid():
        return False
    try:
        if not form.rows:
            raise ValueError(_("The project has no rule for new data that is enabled."))
        compiled(form.rows)
    except ValueError as error:
        form.add_error("rule", ValidationError(str(error)))
        return False
    return True


def _digest_of(rows: tuple[RuleRow, ...]) -> str:
    """Return what tells whether rules are those of a preview."""
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _apply(model_admin: RoleAdmin, request: HttpRequest, form: RulesForm) -> bool:
    assert request.user.is_authenticated, "the admin lets nobody else in"
    run, is_new = request_run(form.project, form.rows, request.user)
    if not is_new:
        form.add_error(None, _("Rules are being applied to this project already. Wait until that is finished."))
        return False
    note_counts(actor_of(request), rules=len(form.rows))
    note_objects(actor_of(request), "maskingrun", [run.pk], project_id=form.project.pk, action=AuditAction.CHANGE)
    model_admin.message_user(request, _("The rules will be applied in the background."), messages.SUCCESS)
    return True


@admin.register(MaskingRun)
class MaskingRunAdmin(RoleAdmin):
    """Two pages for each project, to which the page of the project leads."""

    view_role = Role.OWNER

    def get_urls(self) -> list[URLPattern]:
        return [
            Page("<int:project_pk>/", show_masking, "project").url(self),
            Page("<int:project_pk>/try/", try_rules, "try").url(self),
        ]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return False  # it has no list


def _preview(db: Database, project_id: int, rows: tuple[RuleRow, ...]) -> Preview:
    """Read as `apply_masking` does, the newest messages first, for SECONDS."""
    until = monotonic() + SECONDS
    read, values = Counter[type[models.Model]](), Counter[str]()
    places: dict[type[models.Model], Counter[str]] = {Message: Counter(), Session: Counter()}
    shown: list[tuple[type[models.Model], Change]] = []
    spans = changes = 0
    oldest, is_whole = None, True
    for batch in preview_masking(db, project_id, compiled(rows)):
        read[batch.model] += len(batch.keys)
        spans += batch.spans
        changes += len(batch.changes)
        shown += [(batch.model, change) for change in batch.changes[: SHOWN - len(shown)]]
        found = {(change.owner_id, receipt.rule) for change in batch.changes for receipt in change.receipts}
        for _owner_id, rule in found:
            places[batch.model][rule] += 1
        for receipt in chain.from_iterable(change.receipts for change in batch.changes):
            values[receipt.rule] += receipt.count
        if batch.model is Message:
            oldest = batch.keys[-1]
        if monotonic() > until:
            is_whole = False
            break
    names = {name for name, _kind, _value in rows}
    return Preview(
        messages=read[Message],
        sessions=read[Session],
        is_whole=is_whole,
        back_to=ids.created_at_of(oldest) if oldest else None,
        rows=_rows(db, shown, names),
        has_more=changes > len(shown),
        removed=[
            (rule_label(rule, names), _removed_in_words(values[rule], places[Message][rule], places[Session][rule]))
            for rule in sorted(values)
        ],
        spans=spans,
    )


def rule_label(name: str, names: Container[str]) -> str:
    """Return the name of a rule of the project, or what those of the product are called that are always applied."""
    return name if name in names else _("secrets")


def _removed_by(run: MaskingRun) -> str:
    names = {name for name, _kind, _value in run.rules}
    return ", ".join(
        f"{rule_label(name, names)}: "
        + ngettext("%(number)s value", "%(number)s values", count) % {"number": intcomma(count)}
        for name, count in run.removed.items()
    )


def _removed_in_words(values: int, messages_: int, sessions: int) -> str:
    counts = [
        (messages_, ngettext("%(number)s message", "%(number)s messages", messages_)),
        (sessions, ngettext("%(number)s session", "%(number)s sessions", sessions)),
    ]
    found = ngettext("%(number)s value in %(rows)s", "%(number)s values in %(rows)s", values)
    rows = counts_in_words(counts)
    return found % {"number": intcomma(values), "rows": rows}


def _rows(db: Database, shown: Sequence[tuple[type[models.Model], Change]], names: Container[str]) -> list[PreviewRow]:
    """Return the changes by message and session."""
    of_messages = {change.owner_id for model, change in shown if model is Message}
    of_sessions = {change.owner_id for model, change in shown if model is Session}
    around = read_names_around(db, of_messages)
    kinds = {row.pk: title_of(row) for row in db.rows(Message.with_deleted).filter(pk__in=of_messages).only("role")}
    sessions = read_session_names(db.rows(Session.with_deleted).filter(pk__in=of_sessions).only("title", "external_id"))
    calls = [change.row.pk for _model, change in shown if isinstance(change.row, ToolCall | ToolResult)]
    tools = dict(db.rows(ToolCall.with_deleted).filter(pk__in=calls).values_list("pk", "tool__name"))
    differences: dict[UUID, list[Difference]] = {}
    for _model, change in shown:
        paths = ", ".join(receipt.path for receipt in islice(change.receipts, 5))
        rules = ", ".join(sorted({rule_label(receipt.rule, names) for receipt in change.receipts}))
        for name, before, after in change.differences(_CHARACTERS):
            place = _place(change.row, name, tools)
            differences.setdefault(change.owner_id, []).append(Difference(place, paths, rules, before, after))
    return [
        PreviewRow(
            url=reverse(f"admin:messages_app_{'message' if key in of_messages else 'session'}_change", args=[key]),
            name=around.get(key) or sessions.get(key) or str(key),
            kind=kinds.get(key) or _("Session"),
            differences=found,
        )
        for key, found in differences.items()
    ]


def _place(row: models.Model, name: str, tools: Mapping[UUID, str]) -> str:
    """Return which value of a row it is, in words."""
    value = str(row._meta.get_field(name).verbose_name)  # type: ignore[union-attr] # the columns of masking have names
    match row:
        case Message() | Session():
            return capfirst(value)
        case ToolCall() | ToolResult():
            of = tools[row.pk]
        case Score():
            of = row.name
        case _:
            return capfirst(f"{row._meta.verbose_name}: {value}")
    return _("%(value)s of %(name)s") % {"value": capfirst(value), "name": of}
