"""Test sampling: shares, and keeping failed and slow calls."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk import MemorySink, Recorder, Sampling, results
from tracesite_sdk.recorder.delivery.sampling import is_chosen
from tracesite_sdk.recorder.delivery.sinks import ServerSampling, ServerSettings
from tracesite_sdk.testing import RecorderForTests, recording, tree


def run(recorder: Recorder, session: str, *, failing: str | None = None, tool: str = "search") -> None:
    """Record a run in which one part fails, or none."""

    def fails(name: str) -> str | None:
        return "failed" if name == failing else None

    with recorder.session(session), recorder.message() as message:
        with recorder.step() as step, recorder.tool_call("plan") as outer:
            with recorder.tool_call(tool) as call:
                call.error = fails("call")
            outer.error = fails("outer")
            step.error = fails("step")
        message.error = fails("message")


def sessions(recorder: RecorderForTests) -> list[str]:
    return list(dict.fromkeys(event["session_id"] for event in recorder.events))


@pytest.mark.parametrize(("rate", "least", "most"), [(0, 0, 0), (0.1, 70, 130), (1, 1000, 1000)])
def test_share_of_sessions_is_kept_whole(rate: float, least: int, most: int) -> None:
    with recording(sampling=Sampling(rate=rate)) as recorder:
        for number in range(1000):
            run(recorder, f"session-{number}")
    kept = sessions(recorder)
    assert least <= len(kept) <= most
    assert kept == [f"session-{number}" for number in range(1000) if is_chosen(f"session-{number}", rate)]
    assert len(recorder.events) == len(kept) * 8
    report = recorder.report()
    assert (report.recorded, report.sampled_out) == (8000, 8000 - len(kept) * 8)
    assert report.recorded == report.delivered_to_sink + report.sampled_out


@pytest.mark.parametrize(("rate", "least", "most"), [(0, 0, 0), (0.1, 60, 140), (1, 1000, 1000)])
def test_share_of_calls_is_kept_and_the_rest_counted(rate: float, least: int, most: int) -> None:
    with recording(sampling=Sampling(tools={"search": rate})) as recorder, recorder.message():
        for _turn in range(1000):
            with recorder.tool_call("search"):
                pass
        with recorder.tool_call("plan"), recorder.tool_call("search") as failed:
            failed.error = "no"
    begun = [event["data"]["name"] for event in recorder.events if event["type"] == "tool_call_start"]
    ended = [event for event in recorder.events if event["id"].endswith(".e")]
    kept = begun.count("search") - 1
    assert least <= kept <= most
    assert len(ended) == len(begun) + 1
    assert ended[-1]["data"].get("recorder") == ({"sampled_out": 1000 - kept} if kept < 1000 else None)
    assert recorder.report().sampled_out == 2 * (1000 - kept)


@pytest.mark.parametrize("failing", ["call", "outer", "step", "message"])
def test_failed_entries_are_kept_with_their_parents(failing: str) -> None:
    with recording(sampling=Sampling(rate=0)) as recorder:
        run(recorder, "good")
        run(recorder, "bad", failing=failing)
    assert sessions(recorder) == ["bad"]
    assert tree(recorder.events) == ["message", "  step", "    plan", "      search"]

    with recording(sampling=Sampling(tools={"plan": 0, "search": 0})) as recorder:
        run(recorder, "s", failing=failing)
    expected = {"call": ["    plan", "      search"], "outer": ["    plan"]}.get(failing, [])
    assert tree(recorder.events) == ["message", "  step", *expected]

    with recording(sampling=Sampling(rate=0, keep_errors=False)) as recorder:
        run(recorder, "s", failing=failing)
    assert recorder.events == []


@pytest.mark.parametrize(
    "result",
    [
        {"status": "error"},
        {"success": False},
        {"error": "boom"},
        {"isError": True, "content": [{"type": "text", "text": "no"}]},
        results.error("boom"),
        "Error: no such file",
        "Traceback (most recent call last):\n  ...",
        '{"success": false, "error": "boom"}',
    ],
)
def test_result_the_server_reads_as_failure_is_kept(result: Any) -> None:
    for sampling in (Sampling(rate=0), Sampling(tools={"find": 0})):
        with recording(sampling=sampling) as recorder, recorder.message(), recorder.tool_call("find") as call:
            call.result = result
        assert tree(recorder.events) == ["message", "  find"]
    with recording(sampling=Sampling(rate=0)) as recorder, recorder.message():
        with recorder.tool_call("find") as call:
            call.result = {"status": "success", "errors_found": 0}
        call.update(result=result)
    assert tree(recorder.events) == ["message", "  find"]


def test_slow_calls_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0])

    def pass_time(milliseconds: int) -> None:
        now[0] += milliseconds * 1_000_000

    with recording(sampling=Sampling(tools={"search": 0}, keep_slower_than_ms=40)) as recorder, recorder.message():
        for milliseconds in (20, 60):
            with recorder.tool_call("search", {"milliseconds": milliseconds}):
                pass_time(milliseconds)
    begun = [event["data"]["args"] for event in recorder.events if event["type"] == "tool_call_start"]
    assert begun == [{"milliseconds": 60}]

    with recording(sampling=Sampling(rate=0, keep_slower_than_ms=40)) as recorder:
        run(recorder, "fast")
        with recorder.session("slow"), recorder.message(), recorder.step():
            pass_time(60)
    assert sessions(recorder) == ["slow"]


def test_sampling_changes_by_assignment() -> None:
    with recording() as recorder:
        run(recorder, "all")
        recorder.flush()
        recorder.sampling = Sampling(rate=0)
        run(recorder, "none")
        recorder.flush()
        recorder.sampling = Sampling(tools={"search": 0})
        run(recorder, "without search")
        recorder.flush()
        recorder.sampling = Sampling()
        run(recorder, "all again")
    assert {
        session: len([1 for event in recorder.events if event["session_id"] == session])
        for session in sessions(recorder)
    } == {
        "all": 8,
        "without search": 6,
        "all again": 8,
    }


class ToldSink(MemorySink):
    """A sink whose server sends project settings."""

    sampling: ServerSampling | None = None

    def settings(self) -> ServerSettings | None:
        return ServerSettings(sampling=self.sampling)


def test_sampling_changes_by_server_settings() -> None:
    sink = ToldSink()
    recorder = RecorderForTests(sink=sink, sampling=Sampling(rate=0, tools={"plan": 0}))
    for name, sampling in (
        ("own", None),
        ("nothing asked", ServerSampling()),
        ("all", ServerSampling(rate=1)),
        ("all but searches", ServerSampling(rate=1, tools={"search": 0, "plan": 1})),
        ("none", ServerSampling(rate=0)),
    ):
        sink.sampling = sampling
        run(recorder, name)
        recorder.flush()
    run(recorder, "bad", failing="call")
    sink.sampling = ServerSampling(rate=0, keep_errors=False)
    recorder.flush()
    recorder.close()
    assert sessions(recorder) == ["all", "all but searches"]
    # A kept call also keeps its enclosing scopes, here the plan of the first.
    assert tree(recorder.events) == ["message", "  step", "    plan", "      search", "message", "  step", "    plan"]


def test_invalid_server_settings_keep_everything() -> None:
    sink = ToldSink()
    sink.sampling = ServerSampling(rate=7)
    recorder = RecorderForTests(sink=sink, strict=False)
    run(recorder, "s")
    recorder.close()
    assert len(recorder.events) == 8
    assert recorder.report().failed > 0
    assert recorder.report().dropped == 0


@pytest.mark.parametrize(
    "wrong", [{"rate": 1.5}, {"rate": True}, {"tools": {"x": -0.1}}, {"tools": {"x": "1"}}, {"keep_slower_than_ms": -1}]
)
def test_invalid_shares_raise(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^Sampling\.(rate|tools\['x'\]|keep_slower_than_ms): expected"):
        Sampling(**wrong)


def test_message_with_open_calls_is_kept() -> None:
    with recording(sampling=Sampling(rate=0)) as recorder:
        with recorder.message():
            late = recorder.tool_call("late").start()
        late.end("failed after all")
    assert tree(recorder.events) == ["message", "  late"]
    assert recorder.events[-1]["type"] == "tool_call_error"


def test_endless_messages_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracesite_sdk.recorder.delivery.sampling._MOST_BYTES_HELD", 100_000)
    monkeypatch.setattr("tracesite_sdk.recorder.delivery.sampling._MOST_HELD", 50)
    with recording(sampling=Sampling(rate=0)) as recorder:
        for number in range(20):
            recorder.message(external_id=f"m{number}").start()
            recorder.tool_call("tool", "x" * 10_000).start(within=recorder.message().start())
        for _turn in range(20):
            recorder.message("x" * 10_000).start()
        recorder.flush()
        assert recorder._pipeline._sampler._bytes <= 100_000
        # The oldest are sent at once and not held back.
        assert recorder.sink.events[0]["message_id"] == "m0"
        recorder.sampling = Sampling(tools={"tool": 0})
        with recorder.session("s"), recorder.message():
            for _turn in range(80):
                recorder.tool_call("tool").start()
            recorder.flush()
            assert len(recorder._pipeline._sampler._calls) == 50
    assert recorder.report().recorded == recorder.report().delivered_to_sink == len(recorder.sink.events) == 80 + 82


def test_concurrent_messages_with_one_id_are_left_out_separately() -> None:
    with recording(sampling=Sampling(rate=0)) as recorder:
        first = recorder.message(external_id="m").start()
        second = recorder.message(external_id="m").start()
        first.end()
        recorder.tool_call("tool").start(within=second).end()
        second.end()
    assert recorder.events == []
    assert recorder.report().sampled_out == 6


def test_unfinished_messages_are_kept_at_exit() -> None:
    recorder = RecorderForTests(sampling=Sampling(rate=0, tools={"search": 0}))
    recorder.message(external_id="m").start()
    assert recorder.events == []
    recorder.close()
    assert [event["id"] for event in recorder.sink.events] == ["m.2.s"]


def test_late_update_of_a_left_out_call_is_counted() -> None:
    with recording(sampling=Sampling(rate=0, tools={"search": 0})) as recorder, recorder.session("s"):
        with recorder.message(), recorder.tool_call("search") as call:
            pass
        call.update(reflection="Good.")
    assert recorder.events == []
    assert recorder.report().sampled_out == recorder.report().recorded == 5


NAMES = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(
    st.tuples(NAMES, st.booleans(), st.just([])),
    lambda below: st.tuples(NAMES, st.booleans(), st.lists(below, max_size=3)),
    max_leaves=10,
)


@given(
    runs=st.lists(st.lists(TREES, max_size=3), min_size=1, max_size=4),
    rate=st.sampled_from([0, 0.5, 1]),
    shares=st.dictionaries(NAMES, st.sampled_from([0, 0.5, 1])),
)
def test_failures_are_always_kept_and_all_is_counted(runs: list[Any], rate: float, shares: dict[str, float]) -> None:
    failed: set[str] = set()

    def call(recorder: Recorder, node: tuple[str, bool, list[Any]]) -> None:
        name, fails, below = node
        with recorder.tool_call(name) as one:
            for child in below:
                call(recorder, child)
            if fails:
                one.error = "failed"
                failed.add(one.id)

    with recording(sampling=Sampling(rate=rate, tools=shares)) as recorder:
        for number, nodes in enumerate(runs):
            with recorder.session(f"s{number}"), recorder.message():
                for node in nodes:
                    call(recorder, node)
    events = recorder.events
    ids = {event["id"] for event in events}
    # A kept call has its end event, its enclosing scopes and its message.
    for event in events:
        if event["type"] == "tool_call_start":
            assert f"{event['data']['uuid']}.e" in ids
            assert f"{event['message_id']}.s" in ids
            assert "parent" not in event["data"] or f"{event['data']['parent']}.s" in ids
    assert {f"{one}.s" for one in failed} | {f"{one}.e" for one in failed} <= ids
    report = recorder.report()
    assert report.recorded == len(events) + report.sampled_out
    reported = sum(event["data"].get("recorder", {}).get("sampled_out", 0) for event in events)
    kept = {event["message_id"] for event in events}
    assert reported <= report.sampled_out // 2
    assert rate < 1 or (2 * reported == report.sampled_out and len(kept) == len(runs))
