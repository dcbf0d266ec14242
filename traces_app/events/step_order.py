"""Where the steps and calls of a run stand, as far as events say it, and kept as more of them come. Without Django.

Steps stand in the order in which they were first spoken of; a call in the step that it names, else in the last one that its
agent had begun before it. So all of it is a function of the subjects alone, whatever came first (`laid_out`).

Nearly always events come in their order: then what stands stays where it is, and new steps and calls follow it
(`Layout.with_events`). Where something comes late, or says otherwise than before, everything is laid out anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .projection import (
    MADE_STEP,
    MOST_INT,
    Said,
    Subject,
    is_call,
    is_step,
    made_step,
    parents_meant,
    subjects_from,
)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Never changed: a later one is made of it. Copying a dict of a thousand entries takes 4 us."""

    subjects: dict[str, Subject] = field(default_factory=dict)
    steps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Iteration and ordinal, by subject."""
    calls: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The step and the position in it, by subject."""
    parents: dict[str, str] = field(default_factory=dict)
    """The call that started a call, where it is there."""
    stands: dict[str, Subject] = field(default_factory=dict)
    """The steps, also those of which only calls spoke."""
    calls_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The calls of a step, in their order."""
    begun: dict[str, str] = field(default_factory=dict)
    """The last step that each agent began."""
    hoped_for: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Calls that are not there, with those that would be started by them."""
    iteration: int = 0
    """Of the next step that says none."""
    last: tuple[int, int] | None = None
    """The highest place at which something was first spoken of."""

    def with_events(self, events: Iterable[Said]) -> Change:
        """What `laid_out` makes of the subjects with what `events` say of them."""
        added: dict[str, Subject] = {}
        is_in_order = True
        for name, one in subjects_from(events, {}).items():
            before = self.subjects.get(name)
            if before is None:
                added[name] = one
                is_in_order = is_in_order and self._can_follow(name, one)
            elif before.with_more(one) != before:
                added[name] = before.with_more(one)
                is_in_order = False
        if not added:
            return Change(self, False, frozenset())
        if not is_in_order:
            return Change(laid_out({**self.subjects, **added}), True, frozenset())
        found = frozenset(call for name in added for call in self.hoped_for.get(name, ()))
        return Change(_followed(self, added), False, found)

    def _can_follow(self, name: str, one: Subject) -> bool:
        """Whether a new step or call leaves what stands where it is."""
        if self.last is not None and one.first <= self.last:
            return False
        step = one.step if is_call(name) else name
        if not step:
            return True
        stood = self.stands.get(step)
        # A step that was made for calls of no step, and is now named, may take more of them.
        return not step.startswith(MADE_STEP) and (stood is None or _as_step(stood, one) == stood)


class Change(NamedTuple):
    """What events made of a layout."""

    layout: Layout
    is_anew: bool
    """Whether what stood before may stand elsewhere."""
    adopted: frozenset[str]
    """Where it is not: calls that were there, and whose parents are there now."""


def laid_out(subjects: Mapping[str, Subject]) -> Layout:
    return _followed(Layout(), subjects) if subjects else Layout()


def _followed(before: Layout, added: Mapping[str, Subject]) -> Layout:
    """The layout with new steps and calls, all of them first spoken of after what is there."""
    calls = sorted((one.first, name) for name, one in added.items() if is_call(name))
    new = {name: one for name, one in added.items() if is_step(name) and name not in before.stands}
    for _first, name in calls:
        one = added[name]
        if one.step and one.step not in before.stands:
            # A step that is known by its calls only, so far.
            new[one.step] = _as_step(new.get(one.step), one)
    begun: dict[str, list[tuple[tuple[int, int], str]]] = {}
    for name, one in new.items():
        begun.setdefault(one.agent, []).append((one.first, name))
    for of_agent in begun.values():
        of_agent.sort()
    hosts: dict[str, str] = {}
    for first, name in calls:
        one = added[name]
        host = one.step or _host(begun.get(one.agent, []), first) or before.begun.get(one.agent)
        if not host:
            host = made_step(one.agent)
            if host not in before.stands:
                new.setdefault(host, Subject(first, one.agent, "", None, ""))
        hosts[name] = host
    return _placed(before, added, new, [(name, hosts[name]) for _first, name in calls], begun)


def _placed(
    before: Layout,
    added: Mapping[str, Subject],
    new: Mapping[str, Subject],
    calls: Sequence[tuple[str, str]],
    begun: Mapping[str, Sequence[tuple[tuple[int, int], str]]],
) -> Layout:
    """Puts new steps, and calls with their steps, behind what is there."""
    subjects = {**before.subjects, **added}
    steps, iteration = dict(before.steps), before.iteration
    for ordinal, (_first, name) in enumerate(sorted((one.first, name) for name, one in new.items()), len(steps)):
        said = new[name].iteration
        iteration = iteration if said is None else said
        steps[name] = (iteration, ordinal)
        iteration = min(iteration + 1, MOST_INT)
    placed, calls_of = dict(before.calls), dict(before.calls_of)
    parents, hoped_for = dict(before.parents), dict(before.hoped_for)
    for name, host in calls:
        of_step = calls_of.get(host, ())
        placed[name] = (host, len(of_step))
        calls_of[host] = (*of_step, name)
    for name, _host in calls:
        for child in (name, *before.hoped_for.get(name, ())):
            _find_parent(child, subjects, parents, hoped_for)
    return Layout(
        subjects=subjects,
        steps=steps,
        calls=placed,
        parents=parents,
        stands={**before.stands, **new},
        calls_of=calls_of,
        begun=before.begun | {agent: of_agent[-1][1] for agent, of_agent in begun.items()},
        hoped_for=hoped_for,
        iteration=iteration,
        last=max(one.first for one in added.values()),
    )


def _as_step(stood: Subject | None, one: Subject) -> Subject:
    """A step with what `one`, a call of it or the step itself, says of where it stands."""
    said = Subject(one.first, one.agent, "", one.iteration, "")
    return said if stood is None else stood.with_more(said)


def _host(begun: Sequence[tuple[tuple[int, int], str]], first: tuple[int, int]) -> str:
    at = bisect_right(begun, (first, "\U0010ffff"))
    return begun[at - 1][1] if at else ""


def _find_parent(
    name: str, subjects: Mapping[str, Subject], parents: dict[str, str], hoped_for: dict[str, tuple[str, ...]]
) -> None:
    """Of the calls that a call may mean by its parent the first one that is there."""
    for candidate in parents_meant(subjects[name]):
        if candidate == name:
            continue
        if candidate in subjects:
            parents[name] = candidate
            return
        waiting = hoped_for.get(candidate, ())
        if name not in waiting:
            hoped_for[candidate] = (*waiting, name)
