"""The page of the search: what it finds in sessions, runs and tool calls, a few of each, with the way to all of them.

Its filters are those of the lists. One that a list has not is of another kind of rows, so that list is not searched then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.readable_pages import readable_on_page
from messages_app.admin.columns import COLUMNS
from messages_app.admin.filters import ORDER, BarFilter, Chip, CreatedFilter, ValueLink, parameters_of
from messages_app.admin.keyset import KeysetAdmin, single_words, without_invalid
from messages_app.admin.list_rows import CHECKBOX, Column
from messages_app.admin.time_zones import ENTERED_IN
from messages_app.admin.typed_filters import typed_filters
from messages_app.admin.walks import end_of_search, page_size, request_for
from messages_app.models import Message, Session
from traces_app.models import ToolCall
from traces_app.queries.runs.outcome import Outcome
from traces_app.queries.session_names import session_name

from .filters import OutcomeFilter
from .periods import warn_of_others
from .text_search import best_first, tell_fault

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
_STATUS_OF_CALLS: Mapping[str, str] = {
    Outcome.FAILED: ToolCall.Status.ERROR,
    Outcome.DONE: ToolCall.Status.SUCCESS,
    Outcome.WAITING: ToolCall.Status.PENDING,
    Outcome.RUNNING: ToolCall.Status.PENDING,
}
"""What the outcomes of runs are for calls; none of them was stopped."""
_LINKED = (OutcomeFilter, CreatedFilter)
"""The filters with values that one click chooses."""
_LINKED_PARAMETERS = frozenset(parameters_of(one)[0] for one in _LINKED)


@dataclass(frozen=True)
class FoundList:
    """What was found in one list."""

    title: Promise
    _: KW_ONLY
    has_filters: bool = True
    """Whether it has all filters that are given; otherwise it was not searched."""
    url: str = ""
    """All of it."""
    count: str = ""
    """"12", or "50+" if there are more than a page of the list has."""
    columns: Sequence[Column] = ()
    rows: Sequence[SafeString] = ()
    """The best SHOWN of a page of the list."""
    has_more: bool = False
    was_stopped: bool = False
    """Whether it took too long, so that there may be rows."""


def show_everything(model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
    """Show what a search or filters find, or only the box of the search."""
    filters = _filters(request)
    kept = {field for of_model in _admins() for field in of_model.searched_fields}
    query, typed = typed_filters(request.GET.get("q", "").strip(), filters.values(), kept)
    given = {name: value.strip() for name in filters if (value := request.GET.get(name, "")).strip()} | typed
    if typed:
        return HttpResponseRedirect(f"?{urlencode(_parameters(query, given))}")
    warn_of_others(request, {"q", ENTERED_IN, *filters})
    # The lists say for their own requests which databases they do not show.
    readable_on_page(request, model_admin.scope(request))
    try:
        lists = [_search(request, *one, query, given) for one in _LISTS] if query or given else []
    except IncorrectLookupParameters as error:  # of which the list warns
        return HttpResponseRedirect(f"{request.path}?{without_invalid(request.GET, error)}")
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Search"),
        "opts": model_admin.opts,
        "query": query,
        "given": given,
        "linked_filters": [_links(request, one, query, given) for one in _LINKED],
        "chips": list(_chips(request, query, given, filters)),
        "search_help": model_admin.search_help_text,
        "found": [one for one in lists if one.rows],
        "without": [one.title for one in lists if one.has_filters and not (one.rows or one.was_stopped)],
        "not_searched": [one.title for one in lists if not one.has_filters],
        "ranked": page_size(model_admin, request) if query else 0,
        "was_stopped": any(one.was_stopped for one in lists),
        "words": single_words(query),
        "any_time": _at_any_time(query, given),
    }
    return TemplateResponse(request, "admin/traces_app/search_page.html", context)


def _at_any_time(query: str, given: Mapping[str, str]) -> str:
    """Return the search without its period; empty if it has none."""
    others = {name: value for name, value in given.items() if name not in parameters_of(CreatedFilter)}
    return f"?{urlencode(_parameters(query, others))}" if others != dict(given) else ""


def _admins() -> list[KeysetAdmin]:
    found = [admin.site.get_model_admin(model) for model in dict.fromkeys(model for model, *_others in _LISTS)]
    assert all(isinstance(one, KeysetAdmin) for one in found), "the lists are keyset lists"
    return found  # type: ignore[return-value]  # as the assertion says


def _filters(request: HttpRequest) -> dict[str, type[BarFilter]]:
    """Return the filters of all lists by their parameters, each from the first list that has it."""
    found: dict[str, type[BarFilter]] = {}
    for of_model in _admins():
        found = _filters_of(of_model, request) | found
    return found


def _filters_of(of_model: KeysetAdmin, request: HttpRequest) -> dict[str, type[BarFilter]]:
    found = {name: one for one in of_model.get_list_filter(request) for name in parameters_of(one)}
    # The search has no order, and "status" is that of calls; the outcome says more than that of sessions.
    left_out = {ORDER} if of_model.model is ToolCall else {ORDER, "status"}
    return {name: one for name, one in found.items() if name not in left_out}


def _parameters(query: str, given: Mapping[str, str]) -> dict[str, str]:
    return {**({"q": query} if query else {}), **given}


def _filter(request: HttpRequest, of: type[BarFilter], given: Mapping[str, str]) -> BarFilter:
    of_messages = admin.site.get_model_admin(Message)
    return of(request, {name: [given[name]] for name in parameters_of(of) if name in given}, Message, of_messages)


def _links(
    request: HttpRequest, of: type[BarFilter], query: str, given: Mapping[str, str]
) -> tuple[str, list[ValueLink]]:
    """Return the title of a filter, and the links that choose its values."""
    filter_ = _filter(request, of, given)
    others = {name: value for name, value in given.items() if name not in parameters_of(of)}
    name = parameters_of(of)[0]
    chosen = filter_.given.get(name, filter_.any_value) if filter_.given.keys() <= {name} else None
    return str(filter_.title), [
        ValueLink(
            label=str(label),
            url=f"?{urlencode(_parameters(query, others | ({} if value == filter_.any_value else {name: value})))}",
            is_chosen=value == chosen,
        )
        for value, label in filter_.linked_values()
    ]


def _chips(
    request: HttpRequest, query: str, given: Mapping[str, str], filters: Mapping[str, type[BarFilter]]
) -> Iterator[Chip]:
    """Yield the filters but those that a link says is chosen."""
    for of in dict.fromkeys(filters[name] for name in given):
        filter_ = _filter(request, of, given)
        if filter_.given.keys() == {parameters_of(of)[0]} and parameters_of(of)[0] in _LINKED_PARAMETERS:
            continue
        others = {name: value for name, value in given.items() if name not in parameters_of(of)}
        url = f"?{urlencode(_parameters(query, others))}"
        yield Chip(label=str(filter_.title), text=filter_.shown_value(), without=url)


def _name_of(row: Any) -> str:
    """Return the name of a session and the question of a run; a call is known by its tool, which has a place of its own."""
    return session_name(row) if isinstance(row, Session) else getattr(row, "shown_question", "") or ""


def _search(
    request: HttpRequest,
    model: type[Any],
    title: Promise,
    parameters: Mapping[str, str],
    query: str,
    given: Mapping[str, str],
) -> FoundList:
    of_model = admin.site.get_model_admin(model)
    assert isinstance(of_model, KeysetAdmin), "the lists are keyset lists"
    asked = dict(given)
    if model is ToolCall and (status := _STATUS_OF_CALLS.get(asked.get("outcome", ""))):
        del asked["outcome"]
        asked["status"] = status
    # The list of failed calls has none with another status.
    if not (asked.keys() <= _filters_of(of_model, request).keys()) or any(
        asked.get(name, value) != value for name, value in parameters.items()
    ):
        return FoundList(title, has_filters=False)
    query_dict = QueryDict(mutable=True)
    query_dict.update({**_parameters(query, asked), **parameters})
    page = request_for(request, query_dict)
    page.is_of_several = True  # type: ignore[attr-defined]  # read only by text_search
    found = of_model.keyset_list(page)
    if model is _LISTS[0][0]:
        tell_fault(request, page)
    found.result_list = best_first(page, found.result_list, _name_of)
    found.list_display = [one for one in found.list_display if one != CHECKBOX]
    del query_dict[COLUMNS]
    return FoundList(
        title=title,
        url=of_model.list_url(query_dict.urlencode()),
        count=f"{len(found.result_list)}{'+' if found.older_query_string else ''}",
        columns=found.list_columns(),
        rows=list(islice(found.list_rows(), SHOWN)),
        has_more=len(found.result_list) > SHOWN,
        was_stopped=found.was_stopped or end_of_search(page) is not None,
    )
