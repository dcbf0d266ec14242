"""/read/: answers for agents and people who find out why a run failed, within a budget of tokens, as Markdown or JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

from django.http import HttpResponse, QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.request import Request

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.masked_reading import mask_of
from access_app.request_database import database
from access_app.rest import Method, extend_schema
from access_app.visibility import ProjectScope
from messages_app.http import openapi
from messages_app.http.filters import ListFilterSet, check_parameters
from messages_app.http.responses import words
from messages_app.sql.pagination import PageRequest, page_request, whole_number
from messages_app.timestamps import instant_text
from traces_app.queries.answers import answer as forms
from traces_app.queries.answers import cost, error_group, failures, node, tools
from traces_app.queries.answers.answer import Answer
from traces_app.queries.answers.compare import compare
from traces_app.queries.answers.outline import outline
from traces_app.queries.answers.runs import find_call, find_step
from traces_app.queries.answers.search import search
from traces_app.queries.error_groups import group_of_call
from traces_app.queries.filters import LatestErrorFilterSet, MessageFilterSet, UsageFilterSet
from traces_app.queries.schemas.reading import ReadAnswer
from traces_app.queries.tool_filters import ToolStatisticsFilterSet

from .parameters import named_session, query_in, readable_by, requested_scope, search_parameter
from .viewset import TraceViewSet

RESULT_COUNT = "Tracesite-Result-Count"
"""The header with the number of things that were found."""
MOST_BEGIN = 10_000_000
SHORTEST_GROUP = 6
"""Digits of the id of a group of errors."""
BYTES_OF_HIT = 160
"""About as long is a line of a search."""


def _parameter(name: str, description: str, schema: Any = str, **more: Any) -> OpenApiParameter:
    return OpenApiParameter(name, schema, description=description, **more)


MAX_TOKENS = _parameter(
    "max_tokens",
    f"The longest answer: tokens of {forms.BYTES_OF_TOKEN} bytes of UTF-8.",
    {"type": "integer", "minimum": forms.FEWEST_TOKENS, "maximum": forms.MOST_TOKENS, "default": forms.USUAL_TOKENS},
)
FORM = _parameter("format", "Default: json.", enum=[*forms.FORMS])
HINTS = _parameter("hints", "How the answer names what to read next. Default: paths.", enum=[*forms.DIALECTS])
OF_ALL = ("max_tokens", "format", "hints", "project")
_OF_ALL = [MAX_TOKENS, FORM, HINTS, openapi.PROJECT]
RUN = _parameter("run", "A run: its ID or external ID; of a session its newest run.", required=True)
BEGIN = _parameter(
    "begin", "Where to go on: the number of a line, or with `part` of a character.", {"type": "integer", "minimum": 0}
)


def _part(names: Any) -> OpenApiParameter:
    return _parameter("part", "Only this text.", enum=list(names))


ANSWERS: dict[str, list[OpenApiParameter]] = {
    "failures": openapi.filters(LatestErrorFilterSet),
    "outline": [RUN, BEGIN],
    "step": [
        _parameter("step", "Its ID, or its number in the run, such as 3.", required=True),
        _parameter("run", "The run of a number."),
        _part(node.TEXTS_OF_STEP),
        BEGIN,
    ],
    "call": [
        _parameter("call", "Its ID, or its number in the run, such as 3/0.", required=True),
        _parameter("run", "The run of a number."),
        _part(node.TEXTS_OF_CALL),
        BEGIN,
    ],
    "compare": [RUN, _parameter("other", "The other run. Default: the last good run of the same question.")],
    "error_group": [
        _parameter("group", "A group of errors. This or `call` is required."),
        _parameter("call", "A failed call of the group."),
        *openapi.filters(LatestErrorFilterSet),
    ],
    "search": [
        search_parameter(required=True),
        *openapi.filters(MessageFilterSet),
        _parameter("cursor", "The next page: from an earlier answer."),
    ],
    "tools": openapi.filters(ToolStatisticsFilterSet),
    "cost": openapi.filters(UsageFilterSet),
}
"""The parameters of each answer, beside those of all."""


def _described(name: str) -> Callable[[Method], Method]:
    text: dict[Any, Any] = {
        (200, "text/markdown"): OpenApiResponse(OpenApiTypes.STR, "the answer"),
        (200, "application/json"): ReadAnswer,
    }
    return extend_schema(
        operation_id=f"read_{name}",
        parameters=[*ANSWERS[name], *_OF_ALL],
        responses={**text, **openapi.errors(400, 404, 409)},
    )


class ReadingViewSet(TraceViewSet):
    """Answers for agents and people who find out why a run failed."""

    tag = "Reading"

    @_described("failures")
    def failures(self, request: Request) -> HttpResponse:
        """Return what failed lately: groups of equal errors, new and rising ones first, and the newest failed runs.

        Of the last 7 days, unless `created_after` says otherwise.
        """
        given, since = _lately(request.query_params, failures.DAYS)
        readable = readable_by(request)
        filters = LatestErrorFilterSet(given, mask=mask_of(request), also=OF_ALL)
        session, readable = named_session(request, readable)
        calls = readable.rows(lambda db, scope: filters.found(db, scope, session))
        of_runs = QueryDict(mutable=True)
        of_runs["outcome"] = "failed"
        for name in filters.given:
            if name != "session":
                of_runs.setlist(name, given.getlist(name))
        if "tool" in filters.given:
            of_runs["tool_status"] = "error"
        found = MessageFilterSet(of_runs, mask=mask_of(request))
        runs = readable.rows(lambda db, scope: found.found(db, scope, session))
        return _answer(request, failures.failures(calls, runs, since, _kept(filters)))

    @_described("outline")
    def outline(self, request: Request) -> HttpResponse:
        """Return the outline of a run of any length: why it failed, what it waited for, and its steps and calls in a line each.

        Equal calls that follow each other have one line. Steps and calls have numbers, which `step` and `call` take.
        """
        db, scope = _checked(request, "outline")
        run, begin = _required(request, "run"), _begin(request)
        return _answer(request, outline(db, scope, run, begin, _max_tokens(request)))

    @_described("step")
    def step(self, request: Request) -> HttpResponse:
        """Return a step with its thought and its calls.

        With `part` only that text, from its character `begin` on.
        """
        db, scope = _checked(request, "step")
        part, begin = _part_of(request, node.TEXTS_OF_STEP)
        step = find_step(db, scope, request.query_params.get("run", ""), _required(request, "step"))
        return _answer(request, node.step_answer(db, step, part, begin))

    @_described("call")
    def call(self, request: Request) -> HttpResponse:
        """Return a call with its arguments, error and result.

        With `part` only that text, from its character `begin` on.
        """
        db, scope = _checked(request, "call")
        part, begin = _part_of(request, node.TEXTS_OF_CALL)
        call = find_call(db, scope, request.query_params.get("run", ""), _required(request, "call"))
        return _answer(request, node.call_answer(db, call, part, begin))

    @_described("compare")
    def compare(self, request: Request) -> HttpResponse:
        """Return the first difference of two runs that explains why they went different ways, and what it led to.

        The other run is the last good one of the same question, unless `other` names one.
        """
        db, scope = _checked(request, "compare")
        return _answer(request, compare(db, scope, _required(request, "run"), request.query_params.get("other", "")))

    @_described("error_group")
    def error_group(self, request: Request) -> HttpResponse:
        """Return a group of equal errors: since when, in what, its newest call with its arguments, and its newest runs.

        Of the last 30 days, unless `created_after` says otherwise.
        """
        given, since = _lately(request.query_params, error_group.DAYS)
        readable = readable_by(request)
        filters = LatestErrorFilterSet(given, mask=mask_of(request), also=(*OF_ALL, "group", "call"))
        group = given.get("group", "")
        if call := given.get("call"):
            found = find_call(database(request), requested_scope(request), "", call)
            group = group_of_call(database(request), found.pk) or ""
        if len(group) < SHORTEST_GROUP:
            raise InvalidInput(
                _("Give the ID of a group of errors, at least six of its digits, or that of a failed call."),
                field="group",
            )
        session, readable = named_session(request, readable)
        rows = readable.rows(lambda db, scope: filters.found(db, scope, session))
        return _answer(request, error_group.error_group(rows, group, since))

    @_described("search")
    def search(self, request: Request) -> HttpResponse:
        """Return where terms are found in messages, steps, calls and results, newest first.

        A message is found if it has all terms, itself or below it.
        """
        parameters = request.query_params
        readable = readable_by(request)
        filters = MessageFilterSet(parameters, mask=mask_of(request), also=("q", "cursor", *OF_ALL))
        query = query_in(request)
        if query is None:
            raise InvalidInput(_("Give the terms to search for."), field="q")
        session, readable = named_session(request, readable)
        rows = readable.rows(lambda db, scope: filters.found(db, scope, session))
        limit = max(1, forms.BYTES_OF_TOKEN * _max_tokens(request) // BYTES_OF_HIT)
        page = PageRequest(limit=limit, cursor=page_request(parameters).cursor)
        kept = {"q": parameters["q"], **_kept(filters)}
        return _answer(request, search(rows, query, page, kept))

    @_described("tools")
    def tools(self, request: Request) -> HttpResponse:
        """Return how often tools were called, failed and how long they took; with `tool` also where that one is slow.

        In the last 7 days, unless `created_after` says otherwise.
        """
        given, since = _lately(request.query_params, tools.DAYS)
        readable = readable_by(request)
        filters = ToolStatisticsFilterSet(given, mask=mask_of(request), also=OF_ALL)
        session, readable = named_session(request, readable)
        rows = readable.rows(filters.found)
        is_one = len(filters.given.get("tool", ())) == 1
        return _answer(
            request,
            tools.tools(rows, filters.ids, filters.which(session), since, _kept(filters), is_one=is_one),
        )

    @_described("cost")
    def cost(self, request: Request) -> HttpResponse:
        """Return what requests to models cost, by model, user or day.

        In the last 7 days, unless `created_after` says otherwise.
        """
        given, since = _lately(request.query_params, cost.DAYS)
        filters = UsageFilterSet(given, mask=mask_of(request), also=OF_ALL)
        rows = readable_by(request).rows(filters.found)
        return _answer(request, cost.cost(rows, filters.given.get("group_by", "model"), since, _kept(filters)))


def _answer(request: Request, answer: Answer) -> HttpResponse:
    form: Any = _one_of(request, "format", forms.FORMS) or "json"
    dialect: Any = _one_of(request, "hints", forms.DIALECTS) or "paths"
    site = request.build_absolute_uri("/").rstrip("/")
    body = forms.render(answer, form, _max_tokens(request), dialect, site)
    content_type = "text/markdown; charset=utf-8" if form == "markdown" else "application/json"
    headers = {RESULT_COUNT: str(answer.found)}
    if answer.page:
        headers["Link"] = f'<{site}{answer.page}>; rel="alternate"; type="text/html"'
    return HttpResponse(body, content_type=content_type, headers=headers)


def _checked(request: Request, name: str) -> tuple[Database, ProjectScope]:
    """Return the database and the projects of an answer about certain rows. Raise NotFound, and InvalidInput for unknown parameters."""
    db, scope = database(request), requested_scope(request)
    check_parameters(request.query_params, (*(parameter.name for parameter in ANSWERS[name]), *OF_ALL))
    return db, scope


def _required(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if not value:
        raise InvalidInput(_("This parameter is required."), field=name)
    return value


def _one_of(request: Request, name: str, allowed: Any) -> str:
    chosen = words(request.query_params, name, allowed) or frozenset()
    if len(chosen) > 1:
        raise InvalidInput(_("Give one value."), field=name)
    return next(iter(chosen), "")


def _begin(request: Request) -> int:
    return whole_number(request.query_params, "begin", 0, at_most=MOST_BEGIN)


def _part_of(request: Request, texts: Collection[str]) -> tuple[str, int]:
    """Return the text that is asked for, "" for all, and the character that it begins with."""
    part, begin = _one_of(request, "part", texts), _begin(request)
    if begin and not part:
        raise InvalidInput(_("Give the part that is to begin there, too."), field="begin")
    return part, begin


def _max_tokens(request: Request) -> int:
    return whole_number(
        request.query_params, "max_tokens", forms.USUAL_TOKENS, at_least=forms.FEWEST_TOKENS, at_most=forms.MOST_TOKENS
    )


def _kept(filters: ListFilterSet) -> dict[str, Any]:
    """Return the parameters that another call about the same rows takes."""
    given = {name: filters.data.getlist(name) for name in filters.given}
    return {name: values if len(values) > 1 else values[0] for name, values in given.items()}


def _lately(parameters: QueryDict, days: int) -> tuple[QueryDict, str]:
    """Return the parameters with a beginning, so many days ago unless they have one, and the beginning."""
    given = parameters.copy()
    since = parameters.get("created_after") or instant_text(timezone.now() - timedelta(days=days))
    given["created_after"] = since
    return given, since
