"""Test that runs of a killed process are ended by the process that takes over its spool, and no other runs are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from access_app.models import Project
from messages_app.interruptions import PROCESS_ENDED, TEXTS
from messages_app.models import Message, Session
from traces_app.events.decode import event_from
from traces_app.events.store import record_events
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.recorder.delivery import open_runs
from tracesite_sdk.recorder.delivery.spool import Spool
from tracesite_sdk.redaction.rules import DEFAULT_RULES

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


@pytest.mark.system
@pytest.mark.django_db
def test_run_of_killed_process_is_closed_and_ended_one_is_not(machine: Machine, project: Project) -> None:
    machine.run(KILLED)
    events = machine.delivered()
    assert interrupted(events) == ["open"]
    assert events[-1]["data"]["interrupted"] == "process_ended", "behind all that the process left"
    assert machine.left() == []
    record_events(project.pk, [redact_event(event_from(one, ""), DEFAULT_RULES) for one in events])
    assert list(
        Message.objects.filter(role="assistant").order_by("pk").values_list("external_id", "error", "health")
    ) == [
        ("done", "", []),
        ("open", TEXTS[PROCESS_ENDED], ["interrupted"]),
    ]
    assert Session.objects.get().status == "aborted"


@pytest.mark.system
def test_run_is_known_when_all_events_were_delivered_before(machine: Machine) -> None:
    process = machine.start("""
        recorder.message("Go", external_id="open").enter()
        wait()
    """)
    # As if a server had accepted everything: the segment is empty and only the journal is left.
    for segment in machine.root.glob("*/*.ndjson"):
        os.truncate(segment, 0)
    process.kill()
    process.wait()
    assert [one["data"] for one in machine.delivered()][0]["interrupted"] == "process_ended"
    assert machine.left() == []


@pytest.mark.system
def test_run_of_living_process_is_not_closed(machine: Machine) -> None:
    machine.start("""
        recorder.message("Go", external_id="shared").enter()
        wait()
    """)
    machine.run("""
        recorder.message("Go", external_id="shared").enter()
        recorder.message("Go", external_id="own").enter()
        die()
    """)
    assert interrupted(machine.delivered()) == ["own"]
    assert interrupted(machine.delivered()) == [], "it is reported once"
    machine.processes[0].kill()
    machine.processes[0].wait()
    events = machine.delivered()
    assert interrupted(events) == ["shared", "shared"], "an attempt of each process"
    assert len({one["data"]["attempt"] for one in events if "interrupted" in one["data"]}) == 2
    assert machine.left() == []


@pytest.mark.system
def test_run_that_forked_child_works_on_is_not_closed(machine: Machine) -> None:
    process = machine.start("""
        recorder.session("s").enter()
        message = recorder.message("Go", external_id="open").enter()
        if os.fork() == 0:
            with recorder.tool_call("search", {"q": 1}):
                pass
            wait()
            os._exit(0)
        die()
    """)
    process.wait()
    assert interrupted(machine.delivered()) == []
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.close()
    assert process.stdout is not None
    process.stdout.read()  # ends with the child
    assert interrupted(machine.delivered()) == ["open"]


@pytest.mark.system
def test_run_that_process_left_open_at_its_end_is_not_closed(machine: Machine) -> None:
    machine.run("""
        recorder.message("Go", external_id="paused").enter()
        write()
        recorder.close(timeout=0.1)
    """)
    assert interrupted(machine.delivered()) == []


@pytest.mark.system
def test_undelivered_interruption_is_sent_by_next_process(machine: Machine) -> None:
    machine.run(KILLED)
    (directory,) = machine.root.iterdir()
    spool = Spool.at(directory)
    assert spool.adopt()
    ended = 0
    while (batch := spool.next_batch(own=False, most_events=100, most_bytes=2**20)) is not None:
        if any(b'"interrupted"' in line for line in batch.lines):
            ended += 1
            break
        spool.settle(batch)
    spool.release()
    assert ended == 1
    assert interrupted(machine.delivered()) == ["open"]


def test_journal_is_emptied_when_no_run_is_open(tmp_path: Path) -> None:
    journal, path = open_runs.Journal(), tmp_path / "a.runs"
    event = {"session_id": "s", "type": "workflow_execute_start", "number": 1, "data": {}}
    for number in range(50):
        name = f"m{number}"
        journal.note([msgspec.json.encode({**event, "message_id": name, "id": f"{name}.s"})], path)
        assert [run.message for run in open_runs.read(path)[0]] == [name]
        end = {**event, "type": "workflow_execute_complete", "message_id": name, "id": f"{name}.e"}
        journal.note([msgspec.json.encode(end)], path)
        assert path.stat().st_size == 0
    journal.forget()


@pytest.mark.parametrize("line", [b"", b"+{", b"+[]", b'+{"session": 1}', b"\xff\xfe", b"-nothing", b"?"])
def test_damaged_line_of_journal_is_left_out(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.runs"
    path.write_bytes(b'+{"session":"s","message":"m"}\n' + line + b'\n+{"session":"s","message":"cut')
    assert [run.key for run in open_runs.read(path)[0]] == ["m"]


def test_text_that_looks_like_event_of_run_begins_none(tmp_path: Path) -> None:
    journal, path = open_runs.Journal(), tmp_path / "a.runs"
    inside = {"type": "workflow_execute_start", "id": "x.s"}
    event = {"session_id": "s", "message_id": "m", "id": "c.s", "type": "tool_call_start", "data": {"args": inside}}
    journal.note([msgspec.json.encode(event)], path)
    assert open_runs.read(path) == ([], set())
