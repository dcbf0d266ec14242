"""What the senders know: which messages were acknowledged, and what they saw go wrong."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Entry:
    """One acknowledged message."""

    session: str
    """The external id of its session."""
    sent: dict[str, Any]
    """As it was last acknowledged."""
    is_deleted: bool = False
    id: str = ""


@dataclass
class Ledger:
    """Shared by the senders of a run."""

    entries: dict[str, Entry] = field(default_factory=dict)
    """By the external id of the message. Only the sender that made an entry changes it."""
    expendable: dict[str, Entry] = field(default_factory=dict)
    """Messages that a purge may remove at any time: whole, or not yet."""
    tokens: set[str] = field(default_factory=set)
    """What was put into the one message that all senders change."""
    answers: Counter[str] = field(default_factory=Counter)
    """Answers by status, and connections that broke."""
    faults: list[str] = field(default_factory=list)
    """Answers that must not be."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, answer: str) -> None:
        with self._lock:
            self.answers[answer] += 1

    def fault(self, what: str) -> None:
        with self._lock:
            self.faults.append(what)

    def acknowledge(self, entry: Entry, *, expendable: bool = False) -> None:
        with self._lock:
            (self.expendable if expendable else self.entries)[entry.sent["external_id"]] = entry
