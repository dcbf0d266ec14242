"""The admin of sessions, shown as conversations, and of messages; both can be deleted and restored.

traces_app.admin replaces both by admins that show the runs, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, When
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import capfirst, format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.errors import InvalidInput
from access_app.models import Project
from messages_app import writes
from messages_app.admin.downloads import Source
from messages_app.admin.exports import amount, text
from messages_app.admin.filters import (
    ActiveFilter,
    BeganFilter,
    CreatedFilter,
    OrderFilter,
    ProjectFilter,
    SessionNameFilter,
)
from messages_app.admin.time_zones import with_zone
from messages_app.admin.trash import TrashAdmin
from messages_app.interruptions import shown_error
from messages_app.models import Message, Reference, Session
from messages_app.queries import as_uuid
from messages_app.safe_text import (
    duration,
    first_characters,
    marked,
    message_duration,
    moment,
    one_line,
    session_cost,
    tokens_by_kind,
    total_cost,
    visible,
)
from messages_app.sql.pagination import Cursor
from messages_app.waiting import status_of_open_message, waiting_words

from .conversation import (
    MESSAGE_DETAILS,
    SESSION_DETAILS,
    Bubble,
    MessagePage,
    message_numbered,
    place_in_conversation,
    read_conversation,
    read_message,
    read_session,
    unpriced_answers,
)
from .list_filters import (
    CompletedFilter,
    CostFilter,
    DurationFilter,
    EndUserFilter,
    MessageErrorsFilter,
    MessageTagFilter,
    MessageUserFilter,
    RoleFilter,
    SessionCostFilter,
    SessionDurationFilter,
    SessionErrorsFilter,
    SessionStatusFilter,
    TagFilter,
    WaitingFilter,
)

NAME_CHARACTERS = 80
TAB_CHARACTERS = 50
HEADING_CHARACTERS = 120
TITLES_SEARCHED = 10_000
FOUND = 500
TAGS_LISTED = 5
"""Tags of one session in a list; its page shows all."""


class SessionAdmin(TrashAdmin):
    """The admin of sessions; the page of a session shows its conversation."""

    delete_row = staticmethod(writes.delete_session)
    restore_row = staticmethod(writes.restore_session)
    what_is_restored = gettext_lazy(
        "Restoring a session brings back its messages with everything below them, its tags and its scores. Messages that "
        "were deleted individually stay in the trash."
    )
    other_trash: ClassVar[Any] = (gettext_lazy("Deleted messages"), "admin:messages_app_message_trash")
    list_filter: ClassVar[Any] = (
        *(ProjectFilter, SessionStatusFilter, SessionErrorsFilter, TagFilter, EndUserFilter),
        *(SessionDurationFilter, SessionCostFilter, OrderFilter, ActiveFilter, BeganFilter),
    )
    search_help_text = trash_search_help = format_lazy(
        gettext_lazy(
            "Search by ID, external ID, end user, or words in the title (newest {number} sessions of this list only)."
        ),
        number=f"{TITLES_SEARCHED:,}",
    )
    page_template = "admin/messages_app/session/page.html"
    api_name = "sessions"
    list_display = (
        *("name", "problems", "state", "project", "user", "messages", "calls", "took", "spent", "active", "created"),
    )
    all_columns: ClassVar[Any] = (
        *("name", "problems", "state", "named", "project", "user", "labels", "messages", "calls", "failures"),
        *("tokens_in", "tokens_out", "took", "spent", "active", "created"),
    )
    export_columns: ClassVar[Any] = {
        "id": F("pk"),
        "project": F("project__slug"),
        "external_id": text("external_id"),
        "title": text("title"),
        "end_user": text("end_user"),
        "tags": F("tags"),
        "status": F("status"),
        "message_count": F("message_count"),
        "call_count": F("call_count"),
        "failure_count": F("failure_count"),
        "problem_count": F("problem_count"),
        "input_tokens": F("input_tokens"),
        "output_tokens": F("output_tokens"),
        "duration_ms": F("duration_ms"),
        "cost": amount("cost"),
        "unpriced_count": F("unpriced_count"),
        "created_at": F("created_at"),
        "active_at": F("active_at"),
    }
    downloads: ClassVar[Any] = {
        "session": Source(rows=Session.with_deleted, columns=frozenset(["description", *SESSION_DETAILS])),
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        fields = [
            *("project", "external_id", "status", "message_count", "call_count", "problem_count", "duration_ms"),
            *("cost", "unpriced_count", "failure_count", "input_tokens", "output_tokens", "end_user", "tags"),
            *("created_at", "active_at", "deleted_at", "deleted_by"),
        ]
        sessions = self.rows(request).select_related("project")
        named: QuerySet[Any] = sessions.only(*fields, *self.listed_columns(request)).annotate(
            shown_title=first_characters("title", NAME_CHARACTERS + 1)
        )
        if "took" not in self.get_list_display(request):
            return named
        # The sum of a session is 0 if no duration is known, too. Its last run is found by its key.
        last_run = Message.objects.filter(pk=OuterRef("last_run_id"), duration_ms=0)
        with_instants: QuerySet[Any] = named.annotate(
            is_instant=Case(When(duration_ms=0, then=Exists(last_run)), default=False)
        )
        return with_instants

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        if self.in_trash(request):
            columns = ["deleted", "deleter", "user", "project", "messages", "calls", "created"]
            return ["name", *self.trash_columns(request), *columns]
        return list(super().get_list_display(request))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if (session := as_uuid(term)) is not None:
            return queryset.filter(pk=session), False
        return queryset.filter(pk__in=_sessions_named(queryset, term)), False

    def row_name(self, row: Any) -> str:
        return session_name(row)

    def contents(self, rows: Iterable[Any]) -> str:
        counts = [(row.message_count, row.call_count) for row in rows]
        count, calls = sum(messages for messages, _calls in counts), sum(calls for _messages, calls in counts)
        if not count:
            return ""
        words = {
            "messages": ngettext("%(number)s message", "%(number)s messages", count) % {"number": f"{count:,}"},
            "calls": ngettext("%(number)s tool call", "%(number)s tool calls", calls) % {"number": f"{calls:,}"},
        }
        return (
            _("This includes %(messages)s and %(calls)s.") % words
            if calls
            else _("This includes %(messages)s.") % words
        )

    # --- The page of a session ------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        key = as_uuid(unquote(object_id))
        page = read_session(key) if key is not None else None
        if page is None or not self.has_view_permission(request, page.session):
            return self.missing(request)
        session = page.session
        try:
            cursor = Cursor.parse(request.GET["cursor"]) if "cursor" in request.GET else None
        except InvalidInput:
            text = _("Invalid page of the conversation. The first page is shown.")
            self.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(request.path)
        if "number" in request.GET:
            return self.go_to(request, session, request.GET["number"])
        conversation = read_conversation(session, cursor=cursor, newest="newest" in request.GET)
        runs = self.runs_of([bubble.message for bubble in conversation.bubbles])
        context = {
            **self.admin_site.each_context(request),
            "title": session_name(session),
            "opts": self.opts,
            "session": session,
            "preserved_filters": self.get_preserved_filters(request),
            "messages_in_trash": Message.with_deleted.filter(
                project=session.project_id, session=session, deleted_at__isnull=False
            ).count(),
            "description": page.description,
            "details": [(name, self.field_name(name), text) for name, text in page.details],
            "plan": page.plan,
            "duration_ms": page.duration_ms,
            "cost_words": session_cost(session, unpriced_answers(session)),
            "waiting_words": waiting_words(session),
            "open_status": status_of_open_message(session),
            "conversation": conversation,
            "bubbles": [(bubble, runs.get(bubble.message.pk)) for bubble in conversation.bubbles],
            "has_delete_permission": self.has_delete_permission(request, session),
            "has_restore_permission": self.has_restore_permission(request, session),
            **self.trash_context(request, session),
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.page_template, context)

    def go_to(self, request: HttpRequest, session: Session, number: str) -> HttpResponse:
        """Redirect to the page of the conversation that begins with its message `number`, counted from 1."""
        message = message_numbered(session, int(number)) if re.fullmatch("[0-9]{1,9}", number, re.ASCII) else None
        if message is None:
            text = _("There is no such message. Messages are numbered from 1 to %(count)d.")
            self.message_user(request, text % {"count": session.message_count}, messages.WARNING)
            return HttpResponseRedirect(request.path)
        return HttpResponseRedirect(f"{request.path}{place_in_conversation(session, message)}")

    def runs_of(self, messages: Sequence[Message]) -> dict[UUID, Any]:
        """Return the run of each of `messages`, for the template; overridden by traces_app."""
        return {}

    # --- Columns --------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("session"))
    def name(self, row: Any) -> SafeString:
        return marked(session_name(row), found_terms(row, "title"))

    @admin.display(description=gettext_lazy("status"))
    def state(self, row: Session) -> SafeString:
        # Green beside problems would read as if all went well.
        is_mixed = row.problem_count and row.status == Session.Status.COMPLETED
        return badge("plain" if is_mixed else row.status, row.get_status_display())

    @admin.display(description=gettext_lazy("external ID"), empty_value="")
    def named(self, row: Session) -> SafeString:
        return visible(one_line(row.external_id, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("end user"), empty_value="")
    def user(self, row: Session) -> SafeString | None:
        if not row.end_user:
            return None
        url = reverse("admin:messages_app_session_changelist", query={"end_user": row.end_user})
        return format_html('<a href="{}">{}</a>', url, visible(one_line(row.end_user, NAME_CHARACTERS)))

    @admin.display(description=gettext_lazy("tags"), empty_value="")
    def labels(self, row: Session) -> SafeString:
        url = reverse("admin:messages_app_session_changelist")
        links = (
            (url, urlencode({"tag": tag}), visible(one_line(tag, NAME_CHARACTERS // 2)))
            for tag in row.tags[:TAGS_LISTED]
        )
        return format_html_join(" ", '<a class="tag" href="{}?{}">{}</a>', links)

    @admin.display(description=gettext_lazy("messages"))
    def messages(self, row: Session) -> str:
        return f"{row.message_count:,}"

    @admin.display(description=gettext_lazy("tool calls"))
    def calls(self, row: Session) -> str:
        return f"{row.call_count:,}"

    @admin.display(description=gettext_lazy("failed calls"), empty_value="")
    def failures(self, row: Session) -> str:
        return f"{row.failure_count:,}" if row.failure_count else ""

    @admin.display(description=gettext_lazy("input tokens"), empty_value="")
    def tokens_in(self, row: Session) -> str:
        return f"{row.input_tokens:,}" if row.input_tokens else ""

    @admin.display(description=gettext_lazy("output tokens"), empty_value="")
    def tokens_out(self, row: Session) -> str:
        return f"{row.output_tokens:,}" if row.output_tokens else ""

    @admin.display(description=gettext_lazy("problems"), empty_value="")
    def problems(self, row: Session) -> SafeString | None:
        if not row.problem_count:
            return None
        url = reverse("admin:messages_app_message_changelist", query={"session": row.pk, "has_errors": "true"})
        counted = _("Failed calls, errors of models, and runs that ended with an error")
        return format_html('<a href="{}" title="{}">{}</a>', url, counted, badge("error", f"{row.problem_count:,}"))

    @admin.display(description=gettext_lazy("run time"), empty_value="")
    def took(self, row: Any) -> str:
        return duration(row.duration_ms) if row.duration_ms or row.is_instant else ""

    @admin.display(description=gettext_lazy("cost"), empty_value="")
    def spent(self, row: Session) -> SafeString:
        return total_cost(row)

    @admin.display(description=with_zone(gettext_lazy("last activity")))
    def active(self, row: Session) -> SafeString:
        return moment(row.active_at)

    @admin.display(description=with_zone(gettext_lazy("started")))
    def created(self, row: Session) -> SafeString:
        return moment(row.created_at)


class MessageAdmin(TrashAdmin):
    """The admin of messages; the page of an answer also shows its question."""

    delete_row = staticmethod(writes.delete_message)
    restore_row = staticmethod(writes.restore_message)
    what_is_restored = gettext_lazy(
        "Restoring a message brings back its place in the conversation, its steps, tool calls and references, and its scores. "
        "Messages of a deleted session come back with the session."
    )
    other_trash: ClassVar[Any] = (gettext_lazy("Deleted sessions"), "admin:messages_app_session_trash")
    page_related = ("project", "session")
    list_filter: ClassVar[Any] = (
        *(ProjectFilter, RoleFilter, CompletedFilter, WaitingFilter, MessageErrorsFilter),
        *(SessionNameFilter, MessageTagFilter, MessageUserFilter, DurationFilter, CostFilter, CreatedFilter),
    )
    list_display_links: Any = ("text",)
    search_help_text = trash_search_help = format_lazy(
        gettext_lazy(
            "Search by message ID, external ID or request ID, or by session: ID, external ID, end user, or "
            "words in the title (newest {number} sessions only)."
        ),
        number=f"{TITLES_SEARCHED:,}",
    )
    page_template = "admin/messages_app/message/page.html"
    api_name = "messages"
    list_display: Any = (
        "text",
        "who",
        "in_session",
        "project",
        "calls",
        "outcome",
        "took",
        "spent",
        "created",
    )
    all_columns: ClassVar[Any] = (
        *("text", "named", "requested", "who", "in_session", "project", "steps", "calls", "outcome"),
        *("tokens", "tokens_in", "tokens_out", "took", "spent", "created", "ended"),
    )
    export_columns: ClassVar[Any] = {
        "id": F("pk"),
        "project": F("project__slug"),
        "session": F("session_id"),
        "session_external_id": text("session__external_id"),
        "role": F("role"),
        "external_id": text("external_id"),
        "request_id": text("request_id"),
        "content": text("content"),
        "is_completed": F("is_completed"),
        "error": text("error"),
        "health": F("health"),
        "step_count": F("step_count"),
        "call_count": F("call_count"),
        "failure_count": F("failure_count"),
        "model_error_count": F("model_error_count"),
        "input_tokens": F("input_tokens"),
        "output_tokens": F("output_tokens"),
        "duration_ms": F("duration_ms"),
        "cost": amount("cost"),
        "unpriced_count": F("unpriced_count"),
        "created_at": F("created_at"),
        "completed_at": F("completed_at"),
    }
    downloads: ClassVar[Any] = {
        "message": Source(
            rows=Message.with_deleted, columns=frozenset(["content", "content_parts", "error", *MESSAGE_DETAILS])
        ),
        "reference": Source(
            rows=Reference.objects,
            columns=frozenset(["content", "image_info", "metadata"]),
            project="message__project_id",
        ),
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        fields = [
            *("project", "session__external_id", "session__status", "session__deleted_at", "role", "external_id"),
            "is_completed",
            *("call_count", "failure_count", "model_error_count", "health", "duration_ms", "cost", "unpriced_count"),
            *("request_id", "step_count", "input_tokens", "output_tokens"),
            *("created_at", "completed_at", "deleted_at", "deleted_by"),
        ]
        messages = self.rows(request).select_related("project", "session")
        shortened: QuerySet[Any] = messages.only(*fields, *self.listed_columns(request)).annotate(
            # More characters than shown, because one_line collapses runs of spaces.
            shown_content=first_characters("content", 4 * NAME_CHARACTERS),
            shown_error=first_characters("error", NAME_CHARACTERS + 1),
            session_title=first_characters("session__title", NAME_CHARACTERS + 1),
        )
        return shortened

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        if self.in_trash(request):
            columns = ["deleted", "deleter", "who", "in_session", "project", "calls", "created"]
            return ["text", *self.trash_columns(request), *columns]
        return list(super().get_list_display(request))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if (given := as_uuid(term)) is not None:
            by_session = Session.with_deleted.filter(pk=given).exists()
            return queryset.filter(session_id=given) if by_session else queryset.filter(pk=given), False
        # By the ids from small queries: for an OR of three conditions the planner would scan along the primary key.
        sessions = _sessions_named(Session.objects.order_by("-pk"), term)
        named = [
            key for field in ("external_id", "request_id") for key in _first_keys(queryset.filter(**{field: term}))
        ]
        return queryset.filter(Q(pk__in=named) | Q(session_id__in=sessions)), False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or obj.session.deleted_at is None)

    def row_name(self, row: Any) -> str:
        text = one_line(getattr(row, "shown_content", None) or row.content, NAME_CHARACTERS)
        return f"{row.get_role_display()}: {text}" if text else str(row)

    def not_restorable(self, row: Any) -> SafeString | None:
        if row.session.deleted_at is None:
            return None
        url = reverse("admin:messages_app_session_change", args=[quote(row.session_id)])
        return format_html('<a href="{}">{}</a>', url, _("Restore its session first"))

    def already_deleted(self, row: Any) -> str:
        if not row.deleted_at and row.session.deleted_at:
            return _("“%(name)s” is in the trash with its session.") % {"name": self.row_name(row)}
        return super().already_deleted(row)

    def contents(self, rows: Iterable[Any]) -> str:
        calls = sum(row.call_count for row in rows)
        if not calls:
            return ""
        words = ngettext("%(number)s tool call", "%(number)s tool calls", calls) % {"number": f"{calls:,}"}
        return _("This includes %(calls)s.") % {"calls": words}

    # --- The page of a message ------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        key = as_uuid(unquote(object_id))
        page = read_message(key) if key is not None else None
        if page is None or not self.has_view_permission(request, page.bubble.message):
            return self.missing(request)
        message, heading = page.bubble.message, _heading(page)
        context = {
            **self.admin_site.each_context(request),
            "title": title_of(message),
            "tab_title": f"{_short_name(page)} · {session_name(message.session)}",
            "heading": heading,
            "shows_question": page.question is not None and not _is_said_in(heading, page.question),
            "opts": self.opts,
            "page": page,
            "place_in_conversation": place_in_conversation(page.bubble.message.session, page.bubble.message.pk),
            "message": message,
            "session": message.session,
            "session_name": session_name(message.session),
            "open_status": status_of_open_message(message.session),
            "waiting_words": "" if message.is_completed else waiting_words(message.session),
            "details": [(name, self.field_name(name), text) for name, text in page.details],
            "has_delete_permission": self.has_delete_permission(request, message),
            "has_restore_permission": self.has_restore_permission(request, message),
            **self.trash_context(request, message),
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.page_template, context)

    def url_after_delete(self, request: HttpRequest, key: Any) -> str:
        """Return the URL of the message's conversation."""
        session = Message.with_deleted.values_list("session_id", flat=True).get(pk=key)
        return reverse("admin:messages_app_session_change", args=[quote(session)])

    # --- Columns --------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("content"))
    def text(self, row: Any) -> SafeString:
        return text_of(row)

    @admin.display(description=gettext_lazy("role"))
    def who(self, row: Message) -> SafeString:
        return badge(row.role, row.get_role_display())

    @admin.display(description=gettext_lazy("session"))
    def in_session(self, row: Any) -> SafeString:
        name = one_line(row.session_title, NAME_CHARACTERS // 2) or row.session.external_id or str(row.session_id)
        url = reverse("admin:messages_app_session_change", args=[quote(row.session_id)])
        return format_html('<a href="{}">{}</a>', url, visible(one_line(name, NAME_CHARACTERS // 2)))

    @admin.display(description=gettext_lazy("external ID"), empty_value="")
    def named(self, row: Message) -> SafeString:
        return visible(one_line(row.external_id, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("request ID"), empty_value="")
    def requested(self, row: Message) -> SafeString:
        return visible(one_line(row.request_id, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("steps"), empty_value="")
    def steps(self, row: Message) -> str:
        return f"{row.step_count:,}" if row.step_count else ""

    @admin.display(description=gettext_lazy("tool calls"), empty_value="")
    def calls(self, row: Message) -> str:
        return f"{row.call_count:,}" if row.call_count else ""

    @admin.display(description=gettext_lazy("tokens"), empty_value="")
    def tokens(self, row: Message) -> SafeString | None:
        total = row.input_tokens + row.output_tokens
        if not total:
            return None
        title = tokens_by_kind(row.input_tokens, row.output_tokens)
        return format_html('<span title="{}">{}</span>', title, f"{total:,}")

    @admin.display(description=gettext_lazy("input tokens"), empty_value="")
    def tokens_in(self, row: Message) -> str:
        return f"{row.input_tokens:,}" if row.input_tokens else ""

    @admin.display(description=gettext_lazy("output tokens"), empty_value="")
    def tokens_out(self, row: Message) -> str:
        return f"{row.output_tokens:,}" if row.output_tokens else ""

    @admin.display(description=gettext_lazy("status"), empty_value="")
    def outcome(self, row: Any) -> SafeString | None:
        if row.failure_count:
            return badge("error", _("%(count)s failed") % {"count": f"{row.failure_count:,}"})
        if row.shown_error:
            return badge("error badge-text", one_line(shown_error(row.shown_error), NAME_CHARACTERS // 2))
        if row.model_error_count:
            words = ngettext("%(count)d model error", "%(count)d model errors", row.model_error_count)
            return badge("error", words % {"count": row.model_error_count})
        if row.is_completed:
            return None
        status = status_of_open_message(row.session)
        return badge(status, str(status.label))

    @admin.display(description=gettext_lazy("duration"), empty_value="")
    def took(self, row: Message) -> SafeString:
        return message_duration(row)

    @admin.display(description=gettext_lazy("cost"), empty_value="")
    def spent(self, row: Message) -> SafeString:
        return total_cost(row)

    @admin.display(description=with_zone(gettext_lazy("completed at")), empty_value="")
    def ended(self, row: Message) -> SafeString:
        return moment(row.completed_at)

    @admin.display(description=with_zone(gettext_lazy("created at")))
    def created(self, row: Message) -> SafeString:
        return moment(row.created_at)


admin.site.register(Session, SessionAdmin)
admin.site.register(Message, MessageAdmin)


def title_of(message: Message) -> str:
    """Return the title of the page of a message; an answer with everything below it is a run."""
    if message.role == Message.Role.ASSISTANT:
        return _("Run")
    return capfirst(_("%(role)s message") % {"role": message.get_role_display()})


def text_of(row: Any) -> SafeString:
    """Return the beginning of a message of a list, otherwise what there is instead of a text."""
    if text := one_line(row.shown_content, NAME_CHARACTERS):
        return marked(text, found_terms(row, "content"))
    return format_html('<span class="quiet">{}</span>', _("(no text)") if row.is_completed else _("(no text yet)"))


def found_terms(row: Any, field: str) -> Sequence[str]:
    """Return what a search found in a field that a row of its list shows: see traces_app.admin.text_search."""
    terms: Mapping[str, Sequence[str]] = getattr(row, "found_terms", {})
    return terms.get(field, ())


def session_name(session: Any) -> str:
    """Return the display name of a session: its title, otherwise its external id, otherwise its id."""
    title = session.shown_title if hasattr(session, "shown_title") else session.title
    return one_line(title, NAME_CHARACTERS) or one_line(session.external_id, NAME_CHARACTERS) or str(session.pk)


def context_in_session(
    model_admin: admin.ModelAdmin[Any], request: HttpRequest, session: Session, title: str
) -> dict[str, Any]:
    """Return the context of a page about something in a session, whose tab has the title and the session."""
    name = session_name(session)
    return {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "tab_title": f"{title} · {name}",
        "opts": model_admin.opts,
        "session": session,
        "session_name": name,
    }


def _heading(page: MessagePage) -> str:
    """Return the heading of the page: of a run the beginning of its question, if it has words."""
    question = page.question.message.shown_content if page.question else ""
    return one_line(question, HEADING_CHARACTERS) or title_of(page.bubble.message)


def _is_said_in(heading: str, question: Bubble) -> bool:
    """Return whether a heading has the whole of a question."""
    more = question.content_parts or question.error or question.as_received or question.references
    return not more and question.content.head.strip() == heading


def _short_name(page: MessagePage) -> str:
    """Return the beginning of the question, otherwise of the message itself, which distinguishes the tabs of a browser."""
    message = page.bubble.message
    question = page.question.message.shown_content if page.question else ""
    return one_line(question, TAB_CHARACTERS) or one_line(message.shown_content, TAB_CHARACTERS) or str(message)


def badge(kind: str, text: str) -> SafeString:
    """Return a coloured label; the colours are in tracesite/admin.css."""
    return format_html('<span class="badge badge-{}">{}</span>', kind, visible(text))


def _sessions_named(sessions: QuerySet[Any], term: str) -> list[UUID]:
    """Return the keys of `sessions` with the external id or of the end user `term`, and of the newest ones with `term` in their
    title."""
    # With the projects, because the indexes of external ids and end users begin with them.
    in_projects = sessions.filter(project__in=Project.objects.values_list("pk", flat=True))
    exact, of_user = in_projects.filter(external_id=term), in_projects.filter(end_user=term)
    newest = sessions.order_by("-pk").values_list("pk")[:TITLES_SEARCHED]
    titled = Session.with_deleted.filter(pk__in=newest, title__icontains=term)
    return [*_first_keys(exact), *_first_keys(of_user), *_first_keys(titled)]


def _first_keys(rows: QuerySet[Any]) -> list[UUID]:
    return list(rows.order_by("-pk").values_list("pk", flat=True)[:FOUND])
