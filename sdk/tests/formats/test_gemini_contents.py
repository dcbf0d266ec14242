"""Contents of the Gemini API: histories, requests, answers, logs and batches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import gemini_contents
from tracesite_sdk.formats.registry import format_of

from .reading import (
    assert_grows,
    assert_takes_any_type,
    assert_takes_no_other,
    calls,
    figures,
    has_failed,
    lines,
    mangled,
    messages_of,
    only,
    read,
    steps,
)


def content(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def get(city: str) -> dict[str, Any]:
    return {"functionCall": {"name": "get", "args": {"city": city}}, "thoughtSignature": "s"}


WHOLE = [
    content("user", {"text": "Warm?"}),
    content("model", {"text": "Two.", "thought": True}, {"text": "I look."}, get("Oslo"), get("Rome")),
    content("user", {"functionResponse": {"name": "get", "response": {"output": "12"}}}, {"functionResponse": {"name": "get", "response": {"error": "no"}}}),
    content("model", {"text": "Yes."}),
    content("user", {"text": "Thanks"}),
    content("model", {"text": "Welcome."}),
]  # fmt: skip
SYSTEM = {"parts": [{"text": "Be kind."}]}


def answer(said: dict[str, Any], prompt: int, output: int, **fields: Any) -> dict[str, Any]:
    usage = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": output,
        "cachedContentTokenCount": 10,
        "totalTokenCount": prompt + output,
    }
    return {
        "candidates": [{"content": said, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
        "modelVersion": "gemini-x",
        "responseId": "r",
        **fields,
    }


LOG = [
    {
        "request": {"contents": WHOLE[:count], "systemInstruction": SYSTEM, "tools": [{"functionDeclarations": []}]},
        "response": answer(WHOLE[count], 100 + count, count, createTime=f"2026-03-01T12:00:0{count}Z"),
    }
    for count in (1, 3, 5)
]


def test_history_gives_expected_records() -> None:
    session = only(gemini_contents, WHOLE)
    question, found, thanks, _welcome = session.messages or []
    assert (question.content, found.content, thanks.content) == ("Warm?", "Yes.", "Thanks")
    (step,) = steps(found)
    assert (step.thought, step.reasoning_content, step.usage) == ("I look.", "Two.", None)
    oslo, rome = calls(session)
    assert isinstance(oslo.result, records.ToolResult)
    assert (oslo.id, oslo.args, oslo.result.output, has_failed(oslo), has_failed(rome)) == (
        None,
        {"city": "Oslo"},
        "12",
        False,
        True,
    )


def test_sample_matches_counts_made_by_hand() -> None:
    counts = figures([only(gemini_contents, WHOLE)])
    assert (counts["user"], counts["tool_calls_by_name"], counts["tool_results"], counts["errors_by_tool"]) == (
        2,
        {"get": 2},
        2,
        {"get": 1},
    )


def test_log_of_exchanges_is_one_conversation_with_tokens() -> None:
    session = only(gemini_contents, LOG)
    messages = session.messages or []
    assert [message.content for message in messages] == ["Be kind.", "Warm?", "Yes.", "Thanks", "Welcome."]
    found = [step for message in messages for step in steps(message)]
    assert [(step.model, (step.usage or {}).get("promptTokenCount")) for step in found] == [
        ("gemini-x", 101),
        ("gemini-x", 103),
        ("gemini-x", 105),
    ]
    assert [step.timestamp for step in found][0] == datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC)
    assert found[1].input is not None and found[1].input.messages == WHOLE[:3]
    assert (found[1].input.system, found[1].input.tools) == (SYSTEM, [{"functionDeclarations": []}])


def test_batch_and_names_of_python_are_read() -> None:
    said = {"role": "model", "parts": [{"text": None, "function_call": {"id": "c1", "name": "get", "args": {}}}]}
    request = {"key": "k-1", "request": {"contents": [{"parts": [{"text": "Warm?"}]}], "system_instruction": SYSTEM}}
    response = {"key": "k-1", "response": {"candidates": [{"content": said, "finish_reason": "STOP"}], "usage_metadata": {"prompt_token_count": 5, "candidates_token_count": 1}}}  # fmt: skip
    asked, answered = read(gemini_contents, lines([request, response]))[0]
    assert [(message.role, message.content) for message in asked.messages or ()] == [
        ("system", "Be kind."),
        ("user", "Warm?"),
    ]
    assert [(call.id, call.status) for call in calls(answered)] == [("c1", "pending")]
    assert [step.usage for step in steps((answered.messages or [])[0])] == [
        {"promptTokenCount": 5, "candidatesTokenCount": 1}
    ]
    assert ((asked.metadata or {})["key"], format_of(lines([request, response]))) == ("k-1", gemini_contents)


def test_refused_answer_has_failed() -> None:
    refused = {
        "candidates": [{"finishReason": "SAFETY"}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 0},
        "modelVersion": "m",
    }
    (message,) = messages_of(gemini_contents, refused)
    assert message.error == "SAFETY"


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read(gemini_contents, [{"contents": [*WHOLE[:1], 3]}, {"a": 1}])
    assert left_out == [("[1]", "neither contents nor an answer"), ("[0].contents[1]", "not an object")]
    _found, left_out = read(gemini_contents, [*WHOLE * 10, content("critic", {"text": "Bad."})])
    assert left_out == [("[60]", "the role is 'critic'; a role is one of user, model, function, system")]


@pytest.mark.parametrize("count", range(1, len(WHOLE)))
def test_grown_history_keeps_earlier_records(count: int) -> None:
    assert_grows(gemini_contents, WHOLE[:count], WHOLE)
    assert_grows(gemini_contents, LOG[:1], LOG)


@pytest.mark.parametrize("document", [LOG[1], {"contents": WHOLE}])
def test_values_of_any_type_are_read(document: object) -> None:
    assert_takes_any_type(gemini_contents, document)


@given(mangled([WHOLE, LOG, {"contents": WHOLE}]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, *(document if isinstance(document, list) else ())):
        if gemini_contents.recognises(form):
            read(gemini_contents, form)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"contents": "text"},
        [{"parts": [{"text": "no role"}]}],
        [content("assistant", {"text": "Hi"})],
        [content("user", {"type": "text", "text": "Hi"})],
        [content("user", "Hi")],
        {"candidates": [{"name": "Ada", "votes": 3}]},
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not gemini_contents.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(gemini_contents)
