"""Test the pipeline from the agent's threads to the sink: it never blocks, and losses are counted and reported."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sdk.tests.paths import ROOT
from tracesite_sdk import JsonLinesSink, MemorySink, NullSink, Recorder, Sampling
from tracesite_sdk.recorder.delivery.sinks import Clean
from tracesite_sdk.testing import RecorderForTests


class Gate(MemorySink):
    """A sink that blocks until it is opened and records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.entered = threading.Event()
        self.batches: list[int] = []

    def send(self, events: Sequence[Clean]) -> int:
        self.entered.set()
        assert self.open.wait(120), "the test opens it"
        self.batches.append(len(events))
        return super().send(events)


class Moody(MemorySink):
    """A sink that accepts `takes` events; None accepts all, and an exception is raised."""

    takes: int | Exception | None = None

    def send(self, events: Sequence[Clean]) -> int:
        if isinstance(self.takes, Exception):
            raise self.takes
        return super().send(events[: self.takes])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.001)


def reported_losses(recorder: RecorderForTests) -> dict[str, dict[str, int]]:
    """Return the losses by message from the separate loss reports."""
    reports = [event for event in recorder.events if ".r" in event["id"]]
    assert len({event["id"] for event in reports}) == len(reports)
    assert {(event["type"], event["level"], event["category"]) for event in reports} <= {
        ("workflow_execute_start", "warn", "system")
    }
    found: dict[str, dict[str, int]] = {}
    for event in reports:
        for name, number in event["data"]["recorder"].items():
            of_message = found.setdefault(event["message_id"], {})
            of_message[name] = of_message.get(name, 0) + number
    return found


def adds_up(recorder: Recorder) -> bool:
    report = recorder.report()
    return report.recorded == report.delivered_to_sink + report.sampled_out + report.dropped + report.queued


def test_agent_does_not_wait_for_the_sink() -> None:
    sink = Gate()
    recorder = RecorderForTests(sink=sink)
    took = []
    with recorder.message(external_id="m"):
        assert sink.entered.wait(60)
        for _turn in range(500):
            began = time.perf_counter()
            with recorder.tool_call("tool", {"text": "x" * 300}) as call:
                call.result = "y" * 1500
            took.append(time.perf_counter() - began)
    assert sorted(took)[250] < 0.001
    assert sink.events == []
    sink.open.set()
    assert recorder.close() == 0
    assert len(recorder.events) == 1002


def test_events_come_in_batches() -> None:
    sink = Gate()
    recorder = RecorderForTests(sink=sink)
    with recorder.message(external_id="m"):
        assert sink.entered.wait(60)
        for _turn in range(1000):
            recorder.tool_call("tool").start().end()
    sink.open.set()
    recorder.close()
    assert sum(sink.batches) == 2002
    assert len(sink.batches) < 60
    assert [event["id"] for event in recorder.sink.events] == [event["id"] for event in recorder.events]


def test_burst_of_20_000_calls_loses_none() -> None:
    recorder = RecorderForTests()
    with recorder.message(external_id="m"):
        for number in range(20_000):
            with recorder.tool_call("tool", {"number": number, "text": "x" * 200}) as call:
                call.result = "y" * 100
    recorder.close()
    report = recorder.report()
    assert (report.recorded, report.delivered_to_sink, report.dropped) == (40_002, 40_002, 0)
    assert len({event["id"] for event in recorder.sink.events}) == 40_002


def test_dropped_entries_are_counted_by_message_and_reported() -> None:
    sink = Gate()
    recorder = RecorderForTests(sink=sink, queue_bytes=20_000)
    recorder.message(external_id="before").start()
    assert sink.entered.wait(60)
    for message in ("a", "b"):
        with recorder.message(external_id=message):
            for _turn in range(20):
                with recorder.tool_call("tool", "x" * 1000):
                    pass
    lost = recorder.report().dropped
    assert lost > 40
    sink.open.set()
    recorder.flush()
    assert reported_losses(recorder).keys() == {"a", "b"}
    assert sum(one["dropped"] for one in reported_losses(recorder).values()) == lost == recorder.report().dropped
    arrived = {message: sum(event["message_id"] == message for event in recorder.events) for message in ("a", "b")}
    assert {message: 42 - arrived[message] + 1 for message in arrived} == {
        message: one["dropped"] for message, one in reported_losses(recorder).items()
    }
    with recorder.message(external_id="after"), recorder.tool_call("tool"):
        pass
    recorder.close()
    assert reported_losses(recorder).keys() == {"a", "b"}
    assert adds_up(recorder)


