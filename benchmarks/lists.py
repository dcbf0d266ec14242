"""Measure the lists and pages of the admin at a million small messages: python -m benchmarks.lists

In a separate database: 100,000 sessions of 10 messages over 360 days up to now; each answer has a step and two calls. Values of
each filter are common, rare (5 messages of the oldest tenth) and absent. Measured are each list without filters, with each
filter, on its second page and in its middle: the page, its statements that read the rows, its other ones, and beside it the
plain statement for the same rows; then the home page and those of tools, of several periods. The fastest of the runs counts,
because other work on the machine slows each differently. The data are dropped at the end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from .scratch import scratch_database

DAYS = 360
MESSAGES_A_SESSION = 10
AT_A_TIME = 50_000
"""Messages in one statement."""
SLOW_MS = 100
BAR = 3

ALIVE = "m.deleted_at IS NULL AND s.deleted_at IS NULL"
MESSAGE_ROWS = f"""SELECT m.id, left(m.content, 320), left(m.error, 81), m.role, m.external_id, m.is_completed, m.call_count, m.failure_count,
    m.model_error_count, m.health, m.duration_ms, m.cost, m.unpriced_count, m.created_at, m.completed_at, p.slug, s.external_id, left(s.title, 81)
    FROM messages_app_message m JOIN messages_app_session s ON s.id = m.session_id JOIN access_app_project p ON p.id = m.project_id
    WHERE {ALIVE} AND %s ORDER BY m.id DESC LIMIT 51"""
RUN_ROWS = MESSAGE_ROWS.replace(
    "SELECT",
    """SELECT (SELECT left(q.content, 320) FROM messages_app_message q WHERE q.session_id = m.session_id AND q.role = 'user'
        AND q.deleted_at IS NULL AND q.id < m.id ORDER BY q.id DESC LIMIT 1), m.input_tokens, m.output_tokens,""",
    1,
)
"""With their questions, by which one knows runs."""
SESSION_ROWS = """SELECT s.id, left(s.title, 81), s.external_id, s.status, s.message_count, s.call_count, s.problem_count, s.duration_ms, s.cost,
    s.unpriced_count, s.created_at, s.active_at, p.slug FROM messages_app_session s JOIN access_app_project p ON p.id = s.project_id
    WHERE s.deleted_at IS NULL AND %s ORDER BY {order} DESC LIMIT 51"""
CALL_ROWS = f"""SELECT c.id, c.status, c.duration_ms, t.name, left(r.error, 320), m.id, s.id, s.external_id, left(s.title, 80), p.slug
    FROM traces_app_toolcall c JOIN messages_app_message m ON m.id = c.message_id JOIN messages_app_session s ON s.id = m.session_id
    JOIN access_app_project p ON p.id = c.project_id JOIN traces_app_tool t ON t.id = c.tool_id LEFT JOIN traces_app_toolresult r ON r.id = c.id
    WHERE {ALIVE} AND %s ORDER BY c.id DESC LIMIT 51"""
SCORE_ROWS = """SELECT x.id, x.name, x.kind, x.number, x.label, left(x.comment, 320), x.source, x.author, x.created_at, p.slug, s.title
    FROM traces_app_score x JOIN access_app_project p ON p.id = x.project_id LEFT JOIN messages_app_session s ON s.id = x.session_id
    LEFT JOIN messages_app_message m ON m.id = x.message_id
    WHERE x.deleted_at IS NULL AND s.deleted_at IS NULL AND m.deleted_at IS NULL AND %s ORDER BY x.id DESC LIMIT 51"""
STEP = "EXISTS (SELECT 1 FROM traces_app_agentstep a WHERE a.message_id = m.id AND a.{} = '{}')"
CALL = "EXISTS (SELECT 1 FROM traces_app_toolcall c WHERE c.message_id = m.id AND {})"
TOOL = "c.tool_id = (SELECT id FROM traces_app_tool WHERE name = '{}')"
OF_SESSION = "EXISTS (SELECT 1 FROM messages_app_message m WHERE m.session_id = s.id AND m.deleted_at IS NULL AND {})"
SCORED = "EXISTS (SELECT 1 FROM traces_app_score x WHERE x.{}_id = {}.id AND x.deleted_at IS NULL AND {})"
PROJECT = "{}.project_id = (SELECT id FROM access_app_project WHERE slug = '{}')"


@dataclass(frozen=True)
class Case:
    """A list with a filter, and the condition of the plain statement."""

    url: str
    query: str
    rows: str
    where: str = "true"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="part of the address of the lists to measure")
    options = parser.parse_args()
    with scratch_database(durable=False):
        from django.test.utils import setup_test_environment

        setup_test_environment()
        measure(options.messages, options.runs, options.only)


def measure(messages: int, runs: int, only: str) -> None:
    import logging

    from django.contrib.auth.models import User
    from django.test import Client

    from traces_app.maintenance.tool_roll_up import roll_up

    logging.disable(logging.WARNING)
    took = timed(lambda: fill(messages))
    say(f"filled with {messages:,} messages in {took / 1000:.0f} s")
    client = Client()
    client.force_login(User.objects.create_superuser("benchmark"))
    say(f"{'list':72}rows   page    rows  other    plain ratio")
    for case in cases():
        address = f"{case.url}?{case.query}"
        if only in address:
            show(client, case, address, runs)
    if not only or "tool/" in only:
        say(f"added up the hours of the tools in {timed(roll_up) / 1000:.0f} s")
    for address in figures():
        if only in address:
            show_figures(client, address, runs)


def show(client: Any, case: Case, address: str, runs: int) -> None:
    """Print the times of a page in ms, and the ratio of its statements that read rows to the plain one."""
    from traces_app.queries.step_names import RUNS_READ

    suggests = f" LIMIT {RUNS_READ}"  # the runs whose names the filters suggest, not rows of the list
    table = case.rows.partition("FROM ")[2].split()[0]
    pages, for_rows, others, plains = [], [], [], []
    rows = 0
    answered(client.get(address))  # compiled, and in memory
    for _run in range(runs):
        with sql_timer() as sql:
            pages.append(timed(lambda: answered(client.get(address))))
        reading = [took for took, text in sql if f'FROM "{table}"' in text and not text.endswith(suggests)]
        for_rows.append(sum(reading))
        others.append(sum(took for took, _text in sql) - for_rows[-1])
        if plains and plains[-1] > 20 * SLOW_MS:
            continue  # one run suffices
        with sql_timer() as plain:
            rows = len(fetched(case.rows.replace("%s", case.where)))
        plains.append(sum(took for took, _text in plain))
    page, for_row, other, plain_ms = (min(times) for times in (pages, for_rows, others, plains))
    marks = "".join([" SLOW" if for_row > SLOW_MS else "", " MISSED" if for_row > BAR * plain_ms else ""])
    say(f"{address:72}{rows:4}{page:7.1f}{for_row:8.1f}{other:7.1f}{plain_ms:9.1f}{for_row / plain_ms:6.1f}{marks}")


def show_figures(client: Any, address: str, runs: int) -> None:
    """Print the times of a page without rows in ms: the page, all its statements, and the longest of them."""
    answered(client.get(address))
    pages, statements = [], []
    for _run in range(runs):
        with sql_timer() as sql:
            pages.append(timed(lambda: answered(client.get(address))))
        statements.append((sum(took for took, _text in sql), max(took for took, _text in sql)))
    total, longest = min(statements)
    say(f"{address:72}    {min(pages):7.1f}  statements {total:.1f}, the longest {longest:.1f}")


def figures() -> Iterator[str]:
    """Yield the addresses of the home page and of the pages of tools."""
    from traces_app.models import Tool

    tool = Tool.objects.get(name="common")
    for period in ("1h", "24h", "7d", "30d"):
        yield f"/admin/?created={period}"
        yield f"/admin/traces_app/tool/statistics/?created={period}"
        yield f"/admin/traces_app/tool/{tool.pk}/change/?created={period}"


def cases() -> Iterator[Case]:
    from messages_app.sql.pagination import Cursor

    sessions, messages, calls = (
        "/admin/messages_app/session/",
        "/admin/messages_app/message/",
        "/admin/traces_app/toolcall/",
    )
    scores = "/admin/traces_app/score/"
    by_start, by_activity = SESSION_ROWS.format(order="s.id"), SESSION_ROWS.format(order="s.active_at")
    for url, rows, key, table in (
        (sessions, by_start, "s", "messages_app_session"),
        (messages, MESSAGE_ROWS, "m", "messages_app_message"),
        (calls, CALL_ROWS, "c", "traces_app_toolcall"),
        (scores, SCORE_ROWS, "x", "traces_app_score"),
    ):
        yield Case(url, "", rows)
        ((second,),) = fetched(f"SELECT id FROM {table} ORDER BY id DESC OFFSET 49 LIMIT 1")
        ((middle,),) = fetched(f"SELECT id FROM {table} ORDER BY id OFFSET (SELECT count(*) / 2 FROM {table}) LIMIT 1")
        for place in (second, middle):
            yield Case(url, f"cursor={Cursor(position=place, newer=False)}", rows, f"{key}.id < '{place}'")
        yield Case(url, f"cursor={Cursor(position=middle, newer=True)}", rows, f"{key}.id > '{middle}'")
        for slug in ("many", "few"):
            yield Case(url, f"project={slug}", rows, PROJECT.format(key, slug))
        day = f"{key}.id >= '{first_id(timedelta(days=1))}'"
        yield Case(url, "created=24h", rows, day)
    yield Case(sessions, "order=activity", by_activity)
    for status in ("completed", "aborted", "paused"):
        yield Case(sessions, f"status={status}", by_start, f"s.status = '{status}'")
        yield Case(sessions, f"status={status}&order=activity", by_activity, f"s.status = '{status}'")
    yield Case(sessions, "has_errors=true", by_start, "s.problem_count > 0")
    yield Case(sessions, "has_errors=false", by_start, "NOT s.problem_count > 0")
    yield Case(sessions, "min_duration=0", by_start, "s.duration_ms >= 0")
    yield Case(sessions, "min_duration=999999", by_start, "s.duration_ms >= 999999")
    yield Case(sessions, "min_cost=0.0001", by_start, "s.cost >= 0.0001")
    yield Case(sessions, "min_cost=9999", by_start, "s.cost >= 9999")
    yield Case(sessions, "active=24h", by_start, "s.active_at >= now() - interval '24 hours'")
    yield Case(messages, "role=assistant", RUN_ROWS, "m.role = 'assistant'")
    yield Case(messages, "role=system", MESSAGE_ROWS, "m.role = 'system'")
    errors = "(m.failure_count > 0 OR m.error <> '' OR m.model_error_count > 0)"
    yield Case(messages, "has_errors=true", MESSAGE_ROWS, errors)
    yield Case(messages, "has_errors=false", MESSAGE_ROWS, f"NOT {errors}")
    yield Case(messages, "is_completed=false", MESSAGE_ROWS, "NOT m.is_completed")
    yield Case(messages, "session=s5000", MESSAGE_ROWS, "s.external_id = 's5000' AND " + PROJECT.format("s", "many"))
    yield Case(messages, "min_duration=1", MESSAGE_ROWS, "m.duration_ms >= 1")
    yield Case(messages, "min_duration=999999", MESSAGE_ROWS, "m.duration_ms >= 999999")
    yield Case(messages, "min_cost=0.0001", MESSAGE_ROWS, "m.cost >= 0.0001")
    yield Case(messages, "min_cost=9999", MESSAGE_ROWS, "m.cost >= 9999")
    for flag in ("truncated", "repaired_id"):
        yield Case(messages, f"health={flag}", MESSAGE_ROWS, f"m.health <> '{{}}' AND m.health @> '{{{flag}}}'")
    for status in ("success", "error", "pending"):
        yield Case(messages, f"tool_status={status}", MESSAGE_ROWS, CALL.format(f"c.status = '{status}'"))
        yield Case(calls, f"status={status}", CALL_ROWS, f"c.status = '{status}'")
    for how in ("common", "rare", "absent"):
        tool = TOOL.format(how)
        yield Case(sessions, f"tool={how}", by_start, OF_SESSION.format(CALL.format(tool)))
        yield Case(messages, f"tool={how}", MESSAGE_ROWS, CALL.format(tool))
        yield Case(
            messages, f"tool={how}&tool_status=error", MESSAGE_ROWS, CALL.format(f"{tool} AND c.status = 'error'")
        )
        yield Case(calls, f"tool={how}", CALL_ROWS, tool)
        yield Case(calls, f"tool={how}&status=error", CALL_ROWS, f"{tool} AND c.status = 'error'")
        for name, column in (("model", "model"), ("agent", "agent_name")):
            step = STEP.format(column, how)
            yield Case(sessions, f"{name}={how}", by_start, OF_SESSION.format(step))
            yield Case(messages, f"{name}={how}", MESSAGE_ROWS, step)
            yield Case(calls, f"{name}={how}", CALL_ROWS, step.replace("a.message_id = m.id", "a.id = c.step_id"))
        for name, value in (("tag", f"s.tags @> '{{{how}}}'"), ("end_user", f"s.end_user = '{how}'")):
            yield Case(sessions, f"{name}={how}", by_start, value)
            yield Case(messages, f"{name}={how}", MESSAGE_ROWS, value)
        for query, value in (
            (f"score={how}", f"x.name = '{how}'"),
            (f"score={how}&min_score=1", f"x.name = '{how}' AND x.number >= 1"),
        ):
            yield Case(sessions, query, by_start, SCORED.format("session", "s", value))
            yield Case(messages, query, MESSAGE_ROWS, SCORED.format("message", "m", value))
            yield Case(calls, query, CALL_ROWS, SCORED.format("message", "m", f"x.call_id = c.id AND {value}"))
        yield Case(scores, f"name={how}", SCORE_ROWS, f"x.name = '{how}'")
    for query, value in (("min_score=0.5", "x.number >= 0.5"), ("min_score=99", "x.number >= 99")):
        yield Case(sessions, query, by_start, SCORED.format("session", "s", value))
        yield Case(messages, query, MESSAGE_ROWS, SCORED.format("message", "m", value))
    yield Case(scores, "kind=boolean", SCORE_ROWS, "x.kind = 'boolean'")
    yield Case(scores, "min_value=99", SCORE_ROWS, "x.number >= 99")
    yield Case(calls, "min_duration=999999", CALL_ROWS, "c.duration_ms >= 999999")
    yield Case(calls, "session=s5000", CALL_ROWS, "s.external_id = 's5000' AND " + PROJECT.format("s", "many"))


def first_id(before: timedelta) -> Any:
    from tracesite_sdk.records import ids

    return ids.first_id_at(datetime.now().astimezone() - before)


def fill(messages: int) -> None:
    """Insert sessions evenly over the days, and everything below them, as rows of the real tables."""
    from django.db import connection

    from access_app.db import primary
    from access_app.models import Project
    from messages_app.sql.periods import Period
    from traces_app.ingest.partitions import ensure_periods
    from traces_app.models import Tool

    now = datetime.now().astimezone()
    begin = now - timedelta(days=DAYS)
    ensure_periods(primary, {Period.of(begin + timedelta(days=day)) for day in range(DAYS + 1)})
    many, few = (Project.objects.create(slug=slug).pk for slug in ("many", "few"))
    common, rare = (Tool.objects.create(project_id=many, name=name).pk for name in ("common", "rare"))
    step = timedelta(days=DAYS) / messages
    values = {"begin": begin, "step": step, "many": many, "few": few, "common": common, "rare": rare}
    values["of_few"] = Tool.objects.create(project_id=few, name="of few").pk
    values |= {"rare_until": messages // 10, "size": MESSAGES_A_SESSION}
    with connection.cursor() as cursor:
        for start in range(0, messages, AT_A_TIME):
            cursor.execute(_FILL, {**values, "start": start, "stop": min(start + AT_A_TIME, messages) - 1})
            say(f"{start / messages:.0%}", end="")
        cursor.execute("VACUUM ANALYZE")


_ID = "(time || '{}' || lpad(to_hex({}), 15, '0'))::uuid"
_FILL = f"""
CREATE TEMPORARY TABLE made ON COMMIT DROP AS
SELECT number, number / %(size)s AS session, number %% 2 = 1 AS answers, at, at_session, number %% 20000 = 11 AND number < %(rare_until)s AS rare,
    CASE WHEN number / %(size)s %% 10000 = 3 THEN %(few)s ELSE %(many)s END AS project,
    lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7000' AS time,
    (lpad(to_hex((extract(epoch FROM at_session) * 1000)::bigint), 12, '0') || '7000' || '8' || lpad(to_hex(number / %(size)s), 15, '0'))::uuid AS session_id
