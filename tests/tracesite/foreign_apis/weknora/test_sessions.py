"""Test sessions as WeKnora's clients use them: create, list, change, pin, clear, delete, titles and stop."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message as MessageRow
from messages_app.models import Session as SessionRow
from messages_app.session_counters import disagreements
from messages_app.writes import AT_A_TIME, restore_message
from tests.traces_app.conftest import NOON, answer, counted_in, question, store
from traces_app.events.store import record_events
from traces_app.models import Event
from tracesite.foreign_apis.weknora.titles import LONGEST, title_from
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.records import Event as EventRecord
from tracesite_sdk.redaction.rules import DEFAULT_RULES

from .conftest import WeKnora, refused
from .test_messages import BODY_404, make_messages

ZERO = "0001-01-01T00:00:00Z"
"""Go's zero time, which the client sends for a message that it created itself."""


def go_message(role: str, content: str) -> dict[str, Any]:
    """Return a message as the Go client sends it if it did not come from a server."""
    return {
        "id": "", "session_id": "", "request_id": "", "content": content, "role": role, "knowledge_references": None,
        "is_completed": False, "created_at": ZERO, "updated_at": ZERO,
    }  # fmt: skip


# --- Create, read, update ---------------------------------------------------------------------------------------


def test_session_create_get_update_roundtrip(weknora: WeKnora, project: Project) -> None:
    made = weknora.create(title="Weather", description="Of today")
    assert (made.title, made.description, made.tenant_id) == ("Weather", "Of today", project.pk)
    assert weknora.get(made.id) == made
    changed = weknora.update(made.id, title="Rain")
    assert (changed.id, changed.title, changed.description) == (made.id, "Rain", "")
    assert changed.updated_at > made.updated_at
    _status, body = weknora.raw("get", f"sessions/{made.id}")
    more = json.loads(body)["data"]
    assert {name: more[name] for name in ("user_id", "is_pinned", "pinned_at", "last_request_state", "deleted_at")} == {
        "user_id": "", "is_pinned": False, "pinned_at": None, "last_request_state": None, "deleted_at": None,
    }  # fmt: skip
    assert SessionRow.objects.get().status == "running"


def test_create_keeps_unknown_fields_in_metadata(weknora: WeKnora) -> None:
    made = weknora.create(id="mine", knowledge_base_id="kb-1", session_strategy={"max_rounds": 5}, title=None, empty="")
    row = SessionRow.objects.get(pk=made.id)
    assert (row.title, row.external_id, row.metadata) == (
        "", "", {"knowledge_base_id": "kb-1", "session_strategy": {"max_rounds": 5}},
    )  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"title": 7}', b"\xff", b"null"])
def test_create_with_invalid_body_is_refused(weknora: WeKnora, body: bytes) -> None:
    session = weknora.create()
    for method, path in (("post", "sessions"), ("put", f"sessions/{session.id}")):
        status, content = weknora.raw(method, path, body)
        error = json.loads(content)
        assert (status, error["code"], error["error"]["code"]) == (400, 1000, 1000)
    assert SessionRow.objects.count() == 1


