"""Exports of the lists of the admin: what the list is filtered to, as CSV and as JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.http import StreamingHttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.admin import exports, keyset, walks
from messages_app.admin.walks import TookTooLong
from messages_app.http import responses
from messages_app.models import Message, Session
from tests.admin_pages import links_of, text_of
from traces_app.ingest.pipeline import ingest
from traces_app.maintenance.search_index import index_changed
from traces_app.models import ToolCall
from traces_app.queries.search import found
from tracesite_sdk import records

pytestmark = pytest.mark.django_db
SESSIONS, MESSAGES = "/admin/messages_app/session/", "/admin/messages_app/message/"
CALLS = "/admin/traces_app/toolcall/"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def store(project: Project, external_id: str, **fields: Any) -> None:
    """Store a session with a question and an answer that called a tool."""
    at = fields.pop("at", NOON)
    call = records.ToolCall(
        id=f"call-{external_id}",
        name="search",
        args={"q": "上海"},
        result=records.ToolResult(success=True, output=fields.pop("output", "=1+1")),
    )
    messages = [
        records.Message(role="user", external_id="q", content=fields.pop("content", "Why?"), created_at=at),
        records.Message(
            role="assistant",
            external_id="a",
            content="Because.",
            created_at=at + timedelta(seconds=1),
            agent_steps=[records.AgentStep(iteration=0, tool_calls=[call])],
        ),
    ]
    ingest(primary, project.pk, [records.Session(external_id=external_id, created_at=at, messages=messages, **fields)])


def exported(client: Client, url: str, form: str, **query: str) -> list[dict[str, Any]]:
    """Return the rows of an export, by the names of its columns."""
    response = client.get(f"{url}export/{form}/", query)
    assert response.status_code == 200
    content = response.getvalue().decode("utf-8-sig" if form == "csv" else "utf-8")
    if form == "jsonl":
        return [json.loads(line) for line in content.splitlines()]
    return list(csv.DictReader(io.StringIO(content, newline="")))


def test_sessions_are_exported_with_times_in_utc(staff: Client, project: Project) -> None:
    store(project, "s1", title="Flight to 上海", tags=["a, b", "c"])
    key = str(Session.objects.get().pk)
    row = {
        "id": key,
        "project": "owner",
        "external_id": "s1",
        "title": "Flight to 上海",
        "end_user": "",
        "tags": ["a, b", "c"],
        "status": "completed",
        "message_count": 2,
        "call_count": 1,
        "failure_count": 0,
        "problem_count": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "duration_ms": 0,
        "cost": None,
        "unpriced_count": 1,
        "created_at": "2026-03-01T12:00:00Z",
        "active_at": "2026-03-01T12:00:01Z",
    }
    assert exported(staff, SESSIONS, "jsonl") == [row]
    in_cells = {"tags": '["a, b","c"]', "cost": ""}
    assert exported(staff, SESSIONS, "csv") == [{name: str(in_cells.get(name, value)) for name, value in row.items()}]


def test_messages_and_calls_are_exported_with_their_session(staff: Client, project: Project) -> None:
    store(project, "s1", content="two\r\nlines")
    session = Session.objects.get()
    newest, oldest = exported(staff, MESSAGES, "csv")
    assert (oldest["content"], oldest["role"], oldest["session_external_id"]) == ("two\r\nlines", "user", "s1")
    assert (newest["call_count"], newest["is_completed"], newest["health"]) == ("1", "true", "[]")
    (call,) = exported(staff, CALLS, "jsonl")
    shown = {name: call[name] for name in ("session", "tool", "call_id", "status", "args", "output", "created_at")}
    assert shown == {
        "session": str(session.pk),
        "tool": "search",
        "call_id": "call-s1",
        "status": "success",
        "args": '{"q": "上海"}',
        "output": "=1+1",
        "created_at": "2026-03-01T12:00:01Z",
    }
    assert call["id"] == str(ToolCall.objects.get().pk)


@pytest.mark.parametrize("start", ["=", "@", "\t", "\r", "\n", "\uff1d"])
def test_text_that_begins_a_formula_gets_an_apostrophe_in_csv(staff: Client, project: Project, start: str) -> None:
    text = f"{start}HYPERLINK(1)"
    store(project, "s1", title=text, output=text)
    assert exported(staff, SESSIONS, "csv")[0]["title"] == f"'{text}"
    assert exported(staff, CALLS, "csv")[0]["output"] == f"'{text}"
    assert exported(staff, SESSIONS, "jsonl")[0]["title"] == text


def test_amounts_are_written_out_without_an_exponent() -> None:
    lines = b"".join(exports.FORMS["csv"][1](["cost"], [[(Decimal("0.0000001"),)]])).decode("utf-8-sig")
    assert lines == "cost\r\n0.0000001\r\n"


def test_export_has_the_filters_and_search_of_the_page(staff: Client, project: Project, stranger: Project) -> None:
    store(project, "s1", title="apple")
    store(project, "s2", title="pear", at=NOON + timedelta(hours=1))
    store(stranger, "s3", title="apple")
    index_changed(primary, patience=timedelta(0))

    def names(url: str, **query: str) -> list[str]:
        return [row.get("session_external_id") or row["external_id"] for row in exported(staff, url, "jsonl", **query)]

    assert sorted(names(SESSIONS)) == ["s1", "s2", "s3"]
    assert names(SESSIONS, project="owner") == ["s2", "s1"]
    assert names(SESSIONS, project="owner", q="apple") == ["s1"]
    assert names(SESSIONS, project="owner", order="activity", created_before="2026-03-01T12:30") == ["s1"]
    assert names(MESSAGES, project="owner", role="user", tool="search") == []
    assert names(MESSAGES, project="owner", role="assistant", tool="search") == ["s2", "s1"]
    assert names(MESSAGES, project="owner", q="because") == ["s2", "s1"]
    assert names(CALLS, project="stranger", status="success", q="output:1+1") == ["s3"]


def test_links_of_the_list_keep_its_filters_but_not_its_place(staff: Client, project: Project) -> None:
    for number in range(60):
        store(project, f"s{number}", at=NOON + timedelta(minutes=number))
    first = staff.get(SESSIONS, {"project": "owner"})
    assert links_of(first)["Export CSV"] == f"{SESSIONS}export/csv/?project=owner"
    second = staff.get(SESSIONS + links_of(first)["Older →"])
    assert links_of(second)["Export JSONL"] == f"{SESSIONS}export/jsonl/?project=owner"
    assert len(exported(staff, SESSIONS, "csv", project="owner")) == 60
    assert "Export CSV" not in links_of(staff.get(f"{SESSIONS}trash/"))
    assert "Export CSV" not in links_of(staff.get("/admin/traces_app/tool/"))


def test_deleted_rows_are_not_exported(staff: Client, project: Project) -> None:
    store(project, "s1")
    writes.delete_session(primary, Session.objects.get().pk, by="ada")
    for url in (SESSIONS, MESSAGES, CALLS):
        assert exported(staff, url, "jsonl") == []


def test_export_streams_batches_and_is_bounded(
    staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "ROWS_AT_A_TIME", 4)
    for number in range(12):
        store(project, f"s{number}", at=NOON + timedelta(minutes=number))
    monkeypatch.setattr(responses, "LARGE_BYTES", 0)
    response = staff.get(f"{SESSIONS}export/jsonl/")
    assert isinstance(response, StreamingHttpResponse)
    pieces: Iterator[Any] = iter(response.streaming_content)
    assert [piece.count(b"\n") for piece in pieces] == [4, 4, 4]
    monkeypatch.setattr(exports, "EXPORT_ROWS", 6)
    newest = [f"s{number}" for number in range(11, 5, -1)]
    assert [row["external_id"] for row in exported(staff, SESSIONS, "jsonl")] == newest
    assert "The newest 6 rows of this list at most." in staff.get(SESSIONS).content.decode()


def test_batch_takes_constant_queries(staff: Client, project: Project) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            exported(staff, MESSAGES, "jsonl", tool="search")
        return len(queries)

    store(project, "first")
    few = count()
    for number in range(20):
        store(project, f"s{number}", at=NOON + timedelta(minutes=number))
    assert count() == few


def test_export_of_a_search_goes_on_where_it_stopped(
    staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        store(project, f"s{number}", content=f"needle {number}", at=NOON + timedelta(minutes=number))
    # Names are found on every page of a search, and each is exported once.
    store(project, "needle", content="hay", at=NOON - timedelta(days=1))
    monkeypatch.setattr(found, "SECONDS", -1.0)
    monkeypatch.setattr(found, "UNINDEXED_AT_A_TIME", 3)
    monkeypatch.setattr(walks, "ROWS_AT_A_TIME", 7)
    contents = [row["content"] for row in exported(staff, MESSAGES, "jsonl", q="needle")]
    assert contents == [*(f"needle {number}" for number in range(29, -1, -1)), "Because.", "hay"]


def test_texts_are_cut_to_what_a_cell_holds(staff: Client, project: Project) -> None:
    store(project, "s1", content="x" * 40_000)
    assert {len(row["content"]) for row in exported(staff, MESSAGES, "csv", role="user")} == {32_000}


def test_invalid_filter_leads_to_the_list_with_the_reason(staff: Client, project: Project) -> None:
    page = staff.get(f"{SESSIONS}export/csv/?status=odd", follow=True)
    assert "Invalid filter: status “odd”. Use one of: " in text_of(page)
    assert staff.get(f"{SESSIONS}export/xml/").status_code == 404
    assert staff.get("/admin/traces_app/tool/export/csv/").status_code == 404


def test_export_that_takes_too_long_is_not_cut_silently(
    staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        store(project, f"s{number}", at=NOON + timedelta(minutes=number))
    monkeypatch.setattr(walks, "ROWS_AT_A_TIME", 2)
    read = keyset.read_rows
    pages = 0

    def stopped(*args: Any) -> Any:
        nonlocal pages
        pages += 1
        if pages == stopped_at:
            raise OperationalError
        return read(*args)

    monkeypatch.setattr(keyset, "was_stopped", lambda error: True)
    monkeypatch.setattr(keyset, "read_rows", stopped)
    stopped_at = 1
    page = staff.get(f"{SESSIONS}export/csv/?project=owner", follow=True)
    assert "The export took too long and was stopped. Narrow the list." in text_of(page)
    assert page.redirect_chain == [(f"{SESSIONS}?project=owner", 302)]
    pages, stopped_at = 0, 2
    monkeypatch.setattr(responses, "LARGE_BYTES", 0)
    with pytest.raises(TookTooLong):
        staff.get(f"{SESSIONS}export/csv/").getvalue()  # type: ignore[attr-defined]


def test_only_those_who_see_the_list_export_it(client: Client, project: Project) -> None:
    store(project, "s1")
    urls = [f"{url}export/csv/" for url in (SESSIONS, MESSAGES, CALLS)]
    assert {client.get(url).status_code for url in urls} == {302}
    client.force_login(User.objects.create_user("clerk", is_staff=True))
    assert {client.get(url).status_code for url in urls} == {403}
    assert Message.objects.count() == 2