FROM generate_series(%(start)s, %(stop)s) AS number,
    LATERAL (SELECT %(begin)s::timestamptz + number * %(step)s::interval AS at,
        %(begin)s::timestamptz + number / %(size)s * %(size)s * %(step)s::interval AS at_session) AS times;
INSERT INTO messages_app_session (id, project_id, external_id, title, description, end_user, said_status, current_phase, tags, metadata, redactions,
    message_count, call_count, failure_count, problem_count, last_run_id, input_tokens, output_tokens, duration_ms, cost_sum, priced_count, created_at,
    updated_at, active_at, deleted_by)
SELECT session_id, max(project), 's' || session, 'Conversation ' || session, '', CASE WHEN bool_or(rare) THEN 'rare' WHEN session %% 2 = 0 THEN 'common' ELSE 'u' || session %% 5000 END,
    CASE WHEN bool_or(rare) THEN 'aborted' ELSE '' END, '', CASE WHEN bool_or(rare) THEN '{{rare}}'::text[] WHEN session %% 2 = 0 THEN '{{common}}' ELSE '{{}}' END,
    '{{}}', '[]', %(size)s, %(size)s, (session %% 20 = 0)::int, (session %% 20 = 0)::int, session_id, 100, 100, 5000, 0.01, 1, min(at_session), min(at_session),
    max(at), ''