def test_body_is_json_with_any_content_type(weknora: WeKnora) -> None:
    for media_type in ("", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"):
        response = weknora.http.post("/weknora/api/v1/sessions", b'{"title": "x"}', content_type=media_type)
        assert (media_type, response.status_code) == (media_type, 201)


def test_unknown_session_is_404_on_every_route(weknora: WeKnora, stranger_of: WeKnora, db: None) -> None:
    session = weknora.create(title="mine").id
    for client, name in ((weknora, "unknown"), (stranger_of, session)):
        for call in (client.get, client.update, client.delete, client.clear, client.pin, client.title):
            assert refused(call, name) == (404, 1003, BODY_404)
        assert refused(client.pin, name, method="delete") == (404, 1003, BODY_404)
    assert weknora.get(session).title == "mine"


# --- The list ---------------------------------------------------------------------------------------------------


def test_list_orders_pinned_first_then_recently_changed(weknora: WeKnora, stranger_of: WeKnora) -> None:
    ids = {title: weknora.create(title=title).id for title in "abcde"}
    stranger_of.create(title="z")
    weknora.update(ids["b"], title="b")
    assert weknora.pin(ids["d"]).is_pinned and weknora.pin(ids["a"]).is_pinned and weknora.pin(ids["c"]).is_pinned
    assert not weknora.pin(ids["c"], method="delete").is_pinned
    page = weknora.sessions()
    assert [session.title for session in page.data or []] == ["a", "d", "c", "b", "e"]
    assert (page.total, page.page, page.page_size) == (5, 1, 20)
    pages = [weknora.sessions(page=number, page_size=2) for number in (1, 2, 3, 4)]
    assert [[session.title for session in page.data or []] for page in pages] == [["a", "d"], ["c", "b"], ["e"], []]
    assert {(page.total, page.page_size) for page in pages} == {(5, 2)}


def test_list_filters_by_keyword_source_and_agent(weknora: WeKnora) -> None:
    for title in ("100% Rain", "Sunshine", "rain_coat"):
        weknora.create(title=title, agent_id=title[:1], source="api" if title == "Sunshine" else "web")

    def titles(**query: str) -> list[str]:
        page = weknora.sessions(**query)
        assert page.total == len(page.data or [])
        return sorted(session.title for session in page.data or [])

    assert titles(keyword="RAIN") == ["100% Rain", "rain_coat"]
    assert (titles(keyword="%"), titles(keyword="n_c"), titles(keyword="_")) == (
        ["100% Rain"],
        ["rain_coat"],
        ["rain_coat"],
    )
    assert titles(source="web", keyword="coat") == ["rain_coat"]
    assert titles(agent_id="S", unknown="1") == ["Sunshine"]


@pytest.mark.parametrize(
    ("query", "page", "size"),
    [({}, 1, 20), ({"page": "0", "page_size": "0"}, 1, 20), ({"page": "", "page_size": ""}, 1, 20),
     ({"page": "2", "page_size": "1000"}, 2, 1000)],
)  # fmt: skip
def test_list_page_numbers_follow_weknora(
    weknora: WeKnora, db: None, query: dict[str, str], page: int, size: int
) -> None:
    found = weknora.sessions(**query)
    assert (found.data, found.total, found.page, found.page_size) == ([], 0, page, size)


@pytest.mark.parametrize(
    "query", [{"page": "-1"}, {"page": "x"}, {"page_size": "1001"}, {"page_size": "1.5"}, {"page": "9" * 40}]
)
def test_list_page_numbers_out_of_range_are_refused(weknora: WeKnora, db: None, query: dict[str, str]) -> None:
    assert refused(lambda: weknora.sessions(**query))[:2] == (400, 1000)


def test_list_query_count_is_constant(weknora: WeKnora) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert weknora.sessions(page_size=100).data
        return len(counted_in(captured))

    weknora.create()
    weknora.sessions()
    few = queries()
    for _number in range(20):
        weknora.create()
    # The key, the count, the ids of the page, and the sessions.
    assert queries() == few <= 4


# --- Delete -----------------------------------------------------------------------------------------------------


def test_delete_session_twice_is_404(weknora: WeKnora) -> None:
    session = weknora.create().id
    assert weknora.delete(session).message == "Session deleted successfully"
    assert refused(lambda: weknora.delete(session)) == (404, 1003, BODY_404)
    assert weknora.sessions().total == 0


def test_delete_many_deletes_named_sessions_or_all(weknora: WeKnora, stranger_of: WeKnora, project: Project) -> None:
    ids = [weknora.create(title=title).id for title in "abc"]
    named = store(project, question())
    foreign = stranger_of.create().id
    done = weknora.delete_many(ids=[ids[0], "weather", foreign, "unknown", ids[0], "", "\x00"])
    assert done.message == "Sessions deleted successfully"
    assert {session.title for session in weknora.sessions().data or []} == {"b", "c"}
    assert SessionRow.with_deleted.get(pk=named.id).deleted_by == "key chat"
    assert refused(lambda: weknora.delete_many(ids=[ids[0], foreign, "unknown"]))[:2] == (404, 1003)
    assert weknora.delete_many(delete_all=True).message == "All sessions deleted successfully"
    assert (weknora.sessions().total, stranger_of.sessions().total) == (0, 1)
    assert weknora.delete_many(delete_all=True).message == "All sessions deleted successfully"


@pytest.mark.parametrize("body", [{}, {"ids": []}, {"ids": None}, {"delete_all": False}, {"ids": [1]}, {"ids": "x"}])
def test_delete_many_without_ids_is_refused(weknora: WeKnora, body: dict[str, Any]) -> None:
    weknora.create()
    assert refused(lambda: weknora.delete_many(**body))[:2] == (400, 1000)
    assert weknora.sessions().total == 1


def test_delete_many_exceeding_one_statement_deletes_all(weknora: WeKnora, project: Project) -> None:
    times = {"created_at": NOON, "updated_at": NOON}
    SessionRow.objects.bulk_create(
        SessionRow(id=f"019caa00-0000-7000-8000-{number:012x}", project=project, **times)
        for number in range(AT_A_TIME + 1)
    )
    weknora.delete_many(delete_all=True)
    assert weknora.sessions().total == 0


def test_clear_deletes_messages_and_keeps_session(weknora: WeKnora, project: Project) -> None:
    session = store(project, question(), answer(), *make_messages(3, name="later"))
    assert session.id is not None
    weknora.delete_message(session.id, session.messages[2].id)
    assert weknora.clear(session.id).message == "Session messages cleared successfully"
    assert (weknora.load(session.id), weknora.get(session.id).id) == ([], str(session.id))
    row = SessionRow.objects.get()
    assert (row.message_count, row.call_count, row.failure_count, row.input_tokens) == (0, 0, 0, 0)
    kept = MessageRow.with_deleted.get(pk=session.messages[1].id)
    assert (kept.deleted_by, kept.version, kept.deleted_at is not None) == ("key chat", 2, True)
    restore_message(primary, kept.pk)
    assert disagreements(primary, [session.id]) == {}
    assert weknora.clear(session.id).success and weknora.clear(session.id).success


# --- Titles -----------------------------------------------------------------------------------------------------


def test_generate_title_uses_first_user_message(weknora: WeKnora, project: Project) -> None:
    session = weknora.create().id
    messages = [
        go_message("assistant", "Hello!"),
        go_message("user", ""),
        go_message("user", "What is\n  the weather?"),
    ]
    assert weknora.title(session, messages) == weknora.get(session).title == "What is the weather?"
    # An existing title is kept.
    assert weknora.title(session, [go_message("user", "Something else")]) == "What is the weather?"
    stored = store(project, answer(), question(), external_id="stored")
    assert weknora.title(stored.id) == "What is the weather in Shanghai and in Atlantis?"


def test_generate_title_without_user_message_is_refused(weknora: WeKnora, project: Project) -> None:
    session = store(project, answer(), question(content="   "))
    for messages in ([], [go_message("assistant", "Hello!")]):
        assert refused(weknora.title, session.id, messages)[:2] == (400, 1000)
    for body in (b"{}", b'{"messages": null}', b'{"messages": [{"content": 7}]}', b'{"messages": ["x"]}'):
        assert weknora.raw("post", f"sessions/{session.id}/generate_title", body)[0] == 400
    assert weknora.get(session.id).title == ""


def test_generate_title_redacts_secrets(weknora: WeKnora) -> None:
    session = weknora.create().id
    assert "hunter2hunter2" not in weknora.title(
        session, [go_message("user", "my password=hunter2hunter2 does not work")]
    )


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("x" * LONGEST, "x" * LONGEST),
        ("x" * 61, "x" * 59 + "…"),
        ("上海" * 40, "上海" * 29 + "上…"),
        ("word " * 20, "word word word word word word word word word word word word…"[: LONGEST - 1].rstrip() + "…"),
        ("Compare the prices, please, of all the apartments in the old town, and then", "Compare the prices, please, of all the apartments in the…"),
    ],
)  # fmt: skip
def test_title_from_shortens_at_word(text: str, title: str) -> None:
    assert title_from(text) == title
    assert len(title) <= LONGEST


