"""Processes that record to one spool and are killed, and another one that takes it over."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tracesite_sdk.recorder.delivery.spool import Spool

URL, KEY = "http://127.0.0.1:9", "ts_0123456789"


class Machine:
    """Processes that record to one spool without a server, and another process that delivers their events."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spools: list[Spool] = []
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, script: str) -> subprocess.Popen[str]:
        """Start a script with a recorder and wait until it has printed a line."""
        program = f"""
            import os, signal, sys, time
            from tracesite_sdk import Recorder
            recorder = Recorder({URL!r}, {KEY!r}, spool={str(self.root)!r}, delay_ms=1)
            def write():  # however long the disk takes
                before = None
                while (now := recorder.report()) != before or now.delivered_to_sink < now.recorded:
                    before = now
                    time.sleep(0.01)
            def die():
                write()
                os.kill(os.getpid(), signal.SIGKILL)
            def wait():
                write()
                print("ready", flush=True)
                sys.stdin.readline()
        """
        whole = textwrap.dedent(program) + textwrap.dedent(script)
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", whole],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def run(self, script: str) -> None:
        assert self.start(script).wait(120) is not None

    def delivered(self) -> list[dict[str, Any]]:
        """Return the events of dead processes that another process sends."""
        (directory,) = [path for path in self.root.iterdir() if path.is_dir()]
        spool = Spool.at(directory)
        self.spools.append(spool)
        found: list[dict[str, Any]] = []
        while spool.adopt():
            while (batch := spool.next_batch(own=False, most_events=100, most_bytes=2**20)) is not None:
                found += map(json.loads, batch.lines)
                spool.settle(batch)
        return found

    def left(self) -> list[str]:
        return sorted(path.suffix for path in self.root.glob("*/*") if path.name != "destination.json")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "spool")
    yield machine
    for process in machine.processes:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
    for spool in machine.spools:
        spool.release()


def interrupted(events: list[dict[str, Any]]) -> list[str]:
    return [one["message_id"] for one in events if "interrupted" in one["data"]]


KILLED = """
    with recorder.session("s"), recorder.message("Go", external_id="done"):
        pass
    recorder.session("s").enter()
    recorder.message("Go", external_id="open").enter()
    recorder.tool_call("search", {"q": 1}).enter()
    die()
"""
