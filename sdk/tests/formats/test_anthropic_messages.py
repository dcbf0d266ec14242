"""Anthropic's Messages API: its wrappings, its blocks, logs of requests, and the counts of real files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import anthropic_messages
from tracesite_sdk.formats.anthropic_messages import recognises
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.transcripts.documents import Lines

from . import reading
from .reading import assert_takes_no_other, counted, figures, load, mangled

ASK = {"role": "user", "content": "Weather in Paris?"}
THINKING = {"type": "thinking", "thinking": "I look it up.", "signature": "c2ln"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}}
CALLING = {"role": "assistant", "content": [THINKING, {"type": "text", "text": "Looking."}, USE]}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
ANSWERED = {"role": "user", "content": [RESULT]}
DONE = {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}]}
MESSAGES = [ASK, CALLING, ANSWERED, DONE]
REQUEST = {"model": "claude-x", "max_tokens": 9, "system": "Be kind.", "metadata": {"user_id": "li.wei"}}


def answer(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-y", "content": list(blocks), "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 3}, **fields}  # fmt: skip


def read(document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    return reading.read(anthropic_messages, document)


def only(document: object) -> records.Session:
    return reading.only(anthropic_messages, document)


def outline(session: records.Session) -> list[Any]:
    return [
        (m.role, m.content)
        if m.agent_steps is None
        else (m.role, m.content, [[c.name for c in step.tool_calls or ()] for step in m.agent_steps])
        for m in session.messages or ()
    ]


COMPACTED = {
    "role": "assistant",
    "content": [{"type": "compaction", "content": "Summary"}, {"type": "text", "text": "Hi"}],
}
HELLO = {"role": "user", "content": [{"type": "text", "text": "Hello!"}]}


@pytest.mark.parametrize(
    "document",
    [
        [HELLO, COMPACTED],
        reading.lines([HELLO, COMPACTED]),
        {"messages": [HELLO, COMPACTED]},
        [{"messages": [HELLO, COMPACTED]}],
        {"model": "claude-x", "messages": [{"role": "user", "content": "Hello!"}, COMPACTED]},
    ],
)
def test_blocks_of_unknown_type_are_kept_and_reported(document: Any) -> None:
    assert format_of(document) is anthropic_messages
    (session,), left_out = read(document)
    *_asked, message = session.messages or ()
    assert message.content == COMPACTED["content"]
    assert [why for _where, why in left_out] == [
        "a block of an unknown type, compaction: kept as a part of the content"
    ]
    assert left_out[0][0].endswith("[1].content[0]")


@pytest.mark.parametrize(
    "document",
    [
        [HELLO, {"role": "model", "content": [{"type": "function_result", "result": 1}]}],
        [HELLO, {"role": "assistant", "content": [{"kind": "compaction"}]}],
        [{"role": "assistant", "content": [{"type": "odd"}], "parts": []}],
        [{"role": "critic", "content": [{"type": "odd"}]}],
        [],
    ],
)
def test_may_hold_other_messages_returns_false(document: Any) -> None:
    assert format_of(document) is None


WRAPPINGS: dict[str, Any] = {
    "a request": {**REQUEST, "messages": MESSAGES},
    "a list of messages": MESSAGES,
    "lines of messages": reading.lines(MESSAGES),
    "a list of requests": [{**REQUEST, "messages": MESSAGES}],
    "a request and its answer": {
        "request": {**REQUEST, "messages": MESSAGES[:3]},
        "response": answer(*DONE["content"]),
    },  # type: ignore[arg-type]
    "a body beside its answer": {**REQUEST, "messages": MESSAGES[:3], "response": answer(*DONE["content"])},  # type: ignore[arg-type]
    "a batch": reading.lines([{"custom_id": "a", "params": {**REQUEST, "messages": MESSAGES}}]),
    "an invocation log": {
        "schemaType": "ModelInvocationLog",
        "timestamp": "2026-03-01T12:00:00Z",
        "input": {"inputBodyJson": {"anthropic_version": "bedrock-2023-05-31", "messages": MESSAGES[:3]}},
        "output": {"outputBodyJson": answer(*DONE["content"])},  # type: ignore[arg-type]
    },
}


WITHOUT_MODEL = ("a list of messages", "lines of messages")
WITH_ANSWER = ("a request and its answer", "a body beside its answer", "an invocation log")


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_messages_in_every_wrapping_are_found(wrapping: str) -> None:
    message = [message for message in outline(only(WRAPPINGS[wrapping])) if message[0] != "system"]
    # A reply whose model is known is a step.
    steps = [["weather"]] if wrapping in WITHOUT_MODEL else [["weather"], []]
    assert message == [("user", "Weather in Paris?"), ("assistant", "Sunny.", steps)]


@pytest.mark.parametrize("wrapping", WITH_ANSWER)
def test_request_of_an_answer_is_the_input_of_its_step(wrapping: str) -> None:
    *_others, message = only(WRAPPINGS[wrapping]).messages or ()
    called, last = message.agent_steps or ()
    assert called.input is None
    assert last.input is not None
    assert last.input.messages == MESSAGES[:3]
    if wrapping != "an invocation log":
        assert last.input.system == "Be kind."
        assert (last.input.parameters or {})["max_tokens"] == 9
    assert last.usage == {"input_tokens": 9, "output_tokens": 3}


def test_full_request_gives_expected_records() -> None:
    session = only({**REQUEST, "messages": MESSAGES})
    assert (session.end_user, session.title) == ("li.wei", "Weather in Paris?")
    system, _question, message = session.messages or ()
    assert (system.external_id, system.role, system.content) == ("system", "system", "Be kind.")
    assert message.agent_steps == [
        records.AgentStep(
            iteration=0,
            thought="Looking.",
            reasoning_content="I look it up.",
            model="claude-x",
            tool_calls=[
                records.ToolCall(
                    id="toolu_1",
                    name="weather",
                    args={"city": "Paris"},
                    status="success",
                    result=records.ToolResult(status="success", output="sunny"),
                )
            ],
            metadata={"thinking": [{"type": "thinking", "signature": "c2ln"}]},
        ),
        records.AgentStep(iteration=1, model="claude-x", tool_calls=[]),
    ]
    assert (message.content, message.metadata) == ("Sunny.", {"model": "claude-x"})


def test_answer_alone_is_a_conversation_with_usage() -> None:
    (message,) = only(answer(USE)).messages or ()
    (step,) = message.agent_steps or ()
    assert (step.model, step.usage) == ("claude-y", {"input_tokens": 9, "output_tokens": 3})
    assert step.metadata == {"stop_reason": "end_turn", "id": "msg_1"}


def test_batch_results_are_answers() -> None:
    results = [
        {"custom_id": "a", "result": {"type": "succeeded", "message": answer({"type": "text", "text": "Sunny."})}},
        {"custom_id": "b", "result": {"type": "errored", "error": {"type": "invalid_request"}}},
    ]
    assert format_of(reading.lines(results)) is anthropic_messages
    (session,), left_out = read(reading.lines(results))
    assert outline(session) == [("assistant", "Sunny.", [[]])]
    (step,) = (session.messages or [])[0].agent_steps or ()
    assert (step.model, step.usage) == ("claude-y", {"input_tokens": 9, "output_tokens": 3})
    assert (session.metadata or {})["custom_id"] == "a"
    assert left_out == [("line 2", "neither a list of messages nor a response")]


def test_refusal_is_a_failed_reply() -> None:
    session = only([{**REQUEST, "messages": [ASK], "response": answer(stop_reason="refusal")}])
    assert (session.status, (session.messages or [])[-1].error) == ("error", "refusal")


@pytest.mark.parametrize(
    ("flag", "status"), [({"is_error": True}, "error"), ({"is_error": False}, "success"), ({}, "success")]
)
def test_is_error_flag_decides_result_status(flag: dict[str, Any], status: str) -> None:
    document = [ASK, CALLING, {"role": "user", "content": [{**RESULT, "content": "Error: no", **flag}]}]
    assert [call.status for call in reading.calls(only(document))] == [status]


def test_result_blocks_are_output_other_fields_metadata() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    document = [
        ASK,
        CALLING,
        {"role": "user", "content": [{**RESULT, "content": [image], "cache_control": {"type": "x"}}]},
    ]
    assert reading.results(only(document)) == [
        records.ToolResult(status="success", output=[image], metadata={"cache_control": {"type": "x"}})
    ]


def test_text_beside_results_is_a_prompt() -> None:
    document = [ASK, CALLING, {"role": "user", "content": [RESULT, {"type": "text", "text": "Hurry!"}]}, DONE]
    assert outline(only(document)) == [
        ("user", "Weather in Paris?"),
        ("assistant", None, [["weather"]]),
        ("user", "Hurry!"),
        ("assistant", "Sunny.", []),
    ]


def test_images_and_documents_are_content_parts() -> None:
    parts = [
        {"type": "image", "source": {"type": "url", "url": "https://x/1.png"}},
        {"type": "text", "text": "What is it?"},
    ]
    (question, _said) = only([{"role": "user", "content": parts}, DONE]).messages or ()
    assert question.content == parts


def test_provider_tools_are_calls_later_text_the_answer() -> None:
    blocks = [
        {"type": "text", "text": "I search."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Paris"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}]},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "echo", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": True, "content": []},
        {"type": "server_tool_use", "id": "srvtoolu_2", "name": "web_fetch", "input": {}},
        {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_2", "content": {"type": "web_fetch_tool_result_error", "error_code": "url_not_allowed"}},
        {"type": "text", "text": "Sunny."},
    ]  # fmt: skip
    session = only([{**REQUEST, "messages": [ASK], "response": answer(*blocks)}])
    assert outline(session)[-1] == ("assistant", "Sunny.", [["web_search"], ["echo"], ["web_fetch"]])
    assert [(call.status, call.metadata) for call in reading.calls(session)] == [
        ("success", {"type": "server_tool_use"}),
        ("error", {"type": "mcp_tool_use", "server_name": "s"}),
        ("error", {"type": "server_tool_use"}),
    ]
    assert [step.usage for step in (session.messages or [])[-1].agent_steps or ()][1:] == [None, None]


def test_redacted_thinking_is_metadata() -> None:
    redacted = {"type": "redacted_thinking", "data": "ZW5j"}
    (message,) = only([ASK, {"role": "assistant", "content": [redacted, {"type": "text", "text": "Sunny."}]}]).messages[
        1:
    ]  # type: ignore[index]
    assert (message.content, message.metadata) == ("Sunny.", {"thinking": [redacted]})


# --- Logs -------------------------------------------------------------------------------------------------------------


def test_http_log_of_proxy_is_an_exchange_with_time() -> None:
    log = [
        {
            "request": {"timestamp": 1767268800, "url": "/v1/messages", "body": {**REQUEST, "messages": MESSAGES[:3]}},
            "response": {"timestamp": 1767268801, "status_code": 200, "body": answer(*DONE["content"])},  # type: ignore[misc]
        }
    ]
    session = only(log)
    expected = [("user", "Weather in Paris?"), ("assistant", "Sunny.", [["weather"], []])]
    assert outline(session) == [("system", "Be kind."), *expected]
    assert str((session.messages or [])[1].created_at) == "2026-01-01 12:00:00+00:00"
    metadata = session.metadata or {}
    assert metadata["request"] == {"timestamp": 1767268800, "url": "/v1/messages"}
    assert metadata["response"] == {"timestamp": 1767268801, "status_code": 200}


def exchange(*messages: dict[str, Any], minute: int = 0, **fields: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-03-01T12:{minute:02}:00Z", "request": {**REQUEST, "messages": list(messages)}, **fields}


LOG = [
    exchange(ASK, response=answer(*CALLING["content"], id="msg_a", stop_reason="tool_use")),  # type: ignore[misc]
    exchange(ASK, CALLING, ANSWERED, minute=1, response=answer(*DONE["content"], id="msg_b")),  # type: ignore[misc]
]


def test_joined_requests_keep_usage_of_their_answers() -> None:
    session = only(reading.lines(LOG))
    message = (session.messages or [])[-1]
    assert outline(session)[1:] == [("user", "Weather in Paris?"), ("assistant", "Sunny.", [["weather"], []])]
    assert [step.usage for step in message.agent_steps or ()] == [{"input_tokens": 9, "output_tokens": 3}] * 2
    assert message.usage is None
    inputs = [step.input for step in message.agent_steps or () if step.input]
    assert [one.messages for one in inputs] == [[ASK], [ASK, CALLING, ANSWERED]]
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert [m.created_at for m in session.messages or ()] == [noon] * 3
    assert message.completed_at == noon.replace(minute=1)


def test_cache_control_does_not_split_a_conversation() -> None:
    marked = {
        "role": "user",
        "content": [{"type": "text", "text": "Weather in Paris?", "cache_control": {"type": "ephemeral"}}],
    }
    assert len(read([exchange(marked), exchange(ASK, CALLING, ANSWERED)])[0]) == 1


def test_other_conversation_in_log_is_another_session() -> None:
    other = exchange({"role": "user", "content": "Hello"}, response=answer(*DONE["content"]))  # type: ignore[misc]
    assert len(read([*LOG, other])[0]) == 2


def test_grown_log_keeps_earlier_records() -> None:
    (before,), (after,) = read(LOG[:1])[0], read(LOG)[0]
    assert before.external_id == after.external_id
    assert [(m.external_id, m.created_at) for m in before.messages or ()] == [
        (m.external_id, m.created_at) for m in after.messages or ()
    ]
    assert (after.messages or [])[-1].agent_steps == (before.messages or [])[-1].agent_steps or reading.calls(after)


# --- Oddities ---------------------------------------------------------------------------------------------------------


def test_invalid_parts_are_reported_with_their_places() -> None:
    document = [{**REQUEST, "messages": [ASK, CALLING, 3, {"role": "critic", "content": "?"}, {"role": "user", "content": [RESULT, 4]}]}, {"notes": []}]  # fmt: skip
    sessions, left_out = read(document)
    assert len(sessions) == 1
    assert left_out == [
        ("[1]", "neither a list of messages nor a response"),
        ("[0].messages[2]", "not an object"),
        ("[0].messages[3]", "the role is critic; a role is one of user, assistant, system"),
        ("[0].messages[4].content[1]", "not a content block"),
    ]


STRANGERS: dict[str, Any] = {
    "nothing": None,
    "no messages": {"messages": []},
    "plain messages": {"model": "m", "messages": [ASK, {"role": "assistant", "content": "Sunny."}]},
    "functions": [ASK, {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "a"}}]}],
    "blocks without a type": [{"role": "user", "content": [{"text": "hi"}]}],
    "a line of Claude Code": {"type": "assistant", "uuid": "u", "sessionId": "s", "message": CALLING},
    "messages of LangChain": [{"type": "ai", "content": [USE], "tool_calls": []}],
}


@pytest.mark.parametrize("document", STRANGERS.values(), ids=STRANGERS)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not recognises(document)


@pytest.mark.parametrize("document", [{**REQUEST, "messages": MESSAGES}, LOG, MESSAGES])
@given(data=st.data())
def test_read_mangled_document_never_raises(document: Any, data: st.DataObject) -> None:
    broken = data.draw(mangled(document))
    recognises(broken)
    for session in read(broken)[0]:
        assert session.external_id


# --- Real files -------------------------------------------------------------------------------------------------------

FILES = [
    "anthropic/openinference_tool_use_in_input.json",
    "anthropic/pydantic_ai_images_in_tool_result.json",
    "anthropic/pydantic_ai_parallel_tool_calls.json",
    "anthropic/pydantic_ai_tool_search_is_error.json",
    "sdk_transcripts/traceloop-anthropic/anthropic_messages.json",
]


@pytest.mark.parametrize("name", FILES)
def test_real_files_match_independent_counts(name: str) -> None:
    expected = counted(name)
    document = load(SHARED / name)
    assert format_of(document) is anthropic_messages
    sessions, left_out = read(document)
    # The count includes all messages with the role; prompts have more than results.
    expected["user"] = sum(
        message["role"] == "user"
        and (isinstance(message["content"], str) or any(b["type"] != "tool_result" for b in message["content"]))
        for message in json.loads((SHARED / name).read_text())["messages"]
    )
    assert figures(sessions) == expected
    assert left_out == []


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(anthropic_messages, "anthropic", "sdk_transcripts")
    for path in sorted((SHARED / "sdk_transcripts").rglob("*.json")):
        assert recognises(load(path)) == path.name.startswith("anthropic")


def test_lines_equal_a_list() -> None:
    assert isinstance(reading.lines(LOG), Lines)
    assert read(reading.lines(LOG))[0] == read(LOG)[0]