def test_value_larger_than_the_queue_leaves_its_size() -> None:
    recorder = RecorderForTests(queue_bytes=5000)
    with recorder.message(external_id="m"):
        recorder.flush()
        with recorder.tool_call("tool", "x" * 6000) as call:
            recorder.flush()
            call.result = "y" * 7000
    recorder.close()
    kept = [event["data"] for event in recorder.events if event["type"].startswith("tool_call")]
    assert [(data.get("args"), data.get("result"), data["truncated"]) for data in kept] == [
        ({"_raw": "… [cut, of about 6000 bytes]"}, None, [{"path": "data.args", "bytes": 6000}]),
        (None, "… [cut, of about 7000 bytes]", [{"path": "data.result", "bytes": 7000}]),
    ]
    (end,) = [event for event in recorder.events if event["type"] == "workflow_execute_complete"]
    assert end["data"]["recorder"] == {"truncated": 2}
    assert recorder.report().dropped == 0


def test_ends_have_room_in_a_full_queue() -> None:
    recorder = RecorderForTests(queue_bytes=8000, delay_ms=60_000)
    with recorder.message(external_id="m"):
        calls = [recorder.tool_call("tool", "x" * 100).start() for _number in range(20)]
        for call in calls[:3]:
            call.result = "y" * 5000
            call.end()
    recorder.close()
    names = Counter(event["type"] for event in recorder.events)
    assert names["tool_call_start"] < 20, "the queue was full"
    assert (names["tool_call_complete"], names["workflow_execute_complete"]) == (3, 1)
    assert reported_losses(recorder)["m"]["dropped"] == 20 - names["tool_call_start"] == recorder.report().dropped


@pytest.mark.parametrize("takes", [0, 1, OSError("disk full"), KeyError("a bug")])
def test_events_refused_by_the_sink_are_reported_later(takes: int | Exception) -> None:
    sink = Moody()
    recorder = RecorderForTests(sink=sink, strict=False, delay_ms=1000)
    with recorder.message(external_id="a"), recorder.tool_call("tool"):
        pass
    sink.takes = takes
    recorder.flush()
    taken = sum(".r" not in event["id"] for event in sink.events)
    with recorder.message(external_id="b"):
        recorder.flush()
    sink.takes = None
    with recorder.message(external_id="c"):
        pass
    recorder.close()
    assert recorder.report().dropped == 4 - taken + (takes != 1)
    assert sum(one["dropped"] for one in reported_losses(recorder).values()) == recorder.report().dropped
    assert {event["message_id"] for event in recorder.events} >= {"c"}
    assert adds_up(recorder)


def test_counts_of_a_lost_end_are_reported() -> None:
    sink = Moody()
    recorder = RecorderForTests(sink=sink, sampling=Sampling(tools={"search": 0}), delay_ms=1000)
    with recorder.message({"password": "hunter2"}, external_id="m"), recorder.tool_call("search"):  # type: ignore[arg-type]
        recorder.flush()
    sink.takes = 0
    recorder.flush()
    sink.takes = None
    recorder.close()
    assert reported_losses(recorder) == {"m": {"dropped": 1, "sampled_out": 1, "redacted": 1}}


def test_flush_returns_at_its_deadline() -> None:
    sink = Gate()
    recorder = RecorderForTests(sink=sink)
    with recorder.message(external_id="m"), recorder.tool_call("tool"):
        assert sink.entered.wait(60)
    began = time.monotonic()
    left = recorder.flush(0.05)
    assert 0.04 < time.monotonic() - began < 30
    assert left > 0
    sink.open.set()
    assert recorder.flush() == 0
    recorder.close()


def test_flush_returns_undelivered_events_of_the_sink() -> None:
    class Late(MemorySink):
        def flush(self, deadline: float) -> int:
            return 7

        def close(self, deadline: float) -> int:
            return 3

    recorder = RecorderForTests(sink=Late())
    assert (recorder.flush(), recorder.close()) == (7, 3)


def test_sleeping_worker_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracesite_sdk.recorder.delivery.pipeline._IDLE_SECONDS", 0.01)
    recorder = RecorderForTests()
    for turn in range(5):
        recorder.message(external_id=f"m{turn}").start()
        until(lambda turn=turn: len(recorder.sink.events) == turn + 1)  # type: ignore[misc]
        until(lambda: recorder._pipeline._asleep)
    assert [event["message_id"] for event in recorder.sink.events] == [f"m{turn}" for turn in range(5)]
    worker = recorder._pipeline._worker
    recorder.close()
    assert worker is not None
    worker.join(60)
    assert not worker.is_alive()


