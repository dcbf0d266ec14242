"""Test that runs of a killed process are ended by the process that takes over its spool, and no other runs are."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from sdk.tests.recorder.processes import KILLED, Machine, interrupted, machine
from tracesite_sdk.recorder.delivery import open_runs
from tracesite_sdk.recorder.delivery.spool import Spool

__all__ = ["machine"]


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
