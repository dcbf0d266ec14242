"""The positions of the steps and calls of a run, computed from its events and updated as more arrive.

Steps are in the order of their first events. A call belongs to the step that it names, or else to the last step that its
agent had started before it. So the layout is a function of the subjects alone, in whatever order they arrive (`laid_out`).

Events nearly always arrive in order; new steps and calls are then appended (`Layout.with_events`). When one arrives late,
or contradicts an earlier one, the whole layout is computed again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .projection import (
    MADE_STEP,
    MOST_INT,
    EventFact,
    Subject,
    is_call,
    is_step,
    made_step,
    parents_meant,
    subjects_from,
)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Immutable: later layouts are copies. Copying a dict of a thousand entries takes 4 us."""

    subjects: dict[str, Subject] = field(default_factory=dict)
    steps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Iteration and ordinal, by subject."""
    calls: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The step and the position in it, by subject."""
    parents: dict[str, str] = field(default_factory=dict)
    """The parents of calls, if they exist."""
    step_subjects: dict[str, Subject] = field(default_factory=dict)
    """The steps, including those that only calls have named."""
    calls_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The calls of a step, in their order."""
    last_steps: dict[str, str] = field(default_factory=dict)
    """The last step that each agent started."""
    missing_parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Parents that do not exist yet, with the calls that name them."""
    iteration: int = 0
    """The iteration of the next step that has none."""
    last: tuple[int, int] | None = None
    """The highest position of a first event."""

    def with_events(self, events: Iterable[EventFact]) -> Change:
        """Return the layout of the subjects with `events` added, as `laid_out` would compute it."""
        added: dict[str, Subject] = {}
        is_in_order = True
        for name, subject in subjects_from(events, {}).items():
            before = self.subjects.get(name)
            if before is None:
                added[name] = subject
                is_in_order = is_in_order and self._can_follow(name, subject)
            elif before.with_more(subject) != before:
                added[name] = before.with_more(subject)
                is_in_order = False
        if not added:
            return Change(self, False, frozenset())
        if not is_in_order:
            return Change(laid_out({**self.subjects, **added}), True, frozenset())
        parents_of = frozenset(call for name in added for call in self.missing_parents.get(name, ()))
        return Change(_extended(self, added), False, parents_of)

    def _can_follow(self, name: str, subject: Subject) -> bool:
        """Return whether a new step or call leaves all existing positions unchanged."""
        if self.last is not None and subject.first <= self.last:
            return False
        step = subject.step if is_call(name) else name
        if not step:
            return True
        known = self.step_subjects.get(step)
        # A step that was generated for calls without a step, and is named now, may receive more of them.
        return not step.startswith(MADE_STEP) and (known is None or _as_step(known, subject) == known)


class Change(NamedTuple):
    """A layout after new events."""

    layout: Layout
    is_recomputed: bool
    """Whether existing positions may have changed."""
    adopted: frozenset[str]
    """If not: existing calls whose parents exist now."""


def laid_out(subjects: Mapping[str, Subject]) -> Layout:
    return _extended(Layout(), subjects) if subjects else Layout()


def _extended(before: Layout, added: Mapping[str, Subject]) -> Layout:
    """Return the layout with new steps and calls, all of which come after the existing ones."""
    calls = sorted((subject.first, name) for name, subject in added.items() if is_call(name))
    new = {name: subject for name, subject in added.items() if is_step(name) and name not in before.step_subjects}
    for _first, name in calls:
        subject = added[name]
        if subject.step and subject.step not in before.step_subjects:
            # A step that only calls have named so far.
            new[subject.step] = _as_step(new.get(subject.step), subject)
    begun: dict[str, list[tuple[tuple[int, int], str]]] = {}
    for name, subject in new.items():
        begun.setdefault(subject.agent, []).append((subject.first, name))
    for of_agent in begun.values():
        of_agent.sort()
    hosts: dict[str, str] = {}
    for first, name in calls:
        subject = added[name]
        host = subject.step or _host(begun.get(subject.agent, []), first) or before.last_steps.get(subject.agent)
        if not host:
            host = made_step(subject.agent)
            if host not in before.step_subjects:
                new.setdefault(host, Subject(first, subject.agent, "", None, ""))
        hosts[name] = host
    return _placed(before, added, new, [(name, hosts[name]) for _first, name in calls], begun)


def _placed(
    before: Layout,
    added: Mapping[str, Subject],
    new: Mapping[str, Subject],
    calls: Sequence[tuple[str, str]],
    begun: Mapping[str, Sequence[tuple[tuple[int, int], str]]],
) -> Layout:
    """Return the layout with new steps, and with calls at the end of their steps."""
    subjects = {**before.subjects, **added}
    steps, iteration = dict(before.steps), before.iteration
    for ordinal, (_first, name) in enumerate(
        sorted((subject.first, name) for name, subject in new.items()), len(steps)
    ):
        fact = new[name].iteration
        iteration = iteration if fact is None else fact
        steps[name] = (iteration, ordinal)
        iteration = min(iteration + 1, MOST_INT)
    placed, calls_of = dict(before.calls), dict(before.calls_of)
    parents, missing_parents = dict(before.parents), dict(before.missing_parents)
    for name, host in calls:
        of_step = calls_of.get(host, ())
        placed[name] = (host, len(of_step))
        calls_of[host] = (*of_step, name)
    for name, _host in calls:
        for child in (name, *before.missing_parents.get(name, ())):
            _find_parent(child, subjects, parents, missing_parents)
    return Layout(
        subjects=subjects,
        steps=steps,
        calls=placed,
        parents=parents,
        step_subjects={**before.step_subjects, **new},
        calls_of=calls_of,
        last_steps=before.last_steps | {agent: of_agent[-1][1] for agent, of_agent in begun.items()},
        missing_parents=missing_parents,
        iteration=iteration,
        last=max(subject.first for subject in added.values()),
    )


def _as_step(known: Subject | None, subject: Subject) -> Subject:
    """Return the position fields of a step, known ones merged with those of `one`: the step itself or one of its calls."""
    fact = Subject(subject.first, subject.agent, "", subject.iteration, "")
    return fact if known is None else known.with_more(fact)


def _host(begun: Sequence[tuple[tuple[int, int], str]], first: tuple[int, int]) -> str:
    at = bisect_right(begun, (first, "\U0010ffff"))
    return begun[at - 1][1] if at else ""


def _find_parent(
    name: str, subjects: Mapping[str, Subject], parents: dict[str, str], missing_parents: dict[str, tuple[str, ...]]
) -> None:
    """Set the parent of a call to the first existing candidate, or note the missing candidates."""
    for candidate in parents_meant(subjects[name]):
        if candidate == name:
            continue
        if candidate in subjects:
            parents[name] = candidate
            return
        waiting = missing_parents.get(candidate, ())
        if name not in waiting:
            missing_parents[candidate] = (*waiting, name)
