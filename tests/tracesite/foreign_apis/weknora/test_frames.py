"""Test the frames of events and rows, that none is sent twice, and that the client can decode every line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite.foreign_apis.weknora.frames import MAX_FRAME_BYTES, Frame, FrameStream, encode_frame
from tracesite.foreign_apis.weknora.shapes import SearchResult, WeknoraAgentStep, WeknoraMessage, call_of, result_of
from tracesite_sdk.records.event_types import EVENT_TYPES, EventSpec

from .strict import StreamResponse, frames_of

MESSAGE = "019ca1f6-4000-7000-a000-000000000001"
SESSION = "019ca1f6-4000-7000-8000-000000000002"
TIME = "2026-03-01T12:00:00.000000Z"

THINKING = {
    "type": "llm_request_complete",
    "agent": "a",
    "data": {"step": "s1", "thought": "Look it up.", "duration": 40.4},
}
CALL = {"type": "tool_call_start", "agent": "a", "data": {"call_id": "c1", "name": "search", "args": {"q": "rain"}}}
RESULT = {
    "type": "tool_call_complete",
    "agent": "a",
    "data": {"call_id": "c1", "result": {"output": "3 hits", "data": {"hits": 3}}, "duration": 12},
}
FAILURE = {"type": "tool_call_error", "agent": "a", "data": {"call_id": "c1", "error": "no network"}}
END = {"type": "workflow_execute_complete", "data": {"result": "It rains."}}


def new_stream() -> FrameStream:
    return FrameStream(request_id="req-1", session_id=SESSION, message_id=MESSAGE)


def event(seq: int, values: dict[str, Any]) -> dict[str, Any]:
    return {"seq": seq, "external_id": f"e{seq}", "timestamp": TIME, "message_id": MESSAGE, **values}


def answer(**fields: Any) -> WeknoraMessage:
    fixed = {"id": MESSAGE, "session_id": SESSION, "request_id": "req-1", "role": "assistant", "created_at": TIME}
    values = {
        "content": "It rains.",
        "is_completed": True,
        "knowledge_references": [],
        "updated_at": TIME,
        "deleted_at": None,
    }
    return WeknoraMessage(**{**fixed, **values, **fields})


def end(stream: FrameStream, message: WeknoraMessage | None = None, **values: Any) -> list[Frame]:
    fixed: dict[str, Any] = {"error": "", "was_stopped": False, "step_count": 1, "duration": 40}
    return stream.ending(message or answer(), **{**fixed, **values})


def of(stream: FrameStream, *events: dict[str, Any]) -> list[Frame]:
    return [frame for seq, values in enumerate(events, 1) for frame in stream.of_event(event(seq, values))]


def decoded(frames: Iterable[Frame]) -> list[StreamResponse]:
    """Return the frames as the client decodes them."""
    return frames_of(b"".join(map(encode_frame, frames)))


def tuples_of(frames: Sequence[Frame]) -> list[tuple[Any, ...]]:
    return [(frame.response_type, frame.content, frame.done, frame.data) for frame in decoded(frames)]


def put_together(frames: Iterable[StreamResponse]) -> dict[str, Any]:
    """Return the final state of a client that joins deltas by event_id and replaces calls by tool_call_id."""
    texts: dict[str, str] = {}
    calls: dict[str, dict[str, Any]] = {}
    others: dict[str, Any] = {}
    for frame in frames:
        data = frame.data or {}
        if frame.response_type in ("thinking", "answer"):
            key = f"{frame.response_type} {data['event_id']}"
            texts[key] = texts.get(key, "") + frame.content
        elif "tool_call_id" in data:
            calls.setdefault(data["tool_call_id"], {})[frame.response_type] = data
        else:
            others[frame.response_type] = (frame.content, data)
    return {"texts": texts, "calls": calls, "others": others}


# --- Frames of events -------------------------------------------------------------------------------------------


def test_turn_yields_frames_in_order() -> None:
    stream = new_stream()
    frames = [*stream.beginning(), *of(stream, THINKING, CALL, RESULT, END)]
    assert stream.is_over
    first, *others = decoded([*frames, *end(stream)])
    assert (first.response_type, first.id, first.done, first.session_id, first.assistant_message_id) == (
        "agent_query", "req-1", True, SESSION, MESSAGE,
    )  # fmt: skip
    assert [(frame.response_type, frame.content, frame.done, frame.data) for frame in others] == [
        ("thinking", "Look it up.", True, {"event_id": "step:s1", "duration_ms": 40, "completed_at": 1772366400}),
        ("tool_call", "Calling tool: search", False, {"tool_name": "search", "arguments": {"q": "rain"}, "tool_call_id": "c1"}),
        ("tool_result", "3 hits", False, {
            "hits": 3, "tool_name": "search", "success": True, "error": "", "output": "3 hits", "duration_ms": 12, "tool_call_id": "c1",
        }),
        ("answer", "It rains.", True, {"event_id": f"answer:{MESSAGE}"}),
        ("complete", "", True, {"total_steps": 1, "total_duration_ms": 40}),
    ]  # fmt: skip
    assert {frame.id for frame in others} == {"req-1"}


def test_failed_call_yields_error_not_done() -> None:
    (_call, failed) = tuples_of(of(new_stream(), CALL, FAILURE))
    assert failed[:3] == ("error", "no network", False)
    assert (failed[3]["success"], failed[3]["error"], failed[3]["tool_call_id"]) == (False, "no network", "c1")


def test_failed_run_ends_with_error_done() -> None:
    for data in ({"error": "The model is away."}, {"success": False}, {"status": "error"}):
        stream = new_stream()
        assert of(stream, {**END, "data": data}) == [] and stream.is_over
        failed = tuples_of(end(stream, answer(content="")))
        assert failed == [
            (
                "error",
                data.get("error", "The run has failed."),
                True,
                {"error": data.get("error", "The run has failed.")},
            )
        ]
    # From the rows, with the text received so far.
    assert [frame[:3] for frame in tuples_of(end(new_stream(), error="Out of money."))] == [
        ("answer", "It rains.", True), ("error", "Out of money.", True),
    ]  # fmt: skip


def test_stopped_run_ends_with_stop_and_keeps_text() -> None:
    stream = new_stream()
    of(stream, {**END, "data": {"status": "aborted", "reason": "user_requested"}})
    about = {"session_id": SESSION, "message_id": MESSAGE, "reason": "user_requested"}
    stop = ("stop", "Generation stopped by user", True, about)
    assert tuples_of(end(stream, answer(content=""))) == [stop]
    assert [frame[0] for frame in tuples_of(end(new_stream(), was_stopped=True))] == ["answer", "stop"]


def test_call_with_new_details_is_sent_again() -> None:
    pending = {**CALL, "data": {"call_id": "c1", "name": "search"}}
    frames = tuples_of(of(new_stream(), pending, pending, CALL, RESULT, RESULT))
    assert [(kind, data["tool_call_id"]) for kind, _content, _done, data in frames] == [
        ("tool_call", "c1"), ("tool_call", "c1"), ("tool_result", "c1"),
    ]  # fmt: skip
    assert [frames[0][3]["arguments"], frames[1][3]["arguments"]] == [{}, {"q": "rain"}]


def test_result_before_call_yields_both() -> None:
    frames = tuples_of(of(new_stream(), {**RESULT, "data": {**RESULT["data"], "name": "search"}}, CALL))  # type: ignore[dict-item]
    assert [frame[0] for frame in frames] == ["tool_call", "tool_result", "tool_call"]


def test_calls_with_same_id_get_distinct_ids() -> None:
    other = {**CALL, "agent": "b"}
    (one, two) = tuples_of(of(new_stream(), CALL, other))
    assert one[3]["tool_call_id"] == "c1" and two[3]["tool_call_id"].startswith("c1-")
    (nameless,) = tuples_of(of(new_stream(), {**CALL, "data": {"uuid": "u1", "name": "t"}}))
    assert nameless[3]["tool_call_id"].startswith("call_")


def test_deltas_are_sent_once_and_completed_by_whole_text() -> None:
    deltas = [
        {"type": "llm_request_start", "level": "trace", "agent": "a", "data": {"token": token, "step": "s1"}}
        for token in ("Look ", "it up", "")
    ]
    frames = tuples_of(of(new_stream(), *deltas, THINKING, THINKING))
    assert [(content, done, data["event_id"]) for _kind, content, done, data in frames] == [
        ("Look ", False, "step:s1"), ("it up", False, "step:s1"), (".", True, "step:s1"),
    ]  # fmt: skip
    # An agent that does not name its steps.
    unnamed = [{**one, "data": {**one["data"], "step": None}} for one in [*deltas, THINKING, *deltas]]  # type: ignore[dict-item]
    assert [content for _kind, content, _done, _data in tuples_of(of(new_stream(), *unnamed))] == [
        "Look ",
        "it up",
        ".",
        "Look ",
        "it up",
    ]


def test_changed_text_gets_new_event_id() -> None:
    other = {**THINKING, "data": {"step": "s1", "thought": "Ask somebody.", "reasoning": "Hm."}}
    frames = tuples_of(of(new_stream(), THINKING, other))
    assert [(content, data["event_id"]) for _kind, content, _done, data in frames] == [
        ("Look it up.", "step:s1"), ("Hm.", "step:s1:reasoning"), ("Ask somebody.", "step:s1#2"),
    ]  # fmt: skip


def test_title_and_reflection_yield_frames() -> None:
    plan = {"type": "workflow_plan_complete", "data": {"workflow": {"name": "Rain"}}}
    reflected = {**RESULT, "data": {**RESULT["data"], "reflection": "Good."}}  # type: ignore[dict-item]
    frames = tuples_of(of(new_stream(), plan, plan, CALL, reflected))
    assert [frame[:3] for frame in (frames[0], frames[-1])] == [
        ("session_title", "Rain", True),
        ("reflection", "Good.", True),
    ]
    assert len(frames) == 4


def test_growing_answer_yields_deltas() -> None:
    stream = new_stream()
    growing = [{"type": "agent_complete", "data": {"result": text}} for text in ("It", "It rai", "It rai")]
    frames = [*of(stream, *growing, END), *end(stream)]
    assert [frame[:3] for frame in tuples_of(frames)] == [
        ("answer", "It", False), ("answer", " rai", False), ("answer", "ns.", True), ("complete", "", True),
    ]  # fmt: skip


def test_value_stored_as_context_is_sent_as_its_beginning() -> None:
    elsewhere = {"thought": {"contextRef": "ctx", "bytes": 100_000, "beginning": "It begins"}}
    (frame,) = tuples_of(of(new_stream(), {**THINKING, "data": {"step": "s1", "contextRefs": elsewhere}}))
    assert frame[1] == "It begins"


def test_other_events_yield_no_frames() -> None:
    others = [
        "workflow_plan_start",
        "workflow_execute_start",
        "agent_start",
        "agent_complete",
        "agent_error",
        "prompt_build",
        "llm_request_start",
    ]
    assert (
        of(new_stream(), *({"type": kind, "agent": "a", "data": {"result": "x", "kind": "user"}} for kind in others))
        == []
    )


# --- Frames of rows ---------------------------------------------------------------------------------------------


def step(**fields: Any) -> WeknoraAgentStep:
    return WeknoraAgentStep(**{"iteration": 0, "thought": "Look it up.", "tool_calls": [], "timestamp": TIME, **fields})


OPEN = call_of("c1", "search", {"q": "rain"}, None, 0)
DONE = call_of("c1", "search", {"q": "rain"}, result_of("success", "3 hits", [1], None), 12, "Good.")
FAILED = call_of("c2", "search", {}, result_of("error", "", None, "no network"), 3)


def test_growing_rows_yield_new_frames_only() -> None:
    stream = new_stream()
    states = [
        answer(content="", is_completed=False, agent_steps=[step(thought="Look")]),
        answer(content="", is_completed=False, agent_steps=[step(reasoning_content="Hm.", tool_calls=[OPEN])]),
        answer(
            content="It", is_completed=False, agent_steps=[step(reasoning_content="Hm.", tool_calls=[DONE, FAILED])]
        ),
        answer(agent_steps=[step(reasoning_content="Hm.", tool_calls=[DONE, FAILED])]),
    ]
    frames = [[frame[:3] for frame in tuples_of(stream.of_message(state))] for state in states for _twice in range(2)]
    assert frames[::2] == [
        [("thinking", "Look", False)],
        [("thinking", "Hm.", True), ("thinking", " it up.", True), ("tool_call", "Calling tool: search", False)],
        [("tool_result", "3 hits", False), ("reflection", "Good.", True), ("tool_call", "Calling tool: search", False),
         ("error", "no network", False), ("answer", "It", False)],
        [],
    ]  # fmt: skip
    assert frames[1::2] == [[]] * 4
    assert [frame[:3] for frame in tuples_of(end(stream, states[-1]))] == [
        ("answer", " rains.", True),
        ("complete", "", True),
    ]


def test_references_precede_answer() -> None:
    (references, *_others) = decoded(end(new_stream(), answer(knowledge_references=[passage("31 °C")])))
    assert references.response_type == "references"
    assert [found.content for found in references.knowledge_references or []] == ["31 °C"]


# --- Lines ------------------------------------------------------------------------------------------------------


def passage(content: str, **fields: Any) -> SearchResult:
    values = {
        "id": "c",
        "content": content,
        "knowledge_id": "",
        "chunk_index": 0,
        "knowledge_title": "",
        "start_at": 0,
        "end_at": 0,
    }
    more = {"seq": 0, "score": 0.5, "match_type": 0, "sub_chunk_id": None, "metadata": {"a": "b"}, "chunk_type": ""}
    rest = {"parent_chunk_id": "", "image_info": "", "knowledge_filename": "", "knowledge_source": ""}
    return SearchResult(**{**values, **more, **rest, **fields})


def test_frame_is_encoded_as_two_lines_and_blank() -> None:
    (frame,) = new_stream().beginning()
    event_line, data, blank, rest = encode_frame(frame).split(b"\n")
    assert (event_line, data[:5], blank, rest) == (b"event:message", b"data:", b"", b"")
    assert json.loads(data[5:])["id"] == "req-1"


@pytest.mark.parametrize("text", ["x" * 500_000, "\x01" * 100_000, "𝄞" * 100_000, "\n" * 200_000])
def test_long_values_stay_below_client_line_limit(text: str) -> None:
    stream = new_stream()
    thought = {**THINKING, "data": {"step": "s1", "thought": text}}
    long_call = {**CALL, "data": {"call_id": "c1", "name": "t" * 400, "args": {"q": text}}}
    long_result = {**RESULT, "data": {"call_id": "c1", "result": {"output": text, "data": {"rows": [text]}}}}
    frames = [*of(stream, thought, long_call, long_result, {**FAILURE, "data": {"call_id": "c2", "error": text}})]
    frames += end(stream, answer(content=text, knowledge_references=[passage(text, image_info=text)] * 300), error=text)
    lines = b"".join(map(encode_frame, frames)).split(b"\n")
    assert max(map(len, lines)) < MAX_FRAME_BYTES + 100
    together = put_together(decoded(frames))
    # Texts are sent whole, in chunks; tool results are truncated.
    assert list(together["texts"].values()) == [text, text]
    assert together["calls"]["c1"]["tool_result"]["output"].startswith(text[:100])


_TOLD = st.lists(
    st.sampled_from([THINKING, CALL, RESULT, FAILURE, {**THINKING, "data": {"step": "s2", "thought": "And then?"}}, {**CALL, "agent": "b"}]),
    max_size=12,
)  # fmt: skip


@given(events=_TOLD, broken_off_after=st.integers(0, 12))
def test_reconnect_replaces_frames_without_duplicates(events: list[dict[str, Any]], broken_off_after: int) -> None:
    stream, again = new_stream(), new_stream()
    whole = decoded([*stream.beginning(), *of(stream, *events), *end(stream)])
    partly = whole[:broken_off_after]
    twice = decoded([*again.beginning(), *of(again, *events), *end(again)])
    assert twice == whole
    # Everything that the client kept from the broken connection has the same ids again.
    assert put_together(twice) == put_together(whole)
    kept = put_together(partly)
    assert kept["calls"].keys() <= put_together(twice)["calls"].keys()
    assert kept["texts"].keys() <= put_together(twice)["texts"].keys()


@given(
    data=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
    output=st.text(max_size=50),
)
def test_any_tool_result_is_decoded_by_client(data: Any, output: str) -> None:
    try:
        msgspec.json.encode([data, output])
    except (UnicodeEncodeError, ValueError, OverflowError):
        return
    result = {
        "type": "tool_call_complete",
        "data": {"call_id": "c1", "name": "t", "args": data, "result": {"output": output, "data": data}},
    }
    stream = new_stream()
    assert {frame.response_type for frame in decoded(of(stream, result))} <= {"tool_call", "tool_result", "error"}


def test_note_on_a_call_starts_and_ends_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    name: Any = "tool_retried"
    monkeypatch.setitem(EVENT_TYPES, name, EventSpec("call", "note", None, "tool", "warn"))
    monkeypatch.setitem(EVENT_TYPES, "model_noted", EventSpec("step", "note", None, "prompt", "info"))  # type: ignore[arg-type]
    stream = new_stream()
    note = {"type": name, "agent": "a", "data": {"call_id": "c1", "name": "search"}}
    assert stream.of_event(event(1, note)) == []
    assert stream.of_event(event(2, {**THINKING, "type": "model_noted"})) == []
    (begun,) = stream.of_event(event(3, CALL))
    assert begun.response_type == "tool_call"
    assert stream.of_event(event(4, note)) == []
    unnamed = {**note, "data": {"name": "search"}}
    assert stream.of_event(event(5, unnamed)) == []
    (ended,) = stream.of_event(event(6, RESULT))
    assert ended.response_type == "tool_result"
