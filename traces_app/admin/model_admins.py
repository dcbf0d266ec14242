"""The admin of runs: sessions and messages of messages_app.admin.model_admins with their runs, tools, and tool calls.

Traces are read-only. Sessions and messages that staff add pass through `ingest` like all data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID, uuid4

import msgspec
from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ChangeList
from django.contrib.postgres.forms import SimpleArrayField
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import F, Q, QuerySet, TextField
from django.db.models.functions import Cast, Left
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.errors import ApiError, Conflict, InvalidInput, NotFound
from access_app.models import Project, Role
from access_app.roles import access
from access_app.visibility import NO_PROJECTS, visible_to
from messages_app import ids
from messages_app.admin.conversation import ids_below
from messages_app.admin.downloads import Source
from messages_app.admin.exports import text
from messages_app.admin.filters import (
    MANY,
    CreatedFilter,
    InvalidFilter,
    NameFilter,
    ProjectFilter,
    RangeListFilter,
    SessionNameFilter,
    TextListFilter,
    WordListFilter,
    ids_of_page,
)
from messages_app.admin.keyset import KeysetAdmin
from messages_app.admin.model_admins import (
    NAME_CHARACTERS,
    DurationFilter,
    MessageAdmin,
    SessionAdmin,
    badge,
    session_name,
)
from messages_app.admin.time_zones import with_zone
from messages_app.models import Message, Session
from messages_app.queries import as_uuid, find_session
from messages_app.safe_text import duration, first_characters, for_scripts, is_plain, moment, one_line, visible
from messages_app.sql.pagination import IdRange
from traces_app.ingest.batch import Refusal
from traces_app.ingest.pipeline import ingest
from traces_app.ingest.store import tag_sessions
from traces_app.maintenance.purge import Scope as PurgeScope
from traces_app.maintenance.purge import purge, purge_deleted_message
from traces_app.models import AgentStep, Tool, ToolCall, ToolResult
from traces_app.normalize.redaction import redact_session_patch
from traces_app.queries.contexts import newest_contexts
from traces_app.queries.filters import CallFilterSet, MessageFilterSet, SessionFilterSet
from traces_app.queries.schemas import SimilarBy
from traces_app.queries.waiting import waiting_calls
from traces_app.schema import records
from traces_app.transcripts.span_store import spans_of, traces_of
from traces_app.transcripts.spans.conversation import TRACE_ID

from .bulk_scores import score_selected
from .compare_page import CompareForm, candidates, compared_runs
from .error_pages import errors_context
from .flag_labels import FLAG_LABELS, losses_of, problems_of
from .input_page import read_input
from .periods import Period, remember_times, remembered_times
from .run_outline import explorer_words, read_detail, read_first_rows, read_outline
from .run_page import first_failure, read_call, read_interrupts, read_run, read_times, step_number
from .run_search import MATCHES_LISTED, search_run
from .scores import JudgementForm, judge, judgements_of, judgements_of_session
from .session_search import search_session
from .similar_page import similar_context
from .span_page import span_lines
from .text_search import found_column, is_searched, named_or_saying
from .tool_pages import list_context, list_csv, tool_context

if TYPE_CHECKING:
    SessionModelForm = forms.ModelForm[Session]
    MessageModelForm = forms.ModelForm[Message]
    SessionChoiceField = forms.ModelChoiceField[Session]
else:
    SessionModelForm = MessageModelForm = forms.ModelForm  # not generic at run time
    SessionChoiceField = forms.ModelChoiceField

CALLS_LISTED = 40
"""The conversation only counts the calls of a longer run; the page of the message shows them."""
CONTEXTS_LISTED = 50
FOLLOWED_FOR = timedelta(hours=1)
"""The page of a session that is over goes on following it for so long: a conversation may have another turn."""
LIVE_EVENTS = 5_000
"""Events that the live page of a session keeps."""
RUNS_SEARCHED = 1_000
"""The list of a session's calls has those of its newest runs."""
FLAGS_LISTED = 5
"""Flags of one message in a list; the page of the message shows all."""
NAME_LENGTH = 512
"""Maximum length of external ids and end users, as in records.Name."""

CONTEXT_KINDS: Mapping[str, Any] = {
    "prompt": gettext_lazy("prompt"),
    "conversation": gettext_lazy("conversation"),
    "variables": gettext_lazy("variables"),
    "context": gettext_lazy("context"),
    "value": gettext_lazy("value"),
}
REFUSALS: Mapping[Refusal, Any] = {
    "session_deleted": gettext_lazy("The session is in the trash. Restore it first."),
    "session_purged": gettext_lazy("The session was purged. Use another external ID."),
    "message_deleted": gettext_lazy("The message is in the trash. Restore it, or use another external ID."),
    "message_purged": gettext_lazy("The message was purged. Use another external ID."),
    "message_completed": gettext_lazy("The message is completed and accepts no more steps."),
}


# --- Filters ----------------------------------------------------------------------------------------------------------


def tool_numbers(name: str) -> list[int]:
    """Return the ids of the tools with a name, for constants instead of a join, so that the planner can estimate: see
    traces_app.queries.filters."""
    return list(Tool.objects.filter(name=name).values_list("pk", flat=True))


