"""Vectors of runs: equal ones have a similarity of 1, those with nothing in common 0, in any language."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces_app.queries.run_vectors import WEIGHTS, Features, likeness, vectors

WEATHER = "What is the weather in Shanghai?"


def run(question: str = "", tools: Sequence[int] = (), errors: Sequence[str] = ()) -> Features:
    return Features(question=question, tools=tools, errors=errors)


def score(one: Features, other: Features) -> float:
    return float(likeness(vectors([one]), vectors([other])).score[0])


@pytest.mark.parametrize(
    ("one", "more", "less"),
    [
        (run(WEATHER), run("What is the weather in Oslo?"), run("Refund order 7, please.")),
        (run("上海今天天气怎么样？"), run("北京今天天气怎么样？"), run("请退款订单")),
        (run(WEATHER, [1, 2]), run(WEATHER, [1, 2, 2]), run(WEATHER, [2, 1])),
        (run(WEATHER, [1], ["timeout after # s"]), run(WEATHER, [1], ["timeout of # s"]), run(WEATHER, [1])),
        (run("", [1]), run("", [1], ["x"]), run("", [9])),
    ],
)  # fmt: skip
def test_runs_with_more_in_common_are_more_similar(one: Features, more: Features, less: Features) -> None:
    assert 1 > score(one, more) > score(one, less) >= 0


@pytest.mark.parametrize("other", [run(), run("refund", [7], ["no disk"])])
def test_runs_with_nothing_in_common_are_not_similar(other: Features) -> None:
    assert score(run("Wetter?", [1], ["timeout"]), other) == 0
    assert score(run(), other) == 0


def test_case_and_spaces_of_a_question_do_not_count() -> None:
    assert score(run("Straße  7"), run("\nSTRASSE 7 ")) == 1


def test_part_is_worth_its_weight() -> None:
    one, other = run(WEATHER, [1], ["timeout"]), run(WEATHER, [2], ["refused"])
    found = likeness(vectors([one]), vectors([other, one]))
    assert found.score.tolist() == [WEIGHTS["question"], 1]
    assert {name: values.tolist() for name, values in found.parts.items()} == {
        "question": [1, 1], "tools": [0, 1], "errors": [0, 1],
    }  # fmt: skip


FEATURES = st.builds(
    Features,
    question=st.text(st.characters(exclude_characters="\0")),
    tools=st.lists(st.integers(1, 2**63 - 1)),
    errors=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))),
)


@given(FEATURES, FEATURES)
def test_similarity_is_symmetric_and_from_0_to_1(one: Features, other: Features) -> None:
    assert 0 <= score(one, other) <= 1
    assert score(one, other) == score(other, one)
    assert score(one, one) in (0, 1)
