"""How often tools were called, failed and how long they took; of one tool also where it is slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from access_app.db import Database
from access_app.readable import ReadableRows
from messages_app.sql.pagination import IdRange, ListRows
from traces_app.queries.schemas.tools import ToolExample, ToolStatistics
from traces_app.queries.tool_examples import examples
from traces_app.queries.tool_statistics import CallFilter
from traces_app.queries.tools import tool_statistics

from .answer import MOST_TOKENS, Answer, Data, Hint, Line, Section, line

TOOLS_READ = 500
DAYS = 7
EXAMPLES_SHOWN = 5
"""Of each kind."""


def tools(
    rows: ReadableRows[ListRows], ids: IdRange, which: CallFilter, since: str, kept: Mapping[str, Any], *, is_one: bool
) -> Answer:
    """Return the statistics of tools, those of most failures first. `kept` are the parameters of the rows.

    Raise InvalidInput if reading takes too long.
    """
    keys = rows.keys(newest_first=True, limit=TOOLS_READ + 1)

    def read(db: Database, own: Sequence[Any]) -> list[ToolStatistics]:
        return tool_statistics(db, [int(key) for key in own], ids, which)

    found = [tool for tool in rows.read(keys[:TOOLS_READ], read) if tool.call_count]
    found.sort(key=lambda tool: (-tool.failure_count, -tool.total_duration, tool.name))
    sections = [
        Section(
            title="Tools",
            lines=[_line(tool) for tool in found],
            total=len(found) + (len(keys) > TOOLS_READ),
            more=Hint("tools", {**kept, "max_tokens": MOST_TOKENS}),
        )
    ]
    if is_one and found:
        for of_tool in rows.ask(keys[:1], lambda db, own: examples(db, int(own[0]), ids, which)):
            parts = {
                "Slowest calls": of_tool.slowest,
                "Arguments that took most time": [one for one in of_tool.arguments if one.call_count > 1],
                "Runs that waited longest for it": [one for one in of_tool.runs if one.call_count > 1],
                "Equal calls in a run": of_tool.repeated,
            }
            sections += [
                Section(title=title, lines=[_example(one) for one in some[:EXAMPLES_SHOWN]], share=0.5)
                for title, some in parts.items()
            ]
    return Answer(
        title="Tools",
        head=[line("since {since}", "tools with calls: {tool_count}", since=since, tool_count=len(found))],
        sections=sections,
        found=len(found),
    )


def _line(tool: ToolStatistics) -> Line:
    rate = None if tool.error_rate is None else f"{tool.error_rate:.1%}"
    return line(
        *(
            "{tool}",
            "calls: {call_count}",
            "failed: {failure_count} of {finished_count} ({failure_rate})",
            "open: {pending_count}",
        ),
        *("p50 {p50_ms}", "p95 {p95_ms}", "in all {total_ms}"),
        tool=Data(tool.name),
        call_count=tool.call_count,
        failure_count=tool.failure_count or None,
        finished_count=tool.failure_count + tool.success_count,
        failure_rate=rate,
        pending_count=tool.pending_count or None,
        p50_ms=tool.p50_duration,
        p95_ms=tool.p95_duration,
        total_ms=tool.total_duration or None,
    )


def _example(one: ToolExample) -> Line:
    many = one.call_count > 1
    return line(
        *("{arguments}", "{call_count} times", "{total_ms} in all", "longest {longest_ms}", "call {call}", "run {run}"),
        arguments=Data(one.arguments or ""),
        call_count=one.call_count if many else None,
        total_ms=one.total_duration if many else None,
        longest_ms=one.longest_duration,
        call=one.call,
        run=one.message_id,
    )
