"""Events on disk between the pipeline and the network: in order, bounded, and still there after a kill -9.

    <spool>/<destination>/destination.json           the address, and how the key begins
    <spool>/<destination>/<owner>.lock               held by the process that writes there, or that took it over
    <spool>/<destination>/<owner>.<number>.ndjson    its segments, one event a line
    <spool>/<destination>/<owner>.runs               the runs that it has begun and not ended: see open_runs.py
    <spool>/<destination>/refused.ndjson             what the server does not take; and invalid.ndjson: what is no event

* Events are appended by write() and not forced to the disk: what was taken survives the end of the process, kill -9 too. A
  power cut may take the last seconds.
* A destination is an address and a key. A key belongs to a project, so what waits for one key is never sent with another
  unless somebody says so: `python -m tracesite.recorder drain --other-keys`, after a key was changed; or `--other-urls`,
  after an address was.
* An owner is a process. It holds its lock (flock) while it lives; whoever gets the lock of another owns what that left. So
  the events of each process stay in order, however many processes look after the directory.
* A segment is removed when all of it is delivered, and the one that is written is emptied then: a crash leaves little that
  is sent twice. Twice does no harm, events have ids.
* Where no disk can be written (none is writable, it is full, the system has no flock), events are kept in memory until one
  can: fewer, and only as long as the process lives.

A process has three files of a spool open at most, whatever waits in it.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec

from . import open_runs

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("tracesite.recorder")

SEGMENT_BYTES = 1024 * 1024
"""A segment that has this much takes no more."""
MEMORY_BYTES = 32 * 1024 * 1024
"""Kept in memory at most, where there is no disk; less where the bound of the spool is less."""
ASIDE_BYTES = 4 * 1024 * 1024
"""Of what was refused, and of what is no event, so much is kept for people."""
RETRY_SECONDS = 5.0
"""A disk that failed is tried again after this."""
TELL_SECONDS = 60.0
"""That the spool is full is said once in this time."""

_DESTINATION = "destination.json"
_OWNED = re.compile(r"(?P<owner>(?P<start>\d{19,20})-(?P<pid>\d+)-[0-9a-f]+)\.(?:lock|runs|(?P<number>\d{6,})\.ndjson)")
# O_NOFOLLOW: whatever lies there under a name of ours is a file, or an error.
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """Where events go, without the secret."""

    url: str
    key: str
    """How the key begins, as the server's list of keys shows it."""


_DESTINATIONS = msgspec.json.Decoder(Destination)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The next lines of a spool. They come again until they are settled."""

    lines: list[bytes]
    invalid: list[bytes]
    """Lines between them that are no JSON objects: of a file that was damaged."""
    own: bool
    """Of this process, not of a dead one."""
    size: int
    segment: _Segment


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What lies in the directory of one destination."""

    directory: Path
    destination: Destination | None
    """None where destination.json cannot be read."""
    events: int
    bytes: int
    files: int
    oldest: float | None
    """When the oldest process whose events wait began to record, in seconds since 1970."""
    running: list[int]
    """The processes that write there now."""
    refused: int
    """Events that the server did not take, of those that were kept."""


def spool_roots(directory: str | os.PathLike[str] | None = None) -> list[Path]:
    """The directories that may hold the spool; the first that can be used does.

    One that was named, as an argument or by $TRACESITE_SPOOL, has no substitute: somebody may have chosen it because
    traces may lie nowhere else.
    """
    named = os.fspath(directory) if directory is not None else os.environ.get("TRACESITE_SPOOL")
    if named:
        return [Path(named).expanduser().absolute()]
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state if os.path.isabs(state) else os.path.expanduser("~/.local/state"))
    own = f"tracesite-spool-{os.getuid()}" if sys.platform != "win32" else "tracesite-spool"
    return [*([home / "tracesite" / "spool"] if home.is_absolute() else []), Path(tempfile.gettempdir()) / own]


def spool_name(url: str, key: str) -> str:
    """The name of the directory of a destination. A key is random, so its digest tells nothing about it."""
    return sha256(f"{url}\0{key}".encode()).hexdigest()[:24]


