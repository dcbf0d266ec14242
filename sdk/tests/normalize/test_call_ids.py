"""Repair of repeated ids and names of calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk.normalize.call_ids import folded, folded_name, handoff_target


@pytest.mark.parametrize("times", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "id_", ["call_xxx", "call_1", "toolu_01A09q90qw90lq917835lq9", "fc_1", "functions.search:0", "a1b2c3"]
)
def test_repeated_id_is_folded(id_: str, times: int) -> None:
    assert folded(id_ * times) == id_


@pytest.mark.parametrize(
    "id_",
    ["", "1", "11", "1111", "aaaa", "abab", "tartar", "call_", "call_call_", "123123", "123456123456", "------------"]
    + ["call_abcabc", "call_1call_2", "xcall_1call_1", "call_1call_1x", "call_xxx call_xxx", "会议会议"],
)
def test_other_ids_are_unchanged(id_: str) -> None:
    assert folded(id_) == id_


def test_repeated_name_is_folded() -> None:
    assert folded_name("execute_sql_queryexecute_sql_query") == "execute_sql_query"
    assert folded_name("searchsearchsearch") == "search"
    assert folded_name("查询订单列表查询订单列表") == "查询订单列表"


def test_short_name_is_folded_only_with_other_evidence() -> None:
    assert folded_name("bashbash") == "bashbash"
    assert folded_name("bashbash", known={"bash"}) == "bash"
    assert folded_name("bashbash", times=2) == "bash"
    assert folded_name("bashbashbash", times=2) == "bashbashbash"
    assert folded_name("", times=2) == ""


@given(st.text(alphabet="abc_1", max_size=40))
def test_folding_is_idempotent_and_changes_only_repetitions(id_: str) -> None:
    for unit in (folded(id_), folded_name(id_)):
        assert unit == id_ or (unit and unit * (len(id_) // len(unit)) == id_ and len(unit) >= 6)
    assert folded(folded(id_)) == folded(id_)


@given(st.text(min_size=1, max_size=20), st.integers(2, 6))
def test_unit_is_folded_from_any_number_of_repetitions(unit: str, times: int) -> None:
    assert folded(unit * times) in (unit * times, folded(unit * 2), folded(unit))


def test_handoff_names_its_target() -> None:
    assert [handoff_target(name) for name in ("transfer_to_billing", "transfer_to_", "transfer_money", "")] == [
        "billing",
        "",
        None,
        None,
    ]
