"""The calls that a model requested and that nothing has answered yet, found by id, place, arguments or name. Pure Python."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tracesite_sdk.normalize.json_values import as_json, fields

from .entries import Call
from .parsing.message_shapes import decoded

MOST_COMPARED = 64
"""Calls that are compared to find those of the last request."""

_Key = tuple[object, ...]


@dataclass(eq=False)
class OpenCall:
    call: Call
    place: int = 0
    """Its index among the calls."""
    around: Sequence[str] = ()
    """The ids of the spans around its request, the nearest first."""
    answered: bool = False
    """Whoever answers it sets this."""


class OpenCalls:
    def __init__(self) -> None:
        self._calls: list[OpenCall] = []
        """Those that were open when the trace began, and those of the trace."""
        self._ids: set[str | None] = set()
        """The ids of all calls."""
        self._claimed: Collection[str] = ()
        self._waiting: defaultdict[_Key, deque[OpenCall]] = defaultdict(deque)
        """Open calls by each key under which they are looked for; answered ones are skipped."""
        self._guessed: set[_Key] = set()
        """Keys of several open calls, the first of which was given a result that may be that of another."""

    def begin_trace(self, claimed: Collection[str]) -> None:
        """`claimed` are the call ids that tools of the trace name: other tools do not get these calls."""
        self._claimed = claimed
        still_open = [item for item in self._calls if not item.answered]
        self._calls.clear()
        self._waiting.clear()
        for item in still_open:
            self.add([item.call], item.around)

    def add(self, calls: Iterable[Call], around: Sequence[str] = ()) -> None:
        """`around` are the ids of the spans around the request, the nearest first."""
        for call in calls:
            item = OpenCall(call, len(self._calls), around)
            self._calls.append(item)
            self._ids.add(call.id)
            self._put(item, "any")
            self._put(item, "any", call.name)
            groups: list[_Key] = [("free",)] if call.id is None or call.id not in self._claimed else []
            groups.append(("no id",) if call.id is None else ("id", call.id))
            args = canonical(call.args)
            for group in groups:
                for span in (*around, None):
                    if group[0] == "id":
                        # Its tool may have another name.
                        self._put(item, group, span)
                    self._put(item, group, span, call.name)
                    self._put(item, group, span, call.name, args)

    def knows(self, call_id: str) -> bool:
        """Return whether a call has this id, also one that was answered."""
        return call_id in self._ids

    def was_answered(self, call_id: str) -> bool:
        """Return whether all calls with this id were answered, of which there is one at least."""
        return call_id in self._ids and self._first(("id", call_id), None) is None

    def are_open(self) -> bool:
        """Return whether any call is open."""
        return self._first("any") is not None

    def has_name(self, name: str) -> bool:
        return self._first("any", name) is not None

    def of_last_request(self, span: str, is_own: Callable[[str], bool]) -> list[OpenCall] | None:
        """Return the open calls of the last request within a span, without those that a tool of the trace names by id; None if no
        request had calls. Only requests count whose id `is_own` accepts, among those of the MOST_COMPARED last calls."""
        recent = (item for item in self._calls[: -MOST_COMPARED - 1 : -1] if span in item.around)
        own = [item for item in recent if is_own(item.around[0])]
        if not own:
            return None
        last = [item for item in own if item.around[0] == own[0].around[0] and not item.answered]
        return [item for item in last if item.call.id is None or item.call.id not in self._claimed]

    def find(
        self,
        call_id: str | None,
        name: str | None,
        args: Any,
        around: Sequence[str] = (),
        ids_of_output: Callable[[], Iterable[str]] = tuple,
    ) -> tuple[OpenCall | None, bool]:
        """Return the open call to which a tool belongs, and whether that is a guess, because other calls fit as well.

        The id decides; then which request is nearest in the tree, where `around` are the ids of the spans around the tool, the
        nearest first; then name and arguments; then `ids_of_output`, the ids of the calls to which a later request gives
        the output of the tool; and then the order of the calls.
        """
        group: _Key = ("free",)
        if call_id is not None:
            group = ("id", call_id) if self._first(("id", call_id), None) is not None else ("no id",)
            if group == ("no id",) and call_id in self._ids:
                # The call was answered before.
                return None, False
        for span in (*around, None):
            key: _Key = (group, span, name)
            if self._first(*key) is None and call_id is not None and group != ("no id",):
                key = (group, span)
            if self._first(*key) is not None:
                return self._choose(key, args, ids_of_output)
        return None, False

    def _choose(self, key: _Key, args: Any, ids_of_output: Callable[[], Iterable[str]]) -> tuple[OpenCall, bool]:
        first, is_only = self._first(*key), not self._has_several(key)
        assert first is not None, "the caller has looked"
        if is_only:
            return first, key in self._guessed
        if args is not None:
            by_args = [(item, (*key, text)) for text in _forms(args) if (item := self._first(*key, text)) is not None]
            if by_args:
                first, key = min(by_args, key=lambda found: found[0].place)
                if not self._has_several(key):
                    return first, key in self._guessed
        for call_id in ids_of_output():
            if (by_output := self._first(("id", call_id), *key[1:])) is not None:
                return by_output, False
        self._guessed.add(key)
        return first, True

    def _put(self, item: OpenCall, *key: object) -> None:
        if self._guessed and self._first(*key) is None:
            self._guessed.discard(key)
        self._waiting[key].append(item)

    def _first(self, *key: object) -> OpenCall | None:
        queue = self._waiting.get(key)
        while queue and queue[0].answered:
            queue.popleft()
        return queue[0] if queue else None

    def _has_several(self, key: _Key) -> bool:
        """Return whether a second call is open beside the first one."""
        queue = self._waiting[key]
        first = queue.popleft()
        is_open = self._first(*key) is not None
        queue.appendleft(first)
        return is_open


def may_be_the_same(args: Any, others: Any) -> bool:
    """Return whether arguments, or outputs, are equal or unknown on one side."""
    unknown: tuple[Any, ...] = (None, "", {}, [])
    return args in unknown or others in unknown or not _forms(args).isdisjoint(_forms(others))


def _forms(args: Any) -> set[str]:
    """Return the texts of arguments, also if they are in a call or in an object with the input."""
    return {canonical(it) for it in (args, fields(args).get("input"), fields(args).get("args")) if it is not None}


def canonical(args: Any) -> str:
    """Return the same text for the same arguments, in whatever order and whether decoded or not."""
    value = decoded(args)
    return as_json(dict(sorted(value.items()))) if isinstance(value, dict) else as_json(value)