def test_nothing_is_recorded_after_close_and_nothing_fails() -> None:
    recorder = RecorderForTests()
    with recorder.message(external_id="m") as message:
        call = recorder.tool_call("open").start()
        assert recorder.close() == 0
        call.update(reflection="late")
        call.end()
        with recorder.tool_call("late"), recorder.session("s"), recorder.step():
            pass
    message.end()
    assert recorder.close() == 0
    assert [event["id"] for event in recorder.sink.events] == ["m.2.s", "3.s"]
    assert recorder.report().dropped == 0


def test_many_threads_lose_nothing() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink, delay_ms=1, strict=True)
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait()
        for turn in range(200):
            with recorder.session(f"s{number}"), recorder.message(), recorder.tool_call(f"{number}/{turn}"):
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close(60)
    events = sink.events
    assert (len(events), len({event["id"] for event in events}), recorder.report().dropped) == (6400, 6400, 0)
    numbers: dict[str, list[int]] = {}
    for event in events:
        numbers.setdefault(event["message_id"], []).append(event["number"])
    assert all(len(set(one)) == 4 and one == sorted(one) for one in numbers.values())


def test_discarding_sink_gets_no_events() -> None:
    recorder = Recorder(sink=NullSink())
    with recorder.message(), recorder.tool_call("tool"):
        pass
    recorder.close(60)
    assert (recorder.report().recorded, recorder.report().delivered_to_sink) == (4, 4)


# --- Other processes -------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def names(path: Path) -> list[str]:
    return sorted(event["data"]["name"] for event in lines(path) if event["type"] == "tool_call_complete")


def run(script: str, path: Path, **options: Any) -> subprocess.Popen[bytes]:
    head = f"""
        import os, signal, sys, time
        from tracesite_sdk import JsonLinesSink, Recorder
        PATH = {str(path)!r}
    """
    code = textwrap.dedent(head) + textwrap.dedent(script)
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, **options)


def code_of(process: subprocess.Popen[bytes]) -> int:
    with process:
        return process.wait(120)


