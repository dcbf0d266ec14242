"""Upload transcripts on a page of the admin: as POST /api/v1/import/, with the same limits; see traces_app.views.importing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_protect

from access_app.audit.trail import actor_of, note_objects
from access_app.conf import conf
from access_app.db import Database
from access_app.errors import ApiError
from access_app.models import AuditAction, Project, Role
from access_app.permissions import project_in
from access_app.readable_pages import readable_on_page
from access_app.request_database import database, use_database_of
from access_app.roles import access
from access_app.visibility import visible_to
from messages_app.admin.keyset import KeysetAdmin
from messages_app.http.request_body import refuse_too_large
from messages_app.models import Session
from messages_app.safe_text import first_characters
from traces_app.imports.reports import Counts, FileReport, totals_of
from traces_app.queries.session_names import read_session_names
from traces_app.views.importing import INVALID_FORM, UnnamedFiles, import_files, invalid_form, sources_of

from .forms import REFUSALS
from .import_sources import ORIGINS
from .labels import NAME_CHARACTERS

FILES_LISTED: Final = 200
_NAMES: Final = {name: origin.name for _title, origins in ORIGINS for origin in origins for name in origin.formats}
_ORDER: Final = ("failed", "read", "skipped")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of a file."""

    report: FileReport
    format: str
    """What people call it."""
    messages: int
    stored: list[tuple[int, str]]
    """Numbers of messages with what became of them."""
    sessions: list[tuple[str, str]]
    """The page and the name of each."""


def show_import(model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponseBase:
    """Show the form, and import what it sends. The page is exempt from Django's check of CSRF, which would read the body into
    files with names and without a limit, and does the check itself."""
    if not access(request).allows(Role.EDITOR):
        raise PermissionDenied
    if request.method != "POST":
        return _page(model_admin, request)
    try:
        refuse_too_large(request, conf.MAX_BODY_BYTES)
        request.upload_handlers = [UnnamedFiles(request)]
        request.POST.get("project")  # parses the form
    except ApiError as error:
        return _page(model_admin, request, error=error)
    except INVALID_FORM as error:
        return _page(model_admin, request, error=invalid_form(error))
    return csrf_protect(lambda request: _imported(model_admin, request))(request)


def _imported(model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
    slug = request.POST.get("project", "")
    try:
        project = project_in(request, access(request).scope(Role.EDITOR), slug)
        use_database_of(request, project.pk)
        db = database(request)
        is_check = request.POST.get("dry_run") == "true"
        reports = import_files(db, sources_of(request.FILES.getlist("file")), None if is_check else project.pk)
    except ApiError as error:
        return _page(model_admin, request, error=error, project=slug)
    if not is_check:
        ids = [session.id for report in reports for session in report.sessions]
        note_objects(actor_of(request), "session", ids, project_id=project.pk, action=AuditAction.IMPORT)
    rows, totals = _rows(db, reports), totals_of(reports)
    return _page(model_admin, request, project=slug, rows=rows, totals=totals, is_check=is_check)


def _page(
    model_admin: KeysetAdmin,
    request: HttpRequest,
    *,
    error: ApiError | None = None,
    project: str = "",
    rows: Sequence[Row] = (),
    totals: Counts | None = None,
    is_check: bool = False,
) -> HttpResponse:
    """Show the form, below what became of the files, if some were sent; `is_check` means that nothing of them was stored."""
    # The form offers the projects of all databases.
    readable_on_page(request, access(request).scope(Role.EDITOR))
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Import files"),
        "opts": model_admin.opts,
        "projects": _projects(request),
        "project": project or request.GET.get("project", ""),
        "most_bytes": conf.MAX_BODY_BYTES,
        "error": error,
        "rows": rows[:FILES_LISTED],
        "more": len(rows[FILES_LISTED:]),
        "totals": totals,
        "message_count": totals.messages.total() if totals else 0,
        "failed_count": sum(row.report.status == "failed" for row in rows),
        "is_check": is_check,
        "origins": ORIGINS,
    }
    status = HTTPStatus.OK if error is None else error.status
    return TemplateResponse(request, "admin/traces_app/import_page.html", context, status=status)


def _projects(request: HttpRequest) -> list[Project]:
    """Return the projects in which the reader may write."""
    return list(visible_to(Project.objects.order_by("slug"), access(request).scope(Role.EDITOR), "pk"))


def _rows(db: Database, reports: Sequence[FileReport]) -> list[Row]:
    """Return the reports as rows, those of failed files first."""
    ordered = sorted(reports, key=lambda report: _ORDER.index(report.status))
    ids = {session.id for report in ordered[:FILES_LISTED] for session in report.sessions}
    sessions = db.rows(Session.objects).filter(pk__in=ids).only("external_id")
    rows = sessions.annotate(shown_title=first_characters("title", NAME_CHARACTERS + 1))
    names = read_session_names(rows)
    words: dict[str, Any] = {"created": _("created"), "updated": _("updated"), "unchanged": _("unchanged")}
    words.update({str(name): text for name, text in REFUSALS.items()})
    return [
        Row(
            report=report,
            format=_NAMES.get(report.format, report.format),
            messages=report.counts.messages.total(),
            stored=[(number, str(words.get(state, state))) for state, number in report.stored.items()],
            sessions=[(one.page, names[one.id]) for one in report.sessions if one.id in names],
        )
        for report in ordered
    ]
