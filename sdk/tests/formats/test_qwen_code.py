"""Sessions of Qwen Code: records with a message in parts, results, sub-agents, and growth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import qwen_code
from tracesite_sdk.formats.registry import format_of

from .reading import assert_grows, assert_takes_no_other, calls, figures, has_failed, lines, mangled, only, read, steps


def record(own: str, parent: str | None, kind: str, parts: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    role = {"assistant": "model"}.get(kind, "user")
    message = {"message": {"role": role, "parts": parts}} if parts is not None else {}
    return {
        "uuid": own,
        "parentUuid": parent,
        "sessionId": "s-1",
        "timestamp": f"2026-06-20T10:00:{int(own[1:]):02}.000Z",
        "type": kind,
        "cwd": "/srv/shop",
        "version": "0.24.7",
        "gitBranch": "main",
        **message,
        **fields,
    }


def answered(call_id: str, name: str, response: dict[str, Any]) -> dict[str, Any]:
    return {"functionResponse": {"id": call_id, "name": name, "response": response}}


START = [
    record("r1", None, "user", [{"text": "Why?"}]),
    record(
        "r2",
        "r1",
        "assistant",
        [
            {"text": "Hm.", "thought": True},
            {"text": "I look."},
            {"functionCall": {"id": "c1", "name": "grep", "args": {"q": "a"}}},
            {"functionCall": {"id": "c2", "name": "ls", "args": {}}},
        ],
        model="qwen3-coder-plus",
        usageMetadata={"promptTokenCount": 12, "candidatesTokenCount": 34, "cachedContentTokenCount": 5, "totalTokenCount": 46},
    ),
    record("r3", "r2", "tool_result", [answered("c1", "grep", {"output": "a:1"})], toolCallResult={"callId": "c1", "status": "success", "resultDisplay": {"fileDiff": "+"}}),
    record("r4", "r3", "tool_result", [answered("c2", "ls", {"error": "denied"})], toolCallResult={"callId": "c2", "status": "error", "error": {"message": "denied"}}),
    record("r5", "r4", "user", [{"text": "Faster"}], subtype="mid_turn_user_message"),
    record("r6", "r5", "assistant", [{"text": "Sub."}], isSidechain=True, agentId="explore-1", agentName="Explore"),
    record("r7", "r6", "assistant", [{"text": "Done."}], model="qwen3-coder-plus"),
]  # fmt: skip
MORE = [
    record("r8", "r7", "system", subtype="ui_telemetry", systemPayload={"uiEvent": {}}),
    record("r9", "r7", "system", subtype="custom_title", systemPayload={"customTitle": "My work"}),
    record("r10", "r7", "system", subtype="chat_compression", systemPayload={"info": {"newTokenCount": 9}, "compressedHistory": [{}, {}]}),
    record("r11", "r7", "user", [{"text": "A task ended"}], subtype="notification"),
    record("r12", "r1", "user", [{"text": "Otherwise?"}]),
    record("r13", "r12", "assistant", [{"text": "So."}]),
]  # fmt: skip


def test_full_session_gives_expected_records() -> None:
    session = only(qwen_code, lines(START))
    assert (session.external_id, session.title) == ("s-1", "Why?")
    assert {name: value for name, value in (session.metadata or {}).items() if name != "import_format"} == {
        "cwd": "/srv/shop",
        "version": "0.24.7",
        "gitBranch": "main",
    }
    question, answer, aside = session.messages or []
    assert (question.role, question.content, question.external_id) == ("user", "Why?", "r1")
    assert (aside.role, aside.content) == ("user", "Faster")
    assert (answer.content, answer.external_id, answer.created_at) == ("Done.", "r2", datetime(2026, 6, 20, 10, 0, 2, tzinfo=UTC))  # fmt: skip
    first, sub, last = steps(answer)
    assert (first.thought, first.reasoning_content, first.model) == ("I look.", "Hm.", "qwen3-coder-plus")
    assert first.usage == {"input_tokens": 12, "output_tokens": 34, "cached_tokens": 5, "total_tokens": 46}
    assert (sub.agent_name, sub.thought) == ("Explore", "Sub.")
    assert (last.id, last.thought, last.model, last.usage) == ("r7", None, "qwen3-coder-plus", None)
    assert [(call.name, call.args, call.status) for call in calls(session)] == [
        ("grep", {"q": "a"}, "success"),
        ("ls", {}, "error"),
    ]
    actual, failed = (call.result for call in calls(session))
    assert isinstance(actual, records.ToolResult) and isinstance(failed, records.ToolResult)
    assert (actual.output, actual.data, failed.output) == ("a:1", {"fileDiff": "+"}, "denied")
    assert (failed.metadata or {})["error"] == {"message": "denied"}


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({"systemPayload": {"displayText": "Read @a.txt"}}, [("user", "Read @a.txt"), ("system", "Read @a.txt\nLONG")]),
        ({"provenance": "real_user"}, [("user", "Read @a.txt\nLONG")]),
        ({"provenance": "auto_continue"}, [("system", "Read @a.txt\nLONG")]),
        ({"agentId": "explore-1"}, [("system", "Read @a.txt\nLONG")]),
        ({"subtype": "cron", "systemPayload": {"displayText": "Nightly"}}, [("system", "Read @a.txt\nLONG")]),
    ],
)
def test_only_what_was_typed_is_user_message(beside: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    (session,), _left_out = read(qwen_code, lines([record("r1", None, "user", [{"text": "Read @a.txt\nLONG"}], **beside), START[-1]]))  # fmt: skip
    messages = session.messages or []
    assert [(message.role, message.content) for message in messages if message.role != "assistant"] == expected
    assert all((message.metadata or {}).get("type") == "user" for message in messages if message.role == "system")


def test_bookkeeping_is_counted_and_branches_are_metadata() -> None:
    (session,), left_out = read(qwen_code, lines([*START, *MORE]))
    assert session.title == "My work"
    assert left_out == [("(all)", "bookkeeping, system ui_telemetry: 1 line")]
    added = (session.messages or [])[3:]
    assert [(message.role, message.content) for message in added] == [
        ("system", "[chat_compression]"),
        ("system", "A task ended"),
        ("user", "Otherwise?"),
        ("assistant", "So."),
    ]
    assert (added[0].metadata or {})["compressedHistory"] == 2
    assert (added[2].metadata or {})["branched_from"] == "r1"


def test_result_without_parts_uses_tool_call_result() -> None:
    values = [
        START[0],
        record("r2", "r1", "assistant", [{"functionCall": {"name": "bash", "args": {}}}]),
        record("r3", "r2", "tool_result", toolCallResult={"name": "bash", "status": "cancelled", "result": "stopped"}),
        record("r4", "r3", "assistant", [{"functionCall": {"name": "bash", "args": {}}}]),
        record("r5", "r4", "tool_result", [{"text": "hi"}], toolCallResult={"name": "bash", "status": "success"}),
    ]
    session = only(qwen_code, lines(values))
    assert [has_failed(call) for call in calls(session)] == [True, False]
    assert [call.result.output for call in calls(session) if isinstance(call.result, records.ToolResult)] == [
        "stopped",
        "hi",
    ]


def test_repeated_lines_count_once() -> None:
    assert figures(read(qwen_code, lines([*START, *START]))[0]) == figures(read(qwen_code, lines(START))[0])


def test_concatenated_files_are_several_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    document = lines([*START, *({**value, "sessionId": "s-2"} for value in START), 3])
    sessions, left_out = read(qwen_code, document)
    assert [session.external_id for session in sessions] == ["s-1", "s-2"]
    assert left_out == [(f"line {2 * len(START) + 1}", "not an object")]
    monkeypatch.setattr(qwen_code, "_MAX_HELD_LINES", 2)
    assert read(qwen_code, document)[0] == sessions


def test_lines_in_a_list_are_recognised() -> None:
    assert format_of(START) is qwen_code


@pytest.mark.parametrize("count", range(1, len(START) + len(MORE) + 1))
def test_grown_session_keeps_earlier_records(count: int) -> None:
    assert_grows(qwen_code, lines([*START, *MORE][:count]), lines([*START, *MORE]))


@given(mangled([*START, *MORE]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, lines(document)):
        if qwen_code.recognises(form):
            read(qwen_code, form)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        [3],
        lines([]),
        lines([{"sessionId": "s", "type": "user", "message": {"role": "user", "content": "x"}}]),
        lines([MORE[0]]),
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not qwen_code.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(qwen_code)
