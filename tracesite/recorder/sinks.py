"""Where recorded events go: what a sink is, and the small ones. The one that sends them to a server is http_sink.py."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NewType, Protocol, TypeVar

import msgspec

from .guard import failure_of

R = TypeVar("R")

Clean = NewType("Clean", bytes)
"""One event as a JSON object in UTF-8 without a line end, with nothing secret left in it: made in privacy.py, nowhere else."""


class ServerSampling(msgspec.Struct, frozen=True, kw_only=True):
    """How much a project wants to be told, as its server says it: see sampling.Sampling."""

    rate: float | None = None
    tools: dict[str, float] = {}
    keep_errors: bool = True
    keep_slower_than_ms: float | None = None


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server asks of its recorders."""

    sampling: ServerSampling | None = None


class Sink(Protocol):
    """Takes events. All but `flush`, `close` and `after_fork` are called by one thread at a time."""

    @property
    def discards(self) -> bool:
        """Whether it would only throw events away: then none are made, and it is given nothing."""

    def send(self, events: Sequence[Clean]) -> int:
        """Takes events from the front and returns how many: those after are lost, and will be counted as lost.

        Must not wait for a network. If it raises, all of them count as lost.
        """

    def flush(self, deadline: float) -> int:
        """Waits until what was taken is delivered, or `time.monotonic()` passes `deadline`; how many events are not yet."""

    def close(self, deadline: float) -> int:
        """Flushes and lets go of threads and files. May be called again."""

    def after_fork(self) -> None:
        """In a child process, before all else: the parent's threads, files and locks are not ours."""

    def settings(self) -> ServerSettings | None:
        """What the server last asked for; None where it asked for nothing."""


class NullSink:
    """Takes everything and keeps nothing: for an agent whose recorder is on and writes nowhere."""

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
    """Keeps the newest events in memory, `limit` at most; the older ones are forgotten."""

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
        """The events as POST /events/ takes them, in the order in which they came."""
        return [msgspec.json.decode(event) for event in tuple(self._kept)]

    def clear(self) -> None:
        self._kept.clear()


class JsonLinesSink(NullSink):
    """Appends events to a file, one a line: what POST /events/ takes as NDJSON.

    Each batch is one write to the end of the file, so that several processes may share it. The file is made when the
    first event comes, readable by its owner only. Raises OSError in `send`, which the pipeline counts.
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
            # Until all is written: where the disk is full, the next batch must not go on in the middle of a line.
            self._is_torn = bool(whole)
        return len(events)

    def close(self, deadline: float) -> int:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        return 0


class FanOutSink:
    """Gives every event to several sinks. What one of them does not take is lost for that one only."""

    def __init__(self, *sinks: Sink) -> None:
        if not sinks:
            raise ValueError("FanOutSink: expected at least one sink.")
        self.sinks = sinks
        self.lost = [0] * len(sinks)
        """How many events each sink did not take."""

    @property
    def discards(self) -> bool:
        return all(sink.discards for sink in self.sinks)

    def send(self, events: Sequence[Clean]) -> int:
        """Takes what the best of them takes. Raises an ExceptionGroup where all of them fail."""
        most = 0
        failures: list[Exception] = []
        for place, sink in enumerate(self.sinks):
            answer = failure_of(sink.send, events)
            taken = 0 if isinstance(answer, Exception) else answer
            if isinstance(answer, Exception):
                failures.append(answer)
            self.lost[place] += len(events) - taken
            most = max(most, taken)
        if len(failures) == len(self.sinks):
            raise ExceptionGroup("no sink took the events", failures)
        return most

    def flush(self, deadline: float) -> int:
        return sum(self._ask_all(lambda sink: sink.flush(deadline)))

    def close(self, deadline: float) -> int:
        return sum(self._ask_all(lambda sink: sink.close(deadline)))

    def after_fork(self) -> None:
        self._ask_all(lambda sink: sink.after_fork())

    def settings(self) -> ServerSettings | None:
        return next((found for sink in self.sinks if (found := sink.settings()) is not None), None)

    def _ask_all(self, ask: Callable[[Sink], R]) -> list[R]:
        """Asks each of them, whatever those before it did; then raises what they raised."""
        answers = [failure_of(ask, sink) for sink in self.sinks]
        failures = [answer for answer in answers if isinstance(answer, Exception)]
        if failures:
            raise ExceptionGroup("sinks failed", failures)
        return [answer for answer in answers if not isinstance(answer, Exception)]