class ToolFilter(NameFilter):
    """Filter by the exact name of a tool; base class for the lists of messages, sessions and calls."""

    title = gettext_lazy("tool")
    parameter_name = "tool"

    def __init__(
        self, request: HttpRequest, params: dict[str, list[str]], model: type[Any], model_admin: ModelAdmin[Any]
    ) -> None:
        super().__init__(request, params, model, model_admin)
        self.scope = access(request).scope(Role.ANALYST)

    def suggestions(self) -> Sequence[str]:
        names = visible_to(Tool.objects.order_by("name"), self.scope).values_list("name", flat=True).distinct()[:MANY]
        return [name for name in names if is_plain(name)]


class MessageToolFilter(ToolFilter):
    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        found: QuerySet[Any] = MessageFilterSet.narrow(queryset, {"tool": tool_numbers(name)}, ids_of_page(request))
        return found


class MessageToolStatusFilter(WordListFilter):
    """Filter by the status of a call; together with a tool: of a call of this tool."""

    title = gettext_lazy("status of a call")
    parameter_name = "tool_status"
    filter_set = MessageFilterSet
    words: ClassVar[Any] = dict(ToolCall.Status.choices)

    def beside(self, request: HttpRequest) -> Mapping[str, Any]:
        name = request.GET.get(ToolFilter.parameter_name, "").strip()
        return {"tool": tool_numbers(name)} if name else {}

    def bounds(self, request: HttpRequest) -> IdRange:
        return ids_of_page(request)


class SessionToolFilter(ToolFilter):
    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        found: QuerySet[Any] = SessionFilterSet.narrow(queryset, {"tool": tool_numbers(name)})
        return found


class CallToolFilter(ToolFilter):
    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        found: QuerySet[Any] = CallFilterSet.narrow(queryset, {"tool": tool_numbers(name)})
        return found


class HealthFilter(WordListFilter):
    title = gettext_lazy("health")
    parameter_name = "health"
    filter_set = MessageFilterSet
    words: ClassVar[Any] = FLAG_LABELS

    def bounds(self, request: HttpRequest) -> IdRange:
        return ids_of_page(request)


class SessionModelFilter(TextListFilter):
    title = gettext_lazy("model")
    parameter_name = "model"
    filter_set = SessionFilterSet


class SessionAgentFilter(TextListFilter):
    title = gettext_lazy("agent")
    parameter_name = "agent"
    filter_set = SessionFilterSet


class MessageModelFilter(SessionModelFilter):
    filter_set = MessageFilterSet

    def bounds(self, request: HttpRequest) -> IdRange:
        return ids_of_page(request)


class MessageAgentFilter(SessionAgentFilter):
    filter_set = MessageFilterSet

    def bounds(self, request: HttpRequest) -> IdRange:
        return ids_of_page(request)


class CallModelFilter(MessageModelFilter):
    filter_set = CallFilterSet


class CallAgentFilter(MessageAgentFilter):
    filter_set = CallFilterSet


class SessionScoreFilter(RangeListFilter):
    """Filter by the scores of a session, its messages and calls: their name, and the range of their numbers."""

    title = gettext_lazy("score")
    template = "admin/score_filter.html"
    parameter_names = ("score", "min_score", "max_score")
    filter_set = SessionFilterSet

    def shown_value(self) -> str:
        name, least, most = (self.given.get(name, "") for name in self.parameter_names)
        if least and most:
            return f"{name} {least} – {most}".strip()
        return f"{name} {f'≥ {least}' if least else f'≤ {most}' if most else ''}".strip()

    def choices(self, changelist: ChangeList) -> Iterator[Mapping[str, object]]:
        """Yield one dict with the context of the template."""
        yield {name: self.given.get(name, "") for name in self.parameter_names}


class MessageScoreFilter(SessionScoreFilter):
    filter_set = MessageFilterSet


class CallScoreFilter(SessionScoreFilter):
    filter_set = CallFilterSet


class CallStatusFilter(WordListFilter):
    title = gettext_lazy("status")
    parameter_name = "status"
    filter_set = CallFilterSet
    words: ClassVar[Any] = dict(ToolCall.Status.choices)


class CallDurationFilter(DurationFilter):
    filter_set = CallFilterSet


class CallSessionFilter(SessionNameFilter):
    """Filter by session. Its runs are looked up first, because calls only have the id of their message."""

    def of_session(self, request: HttpRequest, queryset: QuerySet[Any], session: UUID) -> QuerySet[Any]:
        runs = Message.with_deleted.filter(session_id=session, call_count__gt=0)
        if request.GET.get(CallStatusFilter.parameter_name) == ToolCall.Status.ERROR:
            runs = runs.filter(failure_count__gt=0)
        return queryset.filter(message_id__in=list(runs.order_by("-pk").values_list("pk", flat=True)[:RUNS_SEARCHED]))


class CallErrorGroupFilter(NameFilter):
    title = gettext_lazy("error group")
    parameter_name = "error_group"

    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        found: QuerySet[Any] = CallFilterSet.narrow(queryset, {"error_group": name})
        return found


