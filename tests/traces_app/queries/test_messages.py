"""The nested read below HTTP: the tables and partitions that it reads, and the parts that it leaves out."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message
from tests.traces_app.conftest import answer, question, statements_in, store
from traces_app.models import ToolCall
from traces_app.queries.messages import Selection, calls, messages

TABLES = ["messages_app_message", "messages_app_reference", "traces_app_agentstep", "traces_app_toolcall", "traces_app_toolresult"]  # fmt: skip


@pytest.fixture
def months(project: Project) -> list[str]:
    """Store one run in each of three months; return their ids."""
    found = []
    for month in (1, 2, 3):
        at = datetime(2026, month, 15, tzinfo=UTC)
        outcome = store(
            project, answer(created_at=at, knowledge_references=[{"content": "x"}]), external_id=f"s{month}"
        )
        found.append(str(outcome.messages[0].id))
    return found


def leaves_of(sql: str) -> set[str]:
    """Return the partitions that PostgreSQL would open for a statement."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    return set(re.findall(r" on (\w+_y\d{4}m\d\d)", plan))


def test_page_reads_one_partition_of_each_table(months: list[str]) -> None:
    with CaptureQueriesContext(connection) as queries:
        found = messages(primary, [months[1]])
    assert [message.call_count for message in found] == [4]
    opened = [sorted(leaf.removesuffix("_y2026m02") for leaf in leaves_of(each)) for each in statements_in(queries)]
    results = TABLES[-1]
    # Results are read with their calls.
    others = [[table] for table in TABLES if table not in ("traces_app_toolcall", results)]
    assert sorted(opened) == sorted([*others, ["traces_app_toolcall", results]])


def test_calls_open_the_partitions_of_their_months(months: list[str]) -> None:
    ids = [str(call.pk) for call in ToolCall.objects.filter(message_id__in=months[:2])]
    with CaptureQueriesContext(connection) as queries:
        assert len(calls(primary, ids)) == 8
    opened = [{leaf[-7:] for leaf in leaves_of(each)} for each in statements_in(queries)]
    assert opened == [{"2026m01", "2026m02"}]


def test_messages_keep_id_order_and_skip_missing_ids(months: list[str]) -> None:
    gone = "019ca945-0a00-7000-8000-000000000000"
    assert [message.id for message in messages(primary, [months[2], gone, months[0]])] == [months[2], months[0]]
    assert messages(primary, [gone]) == calls(primary, [gone]) == messages(primary, []) == calls(primary, []) == []


@pytest.mark.parametrize(
    ("selection", "tables"),
    [
        (Selection(), {"message", "reference", "agentstep", "toolcall", "toolresult"}),
        (Selection(expand=frozenset({"results"})), {"message", "agentstep", "toolcall", "toolresult"}),
        (Selection(expand=frozenset({"calls"})), {"message", "agentstep", "toolcall"}),
        (Selection(expand=frozenset({"steps"})), {"message", "agentstep"}),
        (Selection(expand=frozenset({"references"})), {"message", "reference"}),
        (Selection(expand=frozenset()), {"message"}),
        (Selection(fields=frozenset({"id", "content"})), {"message"}),
    ],
)
def test_messages_read_selected_tables_only(months: list[str], selection: Selection, tables: set[str]) -> None:
    with CaptureQueriesContext(connection) as queries:
        messages(primary, months, selection)
    from_tables = [
        re.findall(
            r"(?:FROM|SELECT \* FROM) (?:messages|traces)_app_(\w+)", re.sub(r"\(SELECT name FROM \w+", "", each)
        )
        for each in statements_in(queries)
    ]
    assert sorted(table for found in from_tables for table in found) == sorted(tables)
    assert all(from_tables)
    assert len(queries) == 1


def test_messages_read_selected_columns_only(months: list[str]) -> None:
    with CaptureQueriesContext(connection) as queries:
        messages(primary, months, Selection(fields=frozenset({"id", "role"})))
    (query,) = queries
    columns = query["sql"].partition(" FROM ")[0]
    assert ("role" in columns, "content" in columns, "metadata" in columns) == (True, False, False)


def test_steps_and_calls_are_in_reading_order_however_they_came(project: Project) -> None:
    def step(iteration: int, *names: str) -> dict[str, Any]:
        return {"iteration": iteration, "tool_calls": [{"id": name, "name": name} for name in names]}

    first = answer(agent_steps=[step(2, "e"), step(0, "b", "a")], is_completed=False)
    store(project, question(), first)
    outcome = store(project, answer(agent_steps=[step(1, "d", "c"), step(0, "b", "a", "z")], is_completed=False))
    (message,) = messages(primary, [str(outcome.messages[0].id)])
    assert [(each.iteration, [call.id for call in each.tool_calls]) for each in message.agent_steps] == [
        (0, ["b", "a", "z"]),
        (1, ["d", "c"]),
        (2, ["e"]),
    ]
    assert Message.objects.count() == 2
