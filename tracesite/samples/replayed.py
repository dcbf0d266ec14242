"""A session that failed and its replay: the example of the time machine, which runs while the samples are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import count

import msgspec

from access_app.masking import masking_of
from access_app.models import Project
from traces_app.events.decode import decode_events
from traces_app.events.store import record_events
from traces_app.ingest.snapshots import decode_snapshots, store_snapshots
from traces_app.normalize.redaction import redact_event, redact_snapshots
from tracesite.recorder import Recorder
from tracesite.recorder.example_time_machine import failed_and_replayed
from tracesite.recorder.server_snapshots import fork_entry, snapshot_entry
from tracesite.recorder.sinks import MemorySink
from tracesite.recorder.snapshot_stores import Fork, MemoryStore
from tracesite.recorder.snapshots import Snapshot

SESSION = "sample-parcel-desk"
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


def load_replayed(project: Project, start: datetime) -> None:
    """Store both sessions with their snapshots. The first one begins at `start`."""
    store, sink = _Sent(), MemorySink()
    recorder = Recorder(sink=sink, clock=_clock(start).__next__)
    failed_and_replayed(recorder, store, SESSION)
    recorder.close()
    rules = masking_of(project.pk)
    events = decode_events(msgspec.json.encode({"events": sink.events}), ndjson=False)
    record_events(project.pk, [redact_event(event, rules) for event in events])
    for body in store.bodies:
        store_snapshots(project.pk, redact_snapshots(decode_snapshots(body), rules))


def _clock(start: datetime) -> Iterator[int]:
    for number in count():
        yield int((start + number * _BETWEEN).timestamp() * 1_000_000) * 1_000
