"""States of runs of the OpenAI Agents SDK: approvals, hand-offs, hosted tools, both spellings, and growth."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import openai_run_state
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.normalize.pricing import Tokens, tokens_of

from .reading import (
    assert_grows,
    assert_takes_any_type,
    assert_takes_no_other,
    calls,
    figures,
    has_failed,
    lines,
    mangled,
    only,
    read,
    steps,
)


def function_call(own: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{own}",
        "call_id": own,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def said(own: str, text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "id": own,
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def output(own: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": own, "output": text}


def item(kind: str, raw: dict[str, Any], agent: str) -> dict[str, Any]:
    return {"type": kind, "raw_item": raw, "agent": {"name": agent}}


def response(number: int, *items: Any, given: int = 100, cached: int = 60, made: int = 10) -> dict[str, Any]:
    usage = {
        "requests": 1,
        "input_tokens": given,
        "output_tokens": made,
        "total_tokens": given + made,
        "input_tokens_details": [{"cached_tokens": cached}],
        "output_tokens_details": [{"reasoning_tokens": 4}],
    }
    return {"usage": usage, "output": list(items), "response_id": f"resp_{number}", "request_id": None}


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Two cities."}]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "Oslo"}}
OSLO, ROME = function_call("c1", "get", '{"city": "Oslo"}'), function_call("c2", "get", '{"city": "Rome"}')
MOVE, DROP = function_call("c3", "transfer_to_writer", "{}"), function_call("c4", "drop", '{"table": "a"}')
RESPONSES = [
    response(1, THOUGHT, said("m1", "I look."), OSLO, ROME),
    response(2, SEARCH, MOVE, given=200),
    response(3, DROP, given=300),
    response(4, said("m2", "Oslo is."), given=400, cached=0),
]
ITEMS = [
    item("reasoning_item", THOUGHT, "Clerk"),
    item("message_output_item", RESPONSES[0]["output"][1], "Clerk"),
    item("tool_call_item", OSLO, "Clerk"),
    item("tool_call_item", ROME, "Clerk"),
    item("tool_call_output_item", output("c2", "An error occurred while running the tool. no station"), "Clerk"),
    item("tool_call_output_item", output("c1", "12 degrees"), "Clerk"),
    item("tool_call_item", SEARCH, "Clerk"),
    item("handoff_call_item", MOVE, "Clerk"),
    item("handoff_output_item", output("c3", '{"assistant": "Writer"}'), "Clerk"),
    item("tool_call_item", DROP, "Writer"),
    item("tool_call_output_item", output("c4", "Tool execution was not approved."), "Writer"),
    item("message_output_item", RESPONSES[3]["output"][0], "Writer"),
]
EARLIER = [
    {"role": "user", "content": "Hi"},
    said("m0", "Hello."),
    {"role": "user", "content": [{"type": "input_text", "text": "Is it warm?"}]},
]


def state(responses: int = 4, items: int = 12, **fields: Any) -> dict[str, Any]:
    whole = {
        "$schemaVersion": "1.13",
        "current_turn": responses,
        "max_turns": 10,
        "current_agent": {"name": "Writer"},
        "original_input": EARLIER,
        "model_responses": RESPONSES[:responses],
        "generated_items": ITEMS[:items][6:],
        "session_items": ITEMS[:items],
        "current_step": None,
        "last_model_response": RESPONSES[responses - 1],
        "last_processed_response": {"new_items": ITEMS[:1]},
        "context": {"usage": {"input_tokens": 1000}, "approvals": {}, "context": {"user": "ada"}},
        "trace": {"id": "trace_1", "workflow_name": "Weather", "group_id": None},
    }
    return {**whole, **fields}


WAITING = {"type": "next_step_interruption", "data": {"interruptions": [item("tool_approval_item", DROP, "Writer")]}}


def camel(value: Any) -> Any:
    """Return a value as the SDK for JavaScript writes it. Types are kept."""
    if isinstance(value, dict):
        return {
            re.sub(r"_([a-z])", lambda found: found[1].upper(), name): camel(inner) for name, inner in value.items()
        }
    return list(map(camel, value)) if isinstance(value, list) else value


def test_full_state_gives_expected_records() -> None:
    session = only(openai_run_state, state())
    assert (session.external_id, session.title, session.status) == ("trace_1", "Hi", None)
    assert (session.metadata or {})["current_agent"] == {"name": "Writer"}
    messages = session.messages or []
    assert [(message.role, message.content) for message in messages] == [
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Is it warm?"),
        ("assistant", "Oslo is."),
    ]
    first, second, third, last = steps(messages[3])
    assert (first.thought, first.reasoning_content, first.agent_name, third.agent_name) == (
        "I look.",
        "Two cities.",
        "Clerk",
        "Writer",
    )
    assert [tokens_of(step.usage) for step in (first, second, third, last)] == [
        Tokens(40, 60, 0, 6, 4),
        Tokens(140, 60, 0, 6, 4),
        Tokens(240, 60, 0, 6, 4),
        Tokens(400, 0, 0, 6, 4),
    ]
    oslo, rome, search, move, drop = calls(session)
    assert isinstance(oslo.result, records.ToolResult) and oslo.result.output == "12 degrees"
    assert [(call.id, has_failed(call)) for call in (oslo, rome, search, move, drop)] == [
        ("c1", False),
        ("c2", True),
        ("ws_1", False),
        ("c3", False),
        ("c4", False),
    ]


def test_sample_matches_counts_made_by_hand() -> None:
    counts = figures([only(openai_run_state, state())])
    assert (counts["user"], counts["tool_calls_by_name"]) == (
        2,
        {"get": 2, "web_search": 1, "transfer_to_writer": 1, "drop": 1},
    )
    assert (counts["tool_results"], counts["calls_without_result"], counts["results_without_call"]) == (5, 0, 0)


def test_waiting_for_an_approval_is_a_pause() -> None:
    waiting = only(openai_run_state, state(3, 10, current_step=WAITING))
    assert (waiting.status, [call.status for call in calls(waiting)][-1]) == ("paused", "pending")
    done = state(context={"approvals": {"drop": {"approved": False, "rejected": ["c4"]}}})
    assert only(openai_run_state, done).status == "completed"


@pytest.mark.parametrize(
    "document", [camel(state()), [state()], lines([state()]), state(session_items=None, generated_items=ITEMS)]
)
def test_every_form_gives_the_same_calls(document: object) -> None:
    found, expected = only(openai_run_state, document), only(openai_run_state, state())
    assert [(call.id, call.name, call.args, call.status) for call in calls(found)] == [
        (call.id, call.name, call.args, call.status) for call in calls(expected)
    ]
    assert [[tokens_of(step.usage) for step in steps(message)] for message in found.messages or ()] == [
        [tokens_of(step.usage) for step in steps(message)] for message in expected.messages or ()
    ]


def test_input_of_an_earlier_run_is_read_once() -> None:
    earlier = [{"role": "user", "content": "Is it warm?"}, OSLO, output("c1", "12 degrees"), said("m1", "Yes.")]
    session = only(openai_run_state, state(1, 6, original_input=[*earlier, {"role": "system", "content": "Be kind."}]))
    assert [call.id for call in calls(session)] == ["c1", "c2"]
    assert [message.role for message in session.messages or ()] == ["user", "assistant", "system"]


def test_first_version_without_items_and_trace_is_read() -> None:
    document = {
        "$schemaVersion": "1.0",
        "current_agent": {"name": "a"},
        "original_input": "Hi",
        "model_responses": [response(1, said("m", "Hello."))],
    }
    session = only(openai_run_state, document)
    assert [message.content for message in session.messages or ()] == ["Hi", "Hello."]
    assert session.external_id is not None and session.external_id.startswith("transcript-")


def test_invalid_parts_are_reported_with_their_places() -> None:
    odd = state(1, original_input=[3, *EARLIER], model_responses=[*RESPONSES[:1], 4])
    _found, left_out = read(
        openai_run_state,
        [odd, state(original_input=[], model_responses=[], session_items=[], generated_items=[]), {"a": 1}],
    )
    assert left_out == [
        ("[0].original_input[0]", "not an object"),
        ("[0].model_responses[1]", "not an object"),
        ("[1]", "no user or assistant message"),
        ("[2]", "not the state of a run"),
    ]


@pytest.mark.parametrize(("responses", "items"), [(1, 3), (1, 5), (1, 6), (2, 8), (2, 9), (3, 10), (3, 11)])
def test_grown_state_keeps_earlier_records(responses: int, items: int) -> None:
    assert_grows(openai_run_state, state(responses, items), state())


def test_values_of_any_type_are_read() -> None:
    assert_takes_any_type(openai_run_state, state(2, 9))


@given(mangled([state(), camel(state())]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, *(document if isinstance(document, list) else ())):
        if openai_run_state.recognises(form):
            read(openai_run_state, form)


@pytest.mark.parametrize(
    "document", [None, [], {"$schemaVersion": 1}, {"current_agent": {"name": "a"}, "model_responses": []}, EARLIER]
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not openai_run_state.recognises(document)
    assert format_of(document) is not openai_run_state


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(openai_run_state)
