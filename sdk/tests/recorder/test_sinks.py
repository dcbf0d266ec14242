"""Test the sinks for memory, files, functions and several sinks at once."""

from __future__ import annotations

import json
import multiprocessing
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tracesite_sdk import FanOutSink, JsonLinesSink, MemorySink, NullSink, Recorder
from tracesite_sdk.recorder.delivery.sinks import Clean, ServerSettings, Sink


def clean(number: int) -> Clean:
    """Return redacted events as privacy.py creates them."""
    return Clean(json.dumps({"number": number}).encode())


EVENTS = [clean(1), clean(2), clean(3)]


def test_memory_sink_keeps_the_newest() -> None:
    sink = MemorySink(limit=4)
    assert sink.send(EVENTS) == 3
    assert sink.send([clean(4), clean(5)]) == 2
    assert [event["number"] for event in sink.events] == [2, 3, 4, 5]
    sink.clear()
    assert (sink.events, sink.flush(0), sink.close(0), sink.settings()) == ([], 0, 0, None)


def test_json_lines_are_accepted_by_the_server(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b'{"number":0}\n')
    sink = JsonLinesSink(path)
    assert sink.send(EVENTS[:2]) == 2
    assert sink.close(0) == sink.close(0) == 0
    assert sink.send(EVENTS[2:]) == 1
    sink.close(0)
    assert path.read_text() == '{"number":0}\n{"number": 1}\n{"number": 2}\n{"number": 3}\n'


def test_json_lines_file_is_private_and_made_on_first_event(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "trace.jsonl")
    assert list(tmp_path.iterdir()) == []
    sink.send(EVENTS)
    sink.close(0)
    assert stat.S_IMODE((tmp_path / "trace.jsonl").stat().st_mode) == 0o600


def test_unwritable_file_loses_events_and_counts_them(tmp_path: Path) -> None:
    recorder = Recorder(sink=JsonLinesSink(tmp_path / "missing" / "trace.jsonl"))
    with recorder.message():
        pass
    recorder.close(60)
    assert (recorder.report().dropped, recorder.report().delivered_to_sink) == (2, 0)


@pytest.mark.system
def test_full_disk_leaves_no_joined_lines(tmp_path: Path) -> None:
    script = f"""
import resource, signal
from tracesite_sdk.recorder.delivery.sinks import JsonLinesSink
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (30, resource.RLIM_INFINITY))
sink = JsonLinesSink({str(tmp_path / "trace.jsonl")!r})
sink.send([b'{{"number":1}}'])
try:
    sink.send([b'{{"number":2}}', b'{{"number":3}}'])
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
sink.send([b'{{"number":4}}'])
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    assert (tmp_path / "trace.jsonl").read_text().splitlines() == [
        '{"number":1}',
        '{"number":2}',
        '{"nu',
        '{"number":4}',
    ]


def write_lines(path: str, name: int) -> None:
    sink = JsonLinesSink(path)
    for turn in range(50):
        sink.send([Clean(json.dumps({"from": name, "turn": turn, "text": "x" * 500}).encode())] * 3)
    sink.close(0)


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "trace.jsonl")
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=write_lines, args=(path, name)) for name in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    assert len(lines) == 300
    for name in range(2):
        assert [line["turn"] for line in lines if line["from"] == name] == [
            turn for turn in range(50) for _one in range(3)
        ]


class Failing(NullSink):
    @property
    def discards(self) -> bool:
        return False

    def send(self, events: Sequence[Clean]) -> int:
        raise KeyError("send")

    def flush(self, deadline: float) -> int:
        raise KeyError("flush")

    def close(self, deadline: float) -> int:
        raise KeyError("close")

    def after_fork(self) -> None:
        raise KeyError("fork")


class Half(MemorySink):
    """A sink that accepts the first event and reports it as undelivered."""

    closed = forked = False

    def send(self, events: Sequence[Clean]) -> int:
        return super().send(events[:1])

    def flush(self, deadline: float) -> int:
        return len(self.events)

    def close(self, deadline: float) -> int:
        self.closed = True
        return len(self.events)

    def after_fork(self) -> None:
        self.forked = True

    def settings(self) -> ServerSettings:
        return ServerSettings()


def test_event_refused_by_one_sink_is_lost_there_only() -> None:
    whole, half = MemorySink(), Half()
    sink = FanOutSink(Failing(), half, whole)
    assert sink.send(EVENTS) == 3
    assert (len(whole.events), len(half.events), sink.lost) == (3, 1, [3, 2, 0])
    assert (sink.settings(), sink.discards) == (ServerSettings(), False)
    for ask in (lambda: sink.flush(0), lambda: sink.close(0), sink.after_fork):
        with pytest.raises(ExceptionGroup, match="sinks failed"):
            ask()
    # A failing sink does not keep events from the others.
    assert half.closed
    assert half.forked


def test_fan_out_raises_when_all_sinks_fail() -> None:
    with pytest.raises(ExceptionGroup, match="no sink took the events") as caught:
        FanOutSink(Failing(), Failing()).send(EVENTS)
    assert [type(error) for error in caught.value.exceptions] == [KeyError, KeyError]
    with pytest.raises(ValueError, match="expected at least one sink"):
        FanOutSink()


def test_fan_out_delivers_what_all_sinks_deliver() -> None:
    half: Sink = Half()
    half.send(EVENTS)
    assert (FanOutSink(half, half).flush(0), FanOutSink(half, MemorySink()).close(0)) == (2, 1)
    assert FanOutSink(NullSink(), NullSink()).discards
