"""CPU time and peak memory of running processes, from Linux's /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    parents = dict(_parents())
    members = [pid]
    for member in members:
        members += [child for child, parent in parents.items() if parent == member]
    return members


def workers(server: int) -> list[int]:
    """Return the workers of a server: its descendants but for the process of its jobs."""
    return [pid for pid in family(server)[1:] if "--beside" not in command_line(pid)]


def command_line(pid: int) -> list[str]:
    """Return the words of a command; none during exec and of a process that has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


def in_session(leader: int) -> list[int]:
    """Return the running processes of the session that `leader` started, even if the leader has ended."""
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
    """Return whether a process is running; a zombie is not."""
    try:
        return _stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def cpu_seconds(pids: Iterable[int], *, with_ended: bool = False) -> float:
    """Return the user and system time of those that still run; `with_ended` adds their ended children."""
    total = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):  # such as PostgreSQL's autovacuum, which ends at any time
            total += sum(int(field) for field in _stat(pid)[11 : 15 if with_ended else 13])
    return total / _TICKS_A_SECOND


def forget_peak(pid: int) -> None:
    """Reset the peak of `peak_bytes`."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """Return the peak resident memory of a process."""
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
    """Return the fields of /proc/PID/stat after the name in brackets, from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
