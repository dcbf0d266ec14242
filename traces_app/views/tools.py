"""/tools/: the tools of a project, with statistics of their calls; /tools/stats/: those of a range of times, also as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from django.http import HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.request import Request

from access_app.db import Database
from access_app.errors import InvalidInput, NotFound
from access_app.masked_reading import mask_of
from access_app.rest import extend_schema
from messages_app.admin.exports import FORMULA_STARTS
from messages_app.http import openapi
from messages_app.http.responses import answer, list_answer, words
from messages_app.sql.pagination import page_request, read_page
from traces_app.queries.schemas.tools import (
    ToolExample,
    ToolExamples,
    ToolPage,
    ToolStatistics,
    ToolStatisticsPage,
    UnusedTools,
)
from traces_app.queries.tool_examples import examples, unused
from traces_app.queries.tool_filters import (
    ToolExamplesFilterSet,
    ToolFilterSet,
    ToolStatisticsFilterSet,
    UnusedToolsFilterSet,
)
from traces_app.queries.tools import tool_statistics, tools

from .parameters import named_session, readable_by
from .viewset import TraceViewSet

MOST_CSV_ROWS = 1_000
_CSV_AT_A_TIME = 200
_COLUMNS = [name for name in ToolStatistics.__struct_fields__ if not name.startswith("trend")]
_FORMAT = OpenApiParameter(
    "format",
    str,
    enum=["json", "csv"],
    description=f"csv: all tools, at most {MOST_CSV_ROWS:,}, without pages and trends. Default: json.",
)
_FORMAT_OF_EXAMPLES = OpenApiParameter("format", str, enum=["json", "csv"], description="Default: json.")
_CSV: dict[tuple[int, str], Any] = {(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "with `format=csv`")}


class ToolViewSet(TraceViewSet):
    """Tools. A tool is created at its first call."""

    tag = "Statistics"

    @extend_schema(
        parameters=[*openapi.filters(ToolFilterSet), *openapi.PAGE, openapi.PROJECT],
        responses={200: ToolPage, **openapi.errors(400)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """List tools with statistics of their calls, newest tool first.

        `created_after` and `created_before` limit the calls that are counted, not the tools.
        """
        page = page_request(request.query_params)
        filters = ToolFilterSet(
            request.query_params, mask=mask_of(request), also=("limit", "cursor", "order", "project")
        )
        rows = readable_by(request).rows(filters.found)
        return list_answer(
            read_page(rows, page),
            lambda ids: rows.read(ids, lambda db, own: tools(db, [int(key) for key in own], filters.ids)),
        )

    @extend_schema(
        operation_id="get_tool_statistics",
        parameters=[*openapi.filters(ToolStatisticsFilterSet), *openapi.PAGE, _FORMAT, openapi.PROJECT],
        responses={(200, "application/json"): ToolStatisticsPage, **_CSV, **openapi.errors(400, 404)},
    )
    def statistics(self, request: Request) -> HttpResponseBase:
        """Return statistics of tools in a range of times, newest tool first.

        Each tool has its error rate, quantiles of its duration, cost and trend. A call belongs to the time of its message.
        The numbers are exact at any moment, quantiles within 1 %, and exact for at most 100 calls.
        """
        chosen = words(request.query_params, "format", ("json", "csv"))
        page = page_request(request.query_params)
        filters = ToolStatisticsFilterSet(
            request.query_params, mask=mask_of(request), also=("limit", "cursor", "order", "project", "format")
        )
        session, readable = named_session(request, readable_by(request))
        rows, which = readable.rows(filters.found), filters.which(session)

        def statistics_of(db: Database, keys: Sequence[Any], *, of_one: bool = False) -> list[ToolStatistics]:
            return tool_statistics(db, [int(key) for key in keys], filters.ids, which, with_p95_of_steps=of_one)

        if not chosen or "csv" not in chosen:
            of_one = len(filters.given.get("tool", ())) == 1
            return list_answer(
                read_page(rows, page),
                lambda keys: rows.read(keys, lambda db, own: statistics_of(db, own, of_one=of_one)),
            )
        keys = rows.keys(newest_first=True, limit=MOST_CSV_ROWS + 1)
        if len(keys) > MOST_CSV_ROWS:
            raise InvalidInput(
                _("More than %(most)d tools. Choose some with tool, category or project.") % {"most": MOST_CSV_ROWS},
                field="format",
            )
        parts = [keys[first : first + _CSV_AT_A_TIME] for first in range(0, len(keys), _CSV_AT_A_TIME)]
        return statistics_csv(statistics for part in parts for statistics in rows.read(part, statistics_of))

    @extend_schema(
        operation_id="get_tool_examples",
        parameters=[*openapi.filters(ToolExamplesFilterSet), _FORMAT_OF_EXAMPLES, openapi.PROJECT],
        responses={(200, "application/json"): ToolExamples, **_CSV, **openapi.errors(400, 404)},
    )
    def examples(self, request: Request) -> HttpResponseBase:
        """Return examples of where a tool is slow.

        They are its slowest calls, the arguments and the runs that took most time, and its repeated calls.
        """
        chosen = words(request.query_params, "format", ("json", "csv"))
        readable = readable_by(request)
        filters = ToolExamplesFilterSet(request.query_params, mask=mask_of(request), also=("project", "format"))
        if "tool" not in filters.given:
            raise InvalidInput(_("The name of a tool is required."), field="tool")
        named = readable.rows(filters.found)
        tools = named.keys(newest_first=True, limit=2)
        if not tools:
            raise NotFound(_("No tool has this name."), field="tool")
        if len(tools) > 1:
            raise InvalidInput(
                _("Several projects have a tool of this name. Choose one with project."), field="project"
            )

        def read(db: Database, own: list[int]) -> ToolExamples:
            session, _projects = named_session(request, readable.of(db))
            return examples(db, own[0], filters.ids, filters.which(session))

        (tool_examples,) = named.ask(tools, read)
        if not chosen or "csv" not in chosen:
            return answer(tool_examples)
        columns = list(ToolExample.__struct_fields__)
        parts = {name: getattr(tool_examples, name) for name in ("slowest", "arguments", "runs", "repeated")}
        rows = [
            [name, *(getattr(example, column) for column in columns)] for name, of in parts.items() for example in of
        ]
        return _csv("tool-examples", ["part", *columns], rows)

    @extend_schema(
        operation_id="list_unused_tools",
        parameters=[*openapi.filters(UnusedToolsFilterSet), _FORMAT_OF_EXAMPLES, openapi.PROJECT],
        responses={(200, "application/json"): UnusedTools, **_CSV, **openapi.errors(400, 404)},
    )
    def unused(self, request: Request) -> HttpResponseBase:
        """List tools that models were offered and did not call.

        Each of them makes every request longer, so these are candidates for removal.
        """
        chosen = words(request.query_params, "format", ("json", "csv"))
        filters = UnusedToolsFilterSet(request.query_params, mask=mask_of(request), also=("project", "format"))
        tools = unused(readable_by(request), filters.ids)
        if not chosen or "csv" not in chosen:
            return answer(tools)
        return _csv("unused-tools", ["name"], [[name] for name in tools.results])


def statistics_csv(tools: Iterable[ToolStatistics]) -> HttpResponse:
    """Return statistics as a CSV file, without trends."""
    return _csv("tools", _COLUMNS, ([getattr(tool, column) for column in _COLUMNS] for tool in tools))


def _csv(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> HttpResponse:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return HttpResponse(
        text.getvalue(),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )


def _cell(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    # A spreadsheet would run a name such as =HYPERLINK(...) as a formula.
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
