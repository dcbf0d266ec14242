"""Reads over HTTP relative to the floor: one message, nested pages, filters, lists, and admin pages."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import msgspec

from . import http_client
from .floor_reads import Floor, Page
from .report import Bar, Line, Report, at_most
from .server import Server
from .workload import COMMON_TOOL, RARE_TOOL, Workload

PAGE = 50
NEWEST_FIRST = f"messages_app_message.id DESC LIMIT {PAGE}"
Answer = Callable[[], bytes | bytearray]


class DifferentAnswers(AssertionError):
    """Floor and server return different data, so their times cannot be compared."""


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Stored data of the benchmarks."""

    workload: Workload
    messages: int
    project_id: int
    slug: str
    tool_ids: Mapping[str, int]
    message_ids: Sequence[str]
    """Sorted by id."""
    session_ids: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Kind of request: several paths in different places of the data, each with the floor's ways to the same data."""

    name: str
    paths: Sequence[str]
    floors: Mapping[str, Sequence[Answer]]
    bar: Bar | None = None
    is_html: bool = False
    same: bool = True
    """Whether the floor returns the same JSON; otherwise it only reads the same rows."""
    beside: Mapping[str, float] = field(default_factory=dict)


def measure(
    report: Report, server: Server, floor: Floor, data: DataSet, head: dict[str, str], runs: int, seconds: float
) -> None:
    connection = server.connect()
    # Deterministic places, the same in every run of the benchmark.
    chance = random.Random(data.messages)
    for case in _cases(connection, floor, data, head, chance):
        report.add(_measure_case(connection, case, head, runs, seconds))
    report.add(_measure_depth(connection, data, head, runs, seconds))
    connection.close()


def measure_admin(
    report: Report, server: Server, floor: Floor, data: DataSet, cookie: str, runs: int, seconds: float
) -> None:
    connection = server.connect()
    head = {"Cookie": cookie}
    for case in _admin_cases(floor, data):
        report.add(_measure_case(connection, case, head, runs, seconds))
    connection.close()


# --- Requests -------------------------------------------------------------------------------------------------


