"""Measure statistics over 10 million calls of tools: python -m benchmarks.tool_statistics

In a separate database: 100 tools with very different shares of the calls, 90 days up to now, 10 calls a message in 5 steps
of 5 agents and 3 models, 5 % errors, log-normal durations. Measured are the first roll-up of all hours, one of changed hours,
the statistics of tools from rows, from stored periods and of one agent, their distance from the exact quantiles, and the pages
of the admin and the REST API, also right after late data that no roll-up has seen.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from .scratch import scratch_database

DAYS = 90
TOOLS = 100
CALLS_A_MESSAGE = 10
STEPS_A_MESSAGE = 5
AT_A_TIME = 50_000
"""Messages in one statement."""
SHARES = (0.5, 0.95, 0.99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with scratch_database(durable=False):
        measure(options.calls, options.runs)


def measure(calls: int, runs: int) -> None:
    from access_app.models import Project
    from messages_app import ids
    from messages_app.changed_hours import hour_of
    from messages_app.models import ChangedHour, Session
    from messages_app.sql.pagination import IdRange
    from messages_app.sql.periods import Period
    from traces_app.ingest.partitions import ensure_periods
    from traces_app.maintenance.tool_roll_up import roll_up
    from traces_app.models import Tool, ToolPeriod
    from traces_app.queries.tool_statistics import CallFilter

    now = datetime.now().astimezone()
    project = Project.objects.create(slug="benchmark")
    tools = Tool.objects.bulk_create(Tool(project=project, name=f"tool {at:03}") for at in range(TOOLS))
    session = Session.objects.create(
        id=ids.session_id(now), project=project, external_id="all", created_at=now, updated_at=now, active_at=now
    )
    begin = now - timedelta(days=DAYS)
    ensure_periods({Period.of(begin + timedelta(days=day)) for day in range(DAYS + 1)})
    messages = calls // CALLS_A_MESSAGE
    took = timed(lambda: fill(project.pk, session.pk, begin, messages, tools[0].pk))
    say(f"filled with {calls:,} calls in {took:.0f} s")
    page = [tool.pk for tool in tools[:50]]
    day = IdRange(lower=ids.first_id_at(now - timedelta(days=1)))
    show("a day of 50 tools, of rows only", runs, page, project.pk, day)
    report = None

    def first() -> None:
        nonlocal report
        report = roll_up()

    took = timed(first)
    assert report is not None
    size, rows = one("SELECT pg_total_relation_size('traces_app_toolperiod'), count(*) FROM traces_app_toolperiod")
    say(f"first roll-up: {report.hours:,} hours in {took:.1f} s, {calls / took:,.0f} calls a second")
    say(f"stored periods: {rows:,} rows, {size / 2**20:.0f} MiB with indexes, {size / calls:.1f} bytes a call")
    ranges = {
        "all": IdRange(),
        "30 days": IdRange(lower=ids.first_id_at(now - timedelta(days=30))),
        "7 days": IdRange(lower=ids.first_id_at(now - timedelta(days=7))),
        "a day": day,
        "an hour": IdRange(lower=ids.first_id_at(now - timedelta(hours=1))),
    }
    all_tools = [tool.pk for tool in tools]
    for name, id_range in ranges.items():
        show(f"{name}, 50 tools", runs, page, project.pk, id_range)
        show(f"{name}, 100 tools", runs, all_tools, project.pk, id_range)
        show(f"{name}, 1 tool with the quantiles of each step", runs, page[:1], project.pk, id_range)
    of_agent = CallFilter(agent="agent 1", model="model 1")
    for name in ("7 days", "a day", "an hour"):
        show(f"{name}, 50 tools, one agent and model", runs, page, project.pk, ranges[name], of_agent)
    say(f"largest error of a quantile over all calls: {largest_error(page[:10], project.pk):.3%}")
    show_pages(runs, tools[0].pk)
    hours = [hour_of(begin) + timedelta(days=at) for at in range(1, 25)]
    ChangedHour.objects.bulk_create(ChangedHour(project=project, begin=hour) for hour in hours)
    say("24 hours of 24 days changed and not yet computed again:")
    show("all, 50 tools", runs, page, project.pk, IdRange())
    show_pages(runs, tools[0].pk)
    took = timed(first)
    say(f"24 changed hours on 24 days computed again in {took:.1f} s")
    assert not ChangedHour.objects.exists()
    assert ToolPeriod.objects.count() == rows


def show_pages(runs: int, tool_id: int) -> None:
    """Request the pages of the admin and the REST API through Django, without a server."""
    from django.contrib.auth import get_user_model
    from django.test import Client
    from django.utils import timezone

    from access_app.keys import create_key
    from access_app.models import Project, Scope

    user, _created = get_user_model().objects.get_or_create(username="benchmark", is_superuser=True, is_staff=True)
    staff = Client(headers={"Host": "localhost"})
    staff.force_login(user)
    _key, token = create_key(Project.objects.get(slug="benchmark"), "benchmark", [Scope.READ])
    program = Client(headers={"Host": "localhost", "Authorization": f"Bearer {token}"})
    after = (timezone.now() - timedelta(days=DAYS)).strftime("%Y-%m-%d")
    month = (timezone.now() - timedelta(days=30)).strftime("%Y-%m-%d")
    pages = {
        "admin, 30 days": (staff, "/admin/traces_app/tool/statistics/?created=30d"),
        "admin, all 90 days": (staff, f"/admin/traces_app/tool/statistics/?created_after={after}T00:00"),
        "admin, one tool, 30 days": (staff, f"/admin/traces_app/tool/{tool_id}/change/?created=30d"),
        "REST, 50 tools, 30 days": (program, f"/api/v1/tools/stats/?limit=50&created_after={month}"),
        "REST, 50 tools, all 90 days": (program, "/api/v1/tools/stats/?limit=50"),
        "CSV, 100 tools, all 90 days": (program, "/api/v1/tools/stats/?format=csv"),
        "REST, one tool, all 90 days": (program, "/api/v1/tools/stats/?tool=tool 000"),
    }
    for name, (client, url) in pages.items():
        times = []
        for _run in range(runs):
            began = time.perf_counter()
            response = client.get(url)
            times.append(time.perf_counter() - began)
            assert response.status_code == 200, response.content[:500]
        say(f"{name}: {statistics.median(times) * 1000:,.0f} ms (max {max(times) * 1000:,.0f})")


def fill(project_id: int, session_id: UUID, begin: datetime, messages: int, first_tool: int) -> None:
    """Insert messages evenly over the days, and their calls, as rows of the real tables."""
    from django.db import connection

    step = timedelta(days=DAYS) / messages
    with connection.cursor() as cursor:
        cursor.execute("SELECT setseed(0.5)")
        for start in range(0, messages, AT_A_TIME):
            stop = min(start + AT_A_TIME, messages)
            cursor.execute(
                """
                CREATE TEMPORARY TABLE made ON COMMIT DROP AS
                SELECT number, %s::timestamptz + number * %s::interval AS at,
                    lpad(to_hex((extract(epoch FROM %s::timestamptz + number * %s::interval) * 1000)::bigint), 12, '0')
                        || '7000' AS time
                FROM generate_series(%s, %s) AS number;
                INSERT INTO messages_app_message (id, project_id, session_id, external_id, request_id, role, content,
                    is_completed, error, health, metadata, redactions, step_count, call_count, failure_count,
                    model_error_count, input_tokens, output_tokens, version, created_at, updated_at, deleted_by)
                SELECT (time || 'a' || lpad(to_hex(number), 15, '0'))::uuid, %s, %s, '', '', 'assistant', '', true, '',
                    '{}', '{}', '[]', 1, %s, 0, 0, 0, 0, 1, at, at, '' FROM made;
                INSERT INTO traces_app_toolcall (id, project_id, message_id, step_id, tool_id, call_id, position, args,
                    reflection, status, duration_ms, metadata)
                SELECT (time || '9' || lpad(to_hex(number * 16 + call), 15, '0'))::uuid, %s,
                    (time || 'a' || lpad(to_hex(number), 15, '0'))::uuid,
                    (time || 'b' || lpad(to_hex(number * 16 + call / %s), 15, '0'))::uuid,
                    %s + floor(%s * random() ^ 2)::int, '', call, '{}', '',
                    CASE WHEN random() < 0.05 THEN 'error' WHEN random() < 0.01 THEN 'pending' ELSE 'success' END,
                    exp(5 + 1.5 * sqrt(-2 * ln(1 - random())) * cos(6.283185307 * random()))::bigint, '{}'
                FROM made CROSS JOIN generate_series(0, %s) AS call;
                INSERT INTO traces_app_agentstep (id, message_id, iteration, ordinal, thought, reasoning, agent_name, model,
                    cost, input_ref, metadata)
                SELECT (time || 'b' || lpad(to_hex(number * 16 + step), 15, '0'))::uuid,
                    (time || 'a' || lpad(to_hex(number), 15, '0'))::uuid, step, 0, '', '', 'agent ' || step,
                    'model ' || number %% 3, CASE WHEN random() < 0.8 THEN round(random()::numeric / 100, 10) END, '', '{}'
                FROM made CROSS JOIN generate_series(0, %s) AS step
                """,
                [
                    *(begin, step, begin, step, start, stop - 1),
                    *(project_id, session_id, CALLS_A_MESSAGE),
                    *(project_id, CALLS_A_MESSAGE // STEPS_A_MESSAGE, first_tool, TOOLS, CALLS_A_MESSAGE - 1),
                    STEPS_A_MESSAGE - 1,
                ],
            )
            print(f"\r{stop / messages:.0%}", end="", flush=True)
        cursor.execute("VACUUM ANALYZE")


def show(name: str, runs: int, tools: Sequence[int], project_id: int, id_range: Any, which: Any = None) -> None:
    from traces_app.queries.tool_statistics import CallFilter
    from traces_app.queries.tool_statistics import statistics as read

    which = which or CallFilter()
    times = [
        timed(lambda: read(tools, [project_id], id_range, which=which, with_histograms_of_steps=len(tools) == 1))
        for _run in range(runs)
    ]
    say(f"{name}: {statistics.median(times) * 1000:,.0f} ms (max {max(times) * 1000:,.0f})")


def largest_error(tools: Sequence[int], project_id: int) -> float:
    """Return the largest relative error of the quantiles of these tools over all calls."""
    from messages_app.sql.pagination import IdRange
    from traces_app.queries.tool_statistics import statistics as read

    found = read(tools, [project_id], IdRange()).by_tool
    worst = 0.0
    for tool in tools:
        exact = one(
            f"SELECT {', '.join(f'percentile_disc({share}) WITHIN GROUP (ORDER BY duration_ms)' for share in SHARES)} "
            f"FROM traces_app_toolcall WHERE tool_id = {tool}"
        )
        for share, true in zip(SHARES, exact, strict=True):
            value = found[tool].whole.quantile(share)
            assert value is not None
            worst = max(worst, abs(value - true) / true)
    return worst


def one(sql: str) -> tuple[Any, ...]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql)
        row: tuple[Any, ...] = cursor.fetchone()
    return row


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def say(line: str) -> None:
    print(f"\r{line}", flush=True)


if __name__ == "__main__":
    main()
