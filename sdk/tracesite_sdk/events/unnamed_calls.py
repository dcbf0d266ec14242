"""Match the results of calls without an id to the calls. Pure functions.

An agent's first result of a tool belongs to its first call of that tool, the second to the second, and so on. An arriving
event gets a label such as `#0 search` as its call id, which counts the events of its kind in the order of arrival. That is
nearly always their order. If it is not (a shuffled or late batch), the event belongs to the call of its rank, so the pairs
are a function of the set of events like everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .projection import EventFact, is_call, subject_of

Group = tuple[str, str]
"""An agent and a tool."""
_Kind = tuple[str, str, bool]
"""A group, and whether its events start calls."""
_Place = tuple[int, int, str]

_LABEL = re.compile(r"#(\d{1,9}) (.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Unnamed:
    """The events of a run about calls without an id, in the order in which they arrived."""

    places: Mapping[_Kind, tuple[_Place, ...]] = field(default_factory=dict)
    """The position of each event, by its label."""
    disordered: frozenset[Group] = frozenset()
    """Groups whose labels are not in the order of their events."""

    def with_events(self, events: Iterable[EventFact]) -> Unnamed:
        """Return the state after `events`, given in the order of arrival."""
        added: dict[_Kind, list[_Place]] = {}
        disordered: set[Group] = set()
        for fact in events:
            label = _label_of(fact)
            if label is None:
                continue
            number, kind = label
            places = added.setdefault(kind, list(self.places.get(kind, ())))
            if number != len(places):
                # A producer's own call id that looks like a label.
                continue
            if places and fact.place() < places[-1]:
                disordered.add(kind[:2])
            places.append(fact.place())
        if not added:
            return self
        return Unnamed(
            places={**self.places, **{kind: tuple(places) for kind, places in added.items()}},
            disordered=self.disordered | disordered,
        )

    def label(self, agent: str, tool: str, *, is_start: bool) -> str:
        """Return the call id of the next event of its kind."""
        return f"#{len(self.places.get((agent, tool, is_start), ()))} {tool}"

    def placed(self, fact: EventFact) -> EventFact:
        """Return the event with the id of the call that it belongs to."""
        label = _label_of(fact) if self.disordered else None
        if label is None or label[1][:2] not in self.disordered:
            return fact
        number, kind = label
        rank = self._ranks(kind).get(number, number)
        if rank == number:
            return fact
        data = {**fact.data, "call_id": f"#{rank} {kind[1]}"}
        return replace(fact, data=data, subject=subject_of(fact.type, fact.agent, fact.external_id, data))

    def moved_since(self, before: Unnamed) -> set[Group]:
        """Return the groups in which existing events now belong to other calls."""
        return {
            group
            for group in self.disordered
            for is_start in (True, False)
            for number, rank in before._ranks((*group, is_start)).items()
            if self._ranks((*group, is_start))[number] != rank
        }

    def subjects_of(self, group: Group) -> set[str]:
        """Return the calls of a group, one for each label."""
        agent, tool = group
        most = max(len(self.places.get((agent, tool, is_start), ())) for is_start in (True, False))
        return {subject_of("tool_call_start", agent, "", {"call_id": f"#{number} {tool}"}) for number in range(most)}

    def _ranks(self, kind: _Kind) -> dict[int, int]:
        places = self.places.get(kind, ())
        if kind[:2] not in self.disordered:
            return dict(enumerate(range(len(places))))
        order = sorted(range(len(places)), key=places.__getitem__)
        return {number: rank for rank, number in enumerate(order)}


def _label_of(fact: EventFact) -> tuple[int, _Kind] | None:
    call_id = fact.data.get("call_id")
    if not isinstance(call_id, str) or not call_id.startswith("#") or not is_call(fact.subject) or fact.stage == "note":
        return None
    match = _LABEL.fullmatch(call_id)
    return None if match is None else (int(match[1]), (fact.agent, match[2], fact.stage == "start"))