def _cases(
    connection: http_client.Connection, floor: Floor, data: DataSet, head: dict[str, str], chance: random.Random
) -> Iterable[Case]:
    some_messages = chance.sample(data.message_ids, k=min(50, len(data.message_ids)))
    yield Case(
        name="one message",
        paths=[f"/api/v1/messages/{message_id}/" for message_id in some_messages],
        floors=_nested(floor, [_one(message_id) for message_id in some_messages]),
        bar=at_most(4),
    )
    sessions = chance.sample(data.session_ids, k=min(20, len(data.session_ids)))
    yield Case(
        name=f"nested page of {PAGE} of a session",
        paths=[f"/api/v1/sessions/{session_id}/messages/?limit={PAGE}" for session_id in sessions],
        floors=_nested(
            floor,
            [
                Page(
                    where=f"session_id = %(id)s AND deleted_at IS NULL ORDER BY {NEWEST_FIRST}",
                    values={"id": session_id},
                    oldest_first=True,
                )
                for session_id in sessions
            ],
        ),
        bar=at_most(2),
    )
    yield Case(
        name=f"nested page of {PAGE} of a project",
        paths=[f"/api/v1/messages/?limit={PAGE}"],
        floors=_nested(floor, [_of_project(data, None)]),
        bar=at_most(2),
    )
    deep = data.message_ids[len(data.message_ids) // 10]
    yield Case(
        name=f"nested page of {PAGE} at depth 90 %",
        paths=[f"/api/v1/messages/?limit={PAGE}&cursor={_cursor_before(deep)}"],
        floors=_nested(floor, [_of_project(data, deep)]),
        bar=at_most(2),
    )
    begin, end = _two_hours(data)
    tool_id = data.tool_ids[COMMON_TOOL]
    window = {"first": _first_id_at(begin), "last": _first_id_at(end)}
    yield Case(
        name=f"failed calls of a tool in two hours, {PAGE}",
        paths=[
            f"/api/v1/tool-calls/?tool={COMMON_TOOL}&status=error&created_after={_quoted(begin)}"
            f"&created_before={_quoted(end)}&limit={PAGE}"
        ],
        floors={"flat": [lambda: floor.failed_calls({**window, "tool_id": tool_id, "limit": PAGE})]},
        bar=at_most(5),
    )
    for tool in (COMMON_TOOL, RARE_TOOL):
        yield Case(
            name=f"messages with {tool}, {PAGE}",
            paths=[f"/api/v1/messages/?tool={tool}&limit={PAGE}"],
            floors=_nested(floor, [_with_tool(data.tool_ids[tool])]),
            bar=at_most(3),
        )
    yield Case(
        name=f"list of {PAGE} sessions",
        paths=[f"/api/v1/sessions/?limit={PAGE}"],
        floors={"flat": [lambda: floor.sessions(data.project_id, data.slug, PAGE)]},
        bar=at_most(8),
    )


def _admin_cases(floor: Floor, data: DataSet) -> Iterable[Case]:
    """Return the admin pages; their floor reads the rows without rendering HTML."""
    message_id = data.message_ids[len(data.message_ids) // 2]
    session_id = data.session_ids[len(data.session_ids) // 2]
    columns = "id, role, left(content, 320), call_count, failure_count, error, duration_ms, created_at"
    newest = f"WHERE deleted_at IS NULL ORDER BY id DESC LIMIT {PAGE}"
    for name, path, answer in (
        (
            f"admin: {PAGE} sessions",
            "/admin/messages_app/session/",
            lambda: floor.sessions(data.project_id, data.slug, PAGE),
        ),
        (
            f"admin: {PAGE} messages",
            "/admin/messages_app/message/",
            lambda: _rows(floor, f"SELECT {columns} FROM messages_app_message {newest}", []),
        ),
        (
            "admin: a run with its calls",
            f"/admin/messages_app/message/{message_id}/change/",
            lambda: floor.flat(_one(message_id)),
        ),
        (
            "admin: a conversation",
            f"/admin/messages_app/session/{session_id}/change/",
            lambda: _rows(
                floor,
                f"SELECT {columns} FROM messages_app_message WHERE session_id = %s ORDER BY id LIMIT {PAGE}",
                [session_id],
            ),
        ),
    ):
        yield Case(
            name=name, paths=[path], floors={"rows": [answer]}, same=False, beside={"queries": _queries_of(path)}
        )


def _nested(floor: Floor, pages: Sequence[Page]) -> dict[str, list[Answer]]:
    return {
        "flat": [partial(floor.flat, page) for page in pages],
        "json_agg": [partial(floor.json_agg, page) for page in pages],
    }


def _one(message_id: str) -> Page:
    return Page(where="id = %(id)s AND deleted_at IS NULL", values={"id": message_id})


def _of_project(data: DataSet, before: str | None) -> Page:
    values: dict[str, Any] = {"project": data.project_id}
    where = "project_id = %(project)s AND deleted_at IS NULL"
    if before is not None:
        where += " AND id < %(before)s"
        values["before"] = before
    return Page(where=f"{where} ORDER BY {NEWEST_FIRST}", values=values)


def _with_tool(tool_id: int) -> Page:
    # A message has at most 8 calls, so these calls belong to at least PAGE messages.
    of_calls = f"SELECT message_id FROM traces_app_toolcall WHERE tool_id = %(tool)s ORDER BY id DESC LIMIT {8 * PAGE}"
    return Page(where=f"id IN ({of_calls}) AND deleted_at IS NULL ORDER BY {NEWEST_FIRST}", values={"tool": tool_id})


def _rows(floor: Floor, statement: str, values: list[Any]) -> bytes:
    return repr(floor.connection.execute(statement, values).fetchall()).encode()


def _two_hours(data: DataSet) -> tuple[Any, Any]:
    end = data.workload.created_at(data.messages - 1)
    return end - timedelta(hours=2), end


def _quoted(instant: Any) -> str:
    return quote(instant.isoformat().replace("+00:00", "Z"))


def _first_id_at(instant: Any) -> str:
    from tracesite_sdk.records import ids

    return str(ids.first_id_at(instant))


def _cursor_before(message_id: str) -> str:
    from uuid import UUID

    from messages_app.sql.pagination import Cursor

    return str(Cursor(position=UUID(message_id), newer=False))


def _queries_of(path: str) -> int:
    """Return the number of queries of an admin page, counted in this process."""
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(get_user_model()._default_manager.get(username="bench"))
    with CaptureQueriesContext(connection) as queries:
        assert client.get(path).status_code == 200, path
    return len(queries)


# --- Measuring -----------------------------------------------------------------------------------------------------


def _measure_case(
    connection: http_client.Connection, case: Case, head: dict[str, str], runs: int, seconds: float
) -> Line:
    requests = [http_client.get(path, head) for path in case.paths]
    answers: dict[str, Sequence[Answer]] = {
        "HTTP": [partial(connection.send, request) for request in requests],
        **case.floors,
    }
    if case.same:
        _compare(answers)
    sizes = [len(answer()) for answer in answers["HTTP"]]
    # Each connection of the server prepares a statement at its sixth execution.
    _in_turns(answers, 1, seconds)
    times = _in_turns(answers, runs, seconds)
    return Line(
        name=case.name,
        unit="ms",
        runs=times["HTTP"],
        floors={way: times[way] for way in case.floors},
        bar=case.bar,
        beside={"KB": statistics.mean(sizes) / 1000, **case.beside},
    )


def _measure_depth(
    connection: http_client.Connection, data: DataSet, head: dict[str, str], runs: int, seconds: float
) -> Line:
    """Measure the page at depth 90 %, with page 1 as its floor."""
    deep = data.message_ids[len(data.message_ids) // 10]
    first_page = http_client.get(f"/api/v1/messages/?limit={PAGE}", head)
    deep_page = http_client.get(f"/api/v1/messages/?limit={PAGE}&cursor={_cursor_before(deep)}", head)
    answers: dict[str, Sequence[Answer]] = {
        "deep": [lambda: connection.send(deep_page)],
        "page 1": [lambda: connection.send(first_page)],
    }
    times = _in_turns(answers, 2 * runs, seconds)
    return Line(
        name="page at depth 90 % beside page 1",
        unit="ms",
        runs=times["deep"],
        floors={"page 1": times["page 1"]},
        bar=at_most(1.1),
    )


def _in_turns(answers: Mapping[str, Sequence[Answer]], runs: int, seconds: float) -> dict[str, list[float]]:
    """Return the median response time in ms of each run: two turns of `seconds` for each way."""
    medians: dict[str, list[float]] = {way: [] for way in answers}
    for _run in range(runs):
        times: dict[str, list[float]] = {way: [] for way in answers}
        for _slice in range(2):
            for way, of_way in answers.items():
                end = time.perf_counter() + seconds
                while time.perf_counter() < end:
                    answer = of_way[len(times[way]) % len(of_way)]
                    begin = time.perf_counter()
                    answer()
                    times[way].append((time.perf_counter() - begin) * 1000)
        for way, of_run in times.items():
            medians[way].append(statistics.median(of_run))
    return medians


def _compare(answers: Mapping[str, Sequence[Answer]]) -> None:
    for same_place in zip(*answers.values(), strict=True):
        contents = [_content(answer()) for answer in same_place]
        for (way, content), (other_way, other) in pairwise(zip(answers, contents, strict=True)):
            if content != other:
                raise DifferentAnswers(f"{way}: {str(content)[:2000]}\n\n{other_way}: {str(other)[:2000]}")


def _content(answer: bytes | bytearray) -> Any:
    document = msgspec.json.decode(answer)
    # A single message is the body itself; a list also has cursors.
    return _said(document.get("results", [document]))


def _said(value: Any) -> Any:
    """Return the value without empty fields, because the server omits some of them and json_agg none."""
    if isinstance(value, dict):
        return {name: said for name, item in value.items() if (said := _said(item)) not in (None, "", [], {})}
    return [_said(item) for item in value] if isinstance(value, list) else value
