"""Averages of scores by name, over time, and by the agents and models of the runs that they are about.

The newest scores are read, up to MOST_READ. A score counts for each agent and model of its run; one of a session for those of its newest run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models.functions import Coalesce

from access_app.readable import ReadableRows
from messages_app.sql.batch import LIST_MS, Query, fetch
from messages_app.sql.pagination import IdRange, ListRows
from traces_app.models import Score
from tracesite_sdk.records import ids

from .change_point import Point, change_point
from .runs.actors import Actors, actors_of
from .tool_statistics import steps_between

MOST_READ = 2_000
LEAST_AFTER = 2
"""Scores in as many steps that tell of a change, because people give few. Of noise 5 % at most look like one, as with more."""


@dataclass(kw_only=True)
class Average:
    scores: int = 0
    numbers: int = 0
    """Scores with a number; categories have none."""
    total: float = 0.0

    @property
    def value(self) -> float | None:
        return self.total / self.numbers if self.numbers else None

    def add(self, number: float | None) -> None:
        self.scores += 1
        if number is not None:
            self.numbers += 1
            self.total += number

    @classmethod
    def of(cls, parts: Iterable[Average]) -> Average:
        whole = cls()
        for part in parts:
            whole.scores += part.scores
            whole.numbers += part.numbers
            whole.total += part.total
        return whole


class Changed(NamedTuple):
    """Since when the average of a name is another."""

    at: datetime
    """The beginning of the first step after the change."""
    before: Average
    after: Average


@dataclass(kw_only=True)
class NamedScores:
    """The scores of one name."""

    name: str
    is_share: bool = True
    """Whether all are yes or no, so that the average is the share of yes."""
    whole: Average = field(default_factory=Average)
    steps: dict[datetime, Average]
    """By the beginning of the step, oldest first, also those without scores."""
    agents: dict[str, Average] = field(default_factory=lambda: defaultdict(Average))
    models: dict[str, Average] = field(default_factory=lambda: defaultdict(Average))

    def changed(self) -> Changed | None:
        """Return the change of the average over time; None if there is none, or too little to tell."""
        points = [
            Point(at=begin, value=value, calls=average.numbers)
            for begin, average in self.steps.items()
            if (value := average.value) is not None
        ]
        change = change_point(points, least_after=LEAST_AFTER)
        if change is None:
            return None
        before = Average.of(average for begin, average in self.steps.items() if begin < change.at)
        after = Average.of(average for begin, average in self.steps.items() if begin >= change.at)
        return Changed(change.at, before, after)


@dataclass(frozen=True, kw_only=True)
class ScoreSums:
    names: list[NamedScores]
    """Those with most scores first."""
    read: int
    is_cut: bool
    step: timedelta
    """The length of the steps."""


def score_sums(rows: ReadableRows[ListRows]) -> ScoreSums:
    """Add up scores. Three queries of each database. Raise InvalidInput if one takes longer than LIST_MS."""
    keys = rows.keys(newest_first=True, limit=MOST_READ + 1)
    is_cut, keys = len(keys) > MOST_READ, keys[:MOST_READ]
    if not keys:
        return ScoreSums(names=[], read=0, is_cut=False, step=timedelta(0))
    step, beginnings = steps_between(ids.created_at_of(keys[-1]), ids.created_at_of(keys[0]))
    found: dict[str, NamedScores] = {}
    for scores, runs in rows.within(IdRange(lower=keys[-1])).each(_read):
        for key, name, kind, number, run in scores:
            if (named := found.get(name)) is None:
                named = found[name] = NamedScores(name=name, steps={begin: Average() for begin in beginnings})
            named.is_share &= kind == Score.Kind.BOOLEAN
            begin = beginnings[max(bisect_right(beginnings, ids.created_at_of(key)) - 1, 0)]
            agents, models = runs.get(run, ((), ()))
            of_agents, of_models = [named.agents[one] for one in agents], [named.models[one] for one in models]
            for average in (named.whole, named.steps[begin], *of_agents, *of_models):
                average.add(number)
    names = sorted(found.values(), key=lambda named: (-named.whole.scores, named.name))
    return ScoreSums(names=names, read=len(keys), is_cut=is_cut, step=step)


def _read(rows: ListRows) -> tuple[list[Any], Mapping[UUID, Actors]]:
    columns = ("pk", "name", "kind", "number", Coalesce("message_id", "session__last_run_id"))
    (read,) = fetch(rows.db, [Query.of(rows.queryset.values_list(*columns))], at_most_ms=LIST_MS)
    return read, actors_of(rows.db, {row[-1] for row in read if row[-1] is not None})
