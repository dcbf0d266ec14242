"""The calls that a model requested and that nothing has answered yet, found by id, name or arguments. Pure Python."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tracesite_sdk.normalize.json_values import as_json, fields

from .entries import Call
from .parsing.message_shapes import decoded


@dataclass(eq=False)
class OpenCall:
    call: Call
    place: int = 0
    """Its index among the calls."""
    answered: bool = False
    """Whoever answers it sets this."""


class OpenCalls:
    def __init__(self) -> None:
        self._calls: list[OpenCall] = []
        """Those that were open when the trace began, and those of the trace."""
        self._ids: set[str | None] = set()
        """The ids of all calls."""
        self._claimed: Collection[str] = ()
        self._waiting: defaultdict[tuple[object, ...], deque[OpenCall]] = defaultdict(deque)
        """Open calls by each key under which they are looked for; answered ones are skipped."""

    def begin_trace(self, claimed: Collection[str]) -> None:
        """`claimed` are the call ids that tools of the trace name: other tools do not get these calls."""
        self._claimed = claimed
        still_open = [item for item in self._calls if not item.answered]
        self._calls.clear()
        self._waiting.clear()
        self.add(item.call for item in still_open)

    def add(self, calls: Iterable[Call]) -> None:
        for call in calls:
            item = OpenCall(call, len(self._calls))
            self._calls.append(item)
            self._ids.add(call.id)
            self._waiting["any", call.name].append(item)
            groups = ["free"] if call.id is None or call.id not in self._claimed else []
            if call.id is None:
                groups.append("no id")
            else:
                self._waiting["id", call.id].append(item)
            args = canonical(call.args) if groups else ""
            for group in groups:
                self._waiting[group, call.name].append(item)
                self._waiting[group, call.name, args].append(item)

    def knows(self, call_id: str) -> bool:
        """Return whether a call has this id, also one that was answered."""
        return call_id in self._ids

    def has_name(self, name: str) -> bool:
        return self._first("any", name) is not None

    def find(self, call_id: str | None, name: str | None, args: Any) -> OpenCall | None:
        """Return the open call with this id, else the one with this name and arguments, else the first with this name."""
        if call_id is not None:
            if by_id := self._first("id", call_id):
                return by_id
            if call_id in self._ids:
                # The call was answered before.
                return None
        group = "free" if call_id is None else "no id"
        by_name = self._first(group, name)
        if by_name is None or args is None:
            return by_name
        wanted = {canonical(args), canonical(fields(args).get("input")), canonical(fields(args).get("args"))}
        by_args = [item for text in wanted if (item := self._first(group, name, text)) is not None]
        return min(by_args, key=lambda item: item.place, default=by_name)

    def _first(self, *key: object) -> OpenCall | None:
        queue = self._waiting.get(key)
        while queue and queue[0].answered:
            queue.popleft()
        return queue[0] if queue else None


def canonical(args: Any) -> str:
    """Return the same text for the same arguments, in whatever order and whether decoded or not."""
    value = decoded(args)
    return as_json(dict(sorted(value.items()))) if isinstance(value, dict) else as_json(value)
