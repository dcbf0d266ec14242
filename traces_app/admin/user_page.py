"""The page of an end user: figures, the newest runs and sessions, and the errors that occurred to the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from operator import add
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Max, Min, Sum
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.readable import Readable
from access_app.readable_pages import readable_on_page
from messages_app.admin.filters import readable_projects, scope_of_page
from messages_app.admin.keyset import KeysetAdmin
from messages_app.admin.row_pages import rows_with
from messages_app.models import UNKNOWN_IN_SESSION, Message, Session
from messages_app.safe_text import first_characters, one_line
from messages_app.sql.batch import LIST_MS, Query, fetch
from messages_app.sql.pagination import IdRange
from traces_app.queries.filters import MessageFilterSet, SessionFilterSet
from traces_app.queries.runs.listed import ListedRun, read_listed
from traces_app.queries.session_names import read_session_names
from tracesite_sdk.records import ids

from .error_pages import GroupRow, frequent_errors
from .labels import NAME_CHARACTERS
from .periods import warn_of_others, warn_of_project

RUNS_LISTED = 50
SESSIONS_LISTED = 20
ERROR_DAYS = 30


@dataclass(kw_only=True)
class Sums:
    """The figures of an end user."""

    sessions: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    unknown_count: int = 0
    open_messages: int = 0
    first: datetime | None = None
    last: datetime | None = None

    @property
    def goes_on(self) -> bool:
        return self.open_messages > 0

    def add(self, **more: Any) -> None:
        """Add the figures of a database. None is no figure."""
        for name, value in more.items():
            known = getattr(self, name)
            if value is not None:
                # PostgreSQL adds whole numbers up to numerics.
                value = int(value) if isinstance(known, int) else value
                chosen = {"first": min, "last": max}.get(name, add)
                setattr(self, name, value if known is None else chosen(known, value))


_COLUMNS = {
    "sessions": Count("pk"),
    "failures": Sum("failure_count"),
    "input_tokens": Sum("input_tokens"),
    "output_tokens": Sum("output_tokens"),
    "cost": Sum("cost"),
    "unknown_count": Sum(UNKNOWN_IN_SESSION),
    "open_messages": Sum("open_count"),
    "first": Min("created_at"),
    "last": Max("active_at"),
}


def show_user(model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
    """Show what an end user did, in one project or in all that the reader may see."""
    projects = readable_projects(request)
    slug = request.GET.get("project", "")
    warn_of_project(request, projects)
    warn_of_others(request, ("end_user", "project"))
    # PostgreSQL has no texts with null characters, so nobody has such a name.
    name = request.GET.get("end_user", "").replace("\x00", "\ufffd")
    readable = readable_on_page(request, scope_of_page(request, projects.get(slug)))
    title = _("End user")
    context = {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "tab_title": f"{title} · {one_line(name, NAME_CHARACTERS)}",
        "opts": model_admin.opts,
        "name": name,
    }
    kept = {"end_user": name, **({"project": slug} if slug in projects else {})}
    try:
        context |= {"kept": urlencode(kept), **user_context(readable, name, kept)} if name else {}
    except InvalidInput:
        context["is_too_slow"] = True
    return TemplateResponse(request, "admin/traces_app/user_page.html", context)


def user_context(readable: Readable, name: str, kept: dict[str, str]) -> dict[str, Any]:
    """Return the context of the page. Raise InvalidInput if a query takes too long."""
    return {
        "sums": _sums(readable, name),
        "runs": _runs(readable, name),
        "sessions": _sessions(readable, name),
        "errors": _errors(readable, name, kept),
    }


def _sums(readable: Readable, name: str) -> Sums:
    sums = Sums()
    for db, scope in readable:
        # Grouped by the name, which is one, so that it is a statement whose time can be limited.
        of_user = db.rows(Session.objects).visible_to(scope).filter(end_user=name).order_by().values("end_user")
        (rows,) = fetch(db, [Query.of(of_user.annotate(**_COLUMNS).values_list(*_COLUMNS))], at_most_ms=LIST_MS)
        for row in rows:
            sums.add(**dict(zip(_COLUMNS, row, strict=True)))
    return sums


def _runs(readable: Readable, name: str) -> Sequence[ListedRun]:
    filters = MessageFilterSet(QueryDict(f"role={Message.Role.ASSISTANT}"), mask=None)
    filters.given["end_user"] = name
    rows = readable.rows(lambda db, scope: filters.found(db, scope, None))
    return rows_with(rows, rows.keys(newest_first=True, limit=RUNS_LISTED), read_listed)


def _sessions(readable: Readable, name: str) -> list[tuple[Any, str]]:
    filters = SessionFilterSet(QueryDict(), mask=None)
    filters.given["end_user"] = name
    rows = readable.rows(lambda db, scope: filters.found(db, scope))

    def read(db: Database, some: Sequence[Any]) -> dict[Any, Any]:
        named = db.rows(Session.objects).annotate(shown_title=first_characters("title", NAME_CHARACTERS + 1))
        return named.only("external_id", "failure_count", "message_count", "created_at").in_bulk(list(some))

    sessions = rows_with(rows, rows.keys(newest_first=True, limit=SESSIONS_LISTED), read)
    names = read_session_names(sessions)
    return [(session, names[session.pk]) for session in sessions]


def _errors(readable: Readable, name: str, kept: dict[str, str]) -> list[GroupRow]:
    since = IdRange(lower=ids.first_id_at(timezone.now() - timedelta(days=ERROR_DAYS)))
    groups, _from = frequent_errors(readable, {"end_user": name}, since, {**kept, "created": f"{ERROR_DAYS}d"})
    if groups is None:
        raise InvalidInput(_("This period holds too much to count it now. Choose a shorter one."))
    return groups
