"""The admin of tool calls: their list and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.admin_roles import Page
from access_app.request_database import database
from messages_app.admin.api_list import ApiList
from messages_app.admin.columns import Columns
from messages_app.admin.downloads import Downloadable, Downloads
from messages_app.admin.exports import Export, text
from messages_app.admin.filters import CreatedFilter, OrderFilter, ProjectFilter, Sort
from messages_app.admin.keyset import KeysetAdmin, NamedList
from messages_app.admin.selection import BulkActions
from messages_app.admin.walks import page_size
from messages_app.queries import as_uuid
from messages_app.safe_text import ago, duration, first_characters, marked, one_line, visible
from messages_app.sql.beginnings import beginning_of_small
from traces_app.models import ToolCall, ToolResult
from traces_app.queries.runs.addresses import url_in_run
from traces_app.queries.search.pages import mark_of_status
from traces_app.queries.search.texts import FIELDS
from traces_app.queries.session_names import keys_beginning, read_session_names
from tracesite_sdk.records import ids

from .bulk_scores import score_selected
from .error_pages import PARAMETERS, errors_context
from .facets import send_facets
from .filters import (
    CallAgentFilter,
    CallDurationFilter,
    CallErrorGroupFilter,
    CallModelFilter,
    CallReflectionFilter,
    CallScoreFilter,
    CallSessionFilter,
    CallStatusFilter,
    CallToolFilter,
    CallUserFilter,
    MessageIdFilter,
)
from .labels import NAME_CHARACTERS, call_label, found_terms
from .list_filters import SORTS
from .peek import send_call_peek
from .periods import page_of_period
from .text_search import named_or_saying, with_found

ERROR_CHARACTERS = 2 * NAME_CHARACTERS


def show_errors(model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
    """Show the failed calls of a range of times, grouped by equal errors."""
    return page_of_period(
        model_admin, request, "error_groups", _("Errors"), lambda period: errors_context(request, period), PARAMETERS
    )


@admin.register(ToolCall)
class ToolCallAdmin(KeysetAdmin):
    """The list of calls, for finding a failed one; each row links to its place in the run."""

    pages = (
        Page("errors/", show_errors, "errors"),
        Page("facets/", send_facets, "facets"),
        Page("<uuid:call_id>/peek/", send_call_peek, "peek"),
    )
    bulk = BulkActions(for_all=True)
    sorts: ClassVar[Mapping[str, Sort]] = {"duration": SORTS["duration"]}
    searched_fields = FIELDS
    search_example = "status:error duration:>1000"
    actions = (score_selected,)
    list_filter = (
        *(ProjectFilter, CallToolFilter, CallStatusFilter, CallModelFilter, CallAgentFilter, CallSessionFilter),
        *(
            CallErrorGroupFilter,
            CallUserFilter,
            MessageIdFilter,
            CallDurationFilter,
            CallReflectionFilter,
            CallScoreFilter,
            OrderFilter,
            CreatedFilter,
        ),
    )
    columns = Columns(
        (
            *("tool_name", "named", "state", "arguments", "error", "in_session", "project", "agent", "model_name"),
            *("took", "began", "created"),
        )
    )
    api = ApiList(name="tool-calls", searches=True)
    list_display = ("tool_name", "state", "arguments", "error", "in_session", "project", "took", "began")
    columns_with_text = ("arguments", "error", "took")
    list_display_links = ("tool_name",)
    named_lists = (
        NamedList(
            parameter="status",
            value=ToolCall.Status.ERROR,
            title=gettext_lazy("Failed calls"),
            # The title says the status.
            usual=tuple(name for name in list_display if name != "state"),
        ),
    )
    search_help_text = gettext_lazy(
        'Search for words in the arguments, outputs and errors of calls, all of which must occur ("exact phrase", -without, '
        "error:timeout), or by call ID: the model's, or the first 6 characters of Tracesite's."
    )
    exports = Export(
        {
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
    )
    downloads = Downloads(
        {
            "call": Downloadable(rows=ToolCall.with_deleted, columns=frozenset(["args", "reflection", "metadata"])),
            "result": Downloadable(
                rows=ToolResult.objects,
                columns=frozenset(["output", "data", "error", "metadata", "attachments", "raw"]),
            ),
        }
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        db = database(request)
        readable = db.rows(ToolCall.objects).visible_to(self.scope(request))
        calls = readable.select_related("project", "tool", "message__session")
        fields = ["project", "tool__name", "status", "duration_ms", "message__session__external_id"]
        fields += ["call_id", "started_at"]
        listed = self.get_list_display(request)
        if "agent" in listed or "model_name" in listed:
            calls = calls.select_related("step")
            fields += ["step__agent_name", "step__model"]
        if "arguments" in listed:
            calls = calls.annotate(shown_args=beginning_of_small("args", 2 * NAME_CHARACTERS))
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
        keys = keys_beginning(queryset, term)
        named = queryset.filter(Q(pk__in=keys) | Q(call_id=term) if keys else Q(call_id=term))
        if as_uuid(term) is not None:
            return named, False
        mark = mark_of_status(request.GET.get("status"))
        return named_or_saying(request, queryset, named, term, "call", page_size(self, request), mark), False

    def row_name(self, row: Any) -> str:
        # Of an action on rows of other pages, the names of their sessions are not read.
        name = getattr(row, "session_name", row.shown_title or row.message.session.external_id)
        return f"{one_line(str(row.tool), NAME_CHARACTERS)} · {one_line(name, NAME_CHARACTERS)}"

    def shown_columns(self, request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        def says(row: Any) -> dict[str, str]:
            shown = {"tool": str(row.tool)}
            if "error" in columns:
                shown["error"] = one_line(row.shown_error, ERROR_CHARACTERS)
            return shown

        if "in_session" in columns:
            for row in rows:
                row.message.session.shown_title = row.shown_title
            names = read_session_names(row.message.session for row in rows)
            for row in rows:
                row.session_name = names[row.message.session_id]
        return with_found(request, columns, rows, says)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the call in its run."""
        db = database(request)
        if not self.has_view_permission(request):
            raise PermissionDenied
        key = as_uuid(unquote(object_id))
        calls = db.rows(ToolCall.with_deleted).only("project", "message")
        call = None if key is None else calls.filter(pk=key).first()
        if call is None or not self.has_view_permission(request, call):
            return self.missing(request)
        return HttpResponseRedirect(_address(call))

    @admin.display(description=gettext_lazy("tool"))
    def tool_name(self, row: ToolCall) -> SafeString:
        return marked(one_line(str(row.tool), NAME_CHARACTERS), found_terms(row, "tool"))

    @admin.display(description=gettext_lazy("status"))
    def state(self, row: ToolCall) -> SafeString:
        return call_label(row)

    @admin.display(description=gettext_lazy("error"))
    def error(self, row: Any) -> SafeString:
        if not row.shown_error:
            return visible("")
        shown = marked(one_line(row.shown_error, ERROR_CHARACTERS), found_terms(row, "error"))
        return format_html('<a class="bad" href="{}">{}</a>', _address(row), shown)

    @admin.display(description=gettext_lazy("session"))
    def in_session(self, row: Any) -> SafeString:
        url = reverse("admin:messages_app_session_change", args=[quote(row.message.session_id)])
        return format_html('<a href="{}">{}</a>', url, visible(one_line(row.session_name, NAME_CHARACTERS // 2)))

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

    @admin.display(description=gettext_lazy("started"), empty_value="")
    def began(self, row: ToolCall) -> SafeString:
        if row.started_at is not None:
            return ago(row.started_at)
        of_message = _("Time of its message, because its own start is unknown")
        return format_html('<span title="{}">{}</span>', of_message, ago(ids.created_at_of(row.pk)))

    @admin.display(description=gettext_lazy("duration"), empty_value="")
    def took(self, row: ToolCall) -> str:
        return duration(row.duration_ms)

    @admin.display(description=gettext_lazy("time of the message"))
    def created(self, row: ToolCall) -> SafeString:
        return ago(ids.created_at_of(row.pk))


def _address(call: ToolCall) -> str:
    """Return the URL of a call in its run, and of its place in the text."""
    return f"{url_in_run(call.message_id, call.pk)}#call-{call.pk}"