class CallMessageFilter(NameFilter):
    title = gettext_lazy("message ID")
    parameter_name = "message"

    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        message = as_uuid(name)
        if message is None:
            raise InvalidFilter(self.title, name, _("Use the ID of the message."))
        return queryset.filter(message_id=message)


# --- Forms to add sessions and messages ----------------------------------------------------------------------------


class FormOnce(forms.CharField):
    """A hidden name of the filled-in form: sent again, as by a double click, it adds no second row."""

    def __init__(self) -> None:
        super().__init__(initial=lambda: f"form-{uuid4()}", max_length=50, required=False, widget=forms.HiddenInput)


class SessionForm(SessionModelForm):
    form_name = FormOnce()
    external_id = forms.CharField(label=gettext_lazy("External ID"), max_length=NAME_LENGTH, required=False)
    title = forms.CharField(label=gettext_lazy("Title"), max_length=NAME_LENGTH, required=False)
    end_user = forms.CharField(label=gettext_lazy("End user"), max_length=NAME_LENGTH, required=False)
    tags = SimpleArrayField(
        forms.CharField(max_length=200),
        label=gettext_lazy("Tags"),
        required=False,
        help_text=gettext_lazy("Separated by commas."),
    )

    class Meta:
        model = Session
        fields = ("form_name", "project", "external_id", "title", "description", "end_user", "tags")

    def clean(self) -> dict[str, Any]:
        fields = self.cleaned_data
        if fields.get("external_id") and fields.get("project"):
            same = Session.with_deleted.filter(project=fields["project"], external_id=fields["external_id"])
            if same.exists():
                self.add_error(
                    "external_id", _("The project already has a session with this external ID. It may be in the trash.")
                )
        return fields


class SessionField(SessionChoiceField):
    """A session that is typed in, by its id or external id."""

    scope = NO_PROJECTS
    """The projects in which it is looked up: see TracedMessageAdmin.get_form."""

    def to_python(self, value: Any) -> Session | None:
        if value in self.empty_values:
            return None
        try:
            found = find_session(self.scope, str(value).strip())
        except NotFound as error:
            text = _("There is no session with the ID or external ID “%(name)s”.")
            raise ValidationError(text, params={"name": value}) from error
        except Conflict as error:
            raise ValidationError(error.message) from error
        return super().to_python(found.pk)


class MessageForm(MessageModelForm):
    form_name = FormOnce()
    session = SessionField(
        Session.objects.all(),
        label=gettext_lazy("Session ID"),
        widget=forms.TextInput(attrs={"size": 40}),
        help_text=gettext_lazy("The ID or external ID of a session. The message is added at its end."),
    )
    external_id = forms.CharField(label=gettext_lazy("External ID"), max_length=NAME_LENGTH, required=False)

    class Meta:
        model = Message
        fields = ("form_name", "session", "role", "content", "external_id")

    def clean(self) -> dict[str, Any]:
        fields = self.cleaned_data
        if fields.get("external_id") and fields.get("session"):
            same = Message.with_deleted.filter(session=fields["session"], external_id=fields["external_id"])
            if same.exists():
                self.add_error(
                    "external_id", _("The session already has a message with this external ID. It may be in the trash.")
                )
        return fields


class TagForm(forms.Form):
    """The tag that is added to sessions."""

    tag = forms.CharField(max_length=200)

    def clean_tag(self) -> str:
        tag: str = self.cleaned_data["tag"]
        change = redact_session_patch(records.SessionPatch(tags=[tag]))
        if change.receipts:
            raise ValidationError(_("This looks like a secret, which tags must not have."))
        self.cleaned_data["change"] = change
        return tag


_ENDED = [Session.Status.COMPLETED, Session.Status.ERROR, Session.Status.ABORTED]


def _is_over(session: Session) -> bool:
    return session.status in _ENDED


# --- Sessions and messages, with their runs ------------------------------------------------------------------------


def _purge_session(session_id: UUID) -> bool:
    report = purge(PurgeScope(deleted_before=timezone.now(), session_id=session_id))
    return report.tables["sessions"].rows > 0


