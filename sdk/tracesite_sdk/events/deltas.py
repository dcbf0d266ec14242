"""Match the deltas of a model's text to the steps that they are the text of. Pure functions.

Monitors send the text of a request piece by piece (`llm` messages with a `token`), and name no step. An agent makes one
request at a time, so its deltas belong to the next end of one of its requests that names no step either, in the order of the
events.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .projection import EventFact, is_delta, is_step, step_named
from .step_order import Layout

_Place = tuple[int, int]


class Span(NamedTuple):
    """The places between which the deltas of a step are: those of the agent's steps before it, and of itself."""

    agent: str
    after: _Place
    before: _Place

    def holds(self, fact: EventFact) -> bool:
        return is_delta(fact.subject) and fact.agent == self.agent and self.after < fact.place()[:2] < self.before


def spans_changed(layout: Layout, new: Iterable[EventFact]) -> dict[str, Span]:
    """Return the steps whose deltas the new events change, which are in the layout already."""
    places: dict[str, list[_Place]] = {}
    for fact in new:
        if is_delta(fact.subject) or names_no_step(fact):
            places.setdefault(fact.agent, []).append(fact.place()[:2])
    changed: dict[str, Span] = {}
    for agent, of_agent in places.items():
        steps = _steps_of(layout, agent)
        for place in of_agent:
            # The end at this place, if there is one, and the next.
            for at in range(bisect_left(steps, (place, "")), bisect_right(steps, (place, "\U0010ffff")) + 1):
                if at < len(steps):
                    changed[steps[at][1]] = _span(agent, steps, at)
    return changed


def span_of(layout: Layout, step: str) -> Span:
    """Return the span of a step."""
    agent = layout.subjects[step].agent
    steps = _steps_of(layout, agent)
    return _span(agent, steps, steps.index((layout.subjects[step].first, step)))


def names_no_step(fact: EventFact) -> bool:
    """Return whether an event is the end of a request that names no step."""
    return is_step(fact.subject) and not step_named(fact.agent, fact.data)


def _steps_of(layout: Layout, agent: str) -> list[tuple[_Place, str]]:
    return sorted(
        (subject.first, name) for name, subject in layout.subjects.items() if is_step(name) and subject.agent == agent
    )


def _span(agent: str, steps: Sequence[tuple[_Place, str]], at: int) -> Span:
    return Span(agent, steps[at - 1][0] if at else (-(2**63), 0), steps[at][0])
