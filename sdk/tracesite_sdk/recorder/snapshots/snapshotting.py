"""Taking snapshots: which contexts are kept, without secrets, and what is left out.

    recorder = Recorder(snapshots=Snapshots(SqliteStore("snapshots.db"), every=2))
    recorder.snapshot({"messages": messages}, nodes=["step-3"])

It happens in the agent's thread, so that the context is copied before the agent goes on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracesite_sdk.recorder.capture.entries import text_of
from tracesite_sdk.recorder.delivery.privacy import Privacy, without_secrets
from tracesite_sdk.redaction.engine import Receipt, may_hold_secrets

from .parts import Codecs, Encoded, Note, Parts, Snapshot, plain_of, read
from .stores import MemoryStore, SessionWasPurged, SnapshotStore

_MOST_SESSIONS = 100
"""Sessions whose parts are remembered."""
_MOST_WAITING = 20
"""Snapshots that wait for an error, with `only_errors`."""
_INDEX_BYTES = 300
"""Approximate bytes of a snapshot besides its parts."""
SAMPLED, NO_ERROR, BUDGET, LEAN = "every", "only_errors", "session_bytes", "lean"
"""Reasons why a snapshot was left out: the names of the settings."""


class SnapshotPurged(LookupError):
    """The content of a snapshot was removed."""


@dataclass
class _Recent:
    """The state of a session that goes on."""

    generation: int
    size: int
    """Bytes that it has taken of its budget."""
    count: int = 0
    parts: Parts = field(default_factory=Parts)
    waiting: deque[Snapshot] = field(default_factory=deque)
    waiting_parts: dict[str, bytes] = field(default_factory=dict)


class Snapshots:
    """Takes the snapshots of a recorder.

    `store`: by default in memory. `codecs`: types besides those of JSON.
    `every`: keep the first of each so many snapshots of a session.
    `only_errors`: keep snapshots only when a step, call or message of their session fails: its last 20.
    `session_bytes`: the most bytes of a session; further snapshots are left out.

    What is left out is counted in the store: `left_out`. Raises ValueError for an invalid number.
    """

    def __init__(
        self,
        store: SnapshotStore | None = None,
        *,
        codecs: Codecs | None = None,
        every: int = 1,
        only_errors: bool = False,
        session_bytes: int = 64 * 2**20,
    ) -> None:
        for name, number in (("every", every), ("session_bytes", session_bytes)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"Snapshots.{name}: expected a whole number above 0, not {number!r}.")
        self.store: SnapshotStore = MemoryStore() if store is None else store
        self.codecs = Codecs() if codecs is None else codecs
        self._every = every
        self._only_errors = only_errors
        self._session_bytes = session_bytes
        self._recent: OrderedDict[str, _Recent] = OrderedDict()
        self._lock = threading.RLock()

    def take(
        self,
        context: Any,
        node_ids: Sequence[str],
        *,
        session_id: str,
        ts: int,
        privacy: Privacy,
        new_id: Callable[[], str],
        always: bool = False,
    ) -> Snapshot | None:
        """Keep the context as it is now, and return its snapshot, or None if it is left out; with `always` it is kept.

        Raises TypeError for invalid node ids, and the errors of the store.
        """
        if isinstance(node_ids, str) or not node_ids:
            raise TypeError(f"snapshot: expected a list of node ids, not {node_ids!r}.")
        node_ids = tuple(dict.fromkeys(map(text_of, node_ids)))
        with self._lock:
            recent = self._of(session_id)
            reason = None if always else self._reason(recent, privacy)
            recent.count += 1
            if reason is not None:
                self.store.leave_out(session_id, reason)
                return None
            for attempt in range(2):
                recent = self._of(session_id)
                (ref, parts), notes, receipts = self._encoded(context, recent.parts, privacy)
                added = (
                    sum(len(part) for name, part in parts.items() if name not in recent.waiting_parts) + _INDEX_BYTES
                )
                if not always and recent.size + added > self._session_bytes:
                    if self._drop_waiting(session_id) and not attempt:
                        continue
                    self.store.leave_out(session_id, BUDGET)
                    return None
                snapshot = Snapshot(
                    id=f"snapshot-{new_id()}",
                    session_id=session_id,
                    ts=ts,
                    node_ids=node_ids,
                    context_ref=ref,
                    notes=tuple(notes),
                    redactions=tuple(receipt.as_json() for receipt in receipts),
                )
                recent.size += added
                recent.waiting_parts |= parts
                recent.waiting.append(snapshot)
                try:
                    self._keep_waiting(session_id, recent) if always or not self._only_errors else self._limit(recent)
                except SessionWasPurged:
                    # Parts that it relied on are gone: once more, with all of them.
                    if attempt:
                        raise
                    continue
                return snapshot
        raise AssertionError("the second attempt returns or raises")

    def failed(self, session_id: str) -> None:
        """Keep the snapshots that wait for an error of this session."""
        with self._lock:
            recent = self._recent.get(session_id)
            if recent is not None and recent.waiting:
                self._keep_waiting(session_id, recent)

    def after_fork(self) -> None:
        """In a child process: forget the locks of the parent."""
        self._lock = threading.RLock()
        self.store.after_fork()

    def context(self, snapshot: Snapshot) -> Any:
        """Return a new copy of the context. Raises SnapshotPurged, and LookupError if a type has no codec here."""
        if snapshot.is_purged:
            raise SnapshotPurged(
                f"The content of snapshot {snapshot.id!r} was purged: session {snapshot.session_id!r} cannot be replayed"
                f" from {', '.join(map(repr, snapshot.node_ids))}."
            )
        return read(snapshot.context_ref, lambda refs: self.store.parts(snapshot.session_id, refs), self.codecs)

    def left_out(self, session_id: str) -> Mapping[str, int]:
        """Return how many snapshots of a session were not kept, by the setting that was the reason."""
        with self._lock:
            recent = self._recent.get(session_id)
            counts = dict(self.store.state(session_id).left_out)
            if recent is not None and recent.waiting:
                counts[NO_ERROR] = counts.get(NO_ERROR, 0) + len(recent.waiting)
            return counts

    def _reason(self, recent: _Recent, privacy: Privacy) -> str | None:
        if privacy.lean:
            return LEAN
        if recent.count % self._every:
            return SAMPLED
        return BUDGET if recent.size >= self._session_bytes else None

    def _of(self, session_id: str) -> _Recent:
        recent = self._recent.get(session_id)
        if recent is None:
            state = self.store.state(session_id)
            recent = self._recent[session_id] = _Recent(state.generation, state.size)
            if len(self._recent) > _MOST_SESSIONS:
                self._recent.popitem(last=False)
        self._recent.move_to_end(session_id)
        return recent

    def _encoded(self, context: Any, parts: Parts, privacy: Privacy) -> tuple[Encoded, list[Note], list[Receipt]]:
        """Return the context in parts, without secrets."""
        parts.under(privacy.rules)
        # Functions and rules for paths may ask for a place in a list.
        if not privacy.functions and not privacy.rules.paths and not privacy.rules.functions:
            plain = plain_of(context, self.codecs, parts.recall)
            probe, fresh = parts.fresh_texts(plain.value)
            if not may_hold_secrets((probe, *fresh), privacy.rules):
                parts.harmless(fresh)
                return parts.split(plain.value, plain.items), plain.notes, []
        plain = plain_of(context, self.codecs)
        clean, receipts = without_secrets(plain.value, privacy, "")
        return parts.split(clean), plain.notes, receipts

    def _limit(self, recent: _Recent) -> None:
        """Keep the number of snapshots that wait for an error within its limit."""
        if len(recent.waiting) > _MOST_WAITING:
            self.store.leave_out(recent.waiting.popleft().session_id, NO_ERROR)

    def _drop_waiting(self, session_id: str) -> bool:
        """Leave out the snapshots that wait for an error, and return whether there were any."""
        recent = self._recent[session_id]
        if not recent.waiting_parts:
            return False
        del self._recent[session_id]
        for _snapshot in recent.waiting:
            self.store.leave_out(session_id, NO_ERROR)
        return True

    def _keep_waiting(self, session_id: str, recent: _Recent) -> None:
        # Forgotten first: if the store raises, the next snapshot brings all of its parts.
        self._recent.pop(session_id, None)
        for snapshot in recent.waiting:
            self.store.put(snapshot, recent.waiting_parts, recent.generation)
        recent.parts.known |= recent.waiting_parts.keys()
        recent.waiting.clear()
        recent.waiting_parts.clear()
        self._recent[session_id] = recent
