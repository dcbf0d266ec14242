"""Parsing and formatting of times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages_app.timestamps import instant_text, parse_instant, parse_limit
from tracesite_sdk.records import ids


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T09:30:00Z", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31t09:30:00z", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        (" 2026-01-31 09:30:00Z ", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31T09:30:00.1Z", datetime(2026, 1, 31, 9, 30, 0, 100_000, tzinfo=UTC)),
        ("2026-01-31T17:30:00.123456+08:00", datetime(2026, 1, 31, 9, 30, 0, 123_456, tzinfo=UTC)),
        ("2026-01-31T17:30:00 08:00", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31T04:00:00-05:30", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("1890-01-01T00:00:00Z", ids.EPOCH),
        ("0001-01-01T00:00:00+08:00", ids.EPOCH),
        ("9999-12-31T23:59:59.9999999Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("9999-12-31T23:59:59-08:00", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_rfc_3339_in_all_its_forms_is_understood(text: str, expected: datetime) -> None:
    assert expected == parse_instant(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T09:30:00.123456000Z", 123_456),
        ("2026-01-31T09:30:00.123456001Z", 123_457),
        ("2026-01-31T09:30:00.123456789Z", 123_457),
        ("2026-01-31T09:30:00.123456999Z", 123_457),
    ],
)
def test_nanoseconds_round_up_to_the_next_microsecond(text: str, expected: int) -> None:
    assert datetime(2026, 1, 31, 9, 30, 0, expected, tzinfo=UTC) == parse_instant(text)


def test_nanoseconds_round_up_into_the_next_year() -> None:
    assert datetime(2027, 1, 1, tzinfo=UTC) == parse_instant("2026-12-31T23:59:59.999999999Z")


@pytest.mark.parametrize("text", ["2026-01-31T09:30:00", "2026-01-31 09:30:00.123"])
def test_time_without_zone_is_refused_with_advice(text: str) -> None:
    with pytest.raises(ValueError, match=r"no time zone. End it with Z for UTC, or with an offset such as \+08:00"):
        parse_instant(text)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-01-31", "1769852400", "2026-01-31T09:30Z", "2026-01-31T09:30:00.1234567890Z"]
)
def test_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="Expected a time such as 2026-01-31T09:30:00Z"):
        parse_instant(text)


@pytest.mark.parametrize("text", ["2026-02-30T00:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T00:00:00+24:00"])
def test_time_outside_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="This date or time does not exist"):
        parse_instant(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        (" 2026-01-31 ", datetime(2026, 1, 31, tzinfo=UTC)),
        ("0001-01-01", ids.EPOCH),
        ("9999-12-31", datetime(9999, 12, 31, tzinfo=UTC)),
        ("2026-01-31T09:30:00+01:00", datetime(2026, 1, 31, 8, 30, tzinfo=UTC)),
    ],
)
def test_limit_is_a_time_or_the_start_of_a_day(text: str, expected: datetime) -> None:
    assert parse_limit(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [("2026-02-30", "does not exist"), ("2026-01-31T09:30:00", "no time zone"), ("2026-01", "Expected a time such as")],
)
def test_limit_of_another_form_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_limit(text)


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31, 23), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis adds the zone
def test_formatted_time_is_parsed_back(instant: datetime) -> None:
    assert instant == parse_instant(instant_text(instant))


def test_formatted_time_has_six_digits_and_z() -> None:
    assert instant_text(datetime(2026, 1, 31, 9, 30, tzinfo=UTC)) == "2026-01-31T09:30:00.000000Z"


@given(
    st.one_of(
        st.text(),
        st.from_regex(
            r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,12})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
        ),
    )
)
def test_any_text_is_a_time_that_can_be_stored_or_is_refused(text: str) -> None:
    try:
        instant = parse_instant(text)
    except ValueError as error:
        assert str(error).endswith(("+08:00.", "not exist."))
    else:
        assert ids.EPOCH <= instant <= datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
        assert ids.created_at_of(ids.first_id_at(instant)) == instant
