"""Vercel's AI SDK: messages of the user interface and of the model, in every version, and a real file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import ai_sdk
from tracesite_sdk.formats.ai_sdk import recognises
from tracesite_sdk.formats.registry import format_of

from . import reading
from .reading import figures, load, mangled, other_files

TEXT = {"type": "text", "text": "Weather?"}
USER = {"id": "u1", "role": "user", "parts": [TEXT]}
DONE = {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {"city": "Bern"}, "output": {"t": 21}}  # fmt: skip
ASSISTANT = {
    "id": "a1",
    "role": "assistant",
    "parts": [
        {"type": "step-start"},
        {"type": "reasoning", "text": "Hm.", "state": "done"},
        {"type": "text", "text": "Looking.", "state": "done"},
        DONE,
        {"type": "step-start"},
        {"type": "text", "text": "21 °C."},
    ],
}

V4_TOOL = {"state": "result", "step": 0, "toolCallId": "c1", "toolName": "weather", "args": {"city": "Bern"}, "result": {"t": 21}}  # fmt: skip
V4_PARTS = [
    {"type": "step-start"},
    {"type": "reasoning", "reasoning": "Hm.", "details": []},
    TEXT | {"text": "Looking."},
    {"type": "tool-invocation", "toolInvocation": V4_TOOL},
    {"type": "step-start"},
    {"type": "text", "text": "21 °C."},
]

MODEL = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": [{"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "Looking."}, {"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Bern"}}]},
    {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "weather", "output": {"type": "json", "value": {"t": 21}}}]},
    {"role": "assistant", "content": [{"type": "text", "text": "21 °C."}]},
]  # fmt: skip
CORE = [
    MODEL[0],
    {"role": "assistant", "id": "msg-1", "content": [{"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "Looking."}, {"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "args": {"city": "Bern"}}]},
    {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "weather", "result": {"t": 21}}]},
    MODEL[3],
]  # fmt: skip


def read(document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    return reading.read(ai_sdk, document)


def only(document: object) -> list[records.Message]:
    return reading.messages_of(ai_sdk, document)


def calls(messages: list[records.Message]) -> list[records.ToolCall]:
    return [call for message in messages for step in message.agent_steps or () for call in step.tool_calls or ()]


def result(document: object) -> records.ToolResult:
    (call,) = calls(only(document))
    assert isinstance(call.result, records.ToolResult)
    return call.result


# --- Shapes -------------------------------------------------------------------------------------------------------

SHAPES: dict[str, Any] = {
    "UIMessages": [USER, ASSISTANT],
    "lines": reading.lines([USER, ASSISTANT]),
    "a chat": {"id": "chat-1", "messages": [USER, ASSISTANT]},
    "rows": [USER | {"chatId": "chat-1"}, ASSISTANT | {"chatId": "chat-1"}],
    "a chat that grows": [{"id": "chat-1", "messages": [USER, ASSISTANT | {"parts": ASSISTANT["parts"][:n]}]} for n in (2, 4, 6)],  # type: ignore[index]
    "a dynamic tool": [USER, ASSISTANT | {"parts": [{**part, "type": "dynamic-tool", "toolName": "weather"} if part is DONE else part for part in ASSISTANT["parts"]]}],
    "parts of v4": [USER | {"content": "Weather?"}, {"id": "a1", "role": "assistant", "content": "Looking.21 °C.", "parts": V4_PARTS}],
    "ModelMessages": MODEL,
    "CoreMessages": CORE,
    "lists": [MODEL],
    "a result": {"text": "21 °C.", "response": {"id": "r", "messages": MODEL}},
}  # fmt: skip


@pytest.mark.parametrize("document", SHAPES.values(), ids=SHAPES)
def test_all_versions_give_the_same_session(document: object) -> None:
    assert recognises(document)
    assert format_of(document) is ai_sdk
    question, answer = only(document)
    assert (question.role, question.content, answer.content) == ("user", "Weather?", "21 °C.")
    (step,) = answer.agent_steps or ()
    assert (step.thought, step.reasoning_content) == ("Looking.", "Hm.")
    assert [(c.id, c.name, c.args) for c in step.tool_calls or ()] == [("c1", "weather", {"city": "Bern"})]
    assert isinstance(actual := (step.tool_calls or [])[0].result, records.ToolResult)
    assert actual.output == {"t": 21}


def test_tool_invocations_beside_content_precede_the_text() -> None:
    old = {"id": "a1", "role": "assistant", "content": "21 °C.", "toolInvocations": [V4_TOOL]}
    (_question, answer) = only([{"id": "u1", "role": "user", "content": "Weather?"}, old])
    assert (answer.content, [c.name for c in calls([answer])]) == ("21 °C.", ["weather"])


def test_chat_fields_give_id_title_and_end_user() -> None:
    (session,), _left_out = read({"id": "chat-1", "title": "Bern", "userId": "li.wei", "messages": [USER, ASSISTANT]})
    assert (session.external_id, session.title, session.end_user) == ("chat-1", "Bern", "li.wei")
    sessions, _left_out = read([USER | {"chatId": "c-1"}, USER | {"chatId": "c-2"}, ASSISTANT | {"chatId": "c-1"}])
    assert [(s.external_id, len(s.messages or ())) for s in reversed(sessions)] == [("c-1", 2), ("c-2", 1)]


def test_conversations_without_ids_stay_apart() -> None:
    assert len(read([MODEL, MODEL])[0]) == 2


# --- Parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "status", "output"),
    [
        ({"state": "input-streaming", "input": None, "rawInput": "{"}, "pending", None),
        ({"state": "input-available"}, "pending", None),
        ({"state": "approval-requested", "approval": {"id": "ap"}}, "pending", None),
        ({"state": "output-available", "output": {"t": 1}, "preliminary": True}, "pending", None),
        ({"state": "output-available", "output": "ok"}, None, "ok"),
        ({"state": "output-error", "errorText": "no such city"}, "error", "no such city"),
        ({"state": "output-denied", "approval": {"id": "ap", "approved": False, "reason": "no"}}, "error", "no"),
    ],
    ids=lambda value: value["state"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_tool_state_decides_call_status(fields: dict[str, Any], status: str | None, output: Any) -> None:
    part = {key: value for key, value in DONE.items() if key != "output"} | fields
    (call,) = calls(only([USER, {"id": "a1", "role": "assistant", "parts": [part]}]))
    assert call.status == status
    assert getattr(call.result, "output", None) == output


ASKING = [
    USER,
    {"id": "a1", "role": "assistant", "parts": [DONE | {"state": "approval-requested", "approval": {"id": "ap"}}]},
]
APPROVED = {"id": "ap", "approved": True}
CALLING = {
    **MODEL[1],
    "content": [*MODEL[1]["content"], {"type": "tool-approval-request", "approvalId": "ap", "toolCallId": "c1"}],
}
ANSWERED = {"role": "tool", "content": [{"type": "tool-approval-response", "approvalId": "ap", "approved": True}]}


@pytest.mark.parametrize(
    ("document", "status"),
    [
        (ASKING, "paused"),
        ([*ASKING, {"id": "u2", "role": "user", "parts": [TEXT]}], "completed"),
        ([USER, {"id": "a1", "role": "assistant", "parts": [DONE | {"state": "approval-responded", "approval": APPROVED}]}], None),
        ([USER, {"id": "a1", "role": "assistant", "parts": [DONE | {"approval": APPROVED}]}], "completed"),
        ([MODEL[0], CALLING], "paused"),
        ([MODEL[0], CALLING, ANSWERED], None),
        ([MODEL[0], CALLING, ANSWERED, *MODEL[2:]], "completed"),
        (MODEL, None),
    ],
)  # fmt: skip
def test_chat_that_waits_for_an_approval_is_paused(document: list[Any], status: str | None) -> None:
    (session,), _left_out = read(document)
    assert session.status == status


def answered(**part: Any) -> list[Any]:
    return [
        *MODEL[:2],
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "weather", **part}]},
    ]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"output": {"type": "text", "value": "ok"}}, records.ToolResult(output="ok")),
        ({"output": {"type": "error-text", "value": "no"}}, records.ToolResult(status="error", output="no")),
        ({"output": {"type": "error-json", "value": {"a": 1}}}, records.ToolResult(status="error", output={"a": 1})),
        ({"output": {"type": "execution-denied"}}, records.ToolResult(status="error", output="The call was denied.")),
        ({"result": "no", "isError": True}, records.ToolResult(status="error", output="no")),
        ({"result": {"type": "odd"}}, records.ToolResult(output={"type": "odd"})),
        (
            {"output": {"type": "content", "value": [TEXT, {"type": "image-data", "data": "AAAA", "mediaType": "image/png"}]}},
            records.ToolResult(
                output="Weather?",
                attachments=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}, "mediaType": "image/png"}],
            ),
        ),
    ],
)  # fmt: skip
def test_output_type_decides_result_and_status(part: dict[str, Any], expected: records.ToolResult) -> None:
    assert result(answered(**part)) == expected


def test_tool_error_part_is_failed_result_of_its_call() -> None:
    error = {"type": "tool-error", "toolCallId": "c1", "toolName": "weather", "input": {}, "error": "no such city"}
    question, asks = MODEL[:2]
    document = [question, {**asks, "content": [*asks["content"], error]}]
    assert [call.name for call in calls(only(document))] == ["weather"]
    assert result(document) == records.ToolResult(status="error", output="no such city")


@pytest.mark.parametrize(
    ("part", "url"),
    [
        ({"type": "file", "mediaType": "image/png", "url": "data:,x"}, "data:,x"),
        ({"type": "file", "mimeType": "image/png", "data": "AAAA"}, "data:image/png;base64,AAAA"),
        ({"type": "image", "image": "https://a.example/i"}, "https://a.example/i"),
        ({"type": "image", "image": "AAAA"}, "data:image/png;base64,AAAA"),
        ({"type": "file", "mediaType": "image/webp", "data": {"type": "data", "data": "AAAA"}}, "data:image/webp;base64,AAAA"),
    ],
)  # fmt: skip
def test_images_are_content_parts(part: dict[str, Any], url: str) -> None:
    (question, _answer) = only([{"role": "user", "content": [TEXT, part]}, *MODEL[1:]])
    assert isinstance(question.content, list)
    assert question.content[0] == {"type": "text", "text": "Weather?"}
    assert question.content[1]["image_url"] == {"url": url}


def test_files_other_than_images_are_unchanged() -> None:
    file = {"type": "file", "mediaType": "application/pdf", "url": "https://a.example/d.pdf", "filename": "d.pdf"}
    (question,) = only([USER | {"parts": [file]}])
    assert question.content == [file]


def test_sources_data_and_approvals_are_metadata() -> None:
    source = {"type": "source-url", "sourceId": "s1", "url": "https://a.example"}
    data = {"type": "data-progress", "data": {"done": 3}}
    (_question, answer) = only([USER, {"id": "a1", "role": "assistant", "parts": [source, data, TEXT]}])
    assert (answer.content, answer.metadata) == ("Weather?", {"parts": [source, data]})
    approval = {"type": "tool-approval-response", "approvalId": "ap", "approved": True}
    document = [*MODEL[:2], {"role": "tool", "content": [approval]}, *MODEL[2:]]
    assert (only(document)[1].metadata or {})["approvals"] == [approval]


def test_steering_message_is_a_user_message() -> None:
    steering = {"type": "steering-message", "id": "st-1", "parts": [TEXT]}
    assistant = ASSISTANT | {"parts": [DONE, steering, {"type": "step-start"}, TEXT | {"text": "Yes."}]}
    actual = [(m.role, m.external_id, m.content) for m in only([USER, assistant])]
    assert actual == [
        ("user", "u1", "Weather?"),
        ("assistant", "a1", None),
        ("user", "st-1", "Weather?"),
        ("assistant", "a1.step1", "Yes."),
    ]


def test_application_metadata_gives_time_model_and_usage() -> None:
    at = datetime(2025, 3, 4, 12, tzinfo=UTC)
    metadata = {"model": "m-1", "totalUsage": {"inputTokens": 5, "outputTokens": 3}, "createdAt": 1741089600000}
    (question, answer) = only([USER | {"createdAt": "2025-03-04T12:00:00Z"}, ASSISTANT | {"metadata": metadata}])
    assert (question.created_at, answer.created_at) == (at, at)
    # The usage is that of both steps.
    stated = [(step.model, step.usage) for step in answer.agent_steps or ()]
    assert (answer.usage, stated) == (None, [(None, None), ("m-1", metadata["totalUsage"])])
    assert (answer.metadata or {})["model"] == "m-1"
    assert (answer.metadata or {})["metadata"] == metadata


def test_naive_time_is_utc_and_flagged() -> None:
    (question,) = only([USER | {"createdAt": "2025-03-04 12:00:00"}])
    assert (question.created_at, question.health) == (datetime(2025, 3, 4, 12, tzinfo=UTC), ["naive_time"])


def test_empty_names_and_missing_ids_are_kept() -> None:
    part = {"type": "dynamic-tool", "toolCallId": "", "toolName": "", "state": "input-available", "input": {}}
    assert [(c.id, c.name) for c in calls(only([USER, {"id": "a1", "role": "assistant", "parts": [part]}]))] == [
        (None, "")
    ]


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read([*MODEL, "text", {"role": "critic"}, {"content": "?"}])
    roles = "a role is one of user, assistant, system, tool, data"
    assert left_out == [
        ("[4]", "not an object"),
        ("[5]", f"unknown role 'critic'; {roles}"),
        ("[6]", f"no role; {roles}"),
    ]
    assert read([MODEL, {"notes": []}])[1] == [("[1]", "no messages")]


GROWING: dict[str, list[Any]] = {
    "ModelMessages": [*MODEL, *MODEL],
    "UIMessages": [USER, ASSISTANT, USER | {"id": "u2"}, ASSISTANT | {"id": "a2"}],
    "chats": SHAPES["a chat that grows"],
    "rows of two chats": [m | {"chatId": chat} for m in (USER, ASSISTANT) for chat in ("c-1", "c-2")],
}


@pytest.mark.parametrize("whole", GROWING.values(), ids=GROWING)
def test_prefix_of_document_gives_prefix_of_records(whole: list[Any]) -> None:
    full = {session.external_id: session for session in read(whole)[0]}
    for length in range(1, len(whole)):
        for session in read(whole[:length])[0]:
            longer = full[session.external_id]
            ids = [message.external_id for message in session.messages or ()]
            assert [message.external_id for message in longer.messages or ()][: len(ids)] == ids


# --- Recognising --------------------------------------------------------------------------------------------------

STRANGERS: dict[str, Any] = {
    "nothing": None,
    "an empty list": [],
    "a chat of texts": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi"}],
    "an OpenAI chat": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "a"}}]}],
    "Gemini": [{"role": "user", "parts": [{"text": "Hi"}]}],
    "OpenTelemetry": [{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}],
    "Anthropic": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x"}]}],
}


@pytest.mark.parametrize("document", STRANGERS.values(), ids=STRANGERS)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not recognises(document)


EVERYTHING: list[Any] = [
    {**USER, "chatId": "c-1", "metadata": {"createdAt": 1, "usage": {}}},
    ASSISTANT,
    {"id": "a9", "role": "assistant", "content": "x", "reasoning": "y", "toolInvocations": [V4_TOOL]},
    *CORE,
    *answered(output={"type": "content", "value": [TEXT, {"type": "image-data", "data": "AAAA"}]}),
    {"role": "user", "content": [{"type": "file", "mediaType": "image/png", "data": {"type": "data", "data": "AA"}}]},
    {
        "id": "s",
        "role": "assistant",
        "parts": [{"type": "steering-message", "id": "z", "parts": [TEXT]}, {"type": "data-x"}],
    },
]


def test_single_message_equals_list_of_one() -> None:
    assert recognises(USER)
    assert [m.content for m in only(USER)] == ["Weather?"]


@given(mangled(EVERYTHING))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for variant in (document, {"id": "c", "messages": document}, [{"id": "c", "messages": document}] * 2, {"response": {"messages": document}}):  # fmt: skip
        recognises(variant)
        for session in read(variant)[0]:
            assert session.external_id


# --- Real files ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not on this machine")
def test_real_run_gives_expected_records() -> None:
    document = load(SHARED / "sdk_transcripts" / "vercel-ai-legacy" / "ai_sdk_response_messages.json")
    assert format_of(document) is ai_sdk
    sessions, left_out = read(document)
    assert left_out == []
    # No independent count exists: these are the messages of the answer alone.
    assert figures(sessions) == {
        "sessions": 1,
        "user": 0,
        "tool_calls_by_name": {"weather": 2, "nope": 1, "echo": 1},
        "tool_results": 4,
        "errors_by_tool": {"weather": 1, "nope": 1, "echo": 1},
        "calls_without_result": 0,
        "results_without_call": 0,
    }


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    strangers = [path for path in other_files("not_claude_code", "claude_code") if "ai_sdk" not in path.name]
    assert [path.name for path in strangers if recognises(load(path))] == []
