"""Sampling: keep a share of the sessions, a share of the calls of a tool, and everything that failed or was slow.

The worker decides, and only when the end is known: until then it holds the entries that may be left out. The decision about
a session depends on its id alone, so that all processes that work on it decide alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from tracesite_sdk.recorder.capture.entries import Entry, Kind, MessageSubject, result_says_error

_MOST_HELD = 10_000
"""Entries of a message that are held, and calls; a message with more is kept."""
_MOST_BYTES_HELD = 32 * 2**20
"""The limit of all messages together. Beyond it the oldest are kept, so that messages that never end do not fill the memory."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The share that is kept. Raises ValueError for a share that is not between 0 and 1."""

    rate: float = 1.0
    """The share of the sessions, from 0 to 1."""
    tools: Mapping[str, float] = field(default_factory=dict)
    """The share of the calls of a tool, by its name; 1 for all others."""
    keep_errors: bool = True
    """Keep a message, step or call that failed, with its parents."""
    keep_slower_than_ms: float | None = None
    """Keep those that took longer, in milliseconds, with their parents."""

    def __post_init__(self) -> None:
        for name, share in {
            "rate": self.rate,
            **{f"tools[{tool!r}]": share for tool, share in self.tools.items()},
        }.items():
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ValueError(f"Sampling.{name}: expected a share from 0 to 1, not {share!r}.")
        slow = self.keep_slower_than_ms
        if slow is not None and (isinstance(slow, bool) or not isinstance(slow, int | float) or slow < 0):
            raise ValueError(f"Sampling.keep_slower_than_ms: expected milliseconds, not {slow!r}.")

    @property
    def keeps_all(self) -> bool:
        return self.rate >= 1 and all(share >= 1 for share in self.tools.values())


def is_chosen(name: str, share: float) -> bool:
    """Return whether `name` is in the share: always the same answer for the same name."""
    return share >= 1 or crc32(name.encode("utf-8", "backslashreplace")) < share * 2**32


class Sampler:
    """Filters the entries of one recorder, in the order in which they were made. Used by one thread at a time."""

    def __init__(self) -> None:
        self._messages: dict[MessageSubject, list[Entry]] = {}
        """Held entries of messages that may be left out, the oldest first."""
        self._bytes = 0
        """Their approximate size."""
        self._calls: dict[str, Entry] = {}
        """Start entries of calls that may be left out, by id."""
        self.left_out = 0
        """Entries that were left out."""

    @property
    def is_idle(self) -> bool:
        return not (self._messages or self._calls)

    def filter(self, entry: Entry, sampling: Sampling) -> Iterator[Entry]:
        """Yield the entries that are kept now: this one, none, or the held ones and this one."""
        message = entry.scope.message
        held = self._messages.get(message)
        if held is None:
            if entry.kind is Kind.MESSAGE_START and not is_chosen(message.sampling_key, sampling.rate):
                self._messages[message] = [entry]
                self._bytes += entry.size
                yield from self._within_memory(sampling)
            elif message.left_out:
                self.left_out += 1
            else:
                yield from self._filter_call(entry, sampling)
            return
        held.append(entry)
        self._bytes += entry.size
        is_over = entry.kind is Kind.MESSAGE_END
        if _matters(entry, sampling) or len(held) > _MOST_HELD or (is_over and _calls_are_open(held)):
            yield from self._kept(message, sampling)
        elif is_over:
            self._release(message)
            message.left_out = True
            self.left_out += len(held)
        yield from self._within_memory(sampling)

    def release(self) -> Iterator[Entry]:
        """Yield the held entries of everything that has not ended: kept, because its outcome is not known."""
        for message in list(self._messages):
            yield from self._release(message)
        yield from self._calls.values()
        self._calls.clear()

    def _within_memory(self, sampling: Sampling) -> Iterator[Entry]:
        while self._bytes > _MOST_BYTES_HELD:
            yield from self._kept(next(iter(self._messages)), sampling)

    def _kept(self, message: MessageSubject, sampling: Sampling) -> Iterator[Entry]:
        for entry in self._release(message):
            yield from self._filter_call(entry, sampling)

    def _release(self, message: MessageSubject) -> list[Entry]:
        held = self._messages.pop(message)
        self._bytes -= sum(entry.size for entry in held)
        return held

    def _filter_call(self, entry: Entry, sampling: Sampling) -> Iterator[Entry]:
        scope = entry.scope
        call = scope.call
        if entry.kind is Kind.CALL_START:
            assert call is not None, "it is the call's own entry"
            if not is_chosen(call.id, sampling.tools.get(call.name, 1)):
                self._calls[call.id] = entry
                if len(self._calls) > _MOST_HELD:
                    yield self._calls.pop(next(iter(self._calls)))
                return
        elif entry.kind is Kind.CALL_END:
            assert call is not None, "it is the call's own entry"
            if call.id in self._calls and not _matters(entry, sampling):
                del self._calls[call.id]
                call.left_out = True
                self.left_out += 2
                scope.message.losses.sampled_out += 1
                return
        if call is not None and scope is call and call.left_out:
            # An update that came after its end.
            self.left_out += 1
            return
        if self._calls:
            # The parent calls of a kept entry are kept.
            above: list[Entry] = []
            while call is not None:
                beginning = self._calls.pop(call.id, None)
                if beginning is not None:
                    above.append(beginning)
                call = call.parent
            yield from reversed(above)
        yield entry


def _matters(entry: Entry, sampling: Sampling) -> bool:
    if entry.event is not None and entry.event["type"] == "score":
        return True
    slow = sampling.keep_slower_than_ms
    if slow is not None and entry.duration_ms is not None and entry.duration_ms > slow:
        return True
    return sampling.keep_errors and (entry.failed or result_says_error(entry))


def _calls_are_open(held: list[Entry]) -> bool:
    """Return whether calls go on after the end of their message, so that their outcome is not known."""
    return sum((entry.kind is Kind.CALL_START) - (entry.kind is Kind.CALL_END) for entry in held) > 0
