"""A change point is found where a series steps, and nowhere else."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from traces_app.queries.change_point import Point, change_point

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def series(values: Sequence[float], calls: int = 10) -> list[Point]:
    return [Point(at=BEGIN + n * timedelta(hours=1), value=value, calls=calls) for n, value in enumerate(values)]


def noise(count: int, seed: int, spread: float = 0.1) -> list[float]:
    source = random.Random(seed)
    return [source.gauss(0, spread) for _ in range(count)]


def test_series_without_change_has_none() -> None:
    assert change_point(series([0.3] * 24)) is None
    found = [change_point(series(noise(24, seed))) for seed in range(200)]
    assert sum(point is not None for point in found) <= 8  # the level is 1 % only of long series


@pytest.mark.parametrize("at", [3, 8, 16, 21])
@pytest.mark.parametrize("seed", range(5))
def test_step_is_found_at_its_time(at: int, seed: int) -> None:
    values = [value + math.log(600 if n < at else 1500) for n, value in enumerate(noise(24, seed))]
    found = change_point(series(values))
    assert found is not None
    assert found.at == BEGIN + at * timedelta(hours=1)
    assert math.exp(found.before) == pytest.approx(600, rel=0.1)
    assert math.exp(found.after) == pytest.approx(1500, rel=0.1)


@pytest.mark.parametrize("at", [2, 22])
@pytest.mark.parametrize("seed", range(5))
def test_step_beside_an_end_is_found_at_its_time(at: int, seed: int) -> None:
    found = change_point(series([value + 3 * (n >= at) for n, value in enumerate(noise(24, seed))]))
    assert found is not None
    assert found.at == BEGIN + at * timedelta(hours=1)
    assert found.after - found.before == pytest.approx(3, abs=0.2)


def test_step_down_and_step_without_noise_are_found() -> None:
    found = change_point(series([1.0] * 4 + [0.0] * 4))
    assert found is not None
    assert (found.at, found.before, found.after) == (BEGIN + timedelta(hours=4), 1.0, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_slow_drift_is_no_change(seed: int) -> None:
    assert change_point(series([value + n / 20 for n, value in enumerate(noise(24, seed))])) is None


def test_too_few_calls_or_points_tell_nothing() -> None:
    assert change_point([]) is None
    assert change_point(series([0, 0, 1, 1, 1])) is None
    assert change_point(series([0, 0, 0, 1, 1, 1], calls=1)) is None
    assert change_point(series([0, 0, 0, 1, 1, 1], calls=2)) is not None


def test_fewer_points_after_a_change_suffice_where_asked() -> None:
    values = [1.0] * 5 + [0.0] * 2
    assert change_point(series(values, calls=1)) is None
    found = change_point(series(values, calls=1), least_after=2)
    assert found is not None
    assert (found.at, found.before, found.after) == (BEGIN + timedelta(hours=5), 1.0, 0.0)
    assert change_point(series(values[:-1], calls=1), least_after=2) is None, "a single one is an outlier"
    noisy = [change_point(series(noise(24, seed), calls=1), least_after=2) for seed in range(200)]
    assert sum(point is not None for point in noisy) <= 10


@pytest.mark.parametrize("at", [0, 5, 12, 22, 23])
@pytest.mark.parametrize("seed", range(5))
def test_outlier_is_no_change(at: int, seed: int) -> None:
    values = noise(24, seed)
    values[at] += 3
    assert change_point(series(values)) is None


def test_many_calls_outweigh_few() -> None:
    few = [Point(at=BEGIN + n * timedelta(hours=1), value=5.0 if n < 3 else 0.0, calls=1) for n in range(6)]
    assert change_point(few) is None
    many = [Point(at=point.at, value=point.value, calls=100) for point in few]
    assert change_point(many) is not None
