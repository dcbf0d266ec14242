"""Test the recorder as a whole: its destination, the current recorder, its repr and statistics."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tracesite_sdk
from sdk.tests.paths import ROOT
from sdk.tests.ports import free_port
from sdk.tests.recorder.isolation import alone
from sdk.tests.recorder.servers import FakeTracesite, error, serve
from tracesite_sdk import JsonLinesSink, MemorySink, NullSink, Privacy, Recorder, Sampling, default_recorder, trace_tool
from tracesite_sdk.recorder import recording
from tracesite_sdk.testing import RecorderForTests
from tracesite_sdk.testing import recording as recording_for_tests

__all__ = ["alone"]


@pytest.fixture
def fake() -> Iterator[FakeTracesite]:
    with serve() as server:
        yield server


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def work(recorder: Recorder) -> None:
    with recorder.session("s"), recorder.message(), recorder.tool_call("tool"):
        pass


def test_destination_is_chosen_in_one_place(
    fake: FakeTracesite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(Recorder(enabled=False))
    by_argument = Recorder(fake.url, key="ts_argument")
    work(by_argument)
    assert by_argument.flush(60) == 0
    monkeypatch.setenv("TRACESITE_URL", fake.url)
    monkeypatch.setenv("TRACESITE_KEY", "ts_environment")
    by_environment = Recorder()
    work(by_environment)
    assert by_environment.flush(60) == 0
    # An explicit sink precedes both.
    into_file = Recorder(sink=JsonLinesSink(tmp_path / "trace.jsonl"))
    work(into_file)
    for recorder in (by_argument, by_environment, into_file):
        recorder.close(60)
    keys = [post.headers["Authorization"] for post in fake.posts()]
    assert set(keys) == {"Bearer ts_argument", "Bearer ts_environment"}
    assert len(fake.stored) == 8
    assert len((tmp_path / "trace.jsonl").read_text().splitlines()) == 4


def test_event_numbers_increase_when_the_clock_is_set_back() -> None:
    times = iter([50, 10, 10, 60])
    sink = MemorySink()
    recorder = Recorder(sink=sink, clock=lambda: next(times), strict=True)
    work(recorder)
    recorder.close(60)
    assert [event["number"] for event in sink.events] == [50, 51, 52, 60]


def test_recorders_and_threads_make_different_ids() -> None:
    sink = MemorySink()
    recorders = [Recorder(sink=sink, strict=True) for _one in range(3)]

    def run(recorder: Recorder) -> None:
        for _turn in range(100):
            with recorder.tool_call("tool"):
                pass

    threads = [threading.Thread(target=run, args=[recorder]) for recorder in recorders * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for recorder in recorders:
        recorder.close(60)
    ids = [event["id"] for event in sink.events]
    assert len(set(ids)) == len(ids) == 3600


# --- Tools without a recorder argument ----------------------------------------------------------------------------


@trace_tool
def find(query: str) -> str:
    return query.upper()


@trace_tool(name="looks")
def look(query: str) -> str:
    return find(query)


def test_trace_tool_uses_the_latest_recorder() -> None:
    assert look("a") == "A"
    with recording_for_tests() as first, recording_for_tests() as second:
        assert default_recorder() is second
        assert look("b") == "B"
    assert first.events == []
    begun = [event["data"] for event in second.events if event["type"] == "tool_call_start"]
    assert [(data["name"], data["args"]) for data in begun] == [("looks", {"query": "b"}), ("find", {"query": "b"})]
    assert begun[1]["parent"] == begun[0]["uuid"]


@pytest.mark.parametrize(("url", "key"), [("no address", "ts_key"), ("http://127.0.0.1:1", "a key")])
def test_trace_tool_works_with_invalid_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str, key: str
) -> None:
    monkeypatch.setenv("TRACESITE_URL", url)
    monkeypatch.setenv("TRACESITE_KEY", key)
    recording._latest.clear()
    assert (look("a"), look("b")) == ("A", "B")
    assert not default_recorder().enabled
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith("Nothing is recorded")
    assert key not in caplog.text


# --- Losses -------------------------------------------------------------------------------------------------------


def test_losses_of_a_full_spool_are_reported_once(tmp_path: Path) -> None:
    port = free_port()
    recorder = Recorder(
        f"http://127.0.0.1:{port}", key="ts_key", spool=tmp_path / "spool", spool_bytes=300_000, delay_ms=1
    )
    with recorder.session("s"), recorder.message(external_id="m"):
        for _turn in range(150):
            with recorder.tool_call("tool", {"text": "x" * 20_000}):
                pass
    # An event that left the queue may not have reached the spool yet.
    until(lambda: (report := recorder.report()).delivered_to_sink + report.dropped == 302)
    lost = recorder.report().dropped
    assert 0 < lost < 302
    bodies: list[dict[str, Any]] = []
    with serve(port) as fake:
        taken = fake.take

        def keep(request: Any) -> Any:
            bodies.extend(request.ids)
            return taken(request)

        fake.take = keep  # type: ignore[method-assign]
        assert recorder.flush(60) == 0
        with recorder.session("s"), recorder.message(external_id="n"):
            pass
        assert recorder.close(60) == 0
        reports = [name for name in fake.stored if ".r" in name]
        events = [name for name in fake.stored if ".r" not in name]
    assert recorder.report().dropped == lost
    assert len(events) == len(set(events)) == 302 - lost + 2
    assert reports
    assert len(set(reports)) == len(reports)


# --- Documentation and repr -----------------------------------------------------------------------------------------


def test_recorder_for_tests_makes_literal_traces() -> None:
    def trace() -> list[dict[str, Any]]:
        with recording_for_tests() as recorder:
            assert isinstance(recorder, Recorder)
            with recorder.session("s"), recorder.message("Hello"), recorder.tool_call("find", {"a": 1}):
                pass
        return recorder.events

    assert json.dumps(trace()) == json.dumps(trace())
    assert [event["id"] for event in trace()] == ["1.s", "2.s", "2.e", "1.e"]
    assert [event["timestamp"][17:19] for event in trace()] == ["00", "01", "02", "03"]
    with pytest.raises(LookupError), recording_for_tests() as recorder:
        raise LookupError
    assert not recorder.enabled


def test_report_adds_up() -> None:
    recorder = RecorderForTests()
    work(recorder)
    recorder.close(60)
    report = recorder.report()
    assert (
        report.recorded,
        report.delivered_to_sink,
        report.sampled_out,
        report.dropped,
        report.failed,
        report.queued,
    ) == (
        4,
        4,
        0,
        0,
        0,
        0,
    )
    off = Recorder(sink=NullSink(), enabled=False)
    work(off)
    assert (off.flush(), off.close(), off.report().recorded) == (0, 0, 0)


def test_every_public_name_is_documented() -> None:
    documents = "".join(
        (ROOT / "docs" / name).read_text() for name in ("recorder.md", "what_is_stored.md", "time_machine.md")
    )
    missing = [name for name in tracesite_sdk.__all__ if name not in documents]
    # Scopes are documented by the functions that open them.
    assert set(missing) <= {"Message", "NullSink", "Scope", "Session", "Step", "ToolCall", "default_recorder"}


def test_retried_run_under_its_own_id_keeps_both_attempts() -> None:
    with recording_for_tests() as recorder:
        with (
            pytest.raises(OSError, match="busy"),
            recorder.session("s"),
            recorder.message("Hello", external_id="job-1"),
        ):
            raise OSError("busy")
        with recorder.session("s"), recorder.message("Hello", external_id="job-1") as message:
            message.content = "Hi"
    assert [(event["id"], event["data"].get("result")) for event in recorder.events] == [
        ("job-1.1.s", None),
        ("job-1.1.e", None),
        ("job-1.2.s", None),
        ("job-1.2.e", "Hi"),
    ]


# --- One address, one sender ------------------------------------------------------------------------------------------


def threads_of_recorders() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("tracesite-")}


CELL = """
recorder = Recorder(url, key="ts_key")
look = recorder.tool_call(look)
with recorder.session("s"), recorder.message("question"):
    look("inside")
