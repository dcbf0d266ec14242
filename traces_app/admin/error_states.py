"""What people decided about groups of errors: resolved, ignored or open again, with a note.

A group has a state in each of its projects. One that occurs after it was resolved is back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.admin_roles import Page, RoleAdmin
from access_app.audit.trail import actor_of, note_counts, note_objects
from access_app.models import AuditAction, Project, Role
from access_app.people import with_people
from access_app.roles import access
from access_app.visibility import ProjectScope, visible_to
from traces_app.models import ErrorGroupState
from tracesite_sdk.records import ids

State = ErrorGroupState.State
BACK = "back"
SHOWN: Mapping[str, tuple[Any, Collection[str]]] = {
    "open": (gettext_lazy("Open errors"), (State.OPEN, BACK)),
    "resolved": (gettext_lazy("Resolved"), (State.RESOLVED,)),
    "ignored": (gettext_lazy("Ignored"), (State.IGNORED,)),
    "all": (gettext_lazy("All errors"), (State.OPEN, BACK, State.RESOLVED, State.IGNORED)),
}
"""The choices of the page of errors: a label, and the statuses of the groups that are shown."""
LONGEST_NOTE = 2_000


class Decisions:
    """The states of groups in some projects. One query."""

    def __init__(self, scope: ProjectScope) -> None:
        rows = visible_to(ErrorGroupState.objects.exclude(state=State.OPEN), scope)
        self._states = {
            (project, group): (state, at) for project, group, state, at in rows.values_list(*_COLUMNS).iterator()
        }

    def status(self, group: str, last_calls: Mapping[int, UUID]) -> str:
        """Return the status of a group with these last calls by project: that of the project where it needs most attention."""
        statuses = {self._in_project(project, group, last) for project, last in last_calls.items()}
        return next(one for one in (BACK, State.OPEN, State.RESOLVED, State.IGNORED) if one in statuses)

    def _in_project(self, project: int, group: str, last: UUID) -> str:
        state, at = self._states.get((project, group), (State.OPEN, None))
        return BACK if state == State.RESOLVED and ids.created_at_of(last) > at else state


_COLUMNS = ("project_id", "group", "state", "at")


def notes_of(group: str, projects: Collection[int]) -> QuerySet[ErrorGroupState]:
    """Return the states of a group, with who decided."""
    rows = ErrorGroupState.objects.filter(group=group, project__in=projects).select_related("project")
    return with_people(rows, "by").order_by("-at")


def editable(request: HttpRequest, projects: Collection[int]) -> list[Project]:
    """Return those of the projects in which the reader may decide."""
    return list(visible_to(Project.objects.filter(pk__in=projects), access(request).scope(Role.EDITOR), "pk"))


class StateForm(forms.Form):
    state = forms.ChoiceField(choices=State.choices)
    note = forms.CharField(label=gettext_lazy("Note"), max_length=LONGEST_NOTE, required=False)


def mark(model_admin: RoleAdmin, request: HttpRequest, key: str) -> HttpResponse:
    """Store what the reader decided about a group in the given projects, and return to the page."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    slugs = request.POST.getlist("project")
    projects = list(visible_to(Project.objects.filter(slug__in=slugs), access(request).scope(Role.VIEWER), "pk"))
    if not projects or not re.fullmatch("[0-9a-f]{32}", key):
        raise Http404
    if not all(access(request).allows(Role.EDITOR, project.pk) for project in projects):
        raise PermissionDenied
    form = StateForm(request.POST)
    if form.is_valid():
        values = {**form.cleaned_data, "by_id": request.user.pk, "at": timezone.now()}
        rows = [ErrorGroupState(project=project, group=key, **values) for project in projects]
        ErrorGroupState.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["project", "group"], update_fields=["state", "note", "by", "at"]
        )
        for project in projects:
            note_objects(actor_of(request), "errorgroupstate", [key], project_id=project.pk, action=AuditAction.CHANGE)
        note_counts(actor_of(request), **{values["state"]: len(projects)})
        text = _("The error is marked as %(state)s.") % {"state": State(values["state"]).label}
        model_admin.message_user(request, text, messages.SUCCESS)
    else:
        for errors in form.errors.values():
            model_admin.message_user(request, str(errors[0]), messages.ERROR)
    back = request.POST.get("back", "")
    is_ours = url_has_allowed_host_and_scheme(back, allowed_hosts=None)
    return HttpResponseRedirect(back if is_ours else reverse("admin:traces_app_toolcall_errors"))


@admin.register(ErrorGroupState)
class ErrorGroupStateAdmin(RoleAdmin):
    """Has no list: the page of errors shows the states."""

    view_role = Role.EDITOR

    def get_urls(self) -> list[URLPattern]:
        return [Page("<str:key>/mark/", mark, "mark").url(self)]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return False
