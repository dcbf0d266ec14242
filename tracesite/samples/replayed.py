"""A session that failed and its replay: an agent in plain Python, which runs while the samples are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import msgspec

from access_app.db import Database
from access_app.masking import masking_of
from access_app.models import Project
from traces_app.events.decode import decode_events
from traces_app.events.store import record_events
from traces_app.ingest.snapshots import decode_snapshots, store_snapshots
from tracesite_sdk import MemorySink, Overrides, Recorder, Snapshots, TimeMachine, Workflow
from tracesite_sdk.normalize.redacted import redact_event, redact_snapshots
from tracesite_sdk.recorder.snapshots.parts import Snapshot
from tracesite_sdk.recorder.snapshots.server_store import fork_entry, snapshot_entry
from tracesite_sdk.recorder.snapshots.stores import Fork, MemoryStore

SESSION = "sample-parcel-desk"
_NODES = ("plan", "look_up", "answer")
_ORDERS = {2041: {"status": "in transit", "arrives": "Monday"}}
_BETWEEN = timedelta(milliseconds=420)
"""Between two readings of the clock: the agent's own work takes no time."""


class _Sent(MemoryStore):
    """Keeps snapshots for the replay, and what a server would get of them."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []

    def put(self, snapshot: Snapshot, parts: Mapping[str, bytes], generation: int) -> None:
        super().put(snapshot, parts, generation)
        self._send(snapshot.session_id, snapshot_entry(snapshot, parts, generation))

    def put_fork(self, fork: Fork) -> None:
        super().put_fork(fork)
        self._send(fork.session_id, fork_entry(fork))

    def _send(self, session_id: str, entry: Mapping[str, object]) -> None:
        self.bodies.append(msgspec.json.encode({"session_id": session_id, **entry}))


def load_replayed(db: Database, project: Project, start: datetime) -> None:
    """Store both sessions with their snapshots. The first one begins at `start`."""
    store, sink = _Sent(), MemorySink()
    recorder = Recorder(sink=sink, clock=_clock(start).__next__)
    _fail_and_replay(recorder, store)
    recorder.close()
    rules = masking_of(project.pk)
    events = decode_events(msgspec.json.encode({"events": _timed(sink.events)}), ndjson=False)
    record_events(db, project.pk, [redact_event(event, rules) for event in events])
    for body in store.bodies:
        store_snapshots(db, project.pk, redact_snapshots(decode_snapshots(body), rules))


def _timed(events: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the events with durations of the clock that gave their times: the recorder measures with one of its own, so that a call
    would begin after the end of its run."""
    began = {event["id"].removesuffix(".s"): event["number"] for event in events}
    for event in events:
        if "duration" in event["data"]:
            event["data"]["duration"] = (event["number"] - began[event["id"].removesuffix(".e")]) / 1_000_000
    return events


def _fail_and_replay(recorder: Recorder, store: _Sent) -> None:
    """Run a parcel desk with a wrong order number, and replay the node that fails with the right one."""
    recorder.snapshots = Snapshots(store)
    find_order = recorder.tool_call("find_order")(_find_order)

    def run(node: str, context: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
        with recorder.step(model=overrides.model or "scripted-chat-1", agent="parcel desk") as step:
            if node == "plan":
                step.thought = f"The customer asks for order {context['order']}. Look it up."
                return {**context, "plan": "Look up the order, then answer."}
            if node == "look_up":
                step.thought = f"Look up order {context['order']}."
                return {**context, "found": find_order(number=context["order"])}
            step.thought = f"Order {context['order']} is {context['found']['status']}."
            step.message.content = f"Your parcel arrives on {context['found']['arrives']}."
            return {**context, "text": step.message.content}

    context: dict[str, Any] = {"order": 2014}
    session = recorder.session(SESSION, title="Where is my parcel?", tags=["example"])
    with suppress(LookupError), session, recorder.message("Where is my order 2014?"):
        for node in _NODES:
            recorder.snapshot(context, nodes=[node])
            context = run(node, context, Overrides())
    machine = TimeMachine(store, Workflow.chain(run, _NODES), recorder=recorder)
    machine.go_on(
        machine.replay(session_id=SESSION, node_id="look_up", overrides={"context": {"order": 2041}}, mode="live")
    )


def _find_order(number: int) -> dict[str, str]:
    if number not in _ORDERS:
        raise LookupError(f"There is no order {number}.")
    return _ORDERS[number]


def _clock(start: datetime) -> Iterator[int]:
    for number in count():
        yield int((start + number * _BETWEEN).timestamp() * 1_000_000) * 1_000