class Spool:
    """The events that one process has for one destination, and those that dead processes left there.

    Any thread may call it. Nothing is made before the first event comes.
    """

    def __init__(self, roots: Sequence[Path], url: str, key: str, *, limit: int, name: str | None = None) -> None:
        self._roots = list(roots)
        self.name = name or spool_name(url, key)
        """Of the directory of the destination."""
        self._destination = Destination(url=url, key=key[:8])
        self._limit = limit
        self._is_forked = False
        self._begin()

    @classmethod
    def at(cls, directory: Path) -> Spool:
        """The spool of a destination that is known by its directory, to deliver what is in it."""
        return cls([directory.parent], "", "", limit=1, name=directory.name)

    def _begin(self) -> None:
        # Reentrant: a flush in a signal handler may come in between.
        self._lock = threading.RLock()
        self._own = _Owner()
        self._journal = open_runs.Journal(is_forked=self._is_forked)
        self._adopted: _Owner | None = None
        self._unusable: set[str] = set()
        self._room = 0
        self._unscanned = 0
        self._retry_at = 0.0
        self._number = 0
        self._tell_at = 0.0
        self._is_released = False
        self.directory: Path | None = None
        """None until it is there."""
        self.lost = 0
        """Events that were taken and are gone: somebody removed their file, or they were in memory at the end."""

    # --- Into it ----------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[bytes]) -> int:
        """Takes events from the front, and returns how many: what does not fit is not taken. Raises nothing."""
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
            self._tell_if_full(taken < len(events) and not self._is_released)
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
        """Makes the directory and a lock in it. What an earlier one holds is delivered from where it is."""
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
        """How many of the events there is room for."""
        wanted = sum(map(len, events)) + len(events)
        if segment.path is None:
            room = min(self._limit, MEMORY_BYTES) - sum(one.size for one in self._own.segments if one.path is None)
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
                "The spool %s cannot be used (%s). Events are kept in memory, %d MiB at most, until it can: they are lost "
                "if the process ends before they are delivered.",
                self.directory or " or ".join(map(str, self._roots)) or "(none)",
                failure.strerror or failure,
                min(self._limit, MEMORY_BYTES) // 2**20,
            )
        self._retry_at = time.monotonic() + RETRY_SECONDS

    def _tell_if_full(self, is_full: bool) -> None:
        if is_full and time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + TELL_SECONDS
            logger.warning(
                "The spool is full: new events are lost until some of the %d that wait are delivered.",
                self._own.waiting()[0],
            )

    # --- Out of it --------------------------------------------------------------------------------------------------

    def next_batch(self, *, own: bool, most_events: int, most_bytes: int) -> Batch | None:
        """The oldest lines that are not settled: of this process, or of the one whose events it took over.

        None where there are none. At least one line, of any size.
        """
        with self._lock:
            owner = self._own if own else self._adopted
            while owner is not None and owner.segments:
                segment = owner.segments[0]
                try:
                    lines, size = segment.lines(most_events, most_bytes)
                except FileNotFoundError:
                    self._count_as_lost(owner, "was removed by somebody")
                    continue
                except OSError as failure:
                    self._count_as_lost(owner, f"cannot be read ({failure.strerror or failure})")
                    continue
                if lines:
                    events = lines if own else [line for line in lines if _is_object(line)]
                    invalid = [] if len(events) == len(lines) else [line for line in lines if not _is_object(line)]
                    return Batch(lines=events, invalid=invalid, own=own, size=size, segment=segment)
                if segment.events:
                    self._forget_lost(segment, "was cut short by somebody")
                elif own and len(owner.segments) == 1:
                    break  # the one that is written
                owner.segments.popleft().remove()
            if owner is not None and not own:
                if self._say_what_was_left_open(owner):
                    return self.next_batch(own=own, most_events=most_events, most_bytes=most_bytes)
                owner.move_out()
                self._adopted = None
            return None

    def _say_what_was_left_open(self, owner: _Owner) -> bool:
        """Once all else of a dead process is delivered: that nobody is left to end the runs that it left open. In memory,
        for they are on the disk until that is delivered. Whether there are such runs."""
        runs = self._left_open(owner)
        if not runs:
            return False
        owner.said.update(run.key for run in runs)
        events = [open_runs.interruption(run) for run in runs]
        segment = _Segment(number=0)
        segment.write(b"\n".join([*events, b""]))
        segment.events = len(events)
        owner.segments.append(segment)
        return True

    def _left_open(self, owner: _Owner) -> list[open_runs.Run]:
        """The runs of a dead process that no living one works on, and that were not said yet."""
        begun = [run for run in open_runs.read(owner.runs_path())[0] if run.key not in owner.said]
        if not begun:
            return []
        assert owner.directory is not None, "it moved in"
        alive = set(self._journal.messages)
        for name in _owners_in(owner.directory):
            if name not in (owner.name, self._own.name) and _is_held(owner.directory / f"{name}.lock"):
                alive |= open_runs.read(owner.directory / f"{name}.runs")[1]
        return [run for run in begun if run.message not in alive]

    def settle(self, batch: Batch) -> None:
        """The events of the batch are delivered, or will never be: they are not given out again."""
        with self._lock:
            segment = batch.segment
            owner = next((one for one in (self._own, self._adopted) if one and segment in one.segments), None)
            if owner is None:  # released meanwhile: whoever owns it next sends these again, which does no harm
                return
            segment.settled += batch.size
            segment.events -= len(batch.lines)
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
        """Takes over what the oldest dead process left, if there is one; whether something was taken over now or before."""
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
        """What a dead process left; None where there is nothing to send. Raises OSError."""
        owner = _take_over(directory, name)
        if owner is not None and not owner.segments and not self._left_open(owner):
            owner.move_out()
            return None
        return owner

    @property
    def has_adopted(self) -> bool:
        return self._adopted is not None

    def waiting(self) -> tuple[int, int]:
        """Events, and their bytes, that this process took and that are not settled."""
        with self._lock:
            return self._own.waiting()

    def set_aside(self, name: str, lines: Sequence[bytes]) -> Path | None:
        """Keeps lines for people, in `<name>.ndjson`, and returns where; None where there is no room for them."""
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
        """The directory of the destination where an earlier process made it; nothing is made."""
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

    def _count_as_lost(self, owner: _Owner, reason: str) -> None:
        segment = owner.segments.popleft()
        segment.close()
        self._forget_lost(segment, reason)

    def _forget_lost(self, segment: _Segment, reason: str) -> None:
        self.lost += segment.events
        segment.events = 0
        logger.warning("%s %s: what was in it is not delivered.", segment.path, reason)

    # --- The end ----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Lets go of files and locks; nothing is taken any more. What is on disk waits for a later process."""
        with self._lock:
            self._is_released = True
            self.lost += sum(segment.events for segment in self._own.segments if segment.path is None)
            self._journal.forget()
            if self._own.directory is not None:
                # Whoever closes in order knows what it leaves open: a run that waits for a person, for one.
                with suppress(OSError):
                    self._own.runs_path().unlink(missing_ok=True)
            for owner in (self._own, self._adopted):
                if owner is not None:
                    owner.move_out()
            self._adopted = None

    def after_fork(self) -> None:
        """In a child: closes what it inherited. The events are the parent's, which still holds the locks."""
        for owner in (self._own, self._adopted):
            if owner is not None:
                owner.forget()
        self._journal.forget()
        self._is_forked = True
        self._begin()


