"""The spool: events on disk between the pipeline and the network, in order, bounded, and safe from a kill -9.

    <spool>/<destination>/destination.json           the address, and the first characters of the key
    <spool>/<destination>/<owner>.lock               held by the process that writes there, or that took it over
    <spool>/<destination>/<owner>.<number>.ndjson    its segments, one event a line
    <spool>/<destination>/<owner>.runs               the runs that it has begun and not ended: see open_runs.py
    <spool>/<destination>/refused.ndjson             events that the server refuses; invalid.ndjson: lines that are not events

* Events are appended by write() without fsync: they survive the end of the process, kill -9 too. A power cut may lose the
  last seconds.
* A destination is an address and a key. A key belongs to a project, so events of one key are never sent with another by
  themselves; `tracesite drain --other-keys` does that after a key was changed, `--other-urls` after an
  address was changed.
* An owner is a process. It holds its lock (flock) while it lives; the process that gets the lock of another owns its events.
  So the events of each process stay in order, however many processes deliver from the directory.
* A segment is removed once all of it is delivered, and the current one is emptied then, so that few events are sent twice
  after a crash. That does no harm, because events have ids.
* Where no disk can be written (none is writable, it is full, the system has no flock), events are kept in memory until one
  can: fewer, and only as long as the process lives.

A process has at most three files of a spool open, however many events wait.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec

from tracesite_sdk.recorder.guard import logger

from . import open_runs

if sys.platform != "win32":
    import fcntl

SEGMENT_BYTES = 1024 * 1024
"""The size at which a segment is complete."""
MEMORY_BYTES = 32 * 1024 * 1024
"""The limit in memory, where there is no disk; less if the limit of the spool is less."""
ASIDE_BYTES = 4 * 1024 * 1024
"""The limit of refused.ndjson and of invalid.ndjson, which are kept for people."""
RETRY_SECONDS = 5.0
"""The pause after a failure of the disk."""
LOG_SECONDS = 60.0
"""The pause between two log lines about a full spool."""

_DESTINATION = "destination.json"
_OWNED = re.compile(r"(?P<owner>(?P<start>\d{19,20})-(?P<pid>\d+)-[0-9a-f]+)\.(?:lock|runs|(?P<number>\d{6,})\.ndjson)")
# O_NOFOLLOW, so that a link under one of our names is an error.
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """The destination of events, without the secret."""

    url: str
    key: str
    """The first characters of the key, as the server lists it."""


_DESTINATIONS = msgspec.json.Decoder(Destination)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The next lines of a spool. They are returned again until they are settled."""

    lines: list[bytes]
    invalid: list[bytes]
    """Lines that are not JSON objects, from a damaged file."""
    own: bool
    """True for events of this process, False for those of a dead one."""
    size: int
    segment: _Segment


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The events that wait in the directory of one destination."""

    directory: Path
    destination: Destination | None
    """None where destination.json cannot be read."""
    events: int
    bytes: int
    files: int
    oldest: float | None
    """The start of the oldest process with waiting events, in seconds since 1970."""
    running: list[int]
    """The process ids that write there now."""
    refused: int
    """Events in refused.ndjson."""


def spool_roots(directory: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the directories that may hold the spool; the first usable one does.

    A directory that was named, as an argument or by $TRACESITE_SPOOL, has no substitute, because traces may have to be kept
    off other disks.
    """
    named = os.fspath(directory) if directory is not None else os.environ.get("TRACESITE_SPOOL")
    if named:
        return [Path(named).expanduser().absolute()]
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state if os.path.isabs(state) else os.path.expanduser("~/.local/state"))
    own = f"tracesite-spool-{os.getuid()}" if sys.platform != "win32" else "tracesite-spool"
    return [*([home / "tracesite" / "spool"] if home.is_absolute() else []), Path(tempfile.gettempdir()) / own]


def spool_name(url: str, key: str) -> str:
    """Return the directory name of a destination: a digest, which reveals nothing about the random key."""
    return sha256(f"{url}\0{key}".encode()).hexdigest()[:24]


