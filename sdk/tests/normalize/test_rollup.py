"""The totals of a message: which answers count as those without a cost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tracesite_sdk.normalize.rollup import rollup

USAGE = {"input_tokens": 7}


def step(
    *, model: str = "", usage: dict[str, Any] | None = None, error: str | None = None, cost: Decimal | None = None
) -> tuple[Any, ...]:
    return (0, None, usage, error, model, cost)


PRICED = step(model="m", usage=USAGE, cost=Decimal(1))


@pytest.mark.parametrize(
    ("of_message", "steps", "unpriced"),
    [
        (None, [PRICED], 0),
        (USAGE, [PRICED], 0),
        (None, [PRICED, step(model="m")], 1),
        (None, [PRICED, step(usage=USAGE), step(model="m", usage={"unit": "x"})], 2),
        (None, [PRICED, step()], 0),
        # A request that failed costs nothing, unless it has tokens.
        (None, [PRICED, step(model="m", error="429")], 0),
        (None, [PRICED, step(model="m", usage=USAGE, error="cut off")], 1),
        # The answer came from a request, too, if none is known.
        (None, [], 1),
        (None, [step()], 1),
        (USAGE, [], 1),
        (USAGE, [step()], 1),
        (USAGE, [step(model="m")], 1),
        (None, [step(model="m", error="429")], 0),
    ],
)
def test_answers_without_a_cost_are_counted(of_message: Any, steps: list[Any], unpriced: int) -> None:
    assert rollup(of_message, steps, [], is_answer=True).unpriced_count == unpriced


@pytest.mark.parametrize("of_message", [None, USAGE])
def test_message_that_is_no_answer_has_no_cost(of_message: Any) -> None:
    assert rollup(of_message, [], [], is_answer=False).unpriced_count == 0
