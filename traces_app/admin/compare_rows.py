"""The rows of two compared runs, each a step, call or answer of both or of one, and the values of the selected row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any
from uuid import UUID

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from access_app.db import Database
from messages_app.display_text import without_tool_json
from messages_app.interruptions import shown_error
from messages_app.markdown import Prose
from messages_app.models import Message
from messages_app.safe_text import Excerpt, one_line
from traces_app.models import ToolCall
from traces_app.queries.comparison import LONGEST, Change, Node, Pair, fields_of, words_of_nodes
from traces_app.queries.first_difference import FirstDifference, first_difference
from traces_app.queries.runs.outline import RowWords
from traces_app.queries.runs.reading_order import step_numbers
from traces_app.queries.runs.telling import LONGEST as LONGEST_WORDS
from traces_app.queries.runs.telling_texts import plain, telling_line
from traces_app.queries.word_changes import Pieces, WordChanges
from tracesite_sdk.records import pg_text

from .labels import counts_in_words

LEAST_FOLDED, CONTEXT = 4, 2
"""Equal rows that are folded, and those beside a difference that are not."""
ANSWER_CHARACTERS = 2_000
_BARS_WHOLE = 0.95
"""The share of rows whose bars are not cut."""
_MARKUP = re.compile("<(?!/?p>|br)")
_OF_STEPS = "agent_name", "model"
"""Values that are shown only if they differ."""
_PROSE = "thought", "reasoning_content"
"""Values that are Markdown."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A step, call or answer of one of the runs."""

    node: Node
    step: str
    """The displayed number of its step; "" for an answer."""
    agent: str
    """The agent of a step, if it is another one than that of the step before."""
    words: RowWords
    share: int | None
    """Percent of a whole bar, more than 100 for a bar that is cut; None if the duration is unknown."""

    @property
    def number(self) -> str:
        """The number of a step."""
        return "" if self.node.kind == "call" else self.step

    @property
    def who(self) -> str:
        return self.agent if self.step else _("Answer")

    @property
    def tool(self) -> str:
        """The tool of a call."""
        return one_line(self.node.name, 80) or _("(no name)") if self.node.kind == "call" else ""

    @property
    def is_error(self) -> bool:
        return self.node.status == "error"

    @property
    def status(self) -> str:
        """The status of a call in words, unless it succeeded."""
        is_usual = self.node.kind != "call" or self.node.status == ToolCall.Status.SUCCESS
        return "" if is_usual else str(ToolCall.Status(self.node.status).label)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Two steps, calls or answers that correspond to each other; None where a run has none."""

    change: Change
    left: Cell | None
    right: Cell | None

    @property
    def shown(self) -> Cell:
        """The left cell, or else the right one."""
        cell = self.left or self.right
        assert cell is not None
        return cell

    @property
    def cells(self) -> Sequence[tuple[str, Cell | None]]:
        return ("left", self.left), ("right", self.right)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All rows in reading order. The answers are the last one."""

    every: Sequence[Row]
    selected: Row
    first: FirstDifference

    @property
    def first_difference(self) -> Row | None:
        return None if self.first.place is None else self.every[self.first.place]

    @property
    def following(self) -> Row | None:
        """The first row before the first difference whose arguments follow from the question."""
        return self.every[self.first.arguments[0].place] if self.first.arguments else None

    @property
    def passed_over(self) -> str:
        """What else differs before the first difference but explains nothing, in words."""
        results, steps = self.first.results, self.first.steps
        words = (
            (
                results,
                ngettext(
                    "%(number)s same call gave another result", "%(number)s same calls gave another result", results
                ),
            ),
            (
                steps,
                ngettext(
                    "%(number)s step differs only in its thought or model",
                    "%(number)s steps differ only in their thoughts or model",
                    steps,
                ),
            ),
        )
        return counts_in_words(words)

    @property
    def counts(self) -> str:
        """How many rows are the same and how many differ, in words."""
        counted = Counter(row.change for row in self.every)
        same, changed, left, right = (counted[change] for change in ("same", "changed", "left", "right"))
        words = (
            (same, ngettext("%(number)s row the same", "%(number)s rows the same", same)),
            (changed, ngettext("%(number)s differs", "%(number)s differ", changed)),
            (left, ngettext("%(number)s only in A", "%(number)s only in A", left)),
            (right, ngettext("%(number)s only in B", "%(number)s only in B", right)),
        )
        return counts_in_words(words)

    @property
    def parts(self) -> Iterator[tuple[Sequence[Row], bool]]:
        """The rows in parts, and whether a part is folded: rows that are equal, but for those beside a difference."""
        *steps, answers = self.every
        first = True
        for is_same, group in groupby(steps, key=lambda row: row.change == "same"):
            rows = list(group)
            begin = 0 if first else CONTEXT
            end = len(rows) - (0 if rows[-1] is steps[-1] else CONTEXT)
            first = False
            if is_same and end - begin >= LEAST_FOLDED:
                yield from ((rows[:begin], False), (rows[begin:end], True), (rows[end:], False))
            else:
                yield rows, False
        yield [answers], False


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value of one side."""

    label: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """Values that are shown beside each other."""

    values: Sequence[tuple[str, Value | None, Pieces, SafeString]]
    """The side, its value if it has one, the pieces of its text, and what is shown instead of them: its Markdown."""
    is_same: bool


def read_rows(
    db: Database, pairs: Sequence[Pair], runs: Sequence[Message], questions: tuple[str, str], at: UUID | None
) -> Rows:
    """Return the rows of two runs and their answers; the row of the step, call or answer `at` is selected, by default the first
    difference. Three queries."""
    left, right = map(_answer, runs)
    answers = Pair(change="same" if _says(runs[0]) == _says(runs[1]) else "changed", left=left, right=right)
    pairs = [*pairs, answers]
    words = words_of_nodes(db, pairs)
    sides = [[node for pair in pairs if (node := getattr(pair, side))] for side in ("left", "right")]
    numbers = [_numbers(nodes) for nodes in sides]
    agents = [_changes_of_agent(nodes) for nodes in sides]

    known = sorted(node.duration_ms for nodes in sides for node in nodes if node.duration_ms is not None)
    longest = max(known[int((len(known) - 1) * _BARS_WHOLE)] if known else 1, 1)

    def cell(pair: Pair, side: int, node: Node | None) -> Cell | None:
        if node is None:
            return None
        # Equal rows have equal words, which are read once.
        source = pair.left if pair.change == "same" and pair.left else node
        return Cell(
            node=node,
            step=numbers[side][node.step[0]] if node.step else "",
            agent=node.name if node.id in agents[side] else "",
            words=words.get(str(source.id)) or _beginning(node),
            share=None if node.duration_ms is None else 100 * node.duration_ms // longest,
        )

    rows = [Row(change=pair.change, left=cell(pair, 0, pair.left), right=cell(pair, 1, pair.right)) for pair in pairs]
    first = first_difference(pairs, questions)
    at_row = next((row for row in rows for _side, one in row.cells if one and one.node.id == at), None)
    return Rows(every=rows, selected=at_row or rows[-1 if first.place is None else first.place], first=first)


def read_values(db: Database, row: Row, runs: Sequence[Message], words: WordChanges, prose: Prose) -> list[ValueRow]:
    """Return the values of a row: those that both sides have, then the results that only one has, such as an error beside an
    output, and last what the runs answered. One query, or none for the row of the answers."""
    nodes = [cell.node if cell else None for _side, cell in row.cells]
    stored = fields_of(db, [node for node in nodes if node is not None and node.kind != "message"])
    texts = [
        {name: value_text(stored.get(node.id, {}).get(name)) for name in _labels()} if node else {} for node in nodes
    ]
    shared = [name for name in _labels() if all(side.get(name) for side in texts)]
    alone = ([name for name, text in side.items() if text and name not in shared] for side in texts)
    found = []
    for names in [*((name, name) for name in shared), *zip_longest(*alone)]:
        left, right = (
            Value(label=_labels()[name], text=side[name]) if name else None
            for side, name in zip(texts, names, strict=True)
        )
        if names[0] not in _OF_STEPS or left != right:
            found.append(_value_row(left, right, words, prose if names[0] == names[1] and names[0] in _PROSE else None))
    prose_of_answers = None if any(run.error for run in runs) else prose
    told = [Value(label=_label_of_answer(run), text=_answered(run)) for run in runs]
    return [*found, _value_row(told[0], told[1], words, prose_of_answers)]


def _value_row(left: Value | None, right: Value | None, words: WordChanges, prose: Prose | None) -> ValueRow:
    texts = [value.text if value else "" for value in (left, right)]
    pieces = words.of(*texts)
    html = [_rendered(prose, text) for text in texts] if prose else [SafeString()] * 2
    # Words are marked where Markdown would change nothing.
    if not any(map(_MARKUP.search, html)):
        html = [SafeString()] * 2
    values = list(zip(("left", "right"), (left, right), pieces, html, strict=True))
    return ValueRow(values=values, is_same=left == right)


def _rendered(prose: Prose, text: str) -> SafeString:
    shown = prose.shown(Excerpt(head=text))
    return shown.head if shown.is_prose else SafeString()


def _label_of_answer(run: Message) -> str:
    if run.error:
        return _("Error")
    name = one_line(run.session.end_user, 40)
    return _("What %(name)s was told") % {"name": name} if name else _("Answer")


def _answered(run: Message) -> str:
    said = shown_error(run.error) or without_tool_json(run.content).strip()
    return _cut(said, ANSWER_CHARACTERS) or (_("(empty)") if run.is_completed else _("Not finished yet."))


def _labels() -> Mapping[str, str]:
    """Return the labels of the values that are shown, in order."""
    return {
        "thought": _("Thought"),
        "reasoning_content": _("Reasoning"),
        "agent_name": _("Agent"),
        "model": _("Model"),
        "args": _("Arguments"),
        "error": _("Error"),
        "output": _("Output"),
        "data": _("Data"),
    }


def value_text(value: Any) -> str:
    """Return a value as text, an object with a line for each of its fields."""
    if isinstance(value, dict):
        value = "\n".join(
            f"{name}: {one if isinstance(one, str) else pg_text.json(one)}" for name, one in value.items()
        )
    text = value if isinstance(value, str) else "" if value is None else pg_text.json(value)
    return _cut(text, LONGEST - 1)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _says(run: Message) -> tuple[str, str]:
    return run.content, run.error


def _answer(run: Message) -> Node:
    return Node(
        kind="message",
        id=run.pk,
        message_id=run.pk,
        name="",
        text=plain(run.content) or ("" if run.error else _answered(run)),
        result=telling_line(shown_error(run.error)),
        status="error" if run.error else "",
        duration_ms=None,
        asked="",
        answered="",
    )


def _numbers(nodes: Sequence[Node]) -> dict[UUID, str]:
    """Return the displayed numbers of the steps of nodes, which begin anew with each run."""
    numbers: dict[UUID, str] = {}
    for _run, below in groupby(nodes, key=lambda node: node.message_id):
        steps = dict(node.step for node in below if node.step)
        numbers |= step_numbers(list(steps.items()))
    return numbers


def _changes_of_agent(nodes: Sequence[Node]) -> Collection[UUID]:
    """Return the steps whose agent is another one than that of the step before."""
    steps = [node for node in nodes if node.kind == "step"]
    before = ["", *(step.name for step in steps)]
    return {step.id for step, name in zip(steps, before, strict=False) if step.name != name}


def _beginning(node: Node) -> RowWords:
    """Return the words of an answer, or those of a row without others."""
    result = "" if node.kind == "step" else one_line(node.result, LONGEST_WORDS)
    text = one_line(node.text, LONGEST_WORDS)
    return RowWords(text=text, error=result) if node.status == "error" else RowWords(text=text, note=result)
