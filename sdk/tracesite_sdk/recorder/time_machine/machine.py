"""The time machine: go back to a node of a recorded session, change something, run it again, and go on.

    machine = TimeMachine(recorder.snapshots.store, Workflow(run, children={"plan": ["search"], "search": ["answer"]}))
    replay = machine.replay(session_id="weather-1", node_id="search", overrides={"context": {"city": "Oslo"}})
    contexts = machine.go_on(replay)

A replay is a session of its own, a fork. The session that was replayed is never changed. In the fork
1. the direct children of the node use S', the context after it;
2. deeper descendants have no context until they are rebuilt, on demand, by running the nodes before them;
3. parallel siblings (other children of the node's parents) and the nodes of their branches keep their contexts. A direct child
   that is in such a branch too uses S'.
A node with several parents uses the context after the last of them that ran, without what others added, unless `merge` says
otherwise.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, fields
from secrets import token_hex
from typing import Any, Literal, Protocol, TypeVar

from tracesite_sdk.recorder.capture.decorating import RUN, Called, answering
from tracesite_sdk.recorder.delivery.privacy import Privacy, without_secrets
from tracesite_sdk.recorder.guard import logger
from tracesite_sdk.recorder.recording import Recorder
from tracesite_sdk.recorder.scopes import ToolCall
from tracesite_sdk.recorder.snapshots.parts import Codecs, Snapshot, plain_of
from tracesite_sdk.recorder.snapshots.snapshotting import Snapshots
from tracesite_sdk.recorder.snapshots.stores import Fork, SnapshotStore

from .recorded import Recorded, Results, Unrecorded

F = TypeVar("F", bound=Callable[..., Any])
Mode = Literal["live", "virtual", "mixed"]
"""live: tools run. virtual: recorded results answer. mixed: recorded results answer, except for the tools in `live`."""
Merge = Callable[[str, Any, Mapping[str, Any]], Any]
"""Return the context before a node with several parents, from its id, its context in the replayed session (None if it has none),
and the contexts after those of its parents that have run in the fork, by node."""
Isolate = Callable[[Fork, str], AbstractContextManager[Any]]
"""Return the context manager inside which a node of a fork runs."""
_MODES = ("live", "virtual", "mixed")
_IDEMPOTENT = "tracesite_idempotent"
_MOST_NAMED = 10
"""Nodes that an error names."""
_MOST_SHOWN = 4_000
"""Characters of an override in `forked_from`."""


class NodeNotFound(LookupError):
    """No snapshot holds the node."""


def idempotent(tool: F) -> F:
    """Decorate a tool that may run again without harm: in a virtual replay it runs where no result was recorded."""
    layer: Any = tool
    while layer is not None:
        # In all layers, so that it may stand above or below other decorators.
        setattr(layer, _IDEMPOTENT, True)
        layer = getattr(layer, "__wrapped__", None)
    return tool


class Executor(Protocol):
    """The workflow of an agent, as a graph of nodes."""

    def children(self, node_id: str) -> Sequence[str]:
        """Return the nodes that use the context of this one."""

    def parents(self, node_id: str) -> Sequence[str]:
        """Return the nodes whose children include this one."""

    def run(self, node_id: str, context: Any, overrides: Overrides) -> Any:
        """Run one node, and return the context after it."""


@dataclass(frozen=True)
class Overrides:
    """The values that are different in a replay."""

    context: Any = None
    """A dict: fields that replace those of the context. Any other value replaces the context; None leaves it."""
    tools: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Functions that run in place of decorated tools, by the name of the tool. They get the arguments of the tool."""
    model: str | None = None
    prompt: str | None = None
    """`model` and `prompt` are for the executor, which knows where they belong."""

    def of(self, context: Any) -> Any:
        """Return the context with its overrides."""
        if self.context is None:
            return context
        if isinstance(self.context, Mapping) and isinstance(context, Mapping):
            return {**context, **self.context}
        return self.context


class Workflow:
    """An executor from a function and the children of each node. `Workflow.chain` is one of nodes after each other."""

    def __init__(self, run: Callable[[str, Any, Overrides], Any], children: Mapping[str, Sequence[str]]) -> None:
        self.run = run
        self._children = children
        self._parents: dict[str, list[str]] = {}
        for parent, nodes in children.items():
            for node in nodes:
                self._parents.setdefault(node, []).append(parent)

    @classmethod
    def chain(cls, run: Callable[[str, Any, Overrides], Any], nodes: Sequence[str]) -> Workflow:
        return cls(run, {node: [after] for node, after in zip(nodes, nodes[1:], strict=False)})

    def children(self, node_id: str) -> Sequence[str]:
        return self._children.get(node_id, ())

    def parents(self, node_id: str) -> Sequence[str]:
        return self._parents.get(node_id, ())


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A node that was run again."""

    session_id: str
    """The session of the replay."""
    forked_from: Fork
    context: Any
    """S': the context after the node."""
    mode: Mode
    live: frozenset[str] = frozenset()