@pytest.mark.system
def test_forked_child_records_without_repeating(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = Recorder(sink=JsonLinesSink(path), delay_ms=10_000)
    with recorder.session("s"), recorder.message(external_id="m"), recorder.tool_call("parent's") as call:
        pid = os.fork()
        if pid == 0:
            with recorder.tool_call("child's"):
                pass
            os._exit(recorder.flush(60))
        assert os.waitpid(pid, 0)[1] == 0
        with recorder.tool_call("parent's own"):
            pass
    recorder.close(60)
    events = lines(path)
    assert len({event["id"] for event in events}) == len(events) == 8
    assert names(path) == ["child's", "parent's", "parent's own"]
    begun = {event["data"]["name"]: event for event in events if event["type"] == "tool_call_start"}
    # Scopes open at the fork enclose the child's work; the parent ends them.
    assert [begun[name]["data"].get("parent") for name in begun] == [call.id, None, call.id]
    assert {event["message_id"] for event in events} == {"m"}


@pytest.mark.system
def test_fork_of_a_busy_process_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = Recorder(sink=JsonLinesSink(path), delay_ms=0.1)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with recorder.tool_call("busy"):
                pass

    threads = [threading.Thread(target=work) for _thread in range(3)]
    for thread in threads:
        thread.start()
    children = []
    for number in range(10):
        pid = os.fork()
        if pid == 0:
            signal.alarm(120)
            with recorder.tool_call(f"child {number}"):
                pass
            os._exit(recorder.flush(60))
        children.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    stop.set()
    for thread in threads:
        thread.join()
    recorder.close(60)
    assert codes == [0] * 10
    assert set(names(path)) == {"busy", *(f"child {number}" for number in range(10))}
    ids = [event["id"] for event in lines(path)]
    assert len(ids) == len(set(ids))


MULTIPROCESSING = """
    import multiprocessing

    def work(name, recorder=None):
        # Created by the parent and inherited, or created here.
        recorder = recorder or Recorder(sink=JsonLinesSink(PATH), delay_ms=10_000)
        with recorder.tool_call(name):
            pass

    if __name__ == "__main__":
        shared = Recorder(sink=JsonLinesSink(PATH), delay_ms=10_000) if {inherited} else None
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=work, args=(f"child {{number}}", shared)) for number in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
"""


@pytest.mark.system
@pytest.mark.parametrize("inherited", [True, False])
def test_multiprocessing_children_send_at_their_end(tmp_path: Path, inherited: bool) -> None:
    path = tmp_path / "trace.jsonl"
    assert code_of(run(MULTIPROCESSING.format(inherited=inherited), path)) == 0
    assert names(path) == ["child 0", "child 1"]


def record_and_end(path: str, name: str) -> None:
    """Run in a separate child process."""
    recorder = Recorder(sink=JsonLinesSink(path), delay_ms=10_000)
    with recorder.tool_call(name):
        pass


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_children_send_at_their_end(tmp_path: Path, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    child = context.Process(target=record_and_end, args=(str(tmp_path / "trace.jsonl"), method))
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert names(tmp_path / "trace.jsonl") == [method]


FORKSERVER = """
    import os, sys, time
    from concurrent.futures import ProcessPoolExecutor
    import multiprocessing
    from tracesite_sdk import JsonLinesSink, Recorder

    # Created while a child imports this module, before its work begins.
    recorder = Recorder(sink=JsonLinesSink(PATH), delay_ms=10_000)

    @recorder.tool_call
    def look(number):
        return number

    def work(job):
        with recorder.message(external_id=f"job {job}"):
            return [look(number) for number in range(10)]

    if __name__ == "__main__":
        context = multiprocessing.get_context("forkserver")
        if POOL:
            with ProcessPoolExecutor(2, mp_context=context) as pool:
                list(pool.map(work, range(8)))
        else:
            children = [context.Process(target=work, args=(job,)) for job in range(8)]
            for child in children:
                child.start()
            for child in children:
                child.join()
"""


@pytest.mark.system
@pytest.mark.parametrize("pool", [False, True])
def test_forkserver_children_send_all_at_their_end(tmp_path: Path, pool: bool) -> None:
    path = tmp_path / "trace.jsonl"
    script = tmp_path / "agent.py"
    script.write_text(f"PATH = {str(path)!r}\nPOOL = {pool}\n{textwrap.dedent(FORKSERVER)}")
    subprocess.run([sys.executable, str(script)], cwd=ROOT, check=True)
    kinds = Counter(event["type"] for event in lines(path))
    assert (kinds["tool_call_complete"], kinds["tool_call_start"]) == (80, 80)
    assert (kinds["workflow_execute_complete"], kinds["workflow_execute_start"]) == (8, 8)


class Slow(MemorySink):
    """A sink that delivers `rate` events a second, or none."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.delivered = 0.0
        self.since = time.monotonic()

    def send(self, events: Sequence[Clean]) -> int:
        if not self.events:
            self.since = time.monotonic()
        return super().send(events)

    def flush(self, deadline: float) -> int:
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.005)
        return left

    def left(self) -> int:
        now = time.monotonic()
        self.delivered = min(len(self.events), self.delivered + (now - self.since) * self.rate)
        self.since = now
        return len(self.events) - int(self.delivered)

    def close(self, deadline: float) -> int:
        return self.flush(deadline)


@pytest.mark.parametrize(
    ("rate", "idle_at_exit", "exit_seconds", "left", "took"),
    [
        (100, 0.3, 60, 0, (0.8, 30)),
        (0, 0.3, 60, 102, (0.2, 30)),
        (10, 0.3, 0.5, 40, (0.4, 6)),
        (1_000_000, 60, 60, 0, (0, 30)),
    ],
)
def test_exit_goes_on_while_the_sink_delivers(
    monkeypatch: pytest.MonkeyPatch,
    rate: float,
    idle_at_exit: float,
    exit_seconds: float,
    left: int,
    took: tuple[float, float],
) -> None:
    monkeypatch.setattr("tracesite_sdk.recorder.delivery.pipeline.IDLE_AT_EXIT", idle_at_exit)
    recorder = Recorder(sink=Slow(rate), exit_seconds=exit_seconds, delay_ms=10_000)
    with recorder.message():
        for _number in range(50):
            with recorder.tool_call("tool"):
                pass
    began = time.monotonic()
    found = recorder.close_at_exit(began)
    assert took[0] <= time.monotonic() - began <= took[1]
    assert found == 0 if left == 0 else found >= left
    with recorder.message():
        pass
    assert len(recorder.sink.events) == 102, "nothing is taken any more"  # type: ignore[attr-defined]


@pytest.mark.system
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise ValueError", 1),
        # The signal may arrive a moment after the call. Jobs in the background of a shell ignore it unless they are told to handle it.
        (
            "signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(60)",
            -2,
        ),
    ],
)
def test_exit_of_a_process_sends_the_rest(tmp_path: Path, end: str, code: int) -> None:
    path = tmp_path / "trace.jsonl"
    script = f"""
        def main():
            # No reference to the recorder is left when the process ends.
            recorder = Recorder(sink=JsonLinesSink(PATH), delay_ms=10_000)
            with recorder.tool_call("tool"):
                pass
        main()
        {end}
    """
    assert code_of(run(script, path, stderr=subprocess.DEVNULL)) == code
    assert names(path) == ["tool"]


@pytest.mark.system
@pytest.mark.parametrize(
    ("asked", "before", "expected", "code"),
    [
        (True, "", ["tool"], -signal.SIGTERM),
        (False, "", [], -signal.SIGTERM),
        (True, "signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(5))", ["tool"], 5),
        (True, "signal.signal(signal.SIGTERM, signal.SIG_IGN)", ["tool"], 0),
    ],
)
def test_sigterm_is_handled_on_request(
    tmp_path: Path, asked: bool, before: str, expected: list[str], code: int
) -> None:
    path = tmp_path / "trace.jsonl"
    script = f"""
        {before}
        recorder = Recorder(sink=JsonLinesSink(PATH), delay_ms=10_000, handle_sigterm={asked})
        with recorder.message():
            with recorder.tool_call("tool"):
                pass
            print("ready", flush=True)
            for _turn in range(5_000):
                time.sleep(0.02)
                if {code == 0} and os.path.exists(PATH):
                    recorder.enabled = False
                    break
    """
    process = run(script, path)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert code_of(process) == code
    assert names(path) == expected


@pytest.mark.system
def test_held_entries_are_kept_when_sigterm_ends_the_process(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    script = """
        from tracesite_sdk import Sampling
        recorder = Recorder(sink=JsonLinesSink(PATH), sampling=Sampling(rate=0), handle_sigterm=True)
        with recorder.message(), recorder.tool_call("tool"):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
    """
    assert code_of(run(script, path)) == -signal.SIGTERM
    assert [event["type"] for event in lines(path)] == ["workflow_execute_start", "tool_call_start"]


@pytest.mark.system
@pytest.mark.parametrize("end", ["recorder.flush()", "recorder.close()", ""])
def test_sigterm_during_the_last_delivery_loses_nothing(tmp_path: Path, end: str) -> None:
    path = tmp_path / "trace.jsonl"
    script = f"""
        from tracesite_sdk import Privacy
        def mask(path, value):
            if value == "now":
                os.kill(os.getpid(), signal.SIGTERM)
            return value
        recorder = Recorder(
            sink=JsonLinesSink(PATH), delay_ms=10_000, handle_sigterm=True, privacy=Privacy(functions=[mask])
        )
        with recorder.message():
            with recorder.tool_call("tool", {{"when": "now"}}):
                pass
        {end}
    """
    assert code_of(run(script, path)) == -signal.SIGTERM
    assert (len(lines(path)), names(path)) == (4, ["tool"])


@pytest.mark.system
def test_sigterm_ends_forked_children_as_without_recorder(tmp_path: Path) -> None:
    script = """
        recorder = Recorder(sink=JsonLinesSink(PATH), handle_sigterm=True)
        ours = signal.getsignal(signal.SIGTERM)
        child = os.fork()
        if not child:
            os._exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
        _pid, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert signal.getsignal(signal.SIGTERM) is ours is not signal.SIG_DFL
    """
    assert code_of(run(script, tmp_path / "trace.jsonl")) == 0


def test_sigterm_handler_in_another_thread_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    made: list[Recorder] = []
    thread = threading.Thread(target=lambda: made.append(Recorder(sink=NullSink(), handle_sigterm=True)))
    thread.start()
    thread.join()
    made[0].close()
    assert made[0].report().failed == 1
    assert "ValueError" in caplog.text


@pytest.mark.system
def test_signal_while_counting_a_loss_does_not_deadlock(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    script = """
        import threading
        from tracesite_sdk.recorder.delivery.sinks import NullSink
        class Full(JsonLinesSink):
            def send(self, events):
                raise OSError("full")
        recorder = Recorder(sink=Full(PATH), queue_bytes=5000)
        def interrupt(*_arguments):
            recorder.flush(0.1)
            # Only now, so that there is time for work in between.
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        with recorder.message():
            for _turn in range(3000):
                recorder.tool_call("tool", "x" * 1000).start().end()
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        recorder.close(60)
        assert recorder.report().dropped == recorder.report().recorded == 6002, recorder.report()
    """
    assert code_of(run(script, path)) == 0