class TracedSessionAdmin(SessionAdmin):
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
        "Search by ID, external ID or title, or for words anywhere in its messages, their calls and results."
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        named, may_repeat = super().get_search_results(request, queryset, search_term)
        term = search_term.strip()
        if not term or as_uuid(term) is not None or self.in_trash(request):
            return named, may_repeat
        return named_or_saying(request, queryset, named, term, "session", self.page_size(request)), False

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return _with_found(request, super().get_list_display(request), self.in_trash(request))

    def order_column(self, request: HttpRequest) -> str | None:
        # A search finds the newest first.
        return super().order_column(request) if self.in_trash(request) or not is_searched(request) else None

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "project":
            kwargs["queryset"] = visible_to(Project.objects.all(), self.scope(request, Role.EDITOR), "pk")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def get_urls(self) -> list[URLPattern]:
        live = path(
            "<uuid:session_id>/live/", self.admin_site.admin_view(self.live_view), name="messages_app_session_live"
        )
        spans = path(
            "<uuid:session_id>/spans/", self.admin_site.admin_view(self.spans_view), name="messages_app_session_spans"
        )
        return [live, spans, *super().get_urls()]

    def spans_view(self, request: HttpRequest, session_id: UUID) -> HttpResponse:
        """Show the spans of a session that have made no message."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        session = self.get_queryset(request).filter(pk=session_id).first()
        if session is None:
            return self.missing(request)
        traces = traces_of(session.pk)
        if session.message_count or not traces:
            return self.missing(request)
        context = spans_context(self, request, session, traces[0])
        return TemplateResponse(request, "admin/traces_app/spans_page.html", context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response = super().change_view(request, object_id, form_url, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            session = response.context_data["session"]
            if "q" in request.GET and not session.deleted_at:
                given = request.GET.get("found", "")
                response.context_data["search"] = search_session(session, request.GET["q"], given)
            response.context_data["has_live"] = not session.deleted_at and (session.last_event or not _is_over(session))
            is_active = not _is_over(session) or session.active_at > timezone.now() - FOLLOWED_FOR
            # What was found stays as it is.
            is_followed = is_active and "search" not in response.context_data
            response.context_data["follows"] = not session.deleted_at and is_followed
            response.context_data["failures_url"] = url_of_failures(session)
            user = request.user.get_username()
            shown = [bubble.message for bubble, _run in response.context_data["bubbles"]]
            judged = judgements_of(shown, user)
            for message in shown:
                message.judged = judged[message.pk]
            response.context_data["may_edit"] = self.allows(request, Role.EDITOR, session)
            response.context_data["session_judged"] = judgements_of_session(session.pk, user)
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
            changed = set(tag_sessions([row.pk for row in rows], form.cleaned_data["change"]))
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
            "heartbeat": settings.LIVE_HEARTBEAT_SECONDS,
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

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            return super().add_view(request, form_url, extra_context)
        except ApiError as error:
            return _redirect_to_form(self, request, error)

    def response_add(self, request: HttpRequest, obj: Session, post_url_continue: str | None = None) -> HttpResponse:
        self.message_user(request, _("The session was added."), messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:messages_app_session_change", args=[quote(obj.pk)]))


class TracedMessageAdmin(MessageAdmin):
    add_role = Role.EDITOR
    form = MessageForm
    purge_row = staticmethod(purge_deleted_message)
    actions = (*MessageAdmin.actions, score_selected)
    list_actions = (*MessageAdmin.list_actions, "score_selected")
    search_help_text = gettext_lazy(
        'Search for words anywhere in messages, steps, calls and results ("exact phrase", -without, error:timeout), by message ID, '
        "external ID or request ID, or by session: ID, external ID or title."
    )
    list_filter: ClassVar[Any] = (
        *MessageAdmin.list_filter[:5],
        *(HealthFilter, MessageToolFilter, MessageToolStatusFilter, MessageModelFilter, MessageAgentFilter),
        *MessageAdmin.list_filter[5:-1],
        *(MessageScoreFilter, MessageAdmin.list_filter[-1]),
    )
    all_columns: ClassVar[Any] = (
        *("text", "named", "requested", "who", "in_session", "project", "steps", "calls", "outcome", "problems"),
        *("tokens_in", "tokens_out", "took", "spent", "created", "ended"),
    )
    list_display: Any = (
        "text",
        "who",
        "in_session",
        "project",
        "calls",
        "outcome",
        "problems",
        "took",
        "spent",
        "created",
    )
    api_searches = True
    page_template = "admin/traces_app/message_page.html"
    downloads: ClassVar[Any] = {
        **MessageAdmin.downloads,
        "step": Source(
            rows=AgentStep.with_deleted,
            columns=frozenset(["thought", "reasoning", "usage", "metadata"]),
            project="message__project_id",
        ),
    }

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        named, may_repeat = super().get_search_results(request, queryset, search_term)
        term = search_term.strip()
        if not term or as_uuid(term) is not None or self.in_trash(request):
            return named, may_repeat
        return named_or_saying(request, queryset, named, term, "message", self.page_size(request)), False

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return _with_found(request, super().get_list_display(request), self.in_trash(request))

    @admin.display(description=gettext_lazy("health"), empty_value="")
    def problems(self, row: Message) -> SafeString | None:
        labels = ", ".join(str(FLAG_LABELS.get(flag, flag)) for flag in row.health[:FLAGS_LISTED])
        return visible(one_line(labels, NAME_CHARACTERS)) if labels else None

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        field = form.base_fields.get("session")  # of the class that Django makes for each request
        if isinstance(field, SessionField):
            field.scope = self.scope(request, Role.EDITOR)
        return form

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if "failure" in request.GET and (url := self._url_of_first_failure(request, object_id)):
            return HttpResponseRedirect(url)
        response = super().change_view(request, object_id, form_url, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            message = response.context_data["message"]
            response.context_data["problems"] = problems_of(message)
            response.context_data["missing"] = losses_of(message)
            wanted, page = request.GET.get("call", ""), request.GET.get("page", "")
            response.context_data["run"] = read_run(
                message.pk,
                page=int(page) if page.isdecimal() and len(page) < 6 else 1,
                call=as_uuid(wanted),
                open_all=request.GET.get("open") == "all",
            )
            response.context_data["open_all"] = request.GET.get("open") == "all"
            if request.GET.get("q"):
                response.context_data["search"] = search_run(message.pk, request.GET["q"], MATCHES_LISTED)
            user = request.user.get_username()
            response.context_data["judged"] = judgements_of([message], user)[message.pk]
            response.context_data["may_edit"] = self.allows(request, Role.EDITOR, message)
            response.context_data["explorer_words"] = explorer_words()
            response.context_data["first_rows"] = asdict(read_first_rows(response.context_data["run"]))
            response.context_data["hidden"] = for_scripts()
            response.context_data["row_count"] = message.step_count + message.call_count
            session = message.session
            response.context_data["follows"] = not (message.is_completed or message.deleted_at or session.deleted_at)
            if response.context_data["waiting_words"]:
                response.context_data["waiting_calls"] = waiting_calls([message.pk]).get(message.pk, [])
                response.context_data["waits_for"] = read_interrupts(message.pk)
            response.context_data["has_spans"] = TRACE_ID in message.metadata
            if message.step_count:
                response.context_data["times"] = read_times(message)
        return response

    def get_urls(self) -> list[URLPattern]:
        spans = path(
            "<uuid:message_id>/spans/", self.admin_site.admin_view(self.spans_view), name="messages_app_message_spans"
        )
        asked = path(
            "<uuid:message_id>/steps/<uuid:step_id>/input/",
            self.admin_site.admin_view(self.input_view),
            name="messages_app_message_input",
        )
        judged = path(
            "<uuid:message_id>/judge/", self.admin_site.admin_view(self.judge_view), name="messages_app_message_judge"
        )
        compared = path(
            "<uuid:message_id>/compare/",
            self.admin_site.admin_view(self.compare_view),
            name="messages_app_message_compare",
        )
        similar = path(
            "<uuid:message_id>/similar/",
            self.admin_site.admin_view(self.similar_view),
            name="messages_app_message_similar",
        )
        outline = path(
            "<uuid:message_id>/outline/",
            self.admin_site.admin_view(self.outline_view),
            name="messages_app_message_outline",
        )
        detail = path(
            "<uuid:message_id>/outline/<uuid:node_id>/",
            self.admin_site.admin_view(self.detail_view),
            name="messages_app_message_detail",
        )
        searched = path(
            "<uuid:message_id>/search/",
            self.admin_site.admin_view(self.search_view),
            name="messages_app_message_search",
        )
        return [outline, detail, searched, spans, asked, judged, compared, similar, *super().get_urls()]

    def compare_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """Show a run beside another one, or ask for the other one."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        scope = self.scope(request)
        runs = Message.with_deleted.visible_to(scope).select_related("session").filter(role=Message.Role.ASSISTANT)
        message = runs.filter(pk=message_id).first()
        if message is None:
            return self.missing(request)
        title = _("Compare runs")
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "tab_title": f"{title} · {session_name(message.session)}",
            "opts": self.opts,
            "message": message,
            "session": message.session,
            "session_name": session_name(message.session),
            "form": CompareForm(scope, request.GET if "other" in request.GET else None),
        }
        if context["form"].is_valid():
            context |= compared_runs(message, context["form"].cleaned_data["other"])
        else:
            context["candidates"] = candidates(message)
        return TemplateResponse(request, "admin/traces_app/compare_page.html", context)

    def similar_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """List the runs that are most like a run, or that failed in the same way."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        alive = Message.objects.visible_to(self.scope(request))
        runs = alive.select_related("session").filter(role=Message.Role.ASSISTANT)
        message = runs.filter(pk=message_id).first()
        if message is None:
            return self.missing(request)
        by: SimilarBy = "errors" if request.GET.get("by") == "errors" else "everything"
        title = _("Failures like this one") if by == "errors" else _("Runs like this one")
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "tab_title": f"{title} · {session_name(message.session)}",
            "opts": self.opts,
            "message": message,
            "session": message.session,
            "session_name": session_name(message.session),
            **similar_context(message, by),
        }
        return TemplateResponse(request, "admin/traces_app/similar_page.html", context)

    def judge_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """Store the thumb and the note of the reader, and return to the page where they were given."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        message = Message.objects.visible_to(self.scope(request)).filter(pk=message_id).first()
        if message is None:
            return self.missing(request)
        if not self.allows(request, Role.EDITOR, message):
            raise PermissionDenied
        form = JudgementForm(request.POST)
        if form.is_valid():
            judge(message, request.user.get_username(), form.cleaned_data["thumb"], form.cleaned_data["comment"])
        else:
            for errors in form.errors.values():
                self.message_user(request, str(errors[0]), messages.ERROR)
        back = request.POST.get("back", "")
        if not url_has_allowed_host_and_scheme(back, allowed_hosts=None):
            back = reverse("admin:messages_app_message_change", args=[quote(message_id)])
        return HttpResponseRedirect(f"{back.partition('#')[0]}#scores-{message_id}")

    def outline_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """Send the outline of a run as JSON."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if not self.sees(request, message_id):
            raise Http404
        return HttpResponse(msgspec.json.encode(read_outline(message_id)), content_type="application/json")

    def search_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """Send the steps and calls of a run that have the terms of `q` as JSON.

        A fault of the query is in the answer, because browsers log other statuses as errors and the reader is still typing.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        if not self.sees(request, message_id):
            raise Http404
        found = search_run(message_id, request.GET.get("q", ""))
        return HttpResponse(msgspec.json.encode(found), content_type="application/json")

    def detail_view(self, request: HttpRequest, message_id: UUID, node_id: UUID) -> HttpResponse:
        """Send a step or call of a run with its payloads as JSON."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        detail = read_detail(message_id, node_id) if self.sees(request, message_id) else None
        if detail is None:
            raise Http404
        return HttpResponse(msgspec.json.encode(detail), content_type="application/json")

    def input_view(self, request: HttpRequest, message_id: UUID, step_id: UUID) -> HttpResponse:
        """Show what the model of a step was asked."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        steps = AgentStep.with_deleted.select_related("message__session").filter(message_id=message_id)
        readable = visible_to(steps, self.scope(request), "message__project_id")
        step = readable.exclude(input_ref="").filter(pk=step_id).first()
        if step is None:
            return self.missing(request)
        title = _("Model input of step %(number)s") % {"number": step_number(step)}
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "tab_title": f"{title} · {session_name(step.message.session)}",
            "opts": self.opts,
            "step": step,
            "message": step.message,
            "session": step.message.session,
            "session_name": session_name(step.message.session),
            "input": read_input(step),
        }
        return TemplateResponse(request, "admin/traces_app/input_page.html", context)

    def spans_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """Show the spans that a message was made of, with everything that they hold."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        readable = Message.with_deleted.visible_to(self.scope(request))
        message = readable.select_related("session").filter(pk=message_id).first()
        if message is None or TRACE_ID not in message.metadata:
            return self.missing(request)
        context = spans_context(self, request, message.session, message.request_id)
        return TemplateResponse(request, "admin/traces_app/spans_page.html", {**context, "message": message})

    def sees(self, request: HttpRequest, message_id: UUID) -> bool:
        """Return whether there is such a message in a project of the reader, in the trash or not."""
        return Message.with_deleted.visible_to(self.scope(request)).filter(pk=message_id).exists()

    def _url_of_first_failure(self, request: HttpRequest, object_id: str) -> str | None:
        """Return the target of `?failure`, because lists know the number of failed calls but not their ids."""
        message = as_uuid(unquote(object_id))
        call = first_failure(message) if message is not None and self.sees(request, message) else None
        return f"{request.path}?call={call}#call-{call}" if call is not None else None

    @admin.display(description=gettext_lazy("status"), empty_value="")
    def outcome(self, row: Any) -> SafeString | None:
        shown = super().outcome(row)
        if not row.failure_count or shown is None:
            return shown
        url = reverse("admin:messages_app_message_change", args=[quote(row.pk)])
        return format_html('<a href="{}?failure">{}</a>', url, shown)

    def save_model(self, request: HttpRequest, obj: Message, form: Any, change: bool) -> None:
        fields = form.cleaned_data
        message = records.Message(
            role=fields["role"],
            content=fields["content"],
            external_id=fields["external_id"] or fields["form_name"] or None,
            is_completed=True,
        )
        session = fields["session"]
        outcome = ingest(session.project_id, [records.Session(id=str(session.pk), messages=[message])])[0].messages[0]
        if outcome.refused:
            raise Conflict(REFUSALS[outcome.refused], code=outcome.refused)
        obj.pk = outcome.id

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            return super().add_view(request, form_url, extra_context)
        except ApiError as error:
            return _redirect_to_form(self, request, error)

    def response_add(self, request: HttpRequest, obj: Message, post_url_continue: str | None = None) -> HttpResponse:
        self.message_user(request, _("The message was added."), messages.SUCCESS)
        url = reverse("admin:messages_app_session_change", args=[quote(obj.session_id)])
        return HttpResponseRedirect(f"{url}?newest#message-{obj.pk}")


# --- Tools and calls -----------------------------------------------------------------------------------------------


def _page_of_period(
    model_admin: KeysetAdmin, request: HttpRequest, template: str, title: str, read: Callable[[Period], dict[str, Any]]
) -> HttpResponse:
    """Show a page for the range of times in the parameters; without them if these are not valid."""
    try:
        period = Period(remembered_times(request))
    except InvalidFilter:
        model_admin.message_user(request, _("This range of times is not valid."), messages.WARNING)
        return HttpResponseRedirect(request.path)
    if any(name in request.GET for name in period.given):
        remember_times(request, period)
    context = {**model_admin.admin_site.each_context(request), "title": title, "opts": model_admin.opts, **read(period)}
    return TemplateResponse(request, f"admin/traces_app/{template}.html", context)


class ToolAdmin(KeysetAdmin):
    list_filter = (ProjectFilter,)
    api_name = "tools"
    all_columns: ClassVar[Any] = ("shown_name", "project", "shown_category", "shown_description", "calls")
    list_display = ("shown_name", "project", "shown_category", "shown_description", "calls")
    fields = ("project", "shown_name", "shown_category", "shown_description", "calls")
    search_help_text = gettext_lazy("Search by part of the name.")

    change_list_template = "admin/traces_app/tool_list.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return visible_to(Tool.objects.select_related("project"), self.scope(request))

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.statistics_view)
        return [path("statistics/", view, name="traces_app_tool_statistics"), *super().get_urls()]

    def statistics_view(self, request: HttpRequest) -> HttpResponse:
        """Show the statistics of all tools in a range of times."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        title = _("Tool statistics")
        if request.GET.get("format") == "csv":
            try:
                return list_csv(request, Period(remembered_times(request)))
            except (InvalidInput, InvalidFilter) as error:
                self.message_user(request, str(error), messages.WARNING)
                return HttpResponseRedirect(request.path)
        return _page_of_period(self, request, "tool_statistics", title, lambda period: list_context(request, period))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the statistics of one tool, with examples of its calls."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        tool = self.get_object(request, unquote(object_id))
        if tool is None:
            return self.missing(request)
        title = one_line(str(tool), NAME_CHARACTERS)
        return _page_of_period(
            self, request, "tool_page", title, lambda period: {"tool": tool, **tool_context(request, tool, period)}
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return queryset.filter(name__icontains=term) if term else queryset, False

    @admin.display(description=gettext_lazy("name"))
    def shown_name(self, row: Tool) -> SafeString:
        return visible(one_line(str(row), NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("description"))
    def shown_description(self, row: Tool) -> SafeString:
        return visible(one_line(row.description, 10 * NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("category"))
    def shown_category(self, row: Tool) -> SafeString:
        return visible(one_line(row.category, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("tool calls"))
    def calls(self, row: Tool) -> SafeString:
        url = reverse("admin:traces_app_toolcall_changelist")
        query = {"project": row.project.slug, "tool": row.name}
        return format_html(
            '<a href="{}?{}">{}</a> · <a href="{}?{}">{}</a>',
            *(url, urlencode(query), _("all")),
            *(url, urlencode({**query, "status": "error"}), _("failed")),
        )


class ToolCallAdmin(KeysetAdmin):
    """The list of calls, for finding a failed one; each row links to its place in the run."""

    list_filter = (
        *(ProjectFilter, CallToolFilter, CallStatusFilter, CallModelFilter, CallAgentFilter, CallSessionFilter),
        *(CallErrorGroupFilter, CallMessageFilter, CallDurationFilter, CallScoreFilter, CreatedFilter),
    )
    all_columns: ClassVar[Any] = (
        *("tool_name", "named", "state", "arguments", "error", "in_session", "project", "agent", "model_name"),
        *("took", "began", "created"),
    )
    api_name = "tool-calls"
    api_searches = True
    list_display = ("tool_name", "state", "error", "in_session", "project", "took", "created")
    list_display_links = None
    search_help_text = gettext_lazy(
        'Search for words in the arguments, outputs and errors of calls ("exact phrase", -without, error:timeout), or by call ID: '
        "the model's or Tracesite's."
    )
    export_columns: ClassVar[Any] = {
        "id": F("pk"),
        "project": F("project__slug"),
        "session": F("message__session_id"),
        "session_external_id": text("message__session__external_id"),
        "message": F("message_id"),
        "step": F("step_id"),
        "parent": F("parent_id"),
        "call_id": text("call_id"),
        "tool": text("tool__name"),
        "status": F("status"),
        "args": text("args"),
        "output": text("result__output"),
        "error": text("result__error"),
        "duration_ms": F("duration_ms"),
        "started_at": F("started_at"),
        "completed_at": F("completed_at"),
        "created_at": F("message__created_at"),
    }
    downloads: ClassVar[Any] = {
        "call": Source(rows=ToolCall.with_deleted, columns=frozenset(["args", "reflection", "metadata"])),
        "result": Source(
            rows=ToolResult.objects,
            columns=frozenset(["output", "data", "error", "metadata", "attachments", "raw"]),
            project="call__project_id",
        ),
    }

    def list_title(self, request: HttpRequest) -> str:
        return _("Failed calls") if request.GET.get("status") == "error" else super().list_title(request)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.errors_view)
        return [path("errors/", view, name="traces_app_toolcall_errors"), *super().get_urls()]

    def errors_view(self, request: HttpRequest) -> HttpResponse:
        """Show the failed calls of a range of times, grouped by equal errors."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return _page_of_period(
            self, request, "error_groups", _("Errors"), lambda period: errors_context(request, period)
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        readable = ToolCall.objects.visible_to(self.scope(request))
        calls = readable.select_related("project", "tool", "message__session")
        fields = ["project", "tool__name", "status", "duration_ms", "message__session__external_id"]
        fields += ["call_id", "started_at"]
        listed = self.get_list_display(request)
        if "agent" in listed or "model_name" in listed:
            calls = calls.select_related("step")
            fields += ["step__agent_name", "step__model"]
        if "arguments" in listed:
            calls = calls.annotate(shown_args=Left(Cast("args", TextField()), 2 * NAME_CHARACTERS))
        return calls.only(*fields, *self.listed_columns(request)).annotate(
            shown_title=first_characters("message__session__title", NAME_CHARACTERS),
            shown_error=first_characters("result__error", 4 * NAME_CHARACTERS),
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        key = as_uuid(term)
        named = queryset.filter(Q(call_id=term) if key is None else Q(pk=key) | Q(call_id=term))
        if key is not None:
            return named, False
        return named_or_saying(request, queryset, named, term, "call", self.page_size(request)), False

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return _with_found(request, super().get_list_display(request))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a single call, with values that are too long for the page of the run."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        key = as_uuid(unquote(object_id))
        call = read_call(key) if key is not None else None
        if call is None or call.texts is None or not self.has_view_permission(request, call.texts.row):
            return self.missing(request)
        row = call.texts.row
        context = {
            **self.admin_site.each_context(request),
            "title": capfirst(self.opts.verbose_name),
            "tab_title": f"{one_line(str(row.tool), NAME_CHARACTERS)} · {session_name(row.message.session)}",
            "opts": self.opts,
            "call": call,
            "row": row,
            "step_number": step_number(row.step),
            "session": row.message.session,
            "session_name": session_name(row.message.session),
            "alone": True,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/traces_app/call_page.html", context)

    @admin.display(description=gettext_lazy("tool"))
    def tool_name(self, row: ToolCall) -> SafeString:
        return format_html('<a href="{}">{}</a>', url_in_run(row), visible(one_line(str(row.tool), NAME_CHARACTERS)))

    @admin.display(description=gettext_lazy("status"))
    def state(self, row: ToolCall) -> SafeString:
        return badge(row.status, row.get_status_display())

    @admin.display(description=gettext_lazy("error"))
    def error(self, row: Any) -> SafeString:
        if not row.shown_error:
            return visible("")
        return format_html('<a href="{}">{}</a>', url_in_run(row), visible(one_line(row.shown_error, NAME_CHARACTERS)))

    @admin.display(description=gettext_lazy("session"))
    def in_session(self, row: Any) -> SafeString:
        session = row.message.session
        name = one_line(row.shown_title, NAME_CHARACTERS // 2) or session.external_id or str(session.pk)
        url = reverse("admin:messages_app_session_change", args=[quote(session.pk)])
        return format_html('<a href="{}">{}</a>', url, visible(one_line(name, NAME_CHARACTERS // 2)))

    @admin.display(description=gettext_lazy("call ID"), empty_value="")
    def named(self, row: ToolCall) -> SafeString:
        return visible(one_line(row.call_id, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("arguments"))
    def arguments(self, row: Any) -> SafeString:
        return visible(one_line(row.shown_args, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("agent"), empty_value="")
    def agent(self, row: ToolCall) -> SafeString:
        return visible(one_line(row.step.agent_name, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("model"), empty_value="")
    def model_name(self, row: ToolCall) -> SafeString:
        return visible(one_line(row.step.model, NAME_CHARACTERS))

    @admin.display(description=with_zone(gettext_lazy("started")), empty_value="")
    def began(self, row: ToolCall) -> SafeString:
        return moment(row.started_at)

    @admin.display(description=gettext_lazy("duration"), empty_value="")
    def took(self, row: ToolCall) -> str:
        return duration(row.duration_ms)

    @admin.display(description=with_zone(gettext_lazy("created at")))
    def created(self, row: ToolCall) -> SafeString:
        return moment(ids.created_at_of(row.pk))


# These replace the admins of messages_app, which are registered by now, because this module imports theirs.
admin.site.unregister([Session, Message])
admin.site.register(Session, TracedSessionAdmin)
admin.site.register(Message, TracedMessageAdmin)
admin.site.register(Tool, ToolAdmin)
admin.site.register(ToolCall, ToolCallAdmin)


def spans_context(
    model_admin: ModelAdmin[Any], request: HttpRequest, session: Session, trace_id: str
) -> dict[str, Any]:
    """Return the context of the page with the spans of a trace."""
    spans = spans_of(session.project_id, trace_id)
    lines = span_lines(spans)
    return {
        **model_admin.admin_site.each_context(request),
        "title": _("Spans"),
        "tab_title": f"{_('Spans')} · {session_name(session)}",
        "opts": model_admin.opts,
        "trace_id": trace_id,
        "session": session,
        "session_name": session_name(session),
        "lines": lines,
        "left_out": len(spans) - len(lines),
    }


def _with_found(request: HttpRequest, columns: list[Any], in_trash: bool = False) -> list[Any]:
    """Return the columns of a list, with the places of its search behind the first."""
    return columns if in_trash or not is_searched(request) else [columns[0], found_column(request), *columns[1:]]


def url_in_run(call: ToolCall) -> str:
    """Return the URL of a call in the page of its message."""
    url = reverse("admin:messages_app_message_change", args=[quote(call.message_id)])
    return f"{url}?call={call.pk}#call-{call.pk}"


def url_of_failures(session: Session) -> str:
    """Return the URL of the list of a session's failed calls."""
    url = reverse("admin:traces_app_toolcall_changelist")
    return f"{url}?{urlencode({'session': str(session.pk), 'status': 'error'})}"


def _redirect_to_form(model_admin: ModelAdmin[Any], request: HttpRequest, error: ApiError) -> HttpResponse:
    """Show the form again with an error of `ingest`, which refused the data after the form accepted it."""
    model_admin.message_user(request, error.message, messages.ERROR)
    return HttpResponseRedirect(request.get_full_path())
