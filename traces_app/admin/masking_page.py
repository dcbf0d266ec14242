"""The page of a project's masking rules: what they would change in recent traces, and applying them to all stored ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.admin_roles import Page, RoleAdmin
from access_app.audit.trail import actor_of, note_objects
from access_app.db import Database
from access_app.masking import RuleRow, check_masking, compiled, stored_rules
from access_app.models import AuditAction, MaskingKind, Project, Role
from access_app.people import with_people
from access_app.request_database import database
from access_app.visibility import visible_to
from messages_app.admin.time_zones import with_zone
from messages_app.models import Message
from traces_app.maintenance.masking import Change, preview_masking
from traces_app.maintenance.masking_runs import request_run
from traces_app.models import MaskingRun
from tracesite_sdk.redaction.rules import Rules

NEWEST: Final = 200
"""Messages that a preview reads."""
SHOWN: Final = 50
RUNS: Final = 10
_CHARACTERS: Final = 160
_ANOTHER: Final = "+"
"""In place of the name of a rule, which has no such character."""


@dataclass(frozen=True, kw_only=True)
class PreviewRow:
    """A changed row of a preview."""

    message_id: Any
    paths: str
    differences: list[tuple[str, str, str]]


@dataclass(frozen=True, kw_only=True)
class Preview:
    """The changes that rules would make in the newest messages."""

    read: int
    rows: list[PreviewRow]
    has_more: bool
    removed: dict[str, int]
    """Numbers of values, by name of the rule."""


class RulesForm(forms.Form):
    """The rules to try or to apply: stored ones, or one that is not stored yet."""

    rule = forms.ChoiceField(label=gettext_lazy("Rules"), required=False)
    kind = forms.ChoiceField(
        label=gettext_lazy("Kind"), required=False, choices=[("", "---------"), *MaskingKind.choices]
    )
    value = forms.CharField(label=gettext_lazy("Name or pattern"), required=False, max_length=500)

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.project = project
        names = project.masking_rules.order_by("id").values_list("name", flat=True)
        self.fields["rule"].choices = [  # type: ignore[attr-defined] # it is a ChoiceField
            ("", _("All rules for new data")),
            *((name, name) for name in names),
            (_ANOTHER, _("Another rule, which is not stored yet")),
        ]

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if "rule" not in fields:
            return fields
        if fields["rule"] == _ANOTHER:
            for name in ("kind", "value"):
                if not fields.get(name) and name not in self.errors:
                    self.add_error(name, _("This is needed to try another rule."))
            if not self.errors:
                check_masking(fields["kind"], fields["value"])
        return fields

    @property
    def rows(self) -> tuple[RuleRow, ...]:
        """The chosen rules. Empty if the project has none for new data."""
        if self.cleaned_data["rule"] == _ANOTHER:
            return ((_("another rule"), self.cleaned_data["kind"], self.cleaned_data["value"]),)
        return stored_rules(self.project, self.cleaned_data["rule"] or None)


class ApplyForm(RulesForm):
    sure = forms.CharField()

    def clean_sure(self) -> str:
        typed: str = self.cleaned_data["sure"]
        if typed != self.project.slug:
            raise ValidationError(_("Type the short name of the project."))
        return typed

    def clean(self) -> dict[str, Any]:
        fields = super().clean()
        if fields.get("rule") == _ANOTHER:
            self.add_error("rule", _("Add the rule to the project first. Only stored rules are applied."))
        return fields


def show_masking(model_admin: RoleAdmin, request: HttpRequest, project_pk: int) -> HttpResponse:
    """Show what the rules of a project would change; apply them."""
    db = database(request)
    project = visible_to(Project.objects.all(), model_admin.scope(request), "pk").filter(pk=project_pk).first()
    if project is None:
        raise Http404
    note_objects(actor_of(request), "maskingrun", project_id=project.pk)
    preview, form = None, RulesForm(project)
    if request.method == "POST" and "apply" in request.POST:
        form = ApplyForm(project, request.POST)
        if _is_usable(form) and _apply(model_admin, request, form):
            return HttpResponseRedirect(reverse("admin:traces_app_maskingrun_project", args=[project.pk]))
    elif request.method == "POST":
        form = RulesForm(project, request.POST)
        if _is_usable(form):
            preview = _preview(db, project.pk, compiled(form.rows))
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Masking of stored traces"),
        "opts": model_admin.opts,
        "project": project,
        "form": form,
        "needs_sure": "sure" in form.errors,
        "preview": preview,
        "newest": NEWEST,
        "requested": with_zone(_("Requested")),
        "runs": with_people(MaskingRun.objects.filter(project=project), "requested_by").order_by("-pk")[:RUNS],
    }
    return TemplateResponse(request, "admin/traces_app/masking_page.html", context)


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


def _apply(model_admin: RoleAdmin, request: HttpRequest, form: RulesForm) -> bool:
    assert request.user.is_authenticated, "the admin lets nobody else in"
    run, is_new = request_run(form.project, form.rows, request.user)
    if not is_new:
        form.add_error(None, _("Rules are being applied to this project already. Wait until that is finished."))
        return False
    note_objects(actor_of(request), "maskingrun", [run.pk], project_id=form.project.pk, action=AuditAction.CHANGE)
    model_admin.message_user(request, _("The rules will be applied in the background."), messages.SUCCESS)
    return True


@admin.register(MaskingRun)
class MaskingRunAdmin(RoleAdmin):
    """One page for each project, to which the page of the project leads."""

    view_role = Role.OWNER

    def get_urls(self) -> list[URLPattern]:
        return [Page("<int:project_pk>/", show_masking, "project").url(self)]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return False  # it has no list


def _preview(db: Database, project_id: int, rules: Rules) -> Preview:
    changes = preview_masking(db, project_id, rules, NEWEST)
    removed = Counter[str]()
    rows = []
    for number, change in enumerate(changes):
        for receipt in change.receipts:
            removed[receipt.rule] += receipt.count
        if number <= SHOWN:
            rows.append(_row(change))
    read = db.rows(Message.objects).filter(project=project_id)[:NEWEST].count()
    return Preview(read=read, rows=rows[:SHOWN], has_more=len(rows) > SHOWN, removed=dict(sorted(removed.items())))


def _row(change: Change) -> PreviewRow:
    paths = ", ".join(f"{receipt.path} ({receipt.rule})" for receipt in islice(change.receipts, 5))
    return PreviewRow(message_id=change.owner_id, paths=paths, differences=list(change.differences(_CHARACTERS)))
