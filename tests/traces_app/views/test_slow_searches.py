"""A list that would take minutes is stopped, and the error names faster filters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from access_app.keys import create_key
from access_app.models import Project
from traces_app.models import Tool

from .conftest import Caller

LISTS = [
    ("sessions/", "messages_app_session"),
    ("sessions/?title=x", "messages_app_session"),
    ("messages/", "messages_app_message"),
    ("messages/?deleted=true", "messages_app_message"),
    ("tool-calls/", "traces_app_toolcall"),
    ("chains/?slower_than=1", "messages_app_message"),
    ("chains/?root_tool=none", "messages_app_message"),
    ("tools/", "traces_app_toolcall"),
    ("usage/", "traces_app_agentstep"),
]


@pytest.fixture
def owner(transactional_db: None) -> Caller:
    project = Project.objects.create(slug="owner")
    Tool.objects.create(project=project, name="search")
    return Caller(create_key(project, "agent", ["read", "write", "delete"])[1])


@contextmanager
def kept_from_others(table: str) -> Iterator[None]:
    """Make reads of the table wait, like a search without end."""
    info = connection.connection.info
    with psycopg.connect(make_conninfo(info.dsn, password=info.password or None)) as other:
        other.execute(f"LOCK TABLE {table}")
        yield


def limit_now() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


@pytest.mark.parametrize(("path", "table"), LISTS, ids=[path for path, _table in LISTS])
def test_slow_list_is_refused_with_a_hint(
    owner: Caller, path: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (
        *("messages_app.sql.pagination", "traces_app.queries.filters"),
        *("traces_app.queries.tools", "traces_app.queries.usage"),
    ):
        monkeypatch.setattr(f"{module}.LIST_MS", 50)
    before = limit_now()
    with kept_from_others(table):
        answer = owner.get(path)
    assert answer.error == (400, "too_slow", None)
    assert "Narrow it with created_after and created_before" in answer.json["error"]["message"]
    assert "Retry-After" not in answer.headers
    # The connection is usable afterwards, with the limit of before.
    assert limit_now() == before
    monkeypatch.undo()
    assert owner.get(path).status == 200
