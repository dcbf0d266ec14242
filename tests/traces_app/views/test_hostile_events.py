"""Events with any data: stored or refused with the path, never a server error."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sdk.tests.length import examples
from tracesite_sdk import records

from .conftest import Caller

WORDS = [
    *("uuid", "call_id", "toolCallId", "name", "toolName", "args", "params", "result", "error", "duration", "step"),
    *(
        "iteration",
        "parent",
        "stream",
        "thought",
        "text",
        "reasoning",
        "usage",
        "model",
        "agent_name",
        "status",
        "phase",
    ),
    *("workflow", "title", "prompt", "content", "success", "toolResult", "reflection", "agentNode", "streamId"),
    *("session", "metadata", "references", "request_id", "recorder", "truncated", "redactions", "tags", "end_user"),
    *("description", "dropped", "sampled_out", "path", "bytes", "rule", "score", "chunk_index", "sub_chunk_id", "type"),
]
TEXTS = st.one_of(
    st.text(max_size=6), st.sampled_from(["\x00", "\ud800", "{", '{"a": "\\u0000"}', "a" * 3000, "界" * 900, "a", "b"])
)
NUMBERS = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([10**30, -1, 1e300])
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.one_of(TEXTS, st.sampled_from(WORDS)), below, max_size=3)
    ),
    max_leaves=6,
)
# Recorders send special values, which are rarely drawn at random.
PATHS = st.one_of(
    TEXTS, st.sampled_from(["data.args.a", "data.prompt", "data.session.title", "data.session.", "data."])
)
SAID_BY_RECORDERS = st.fixed_dictionaries(
    {},
    optional={
        "session": st.dictionaries(st.sampled_from(WORDS), VALUES | st.lists(TEXTS, max_size=3), max_size=4),
        "references": st.lists(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=4) | VALUES, max_size=3),
        "recorder": st.dictionaries(st.sampled_from(["dropped", "failed", "truncated", "odd"]), VALUES, max_size=3),
        "truncated": st.lists(st.fixed_dictionaries({"path": PATHS, "bytes": NUMBERS}) | VALUES, max_size=3),
        "redactions": st.lists(st.fixed_dictionaries({"path": PATHS, "rule": TEXTS}) | VALUES, max_size=3),
        "prompt": st.lists(st.fixed_dictionaries({"type": TEXTS}, optional={"text": VALUES}), max_size=3),
        "result": st.lists(st.fixed_dictionaries({"type": TEXTS}, optional={"text": VALUES}) | TEXTS, max_size=3),
        "metadata": st.dictionaries(TEXTS, VALUES, max_size=3),
        "duration": NUMBERS,
    },
)
DATA = st.one_of(
    st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5),
    st.tuples(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=3), SAID_BY_RECORDERS).map(
        lambda both: both[0] | both[1]
    ),
)
EVENTS = st.fixed_dictionaries(
    {"session_id": st.sampled_from(["one", "two\x00", "\ud800"]), "type": st.sampled_from(get_args(records.EventType))},
    optional={"data": DATA, "agent": TEXTS, "id": TEXTS, "number": NUMBERS, "message_id": TEXTS, "extra": VALUES},
)
MONITOR = st.fixed_dictionaries(
    {
        "taskId": st.sampled_from(["one", "two"]),
        "type": st.sampled_from(["workflow", "prompt", "llm", "agent", "tool", "session"]),
        "payload": VALUES | DATA | st.fixed_dictionaries({"phase": st.sampled_from(["start", "complete", "error"])}),
        "ts": NUMBERS | st.just(1772366400000),
    }
)
EKO = st.fixed_dictionaries(
    {
        "taskId": st.sampled_from(["one", "two"]),
        "agentName": TEXTS,
        "nodeId": TEXTS,
        "type": st.sampled_from(
            [
                "text",
                "thinking",
                "tool_use",
                "tool_result",
                "finish",
                "agent_result",
                "agent_start",
                "workflow",
                "error",
            ]
            + ["debug_task_start", "debug_task_finished", "debug_tool_call_finished", "debug_plan_finished"]
        ),
    },
    optional=dict.fromkeys(
        ("toolId", "toolName", "params", "toolResult", "text", "streamId", "usage", "result", "error", "workflow"),
        VALUES,
    )
    | {"agentNode": VALUES, "timestamp": NUMBERS, "stopReason": VALUES, "duration": VALUES, "taskPrompt": VALUES},
)


@pytest.mark.parametrize(("path", "one"), [("events/", EVENTS), ("events/", MONITOR), ("eko/callbacks/", EKO)])
@settings(
    max_examples=examples(30),
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_event_is_stored_or_refused(owner: Caller, path: str, one: Any, data: st.DataObject) -> None:
    batch = data.draw(st.lists(one, min_size=1, max_size=4))
    sent = owner.post(path, json.dumps(batch).encode())
    assert sent.status in (200, 400), sent.json
    if sent.status == 400:
        assert sent.json["error"]["code"] in ("invalid", "invalid_json", "invalid_input"), sent.json
