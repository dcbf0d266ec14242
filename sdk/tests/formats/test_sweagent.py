"""SWE-agent: conversations with and without function calling, the outcome of actions, and the counts of real files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import sweagent
from tracesite_sdk.formats.registry import format_of

from .reading import assert_grows, assert_takes_no_other, counted, figures, lines, load, mangled, only, read

SYSTEM = {"role": "system", "content": "You code.", "agent": "main", "message_type": "system_prompt"}
USER = {"role": "user", "content": "Fix it.", "agent": "main"}
CALLS: dict[str, Any] = {
    "role": "assistant",
    "content": "I look.",
    "thought": "I look.",
    "action": "ls",
    "agent": "main",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}],
    "thinking_blocks": [{"type": "thinking", "thinking": "Hm."}],
}
RESULT = {"role": "tool", "content": "a.py", "agent": "main", "tool_call_ids": ["c1"]}
STEP = {"action": "ls", "observation": "a.py", "thought": "I look.", "execution_time": 0.25, "state": {"dir": "/"}}
RUN: dict[str, Any] = {
    "environment": "main",
    "history": [SYSTEM, USER, CALLS, RESULT],
    "trajectory": [STEP],
    "info": {"exit_status": "submitted"},
}


def test_reply_has_duration_and_state_of_its_action() -> None:
    session = only(sweagent, RUN)
    assert sorted(session.metadata or {}) == ["environment", "import_digests", "import_format", "info"]
    assert (session.messages or [])[2].agent_steps == [
        records.AgentStep(
            iteration=0,
            thought="I look.",
            reasoning_content="Hm.",
            agent_name="main",
            tool_calls=[
                records.ToolCall(
                    id="c1",
                    name="bash",
                    args='{"command": "ls"}',
                    duration=250.0,
                    result=records.ToolResult(output="a.py", metadata={"agent": "main"}),
                )
            ],
            metadata={"action": "ls", "execution_time": 0.25, "state": {"dir": "/"}},
        )
    ]


def test_actions_without_function_calling_are_messages() -> None:
    reply = {"role": "assistant", "content": "I look.\n```\nls\n```", "thought": "I look.", "action": "ls\n"}
    seen = {"role": "user", "content": "a.py"}
    session = only(sweagent, RUN | {"history": [SYSTEM, USER, reply, seen]})
    assert [(message.role, message.content) for message in session.messages or ()] == [
        ("system", "You code."),
        ("user", "Fix it."),
        ("assistant", "I look.\n```\nls\n```"),
        ("user", "a.py"),
    ]
    assert (session.messages or [])[2].metadata == {
        "thought": "I look.",
        "action": "ls\n",
        "execution_time": 0.25,
        "state": {"dir": "/"},
    }


def test_demonstration_is_no_step() -> None:
    demo = CALLS | {"is_demo": True}
    (_system, _user, answer) = only(sweagent, RUN | {"history": [SYSTEM, USER, demo, CALLS, RESULT]}).messages or []
    assert [(step.metadata or {}).get("state") for step in answer.agent_steps or ()] == [None, {"dir": "/"}]


def test_reply_without_content_is_read() -> None:
    (_system, _user, answer) = (
        only(sweagent, {"history": [SYSTEM, USER, {"role": "assistant", "content": None}]}).messages or []
    )
    assert (answer.content, answer.agent_steps) == (None, [])


def test_trajectory_other_than_history_is_metadata() -> None:
    session = only(sweagent, RUN | {"trajectory": [STEP, STEP]})
    assert (session.metadata or {})["trajectory"] == [STEP, STEP]


@pytest.mark.parametrize(
    ("exit_status", "status"), [("submitted", None), ("exit_error", "error"), ("exit_cost", None), (3, None)]
)
def test_run_with_error_status_has_failed(exit_status: object, status: str | None) -> None:
    (transcript,) = sweagent.transcripts(RUN | {"info": {"exit_status": exit_status}}, lambda where, why: None)
    assert transcript.status == status


@pytest.mark.parametrize("document", [[RUN, RUN], lines([RUN, RUN])], ids=["list", "lines"])
def test_several_runs_in_document_are_sessions(document: object) -> None:
    assert format_of(document) is sweagent
    sessions, left_out = read(sweagent, document)
    assert (len({session.external_id for session in sessions}), left_out) == (2, [])


def test_invalid_parts_are_reported_with_their_places() -> None:
    odd = [SYSTEM, USER, {"role": "critic", "content": "x"}, {**CALLS, "tool_calls": [3]}, RESULT, *[DONE] * 16, 5]
    _found, left_out = read(sweagent, [RUN | {"history": odd}, {"history": 1}])
    assert left_out == [
        ("[0].history[2]", "the role is 'critic'; a role is one of system, user, assistant, tool"),
        ("[0].history[3].tool_calls[0]", "not an object"),
        ("[0].history[21]", "not an object"),
        ("[1]", "no history of messages"),
    ]


DONE = {"role": "assistant", "content": "Done."}


@pytest.mark.parametrize(
    "document",
    [None, [], {"history": []}, {"history": [{"action": "run", "args": {}}]}, {"messages": [USER], "history": [USER]}],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not sweagent.recognises(document)


@given(st.integers(2, 4))
def test_grown_run_keeps_earlier_records(count: int) -> None:
    start = {"history": RUN["history"][:count], "trajectory": RUN["trajectory"][: max(count - 2, 0)]}
    assert_grows(sweagent, start, RUN)


@given(mangled(RUN))
def test_read_mangled_document_never_raises(document: object) -> None:
    if sweagent.recognises(document):
        for session in read(sweagent, document)[0]:
            assert session.external_id


@pytest.mark.parametrize(
    "name", ["ctf_katy_no_function_calling", "function_calling_simple", "marshmallow-1867_function_calling_replace"]
)
def test_real_files_match_independent_counts(name: str) -> None:
    expected = counted(f"openai_chat/sweagent_{name}.traj")
    document = load(SHARED / "openai_chat" / f"sweagent_{name}.traj")
    assert format_of(document) is sweagent
    sessions, left_out = read(sweagent, document)
    assert left_out == []
    assert figures(sessions) == expected


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(sweagent, ".traj")