@dataclass(eq=False, kw_only=True)
class _Segment:
    """Whole lines, in a file or else in memory."""

    number: int
    path: Path | None = None
    file: int = -1
    text: bytearray = field(default_factory=bytearray)
    size: int = 0
    """Of the lines that were written. After them a file may hold what was not completed."""
    settled: int = 0
    events: int = 0
    """Not settled yet. 0 in a segment that was taken over: nobody counted."""

    def write(self, text: bytes) -> None:
        """All of it or nothing."""
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
        """The next lines and their size, line ends included; none where the rest is no whole line."""
        left = self.size - self.settled
        wanted = most_bytes
        while True:
            text = self._read(min(wanted, left))
            # An event that is larger than that comes alone.
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
            os.close(self.file)
            self.file = -1

    def remove(self) -> None:
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


@dataclass(eq=False, kw_only=True)
class _Owner:
    """A process and its segments, the oldest first; of this process or of a dead one."""

    name: str = ""
    directory: Path | None = None
    lock: int = -1
    said: set[str] = field(default_factory=set)
    """Of a dead process, the runs of which it was said that it left them open."""
    segments: deque[_Segment] = field(default_factory=deque)

    def move_in(self, directory: Path) -> None:
        """Makes a name and holds its lock."""
        self.close_lock()
        while True:
            name = f"{time.time_ns():019d}-{os.getpid()}-{secrets.token_hex(4)}"
            lock = _locked(directory / f"{name}.lock", os.O_EXCL)
            if lock is not None:  # else somebody looked at it in the very moment
                break
        self.name, self.directory, self.lock = name, directory, lock

    def is_homeless(self) -> bool:
        """Whether somebody removed the directory, or the lock in it."""
        return self.lock < 0 or os.fstat(self.lock).st_nlink == 0

    def segment_path(self, number: int) -> Path:
        assert self.directory is not None, "it moved in"
        return self.directory / f"{self.name}.{number:06d}.ndjson"

    def runs_path(self) -> Path:
        assert self.directory is not None, "it moved in"
        return self.directory / f"{self.name}.runs"

    def waiting(self) -> tuple[int, int]:
        return sum(one.events for one in self.segments), sum(one.size - one.settled for one in self.segments)

    def move_out(self) -> None:
        """Closes everything and removes what is delivered: the lock too, if nothing else is left."""
        for segment in self.segments:
            with suppress(OSError):
                if segment.settled >= segment.size:
                    segment.remove()
            segment.close()
        is_empty = all(one.path is None or one.settled >= one.size for one in self.segments)
        if any(one.path is None for one in self.segments):
            self.said.clear()  # on its way when it was closed: the next process says it again
        if self.directory is not None and self.lock >= 0 and is_empty:
            with suppress(OSError):
                # A run that others work on is left until they have ended.
                left = [run for run in open_runs.read(self.runs_path())[0] if run.key not in self.said]
                if left and self.said:
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
            os.close(self.lock)
            self.lock = -1


