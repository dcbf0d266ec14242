"""The first difference of two runs that does not follow from their questions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from traces_app.queries.comparison import Node, Pair
from traces_app.queries.first_difference import first_difference
from tracesite_sdk.records import pg_text

QUESTIONS = "Refund order 5471, please.", "Where is order 2014?"


def node(kind: Any, args: dict[str, Any] | str, *, result: str = "", status: str = "success") -> Node:
    text = args if isinstance(args, str) else pg_text.json(args)
    key = UUID(int=0)
    return Node(
        kind=kind,
        id=key,
        message_id=key,
        name="",
        text=text,
        result=result,
        status=status,
        duration_ms=None,
        asked=text,
        answered=result,
    )


def pair(left: Node, right: Node, *, is_same: bool = False) -> Pair:
    return Pair(
        change="same" if is_same else "changed",
        left=left,
        right=right,
        is_asked_alike=left.asked == right.asked,
    )


SAME = pair(node("call", {}), node("call", {}), is_same=True)
FOUND = pair(
    node("call", {"order": 5471}, result='{"price": 129}'), node("call", {"order": 2014}, result='{"price": 59}')
)
RESULT = pair(node("call", {}, result="a"), node("call", {}, result="b"))
ANSWERS = pair(node("message", "Refunded."), node("message", "It is here."))


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([SAME], (None, 0, 0, 0)),
        # An error against a success, although the question explains the argument.
        ([pair(node("call", {"order": 5471}, status="error"), node("call", {"order": 2014}))], (0, 0, 0, 0)),
        # A price that the order that was asked for has.
        ([SAME, FOUND, pair(node("call", {"sum": 129}), node("call", {"sum": 59})), ANSWERS], (3, 2, 0, 0)),
        ([pair(node("call", {"sum": 129}), node("call", {"sum": 59})), ANSWERS], (0, 0, 0, 0)),
        # One argument is explained, the other one is not.
        ([pair(node("call", {"order": 5471, "n": 1}), node("call", {"order": 2014, "n": 2}))], (0, 0, 0, 0)),
        # The same call with another result, or with arguments that differ beyond what is read.
        ([FOUND, RESULT], (1, 1, 0, 0)),
        ([RESULT, Pair(change="left", left=FOUND.left)], (0, 0, 0, 0)),
        ([RESULT, FOUND, ANSWERS], (0, 0, 0, 0)),
        # It did not lead to the failure of what comes next.
        ([RESULT, pair(node("call", {}, status="error"), node("call", {}))], (1, 0, 1, 0)),
        ([Pair(change="changed", left=FOUND.left, right=FOUND.left, is_asked_alike=False)], (0, 0, 0, 0)),
        # Another order of calls, or another call.
        ([FOUND, Pair(change="left", left=FOUND.left)], (1, 1, 0, 0)),
        # A thought, and JSON that was cut.
        ([pair(node("step", "I look."), node("step", "Let me look.")), FOUND, ANSWERS], (2, 1, 0, 1)),
        ([pair(node("call", '{"q": "order 5471'), node("call", '{"q": "order 2014')), ANSWERS], (1, 1, 0, 0)),
        # Nothing else differs.
        ([SAME, FOUND], (1, 1, 0, 0)),
    ],
)
def test_first_difference_passes_over_what_follows(
    pairs: list[Pair], expected: tuple[int | None, int, int, int]
) -> None:
    found = first_difference(pairs, QUESTIONS)
    assert (found.place, len(found.arguments), found.results, found.steps) == expected


def test_first_difference_of_the_same_question_passes_over_nothing() -> None:
    assert first_difference([FOUND, ANSWERS], (QUESTIONS[0], QUESTIONS[0])).place == 0
