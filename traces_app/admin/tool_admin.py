"""The admin of tools: their list, their statistics and the page of one tool."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.admin_roles import Page
from access_app.errors import InvalidInput
from access_app.request_database import database
from access_app.visibility import visible_to
from messages_app.admin.api_list import ApiList
from messages_app.admin.columns import Columns
from messages_app.admin.filters import InvalidFilter, ProjectFilter
from messages_app.admin.keyset import KeysetAdmin
from messages_app.safe_text import one_line, visible
from traces_app.models import Tool

from .labels import NAME_CHARACTERS
from .periods import Period, chosen_times, page_of_period, warning_of
from .tool_pages import PARAMETERS, list_context, list_csv, tool_context


def show_statistics(model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
    """Show the statistics of all tools in a range of times."""
    title = _("Tool statistics")
    if request.GET.get("format") == "csv":
        try:
            return list_csv(request, Period(chosen_times(request)))
        except (InvalidInput, InvalidFilter) as error:
            text = warning_of(error) if isinstance(error, InvalidFilter) else str(error)
            model_admin.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(request.path)
    return page_of_period(
        model_admin, request, "tool_statistics", title, lambda period: list_context(request, period), PARAMETERS
    )


@admin.register(Tool)
class ToolAdmin(KeysetAdmin):
    list_filter = (ProjectFilter,)
    pages = (Page("statistics/", show_statistics, "statistics"),)
    api = ApiList(name="tools")
    list_display = ("shown_name", "project", "shown_category", "shown_description", "calls")
    columns = Columns(list_display)
    fields = ("project", "shown_name", "shown_category", "shown_description", "calls")
    search_help_text = gettext_lazy("Search by part of the name.")

    change_list_template = "admin/traces_app/tool_list.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        db = database(request)
        return visible_to(db.rows(Tool.objects).select_related("project"), self.scope(request))

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
        return page_of_period(
            self,
            request,
            "tool_page",
            title,
            lambda period: {"tool": tool, **tool_context(request, tool, period)},
            PARAMETERS,
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
            '<a href="{}?{}">{}</a> · <a href="{}?{}">{}</a> · <a href="{}?{}">{}</a>',
            *(url, urlencode(query), _("all")),
            *(url, urlencode({**query, "status": "error"}), _("failed")),
            *(url, urlencode({**query, "status": "pending"}), _("without a result")),
        )