class Spool:
    """The events of one process for one destination, and those that dead processes left there.

    Thread-safe. Creates no file before the first event.
    """

    def __init__(self, roots: Sequence[Path], url: str, key: str, *, limit: int, name: str | None = None) -> None:
        self._roots = list(roots)
        self.name = name or spool_name(url, key)
        """The directory name of the destination."""
        self._destination = Destination(url=url, key=key[:8])
        self._limit = limit
        self._is_forked = False
        self._begin()

    @classmethod
    def at(cls, directory: Path) -> Spool:
        """Return the spool of a directory, to deliver its events."""
        return cls([directory.parent], "", "", limit=1, name=directory.name)

    def _begin(self) -> None:
        # Reentrant, because a signal handler may flush at any moment.
        self._lock = threading.RLock()
        self._own = _Owner()
        self._journal = open_runs.Journal(is_forked=self._is_forked)
        self._adopted: _Owner | None = None
        self._unusable: set[str] = set()
        self._room = 0
        self._unscanned = 0
        self._retry_at = 0.0
        self._number = 0
        self._log_at = 0.0
        self._is_released = False
        self.directory: Path | None = None
        """None until it is created."""
        self.lost = 0
        """Events that were lost after they were taken: their file was removed, or they were in memory at the end."""

    # --- Writing ----------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[bytes]) -> int:
        """Append events and return how many: those that do not fit are not taken. Never raises."""
        taken = 0
        with self._lock:
            while taken < len(events) and not self._is_released:
                try:
                    count = self._put(events[taken:] if taken else events)
                except OSError as failure:
                    self._disk_failed(failure)  # the next attempt goes to memory, which does not fail
                    continue
                if not count:
                    break
                taken += count
            self._log_if_full(taken < len(events) and not self._is_released)
        return taken

    def _put(self, events: Sequence[bytes]) -> int:
        segment = self._segment_to_write()
        count = self._fitting(segment, events)
        if count:
            text = b"\n".join([*events[:count], b""])
            segment.write(text)
            segment.events += count
            if segment.path is not None:
                self._room -= len(text)
                self._unscanned += len(text)
            self._journal.note(events[:count], None if segment.path is None else self._own.runs_path())
        return count

    def _segment_to_write(self) -> _Segment:
        on_disk = time.monotonic() >= self._retry_at
        segments = self._own.segments
        last = segments[-1] if segments else None
        if last is not None:
            if last.size < SEGMENT_BYTES and (last.path is not None) == on_disk:
                return last
            last.close()
        self._number += 1
        if on_disk:
            segment = self._new_file()
            if self._retry_at:
                self._retry_at = 0.0
                logger.info("The spool %s is written again.", self.directory)
        else:
            segment = _Segment(number=self._number)
        segments.append(segment)
        return segment

    def _new_file(self) -> _Segment:
        if self.directory is None or self._own.is_homeless():
            self._move_in()
        path = self._own.segment_path(self._number)
        return _Segment(number=self._number, path=path, file=_open_new(path, os.O_RDWR | os.O_APPEND))

    def _move_in(self) -> None:
        """Create the directory and a lock in it. Events in an earlier directory are delivered from there."""
        failure: OSError = FileNotFoundError("no directory is given for a spool")
        if sys.platform == "win32":
            raise OSError("this system has no flock")
        for root in self._roots:
            try:
                directory = _make_private(root, self.name)
                _describe(directory, self._destination)
                self._own.move_in(directory)
            except OSError as error:
                failure = error
                continue
            self.directory = directory
            self._journal.moved(self._own.runs_path())
            return
        raise failure

    def _fitting(self, segment: _Segment, events: Sequence[bytes]) -> int:
        """Return how many of the events fit."""
        wanted = sum(map(len, events)) + len(events)
        if segment.path is None:
            used = sum(other.size for other in self._own.segments if other.path is None)
            room = min(self._limit, MEMORY_BYTES) - used
        else:
            if wanted > self._room or self._unscanned > SEGMENT_BYTES:
                self._room = self._limit - _bytes_in(segment.path.parent)
                self._unscanned = 0
            room = self._room
        if wanted <= room:
            return len(events)
        for count, event in enumerate(events):
            room -= len(event) + 1
            if room < 0:
                return count
        raise AssertionError("all of them together did not fit")

    def _disk_failed(self, failure: OSError) -> None:
        if not self._retry_at:
            logger.warning(
                "The spool %s cannot be used (%s). Events are kept in memory, %d MiB at most, until it can be used: they are "
                "lost if the process ends before they are delivered.",
                self.directory or " or ".join(map(str, self._roots)) or "(none)",
                failure.strerror or failure,
                min(self._limit, MEMORY_BYTES) // 2**20,
            )
        self._retry_at = time.monotonic() + RETRY_SECONDS

    def _log_if_full(self, is_full: bool) -> None:
        if is_full and time.monotonic() >= self._log_at:
            self._log_at = time.monotonic() + LOG_SECONDS
            logger.warning(
                "The spool is full: new events are lost until some of the %d waiting ones are delivered.",
                self._own.waiting()[0],
            )

    # --- Reading ----------------------------------------------------------------------------------------------------

    def next_batch(self, *, own: bool, most_events: int, most_bytes: int) -> Batch | None:
        """Return the oldest lines that are not settled, of this process or of the dead one that it took over.

        None if there are none; otherwise at least one line, of any size.
        """
        with self._lock:
            owner = self._own if own else self._adopted
            while owner is not None and owner.segments:
                segment = owner.segments[0]
                try:
                    lines, size = segment.lines(most_events, most_bytes)
                except FileNotFoundError:
                    self._drop_segment(owner, "was removed")
                    continue
                except OSError as failure:
                    self._drop_segment(owner, f"cannot be read ({failure.strerror or failure})")
                    continue
                if lines:
                    events = lines if own else [line for line in lines if _is_object(line)]
                    invalid = [] if len(events) == len(lines) else [line for line in lines if not _is_object(line)]
                    return Batch(lines=events, invalid=invalid, own=own, size=size, segment=segment)
                if segment.settled < segment.size:
                    self._count_lost(segment, "was truncated")
                elif own and len(owner.segments) == 1:
                    break  # the current segment
                owner.segments.popleft().remove()
            if owner is not None and not own:
                if self._add_interruptions(owner):
                    return self.next_batch(own=own, most_events=most_events, most_bytes=most_bytes)
                owner.move_out()
                self._adopted = None
            return None

    def _add_interruptions(self, owner: _Owner) -> bool:
        """Once everything else of a dead process is delivered, add events that its open runs were interrupted. In memory,
        because the runs stay on the disk until that is delivered. Return whether there are such runs."""
        runs = self._left_open(owner)
        if not runs:
            return False
        owner.interrupted.update(run.key for run in runs)
        events = [open_runs.interruption(run) for run in runs]
        segment = _Segment(number=0)
        segment.write(b"\n".join([*events, b""]))
        segment.events = len(events)
        owner.segments.append(segment)
        return True

    def _left_open(self, owner: _Owner) -> list[open_runs.Run]:
        """Return the runs of a dead process that no living one works on, and that are not reported yet."""
        begun = [run for run in open_runs.read(owner.runs_path())[0] if run.key not in owner.interrupted]
        if not begun:
            return []
        assert owner.directory is not None, "it moved in"
        alive = set(self._journal.messages)
        for name in _owners_in(owner.directory):
            if name not in (owner.name, self._own.name) and _is_held(owner.directory / f"{name}.lock"):
                alive |= open_runs.read(owner.directory / f"{name}.runs")[1]
        return [run for run in begun if run.message not in alive]

    def settle(self, batch: Batch) -> None:
        """Mark the events of the batch as delivered or refused: they are not returned again."""
        with self._lock:
            segment = batch.segment
            owner = next((owner for owner in (self._own, self._adopted) if owner and segment in owner.segments), None)
            if owner is None:  # released meanwhile: its next owner sends these again, which does no harm
                return
            segment.settled += batch.size
            segment.events = max(segment.events - len(batch.lines), 0)
            if segment.settled < segment.size:
                return
            try:
                if owner is self._own and segment is owner.segments[-1]:
                    self._room += segment.size if segment.path is not None else 0
                    segment.empty()
                else:
                    owner.segments.remove(segment)
                    segment.remove()
            except OSError as failure:
                logger.warning("%s cannot be removed (%s).", segment.path, failure.strerror or failure)

    def adopt(self) -> bool:
        """Take over the events of the oldest dead process. Return whether there are any, from now or before."""
        with self._lock:
            if self._adopted is not None or self._is_released:
                return self._adopted is not None
            directory = self.directory or self._existing_directory()
            if directory is None:
                return False
            for name in sorted(_owners_in(directory)):
                if name == self._own.name or name in self._unusable:
                    continue
                try:
                    self._adopted = self._take_over(directory, name)
                except OSError as failure:
                    self._unusable.add(name)
                    logger.warning("%s/%s.* cannot be read (%s).", directory, name, failure.strerror or failure)
                if self._adopted is not None:
                    return True
            return False

    def _take_over(self, directory: Path, name: str) -> _Owner | None:
        """Take over a dead process; return None if it left nothing to send. Raises OSError."""
        owner = _take_over(directory, name)
        if owner is not None and not owner.segments and not self._left_open(owner):
            owner.move_out()
            return None
        return owner

    @property
    def has_adopted(self) -> bool:
        return self._adopted is not None

    def waiting(self) -> tuple[int, int]:
        """Return the events of this process that are not settled, and their bytes."""
        with self._lock:
            return self._own.waiting()

    def set_aside(self, name: str, lines: Sequence[bytes]) -> Path | None:
        """Append lines to `<name>.ndjson`, for people. Return its path, or None if there is no room for them."""
        with self._lock:
            if self.directory is None:
                return None
            path = self.directory / f"{name}.ndjson"
            try:
                file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600)
                try:
                    room = ASIDE_BYTES - os.fstat(file).st_size
                    text = b"\n".join([*lines, b""])
                    if len(text) > room:
                        return None
                    _write(file, text)
                finally:
                    os.close(file)
            except OSError as failure:
                logger.warning("%s cannot be written (%s).", path, failure.strerror or failure)
                return None
            return path

    def _existing_directory(self) -> Path | None:
        """Return the directory of the destination if an earlier process created it."""
        if sys.platform == "win32":
            return None
        for root in self._roots:
            directory = root / self.name
            with suppress(OSError):
                _check_ours(root, may_be_shared=True)
                _check_ours(directory)
                self.directory = directory
                return directory
        return None

    def _drop_segment(self, owner: _Owner, reason: str) -> None:
        segment = owner.segments.popleft()
        segment.close()
        self._count_lost(segment, reason)

    def _count_lost(self, segment: _Segment, reason: str) -> None:
        # Of a dead process it is not known how many there were: at least the one whose line was cut off.
        self.lost += max(segment.events, 1)
        segment.events = 0
        logger.warning("%s %s: its events are not delivered.", segment.path, reason)

    # --- The end ----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Close files and locks, and take no more events. Those on disk wait for a later process."""
        with self._lock:
            self._is_released = True
            self.lost += sum(segment.events for segment in self._own.segments if segment.path is None)
            self._journal.forget()
            if self._own.directory is not None:
                # A process that closes in order leaves runs open on purpose: one that waits for a person, for example.
                with suppress(OSError):
                    self._own.runs_path().unlink(missing_ok=True)
            for owner in (self._own, self._adopted):
                if owner is not None:
                    owner.move_out()
            self._adopted = None

    def after_fork(self) -> None:
        """In a child: close inherited files. The events belong to the parent, which still holds the locks."""
        for owner in (self._own, self._adopted):
            if owner is not None:
                owner.forget()
        self._journal.forget()
        self._is_forked = True
        self._begin()


