"""Tests of query_archive, and of what the pages and the API say of a session that is archived."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import subprocess
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Count, Sum
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project, Role
from access_app.roles import grant_role
from messages_app.models import Session
from tests.traces_app.maintenance.archive.conftest import FAR, FEBRUARY, JANUARY, fill, tell
from traces_app.maintenance.archive import spark
from traces_app.maintenance.archive.archiving import archive
from traces_app.maintenance.archive.folder import open_folder
from traces_app.management.commands.query_archive import ANALYTICS
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.error_patterns import pattern_of
from traces_app.queries.usage import tokens_in_step
from tracesite_sdk.normalize.pricing import TOKENS_IN, TOKENS_OUT

pytestmark = pytest.mark.django_db(transaction=True)


def query(folder: Path | str, *arguments: str) -> str:
    out = io.StringIO()
    call_command("query_archive", str(folder), *arguments, stdout=out)
    return out.getvalue()


def test_duckdb_counts_the_same_calls_by_tool(project: Project, stranger: Project, tmp_path: Path) -> None:
    fill(project, stranger)
    counted = ToolCall.objects.values_list("project__slug", "tool__name", "status").annotate(Count("pk"))
    expected = sorted([*map(str, row)] for row in counted)
    sessions = Session.with_deleted.count()
    archive(primary, open_folder(str(tmp_path)), before=FAR, drop=True)
    assert not ToolCall.with_deleted.exists()
    sql = "SELECT project, tool, status, count(*) AS calls FROM calls WHERE NOT in_trash GROUP BY ALL"
    header, *found = csv.reader(io.StringIO(query(tmp_path, sql, "--format", "csv")))
    assert header == ["project", "tool", "status", "calls"]
    assert sorted(found) == expected
    # A session of several months is one row, and a dataset without files is an empty view.
    assert json.loads(query(tmp_path, "SELECT count(*) AS n FROM sessions", "--format", "json")) == {"n": sessions}
    assert "│     0 │" in query(tmp_path, 'SELECT count(*) AS n FROM "references"', "--period", "2024-01")
    with pytest.raises(CommandError, match="Table with name nothing does not exist"):
        query(tmp_path, "SELECT * FROM nothing")


# The figures of the shipped queries, computed by PostgreSQL from the tables.
TOOLS = """
    SELECT p.slug, t.name, (m.created_at AT TIME ZONE 'UTC')::date::text, count(*), count(*) FILTER (WHERE c.status = 'error'),
        percentile_disc(0.5) WITHIN GROUP (ORDER BY c.duration_ms), percentile_disc(0.95) WITHIN GROUP (ORDER BY c.duration_ms),
        percentile_disc(0.99) WITHIN GROUP (ORDER BY c.duration_ms)
    FROM traces_app_toolcall AS c JOIN traces_app_tool AS t ON t.id = c.tool_id
    JOIN messages_app_message AS m ON m.id = c.message_id JOIN messages_app_session AS s ON s.id = m.session_id
    JOIN access_app_project AS p ON p.id = m.project_id
    WHERE m.deleted_at IS NULL AND s.deleted_at IS NULL GROUP BY 1, 2, 3"""
MODELS = """
    SELECT p.slug, step.model, count(*), sum(step.cost)::float8, count(*) FILTER (WHERE step.cost IS NULL)
    FROM traces_app_agentstep AS step
    JOIN messages_app_message AS m ON m.id = step.message_id JOIN messages_app_session AS s ON s.id = m.session_id
    JOIN access_app_project AS p ON p.id = m.project_id
    WHERE m.deleted_at IS NULL AND s.deleted_at IS NULL GROUP BY 1, 2"""


def test_shipped_queries_agree_with_postgresql(project: Project, stranger: Project, tmp_path: Path) -> None:
    fill(project, stranger)
    with connection.cursor() as cursor:
        cursor.execute(TOOLS)
        tools = sorted(map(list, cursor.fetchall()), key=str)
        cursor.execute(MODELS)
        models = sorted(map(list, cursor.fetchall()), key=str)
    failed = ToolCall.objects.filter(status=ToolCall.Status.ERROR).annotate(pattern=pattern_of("result__error"))
    errors = list(
        failed.values_list("project__slug", "pattern")
        .annotate(calls=Count("pk"), tools=Count("tool", distinct=True))
        .order_by("-calls", "project__slug", "pattern")
    )
    spent = AgentStep.objects.aggregate(i=Sum(tokens_in_step(TOKENS_IN)), o=Sum(tokens_in_step(TOKENS_OUT)))
    archive(primary, open_folder(str(tmp_path)), before=FAR)

    rows = [json.loads(line) for line in query(tmp_path, "--name", "tools", "--format", "json").splitlines()]
    names = ("project", "tool", "day", "calls", "failures", "p50_ms", "p95_ms", "p99_ms")
    assert sorted(([row[name] for name in names] for row in rows), key=str) == tools
    assert {row["error_rate"] for row in rows} > {0}
    rows = [json.loads(line) for line in query(tmp_path, "--name", "models", "--format", "json").splitlines()]
    found = [
        [row["project"], row["model"], row["steps"], row["cost"] and float(row["cost"]), row["unpriced"]]
        for row in rows
    ]
    assert sorted(found, key=str) == models
    assert [sum(int(row[name]) for row in rows) for name in ("input_tokens", "output_tokens")] == list(spent.values())
    assert sum(spent.values()) > 0
    rows = [json.loads(line) for line in query(tmp_path, "--name", "errors", "--format", "json").splitlines()]
    assert [(row["project"], row["error_pattern"], row["calls"], row["tools"]) for row in rows] == errors
    assert sum(row["calls"] for row in rows) > len(rows) > 3
    for both_or_none in ((), ("SELECT 1", "--name", "tools")):
        with pytest.raises(CommandError, match="Give either SQL or --name"):
            call_command("query_archive", str(tmp_path), *both_or_none)


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed")
@pytest.mark.parametrize("name", ANALYTICS)
def test_spark_agrees_with_duckdb(project: Project, stranger: Project, tmp_path: Path, name: str) -> None:
    fill(project, stranger)
    archive(primary, open_folder(str(tmp_path)), before=FAR)
    done = subprocess.run(
        [sys.executable, spark.__file__, tmp_path, name], capture_output=True, text=True, timeout=300, check=True
    )
    assert comparable(done.stdout) == comparable(query(tmp_path, "--name", name, "--format", "json"))


def comparable(lines: str) -> list[dict[str, object]]:
    """Return the rows; a number may be written as a text, and a time with zeros."""

    def parsed(value: object) -> object:
        for kind in (float, datetime.fromisoformat):
            with suppress(TypeError, ValueError):
                return kind(value)
        return value

    return [{name: parsed(value) for name, value in json.loads(line).items()} for line in lines.splitlines()]


def test_archived_session_says_where_it_is(project: Project, stranger: Project, staff: Client) -> None:
    tell(project, "both", JANUARY, FEBRUARY)
    tell(stranger, "theirs", JANUARY)
    _key, token = create_key(project, "test", ["read"])
    session = Session.objects.get(external_id="both")
    archive(primary, open_folder("memory://lake"), before=FAR, drop=True)
    where = "The session was archived (2024-01, 2024-02)."
    paths = [
        f"sessions/{session.pk}/",
        *(f"sessions/both/{below}" for below in ("", "messages/", "events/", "contexts/", "forks/")),
    ]
    filtered = (
        "messages/?session=both",
        "tool-calls/?session=both",
        "chains/?session=both",
        f"errors/?session={session.pk}",
    )
    for path in (*paths, *filtered):
        answer = staff.get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {token}"})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "session_archived"), path
        assert error["message"].startswith(where) and "memory://" not in answer.text
        assert error["field"] == ("session" if path in filtered else None)
    with pytest.raises(CommandError) as refused:
        call_command("export", "both")
    assert str(refused.value).startswith(where) and refused.value.returncode == 2
    assert str(refused.value).endswith("Its folder is memory://lake.")
    theirs = staff.get("/api/v1/sessions/theirs/", headers={"Authorization": f"Bearer {token}"})
    assert (theirs.status_code, theirs.json()["error"]["code"]) == (404, "session_not_found")
    page = staff.get(f"/admin/messages_app/session/{session.pk}/change/")
    assert page.status_code == 410
    assert f"manage.py restore_archive memory://lake --project owner --session {session.pk}" in page.text


@pytest.mark.parametrize("role", Role)
def test_folder_of_an_archive_is_shown_to_owners_only(project: Project, stranger: Project, role: Role) -> None:
    tell(project, "whole", JANUARY)
    tell(project, "part", JANUARY, FAR)
    whole, part = (Session.objects.get(external_id=name).pk for name in ("whole", "part"))
    archive(primary, open_folder("memory://lake"), before=FEBRUARY, drop=True)
    user = User.objects.create_user("ada", is_staff=True)
    grant_role(project, user, role)
    grant_role(stranger, user, Role.OWNER)
    login = Client()
    login.force_login(user)
    for path in (f"/admin/messages_app/session/{key}/change/" for key in (whole, part)):
        text = login.get(path).text
        assert ("restore_archive memory://lake" in text, "memory://" in text) == (
            role == Role.OWNER,
            role == Role.OWNER,
        )
        assert "2024-01" in text and ("An operator can bring it back" in text) == (role != Role.OWNER)
    folder = {"url": "memory://lake"} if role == Role.OWNER else {}
    assert login.get(f"/api/v1/sessions/{part}/").json()["archived_parts"] == [{"period": "2024-01"} | folder]
    token = create_key(project, "all", ["read", "write", "delete"])[1]
    read = Client(headers={"Authorization": f"Bearer {token}"}).get(f"/api/v1/sessions/{part}/")
    assert read.json()["archived_parts"] == [{"period": "2024-01"}]
