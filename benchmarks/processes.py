"""What running processes have used: CPU time and peak memory, as Linux tells it in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all below it."""
    parents = dict(_parents())
    members = [pid]
    for member in members:
        members += [child for child, parent in parents.items() if parent == member]
    return members


def in_session(leader: int) -> list[int]:
    """The processes that run in the session which a process, running or ended, began."""
    found = []
    for pid in _pids():
        with suppress(FileNotFoundError, ProcessLookupError):  # ended while we looked
            state, _parent, _group, session, *_ = _stat(pid)
            if int(session) == leader and state != "Z":
                found.append(pid)
    return found


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended; one that has, and that nobody has waited for, is not running."""
    try:
        return _stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def cpu_seconds(pids: Iterable[int], *, with_ended: bool = False) -> float:
    """User and system time that processes have used, if asked for also that of their children which have ended."""
    total = 0
    for pid in pids:
        fields = _stat(pid)
        total += sum(int(field) for field in fields[11 : 15 if with_ended else 13])
    return total / _TICKS_A_SECOND


def forget_peak(pid: int) -> None:
    """Lets `peak_bytes` count from now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """The most resident memory that a process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def _parents() -> Iterator[tuple[int, int]]:
    for pid in _pids():
        with suppress(FileNotFoundError, ProcessLookupError):  # ended while we looked
            yield pid, parent_of(pid)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on, which follow the name in its brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