@dataclass(eq=False, kw_only=True)
class _Segment:
    """Complete lines, in a file or in memory."""

    number: int
    path: Path | None = None
    file: int = -1
    text: bytearray = field(default_factory=bytearray)
    size: int = 0
    """Bytes of complete lines. The file may have an incomplete line after them."""
    settled: int = 0
    events: int = 0
    """Not settled yet. 0 in a segment that was taken over, because its lines were not counted."""

    def write(self, text: bytes) -> None:
        """Write the text completely or not at all."""
        if self.path is None:
            self.text += text
        else:
            try:
                _write(self.file, text)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self.file, self.size)
                raise
        self.size += len(text)

    def lines(self, most_events: int, most_bytes: int) -> tuple[list[bytes], int]:
        """Return the next lines and their size with line ends; none if the rest is not a complete line."""
        left = self.size - self.settled
        wanted = most_bytes
        while True:
            text = self._read(min(wanted, left))
            # A larger event is returned alone.
            end = (text.rfind(b"\n") if wanted == most_bytes else text.find(b"\n")) + 1
            if end or wanted >= left:
                break
            wanted *= 4
        lines = text[:end].split(b"\n", most_events)[:-1]
        return lines, sum(map(len, lines)) + len(lines)

    def _read(self, size: int) -> bytes:
        if self.path is None:
            return bytes(self.text[self.settled : self.settled + size])
        if self.file < 0 and size:
            self.file = os.open(self.path, os.O_RDONLY | _FLAGS)
        return os.pread(self.file, size, self.settled) if size else b""

    def empty(self) -> None:
        if self.path is None:
            self.text.clear()
        elif self.file >= 0:
            os.ftruncate(self.file, 0)
        self.size = self.settled = 0

    def close(self) -> None:
        if self.file >= 0:
            # Forgotten first: a child that is forked in between would close it again, and fail.
            file, self.file = self.file, -1
            os.close(file)

    def remove(self) -> None:
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


