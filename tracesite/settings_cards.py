"""The cards of the home page of settings: what each list is for, with its state where one query tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db.models import Max, Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from access_app.models import ApiKey, AuditEntry, MaskingRule, Membership, Project, Role
from access_app.roles import access
from access_app.visibility import visible_to
from messages_app.audit_log import KINDS
from messages_app.safe_text import ago
from traces_app.admin.jobs import job_rows
from traces_app.admin.labels import counts_in_words
from traces_app.models import ModelPrice

from .rail import Page

MOST_COUNTED = 10_000


@dataclass(frozen=True, kw_only=True)
class Card:
    label: str | Promise
    url: str
    use: str | Promise
    state: str | SafeString = ""


def cards(request: HttpRequest, lists: Sequence[Page]) -> list[Card]:
    """Return a card of each list of settings, and those of the tables on the page of a project behind that of projects."""
    found = []
    for page in lists:
        if page.use:
            state = _STATES.get(page.name)
            found.append(Card(label=page.label, url=page.url, use=page.use, state=state(request) if state else ""))
        if page.name == "access_app_project_changelist":
            found += _of_projects(request)
    return found


def _of_projects(request: HttpRequest) -> list[Card]:
    """Return the cards of members and masking rules, for owners. With one project they lead to its page, with several to their list,
    which has the numbers of each and leads on."""
    scope = access(request).scope(Role.OWNER)
    owned = list(visible_to(Project.objects.all(), scope, "pk").values_list("pk", flat=True)[:2])
    if not owned:
        return []
    is_one = len(owned) == 1
    url = (
        reverse("admin:access_app_project_change", args=owned)
        if is_one
        else reverse("admin:access_app_project_changelist")
    )
    tables: Sequence[tuple[str, str, type[Model], str]] = (
        (_("Members"), _("Who may see a project, with which role"), Membership, "memberships"),
        (_("Masking"), _("Values that are removed from traces of a project"), MaskingRule, "masking_rules"),
    )
    return [
        Card(
            label=label,
            url=f"{url}#{table}-heading" if is_one else url,
            use=use if is_one else f"{use} · {_('choose a project')}",
            state=_in_all(visible_to(model._default_manager.all(), scope)),
        )
        for label, use, model, table in tables
    ]


def _in_all(rows: QuerySet[Any]) -> str:
    count = rows.count()
    return _("%(number)s in all") % {"number": f"{count:,}"} if count else _("none yet")


def _rows(request: HttpRequest, model: type[Model]) -> QuerySet[Any]:
    return admin.site.get_model_admin(model).get_queryset(request)


def _keys(request: HttpRequest) -> str | SafeString:
    keys = visible_to(ApiKey.objects.all(), access(request).scope(Role.OWNER))
    used_at = keys.aggregate(at=Max("last_used_at"))["at"]
    count = keys.active().count()
    active = ngettext("%(number)s active key", "%(number)s active keys", count) % {"number": f"{count:,}"}
    return active if used_at is None else format_html("{} · {} {}", active, _("last used"), ago(used_at))


def _jobs(request: HttpRequest) -> str | SafeString:
    due = [row for row in job_rows(request) if row.is_late]
    if not due:
        return _("none is late")
    late = sum(row.run is not None for row in due)
    never = len(due) - late
    words = counts_in_words(
        [
            (late, ngettext("%(number)s is late", "%(number)s are late", late)),
            (never, ngettext("%(number)s has never run", "%(number)s have never run", never)),
        ]
    )
    return format_html('<span class="badge badge-pending">{}</span>', words)


def _entries(request: HttpRequest) -> str:
    """Return the number of the entries that its list opens with, which may be too many to count."""
    count = _rows(request, AuditEntry).filter(KINDS["settings"]).order_by()[: MOST_COUNTED + 1].count()
    shown = f"{count:,}" if count <= MOST_COUNTED else _("more than %(number)s") % {"number": f"{MOST_COUNTED:,}"}
    return ngettext("%(number)s change of settings", "%(number)s changes of settings", count) % {"number": shown}


_STATES: Mapping[str, Callable[[HttpRequest], str | SafeString]] = {
    "access_app_project_changelist": lambda request: _in_all(_rows(request, Project)),
    "access_app_apikey_changelist": _keys,
    "traces_app_modelprice_changelist": lambda request: _in_all(_rows(request, ModelPrice)),
    "traces_app_jobrun_changelist": _jobs,
    "access_app_auditentry_changelist": _entries,
    "auth_user_changelist": lambda request: _in_all(_rows(request, User)),
    "auth_group_changelist": lambda request: _in_all(_rows(request, Group)),
}
