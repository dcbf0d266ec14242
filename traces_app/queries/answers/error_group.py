"""A group of equal errors: how often, since when, in what; its newest call with its arguments and error; its newest runs."""

from __future__ import annotations

from uuid import UUID

from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.errors import InvalidInput, NotFound
from access_app.readable import ReadableRows
from messages_app.sql.pagination import ListRows
from traces_app.queries.error_groups import end_users, error_groups, first_calls, newest_calls
from traces_app.queries.questions import near_good_run
from tracesite_sdk.records import ids

from .answer import Answer, Data, Hint, Section, line
from .node import text_sections
from .runs import line_of, listed_runs

CALLS_READ = 200
RUNS_READ = 20
DAYS = 30
"""Among the failed calls of so many days a group is looked for, unless the parameters say."""


def error_group(rows: ReadableRows[ListRows], key: str, since: str) -> Answer:
    """Return the group of the failed calls whose id begins so. Raise NotFound, and InvalidInput if several do, or if reading takes too
    long."""
    found = error_groups(rows, "count", 2, keep=lambda group, _last: group.startswith(key), marks_new=False)
    if not found.groups:
        raise NotFound(
            _("No failed call since %(since)s has an error of this group. Give an earlier created_after.")
            % {"since": since},
            code="group_not_found",
            field="group",
        )
    if len(found.groups) > 1:
        raise InvalidInput(_("Several groups of errors begin with these digits. Give more of them."), field="group")
    (group,) = found.groups
    firsts, first_since = first_calls(rows, found)
    db = Database.of_row(group.example)
    runs: dict[UUID, UUID] = {}
    for of, call, run in newest_calls(rows, group, CALLS_READ):
        if of == db:
            runs.setdefault(run, call)
    listed = listed_runs(db, list(runs)[:RUNS_READ])
    example = next((one.run for one in listed if one.run.pk == group.example.message_id), None)
    good = None if example is None else near_good_run(db, example)
    return Answer(
        title="Error group",
        head=[
            line("{error}", error=Data(group.pattern)),
            line(
                *("failed calls since {since}: {call_count}", "last {last_seen_at}", "first {first_seen_at}"),
                "calls before {read_from} were not read",
                call_count=group.calls,
                since=since,
                last_seen_at=group.last_at,
                first_seen_at=ids.created_at_of(firsts[group.id]),
                read_from=first_since,
            ),
            line(
                *("tools {tools}", "users {end_users}"),
                tools=Data(", ".join(f"{tool.name} ({calls:,})" for tool, calls in group.tools)),
                end_users=Data(", ".join(f"{name} ({calls:,})" for name, calls in end_users(rows, group))),
            ),
            line(
                *("newest call {call} of run {run}", "last good run of the same question {good_run}"),
                call=str(group.example.pk),
                run=str(group.example.message_id),
                good_run=None if good is None else str(good),
            ),
        ],
        sections=[
            *text_sections(db, group.example, ("error", "arguments"), 0, Hint("call", {"call": group.example.pk})),
            Section(
                title="Newest runs with it",
                lines=[line_of(one) for one in listed],
                total=len(runs),
            ),
        ],
        found=group.calls,
    )
