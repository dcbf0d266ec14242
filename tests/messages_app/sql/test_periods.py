"""Tests of messages_app/sql/periods.py: days, weeks and months that divide each other."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages_app.sql.periods import Length, Period, period_at
from tracesite_sdk.records import ids

instants = st.integers(0, 80_000_000).map(lambda minutes: ids.EPOCH + timedelta(days=365, minutes=minutes))


@given(instants, st.sampled_from(Length))
def test_period_contains_its_time_and_keeps_its_names(instant: datetime, length: Length) -> None:
    period = Period.of(instant, length)
    assert period.first_id <= ids.message_id(instant, "user") < period.after_id
    assert (period.begins_at, period.ends_at) == tuple(map(ids.created_at_of, (period.first_id, period.after_id)))
    assert Period.parse(str(period)) == Period.of_leaf(period.leaf("a_table")) == period
    assert Period.of(instant, Length.MONTH).covers(period)
    month = Period.of(instant, Length.MONTH)
    weeks = list(month.parts())
    assert period_at(weeks, instant) == Period.of(instant, Length.WEEK)
    assert period_at(weeks, month.ends_at) is None
    assert [one.begin for one in weeks[1:]] == [one.end for one in weeks[:-1]]


def test_setting_decides_on_new_periods(settings: Any) -> None:
    instant = datetime(2026, 1, 30, 23, tzinfo=UTC)
    names = []
    for length in Length:
        settings.TRACESITE_PARTITIONS = length
        names.append(str(Period.of(instant)))
    assert names == ["2026-01-30", "2026-01-29-week", "2026-01"]
    # A last week of one day is that day.
    assert str(Period.of(datetime(2028, 2, 29, tzinfo=UTC), Length.WEEK)) == "2028-02-29"


@pytest.mark.parametrize("length", Length)
def test_last_day_that_there_is_has_a_period(length: Length) -> None:
    period = Period.of(datetime.max.replace(tzinfo=UTC), length)
    assert period.begin <= period.end == date.max


@pytest.mark.parametrize("text", ["2026", "2026-13", "2026-02-30", "2026-01-09-week", "2026-01-08-", "x2026-01"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="2026|month|day"):
        Period.parse(text)
