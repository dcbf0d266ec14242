"""Ids: they carry their time exactly, sort in reading order, and the ids of rows below a message are derived."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.records.instants import instants
from tracesite_sdk.records import ids

roles = st.sampled_from(["user", "system", "assistant"])
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@given(instants, roles)
def test_id_carries_its_time_to_the_microsecond(instant: datetime, role: str) -> None:
    assert ids.created_at_of(ids.message_id(instant, role)) == instant
    assert ids.created_at_of(ids.session_id(instant)) == instant


def test_all_microseconds_of_a_millisecond_are_reversible() -> None:
    times = [NOON + timedelta(microseconds=microsecond) for microsecond in range(2000)]
    made = [ids.first_id_at(time) for time in times]
    assert [ids.created_at_of(value) for value in made] == times
    assert made == sorted(set(made))


@given(instants, roles)
def test_ids_are_version_7_uuids(instant: datetime, role: str) -> None:
    value = ids.message_id(instant, role)
    assert (value.version, value.variant) == (7, "specified in RFC 4122")
    assert ids.child_id(value, "step", 0).version == 7


@given(st.lists(st.tuples(instants, roles), min_size=2))
def test_ids_sort_by_time_then_role_then_place(said: list[tuple[datetime, str]]) -> None:
    by_id = sorted(range(len(said)), key=lambda place: ids.message_id(*said[place], place))
    by_rule = sorted(range(len(said)), key=lambda place: (said[place][0], said[place][1] == "assistant", place))
    assert by_id == by_rule


@given(instants, st.integers(0, 100_000))
def test_same_identity_gives_same_id(instant: datetime, place: int) -> None:
    first, second = (ids.message_id(instant, "user", place, ("session", "m1")) for _ in range(2))
    assert first == second
    assert ids.message_id(instant, "user", place, ("session", "m2")) != first
    assert ids.message_id(instant, "user", place) != ids.message_id(instant, "user", place)


def test_parts_of_a_key_do_not_run_together() -> None:
    assert ids.key("ab", "c") != ids.key("a", "bc")


@given(instants, roles)
def test_child_ids_have_the_time_of_their_message(instant: datetime, role: str) -> None:
    message = ids.message_id(instant, role)
    child = ids.child_id(message, "call", "c1", 0)
    assert child == ids.child_id(message, "call", "c1", 0)
    assert child != ids.child_id(message, "call", "c1", 1)
    assert child.hex == ids.child_hex(message.int, "call", "c1", 0) == ids.Children(message).hex("'call', 'c1', 0")
    assert ids.created_at_of(child) == instant
    assert ids.first_id_at(instant) <= child < ids.first_id_at(instant + timedelta(microseconds=1))


@given(instants, instants)
def test_first_id_at_separates_earlier_from_later_ids(instant: datetime, other: datetime) -> None:
    assert (ids.message_id(other, "assistant") >= ids.first_id_at(instant)) == (other >= instant)


def test_first_id_at_of_time_before_1970_is_not_above_any_id() -> None:
    assert ids.first_id_at(ids.EPOCH - timedelta(hours=2)) <= ids.message_id(ids.EPOCH, "user")


@given(instants, roles)
def test_is_ours_requires_matching_time_and_role(instant: datetime, role: str) -> None:
    value = ids.message_id(instant, role)
    assert ids.is_ours(value, instant, role)
    assert not ids.is_ours(value, instant + timedelta(microseconds=1), role)
    assert not ids.is_ours(value, instant, "user" if role == "assistant" else "assistant")
