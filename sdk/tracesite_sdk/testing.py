"""For tests of agents: a recorder that keeps its events in memory, with a clock and ids that make traces reproducible.

    with recording() as recorder:
        answer = run_agent(recorder, "How is the weather?")
    assert tree(recorder.events) == ["message", "  step gpt-5", "    get_weather"]

The clock starts on 2026-01-01 and advances by a second at each reading; ids are "1", "2", ... in order of use. Failures of
the recorder raise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any

from .recorder.delivery.privacy import Privacy
from .recorder.delivery.sampling import Sampling
from .recorder.delivery.sinks import MemorySink
from .recorder.recording import Recorder

START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000_000
SECOND = 1_000_000_000
FIRST_TOKEN = 500
"""Milliseconds."""


class RecorderForTests(Recorder):
    """A recorder with a MemorySink."""

    def __init__(
        self,
        *,
        sink: MemorySink | None = None,
        enabled: bool = True,
        sampling: Sampling | None = None,
        privacy: Privacy | None = None,
        strict: bool = True,
        delay_ms: float = 1,
        queue_bytes: int = 64 * 2**20,
    ) -> None:
        self._memory = sink or MemorySink()
        # From 0, because the recorder uses one id itself.
        seconds, ids = count(START, SECOND), count(0)
        super().__init__(
            sink=self._memory,
            enabled=enabled,
            sampling=sampling,
            privacy=privacy,
            delay_ms=delay_ms,
            queue_bytes=queue_bytes,
            strict=strict,
            clock=lambda: next(seconds),
            ids=lambda: str(next(ids)),
        )

    def flush(self, timeout: float = 60.0) -> int:
        """As of any recorder, but with the patience that a busy machine needs for tests."""
        return super().flush(timeout)

    def close(self, timeout: float = 60.0) -> int:
        """As of any recorder, but with the patience that a busy machine needs for tests."""
        return super().close(timeout)

    @property
    def sink(self) -> MemorySink:
        """The sink in memory."""
        return self._memory

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events so far, sorted by number, with durations by the clock of the test and FIRST_TOKEN as the time to each first token. Flushes the recorder."""
        self.flush()
        events = sorted(self.sink.events, key=lambda event: event["number"])
        began = {_subject(event): event["number"] for event in reversed(events) if event["id"].endswith(".s")}
        for event in events:
            if "duration" in event["data"]:
                event["data"]["duration"] = (event["number"] - began.get(_subject(event), event["number"])) / 1_000_000
            if "time_to_first_token" in event["data"]:
                # The recorder does not read the clock of events at the first token.
                event["data"]["time_to_first_token"] = FIRST_TOKEN
        return events


@contextmanager
def recording(
    *, sampling: Sampling | None = None, privacy: Privacy | None = None, strict: bool = True
) -> Iterator[RecorderForTests]:
    """Yield a recorder for a test and close it afterwards; its events can still be read then."""
    recorder = RecorderForTests(sampling=sampling, privacy=privacy, strict=strict)
    try:
        yield recorder
    finally:
        recorder.close()


def tree(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return messages, steps and calls by name, one line each, indented by two spaces more than their parent."""
    below: dict[_Place, list[tuple[_Place, str]]] = {}
    for event in sorted(events, key=lambda event: event["number"]):
        data = event["data"]
        message = event["message_id"]
        if not event["id"].endswith(".s"):
            continue
        if event["type"] == "tool_call_start":
            inside = (
                ("call", data["parent"]) if "parent" in data else ("step", data["step"]) if "step" in data else None
            )
            below.setdefault(inside or ("message", message), []).append((("call", data["uuid"]), data["name"]))
        elif event["type"] == "llm_request_start":
            name = " ".join(["step", *(data[name] for name in ("agent_name", "model") if name in data)])
            below.setdefault(("message", message), []).append((("step", data["step"]), name))
        elif event["type"] == "workflow_execute_start":
            below.setdefault(_TOP, []).append((("message", message), "message"))
    return list(_lines(below, _TOP, ""))


_Place = tuple[str, str]
"""A kind and an id, because the host's ids of messages may equal those of calls."""
_TOP: _Place = ("", "")


def _lines(below: dict[_Place, list[tuple[_Place, str]]], place: _Place, indent: str) -> Iterator[str]:
    for child, name in below.get(place, []):
        yield f"{indent}{name}"
        yield from _lines(below, child, f"{indent}  ")


def _subject(event: dict[str, Any]) -> str:
    return str(event["id"]).rpartition(".")[0]