FROM made GROUP BY session_id, session;
INSERT INTO messages_app_message (id, project_id, session_id, external_id, request_id, role, content, is_completed, error, health, metadata, redactions,
    step_count, call_count, failure_count, model_error_count, input_tokens, output_tokens, duration_ms, cost, version, created_at, updated_at,
    completed_at, deleted_by)
SELECT {_ID.format("a", "number")}, project, session_id, 'm' || number, '', CASE WHEN rare THEN 'system' WHEN answers THEN 'assistant' ELSE 'user' END,
    'A small message with a number ' || number, NOT rare, '', CASE WHEN rare THEN '{{truncated}}'::text[] WHEN number %% 100 = 1 THEN '{{repaired_id}}' ELSE '{{}}' END,
    '{{}}', '[]', answers::int, answers::int * 2, (number %% 200 = 1)::int, 0, 10, 10, 500, CASE WHEN answers THEN 0.002 END, 1, at, at, at, '' FROM made;
INSERT INTO traces_app_agentstep (id, project_id, message_id, iteration, ordinal, thought, reasoning, agent_name, model, usage, cost, input_ref, metadata)
SELECT {_ID.format("b", "number")}, project, {_ID.format("a", "number")}, 0, 0, '', '', CASE WHEN rare THEN 'rare' WHEN number %% 4 = 1 THEN 'common' ELSE '' END,
    CASE WHEN rare THEN 'rare' WHEN number %% 4 = 1 THEN 'common' ELSE 'another' END, '{{"input_tokens": 10, "output_tokens": 10}}', 0.002, '', '{{}}'
