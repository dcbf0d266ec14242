"""Conversations of claude.ai: blocks with and without ids, attachments, branches, and growth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import claude_ai
from tracesite_sdk.formats.registry import format_of

from .reading import assert_grows, assert_takes_no_other, calls, figures, has_failed, lines, mangled, only, read, steps

ROOT = "00000000-0000-4000-8000-000000000000"


def at(second: int) -> str:
    return f"2026-03-01T10:00:{second:02}.000000Z"


def message(own: str, parent: str | None, sender: str, second: int, *blocks: Any, **fields: Any) -> dict[str, Any]:
    said = " ".join(block["text"] for block in blocks if isinstance(block, dict) and block.get("type") == "text")
    follows = {"parent_message_uuid": parent} if parent is not None else {}
    return {"uuid": own, "text": said, "content": list(blocks), "sender": sender, "created_at": at(second), "updated_at": at(second), "attachments": [], "files": [], **follows, **fields}  # fmt: skip


def block(kind: str, start: int | None = None, stop: int | None = None, **fields: Any) -> dict[str, Any]:
    return {"start_timestamp": at(start) if start is not None else None, "stop_timestamp": at(stop) if stop is not None else None, "flags": None, "type": kind, **fields}  # fmt: skip


def said(text: str, start: int | None = None, stop: int | None = None) -> dict[str, Any]:
    return block("text", start, stop, text=text, citations=[])


USER = message(
    "m1",
    ROOT,
    "human",
    0,
    said("What is this?"),
    attachments=[{"file_name": "a.txt", "file_size": 5, "file_type": "txt", "extracted_content": "hello"}],
    files=[{"file_name": "b.png"}],
)
REPLY = message(
    "m2",
    "m1",
    "assistant",
    30,
    block("thinking", 1, 2, thinking="Hm.", summaries=[{"summary": "Thinking"}], cut_off=False),
    said("I search.", 2, 3),
    block("tool_use", 3, 4, id=None, name="web_search", input={"query": "x"}, message="Searching"),
    block("tool_result", tool_use_id=None, name="web_search", content=[{"type": "text", "text": "Found."}], is_error=False, structured_content=None),
    block("tool_use", 6, 7, id="toolu_1", name="repl", input={}, integration_name=None),
    block("tool_result", 7, 8, tool_use_id="toolu_1", name="repl", content=[{"type": "text", "text": "boom"}], is_error=True),
    block("token_budget", remaining=5),
    said("It is ", 9, 10),
    said("a cat.", 10, 11),
)  # fmt: skip
AGAIN = message("m3", "m2", "human", 40, said("Thanks"))
DONE = message("m4", "m3", "assistant", 41, said("Welcome.", 41, 42), stop_reason="end_turn")
WHOLE = [USER, REPLY, AGAIN, DONE]


def conversation(messages: list[Any], **fields: Any) -> dict[str, Any]:
    return {"uuid": "conv-1", "name": "A cat", "summary": "", "created_at": at(0), "updated_at": at(50), "account": {"uuid": "acc-1"}, "chat_messages": messages, **fields}  # fmt: skip


def test_full_conversation_gives_expected_records() -> None:
    session = only(claude_ai, [conversation(WHOLE, model="claude-sonnet-4")])
    assert (session.external_id, session.title, session.end_user) == ("conv-1", "A cat", "acc-1")
    assert session.created_at == datetime(2026, 3, 1, 10, tzinfo=UTC)
    question, answer, again, done = session.messages or []
    assert question.content == [
        {"type": "text", "text": "What is this?"},
        {"type": "attachment", "file_name": "a.txt", "file_size": 5, "file_type": "txt", "extracted_content": "hello"},
        {"type": "file", "file_name": "b.png"},
    ]
    assert answer.content == [{"type": "text", "text": "It is "}, {"type": "text", "text": "a cat."}]
    assert (answer.external_id, answer.created_at) == ("m2", datetime(2026, 3, 1, 10, 0, 1, tzinfo=UTC))
    assert (again.content, done.content, (done.metadata or {})["stop_reason"]) == ("Thanks", "Welcome.", "end_turn")
    first, second = steps(answer)
    assert (first.thought, first.reasoning_content, first.model) == ("I search.", "Hm.", "claude-sonnet-4")
    assert (first.duration, second.iteration) == (3000.0, 1)
    assert (first.metadata or {})["blocks"] == [REPLY["content"][6]]
    search, repl = calls(session)
    assert (search.name, search.args, search.id, has_failed(search)) == ("web_search", {"query": "x"}, None, False)
    assert (repl.name, repl.args, repl.id, has_failed(repl)) == ("repl", {}, "toolu_1", True)
    assert (search.started_at, search.metadata) == (datetime(2026, 3, 1, 10, 0, 4, tzinfo=UTC), {"message": "Searching"})  # fmt: skip
    assert isinstance(search.result, records.ToolResult)
    assert search.result.output == [{"type": "text", "text": "Found."}]


def test_calls_without_ids_match_results_by_name_and_order() -> None:
    blocks = [
        block("tool_use", name="a", input={"n": 1}),
        block("tool_use", name="b", input={"n": 2}),
        block("tool_use", name="a", input={"n": 3}),
        block("tool_result", name="b", content="two", is_error=False),
        block("tool_result", name="a", content="one", is_error=False),
        block("tool_result", name="a", content="three", is_error=False),
    ]
    session = only(claude_ai, conversation([message("m1", None, "assistant", 1, *blocks)]))
    outputs = [call.result.output for call in calls(session) if isinstance(call.result, records.ToolResult)]
    assert outputs == ["one", "two", "three"]
    assert len(steps((session.messages or [])[0])) == 1


def test_older_export_with_text_only_is_read() -> None:
    old = [
        {key: value for key, value in message.items() if key not in ("content", "parent_message_uuid")}
        for message in WHOLE
    ]
    session = only(claude_ai, conversation(old))
    assert [message.content for message in session.messages or ()][1:] == [
        "I search. It is  a cat.",
        "Thanks",
        "Welcome.",
    ]


def test_other_branches_are_left_out_and_reported() -> None:
    edited = message("m5", "m2", "human", 50, said("No thanks"))
    answer = message("m6", "m5", "assistant", 51, said("Fine."))
    (session,), left_out = read(claude_ai, [conversation([*WHOLE, edited, answer])])
    assert [entry.external_id for entry in session.messages or ()] == ["m1", "m2", "m5", "m6"]
    assert left_out == [("[0].chat_messages", "other branches: 2 messages")]
    (session,), _ = read(claude_ai, [conversation([*WHOLE, edited, answer], current_leaf_message_uuid="m4")])
    assert [entry.external_id for entry in session.messages or ()] == ["m1", "m2", "m3", "m4"]


def test_missing_message_is_reported_and_bridged() -> None:
    (session,), left_out = read(claude_ai, conversation([USER, AGAIN, DONE]))
    assert [entry.external_id for entry in session.messages or ()] == ["m1", "m3", "m4"]
    assert left_out == [("chat_messages[1]", "its parent message is missing")]


def test_several_conversations_in_every_form_are_sessions() -> None:
    second = conversation([USER], uuid="conv-2")
    empty = conversation([], uuid="conv-3")
    for document in ([conversation(WHOLE), second, empty, 3], lines([conversation(WHOLE), second, empty, 3])):
        assert format_of(document) is claude_ai
        sessions, left_out = read(claude_ai, document)
        assert [session.external_id for session in sessions] == ["conv-1", "conv-2"]
        assert [why for _where, why in left_out] == [
            "no user or assistant message",
            "not a conversation: no chat_messages",
        ]


def test_invalid_messages_are_reported() -> None:
    odd = message("m9", None, "robot", 60, said("Beep"))
    _, left_out = read(claude_ai, conversation([{**USER, "content": [3]}, odd, 5]))
    assert left_out == [
        ("chat_messages[2]", "not an object"),
        ("chat_messages[0].content[0]", "not a content block"),
        ("chat_messages[1]", "the sender is robot; a sender is one of human, assistant"),
    ]


def test_sample_matches_counts_made_by_hand() -> None:
    counts = figures([only(claude_ai, conversation(WHOLE))])
    assert (counts["user"], counts["tool_calls_by_name"], counts["tool_results"], counts["errors_by_tool"]) == (
        2,
        {"web_search": 1, "repl": 1},
        2,
        {"repl": 1},
    )


@pytest.mark.parametrize("count", range(1, len(WHOLE) + 1))
def test_grown_conversation_keeps_earlier_records(count: int) -> None:
    assert_grows(claude_ai, [conversation(WHOLE[:count])], [conversation(WHOLE)])


@given(mangled(conversation(WHOLE)))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, [document], lines([document])):
        if claude_ai.recognises(form):
            read(claude_ai, form)


@pytest.mark.parametrize(
    "document",
    [None, [], {}, [3], {"chat_messages": []}, {"chat_messages": [{"role": "user", "content": "x"}]}, lines([])],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not claude_ai.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(claude_ai)