# --- Directories and files --------------------------------------------------------------------------------------------


def survey(root: Path) -> list[Waiting]:
    """What waits below a directory of a spool, by destination. Changes nothing. Raises OSError."""
    directories = sorted(root.iterdir()) if root.is_dir() else []
    return [survey_one(one) for one in directories if one.is_dir() and not one.is_symlink()]


def survey_one(directory: Path) -> Waiting:
    """What waits for one destination."""
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
    """The owners in a directory, each with the numbers of its segments in order."""
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
    """What a dead process left, if anything; None where it lives, or another one was faster. Raises OSError."""
    lock = _locked(directory / f"{name}.lock")
    if lock is None:
        return None
    owner = _Owner(name=name, directory=directory, lock=lock)
    try:
        # Listed anew: whoever had the lock until now may have removed some.
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
    found = segment.path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{segment.path.name} is no file of this user")
    return found.st_size


def _locked(path: Path, flags: int = 0) -> int | None:
    """Opens a lock file, which is made where it is missing, and holds it; None where another process does."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS | flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between opening and locking, its last holder may have removed it.
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
    """The directory of a destination, for this user alone. Raises OSError where that cannot be."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_ours(root, may_be_shared=True)
    directory = root / name
    directory.mkdir(mode=0o700, exist_ok=True)
    _check_ours(directory)
    if stat.S_IMODE(directory.lstat().st_mode) & 0o077:
        directory.chmod(0o700)
    return directory


def _check_ours(directory: Path, *, may_be_shared: bool = False) -> None:
    """Raises PermissionError where another user could have put the directory there, or could exchange what is in it."""
    itself = directory.lstat()
    if stat.S_ISLNK(itself.st_mode) and (itself.st_uid not in (0, os.geteuid()) or not may_be_shared):
        raise PermissionError(f"{directory} is a symbolic link of somebody else")
    found = directory.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{directory} is no directory")
    owners = (0, os.geteuid()) if may_be_shared else (os.geteuid(),)
    writable_by_others = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    if found.st_uid not in owners or (may_be_shared and writable_by_others):
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
    """What the segments in a directory take, of all processes."""
    total = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".ndjson") and _OWNED.fullmatch(entry.name):
                with suppress(FileNotFoundError):
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def _count_lines(path: Path) -> tuple[int, int]:
    """Whole lines in a file, and their bytes; none where it is gone meanwhile."""
    lines = size = 0
    with suppress(FileNotFoundError):
        for line in _whole_lines(path):
            lines, size = lines + 1, size + len(line)
    return lines, size


def _whole_lines(path: Path) -> Iterator[bytes]:
    with open(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))


def _is_object(line: bytes) -> bool:
    try:
        _OBJECT.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
