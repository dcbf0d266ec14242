"""The split of event data into its own part and contexts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk.events.contexts import IDENTIFYING, MOST, Context, apart, with_fields
from tracesite_sdk.records import pg_text

SYSTEM = {"role": "system", "content": "Be kind."}
QUESTION = {"role": "user", "content": "天气?"}


def kept(type_: str, data: dict[str, Any]) -> tuple[dict[str, Any], list[Context]]:
    encoded, contexts = apart(type_, data)
    return json.loads(encoded), contexts


def value_of(context: Context) -> Any:
    return json.loads(context.content)["value"]


def test_event_of_prompt_keeps_kind_length_and_reference() -> None:
    data, (context,) = kept("prompt_build", {"agentId": "n1", "role": "system", "text": "Be kind. 你好"})
    assert data == {"agentId": "n1", "kind": "system", "length": 11, "contextRef": context.ref}
    assert (context.kind, json.loads(context.content), context.length) == ("prompt", {"text": "Be kind. 你好"}, 11)
    assert kept("prompt_build", {"kind": "user", "text": ""})[0] == {"kind": "user", "length": 0}
    assert kept("prompt_build", {"kind": "user", "length": 120}) == ({"kind": "user", "length": 120}, [])
    parts = [{"type": "text", "text": "Hello"}]
    data, (context,) = kept("prompt_build", {"prompt": parts})
    assert (data["length"], json.loads(context.content)) == (
        len(json.dumps(parts, separators=(",", ":"))),
        {"text": parts},
    )
    assert kept("agent_start", {"text": "Be kind."}) == ({"text": "Be kind."}, [])


@pytest.mark.parametrize("name", ["conversation", "messages", "currentMessages"])
def test_conversation_and_variables_are_one_context(name: str) -> None:
    said = {"step": "s1", "model": "gpt", name: [SYSTEM, QUESTION], "variables": {"city": "上海", "days": 3}}
    data, (context,) = kept("llm_request_start", said)
    assert data == {
        "step": "s1",
        "model": "gpt",
        "conversationLength": 2,
        "variableNames": ["city", "days"],
        "contextRef": context.ref,
    }
    assert (context.kind, context.length) == ("context", 2)
    assert json.loads(context.content) == {"variables": {"city": "上海", "days": 3}}
    assert [value_of(entry) for entry in context.entries or ()] == [SYSTEM, QUESTION]
    assert said[name] == [SYSTEM, QUESTION]


def test_conversation_that_grew_shares_its_entries() -> None:
    first, longer = (
        kept("llm_request_start", {"messages": messages})[1][0] for messages in ([SYSTEM], [SYSTEM, QUESTION])
    )
    assert first.kind == longer.kind == "conversation"
    assert first.ref != longer.ref
    assert (first.entries or ())[0] == (longer.entries or ())[0]


def test_messages_of_request_become_a_context() -> None:
    data, (context,) = kept("llm_request_start", {"request": {"model": "gpt", "messages": [QUESTION]}})
    assert data == {"request": {"model": "gpt"}, "conversationLength": 1, "contextRef": context.ref}


def test_reference_depends_on_content_only() -> None:
    said: list[tuple[str, dict[str, Any]]] = [
        ("prompt_build", {"text": "a"}),
        ("prompt_build", {"text": ["a"]}),
        ("agent_start", {"messages": ["a"]}),
        ("agent_start", {"messages": ["a", "a"]}),
        ("agent_start", {"variables": {"text": "a"}}),
        ("agent_start", {"messages": ["a"], "variables": {"text": "a"}}),
        ("agent_start", {"x": {"text": "a" * MOST}}),
    ]
    refs = [kept(type_, data)[1][0].ref for type_, data in said]
    assert len(set(refs)) == len(refs)
    assert refs == [kept(type_, dict(data))[1][0].ref for type_, data in said]
    (whole,) = kept("agent_start", {"messages": ["a"]})[1]
    assert not {entry.ref for entry in whole.entries or ()} & set(refs)


def test_small_data_is_unchanged() -> None:
    for data in (
        {},
        {"messages": [], "variables": {}},
        {"messages": "none", "variables": [1]},
        {"a": "x" * (MOST - 10)},
    ):
        assert kept("tool_call_complete", data) == (data, [])


def test_largest_fields_of_large_data_become_contexts() -> None:
    said = {"call_id": "c1", "name": "fetch", "args": {"url": "u" * 2000}, "result": "上" * MOST, "duration": 7}
    data, (context,) = kept("tool_call_complete", said)
    assert data == {
        "call_id": "c1",
        "name": "fetch",
        "args": said["args"],
        "duration": 7,
        "contextRefs": {"result": {"contextRef": context.ref, "bytes": 3 * MOST + 2, "beginning": "上" * 200}},
    }
    assert (context.kind, value_of(context), context.length) == ("value", said["result"], 3 * MOST + 2)
    assert with_fields(data, {context.ref: value_of(context)}).items() >= said.items()


def test_identifying_fields_stay_however_long() -> None:
    said = {"step": "s" * 2 * MOST, "call_id": "c" * 2 * MOST, "many": list(range(MOST))}
    data, (context,) = kept("tool_call_start", said)
    assert (data["step"], data["call_id"]) == (said["step"], said["call_id"])
    assert value_of(context) == said["many"]


def test_foreign_references_change_nothing() -> None:
    for said in ({"contextRefs": 1}, {"contextRefs": {"a": 1}}, {"contextRefs": {"a": {"contextRef": [1]}}}):
        assert with_fields(said, {"ctx_1": "mine"}) == said
    said = {"a": "own", "contextRefs": {"a": {"contextRef": "ctx_1"}, "b": {"contextRef": "ctx_2"}}}
    assert with_fields(said, {"ctx_1": "mine"}) == said


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text()
    | st.text(min_size=1, max_size=3).map(lambda t: t * MOST),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["args", "result", "thought", "workflow", "x", "step", "messages"]) | st.text(), VALUES
    )
)
def test_moved_fields_are_put_back(said: dict[str, Any]) -> None:
    said.pop("contextRefs", None)
    encoded, contexts = apart("tool_call_start", said)
    data = json.loads(encoded)
    values = {context.ref: value_of(context) for context in contexts if context.kind == "value"}
    back = with_fields(data, values)
    wanted = json.loads(pg_text.json(said))
    taken = {name for name in wanted if name not in back}
    assert taken <= {"messages", "request", "variables", "conversation", "currentMessages"}
    assert {name: value for name, value in back.items() if name in wanted and name != "request"} == {
        name: value for name, value in wanted.items() if name not in taken and name != "request"
    }
    left = [name for name, value in data.items() if name not in IDENTIFYING and len(json.dumps(value)) > MOST * 8]
    assert left == []
