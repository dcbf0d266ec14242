"""Two runs: the first difference that explains why they went different ways, and what it led to."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.urls import reverse
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.errors import NotFound
from access_app.visibility import ProjectScope
from traces_app.queries.comparison import Node, Pair, compare_runs, words_of_nodes
from traces_app.queries.first_difference import FirstDifference, first_difference
from traces_app.queries.questions import last_good_run
from traces_app.queries.runs.listed import ListedRun
from traces_app.queries.runs.outline import RowWords

from .answer import MOST_TOKENS, Answer, Data, Hint, Line, Section, line
from .runs import find_run, listed

PAIRS_READ = 300
"""Pairs after the first difference whose words are read."""
_NO_WORDS = RowWords()


def compare(db: Database, scope: ProjectScope, name: str, other_name: str) -> Answer:
    """Compare a run with another one, or with the last good run of the same question.

    Raise NotFound, Conflict, NotWhileEncrypted, and InvalidInput if finding a good run takes too long.
    """
    run = find_run(db, scope, name)
    if other_name:
        other = find_run(db, scope, other_name)
    else:
        good = last_good_run(db, run)
        if good is None:
            raise NotFound(
                _("There is no good run of the same question. Name the run to compare with."),
                code="no_good_run",
                field="other",
            )
        other = find_run(db, scope, str(good))
    comparison = compare_runs(db, run, other)
    sides = listed(db, run), listed(db, other)
    found = first_difference(comparison.pairs, (sides[0].question, sides[1].question))
    after = (
        [] if found.place is None else [pair for pair in comparison.pairs[found.place + 1 :] if pair.change != "same"]
    )
    first = [] if found.place is None else [comparison.pairs[found.place]]
    words = words_of_nodes(db, [*first, *after[:PAIRS_READ]])
    return Answer(
        title="Comparison",
        head=[
            *_head("this", sides[0]),
            *_head("other", sides[1]),
            Line(
                (
                    "steps and calls that are the same: {same}",
                    "that differ: {changed}",
                    "only in this run: {left}",
                    "only in the other: {right}",
                ),
                {str(change): count for change, count in comparison.counts.items()},
            ),
            line(
                "only the first {cut} steps and calls of each were compared",
                cut=len(comparison.pairs) if comparison.is_cut else None,
            ),
            *_passed_over(found),
        ],
        sections=[
            Section(
                title="First difference" if first else "No difference",
                lines=[one for pair in first for one in _lines(pair, words)],
            ),
            Section(
                title="What followed",
                lines=[one for pair in after[:PAIRS_READ] for one in _lines(pair, words)],
                total=None if len(after) <= PAIRS_READ else 2 * len(after),
                more=Hint("compare", {"run": run.pk, "other": other.pk, "max_tokens": MOST_TOKENS}),
            ),
        ],
        page=_page(run.pk, other.pk),
        found=len(first) + len(after),
    )


def _head(side: str, run: ListedRun) -> list[Line]:
    row = run.run
    names = f"{side}_run", f"{side}_outcome", f"{side}_at", f"{side}_duration_ms", f"{side}_cost"
    values = str(row.pk), run.outcome.value, row.created_at, row.took_ms, row.cost
    said = f"{side}_question", f"{side}_answer", f"{side}_error"
    texts = Data(run.question), Data(run.said), Data(run.error)
    return [
        Line(
            [f"{side}: run {{{names[0]}}}", *(f"{{{name}}}" for name in names[1:])],
            dict(zip(names, values, strict=True)),
        ),
        Line(
            [f"{side}: asked {{{said[0]}}}", f"answered {{{said[1]}}}", f"failed with {{{said[2]}}}"],
            dict(zip(said, texts, strict=True)),
        ),
    ]


def _passed_over(found: FirstDifference) -> list[Line]:
    """Return what differs before the first difference, and explains nothing."""
    arguments = ", ".join(f"{one.name}: {one.left} / {one.right}" for one in found.arguments[:5])
    return [
        line("arguments that follow from the questions: {arguments}", arguments=Data(arguments)),
        line(
            *("before it: equal calls with another result: {other_results}", "steps worded otherwise: {other_steps}"),
            other_results=found.results or None,
            other_steps=found.steps or None,
        ),
    ]


def _lines(pair: Pair, words: Mapping[str, RowWords]) -> list[Line]:
    if pair.left is None or pair.right is None:
        side, node = ("only this", pair.left) if pair.right is None else ("only other", pair.right)
        return [] if node is None else [_line(side, node, words)]
    return [_line("this", pair.left, words), _line("other", pair.right, words)]


def _line(side: str, node: Node, words: Mapping[str, RowWords]) -> Line:
    told = words.get(str(node.id), _NO_WORDS)
    return line(
        *(
            "{side}",
            "step {step}",
            "{kind} {agent}",
            "{tool}",
            "{text}",
            "{status}",
            "{error}",
            "{result}",
            "{duration_ms}",
            "call {call}",
        ),
        side=side,
        step=None if node.step is None else node.step[1],
        kind=None if node.kind == "call" else node.kind,
        agent=None if node.kind == "call" else Data(node.name or "-"),
        tool=Data(node.name) if node.kind == "call" else None,
        text=Data(told.text or node.text),
        status=node.status,
        error=Data(told.error),
        result=Data(told.note or ("" if told.error or node.kind != "call" else node.result)),
        duration_ms=node.duration_ms,
        call=str(node.id) if node.kind == "call" else None,
    )


def _page(run: UUID, other: UUID) -> str:
    return reverse("admin:messages_app_message_compare", args=[run], query={"other": str(other)})
