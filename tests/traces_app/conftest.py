"""Shared fixtures of the trace tests: a project, another one, and the standard session of an agent."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from django.db import connection
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from access_app.request_database import database_of
from messages_app.sql.partitions import periods_of, settle_periods
from traces_app.ingest.batch import SessionOutcome
from traces_app.ingest.partitions import TABLES, forget
from traces_app.ingest.pipeline import ingest
from tracesite_sdk import records

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def session_of(*messages: dict[str, Any], external_id: str = "weather", **fields: Any) -> records.Session:
    """Build a session record from the fields of a request."""
    return msgspec.convert({"external_id": external_id, "messages": list(messages), **fields}, records.Session)


def store(project: Project, *messages: dict[str, Any], **fields: Any) -> SessionOutcome:
    """Store one session where its project is, or in `db`, and return its outcome."""
    source, db = fields.pop("source", "live"), fields.pop("db", None)
    (outcome,) = ingest(db or database_of(project.pk), project.pk, [session_of(*messages, **fields)], source=source)
    return outcome


def answered(project: Project, **fields: Any) -> UUID:
    """Store the standard session, with these fields of its answer; return the id of the answer."""
    message_id = store(project, question(), answer(**fields)).messages[1].id
    assert message_id is not None
    return message_id


@pytest.fixture
def client_of_key(project: Project) -> Client:
    """A program with a key that may read and write."""
    token = create_key(project, "agent", ["read", "write"])[1]
    return Client(headers={"Authorization": f"Bearer {token}"})


def drop_all_periods() -> None:
    """Drop the months of earlier tests. One of migrations may have left a month without the tables that are newer than it."""
    settle_periods(primary, TABLES)
    with connection.cursor() as cursor:
        for month in periods_of(primary, "messages_app_message"):
            cursor.execute(f"DROP TABLE IF EXISTS {', '.join(month.leaf(table.name) for table in TABLES)}")
    forget()


def statements_in(queries: Iterable[dict[str, str]]) -> list[str]:
    """Return the single statements of captured queries, because several are sent in one round trip."""
    return [statement for query in queries for statement in query["sql"].split("; ")]


def counted_in(queries: Iterable[dict[str, str]]) -> list[str]:
    """Return the statements of one request, without those of each request: time limits, and one entry of the audit log."""
    statements = [statement for statement in statements_in(queries) if not statement.startswith("SET LOCAL ")]
    counted = [statement for statement in statements if "INTO access_app_auditentry" not in statement]
    assert len(statements) - len(counted) == 1, "one entry of the audit log"
    return counted


def question(**fields: Any) -> dict[str, Any]:
    return {
        "external_id": "q1",
        "role": "user",
        "content": "What is the weather in Shanghai and in Atlantis?",
        "created_at": NOON,
        **fields,
    }


def answer(**fields: Any) -> dict[str, Any]:
    """Two steps: two parallel calls, one of them failed, then a call with a child."""
    return {
        "external_id": "a1",
        "role": "assistant",
        "content": "Shanghai 31 °C; there is no Atlantis.",
        "created_at": NOON,
        "request_id": "req-1",
        "usage": {"prompt_tokens": 120, "completion_tokens": 30},
        "agent_steps": [
            {
                "iteration": 0,
                "thought": "Ask for both cities at once.",
                "timestamp": NOON,
                "tool_calls": [
                    {
                        "id": "call_a",
                        "name": "get_weather",
                        "args": {"city": "上海"},
                        "duration": 40,
                        "result": {"success": True, "output": "31 °C", "data": {"temp_c": 31}},
                    },
                    {
                        "id": "call_b",
                        "name": "get_weather",
                        "args": {"city": "Atlantis"},
                        "duration": 12,
                        "result": {"success": False, "output": "", "error": "unknown city"},
                        "reflection": "The city does not exist.",
                    },
                ],
            },
            {
                "iteration": 1,
                "thought": "Ask the researcher.",
                "tool_calls": [
                    {"uuid": "outer", "id": "call_c", "name": "ask_researcher", "args": {"q": "Atlantis"}, "duration": 90,
                     "result": {"output": "a myth"}},
                    {"id": "call_d", "name": "search", "args": {"q": "Atlantis"}, "duration": 60, "parent": "outer",
                     "result": {"output": "3 hits"}},
                ],
            },
        ],
        **fields,
    }  # fmt: skip
