"""Amazon Bedrock's Converse API: its blocks, its wrappings, and the counts of a real file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import bedrock_converse
from tracesite_sdk.formats.bedrock_converse import recognises
from tracesite_sdk.normalize.tool_results import normalize_result

from . import reading
from .reading import assert_takes_no_other, counted, figures, load, mangled

ASK = {"role": "user", "content": [{"text": "Weather in Paris?"}, {"cachePoint": {"type": "default"}}]}
USE = {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Paris"}}}
THINKS = {"reasoningContent": {"reasoningText": {"text": "I look it up.", "signature": "c2ln"}}}
CALLING = {"role": "assistant", "content": [THINKS, {"text": "Looking."}, USE]}
DONE = {"role": "assistant", "content": [{"text": "Sunny."}]}
USAGE = {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}


def answering(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": list(content), **fields}}]}


MESSAGES = [ASK, CALLING, answering({"text": "sunny"}, status="success"), DONE]


def read(document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    return reading.read(bedrock_converse, document)


def only(document: object) -> records.Session:
    return reading.only(bedrock_converse, document)


WRAPPINGS: dict[str, Any] = {
    "a list of messages": MESSAGES,
    "a request": {"modelId": "m", "messages": MESSAGES, "system": [{"text": "Be kind."}]},
    "a request with its answer": {
        "modelId": "m",
        "messages": MESSAGES[:3],
        "output": {"message": DONE},
        "usage": USAGE,
    },
    "a pair": {"request": {"messages": MESSAGES[:3]}, "response": {"output": {"message": DONE}}},
    "an invocation log": {
        "modelId": "m",
        "input": {"inputBodyJson": {"messages": MESSAGES[:3]}},
        "output": {"outputBodyJson": {"output": {"message": DONE}}},
    },
    "a session of Strands": [
        {"message": message, "message_id": index, "created_at": "2026-03-01T12:00:00+00:00"}
        for index, message in enumerate(MESSAGES)
    ],
}


@pytest.mark.parametrize("document", WRAPPINGS.values(), ids=WRAPPINGS)
def test_messages_in_every_wrapping_are_found(document: object) -> None:
    session = only(document)
    *_before, question, message = session.messages or ()
    assert (question.role, question.content) == ("user", "Weather in Paris?") or question.content == [
        {"type": "text", "text": "Weather in Paris?"},
        {"type": "cachePoint"},
    ]
    assert (message.content, [call.name for call in reading.calls(session)]) == ("Sunny.", ["weather"])


GUARDED = {"role": "user", "content": [{"guardContent": {"text": {"text": "Weather in Paris?"}}}]}


@pytest.mark.parametrize("document", [[GUARDED], [GUARDED, DONE], {"modelId": "m", "messages": [GUARDED]}])
def test_guard_content_text_is_the_prompt(document: object) -> None:
    assert (only(document).messages or [])[0].content == "Weather in Paris?"


def test_guard_content_qualifiers_are_kept() -> None:
    text = {"text": "Paris is sunny.", "qualifiers": ["grounding_source"]}
    session = only([{"role": "user", "content": [{"guardContent": {"text": text}}, {"text": "Is it?"}]}])
    assert (session.messages or [])[0].content == [
        {"type": "text", "text": "Paris is sunny.", "qualifiers": ["grounding_source"]},
        {"type": "text", "text": "Is it?"},
    ]


def test_result_in_assistant_message_answers_its_call() -> None:
    use = {"toolUse": {"toolUseId": "t1", "name": "nova_code_interpreter", "input": {"snippet": "1 + 1"}, "type": "server_tool_use"}}  # fmt: skip
    result = {"toolResult": {"toolUseId": "t1", "content": [{"json": {"stdOut": "2"}}], "status": "success", "type": "nova_code_interpreter_result"}}  # fmt: skip
    session = only([ASK, {"role": "assistant", "content": [use, result, {"text": "It is 2."}]}])
    (call,) = reading.calls(session)
    assert (call.name, call.status) == ("nova_code_interpreter", "success")
    assert (session.messages or [])[1].content == "It is 2."
    assert isinstance(call.result, records.ToolResult)
    assert call.result.output == {"stdOut": "2"}
    assert call.result.metadata == {"result_type": "nova_code_interpreter_result"}


def test_step_has_thought_reasoning_and_calls() -> None:
    (_question, said) = only(MESSAGES).messages or ()
    assert said.agent_steps == [
        records.AgentStep(
            iteration=0,
            thought="Looking.",
            reasoning_content="I look it up.",
            tool_calls=[
                records.ToolCall(
                    id="t1",
                    name="weather",
                    args={"city": "Paris"},
                    status="success",
                    result=records.ToolResult(status="success", output=[{"type": "text", "text": "sunny"}]),
                )
            ],
            metadata={"thinking": [{"type": "thinking", "signature": "c2ln"}]},
        )
    ]


@pytest.mark.parametrize(
    ("fields", "status"), [({"status": "error"}, "error"), ({"status": "success"}, "success"), ({}, "success")]
)
def test_result_status_decides_failure(fields: dict[str, Any], status: str) -> None:
    document = [ASK, CALLING, answering({"text": "Error: no"}, **fields)]
    assert [call.status for call in reading.calls(only(document))] == [status]


def test_json_blocks_beside_others_are_data_of_result() -> None:
    document = [ASK, CALLING, answering({"text": "Some"}, {"json": {"left": 3}}, {"json": {"left": 5}})]
    (result,) = reading.results(only(document))
    normal = normalize_result(result, None)
    assert normal is not None
    assert (normal.output, normal.data, normal.metadata) == ("Some", [{"left": 3}, {"left": 5}], None)
    found = {"source": "https://a.example", "title": "Guide", "content": [{"text": "Read this."}], "citations": {}}
    (result,) = reading.results(only([ASK, CALLING, answering({"searchResult": found})]))
    normal = normalize_result(result, None)
    assert normal is not None
    assert (normal.output, normal.data) == ("Guide\nhttps://a.example\nRead this.", {"type": "search_result", **found})


def test_result_json_and_images_are_kept() -> None:
    image = {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}
    assert reading.results(only([ASK, CALLING, answering({"json": {"sunny": True}})])) == [
        records.ToolResult(status="success", output={"sunny": True})
    ]
    assert reading.results(only([ASK, CALLING, answering({"text": "Seen"}, {"json": [1]}, image)])) == [
        records.ToolResult(
            status="success",
            output=[
                {"type": "text", "text": "Seen"},
                {"type": "json", "json": [1]},
                {"type": "image", "format": "png", "source": {"bytes": "iVBORw0KGgo="}},
            ],
        )
    ]


def test_answer_has_usage_and_stop_reason() -> None:
    document = {
        "modelId": "m",
        "messages": [ASK],
        "output": {"message": CALLING},
        "usage": USAGE,
        "stopReason": "tool_use",
    }
    (step,) = (only(document).messages or [])[1].agent_steps or ()
    assert (step.model, step.usage) == ("m", USAGE)
    assert (step.metadata or {})["stopReason"] == "tool_use"


def test_requests_of_conversation_are_one_session() -> None:
    log = [
        {"modelId": "m", "messages": [ASK], "output": {"message": CALLING}, "usage": USAGE},
        {"modelId": "n", "messages": MESSAGES[:3], "output": {"message": DONE}, "usage": USAGE},
    ]
    session = only(reading.lines(log))
    assert len(session.messages or ()) == 2
    first, last = (session.messages or [])[1].agent_steps or ()
    assert [first.model, last.model] == ["m", "n"]
    assert [first.usage, last.usage] == [USAGE, USAGE]
    assert first.input is not None
    assert last.input is not None
    assert (first.input.messages, last.input.messages) == ([ASK], MESSAGES[:3])


def test_tools_and_parameters_of_request_are_its_input() -> None:
    tool = {"toolSpec": {"name": "weather"}}
    request = {
        "modelId": "m",
        "messages": [ASK],
        "system": [{"text": "Be kind."}],
        "inferenceConfig": {"maxTokens": 9},
        "toolConfig": {"tools": [tool], "toolChoice": {"auto": {}}},
    }
    session = only({**request, "output": {"message": DONE}, "usage": USAGE})
    (step,) = (session.messages or [])[-1].agent_steps or ()
    assert step.input == records.ModelInput(
        messages=[ASK],
        system=[{"text": "Be kind."}],
        tools=[tool],
        parameters={"modelId": "m", "inferenceConfig": {"maxTokens": 9}, "toolConfig": {"toolChoice": {"auto": {}}}},
    )


def test_strands_session_has_times() -> None:
    session = only(WRAPPINGS["a session of Strands"])
    assert [m.created_at for m in session.messages or ()] == [datetime(2026, 3, 1, 12, tzinfo=UTC)] * 2


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read([ASK, CALLING, 3, {"role": "critic", "content": []}, {"role": "user", "content": [5]}])
    assert left_out == [
        ("[2]", "not an object"),
        ("[3]", "the role is critic; a role is user or assistant"),
        ("[4].content[0]", "not a content block"),
    ]


@pytest.mark.parametrize("document", [WRAPPINGS["an invocation log"], MESSAGES, WRAPPINGS["a session of Strands"]])
@given(data=st.data())
def test_read_mangled_document_never_raises(document: Any, data: st.DataObject) -> None:
    broken = data.draw(mangled(document))
    recognises(broken)
    for session in read(broken)[0]:
        assert session.external_id


def test_real_file_matches_independent_counts() -> None:
    name = "sdk_transcripts/native-strands/bedrock_converse_messages.json"
    expected = {**counted(name), "user": 1}
    sessions, left_out = read(load(SHARED / name))
    assert figures(sessions) == expected
    assert left_out == []


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(bedrock_converse, "sdk_transcripts")
    for path in sorted((SHARED / "sdk_transcripts").rglob("*.json")):
        assert recognises(load(path)) == path.name.startswith("bedrock")
