"""Calls without an id: which outcome belongs to which call. Pure, without Django.

An agent's first outcome of a tool is that of its first call of it, the second that of the second, and so on. When such an event
arrives it gets a label, `#0 search` as its call id, which counts the events of its kind as they arrive. Nearly always
that is their order. Where it is not (a batch that was shuffled, or late), the label is read as what it is, and the event belongs
to the call of its rank: so the pairs are a function of the set of events, as everything else is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .projection import Said, is_call, subject_of

Group = tuple[str, str]
"""An agent and a tool."""
_Kind = tuple[str, str, bool]
"""A group, and whether its events begin calls."""
_Place = tuple[int, int, str]

_LABEL = re.compile(r"#(\d{1,9}) (.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Unnamed:
    """The events of a run about calls without an id, in the order in which they arrived."""

    places: Mapping[_Kind, tuple[_Place, ...]] = field(default_factory=dict)
    """Where each stands among all events, by its label."""
    disordered: frozenset[Group] = frozenset()
    """Of these the labels do not say the order."""

    def with_events(self, events: Iterable[Said]) -> Unnamed:
        """`events` are in the order of their arrival."""
        added: dict[_Kind, list[_Place]] = {}
        disordered: set[Group] = set()
        for said in events:
            found = _label_of(said)
            if found is None:
                continue
            number, kind = found
            places = added.setdefault(kind, list(self.places.get(kind, ())))
            if number != len(places):
                # A call id of the producer's own that looks like a label.
                continue
            if places and said.place() < places[-1]:
                disordered.add(kind[:2])
            places.append(said.place())
        if not added:
            return self
        return Unnamed(
            places={**self.places, **{kind: tuple(places) for kind, places in added.items()}},
            disordered=self.disordered | disordered,
        )

    def label(self, agent: str, tool: str, *, is_start: bool) -> str:
        """The call id of the next event of its kind."""
        return f"#{len(self.places.get((agent, tool, is_start), ()))} {tool}"

    def placed(self, said: Said) -> Said:
        """The event with the call that it belongs to."""
        found = _label_of(said) if self.disordered else None
        if found is None or found[1][:2] not in self.disordered:
            return said
        number, kind = found
        rank = self._ranks(kind).get(number, number)
        if rank == number:
            return said
        data = {**said.data, "call_id": f"#{rank} {kind[1]}"}
        return replace(said, data=data, subject=subject_of(said.type, said.agent, said.external_id, data))

    def moved_since(self, before: Unnamed) -> set[Group]:
        """The groups of which events that were there belong to other calls now."""
        return {
            group
            for group in self.disordered
            for is_start in (True, False)
            for number, rank in before._ranks((*group, is_start)).items()
            if self._ranks((*group, is_start))[number] != rank
        }

    def subjects_of(self, group: Group) -> set[str]:
        """The calls of a group: of all its labels, and so of all its ranks."""
        agent, tool = group
        most = max(len(self.places.get((agent, tool, is_start), ())) for is_start in (True, False))
        return {subject_of("tool_call_start", agent, "", {"call_id": f"#{number} {tool}"}) for number in range(most)}

    def _ranks(self, kind: _Kind) -> dict[int, int]:
        places = self.places.get(kind, ())
        if kind[:2] not in self.disordered:
            return dict(enumerate(range(len(places))))
        order = sorted(range(len(places)), key=places.__getitem__)
        return {number: rank for rank, number in enumerate(order)}


def _label_of(said: Said) -> tuple[int, _Kind] | None:
    call_id = said.data.get("call_id")
    if not isinstance(call_id, str) or not call_id.startswith("#") or not is_call(said.subject):
        return None
    match = _LABEL.fullmatch(call_id)
    return None if match is None else (int(match[1]), (said.agent, match[2], said.type == "tool_call_start"))
