"""ATIF: steps, observations with and without a call, sub-agents, and the counts of real files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import atif
from tracesite_sdk.formats.registry import format_of

from .reading import (
    assert_grows,
    assert_takes_no_other,
    calls,
    counted,
    figures,
    lines,
    load,
    mangled,
    only,
    read,
    steps,
)


def trajectory(*own_steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "s-1",
        "agent": {"name": "coder", "version": "1", "model_name": "m-1"},
        "steps": [{"step_id": number, **step} for number, step in enumerate(own_steps, start=1)],
        **fields,
    }


def call(id_: str, name: str = "bash") -> dict[str, Any]:
    return {"tool_call_id": id_, "function_name": name, "arguments": {"cmd": "ls"}}


SYSTEM = {"source": "system", "message": "You code."}
USER = {"source": "user", "timestamp": "2025-01-20T10:00:00Z", "message": [{"type": "text", "text": "Go"}, {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]}  # fmt: skip
CALLS = {
    "source": "agent",
    "timestamp": "2025-01-20T10:00:02",
    "message": "I look.",
    "model_name": "m-2",
    "reasoning_content": "Hm.",
    "reasoning_effort": "high",
    "tool_calls": [call("c1"), call("c2", "read")],
    "observation": {"results": [{"source_call_id": "c1", "content": "a.py"}, {"source_call_id": "c2"}]},
    "metrics": {"prompt_tokens": 9, "completion_tokens": 2, "cost_usd": 0.1, "logprobs": [-0.1]},
}
DONE = {"source": "agent", "message": "Done."}
WHOLE = trajectory(SYSTEM, USER, CALLS, DONE, final_metrics={"total_prompt_tokens": 9})


def test_audio_of_version_1_8_is_an_attachment_and_no_text() -> None:
    audio = {"type": "audio", "source": {"media_type": "audio/mp3", "path": "a.mp3", "duration_sec": 2.5}}
    prompt = {"source": "user", "message": [{"type": "text", "text": "Listen"}, audio]}
    heard = {**CALLS, "observation": {"results": [{"source_call_id": "c1", "content": [{"type": "text", "text": "ok"}, audio]}]}}  # fmt: skip
    answer = {"source": "agent", "message": [{"type": "text", "text": "Heard."}, audio]}
    session = only(atif, trajectory(prompt, heard, answer, schema_version="ATIF-v1.8"))
    question, reply = session.messages or []
    assert (question.content, reply.content) == (prompt["message"], answer["message"])
    result = calls(session)[0].result
    assert isinstance(result, records.ToolResult)
    assert (result.output, result.attachments) == ("ok", [audio])


def test_full_trajectory_gives_expected_records() -> None:
    session = only(atif, WHOLE)
    assert session.external_id == "s-1"
    system, question, answer = session.messages or []
    assert (system.role, system.content, question.content) == ("system", "You code.", USER["message"])
    assert question.created_at == datetime(2025, 1, 20, 10, tzinfo=UTC)
    assert (answer.external_id, answer.content, answer.health) == ("3", "Done.", ["naive_time"])
    step, last = steps(answer)
    assert (last.thought, last.model, last.usage, last.agent_name) == (None, "m-1", None, "coder")
    assert (step.thought, step.reasoning_content, step.model, step.agent_name) == ("I look.", "Hm.", "m-2", "coder")
    assert step.usage == {"prompt_tokens": 9, "completion_tokens": 2, "cost_usd": 0.1}
    assert step.metadata == {"reasoning_effort": "high", "metrics": {"logprobs": [-0.1]}}
    assert [(call.id, call.name, call.args) for call in step.tool_calls or ()] == [
        ("c1", "bash", {"cmd": "ls"}),
        ("c2", "read", {"cmd": "ls"}),
    ]
    outputs = [call.result.output for call in step.tool_calls or () if isinstance(call.result, records.ToolResult)]
    assert outputs == ["a.py", ""]
    metadata = session.metadata or {}
    assert (metadata["agent"]["version"], metadata["final_metrics"]) == ("1", {"total_prompt_tokens": 9})


@pytest.mark.parametrize(
    ("call_ids", "results", "expected"),
    [
        (["c1"], [{"content": "x"}], [("c1", "x")]),
        (["c1", "c2"], [{"content": "x"}, {"content": "y"}], [("c1", "x"), ("c2", "y")]),
        (["c1", "c2"], [{"content": "x"}], [("c1", "x"), ("c2", "x")]),
        (["c1", "c2"], [{"source_call_id": "c2", "content": "y"}, {"content": "x"}], [("c1", "x"), ("c2", "y")]),
        ([], [{"content": "x"}], [(None, "x")]),
        (["c1"], [{"source_call_id": "c9", "content": "x"}], [("c1", None), ("c9", "x")]),
    ],
)
def test_result_without_call_id_answers_calls_of_its_step(
    call_ids: list[str], results: list[dict[str, Any]], expected: list[Any]
) -> None:
    step = {**CALLS, "tool_calls": [call(id_) for id_ in call_ids], "observation": {"results": results}}
    actual = [
        (item.id, item.result.output if isinstance(item.result, records.ToolResult) else None)
        for item in calls(only(atif, trajectory(USER, step)))
    ]
    assert actual == expected


@pytest.mark.parametrize(
    ("extra", "failed"), [({}, None), ({"extra": {"is_error": True}}, True), ({"extra": {"is_error": False}}, False)]
)
def test_result_is_error_extra_decides_failure(extra: dict[str, Any], failed: bool | None) -> None:
    step = {**CALLS, "observation": {"results": [{"source_call_id": "c1", "content": "Error: x", **extra}]}}
    (transcript,) = atif.transcripts(trajectory(USER, step), lambda where, why: None)
    assert [getattr(entry, "failed", "no result") for entry in transcript.entries()] == [
        "no result",
        "no result",
        failed,
    ]


@pytest.mark.parametrize("mark", [{"is_copied_context": True}, {"llm_call_count": 0}])
def test_step_without_request_has_no_model_and_no_usage(mark: dict[str, Any]) -> None:
    (_question, answer) = only(atif, trajectory(USER, {**CALLS, **mark}, {**DONE, "llm_call_count": 1})).messages or ()
    step, last = steps(answer)
    assert (step.model, step.usage, last.model) == (None, None, "m-1")
    assert step.metadata == {"reasoning_effort": "high", **mark, "metrics": CALLS["metrics"], "model_name": "m-2"}


def test_sub_agent_steps_are_below_their_call() -> None:
    child = trajectory(
        {"source": "user", "message": "Summarise."},
        {
            **CALLS,
            "tool_calls": [call("c1")],
            "observation": {"results": [{"source_call_id": "c1", "content": "below"}]},
        },
        session_id="s-1",
        trajectory_id="t-2",
        agent={"name": "reader", "version": "2"},
    )
    asks = {
        "source": "agent",
        "message": "",
        "tool_calls": [call("c1", "delegate")],
        "observation": {
            "results": [
                {"source_call_id": "c1", "content": "above", "subagent_trajectory_ref": [{"trajectory_id": "t-2"}]}
            ]
        },
    }
    session = only(atif, trajectory(USER, asks, DONE, subagent_trajectories=[child]))
    (_question, answer) = session.messages or []
    actual = [
        (step.agent_name, item.name, item.parent is not None, item.result.output)
        for step in steps(answer)
        for item in step.tool_calls or ()
        if isinstance(item.result, records.ToolResult)
    ]
    assert actual == [("coder", "delegate", False, "above"), ("reader", "bash", True, "below")]
    metadata = next(step.metadata for step in steps(answer) if step.agent_name == "reader") or {}
    assert metadata["said"] == [{"role": "user", "content": "Summarise."}]
    assert metadata["trajectory"]["agent"] == {"name": "reader", "version": "2"}


def test_sub_agent_without_reference_is_a_session() -> None:
    child = trajectory(USER, DONE, trajectory_id="t-2")
    sessions, left_out = read(atif, trajectory(USER, DONE, subagent_trajectories=[child, 3]))
    assert [session.external_id for session in sessions] == ["s-1", "s-1/t-2"]
    assert left_out == [("subagent_trajectories[1]", "not a trajectory: no list of steps")]


@pytest.mark.parametrize(
    "document",
    [
        [WHOLE, trajectory(USER, session_id="s-2")],
        {"a": WHOLE, "b": trajectory(USER, session_id="s-2")},
        lines([WHOLE, trajectory(USER, session_id="s-2")]),
    ],
    ids=["list", "object", "lines"],
)
def test_several_trajectories_in_document_are_sessions(document: object) -> None:
    assert format_of(document) is atif
    sessions, left_out = read(atif, document)
    assert ([session.external_id for session in sessions], left_out) == (["s-1", "s-2"], [])


def test_invalid_parts_are_reported_with_their_places() -> None:
    odd = trajectory(USER, {"source": "critic"}, {**CALLS, "tool_calls": [3], "observation": {"results": [4]}})
    odd["steps"].append(5)
    sessions, left_out = read(atif, [odd, {"steps": []}])
    assert len(sessions) == 1
    assert sorted(left_out) == [
        ("[0].steps[1]", "the source is 'critic'; it is one of system, user, agent"),
        ("[0].steps[2].observation.results[0]", "not an object"),
        ("[0].steps[2].tool_calls[0]", "not an object"),
        ("[0].steps[3]", "not an object"),
        ("[1]", "not a trajectory: no list of steps, or no schema_version that starts with ATIF"),
    ]


@pytest.mark.parametrize("document", [None, {}, {"steps": []}, {"steps": [{"step_id": 1}], "agent": {}}, [3]])
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not atif.recognises(document)


@given(st.integers(2, 4))
def test_grown_trajectory_keeps_earlier_records(count: int) -> None:
    assert_grows(atif, {**WHOLE, "steps": WHOLE["steps"][:count]}, WHOLE)


@given(mangled(WHOLE))
def test_read_mangled_document_never_raises(document: object) -> None:
    if atif.recognises(document):
        for session in read(atif, document)[0]:
            assert session.external_id


@pytest.mark.parametrize(
    "name",
    [
        "harbor_openhands.json",
        "harbor_terminus2_timeout.json",
        "parallel_tools_mixed_results.json",
        "subagent_trajectories.json",
    ],
)
def test_real_files_match_independent_counts(name: str) -> None:
    expected = counted(f"atif/{name}")
    document = load(SHARED / "atif" / name)
    assert format_of(document) is atif
    sessions, left_out = read(atif, document)
    assert left_out == []
    if name == "harbor_terminus2_timeout.json":
        # The count matches by id, and these results have none: each belongs to the only call of its step.
        expected |= {"calls_without_result": 0}
    assert figures(sessions) == expected


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(atif, "atif")
