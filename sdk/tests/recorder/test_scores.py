"""Test the scores that an agent's code gives: what is sent of them."""

from __future__ import annotations

from typing import Any

import pytest

from tracesite_sdk import Privacy, Sampling
from tracesite_sdk.testing import recording


def test_scored_message_is_kept_by_sampling() -> None:
    with recording(sampling=Sampling(rate=0)) as recorder:
        with recorder.session("chat"), recorder.message("First?"):
            pass
        with recorder.session("chat"), recorder.message("Second?") as second:
            second.score("helpful", True)
    assert {event["data"].get("prompt") for event in recorder.events} == {"Second?", None}
    assert [event["data"]["value"] for event in recorder.events if event["type"] == "score"] == [True]


def test_lean_recorder_sends_the_score_whole() -> None:
    with recording(privacy=Privacy(lean=True)) as recorder, recorder.message("First?") as message:
        message.score("tone", "rude", comment="He shouted.")
    (score,) = (event["data"] for event in recorder.events if event["type"] == "score")
    assert score == {"name": "tone", "source": "program", "value": "rude", "comment": "He shouted."}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": ""}, "name"),
        ({"name": "n"}, "a value or a comment"),
        ({"name": "n", "value": ""}, "category may not be empty"),
        ({"name": "n", "value": float("nan")}, "value"),
        ({"name": "n", "value": object(), "source": "nobody"}, "source"),
    ],
    ids=["name", "nothing", "empty", "nan", "source"],
)
def test_invalid_score_raises_only_where_strict(fields: dict[str, Any], reason: str) -> None:
    with recording() as recorder, recorder.message("First?") as message, pytest.raises(ValueError, match=reason):
        message.score(**fields)
    with recording(strict=False) as recorder, recorder.message("First?") as message:
        message.score(**fields)
    assert not [event for event in recorder.events if event["type"] == "score"]


def test_long_comment_is_cut_and_says_so() -> None:
    with recording() as recorder, recorder.message("First?") as message:
        message.score("n", 1, comment="x" * 30_000)
    (score,) = (event["data"] for event in recorder.events if event["type"] == "score")
    assert len(score["comment"]) == 20_000
    assert score["comment"].endswith("… [cut, of 30000 characters]")