@dataclass(eq=False, kw_only=True)
class _Owner:
    """A process, this one or a dead one, and its segments, the oldest first."""

    name: str = ""
    directory: Path | None = None
    lock: int = -1
    interrupted: set[str] = field(default_factory=set)
    """The runs of a dead process that were reported as interrupted."""
    segments: deque[_Segment] = field(default_factory=deque)

    def move_in(self, directory: Path) -> None:
        """Choose a name and lock it."""
        self.close_lock()
        while True:
            name = f"{time.time_ns():019d}-{os.getpid()}-{secrets.token_hex(4)}"
            lock = _locked(directory / f"{name}.lock", os.O_EXCL)
            if lock is not None:  # else another process locked it at this very moment
                break
        self.name, self.directory, self.lock = name, directory, lock

    def is_homeless(self) -> bool:
        """Return whether the directory, or the lock in it, was removed."""
        return self.lock < 0 or os.fstat(self.lock).st_nlink == 0

    def segment_path(self, number: int) -> Path:
        assert self.directory is not None, "it moved in"
        return self.directory / f"{self.name}.{number:06d}.ndjson"

    def runs_path(self) -> Path:
        assert self.directory is not None, "it moved in"
        return self.directory / f"{self.name}.runs"

    def waiting(self) -> tuple[int, int]:
        events = sum(segment.events for segment in self.segments)
        return events, sum(segment.size - segment.settled for segment in self.segments)

    def move_out(self) -> None:
        """Close everything and remove delivered files, the lock too if nothing else is left."""
        for segment in self.segments:
            with suppress(OSError):
                if segment.settled >= segment.size:
                    segment.remove()
            segment.close()
        is_empty = all(segment.path is None or segment.settled >= segment.size for segment in self.segments)
        if any(segment.path is None for segment in self.segments):
            self.interrupted.clear()  # not acknowledged yet: the next process reports them again
        if self.directory is not None and self.lock >= 0 and is_empty:
            with suppress(OSError):
                # A run that other processes work on is kept until they have ended.
                left = [run for run in open_runs.read(self.runs_path())[0] if run.key not in self.interrupted]
                if left and self.interrupted:
                    open_runs.leave(self.runs_path(), left)
                elif not left:
                    self.runs_path().unlink(missing_ok=True)
                    (self.directory / f"{self.name}.lock").unlink(missing_ok=True)
        self.close_lock()
        self.segments.clear()

    def forget(self) -> None:
        for segment in self.segments:
            segment.close()
        self.close_lock()

    def close_lock(self) -> None:
        if self.lock >= 0:
            lock, self.lock = self.lock, -1
            os.close(lock)