look("outside")
"""


def test_rerun_notebook_cell_leaves_no_extra_threads(fake: FakeTracesite) -> None:
    before = threads_of_recorders()
    names: dict[str, Any] = {"Recorder": Recorder, "url": fake.url, "look": lambda query: query}
    for _run in range(4):
        exec(CELL, names)
    until(lambda: len(threads_of_recorders() - before) == 2)
    recorder = names["recorder"]
    assert recorder.flush() == 0
    # Each run is a message with its call, and one call outside of a message. Replaced recorders send on their own threads.
    until(lambda: len(fake.stored) >= 4 * (4 + 4))
    assert len(fake.stored) == len(set(fake.stored)) == 4 * (4 + 4)
    assert names["look"].__wrapped__("x") == "x"
    recorder.close()


def test_calls_outside_of_a_message_share_a_session(fake: FakeTracesite) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)

    @recorder.tool_call
    def look(query: str) -> str:
        return query

    look("a")
    threads = [threading.Thread(target=look, args=["b"]) for _thread in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with recorder.step(model="gpt-5"):
        look("c")
    with recorder.session("own"):
        look("d")
    with recorder.message("e"):
        look("e")
    recorder.close(60)
    begun = [event for event in sink.events if event["type"] == "workflow_execute_start"]
    sessions = [event["session_id"] for event in begun]
    assert len(begun) == 7
    assert len(set(sessions[:5])) == 1
    assert len(set(sessions)) == 3
    assert begun[0]["data"]["session"]["title"].startswith("Calls outside of a message: ")


def test_sampling_of_calls_outside_of_messages_is_individual() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink, sampling=Sampling(rate=0.5))
    for _number in range(400):
        with recorder.tool_call("tool"):
            pass
    recorder.close(60)
    kept = sum(event["type"] == "tool_call_start" for event in sink.events)
    assert 100 < kept < 300


def test_recorder_that_was_replaced_goes_on(fake: FakeTracesite) -> None:
    first = Recorder(fake.url, key="ts_key", privacy=Privacy(keys=["iban"]))
    work(first)
    second = Recorder(f" {fake.url}/ ", key="ts_key\n")
    other = Recorder(fake.url, key="ts_other")
    assert second.sink is first.sink
    assert other.sink is not first.sink
    work(first)
    work(second)
    assert first.privacy.keys == ["iban"]
    assert second.close(60) == 0
    work(first)
    assert first.close(60) == 0
    assert len(fake.stored) == 4 * 4
    third = Recorder(fake.url, key="ts_key")
    assert third.sink is not first.sink
    work(third)
    assert third.close(60) == other.close(60) == 0
    assert len(fake.stored) == 5 * 4


@pytest.mark.parametrize("key", ["ts_key\n", "  ts_key ", "ts_key\r\n"])
def test_key_of_a_mounted_file_works(fake: FakeTracesite, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACESITE_KEY", key)
    monkeypatch.setenv("TRACESITE_URL", f"{fake.url}\n")
    recorder = Recorder()
    work(recorder)
    assert recorder.close(60) == 0
    assert len(fake.stored) == 4
    assert {post.headers["Authorization"] for post in fake.posts()} == {"Bearer ts_key"}


@pytest.mark.system
@pytest.mark.parametrize("status", [200, 500, None])
def test_threads_of_the_recorder_import_nothing(fake: FakeTracesite, status: int | None) -> None:
    """A child that is forked while a thread imports a module would wait for that import for ever."""
    fake.answer = lambda _request: None if status == 200 else error(500)
    fake.settings = {"sampling": {"rate": 1.0}}
    program = f"""
        import sys, threading, time
        from tracesite_sdk import Recorder
        imported = []
        def note(event, args):
            if event == "import" and threading.current_thread() is not threading.main_thread():
                imported.append(args[0])
        recorder = Recorder({fake.url if status else f"http://localhost:{free_port()}"!r}, "ts_key", delay_ms=1)
        sys.addaudithook(note)
        with recorder.session("s"), recorder.message("Wo ist mein Schlüssel? token: ghp_" + "x9" * 18) as message:
            with recorder.step("plan", model="gpt-4o"), recorder.tool_call("search", {{"q": b"x", "n": object()}}) as call:
                call.result = "\u5bc6\u7801: 1234 " + "x" * 5000
            try:
                with recorder.tool_call("fetch"):
                    raise TimeoutError("late")
            except TimeoutError:
                pass
        time.sleep(0.5)
        recorder.close(1)
        assert recorder.report().delivered_to_sink == recorder.report().recorded > 5
        print(*imported)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True, timeout=200, check=True
    )
    assert done.stdout.split() == []
