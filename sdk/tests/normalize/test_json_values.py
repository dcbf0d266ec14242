"""Conversion of JSON values of any type."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk.normalize import json_values

NOON = datetime(2025, 3, 4, 12, 0, 0, 250000, tzinfo=UTC)


@pytest.mark.parametrize(
    "said",
    ["2025-03-04T12:00:00.25Z", "2025-03-04T14:00:00.250+02:00", "2025-03-04 12:00:00.250", " 2025-03-04T12:00:00.250000Z ",
     1741089600.25, 1741089600250, 1741089600250000],
)  # fmt: skip
def test_time_is_read_in_every_form_that_transcripts_have(said: object) -> None:
    assert json_values.instant(said) == NOON


@pytest.mark.parametrize(
    "said", [None, "", "noon", True, 0, -1, 1e30, float("nan"), float("inf"), [], {}, "0001-01-01T00:00:00+14:00"]
)
def test_values_that_are_not_times_give_none(said: object) -> None:
    assert json_values.instant(said) is None


def test_time_without_zone_is_read_as_utc() -> None:
    said = ["2025-03-04T12:00:00.25", "2025-03-04T12:00:00Z", 1741089600, "noon"]
    assert [json_values.time_flags(value) for value in said] == [["naive_time"], [], [], []]


def test_text_is_text_and_anything_else_its_json() -> None:
    assert [json_values.text(value) for value in ("a", "", None, 3, {"ü": 1})] == ["a", None, None, "3", '{"ü":1}']
    assert [json_values.content(value) for value in ("", None, ["a"], {"a": 1})] == ["", None, ["a"], '{"a":1}']


def test_items_and_fields_of_other_values_are_empty() -> None:
    assert (json_values.items([1]), json_values.items({"a": 1}), json_values.items(None)) == ([1], [], [])
    assert (json_values.fields({"a": 1}), json_values.fields([1]), json_values.fields(None)) == ({"a": 1}, {}, {})


def test_durations_are_milliseconds() -> None:
    assert [json_values.milliseconds(value) for value in (0.25, 0, -1, "1", True, 1e12)] == [
        250.0,
        0,
        None,
        None,
        None,
        None,
    ]
    assert json_values.between(NOON, NOON.replace(second=1)) == 1000.0
    assert json_values.between(NOON, NOON.replace(hour=11)) is None
    assert json_values.between(None, NOON) is None


def test_rest_is_untaken_fields_that_are_not_empty() -> None:
    assert json_values.rest({"a": 1, "b": None, "c": [], "d": 0, "e": False, "f": ""}, ("a",)) == {"d": 0, "e": False}


_any: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


def test_names_are_read_in_camel_case_and_snake_case() -> None:
    value = {"appName": "a", "user_id": 1, "URL": 2, "evalSet1Id": 3, "nothing": None}
    assert json_values.snake_cased(value) == {"app_name": "a", "user_id": 1, "url": 2, "eval_set1_id": 3}
    assert json_values.snake_cased(["appName"]) == {}


@given(_any)
def test_any_value_raises_nothing(value: object) -> None:
    for read in (
        json_values.instant,
        json_values.text,
        json_values.content,
        json_values.items,
        json_values.fields,
        json_values.milliseconds,
    ):
        read(value)


def test_time_without_a_zone_is_flagged() -> None:
    assert json_values.time_flags("2026-03-01T12:00:00") == ["naive_time"]
    assert json_values.time_flags("2026-03-01T12:00:00Z", None, 3, "soon") == []
