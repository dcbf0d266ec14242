"""The page of the search: what it finds in sessions, runs and tool calls, a few of each, with the way to all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.readable_pages import readable_on_page
from messages_app.admin.columns import COLUMNS
from messages_app.admin.keyset import KeysetAdmin, single_words
from messages_app.admin.list_rows import CHECKBOX, Column
from messages_app.admin.walks import request_for
from messages_app.models import Message, Session
from traces_app.models import ToolCall

SHOWN = 5
_LISTS: tuple[tuple[Any, Promise, Mapping[str, str]], ...] = (
    (Session, gettext_lazy("Sessions"), {COLUMNS: "name,state,user,created"}),
    (Message, gettext_lazy("Runs"), {"role": Message.Role.ASSISTANT, COLUMNS: "question,outcome,took,created"}),
    (
        ToolCall,
        gettext_lazy("Failed calls"),
        {"status": ToolCall.Status.ERROR, COLUMNS: "tool_name,error,in_session,began"},
    ),
    (ToolCall, gettext_lazy("Tool calls"), {COLUMNS: "tool_name,state,in_session,began"}),
)
"""The lists that are searched, with their parameters."""


@dataclass(frozen=True, kw_only=True)
class FoundList:
    """What was found in one list."""

    title: Promise
    url: str
    """All of it."""
    count: str
    """"12", or "50+" if there are more than a page of the list has."""
    columns: list[Column]
    rows: list[SafeString]
    """The newest SHOWN."""
    has_more: bool
    was_stopped: bool
    """Whether it took too long, so that there may be rows."""


def show_everything(model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
    """Show what a search finds, or only its box."""
    query = request.GET.get("q", "").strip()
    # The lists say for their own requests which databases they do not show.
    readable_on_page(request, model_admin.scope(request))
    lists = [_search(request, *one, query) for one in _LISTS] if query else []
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Search"),
        "opts": model_admin.opts,
        "query": query,
        "search_help": model_admin.search_help_text,
        "found": [one for one in lists if one.rows],
        "without": [one.title for one in lists if not (one.rows or one.was_stopped)],
        "was_stopped": any(one.was_stopped for one in lists),
        "words": single_words(query),
    }
    return TemplateResponse(request, "admin/traces_app/search_page.html", context)


def _search(
    request: HttpRequest, model: type[Any], title: Promise, parameters: Mapping[str, str], query: str
) -> FoundList:
    of_model = admin.site.get_model_admin(model)
    assert isinstance(of_model, KeysetAdmin), "the lists are keyset lists"
    given = QueryDict(mutable=True)
    given.update({"q": query, **parameters})
    found = of_model.keyset_list(request_for(request, given))
    found.list_display = [one for one in found.list_display if one != CHECKBOX]
    del given[COLUMNS]
    return FoundList(
        title=title,
        url=of_model.list_url(given.urlencode()),
        count=f"{len(found.result_list)}{'+' if found.older_query_string else ''}",
        columns=found.list_columns(),
        rows=list(islice(found.list_rows(), SHOWN)),
        has_more=len(found.result_list) > SHOWN,
        was_stopped=found.was_stopped,
    )
