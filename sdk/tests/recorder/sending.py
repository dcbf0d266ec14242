"""Sinks of a test, which share a spool, and a program that records a burst of calls."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sdk.tests.paths import ROOT
from tracesite_sdk.recorder.delivery.http_sink import HttpSink

KEY = "ts_0123456789abcdef"


def soon(seconds: float = 60.0) -> float:
    return time.monotonic() + seconds


def wait_until(holds: Callable[[], object]) -> None:
    deadline = soon()
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


class Sinks:
    """A factory of sinks that share a spool; closes them at the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[HttpSink] = []

    def to(self, url: str, key: str = KEY, **options: Any) -> HttpSink:
        self.made.append(HttpSink(url, key, spool=self.root, **{"interval": 0.01, **options}))
        return self.made[-1]

    def files(self) -> list[str]:
        return sorted(path.suffix for path in self.root.glob("*/*") if path.name != "destination.json")


@pytest.fixture
def sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sinks]:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    sinks = Sinks(tmp_path / "spool")
    yield sinks
    for sink in sinks.made:
        sink.close(time.monotonic())
        wait_until(lambda sink=sink: sink._thread is None)


BURST = """
    import os, sys, time
    sys.path.insert(0, os.getcwd())
    from tracesite_sdk import Recorder
    from tracesite_sdk.recorder.delivery import pipeline
    pipeline.IDLE_AT_EXIT = {idle_at_exit}
    recorder = Recorder({url!r}, key={key!r}, spool={spool!r}, exit_seconds={exit_seconds})
    with recorder.session("burst"), recorder.message(external_id="m"):
        for number in range({calls}):
            with recorder.tool_call("look", {{"number": number}}) as call:
                call.result = "found " * 20
"""


def burst(
    url: str, key: str, sinks: Sinks, calls: int, *, idle_at_exit: float = 60, exit_seconds: float = 150
) -> tuple[float, str]:
    """Return the run time of the process and its log."""
    script = BURST.format(
        url=url, key=key, spool=str(sinks.root), calls=calls, idle_at_exit=idle_at_exit, exit_seconds=exit_seconds
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, check=True, capture_output=True, timeout=300
    )
    return time.monotonic() - began, done.stderr.decode()