# --- Stop -------------------------------------------------------------------------------------------------------


def test_stop_keeps_text_received_so_far(weknora: WeKnora, project: Project) -> None:
    session = store(project, question(), answer(content="It is", is_completed=False, metadata={"a": 1}))
    message = session.messages[1].id
    assert weknora.stop(session.id, message).message == "Generation stopped"
    (_asked, stopped) = weknora.load(session.id)
    assert (stopped.content, stopped.is_completed, len(stopped.agent_steps or [])) == ("It is", True, 2)
    row = MessageRow.objects.get(pk=message)
    assert row.metadata == {"a": 1, "stopped": {"by": "key chat", "reason": "user_requested"}}
    assert (row.completed_at is not None, SessionRow.objects.get().status) == (True, "completed")
    assert row.health == ["stopped"]
    assert weknora.stop(session.id, message).message == "Message already completed"


@pytest.mark.parametrize("numbers", [(None, None), (1795225596369772406, 1795225596369772407), (2**63 - 2, 2**63 - 1)])
def test_stop_of_run_with_events_stores_event(
    weknora: WeKnora, project: Project, numbers: tuple[int | None, int | None]
) -> None:
    fields = [
        {"type": "workflow_execute_start", "data": {"prompt": "What now?"}, "number": numbers[0]},
        {"type": "agent_complete", "agent": "writer", "data": {"result": "It is"}, "number": numbers[1]},
    ]
    events = [EventRecord(session_id="task", **one) for one in fields]  # type: ignore[arg-type]
    record_events(primary, project.pk, [redact_event(event, DEFAULT_RULES) for event in events])
    message = MessageRow.objects.get(role="assistant")
    assert weknora.stop("task", message.pk).message == "Generation stopped"
    assert [(found.content, found.is_completed) for found in weknora.load("task")] == [
        ("What now?", True), ("It is", True),
    ]  # fmt: skip
    last = Event.objects.latest("seq")
    assert (last.seq, last.type, last.data, SessionRow.objects.get().status) == (
        3,
        "workflow_execute_complete",
        {"status": "aborted", "by": "key chat", "reason": "user_requested"},
        "aborted",
    )
    assert weknora.stop("task", message.pk).message == "Message already completed"


def test_stop_of_unknown_target_gets_plain_error(weknora: WeKnora, stranger_of: WeKnora, project: Project) -> None:
    session = store(project, answer(is_completed=False))
    other = store(project, external_id="other")
    message = session.messages[0].id
    for call, answered in (
        (lambda: weknora.stop("unknown", message), (404, 0, {"error": "Session not found"})),
        (lambda: weknora.stop(other.id, message), (404, 0, {"error": "Message not found"})),
        (lambda: weknora.stop(session.id, "unknown"), (404, 0, {"error": "Message not found"})),
        (lambda: stranger_of.stop(session.id, message), (404, 0, {"error": "Session not found"})),
    ):
        assert refused(call) == answered
    status, body = weknora.raw("post", f"sessions/{session.id}/stop", b"{}")
    assert (status, list(json.loads(body))) == (400, ["error"])
    assert not MessageRow.objects.get().is_completed