# --- Directories and files --------------------------------------------------------------------------------------------


def survey(root: Path) -> list[Waiting]:
    """Return the waiting events below the directory of a spool, by destination. Read only. Raises OSError."""
    directories = sorted(root.iterdir()) if root.is_dir() else []
    return [survey_one(path) for path in directories if path.is_dir() and not path.is_symlink()]


def survey_one(directory: Path) -> Waiting:
    """Return the waiting events of one destination."""
    events = size = files = 0
    starts: list[int] = []
    running: list[int] = []
    for name, numbers in _owners_in(directory).items():
        start, pid, _random = name.split("-")
        if _is_held(directory / f"{name}.lock"):
            running.append(int(pid))
        for number in numbers:
            lines, length = _count_lines(directory / f"{name}.{number:06d}.ndjson")
            events, size, files = events + lines, size + length, files + bool(lines)
            starts += [int(start)] if lines else []
    return Waiting(
        directory=directory,
        destination=_described(directory),
        events=events,
        bytes=size,
        files=files,
        oldest=min(starts) / 1e9 if starts else None,
        running=sorted(running),
        refused=_count_lines(directory / "refused.ndjson")[0],
    )


def _owners_in(directory: Path) -> dict[str, list[int]]:
    """Return the owners in a directory, each with the sorted numbers of its segments."""
    owners: dict[str, list[int]] = {}
    with suppress(FileNotFoundError):
        for name in os.listdir(directory):
            match = _OWNED.fullmatch(name)
            if match:
                numbers = owners.setdefault(match["owner"], [])
                if match["number"]:
                    numbers.append(int(match["number"]))
    return {owner: sorted(numbers) for owner, numbers in owners.items()}


