"""What failed lately: the groups of errors, new and rising ones first, and the newest failed runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from access_app.readable import ReadableRows
from messages_app.sql.pagination import ListRows
from messages_app.timestamps import instant_text
from traces_app.queries.error_groups import Group, error_groups
from traces_app.queries.runs.listed import ListedRun
from traces_app.queries.runs.outcome import Outcome

from .answer import MOST_TOKENS, Answer, Data, Hint, Line, Section, line
from .runs import line_of, listed_runs

GROUPS_READ = 100
RUNS_READ = 30
DAYS = 7
"""What is lately, unless the parameters say."""
_ORDER = ("new", "rising", "steady")


def failures(
    calls: ReadableRows[ListRows], runs: ReadableRows[ListRows], since: str, kept: Mapping[str, Any]
) -> Answer:
    """Return the groups of failed calls, and the newest of the runs, which failed. `kept` are the parameters of these rows: what is new
    or rising among some of the calls only is not said, because it need not be so among all.

    Raise InvalidInput if reading takes too long.
    """
    is_all = not kept.keys() - {"created_after", "created_before"}
    found = error_groups(calls, "count", GROUPS_READ, marks_new=is_all)
    groups = sorted(found.groups, key=lambda group: _ORDER.index(group.change)) if is_all else found.groups
    keys = runs.keys(newest_first=True, limit=RUNS_READ + 1)
    listed = runs.read(keys[:RUNS_READ], listed_runs)
    # Those of the last seconds may not be decided yet.
    listed = [run for run in listed if run.outcome == Outcome.FAILED]
    return Answer(
        title="Failures",
        head=[
            line(
                *("since {since}", "failed calls: {call_count}", "groups of equal errors: {group_count}"),
                since=since,
                call_count=found.calls,
                group_count=found.group_count,
            ),
            line("failed calls before {counted_from} were not read", counted_from=found.counted_from),
        ],
        sections=[
            Section(
                title="Groups of errors",
                lines=[line_of_group(group, says_change=is_all) for group in groups],
                total=found.group_count,
                share=0.6,
                more=Hint("failures", {**kept, "max_tokens": MOST_TOKENS}),
            ),
            Section(
                title="Newest failed runs",
                lines=[replace(line_of(run), resume=_before(run, kept)) for run in listed],
                rest=_before(listed[-1], kept) if len(keys) > RUNS_READ and listed else None,
            ),
        ],
        found=found.calls or len(listed),
    )


def _before(run: ListedRun, kept: Mapping[str, Any]) -> Hint:
    """Return the hint at what failed until this run, which may be among it, because others may have its time."""
    return Hint("failures", {**kept, "created_before": instant_text(run.run.created_at + timedelta(microseconds=1))})


def line_of_group(group: Group, *, says_change: bool) -> Line:
    return line(
        *(
            "{tools}",
            "{error}",
            "calls: {call_count}",
            "{change}",
            "last {last_seen_at}",
            "group {group}",
            "newest call {call}",
        ),
        tools=Data(", ".join(tool.name for tool, _calls in group.tools[:3])),
        error=Data(group.pattern),
        call_count=group.calls,
        change=group.change if says_change else None,
        last_seen_at=group.last_at,
        group=group.id,
        call=str(group.example.pk),
    )
