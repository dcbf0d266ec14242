"""Inspect AI's evaluation logs: messages, attachments, facts in events, both containers, and the counts of real files."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import inspect_ai
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.normalize.records import MOST_PUT_IN_MESSAGE
from tracesite_sdk.transcripts.documents import Files, Unreadable

from .reading import assert_grows, assert_takes_no_other, calls, counted, figures, load, mangled, only, read, steps

PNG = "data:image/png;base64,iVBORw0KGgo="


def sample(**fields: Any) -> dict[str, Any]:
    return {"id": "task-1", "epoch": 1, "uuid": "U1", "input": "Go", "target": "42", **fields}


def log(*samples: dict[str, Any], **fields: Any) -> dict[str, Any]:
    spec = {
        "eval_id": "E",
        "run_id": "R",
        "created": "2025-05-12T20:00:00+00:00",
        "task": "counting",
        "task_id": "T",
        "dataset": {"name": "d", "sample_ids": ["task-1"]},
        "model": "mock/model",
    }
    return {"version": 2, "status": "success", "eval": spec, "samples": list(samples), **fields}


def model_event(message: dict[str, Any], minute: int, **fields: Any) -> dict[str, Any]:
    return {
        "event": "model",
        "timestamp": f"2025-05-12T20:{minute:02}:00+00:00",
        "completed": f"2025-05-12T20:{minute:02}:01.5+00:00",
        "model": "mock/model",
        "input": [{"role": "user", "content": "Go"}],
        "tools": [{"name": "bash"}],
        "output": {
            "model": "model-1",
            "choices": [{"message": message, "stop_reason": "stop"}],
            "usage": {"input_tokens": 10, "output_tokens": 2},
        },
        **fields,
    }


USER = {"id": "m0", "role": "user", "source": "input", "content": "Go"}
CALLS = {
    "id": "m1",
    "role": "assistant",
    "content": [
        {"type": "reasoning", "reasoning": "Let me see.", "signature": "s"},
        {"type": "text", "text": "I look."},
    ],
    "tool_calls": [{"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}, "type": "function"}],
    "model": "model-1",
}
FAILED = {
    "id": "m2",
    "role": "tool",
    "content": "",
    "tool_call_id": "c1",
    "function": "bash",
    "error": {"type": "timeout", "message": "Command timed out."},
}
DONE = {"id": "m3", "role": "assistant", "content": "42", "model": "model-1"}
TOOL_EVENT = {
    "event": "tool",
    "id": "c1",
    "function": "bash",
    "arguments": {"cmd": "ls"},
    "timestamp": "2025-05-12T20:01:02+00:00",
    "completed": "2025-05-12T20:01:05+00:00",
}
WHOLE = log(
    sample(
        messages=[USER, CALLS, FAILED, DONE],
        events=[model_event(CALLS, 1), TOOL_EVENT, model_event(DONE, 2), {"event": "score", "score": {"value": "C"}}],
        output={"model": "model-1", "choices": [{"message": DONE, "stop_reason": "stop"}], "time": 1.5},
        scores={"match": {"value": "C"}},
        started_at="2025-05-12T20:00:30+00:00",
    ),
    results={"total_samples": 1},
    reductions=[{"scorer": "match", "samples": [{"sample_id": "task-1", "value": 1.0}, {"sample_id": 2, "value": 0}]}],
)


def archive(members: dict[str, Any]) -> Files:
    def member(name: str) -> Any:
        if isinstance(members[name], Unreadable):
            raise members[name]
        return members[name]

    return Files(tuple(members), member)


def test_full_sample_gives_expected_records() -> None:
    session = only(inspect_ai, WHOLE)
    assert (session.external_id, session.title, session.status) == ("U1", "Go", session.status)
    question, answer = session.messages or []
    assert (question.role, question.external_id, question.content, question.metadata) == (
        "user",
        "m0",
        "Go",
        {"source": "input"},
    )
    assert (answer.external_id, answer.content) == ("m1", "42")
    step, last = steps(answer)
    assert (last.thought, last.usage) == (None, {"input_tokens": 10, "output_tokens": 2})
    asked = records.ModelInput(messages=[{"role": "user", "content": "Go"}], tools=[{"name": "bash"}])
    assert [step.input, last.input] == [asked, asked]
    assert (step.thought, step.reasoning_content, step.model) == ("I look.", "Let me see.", "model-1")
    assert step.metadata == {"reasoning": [{"signature": "s"}], "stop_reason": "stop"}
    (call,) = step.tool_calls or []
    assert (call.id, call.name, call.args, call.duration, call.status) == ("c1", "bash", {"cmd": "ls"}, 3000.0, "error")
    assert isinstance(call.result, records.ToolResult)
    assert (call.result.output, call.result.metadata) == (
        "Command timed out.",
        {"error": {"type": "timeout", "message": "Command timed out."}},
    )


def test_events_give_times_and_tokens() -> None:
    (transcript,) = inspect_ai.transcripts(WHOLE, lambda where, why: None)
    entries: list[Any] = list(transcript.entries())
    assert [entry.created_at for entry in entries] == [
        datetime(2025, 5, 12, 20, 0, 30, tzinfo=UTC),
        datetime(2025, 5, 12, 20, 1, tzinfo=UTC),
        datetime(2025, 5, 12, 20, 1, 5, tzinfo=UTC),
        datetime(2025, 5, 12, 20, 2, tzinfo=UTC),
    ]
    assert [entry.usage for entry in (entries[1], entries[3])] == [{"input_tokens": 10, "output_tokens": 2}] * 2
    assert [entry.duration for entry in (entries[1], entries[3])] == [1500.0, 1500.0]
    assert entries[1].calls[0].started_at == datetime(2025, 5, 12, 20, 1, 2, tzinfo=UTC)
    assert transcript.created_at == datetime(2025, 5, 12, 20, 0, 30, tzinfo=UTC)


def test_fields_outside_messages_are_metadata() -> None:
    metadata = dict(only(inspect_ai, WHOLE).metadata or {})
    model_event = {"event": "model", "model": "mock/model"}
    assert metadata.pop("events") == [
        {
            **model_event,
            "timestamp": "2025-05-12T20:01:00+00:00",
            "completed": "2025-05-12T20:01:01.5+00:00",
        },
        TOOL_EVENT,
        {**model_event, "timestamp": "2025-05-12T20:02:00+00:00", "completed": "2025-05-12T20:02:01.5+00:00"},
        {"event": "score", "score": {"value": "C"}},
    ]
    assert metadata.pop("eval")["dataset"] == {"name": "d"}
    assert metadata.pop("output") == {"model": "model-1", "time": 1.5}
    assert metadata.pop("reductions") == [{"scorer": "match", "samples": [{"sample_id": "task-1", "value": 1.0}]}]
    assert {key: value for key, value in metadata.items() if not key.startswith("import_")} == {
        "version": 2,
        "status": "success",
        "results": {"total_samples": 1},
        "id": "task-1",
        "epoch": 1,
        "target": "42",
        "scores": {"match": {"value": "C"}},
        "started_at": "2025-05-12T20:00:30+00:00",
    }


def test_event_of_another_model_is_kept_whole() -> None:
    grader = model_event({"id": "g1", "role": "assistant", "content": "Good."}, 3, input_refs=[[0, 1]])
    document = log(sample(messages=[USER, DONE], events=[grader], events_data={"messages": [USER]}))
    metadata = only(inspect_ai, document).metadata or {}
    assert (metadata["events"], metadata["events_data"]) == ([grader], {"messages": [USER]})


@pytest.mark.parametrize("times", [40, 400])
def test_references_are_resolved_up_to_a_limit(times: int) -> None:
    text = "x" * 2**20
    parts = [{"type": "text", "text": "attachment://a1"}] * times
    document = log(sample(messages=[{"role": "user", "content": parts}, DONE], attachments={"a1": text}))
    (session,), reports = read(inspect_ai, document)
    shown: Any = (session.messages or ())[0].content
    contents = [part["text"] for part in shown]
    put_in = min(times, MOST_PUT_IN_MESSAGE // len(text))
    assert (contents.count(text), contents.count("attachment://a1")) == (put_in, times - put_in)
    # What is left as it is can be looked up, and the report says so.
    assert (session.metadata or {}).get("attachments") == ({"a1": text} if times > put_in else None)
    assert len(reports) == (times > put_in)


def test_ranges_of_shared_messages_are_bounded() -> None:
    pool = [{"role": "user", "content": "x" * 1000}] * 100
    for ranges in ([[0, 100]] * 100, [[0, 10**9]] * 10_000):
        event = model_event(DONE, 3, input=[], input_refs=ranges)
        document = log(sample(messages=[USER, DONE], events=[event], events_data={"messages": pool}))
        (session,), reports = read(inspect_ai, document)
        asked = [step.input for message in session.messages or () for step in message.agent_steps or () if step.input]
        if len(ranges) == 100:
            assert [len(one.messages or ()) for one in asked] == [10_000]
            assert reports == []
        else:
            assert [one.messages for one in asked if one.messages] == []
            assert len(reports) == 1


def test_attachments_are_resolved_and_kept_for_events() -> None:
    image = {"type": "image", "image": "attachment://a1", "detail": "auto"}
    document = log(
        sample(
            input=[{"role": "user", "content": [image]}],
            messages=[
                {"role": "user", "content": [image]},
                {"role": "assistant", "content": "attachment://a2"},
                {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "Seen"}, image]},
            ],
            events=[{"event": "info", "data": "attachment://a2"}],
            attachments={"a1": PNG, "a2": "A long text.", "a3": "Nobody's."},
        )
    )
    session = only(inspect_ai, document)
    question, answer = session.messages or []
    assert question.content == [{**image, "image": PNG}]
    assert answer.content == "A long text."
    (call,) = calls(session)
    assert isinstance(call.result, records.ToolResult)
    assert (call.result.output, call.result.attachments) == ("Seen", [{**image, "image": PNG}])
    assert (session.metadata or {})["attachments"] == {"a2": "A long text.", "a3": "Nobody's."}
    assert "input" not in (session.metadata or {})


def test_tool_use_part_is_call_with_result() -> None:
    used = {"type": "tool_use", "tool_type": "web_search", "id": "w1", "name": "web_search", "arguments": '{"q": 1}'}
    parts = [
        {**used, "result": "found"},
        {**used, "id": "w2", "result": "", "error": "quota"},
        {"type": "text", "text": "So it is."},
        {"type": "reasoning", "reasoning": "c2VjcmV0", "redacted": True, "summary": "I searched."},
    ]
    session = only(inspect_ai, log(sample(messages=[USER, {"role": "assistant", "content": parts}])))
    (step,) = steps((session.messages or [])[1])
    assert (step.thought, step.reasoning_content) == ("So it is.", "I searched.")
    assert [(call.id, call.name, call.args, call.status) for call in step.tool_calls or ()] == [
        ("w1", "web_search", '{"q": 1}', "success"),
        ("w2", "web_search", '{"q": 1}', "error"),
    ]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, None),
        ({"error": {"message": "boom"}}, "error"),
        ({"limit": {"type": "operator", "limit": 1}}, "aborted"),
        ({"limit": {"type": "token", "limit": 99}}, None),
    ],
)
def test_halted_sample_has_error_or_aborted_status(fields: dict[str, Any], status: str | None) -> None:
    (transcript,) = inspect_ai.transcripts(log(sample(messages=[USER, DONE], **fields)), lambda where, why: None)
    assert transcript.status == status


def test_sample_without_messages_has_its_input() -> None:
    (message,) = only(inspect_ai, log(sample(error={"message": "no sandbox"}))).messages or []
    assert (message.role, message.content) == ("user", "Go")


def test_old_log_without_ids_and_events_is_read() -> None:
    old = sample(
        messages=[
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": "42"},
            {"role": "tool", "content": "no", "tool_call_id": "c9", "function": "bash", "tool_error": "no"},
        ],
        output={
            "model": "model-1",
            "choices": [{"message": {"role": "assistant", "content": "42"}}],
            "usage": {"input_tokens": 7},
        },
    )
    del old["uuid"]
    document = log(old)
    del document["eval"]["eval_id"]
    (transcript,) = inspect_ai.transcripts(document, lambda where, why: None)
    entries: list[Any] = list(transcript.entries())
    assert transcript.external_id == "R/T/task-1/1"
    assert [entry.id for entry in entries] == ["0", "1", "2"]
    assert (entries[1].usage, entries[1].model) == ({"input_tokens": 7}, "model-1")
    assert entries[2].failed is True
    assert transcript.created_at == datetime(2025, 5, 12, 20, tzinfo=UTC)


def test_archive_gives_the_same_as_a_log() -> None:
    header = {key: value for key, value in WHOLE.items() if key != "samples"}
    (whole,) = WHOLE["samples"]
    members = {
        "_journal/start.json": {},
        "samples/task-1_epoch_1.json": whole,
        "header.json": header,
        "summaries.json": [],
    }
    assert only(inspect_ai, archive(members)) == only(inspect_ai, WHOLE)


def test_sample_without_archive_is_the_same_session() -> None:
    whole, alone = only(inspect_ai, WHOLE), only(inspect_ai, WHOLE["samples"][0])
    assert (alone.external_id, alone.messages) == (whole.external_id, whole.messages)


def test_archive_of_running_evaluation_is_read() -> None:
    header = {key: WHOLE[key] for key in ("version", "eval")}
    document = archive(
        {
            "_journal/start.json": header,
            "samples/1_epoch_1.json": Unreadable("cut off"),
            "samples/2_epoch_1.json": WHOLE["samples"][0],
        }
    )
    assert format_of(document) is inspect_ai
    (session,), left_out = read(inspect_ai, document)
    assert session.messages == only(inspect_ai, WHOLE).messages
    assert left_out == [("samples/1_epoch_1.json", "cut off")]


def test_invalid_parts_are_reported_with_their_places() -> None:
    odd = sample(
        messages=[USER, 3, {"role": "critic", "content": "x"}, {"content": "y"}, {**CALLS, "tool_calls": ["c"]}]
    )
    _found, left_out = read(inspect_ai, log(odd, 5))  # type: ignore[arg-type]
    assert left_out == [
        ("samples[0].messages[1]", "not an object"),
        ("samples[0].messages[2]", "the role is 'critic'; a role is one of system, user, assistant, tool"),
        ("samples[0].messages[3]", "the role is 'missing'; a role is one of system, user, assistant, tool"),
        ("samples[0].messages[4].tool_calls[0]", "not an object"),
        ("samples[1]", "not an object"),
    ]
    assert read(inspect_ai, log()) == ([], [("samples", "the log has no samples")])


@given(st.sampled_from([(1, 0), (2, 1), (3, 2), (4, 3)]))
def test_grown_sample_keeps_earlier_records(counts: tuple[int, int]) -> None:
    messages, events = counts
    (whole,) = WHOLE["samples"]
    start = sample(
        messages=whole["messages"][:messages], events=whole["events"][:events], started_at=whole["started_at"]
    )
    assert_grows(inspect_ai, log(start), WHOLE)


@given(mangled(WHOLE))
def test_read_mangled_log_never_raises(document: object) -> None:
    if inspect_ai.recognises(document):
        for session in read(inspect_ai, document)[0]:
            assert session.external_id


@given(
    mangled({"header.json": {key: WHOLE[key] for key in ("version", "eval")}, "samples/1.json": WHOLE["samples"][0]})
)
def test_read_mangled_archive_never_raises(members: Any) -> None:
    document = archive(members)
    if inspect_ai.recognises(document):
        for session in read(inspect_ai, document)[0]:
            assert session.external_id


@pytest.mark.parametrize("name", ["browser.json", "log_images.json", "log_tool_call_error.json", "log_streaming.eval"])
def test_real_files_match_independent_counts(name: str) -> None:
    expected = counted(f"inspect_ai/{name}")
    path = SHARED / "inspect_ai" / name
    document = _archive(path) if path.suffix == ".eval" else load(path)
    assert format_of(document) is inspect_ai
    sessions, left_out = read(inspect_ai, document)
    assert left_out == []
    assert figures(sessions) == expected


def _archive(path: Path) -> Files:
    opened = zipfile.ZipFile(path)
    member: Callable[[str], Any] = partial(_member, opened)
    return Files(tuple(opened.namelist()), member)


def _member(opened: zipfile.ZipFile, name: str) -> Any:
    return json.loads(opened.read(name))


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(inspect_ai, "inspect_ai")
