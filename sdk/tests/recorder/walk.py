"""A run of a workflow whose nodes note that they ran, for tests of its replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracesite_sdk.recorder.snapshots.stores import SnapshotStore
from tracesite_sdk.recorder.time_machine.machine import Overrides, TimeMachine, Workflow
from tracesite_sdk.testing import RecorderForTests

Graph = Mapping[str, Sequence[str]]


class Walk:
    """A run of a workflow in session `s`: each node adds its name to the context. The recorder takes the snapshots; with
    `records` it records the replays, too."""

    def __init__(self, store: SnapshotStore, recorder: RecorderForTests, graph: Graph, *, records: bool = True) -> None:
        self.ran: list[str] = []
        self.store = store
        self.machine = TimeMachine(store, Workflow(self.run, graph), recorder=recorder if records else None)
        for node in list(graph) or ["a"]:
            recorder.snapshot({"path": [f"before {node}"]}, nodes=[node], session="s")

    def run(self, node: str, context: dict[str, Any], _overrides: Overrides) -> dict[str, Any]:
        self.ran.append(node)
        return {**context, "path": [*context["path"], node]}

    def mapped(self, session: str) -> dict[str, Any]:
        """Return the context of each node that has one."""
        found = {}
        for node, id_ in self.machine.nodes(session).items():
            snapshot = self.store.snapshot(id_)
            assert snapshot is not None, id_
            found[node] = self.machine.context(snapshot)["path"]
        return found