FROM made WHERE answers;
INSERT INTO traces_app_toolcall (id, project_id, message_id, step_id, tool_id, call_id, position, args, reflection, status, duration_ms, metadata)
SELECT {_ID.format("9", "number * 2 + call")}, project, {_ID.format("a", "number")}, {_ID.format("b", "number")},
    CASE WHEN rare THEN %(rare)s WHEN project = %(few)s THEN %(of_few)s ELSE %(common)s END, 'c' || number * 2 + call, call, '{{}}', '',
    CASE WHEN number %% 200 = 1 AND call = 0 OR rare THEN 'error' WHEN number %% 20000 = 1 THEN 'pending' ELSE 'success' END, 100, '{{}}'
FROM made CROSS JOIN generate_series(0, 1) AS call WHERE answers;
INSERT INTO traces_app_toolresult (id, project_id, output, error, metadata, attachments)
SELECT {_ID.format("9", "number * 2 + call")}, project, 'done', CASE WHEN number %% 200 = 1 AND call = 0 OR rare THEN 'failed' ELSE '' END, '{{}}', '[]'
FROM made CROSS JOIN generate_series(0, 1) AS call WHERE answers;
INSERT INTO traces_app_score (id, project_id, session_id, message_id, call_id, session_name, message_name, call_name, span_id, name, kind, number, label,
    comment, source, author, metadata, redactions, created_at, updated_at)
