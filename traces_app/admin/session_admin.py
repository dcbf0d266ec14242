"""The admin of sessions: that of traces_app.admin.model_admins with their runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.conf import conf
from access_app.errors import Conflict
from access_app.masking import masking_of
from access_app.models import Role
from access_app.places import projects_here
from access_app.program import program
from access_app.roles import access
from access_app.visibility import visible_to
from messages_app.models import Message, Session
from messages_app.queries import as_uuid
from messages_app.safe_text import for_scripts
from traces_app.imports.span_store import traces_of
from traces_app.ingest.changes import tag_sessions
from traces_app.ingest.pipeline import ingest
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import Scope as PurgeScope
from traces_app.models import Snapshot, ToolCall
from traces_app.queries.archived import archived_parts, where_archived
from traces_app.queries.contexts import newest_contexts
from traces_app.queries.schemas.contexts import ContextKind
from traces_app.queries.waiting import waiting_calls
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_session_patch

from .bulk_scores import score_selected
from .conversation import ids_below
from .filters import SessionAgentFilter, SessionModelFilter, SessionScoreFilter, SessionToolFilter
from .forms import REFUSALS, AddedByIngest, SessionForm, TagForm
from .model_admins import SessionAdmin, session_name
from .scores import judgements_of, judgements_of_session
from .session_search import search_session
from .snapshot_pages import has_snapshots_or_forks, snapshot_context, snapshots_context
from .span_page import spans_context
from .text_search import is_searched, named_or_saying, with_found

CALLS_LISTED = 40
"""The conversation only counts the calls of a longer run; the page of the message shows them."""
CONTEXTS_LISTED = 50
FOLLOWED_FOR = timedelta(hours=1)
"""The page of a session that is over goes on following it for so long: a conversation may have another turn."""
LIVE_EVENTS = 5_000
"""Events that the live page of a session keeps."""

CONTEXT_KINDS: Mapping[ContextKind, Any] = {
    "prompt": gettext_lazy("prompt"),
    "conversation": gettext_lazy("conversation"),
    "variables": gettext_lazy("variables"),
    "context": gettext_lazy("context"),
    "value": gettext_lazy("value"),
    "input": gettext_lazy("input"),
}


_ENDED = [Session.Status.COMPLETED, Session.Status.ERROR, Session.Status.ABORTED]


def _is_over(session: Session) -> bool:
    return session.status in _ENDED


def _purge_session(session_id: UUID) -> bool:
    report = purge(PurgeScope(deleted_before=timezone.now(), session_id=session_id))
    return report.tables["sessions"].rows > 0


class TracedSessionAdmin(AddedByIngest, SessionAdmin):
    add_role = Role.EDITOR
    form = SessionForm
    purge_row = staticmethod(_purge_session)
    actions = (*SessionAdmin.actions, "tag_selected", score_selected)
    list_actions = (*SessionAdmin.list_actions, "tag_selected", "score_selected")
    list_filter: ClassVar[Any] = (
        *SessionAdmin.list_filter[:3],
        *(SessionToolFilter, SessionModelFilter, SessionAgentFilter),
        *SessionAdmin.list_filter[3:-2],
        *(SessionScoreFilter, *SessionAdmin.list_filter[-2:]),
    )
    api_searches = True
    page_template = "admin/traces_app/session_page.html"

    search_help_text = gettext_lazy(
        'Search for words anywhere in messages, steps, calls and results ("exact phrase", -without, error:timeout), or by ID, '
        "external ID, end user or title."
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        named, may_repeat = super().get_search_results(request, queryset, search_term)
        term = search_term.strip()
        if not term or as_uuid(term) is not None or self.in_trash(request):
            return named, may_repeat
        return named_or_saying(request, queryset, named, term, "session", self.page_size(request)), False

    def shown_columns(self, request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        return with_found(request, columns, rows, lambda row: {"title": session_name(row)})

    def usual_columns(self, request: HttpRequest) -> Sequence[str]:
        # A search finds the newest first, and the places that it found take the room.
        usual = super().usual_columns(request)
        return [name for name in usual if name != "active"] if is_searched(request) else usual

    def order_column(self, request: HttpRequest) -> str | None:
        # A search finds the newest first.
        return super().order_column(request) if self.in_trash(request) or not is_searched(request) else None

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "project":
            kwargs["queryset"] = visible_to(projects_here(), self.scope(request, Role.EDITOR), "pk")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def get_urls(self) -> list[URLPattern]:
        own = self.row_urls(
            "session_id",
            [
                ("live/", self.live_view, "live"),
                ("spans/", self.spans_view, "spans"),
                ("snapshots/", self.snapshots_view, "snapshots"),
                ("snapshots/<uuid:snapshot_id>/", self.snapshot_view, "snapshot"),
            ],
        )
        return [*own, *super().get_urls()]

    def snapshots_view(self, request: HttpRequest, session_id: UUID) -> HttpResponse:
        """Show the snapshots of a session and the tree of its forks."""
        session = self._visible(request, session_id)
        if session is None:
            return self.missing(request)
        context = snapshots_context(self, request, session)
        return TemplateResponse(request, "admin/traces_app/snapshots_page.html", context)

    def snapshot_view(self, request: HttpRequest, session_id: UUID, snapshot_id: UUID) -> HttpResponse:
        """Show a snapshot, and its difference to the one before."""
        session = self._visible(request, session_id)
        row = None if session is None else Snapshot.objects.filter(session_id=session.pk, pk=snapshot_id).first()
        if session is None or row is None:
            return self.missing(request)
        context = snapshot_context(self, request, session, row)
        return TemplateResponse(request, "admin/traces_app/snapshot_page.html", context)

    def _visible(self, request: HttpRequest, session_id: UUID) -> Session | None:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return self.get_queryset(request).filter(pk=session_id).first()

    def spans_view(self, request: HttpRequest, session_id: UUID) -> HttpResponse:
        """Show the spans of a session that have made no message."""
        session = self._visible(request, session_id)
        if session is None:
            return self.missing(request)
        traces = traces_of(session.pk)
        if session.message_count or not traces:
            return self.missing(request)
        context = spans_context(self, request, session, traces[0])
        return TemplateResponse(request, "admin/traces_app/spans_page.html", context)

    def missing(self, request: HttpRequest) -> HttpResponse:
        """Say where a session is archived; redirect like other lists if it is not."""
        names = request.resolver_match.kwargs.values() if request.resolver_match else ()
        place = next(filter(None, (where_archived(self.scope(request), str(name)) for name in names)), None)
        if place is None:
            return super().missing(request)
        context = {
            **self.admin_site.each_context(request),
            "title": _("The session was archived"),
            "opts": self.opts,
            "place": place,
            "shows_folder": where_archived(access(request).scope(Role.OWNER), str(next(iter(names)))) is not None,
            "program": program(),
            "session_id": next(iter(names)),
        }
        return TemplateResponse(request, "admin/traces_app/archived_page.html", context, status=410)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response = super().change_view(request, object_id, form_url, extra_context)
        # The page of an archived session has no session.
        if isinstance(response, TemplateResponse) and response.context_data and "session" in response.context_data:
            session = response.context_data["session"]
            if "q" in request.GET and not session.deleted_at:
                given = request.GET.get("found", "")
                response.context_data["search"] = search_session(session, request.GET["q"], given)
            response.context_data["has_live"] = not session.deleted_at and (session.last_event or not _is_over(session))
            is_active = not _is_over(session) or session.active_at > timezone.now() - FOLLOWED_FOR
            # What was found stays as it is.
            is_followed = is_active and "search" not in response.context_data
            response.context_data["follows"] = not session.deleted_at and is_followed
            response.context_data["has_snapshots"] = has_snapshots_or_forks(session)
            response.context_data["failures_url"] = url_of_failures(session)
            user = request.user.get_username()
            shown = [bubble.message for bubble, _run in response.context_data["bubbles"]]
            judged = judgements_of(shown, user)
            for message in shown:
                message.judged = judged[message.pk]
            response.context_data["may_edit"] = self.allows(request, Role.EDITOR, session)
            response.context_data["session_judged"] = judgements_of_session(session.pk, user)
            response.context_data["archived_parts"] = archived_parts(session)
            response.context_data["shows_folder"] = self.allows(request, Role.OWNER, session)
            response.context_data["program"] = program()
            response.context_data["has_only_spans"] = not session.message_count and bool(traces_of(session.pk))
            if response.context_data["waiting_words"] and session.last_run_id is not None:
                run = session.last_run_id
                response.context_data["waiting_calls"] = waiting_calls([run]).get(run, [])
            # Contexts arrive only with events. The API that they link to does not read deleted sessions.
            if session.last_event and not session.deleted_at:
                contexts = newest_contexts(session.pk, CONTEXTS_LISTED)
                response.context_data["contexts"] = [(context, CONTEXT_KINDS[context.kind]) for context in contexts]
        return response

    @admin.action(description=gettext_lazy("Add a tag to selected sessions"), permissions=["add"])
    def tag_selected(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponse | None:
        """Ask for a tag, then add it to the sessions that lack it."""
        selection = self.selection(request, queryset)
        form = TagForm(request.POST if request.POST.get("post") else None)
        if form.is_valid():
            tag = form.cleaned_data["tag"]
            rows = list(selection.rows)
            changed = _tagged(rows, tag)
            for row in rows:
                if row.pk in changed:
                    self.log_change(request, row, [{"changed": {"fields": ["tags"]}}])
            text = ngettext(
                "%(count)s session has the tag “%(tag)s” now; %(before)s had it before.",
                "%(count)s sessions have the tag “%(tag)s” now; %(before)s had it before.",
                len(changed),
            )
            words = {"count": f"{len(changed):,}", "tag": tag, "before": f"{len(rows) - len(changed):,}"}
            self.message_user(request, text % words, messages.SUCCESS if changed else messages.INFO)
            return None
        context = {
            **self.admin_site.each_context(request),
            **self.confirmation(selection),
            "title": _("Add a tag"),
            "opts": self.opts,
            "form": form,
        }
        return TemplateResponse(request, "admin/traces_app/tag_sessions.html", context)

    def live_view(self, request: HttpRequest, session_id: UUID) -> HttpResponse:
        """Show a session live: a page that receives its events from /live/."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        session = Session.objects.visible_to(self.scope(request)).filter(pk=session_id).first()
        if session is None:
            return self.missing(request)
        statuses = {status.value: str(status.label) for status in Session.Status}
        context = {
            **self.admin_site.each_context(request),
            "title": _("Live: %(session)s") % {"session": session_name(session)},
            "opts": self.opts,
            "session": session,
            "session_name": session_name(session),
            "statuses": json.dumps(statuses),
            "ended": json.dumps(_ENDED),
            "is_over": _is_over(session),
            "hidden": for_scripts(),
            "heartbeat": conf.LIVE_HEARTBEAT_SECONDS,
            "most": LIVE_EVENTS,
        }
        return TemplateResponse(request, "admin/traces_app/live_page.html", context)

    def runs_of(self, messages: Sequence[Message]) -> dict[UUID, Any]:
        """Return the calls of each message with at most CALLS_LISTED, in reading order. One query."""
        few = [message.pk for message in messages if 0 < message.call_count <= CALLS_LISTED]
        if not few:
            return {}
        calls = (
            ToolCall.with_deleted.filter(message_id__in=few, **ids_below(few))
            .select_related("tool")
            .only("message_id", "tool__name", "status", "duration_ms", "parent_id")
            .order_by("step__iteration", "step__ordinal", "position", "pk")
        )
        runs: dict[UUID, list[ToolCall]] = {}
        for call in calls:
            runs.setdefault(call.message_id, []).append(call)
        return runs

    def save_model(self, request: HttpRequest, obj: Session, form: Any, change: bool) -> None:
        names = ("external_id", "title", "description", "end_user", "tags")
        fields = {name: form.cleaned_data[name] or None for name in names}
        fields["external_id"] = fields["external_id"] or form.cleaned_data["form_name"] or None
        outcome = ingest(obj.project_id, [records.Session(**fields)])[0]
        if outcome.refused:
            raise Conflict(REFUSALS[outcome.refused], code=outcome.refused)
        obj.pk = outcome.id

    def response_add(self, request: HttpRequest, obj: Session, post_url_continue: str | None = None) -> HttpResponse:
        self.message_user(request, _("The session was added."), messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:messages_app_session_change", args=[quote(obj.pk)]))


def url_of_failures(session: Session) -> str:
    """Return the URL of the list of a session's failed calls."""
    url = reverse("admin:traces_app_toolcall_changelist")
    return f"{url}?{urlencode({'session': str(session.pk), 'status': 'error'})}"


# This replaces the admin of messages_app, which is registered by now, because this module imports it.
admin.site.unregister(Session)
admin.site.register(Session, TracedSessionAdmin)


def _tagged(sessions: Sequence[Session], tag: str) -> set[UUID]:
    """Add a tag to sessions, masked as each project asks. Return the changed ones."""
    of_project: dict[int, list[UUID]] = {}
    for session in sessions:
        of_project.setdefault(session.project_id, []).append(session.pk)
    changed: set[UUID] = set()
    for project_id, session_ids in of_project.items():
        change = redact_session_patch(records.SessionPatch(tags=[tag]), masking_of(project_id))
        changed.update(tag_sessions(session_ids, change))
    return changed
