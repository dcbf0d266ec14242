"""What tells the runs of a list apart, in a line of each: end users, agents, models, tags and scores, but for what all have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from messages_app.safe_text import one_line
from traces_app.queries.runs.actors import About

_CHARACTERS = 40
_NAMES = 2
"""Of several agents, models, tags or scores of a run those that are named; the panel of the run has all."""


def words_about(about: About) -> list[str]:
    """Return all that there is of a run."""
    return [word for words in _KINDS for word in words(about)]


def differing_words(runs: Mapping[UUID, About]) -> dict[UUID, str]:
    """Return the line of each run. A kind of which all of several runs say the same is left out."""
    parts: dict[UUID, list[str]] = {key: [] for key in runs}
    for words in _KINDS:
        said = {key: words(about) for key, about in runs.items()}
        if len(runs) == 1 or len({tuple(some) for some in said.values()}) > 1:
            for key, some in said.items():
                parts[key] += [_first(some)] if some else []
    return {key: " · ".join(some) for key, some in parts.items()}


def _first(words: Sequence[str]) -> str:
    shown = ", ".join(words[:_NAMES])
    return f"{shown} +{len(words) - _NAMES}" if len(words) > _NAMES else shown


def _names(names: Iterable[str], form: str = "{}") -> list[str]:
    return [form.format(one_line(name, _CHARACTERS)) for name in names]


def _scores(about: About) -> list[str]:
    return [
        f"{one_line(score.name, _CHARACTERS)}: {one_line(score.shown_value, _CHARACTERS)}" for score in about.scores
    ]


_KINDS: tuple[Callable[[About], list[str]], ...] = (
    lambda about: _names(filter(None, [about.end_user])),
    _scores,
    lambda about: _names(about.agents),
    lambda about: _names(about.models),
    lambda about: _names(about.tags, "#{}"),
)
