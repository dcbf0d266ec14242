"""Tracesite's own exports, bodies, lines and pages give the same records back, also through the database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk import records
from tracesite_sdk.formats import own_export
from tracesite_sdk.formats.registry import format_of

from .reading import assert_takes_no_other, lines, mangled

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)

RESULT: dict[str, Any] = {
    "status": "error",
    "success": False,
    "output": "",
    "error": "too slow",
    "metadata": {"took": 9},
}
CALL: dict[str, Any] = {
    "id": "c1",
    "uuid": "019cb8f5-2c00-7000-a000-000000000003",
    "name": "bash",
    "args": {"cmd": "ls"},
    "result": RESULT,
    "duration": 9,
    "status": "error",
    "started_at": "2026-03-04T12:00:01Z",
    "completed_at": None,
}
STEP: dict[str, Any] = {
    "id": "019cb8f5-2c00-7000-a000-000000000002",
    "iteration": 0,
    "thought": "I look.",
    "tool_calls": [CALL],
    "timestamp": "2026-03-04T12:00:00Z",
}
DERIVED: dict[str, Any] = {"version": 1, "step_count": 1, "call_count": 1, "failure_count": 1, "input_tokens": 0, "output_tokens": 0, "redactions": [], "updated_at": "2026-03-04T12:00:00Z", "deleted_at": None}  # fmt: skip


def message(id_: str, role: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "session_id": "019cb8f5-2c00-7000-8000-000000000000",
        "external_id": "",
        "request_id": "",
        "role": role,
        "content": "Go",
        "knowledge_references": [],
        "agent_steps": [],
        "is_completed": True,
        "created_at": "2026-03-04T12:00:00Z",
        "completed_at": "2026-03-04T12:00:00Z",
        "usage": None,
        "error": "",
        "duration": None,
        "health": [],
        "metadata": {},
        **DERIVED,
        **fields,
    }


USER = message("019cb8f5-2c00-7000-8000-000000000001", "user")
ANSWER = message(
    "019cb8f5-2c00-7000-a000-000000000001", "assistant", external_id="m2", agent_steps=[STEP], health=["x"]
)
EXPORT: dict[str, Any] = {
    "id": "019cb8f5-2c00-7000-8000-000000000000",
    "project": "p",
    "external_id": "",
    "title": "Weather",
    "description": "",
    "end_user": "li",
    "status": "completed",
    "current_phase": "",
    "workflow": None,
    "tags": ["a"],
    "metadata": {"k": 1},
    "redactions": [],
    "message_count": 2,
    "call_count": 1,
    "failure_count": 1,
    "resources": {"tokens": 0},
    "created_at": "2026-03-04T12:00:00Z",
    "updated_at": "2026-03-04T12:00:00Z",
    "deleted_at": None,
    "messages": [USER, ANSWER],
}
PLAIN: dict[str, Any] = {"external_id": "s", "messages": [{"role": "user", "content": "Go"}]}


def copy(document: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(document))


def read(document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    left_out: list[tuple[str, str]] = []
    return list(own_export.transcripts(document, lambda where, why: left_out.append((where, why)))), left_out


def only(document: object) -> records.Session:
    assert format_of(document) is own_export
    (session,), left_out = read(document)
    assert left_out == []
    return session


def test_export_gives_its_records_back() -> None:
    session = only(copy(EXPORT))
    assert (session.id, session.title, session.end_user, session.tags) == (EXPORT["id"], "Weather", "li", ["a"])
    assert (session.metadata, session.created_at) == ({"k": 1}, NOON)
    question, answer = session.messages or []
    assert (question.id, question.role, question.content, question.metadata) == (USER["id"], "user", "Go", {})
    assert (answer.external_id, answer.health) == ("m2", ["x"])
    (step,) = answer.agent_steps or []
    assert (step.id, step.iteration, step.thought) == (STEP["id"], 0, "I look.")
    (call,) = step.tool_calls or []
    assert (call.id, call.uuid, call.args, call.status) == ("c1", CALL["uuid"], {"cmd": "ls"}, "error")
    assert call.result == records.ToolResult(
        status="error", success=False, output="", error="too slow", metadata={"took": 9}
    )


@pytest.mark.parametrize(
    "document",
    [
        PLAIN,
        [PLAIN],
        {"sessions": [PLAIN]},
        lines([PLAIN]),
        {"title": "T", "messages": [{"role": "assistant", "content": "Go", "agent_steps": [STEP]}]},
    ],
    ids=["body", "list", "ingest", "lines", "without ids"],
)
def test_api_body_is_a_session(document: object) -> None:
    session = only(copy(document) if not hasattr(document, "head") else document)
    assert session.external_id
    assert [message.content for message in session.messages or ()] == ["Go"]
    assert [message.external_id for message in session.messages or ()] == ["0"]
    # A second reading gives the same ids, so that a second import finds the records.
    assert only(copy(document) if not hasattr(document, "head") else document) == session


@pytest.mark.parametrize(
    "wrap", [lambda page: {"results": page, "next": None}, lambda page: {"data": page}, lambda page: page]
)
def test_page_of_messages_is_grouped_by_session(wrap: Any) -> None:
    other = {**USER, "id": "x", "session_id": "s-2"}
    sessions, left_out = read(wrap(copy([USER, other, ANSWER])))
    assert left_out == []
    assert [(session.id, [message.id for message in session.messages or ()]) for session in sessions] == [
        (USER["session_id"], [USER["id"], ANSWER["id"]]),
        ("s-2", ["x"]),
    ]


def test_unknown_field_is_metadata() -> None:
    session = only({**copy(PLAIN), "mood": "good", "project": "p"})
    assert session.metadata == {"mood": "good"}


def test_invalid_message_is_left_out_with_reason() -> None:
    odd = [
        {"role": "critic"},
        3,
        {"role": "user", "content": "x", "agent_steps": [{}]},
        {"role": "user", "created_at": "noon"},
    ]
    sessions, left_out = read(
        {"sessions": [{**PLAIN, "messages": [*PLAIN["messages"], *odd]}, {**PLAIN, "title": 3}, 4]}
    )
    assert [[message.content for message in session.messages or ()] for session in sessions] == [["Go", "x"]]
    assert left_out == [
        ("sessions[0].messages[1]", "Invalid enum value 'critic' - at `$.role`"),
        ("sessions[0].messages[2]", "not an object"),
        ("sessions[0].messages[3].agent_steps", "only an assistant message has steps; this one is from user"),
        ("sessions[0].messages[4]", "Invalid RFC3339 encoded datetime - at `$.created_at`"),
        ("sessions[1]", "Expected `str | null`, got `int` - at `$.title`"),
        ("sessions[2]", "not a session: no list of messages"),
    ]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"messages": []},
        {"messages": [{"role": "user", "content": "Go"}]},
        {"external_id": "a", "messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
        [{"role": "user", "content": "Go"}],
        {"results": [{"role": "user"}]},
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not own_export.recognises(document)


@given(st.one_of(mangled(EXPORT), mangled({"sessions": [EXPORT, PLAIN]}), mangled([USER, ANSWER])))
def test_read_mangled_document_never_raises(document: Any) -> None:
    if own_export.recognises(document):
        for session in read(document)[0]:
            assert session.id or session.external_id


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(own_export)
