"""The filters on messages, calls, chains and tools, compared with the same conditions in Python on the same rows."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.db import connection
from django.http import QueryDict
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project
from access_app.visibility import ALL_PROJECTS, NO_PROJECTS, ProjectScope
from messages_app.models import Message, Session
from messages_app.queries import FoundSession
from messages_app.sql.batch import Query
from messages_app.sql.pagination import IdRange
from messages_app.timestamps import instant_text
from tests.traces_app.conftest import NOON, store
from traces_app.models import Tool, ToolCall
from traces_app.queries.filters import CallFilterSet, ChainFilterSet, MessageFilterSet
from traces_app.queries.tool_filters import ToolFilterSet
from tracesite_sdk.records.ids import first_id_at

LATER = NOON + timedelta(days=20)  # the month after


def made(pick: random.Random, number: int) -> dict[str, Any]:
    calls = [
        {
            "id": pick.choice(["c1", "c2", "%"]),
            "name": pick.choice(["search", "fetch", "100%", "it's"]),
            "duration": pick.choice([0, 5, 1500]),
            **pick.choice([{"result": {"output": "x"}}, {"result": {"output": "x"}}, {"result": {"error": "x"}}, {}]),
        }
        for _call in range(pick.choice([0, 0, 1, 2, 3]))
    ]
    if len(calls) > 1:
        calls[0]["uuid"], calls[1]["parent"] = f"u{number}", f"u{number}"
    return {
        "external_id": f"m{number % 20}",
        "role": "assistant" if calls else pick.choice(["user", "assistant", "system"]),
        "request_id": pick.choice(["", "r1", "r%"]),
        "created_at": NOON + timedelta(days=number / 2),
        "is_completed": pick.choice([True, True, False]),
        "error": pick.choice(["", "", "", "model refused"]),
        "duration": pick.choice([None, 0, 1500, 2000, 2001]),
        "agent_steps": [{"tool_calls": calls}] if calls else [],
    }


class Rows:
    """All rows as Django reads them, and those visible in a scope."""

    def __init__(self) -> None:
        self.sessions = Session.with_deleted.in_bulk()
        self.messages = list(Message.with_deleted.order_by("pk"))
        self.calls = list(ToolCall.with_deleted.order_by("pk").select_related("tool"))
        self.of: dict[UUID, list[ToolCall]] = defaultdict(list)
        for call in self.calls:
            self.of[call.message_id].append(call)
        self.by_id = {message.pk: message for message in self.messages}

    def alive(self, message: Message) -> bool:
        return message.deleted_at is None and self.sessions[message.session_id].deleted_at is None


@pytest.fixture
def rows(project: Project, stranger: Project) -> Rows:
    """Store two sessions in each of two projects over two months; the second of each is deleted."""
    pick = random.Random(11)
    for number in range(4):
        of = (project, stranger)[number % 2]
        store(of, *(made(pick, 20 * number + each) for each in range(20)), external_id=f"s{number // 2}")
    Session.objects.filter(external_id="s1").update(deleted_at=timezone.now())
    some = [message.pk for place, message in enumerate(Message.with_deleted.order_by("pk")) if place % 6 == 0]
    Message.with_deleted.filter(pk__in=some).update(deleted_at=timezone.now())
    return Rows()


def check(
    filter_set: Any,
    cases: Iterable[tuple[dict[str, Any], Callable[[Any], bool]]],
    candidates: list[Any],
    *,
    session: FoundSession | None = None,
) -> int:
    """Compare all cases for scopes of all projects, one and none; return the number of rows that passed."""
    own = ProjectScope(frozenset({candidates[0].project_id}))
    passed = 0
    for query, passes in cases:
        filters = filter_set(QueryDict(urlencode(query, doseq=True)), mask=None)
        for scope in (ALL_PROJECTS, own, NO_PROJECTS):
            rows = (
                filters.found(primary, scope) if filter_set is ToolFilterSet else filters.found(primary, scope, session)
            )
            visible = [row for row in candidates if scope.project_ids is None or row.project_id in scope.project_ids]
            expected = [row.pk for row in visible if passes(row)]
            assert rows.keys(newest_first=False, limit=200) == expected, (query, scope)
            assert rows.keys(newest_first=True, limit=200) == expected[::-1], (query, scope)
            passed += len(expected)
    return passed


def durations(wanted: Callable[[Any], int | None]) -> list[tuple[dict[str, Any], Callable[[Any], bool]]]:
    def at_least(least: int) -> Callable[[Any], bool]:
        return lambda row: (wanted(row) if wanted(row) is not None else -1) >= least

    def at_most(most: int) -> Callable[[Any], bool]:
        return lambda row: wanted(row) is not None and wanted(row) <= most

    bounds = (0, 1500, 1501, 2**31, 2**63, 10**30)
    return [
        *(({"min_duration": bound}, at_least(bound)) for bound in bounds),
        *(({"max_duration": bound}, at_most(bound)) for bound in bounds),
        ({"min_duration": 1, "max_duration": 1999}, lambda row: at_least(1)(row) and at_most(1999)(row)),
    ]


TIMES: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
    ({"created_after": instant_text(LATER)}, lambda row: row.pk >= first_id_at(LATER)),
    ({"created_before": instant_text(LATER)}, lambda row: row.pk < first_id_at(LATER)),
    (
        {"created_after": instant_text(NOON), "created_before": instant_text(NOON + timedelta(hours=12))},
        lambda row: first_id_at(NOON) <= row.pk < first_id_at(NOON + timedelta(hours=12)),
    ),
    ({"created_after": "9999-12-31T23:59:59Z"}, lambda row: False),
    ({"created_before": "0001-01-02T00:00:00Z"}, lambda row: False),
]


@pytest.mark.parametrize("within", [False, True])
def test_message_filters_match_the_same_in_python(rows: Rows, within: bool) -> None:
    def with_call(passes: Callable[[ToolCall], bool]) -> Callable[[Message], bool]:
        return lambda message: any(passes(call) for call in rows.of[message.pk])

    cases: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
        ({}, lambda row: True),
        *(({"role": role}, lambda row, role=role: row.role == role) for role in Message.Role.values),
        *(({"request_id": name}, lambda row, name=name: row.request_id == name) for name in ("r1", "r%", "r")),
        *(({"external_id": name}, lambda row, name=name: row.external_id == name) for name in ("m3", "m", "m%")),
        *(({"call_id": name}, with_call(lambda call, name=name: call.call_id == name)) for name in ("c1", "%", "c")),
        *(
            ({"tool": names}, with_call(lambda call, names=names: call.tool.name in names))
            for names in (["search"], ["fetch", "it's"], ["100%"], ["none"], ["none", "search"])
        ),
        *(
            ({"tool_status": status}, with_call(lambda call, status=status: call.status == status))
            for status in ToolCall.Status.values
        ),
        *(
            (
                {"tool": ["search", "fetch"], "tool_status": status},
                with_call(lambda call, status=status: call.tool.name in ("search", "fetch") and call.status == status),
            )
            for status in ToolCall.Status.values
        ),
        ({"tool": "none", "tool_status": "error"}, lambda row: False),
        ({"is_completed": "true"}, lambda row: row.is_completed),
        ({"is_completed": "false"}, lambda row: not row.is_completed),
        ({"has_errors": "true"}, lambda row: row.has_errors),
        ({"has_errors": "false"}, lambda row: not row.has_errors),
        *durations(lambda row: row.duration_ms),
        *TIMES,
        (
            {"created_after": instant_text(LATER), "tool": "search", "has_errors": "true", "role": "assistant"},
            lambda row: (
                row.pk >= first_id_at(LATER)
                and row.has_errors
                and any(call.tool.name == "search" for call in rows.of[row.pk])
            ),
        ),
    ]
    for session in [row for row in rows.sessions.values() if row.external_id == "s0"] if within else [None]:
        here = [row for row in rows.messages if session is None or row.session_id == session.pk]
        named = FoundSession(session.pk, session.project_id) if session else None
        alive = [row for row in here if rows.alive(row)]
        assert check(MessageFilterSet, cases, alive, session=named) > 100
        deleted = [row for row in here if not rows.alive(row)]
        trash = [({**query, "deleted": "true"}, passes) for query, passes in cases]
        assert check(MessageFilterSet, trash, deleted, session=named) > 10


def test_filter_on_calls_reads_the_months_of_the_page(rows: Rows) -> None:
    found = MessageFilterSet(QueryDict("tool=search"), mask=None).found(primary, ALL_PROJECTS, None)
    page = IdRange(lower=first_id_at(LATER), upper=first_id_at(LATER + timedelta(days=1)))
    query = Query.of(found.within(page).queryset.values_list("pk"))
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {query.sql}", query.parameters)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    leaves = set(re.findall(r" on (\w+)_y\d{4}m\d\d", plan))
    months = set(re.findall(r" on \w+_(y\d{4}m\d\d)", plan))
    assert (leaves, len(months)) == ({"messages_app_message", "traces_app_toolcall"}, 1), plan


def test_call_filters_match_the_same_in_python(rows: Rows) -> None:
    alive = [call for call in rows.calls if rows.alive(rows.by_id[call.message_id])]
    some = alive[len(alive) // 2]
    parent = next(call.parent_id for call in alive if call.parent_id)
    cases: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
        ({}, lambda row: True),
        *(
            ({"tool": names}, lambda row, names=names: row.tool.name in names)
            for names in (["search"], ["100%", "it's"], ["none"], ["none", "fetch"])
        ),
        *(({"status": status}, lambda row, status=status: row.status == status) for status in ToolCall.Status.values),
        *(({"call_id": name}, lambda row, name=name: row.call_id == name) for name in ("c1", "%", "c")),
        ({"message": some.message_id}, lambda row: row.message_id == some.message_id),
        ({"message": some.message_id.hex.upper()}, lambda row: row.message_id == some.message_id),
        ({"parent": parent}, lambda row: row.parent_id == parent),
        ({"tool": "fetch", "status": "error"}, lambda row: row.tool.name == "fetch" and row.status == "error"),
        *durations(lambda row: row.duration_ms),
        *TIMES,
    ]
    assert check(CallFilterSet, cases, alive) > 200
    session = rows.sessions[rows.by_id[some.message_id].session_id]
    within = [call for call in alive if rows.by_id[call.message_id].session_id == session.pk]
    assert check(CallFilterSet, cases, within, session=FoundSession(session.pk, session.project_id)) > 50


def test_chain_filters_match_the_same_in_python(rows: Rows) -> None:
    def failed(row: Message) -> bool:
        left_open = row.is_completed and any(call.status == "pending" for call in rows.of[row.pk])
        return bool(row.error) or left_open or any(call.status == "error" for call in rows.of[row.pk])

    def with_call(passes: Callable[[ToolCall], bool]) -> Callable[[Message], bool]:
        return lambda message: any(passes(call) for call in rows.of[message.pk])

    cases: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
        ({}, lambda row: True),
        *(
            ({"tool": names}, with_call(lambda call, names=names: call.tool.name in names))
            for names in (["search"], ["100%", "it's"], ["none"])
        ),
        *(
            # chains.rooted_in decides afterwards which call without a parent is the root.
            (
                {"root_tool": names},
                with_call(lambda call, names=names: call.tool.name in names and call.parent_id is None),
            )
            for names in (["search"], ["fetch", "none"], ["none"])
        ),
        *(({"call_id": name}, with_call(lambda call, name=name: call.call_id == name)) for name in ("c2", "%", "c")),
        ({"external_id": "m3"}, lambda row: row.external_id == "m3"),
        ({"request_id": "r%"}, lambda row: row.request_id == "r%"),
        ({"success": "true"}, lambda row: not failed(row)),
        ({"success": "false"}, failed),
        (
            {"success": "false", "tool": "fetch", "created_before": instant_text(LATER)},
            lambda row: (
                failed(row)
                and row.pk < first_id_at(LATER)
                and any(call.tool.name == "fetch" for call in rows.of[row.pk])
            ),
        ),
        *(
            (
                {"slower_than": text},
                lambda row, text=text: row.duration_ms is not None and row.duration_ms / 1000 > float(text),
            )
            for text in ("0", "1.4999", "1.5", "1.500001", "1.999999", "2", "2.0005", "2.001", "2.5", "1e3", "999999")
        ),
        *durations(lambda row: row.duration_ms),
        *TIMES,
    ]
    alive = [row for row in rows.messages if rows.alive(row) and row.role == "assistant" and rows.of[row.pk]]
    assert {failed(row) for row in alive} == {True, False}
    assert check(ChainFilterSet, cases, alive) > 100
    session = rows.sessions[alive[0].session_id]
    within = [row for row in alive if row.session_id == session.pk]
    assert check(ChainFilterSet, cases, within, session=FoundSession(session.pk, session.project_id)) > 20


def test_tool_filters_match_python_and_ignore_times(rows: Rows) -> None:
    Tool.objects.filter(name="search").update(category="web")
    tools = list(Tool.objects.order_by("pk"))
    cases: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
        ({}, lambda row: True),
        ({"tool": ["search", "100%"]}, lambda row: row.name in ("search", "100%")),
        ({"tool": "none"}, lambda row: False),
        ({"category": "web"}, lambda row: row.category == "web"),
        ({"category": "web", "tool": "fetch"}, lambda row: False),
        ({"created_after": "9999-12-31T23:59:59Z", "created_before": "0001-01-02T00:00:00Z"}, lambda row: True),
    ]
    assert check(ToolFilterSet, cases, tools) > 10
