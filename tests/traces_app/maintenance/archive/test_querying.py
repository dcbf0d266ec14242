"""Tests of query_archive, and of what the pages and the API say of a session that is archived."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Count
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Session
from tests.traces_app.maintenance.archive.conftest import FAR, FEBRUARY, JANUARY, fill, tell
from traces_app.maintenance.archive.archiving import archive
from traces_app.maintenance.archive.folder import open_folder
from traces_app.models import ToolCall

pytestmark = pytest.mark.django_db(transaction=True)


def query(folder: Path | str, sql: str, *arguments: str) -> str:
    out = io.StringIO()
    call_command("query_archive", str(folder), sql, *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.requirement("001-50")
def test_duckdb_counts_the_same_calls_by_tool(project: Project, stranger: Project, tmp_path: Path) -> None:
    fill(project, stranger)
    counted = ToolCall.objects.values_list("project__slug", "tool__name", "status").annotate(Count("pk"))
    expected = sorted([*map(str, row)] for row in counted)
    sessions = Session.with_deleted.count()
    archive(open_folder(str(tmp_path)), before=FAR, drop=True)
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


def test_archived_session_says_where_it_is(project: Project, stranger: Project, staff: Client) -> None:
    tell(project, "both", JANUARY, FEBRUARY)
    tell(stranger, "theirs", JANUARY)
    _key, token = create_key(project, "test", ["read"])
    session = Session.objects.get(external_id="both")
    archive(open_folder("memory://lake"), before=FAR, drop=True)
    where = "The session was archived in memory://lake (2024-01, 2024-02)."
    for name in (session.pk, "both"):
        answer = staff.get(f"/api/v1/sessions/{name}/", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "session_archived")
        assert answer.json()["error"]["message"].startswith(where)
    theirs = staff.get("/api/v1/sessions/theirs/", headers={"Authorization": f"Bearer {token}"})
    assert (theirs.status_code, theirs.json()["error"]["code"]) == (404, "session_not_found")
    page = staff.get(f"/admin/messages_app/session/{session.pk}/change/")
    assert page.status_code == 410
    assert f"manage.py restore_archive memory://lake --project owner --session {session.pk}" in page.text
