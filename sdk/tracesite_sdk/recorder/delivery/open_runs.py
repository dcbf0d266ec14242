"""A journal of the open runs of a process, on the disk beside its spool: the process that takes over the spool of a dead one
reports these runs as interrupted.

    <owner>.runs    a line for each begin and end: "+" or "~" and the run as JSON, or "-" and its key

The file is emptied when no run is open, so it stays small. A run is added after its first event is on the disk, and removed
once its end is: a kill in between leaves a run for close_stale_runs, and never marks a living run as dead.

A process that was forked in the middle of a run works on it too ("~"), though its parent ends it: such a run is not closed
while either of them lives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_ABOUT_A_RUN = b'"type":"workflow_execute_'
_MOST_BYTES = 256 * 1024
"""The size at which a journal is rewritten without the runs that have ended."""


class _Attempt(msgspec.Struct):
    attempt: str | None = None


class _Head(msgspec.Struct):
    session_id: str
    message_id: str
    id: str
    type: str
    data: _Attempt = msgspec.field(default_factory=_Attempt)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has begun, with the ids of its events."""

    session: str
    message: str
    attempt: str | None = None
    """Distinguishes the processes that begin a run under the same id."""

    @property
    def key(self) -> str:
        return f"{self.message}.{self.attempt}" if self.attempt else self.message


_HEADS = msgspec.json.Decoder(_Head)
_RUNS = msgspec.json.Decoder(Run)


class Journal:
    """The open runs of one process. The caller holds the lock of the spool. A full disk raises nothing."""

    def __init__(self, *, is_forked: bool = False) -> None:
        self._open: dict[str, Run] = {}
        self._worked_on: dict[str, Run] = {}
        self._is_forked = is_forked
        self._file = -1
        self._size = 0

    def note(self, events: Iterable[bytes], path: Path | None) -> None:
        """Add and remove the runs that these events begin and end. The events are on the disk; `path` is None without one."""
        lines: list[bytes] = []
        for event in events:
            if self._is_forked or _ABOUT_A_RUN in event:
                lines += self._lines(event)
        if lines and path is not None:
            with suppress(OSError):  # the spool logs that the disk is full
                self._write(lines, path)

    def _lines(self, event: bytes) -> list[bytes]:
        try:
            head = _HEADS.decode(event)
        except msgspec.DecodeError:
            return []
        begins = head.type == "workflow_execute_start" and head.id.endswith(".s")
        run = Run(session=head.session_id, message=head.message_id, attempt=head.data.attempt if begins else None)
        if begins:
            self._open[run.key] = run
            return [b"+" + msgspec.json.encode(run)]
        if head.type == "workflow_execute_complete":
            # "<message>.<attempt>.e", or "<message>.e": as its beginning ended in ".s".
            key = head.id.removesuffix(".e")
            return [b"-" + key.encode()] if self._open.pop(key, None) is not None else []
        known = {run.message for run in self._open.values()} if self._is_forked else {run.message}
        if run.message in known or run.message in self._worked_on:
            return []
        self._worked_on[run.message] = run
        return [b"~" + msgspec.json.encode(run)]

    def _write(self, lines: list[bytes], path: Path) -> None:
        if self._file < 0:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600)
        is_empty = not (self._open or self._worked_on)
        if is_empty or self._size > _MOST_BYTES:
            os.ftruncate(self._file, 0)
            self._size = 0
            lines = [b"+" + msgspec.json.encode(run) for run in self._open.values()]
            lines += [b"~" + msgspec.json.encode(run) for run in self._worked_on.values()]
        text = b"".join(line + b"\n" for line in lines)
        os.write(self._file, text)
        self._size += len(text)

    @property
    def messages(self) -> set[str]:
        """The ids of the messages that this process works on."""
        return {run.message for run in self._open.values()} | set(self._worked_on)

    def moved(self, path: Path) -> None:
        """Continue in a new file, because the spool has moved."""
        self.forget()
        lines = [b"+" + msgspec.json.encode(run) for run in self._open.values()]
        if lines:
            with suppress(OSError):
                self._write(lines, path)

    def forget(self) -> None:
        """Close the file without removing it."""
        file, self._file, self._size = self._file, -1, 0
        if file >= 0:
            os.close(file)


def read(path: Path) -> tuple[list[Run], set[str]]:
    """Return the runs that a process left open, and the messages that it works or worked on. Nothing for a file that is missing
    or cannot be read; an incomplete last line is skipped."""
    begun: dict[str, Run] = {}
    worked_on: set[str] = set()
    try:
        with open(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return [], set()
    for line in lines:
        sign, rest = line[:1], line[1:]
        if sign == b"-":
            begun.pop(rest.decode("utf-8", "replace"), None)
            continue
        with suppress(msgspec.DecodeError):
            run = _RUNS.decode(rest)
            if sign == b"+":
                begun[run.key] = run
            else:
                worked_on.add(run.message)
    return list(begun.values()), {run.message for run in begun.values()} | worked_on


def leave(path: Path, runs: Iterable[Run]) -> None:
    """Rewrite the file of a dead process with these runs only. Raises OSError."""
    made = path.with_suffix(".new")
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600)
    try:
        os.write(file, b"".join(b"+" + msgspec.json.encode(run) + b"\n" for run in runs))
    finally:
        os.close(file)
    made.replace(path)


def interruption(run: Run) -> bytes:
    """Return the event that ends the run of a dead process. Its id is the same in every process, so that it is stored once."""
    now = time.time_ns()
    event = {
        "session_id": run.session,
        "message_id": run.message,
        "id": f"{run.key}.interrupted",
        "type": "workflow_execute_complete",
        "number": now,
        "timestamp": datetime.fromtimestamp(now // 1000 / 1_000_000, UTC).isoformat(),
        "level": "warn",
        "category": "system",
        "data": {"interrupted": "process_ended"} | ({"attempt": run.attempt} if run.attempt else {}),
    }
    return msgspec.json.encode(event)
