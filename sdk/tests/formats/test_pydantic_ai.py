"""Pydantic AI: its wrappings, the parts of its messages, runs of one conversation, and the counts of a real file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import pydantic_ai
from tracesite_sdk.formats.pydantic_ai import recognises
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.transcripts.outline import digests_of

from . import reading
from .reading import counted, figures, load, mangled, other_files

OWN = Path(__file__).parent / "transcripts" / "pydantic_ai" / "every_part.json"
NOON = "2025-03-04T12:00:00Z"
AT_NOON = datetime(2025, 3, 4, 12, tzinfo=UTC)


def request(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts), "instructions": None, **fields}


def response(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"kind": "response", "parts": list(parts), "timestamp": NOON, "model_name": "m-1", **fields}


def prompt(content: Any = "Roll.") -> dict[str, Any]:
    return {"part_kind": "user-prompt", "content": content, "timestamp": NOON}


def text(content: str) -> dict[str, Any]:
    return {"part_kind": "text", "content": content, "id": None}


def call(id_: str | None = "c1", args: Any = '{"sides": 6}', **fields: Any) -> dict[str, Any]:
    return {"part_kind": "tool-call", "tool_name": "roll", "args": args, "tool_call_id": id_, **fields}


def returned(content: Any = 4, id_: str | None = "c1", **fields: Any) -> dict[str, Any]:
    return {"part_kind": "tool-return", "tool_name": "roll", "content": content, "tool_call_id": id_, **fields}


MESSAGES = [request(prompt()), response(text("Rolling."), call()), request(returned()), response(text("Four."))]


def read(document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    return reading.read(pydantic_ai, document)


def only(document: object) -> list[records.Message]:
    return reading.messages_of(pydantic_ai, document)


def answered(*parts: dict[str, Any]) -> records.ToolCall:
    """Return the call that comes before a request with these parts."""
    (step,) = only([request(prompt()), response(call()), request(*parts)])[1].agent_steps or ()
    (found,) = step.tool_calls or ()
    return found


# --- Wrappings ----------------------------------------------------------------------------------------------------

WRAPPINGS: dict[str, Any] = {
    "a list of messages": MESSAGES,
    "lines of messages": reading.lines(MESSAGES),
    "an object": {"all_messages": MESSAGES, "task": "dice"},
    "a list of runs": [MESSAGES],
    "lines of runs": reading.lines([{"messages": MESSAGES[:2]}, {"messages": MESSAGES}]),
}


@pytest.mark.parametrize("document", WRAPPINGS.values(), ids=WRAPPINGS)
def test_messages_in_every_wrapping_are_found(document: object) -> None:
    assert recognises(document)
    assert format_of(document) is pydantic_ai
    assert only(document) == [
        records.Message(role="user", external_id="0.0", content="Roll.", created_at=AT_NOON),
        records.Message(
            role="assistant",
            external_id="1",
            content="Four.",
            created_at=AT_NOON,
            completed_at=AT_NOON,
            agent_steps=[
                records.AgentStep(
                    iteration=0,
                    thought="Rolling.",
                    model="m-1",
                    timestamp=AT_NOON,
                    tool_calls=[
                        records.ToolCall(
                            id="c1",
                            name="roll",
                            args='{"sides": 6}',
                            started_at=AT_NOON,
                            result=records.ToolResult(output=4),
                        )
                    ],
                ),
                records.AgentStep(iteration=1, model="m-1", timestamp=AT_NOON, tool_calls=[]),
            ],
            metadata={"model": "m-1"},
        ),
    ]


def test_fields_beside_messages_are_metadata() -> None:
    (session,), _left_out = read({"messages": MESSAGES, "task": "dice"})
    assert (session.metadata or {})["task"] == "dice"


def test_runs_with_conversation_id_are_one_session() -> None:
    whole = [m | {"conversation_id": "conv-1"} for m in MESSAGES]
    runs = [whole[:2], [request(prompt("Hi"), conversation_id="conv-2")], whole[2:], whole, whole[:3]]
    sessions, left_out = read(runs)
    assert left_out == []
    assert [(s.external_id, [m.content for m in s.messages or ()]) for s in reversed(sessions)] == [
        ("conv-1", ["Roll.", "Four."]),
        ("conv-2", ["Hi"]),
    ]


@pytest.mark.parametrize(
    "whole",
    [
        [*MESSAGES, request(prompt("Again.")), response(text("Five."))],
        [m | {"conversation_id": "c"} for m in MESSAGES],
        [MESSAGES[:2], [request(prompt("Hi"))], MESSAGES],
        [[m | {"conversation_id": "c"} for m in part] for part in (MESSAGES[:2], MESSAGES[2:])],
    ],
    ids=["messages", "messages of a conversation", "runs", "new messages of each run"],
)
def test_prefix_of_document_gives_prefix_of_records(whole: list[Any]) -> None:
    full = {session.external_id: session for session in read(whole)[0]}
    for length in range(1, len(whole)):
        for session in read(whole[:length])[0]:
            longer = full[session.external_id]
            start = digests_of(session.metadata)
            assert digests_of(longer.metadata)[: len(start)] == start
            ids = [message.external_id for message in session.messages or ()]
            assert [message.external_id for message in longer.messages or ()][: len(ids)] == ids


# --- Parts --------------------------------------------------------------------------------------------------------


def test_changed_instructions_are_a_system_message() -> None:
    first, again = request(prompt(), instructions="Be brief."), request(returned(), instructions="Be brief.")
    other = request({"part_kind": "system-prompt", "content": "You roll."}, prompt("And?"), instructions="Be kind.")
    document = [first, response(call()), again, response(text("Four.")), other]
    assert [(m.external_id, m.content) for m in only(document) if m.role == "system"] == [
        ("0.instructions", "Be brief."),
        ("4.instructions", "Be kind."),
        ("4.0", "You roll."),
    ]


def test_prompts_may_have_images_and_files() -> None:
    content = [
        "See",
        {"kind": "image-url", "url": "https://a.example/i"},
        {"kind": "binary", "media_type": "image/png", "data": "-_8="},
        {"kind": "binary", "media_type": "audio/wav", "data": "AAAA"},
        {"kind": "text-content", "content": "this", "metadata": {"page": 1}},
        {"kind": "document-url", "url": "https://a.example/d.pdf"},
    ]
    (question,) = only([request(prompt(content))])
    assert question.content == [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "https://a.example/i"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,+/8="}, "media_type": "image/png"},
        {"type": "file", "file": {"file_data": "data:audio/wav;base64,AAAA"}, "media_type": "audio/wav"},
        {"type": "text", "text": "this", "metadata": {"page": 1}},
        {"type": "document-url", "url": "https://a.example/d.pdf"},
    ]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("success", "success"), ("failed", "error"), ("retried", "error"), ("denied", "error"), ("interrupted", "error"), (None, None)],
)  # fmt: skip
def test_outcome_decides_call_status(outcome: str | None, status: str | None) -> None:
    assert answered(returned(outcome=outcome)).status == status


def test_retry_prompt_of_tool_is_failed_result() -> None:
    retry = {"part_kind": "retry-prompt", "content": "sides must be >= 2", "tool_name": "roll", "tool_call_id": "c1"}
    assert answered(retry).result == records.ToolResult(
        status="error", output="sides must be >= 2", metadata={"part_kind": "retry-prompt"}
    )


@pytest.mark.parametrize("kind", ["retry-prompt", "retry-feedback"])
def test_retry_prompt_without_tool_is_system_message(kind: str) -> None:
    retry = {"part_kind": kind, "content": "Answer in JSON.", "tool_name": None}
    (_question, answer, system) = only([request(prompt()), response(text("4")), request(retry), response(text('"4"'))])
    assert (answer.content, system.role, system.content, system.metadata) == (
        '"4"',
        "system",
        "Answer in JSON.",
        {"part_kind": kind},
    )


def test_tool_metadata_is_data_of_the_result() -> None:
    image = {"kind": "binary", "media_type": "image/png", "data": "AAAA"}
    actual = [
        answered(returned(content, metadata={"took": 3})).result for content in ("four", {"n": 4}, ["four", image])
    ]
    attachment = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}, "media_type": "image/png"}
    assert actual == [
        records.ToolResult(output="four", data={"took": 3}),
        records.ToolResult(output={"n": 4}, metadata={"metadata": {"took": 3}}),
        records.ToolResult(output="four", data={"took": 3}, attachments=[attachment]),
    ]


def test_text_after_provider_results_is_another_reply() -> None:
    search = {"part_kind": "builtin-tool-call", "tool_name": "web_search", "args": {"q": "a"}, "tool_call_id": "n1"}
    returned_part = {
        "part_kind": "builtin-tool-return",
        "tool_name": "web_search",
        "content": "b",
        "tool_call_id": "n1",
        "outcome": "success",
    }
    thinks = {"part_kind": "thinking", "content": "hm", "signature": "s"}
    usage = {"input_tokens": 5, "output_tokens": 3, "details": {}}
    (_question, answer) = only(
        [request(prompt()), response(thinks, search, returned_part, text("Found."), usage=usage)]
    )
    first, last = answer.agent_steps or ()
    assert (first.reasoning_content, [(c.name, c.args, c.status) for c in first.tool_calls or ()]) == (
        "hm",
        [("web_search", {"q": "a"}, "success")],
    )
    # It is one request.
    assert (first.model, first.usage) == (None, None)
    assert (last.thought, last.model, last.usage) == (None, "m-1", {"input_tokens": 5, "output_tokens": 3})
    assert (answer.content, answer.usage, (answer.metadata or {})["model"]) == ("Found.", None, "m-1")


def test_other_request_parts_are_metadata_of_reply() -> None:
    delta = {"part_kind": "tool-availability-delta", "tools_added": ["roll"]}
    compaction = {"part_kind": "compaction", "content": "summary", "id": "cm_1"}
    (_question, answer) = only([request(prompt(), delta), response(compaction, text("Four."), finish_reason="stop")])
    assert answer.metadata == {
        "request_parts": [delta],
        "parts": [compaction],
        "finish_reason": "stop",
        "model": "m-1",
    }


def test_messages_of_older_versions_are_read() -> None:
    usage = {"requests": 1, "request_tokens": 5, "response_tokens": 3, "total_tokens": 8, "details": None}
    old = response(call(args={"args_json": '{"sides": 6}'}), call(None, {"args_dict": {"sides": 8}}), usage=usage)
    (_question, answer) = only([request(prompt()), old])
    (step,) = answer.agent_steps or ()
    assert [(c.id, c.args) for c in step.tool_calls or ()] == [("c1", '{"sides": 6}'), (None, {"sides": 8})]
    assert step.usage == {"requests": 1, "request_tokens": 5, "response_tokens": 3, "total_tokens": 8, "input_tokens": 5, "output_tokens": 3}  # fmt: skip


def test_all_part_kinds_of_the_sdk_are_read() -> None:
    sessions, left_out = read(load(OWN))
    assert left_out == []
    assert figures(sessions) == {
        "sessions": 1,
        "user": 1,
        "tool_calls_by_name": {"lookup": 2, "web_search": 1},
        "tool_results": 3,
        "errors_by_tool": {"lookup": 1},
        "calls_without_result": 0,
        "results_without_call": 0,
    }


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read([*MESSAGES, "text", {"kind": "event", "parts": []}, response("text")])  # type: ignore[arg-type]
    assert left_out == [
        ("[4]", "not an object"),
        ("[5]", "unknown kind 'event'; a message is a request or a response"),
        ("[6].parts[0]", "not an object"),
    ]
    assert read([MESSAGES, {"notes": []}])[1] == [("[1]", "no messages")]


# --- Recognising --------------------------------------------------------------------------------------------------

STRANGERS: dict[str, Any] = {
    "nothing": None,
    "an empty list": [],
    "no parts": [{"kind": "request", "parts": []}],
    "parts of another": [{"kind": "request", "parts": [{"text": "hi"}]}],
    "a chat of parts": [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}],
}


@pytest.mark.parametrize("document", STRANGERS.values(), ids=STRANGERS)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not recognises(document)


def test_single_message_equals_list_of_one() -> None:
    assert recognises(MESSAGES[0])
    assert [m.content for m in only(MESSAGES[0])] == ["Roll."]


@given(mangled(load(OWN)))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for variant in (document, {"messages": document}, [document, MESSAGES, *document]):
        recognises(variant)
        for session in read(variant)[0]:
            assert session.external_id


# --- Real files ---------------------------------------------------------------------------------------------------


def test_real_file_matches_independent_counts() -> None:
    name = "sdk_transcripts/logfire-pydantic-ai/pydantic_ai_all_messages.json"
    # The role of the user has another name here.
    expected = counted(name) | {"user": 1}
    document = load(SHARED / name)
    assert format_of(document) is pydantic_ai
    sessions, left_out = read(document)
    assert figures(sessions) == expected
    assert left_out == []


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    strangers = [path for path in other_files("not_claude_code", "claude_code") if "all_messages" not in path.name]
    assert [path.name for path in strangers if recognises(load(path))] == []
