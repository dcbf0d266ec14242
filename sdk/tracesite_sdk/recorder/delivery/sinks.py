"""Sinks, the destinations of events: the protocol and the small ones. http_sink.py sends to a server."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NewType, Protocol, TypeVar

import msgspec

from tracesite_sdk.recorder.guard import failure_of

R = TypeVar("R")

Clean = NewType("Clean", bytes)
"""One event as a JSON object in UTF-8 without a line end and without secrets. Only privacy.py makes it."""


class ServerSampling(msgspec.Struct, frozen=True, kw_only=True):
    """The sampling of a project on the server: see sampling.Sampling. None leaves a setting to the process."""

    rate: float | None = None
    tools: dict[str, float] = {}
    keep_errors: bool = True
    keep_slower_than_ms: float | None = None


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a project for its recorders."""

    sampling: ServerSampling | None = None


class Sink(Protocol):
    """A destination of events. `send` and `settings` are called by one thread at a time, the other methods by any thread."""

    @property
    def discards(self) -> bool:
        """True if the sink would discard every event: then none are made and `send` is not called."""

    def send(self, events: Sequence[Clean]) -> int:
        """Take events from the front and return how many. The others are counted as lost.

        Must not wait for a network. If it raises, all of them count as lost.
        """

    def flush(self, deadline: float) -> int:
        """Block until all events are delivered, or `time.monotonic()` reaches `deadline`. Return how many are not."""

    def close(self, deadline: float) -> int:
        """Flush, and release threads and files. Return as `flush` does. May be called again."""

    def after_fork(self) -> None:
        """In a child process, before any other method: forget the threads, files and locks of the parent."""

    def settings(self) -> ServerSettings | None:
        """Return the last settings of the server, or None. Must not block for long."""


class NullSink:
    """Discards all events."""

    @property
    def discards(self) -> bool:
        return True

    def send(self, events: Sequence[Clean]) -> int:
        return len(events)

    def flush(self, deadline: float) -> int:
        return 0

    def close(self, deadline: float) -> int:
        return 0

    def after_fork(self) -> None:
        pass

    def settings(self) -> ServerSettings | None:
        return None


@dataclass
class MemorySink(NullSink):
    """Keeps the newest `limit` events in memory."""

    limit: int = 100_000
    _kept: deque[Clean] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = deque(maxlen=self.limit)

    @property
    def discards(self) -> bool:
        return False

    def send(self, events: Sequence[Clean]) -> int:
        self._kept.extend(events)
        return len(events)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events in the format of POST /events/, in order of arrival."""
        return [msgspec.json.decode(event) for event in tuple(self._kept)]

    def clear(self) -> None:
        self._kept.clear()


class JsonLinesSink(NullSink):
    """Appends events to a file, one a line, in the NDJSON format of POST /events/.

    Each batch is one write to the end of the file, so that several processes may share it. The file is created with the
    first event, readable by its owner only. `send` raises OSError, and the events count as lost.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file: int | None = None
        self._is_torn = False

    @property
    def discards(self) -> bool:
        return False

    def send(self, events: Sequence[Clean]) -> int:
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        whole = memoryview(b"\n".join([b""] * self._is_torn + [*events, b""]))
        while whole:
            written = os.write(self._file, whole)
            whole = whole[written:]
            # If the disk is full now, the next batch must not continue in the middle of a line.
            self._is_torn = bool(whole)
        return len(events)

    def close(self, deadline: float) -> int:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        return 0


class FanOutSink:
    """Sends every event to several sinks. An event that one of them does not take is lost for that one only."""

    def __init__(self, *sinks: Sink) -> None:
        if not sinks:
            raise ValueError("FanOutSink: expected at least one sink.")
        self.sinks = sinks
        self.lost = [0] * len(sinks)
        """Events that each sink did not take, in the order of `sinks`."""

    @property
    def discards(self) -> bool:
        return all(sink.discards for sink in self.sinks)

    def send(self, events: Sequence[Clean]) -> int:
        """Send to all sinks and return the largest count. Raises an ExceptionGroup if all of them fail."""
        most = 0
        failures: list[Exception] = []
        for index, sink in enumerate(self.sinks):
            answer = failure_of(sink.send, events)
            taken = 0 if isinstance(answer, Exception) else answer
            if isinstance(answer, Exception):
                failures.append(answer)
            self.lost[index] += len(events) - taken
            most = max(most, taken)
        if len(failures) == len(self.sinks):
            raise ExceptionGroup("no sink took the events", failures)
        return most

    def flush(self, deadline: float) -> int:
        return sum(self._call_all(lambda sink: sink.flush(deadline)))

    def close(self, deadline: float) -> int:
        return sum(self._call_all(lambda sink: sink.close(deadline)))

    def after_fork(self) -> None:
        self._call_all(lambda sink: sink.after_fork())

    def settings(self) -> ServerSettings | None:
        return next((settings for sink in self.sinks if (settings := sink.settings()) is not None), None)

    def _call_all(self, function: Callable[[Sink], R]) -> list[R]:
        """Call all of them, even if one raises; then raise their exceptions as a group."""
        answers = [failure_of(function, sink) for sink in self.sinks]
        failures = [answer for answer in answers if isinstance(answer, Exception)]
        if failures:
            raise ExceptionGroup("sinks failed", failures)
        return [answer for answer in answers if not isinstance(answer, Exception)]