class TimeMachine:
    """Replays nodes of sessions whose snapshots are in a store.

    `recorder`: records replays as sessions with `forked_from` in their metadata; its privacy applies to their snapshots.
    `recorded`: the results of tools for the modes `virtual` and `mixed`. `codecs`: as the snapshots were made with, by default those of
    `recorder`. `merge`: the contexts of nodes with several parents. `isolate`: keeps a node from files, the network and the clock,
    which a replay does not touch.
    """

    def __init__(
        self,
        store: SnapshotStore,
        executor: Executor,
        *,
        recorder: Recorder | None = None,
        recorded: Recorded | None = None,
        codecs: Codecs | None = None,
        merge: Merge | None = None,
        isolate: Isolate | None = None,
    ) -> None:
        if codecs is None and recorder is not None:
            codecs = recorder.snapshots.codecs
        self._snapshots = Snapshots(store, codecs=codecs)
        self._store = store
        self._executor = executor
        self._recorder = recorder
        self._recorded = recorded
        self._merge = merge
        self._isolate = isolate

    def replay(
        self,
        *,
        session_id: str,
        node_id: str,
        overrides: Mapping[str, Any] | None = None,
        mode: Mode = "virtual",
        live: Iterable[str] = (),
    ) -> Replay:
        """Run one node again, from its latest snapshot, in a fork of the session.

        `overrides`: fields of `Overrides`. `live`: tools that run in the mode `mixed`. A node whose context was pruned by an
        earlier replay is rebuilt first, by running the nodes before it.

        Raises NodeNotFound if no snapshot holds the node, SnapshotPurged if its content was purged, Unrecorded for a call of
        a tool that was not recorded, ValueError for invalid overrides or modes, and the exceptions of the executor.
        """
        changed = _overrides_from(overrides or {})
        tools_live = frozenset(live)
        if mode not in _MODES:
            raise ValueError(f"mode: expected 'live', 'virtual' or 'mixed', not {mode!r}.")
        if tools_live and mode != "mixed":
            raise ValueError(f"live: expected no tools in the mode {mode!r}; 'mixed' runs some.")
        snapshot = self._snapshot_of(session_id, node_id, mode, tools_live)
        children = self._executor.children(node_id)
        pruned = self.pruned_by(node_id)
        fork = Fork(
            session_id=f"{session_id}-fork-{token_hex(4)}",
            source=session_id,
            node_id=node_id,
            snapshot_id=snapshot.id,
            ts=snapshot.ts,
            overrides=self._shown(changed),
            nodes={
                node: id_ for node, id_ in self.nodes(session_id).items() if node not in pruned and node not in children
            },
            pruned=tuple(sorted(pruned)),
        )
        context = changed.of(self.context(snapshot))
        if changed.context is not None:
            self._keep(fork.session_id, context, [node_id])
        result = self._run(fork, node_id, context, changed, mode, tools_live)
        self._store.put_fork(fork)
        self._hand_down(fork, {node_id: result}, node_id, children)
        return Replay(session_id=fork.session_id, forked_from=fork, context=result, mode=mode, live=tools_live)

    def go_on(self, replay: Replay) -> dict[str, Any]:
        """Run all nodes below the replayed one, each once and after those of its parents that run too. Return the context
        after each, by node. Raises as `replay` does."""
        fork = replay.forked_from
        after = {fork.node_id: replay.context}
        for node in self._below(fork.node_id):
            snapshot = self._snapshot_of(fork.session_id, node, replay.mode, replay.live)
            context = self.context(snapshot)
            if self._merge is None and self._is_join(node) and _lacks(context, self._context_in_source(fork, node)):
                logger.warning(
                    "Node %r of a replay lacks values that it had in session %r: its context is that after its last parent. "
                    "Pass TimeMachine(merge=...) to keep what other parents added.",
                    node,
                    fork.source,
                )
            after[node] = self._run(fork, node, context, Overrides(), replay.mode, replay.live)
            self._hand_down(fork, after, node, self._executor.children(node))
        del after[fork.node_id]
        return after

    def nodes(self, session_id: str) -> dict[str, str]:
        """Return the snapshot that each node of a session would be replayed from: ids by node id."""
        fork = self._store.fork(session_id)
        nodes = {} if fork is None else dict(fork.nodes)
        for snapshot in self._store.snapshots(session_id):
            nodes.update(dict.fromkeys(snapshot.node_ids, snapshot.id))
        return nodes

    def context(self, snapshot: Snapshot) -> Any:
        """Return a new copy of a snapshot's context. Raises SnapshotPurged."""
        return self._snapshots.context(snapshot)

    def pruned_by(self, node_id: str) -> set[str]:
        """Return the nodes whose context becomes invalid when this node is replayed: its descendants from the second level
        on, without those that a parallel sibling leads to."""
        children = set(self._executor.children(node_id))
        below = self._reached(children, set())
        affected = {node_id, *children}
        siblings = {
            sibling for parent in self._executor.parents(node_id) for sibling in self._executor.children(parent)
        } - below
        kept = self._reached(siblings - affected, affected)
        return below - affected - kept

    # --- Inside -----------------------------------------------------------------------------------------------------

    def _reached(self, nodes: Iterable[str], without: set[str]) -> set[str]:
        """Return these nodes and those that they lead to, without passing some."""
        reached: set[str] = set()
        left = [node for node in nodes if node not in without]
        while left:
            node = left.pop()
            if node not in reached:
                reached.add(node)
                left += [child for child in self._executor.children(node) if child not in without]
        return reached

    def _below(self, node_id: str) -> list[str]:
        """Return the descendants of a node, parents before children. A way back to a node that was passed is not followed."""
        order: list[str] = []
        seen = {node_id}
        left = [(node_id, iter(self._executor.children(node_id)))]
        while left:
            node, children = left[-1]
            child = next((child for child in children if child not in seen), None)
            if child is None:
                left.pop()
                order.append(node)
            else:
                seen.add(child)
                left.append((child, iter(self._executor.children(child))))
        return order[-2::-1]

    def _snapshot_of(self, session_id: str, node_id: str, mode: Mode, live: frozenset[str]) -> Snapshot:
        """Return the latest snapshot that holds the node, or a rebuilt one."""
        held = self._held(session_id, node_id)
        if held is not None:
            return held
        fork = self._store.fork(session_id)
        if fork is None or node_id not in fork.pruned:
            raise NodeNotFound(self._why_not_found(session_id, node_id))
        return self._rebuilt(fork, node_id, mode, live)

    def _held(self, session_id: str, node_id: str) -> Snapshot | None:
        """Return the latest snapshot that holds the node; in a fork also that of its source."""
        snapshot = self._store.latest(session_id, node_id)
        if snapshot is None:
            fork = self._store.fork(session_id)
            if fork is not None and node_id in fork.nodes:
                snapshot = self._store.snapshot(fork.nodes[node_id])
        return snapshot

    def _rebuilt(self, fork: Fork, node_id: str, mode: Mode, live: frozenset[str]) -> Snapshot:
        """Run the nodes that lead from the replayed node to this one, and return its new snapshot."""
        path = self._way_to(fork, node_id)
        for node in path[:-1]:
            snapshot = self._store.latest(fork.session_id, node)
            assert snapshot is not None, "the node before it was run"
            result = self._run(fork, node, self.context(snapshot), Overrides(), mode, live)
            unknown = [
                child
                for child in self._executor.children(node)
                if child in fork.pruned and self._store.latest(fork.session_id, child) is None
            ]
            self._hand_down(fork, {node: result}, node, unknown)
        parent = self._store.latest(fork.session_id, node_id)
        assert parent is not None, "its parent was run"
        return parent

    def _way_to(self, fork: Fork, node_id: str) -> list[str]:
        """Return the shortest way to a pruned node from one that has a context in the fork."""
        invalid = {*fork.pruned, *self._executor.children(fork.node_id)}
        after: dict[str, str | None] = {node_id: None}
        left = deque([node_id])
        while left:
            node = left.popleft()
            if self._store.latest(fork.session_id, node) is not None:
                path, step = [node], after[node]
                while step is not None:
                    path.append(step)
                    step = after[step]
                return path
            for parent in self._executor.parents(node):
                if parent in invalid and parent not in after:
                    after[parent] = node
                    left.append(parent)
        raise NodeNotFound(
            f"Node {node_id!r} of session {fork.session_id!r} cannot be rebuilt: nothing leads to it from node"
            f" {fork.node_id!r}."
        )

    def _why_not_found(self, session_id: str, node_id: str) -> str:
        known = list(self.nodes(session_id))
        text = f"No snapshot of session {session_id!r} holds node {node_id!r}."
        if not known:
            text += " The session has no snapshots in this store."
        else:
            text += f" It has snapshots of: {', '.join(known[-_MOST_NAMED:])}."
        left_out = self._store.state(session_id).left_out
        if left_out:
            text += f" Left out: {', '.join(f'{count} by {reason}' for reason, count in left_out.items())}."
        return text

    def _hand_down(self, fork: Fork, after: Mapping[str, Any], node: str, children: Sequence[str]) -> None:
        """Keep the context after a node for its children; `after` has those of all nodes that have run."""
        joins = [child for child in children if self._merge is not None and self._is_join(child)]
        self._keep(fork.session_id, after[node], [child for child in children if child not in joins])
        for child in joins:
            assert self._merge is not None, "there are joins"
            ran = {parent: after[parent] for parent in self._executor.parents(child) if parent in after}
            merged = self._merge(child, self._context_in_source(fork, child), ran)
            self._keep(fork.session_id, merged, [child])

    def _is_join(self, node: str) -> bool:
        return len(self._executor.parents(node)) > 1

    def _context_in_source(self, fork: Fork, node: str) -> Any:
        """Return the context that a node had in the replayed session; None if there is none."""
        snapshot = self._held(fork.source, node)
        return None if snapshot is None or snapshot.is_purged else self.context(snapshot)

    def _keep(self, session_id: str, context: Any, nodes: Sequence[str]) -> None:
        if nodes:
            recorder = self._recorder
            self._snapshots.take(
                context,
                nodes,
                session_id=session_id,
                ts=time.time_ns() if recorder is None else recorder.runtime.now(),
                privacy=self._privacy,
                new_id=token_hex if recorder is None else recorder.runtime.new_id,
                always=True,
            )

    @property
    def _privacy(self) -> Privacy:
        return Privacy() if self._recorder is None else self._recorder.privacy

    def _run(self, fork: Fork, node: str, context: Any, overrides: Overrides, mode: Mode, live: frozenset[str]) -> Any:
        """Run one node in the session of the fork."""
        with ExitStack() as stack:
            if self._recorder is not None:
                title = f"Replay of {fork.node_id} in {fork.source}"
                metadata = {"forked_from": fork.as_json()}
                stack.enter_context(self._recorder.session(fork.session_id, title=title, metadata=metadata))
                stack.enter_context(self._recorder.message(f"Replay: {node}", metadata={"node": node}))
            stack.enter_context(answering(self._tools(fork.source, node, overrides, mode, live)))
            if self._isolate is not None:
                stack.enter_context(self._isolate(fork, node))
            return self._executor.run(node, context, overrides)

    def _tools(
        self, session_id: str, node: str, overrides: Overrides, mode: Mode, live: frozenset[str]
    ) -> Callable[[Called], Any]:
        """Return what answers the calls of tools while a node runs."""
        # Results from before the node belong to earlier ones.
        snapshot = self._held(session_id, node)
        since = 0 if snapshot is None else snapshot.ts
        calls = () if self._recorded is None else self._recorded.calls
        results = Results((call for call in calls if call.number >= since), self._privacy)

        def answer(called: Called) -> Any:
            if not isinstance(called.scope, ToolCall):
                return RUN
            name = called.scope.name
            if name in overrides.tools:
                return overrides.tools[name](*called.args, **called.kwargs)
            if mode == "live" or name in live:
                return RUN
            try:
                return results.take(name, results.clean(called.arguments)).answer()
            except Unrecorded:
                if getattr(called.function, _IDEMPOTENT, False):
                    return RUN
                raise

        return answer

    def _shown(self, overrides: Overrides) -> dict[str, Any]:
        """Return the overrides as they are recorded: without secrets, and with the names of functions only."""
        shown: dict[str, Any] = {
            "context": overrides.context,
            "tools": sorted(overrides.tools) or None,
            "model": overrides.model,
            "prompt": overrides.prompt,
        }
        plain = plain_of({name: value for name, value in shown.items() if value is not None}, Codecs()).value
        clean, _receipts = without_secrets(plain, self._privacy, "")
        if "context" in clean and isinstance(clean["context"], dict):
            clean["context"] = {name: _short(value) for name, value in clean["context"].items()}
        return {name: value if name == "context" else _short(value) for name, value in clean.items()}


def _lacks(context: Any, before: Any) -> bool:
    """Return whether fields or items are missing that were there before."""
    if isinstance(context, Mapping) and isinstance(before, Mapping):
        return any(name not in context or _lacks(context[name], value) for name, value in before.items())
    return isinstance(context, list) and isinstance(before, list) and len(context) < len(before)


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… [cut, of {len(text)} characters]"


def _overrides_from(given: Mapping[str, Any]) -> Overrides:
    names = [field.name for field in fields(Overrides)]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"overrides: expected {', '.join(names)}, not {', '.join(map(repr, unknown))}.")
    tools = given.get("tools", {})
    if not isinstance(tools, Mapping) or not all(map(callable, tools.values())):
        raise ValueError("overrides: expected functions by name for 'tools'.")
    for name in ("model", "prompt"):
        if not isinstance(given.get(name), str | None):
            raise ValueError(f"overrides: expected a text for {name!r}, not {given[name]!r}.")
    return Overrides(**given)