SELECT {_ID.format("c", "number")}, project, session_id, {_ID.format("a", "number")},
    CASE WHEN rare OR number %% 100 = 1 THEN {_ID.format("9", "number * 2")} END, '', '', '', '', CASE WHEN rare THEN 'rare' ELSE 'common' END, 'boolean',
    (number %% 3 <> 0)::int, '', '', 'program', '', '{{}}', '[]', at, at FROM made WHERE answers AND (rare OR number %% 20 = 1)
"""


@contextmanager
def sql_timer() -> Iterator[list[tuple[float, str]]]:
    """Collect the ms that each statement of the block takes, with its text."""
    from django.db import connection

    times: list[tuple[float, str]] = []

    def timer(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(sql, *arguments)
        finally:
            times.append(((time.perf_counter() - began) * 1000, sql))

    with connection.execute_wrapper(timer):
        yield times


def answered(response: Any) -> None:
    assert response.status_code == 200, response.headers.get("Location")
    assert b"took too long" not in response.content, "the list was stopped"


def fetched(sql: str) -> Sequence[Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def timed(work: Callable[[], object]) -> float:
    """Return the ms that `work` takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def say(line: str, end: str = "\n") -> None:
    print(f"\r{line}", end=end, flush=True)


if __name__ == "__main__":
    main()