def _take_over(directory: Path, name: str) -> _Owner | None:
    """Lock a dead process and list its segments; None if it lives, or another process was faster. Raises OSError."""
    lock = _locked(directory / f"{name}.lock")
    if lock is None:
        return None
    owner = _Owner(name=name, directory=directory, lock=lock)
    try:
        # Listed after locking, because the previous holder of the lock may have removed some.
        for number in _owners_in(directory).get(name, []):
            segment = _Segment(number=number, path=owner.segment_path(number))
            segment.size = _length_of_ours(segment)
            owner.segments.append(segment)
    except OSError:
        owner.forget()
        raise
    return owner


def _length_of_ours(segment: _Segment) -> int:
    assert segment.path is not None, "it is on disk"
    status = segment.path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{segment.path.name} is not a file of this user")
    return status.st_size


def _locked(path: Path, flags: int = 0) -> int | None:
    """Open a lock file, created if missing, and lock it. Return None if another process holds it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS | flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last holder may have removed it between opening and locking.
        if os.fstat(file).st_nlink:
            return file
    except BlockingIOError:
        pass
    except OSError:
        os.close(file)
        raise
    os.close(file)
    return None


def _is_held(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


def _make_private(root: Path, name: str) -> Path:
    """Create the directory of a destination, for this user alone. Raises OSError."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_ours(root, may_be_shared=True)
    directory = root / name
    directory.mkdir(mode=0o700, exist_ok=True)
    _check_ours(directory)
    if stat.S_IMODE(directory.lstat().st_mode) & 0o077:
        directory.chmod(0o700)
    return directory


def _check_ours(directory: Path, *, may_be_shared: bool = False) -> None:
    """Raise PermissionError if another user could have created the directory, or could replace its files."""
    itself = directory.lstat()
    if stat.S_ISLNK(itself.st_mode) and (itself.st_uid not in (0, os.geteuid()) or not may_be_shared):
        raise PermissionError(f"{directory} is a symbolic link of another user")
    status = directory.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{directory} is not a directory")
    owners = (0, os.geteuid()) if may_be_shared else (os.geteuid(),)
    writable_by_others = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
    if status.st_uid not in owners or (may_be_shared and writable_by_others):
        raise PermissionError(f"{directory} is not for this user alone")


def _describe(directory: Path, destination: Destination) -> None:
    path = directory / _DESTINATION
    with suppress(FileExistsError):
        file = _open_new(path, os.O_WRONLY)
        try:
            _write(file, msgspec.json.encode(destination) + b"\n")
        finally:
            os.close(file)


def _described(directory: Path) -> Destination | None:
    try:
        return _DESTINATIONS.decode((directory / _DESTINATION).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def _open_new(path: Path, flags: int) -> int:
    return os.open(path, os.O_CREAT | os.O_EXCL | _FLAGS | flags, 0o600)


def _write(file: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(file, left) :]


def _bytes_in(directory: Path) -> int:
    """Return the bytes of all segments in a directory, of all processes."""
    total = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".ndjson") and _OWNED.fullmatch(entry.name):
                with suppress(FileNotFoundError):
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def _count_lines(path: Path) -> tuple[int, int]:
    """Return the number of complete lines in a file, and their bytes; 0 if it was removed meanwhile."""
    lines = size = 0
    with suppress(FileNotFoundError), open(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                lines, size = lines + 1, size + len(line)
    return lines, size


def _is_object(line: bytes) -> bool:
    try:
        _OBJECT.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
