"""Charts have round axes, cut off what would flatten the rest, and label round times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from traces_app.admin.charts import (
    BOTTOM,
    LEFT,
    TOP,
    Amount,
    Chart,
    Slot,
    chart_of,
    duration_label,
    name_of,
    number_label,
    round_cost,
    round_duration,
    round_number,
)

BEGIN = datetime(2026, 3, 1, 16, tzinfo=UTC)
HOUR = timedelta(hours=1)


def drawn(values: Sequence[float], step: timedelta = HOUR, since: datetime | None = None) -> Chart:
    slots = [
        Slot(begin=BEGIN + n * step, words=str(value), url="/", amounts=[Amount(value=value, kind="bottom")])
        for n, value in enumerate(values)
    ]
    return chart_of(slots, label=number_label, scale=round_number, since=since, is_open=True)


@pytest.mark.parametrize(
    ("most", "top"), [(0, 2), (1, 2), (3, 4), (5, 6), (9, 10), (11, 12), (17, 20), (41, 60), (1e6, 1e6)]
)
def test_top_of_an_axis_of_numbers_is_round(most: float, top: float) -> None:
    assert round_number(most) == pytest.approx(top)


def test_top_of_costs_and_durations_is_round_in_their_units() -> None:
    assert [round_cost(most) for most in (0, 0.031, 14.27)] == pytest.approx([1, 0.04, 16])
    assert [duration_label(round_duration(most)) for most in (0, 700, 1500, 70_000, 5_000_000)] == [
        "2 ms",
        "800 ms",
        "2 s",
        "2 min",
        "2 h",
    ]
    assert duration_label(0) == "0"
    assert [number_label(number) for number in (40, 4000, 16_000, 2_400_000)] == ["40", "4,000", "16 k", "2.4 M"]


def test_bars_stand_on_the_axis_to_its_scale() -> None:
    chart = drawn([0, 1, 2, 4])
    assert [mark.label for mark in chart.levels] == ["0", "2", "4"]
    assert [part.height for bar in chart.bars for part in bar.parts] == [23, 46, 92]
    assert {part.y + part.height for bar in chart.bars for part in bar.parts} == {BOTTOM}
    assert chart.bars[0].x == LEFT


def test_one_large_value_is_cut_and_named() -> None:
    chart = drawn([1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 90, 1])
    assert [mark.label for mark in chart.levels] == ["0", "2", "4"]
    assert [bar.cut for bar in chart.bars if bar.cut] == ["90"]
    assert chart.bars[10].parts[0].y == TOP
    assert chart.bars[1].parts[0].height == 46
    # Its amount stands before it where the labels of the axis leave room.
    assert chart.bars[10].is_cut_said_before
    assert not drawn([2, 9000, *[1] * 12]).bars[1].is_cut_said_before


def test_times_are_labelled_where_they_are_round_in_the_zone_of_the_reader() -> None:
    assert [mark.label for mark in drawn([1] * 24).times] == ["18:00", "00:00", "06:00"]
    with timezone.override("Asia/Shanghai"):
        assert [mark.label for mark in drawn([1] * 24).times] == ["00:00", "06:00", "12:00", "18:00"]
        assert name_of(BEGIN, HOUR) == "2026-03-02 00:00"
    assert [mark.label for mark in drawn([1] * 28, 6 * HOUR).times][:3] == ["03-02", "03-04", "03-06"]
    assert [mark.label for mark in drawn([1] * 60, timedelta(minutes=1)).times][:3] == ["16:00", "16:15", "16:30"]


@pytest.mark.parametrize("step", [timedelta(minutes=1), HOUR, 6 * HOUR, 24 * HOUR])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_labels_of_times_leave_room_for_each_other(step: timedelta, zone: str) -> None:
    with timezone.override(zone):
        for count in range(2, 63):
            marks = drawn([1] * count, step).times
            ends = [mark.at + 7 * len(mark.label) for mark in marks]
            # At the right end is the word "now".
            assert all(end <= at for end, at in zip(ends, [*(mark.at for mark in marks[1:]), 288], strict=True)), count
            assert marks, count


def test_mark_since_stands_at_its_slot() -> None:
    chart = drawn([1] * 24, since=BEGIN + 6 * HOUR)
    assert chart.since is not None
    assert (chart.since.at, chart.since.label) == (chart.bars[6].x, "22:00")
    within = drawn([1] * 24, since=BEGIN + 6.5 * HOUR).since
    assert within is not None
    assert (within.at, within.label) == (pytest.approx(chart.bars[6].x + chart.width / 2, abs=0.01), "22:30")
    assert drawn([1] * 24, since=BEGIN - HOUR).since is None
    assert drawn([1] * 24, since=BEGIN + 24 * HOUR).since is None
