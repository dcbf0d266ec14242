"""Record of the senders: acknowledged messages and observed faults."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .span_runs import SpanRun


@dataclass
class Entry:
    """Acknowledged message."""

    session: str
    """External id of its session."""
    sent: dict[str, Any]
    """Latest acknowledged state."""
    is_deleted: bool = False
    id: str = ""


@dataclass
class Ledger:
    """Record that the senders of a run share."""

    entries: dict[str, Entry] = field(default_factory=dict)
    """Entries by the external id of the message. Only the sender that added an entry changes it."""
    expendable: dict[str, Entry] = field(default_factory=dict)
    """Messages that a purge may remove whole at any time."""
    span_runs: list[SpanRun] = field(default_factory=list)
    """Runs all of whose spans were acknowledged."""
    tokens: set[str] = field(default_factory=set)
    """Tokens added to the one message that all senders change."""
    answers: Counter[str] = field(default_factory=Counter)
    """Numbers of responses by status, and of broken connections."""
    faults: list[str] = field(default_factory=list)
    """Invalid responses."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, answer: str) -> None:
        with self._lock:
            self.answers[answer] += 1

    def fault(self, what: str) -> None:
        with self._lock:
            self.faults.append(what)

    def acknowledge_run(self, run: SpanRun) -> None:
        with self._lock:
            self.span_runs.append(run)

    def acknowledge(self, entry: Entry, *, expendable: bool = False) -> None:
        with self._lock:
            (self.expendable if expendable else self.entries)[entry.sent["external_id"]] = entry
