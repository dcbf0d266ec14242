"""The critical path of a run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from traces_app.queries.runs.critical_path import critical_path

ROW = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 50), st.none() | st.integers(0, 50))


def path_of(*rows: tuple[int, int | None, int | None]) -> list[int]:
    """Return the critical path of rows, given as (depth, start, duration)."""
    depths, starts, durations = zip(*rows, strict=True)
    return critical_path(depths, starts, durations).rows


def test_path_leads_through_the_longest_of_parallel_calls() -> None:
    assert path_of((0, 0, 100), (1, 100, 50), (1, 100, 300), (0, 400, 20)) == [0, 2, 3]


def test_row_that_waits_for_a_row_below_it_is_not_on_the_path() -> None:
    assert path_of((0, 0, 500), (1, 100, 400), (2, 150, 200)) == [2]


def test_rows_without_times_are_not_on_the_path() -> None:
    assert path_of((0, None, 10), (1, 5, None), (1, 5, 10)) == [2]
    assert critical_path([], [], []).rows == []


def test_times_that_were_rounded_to_overlap_are_on_the_path() -> None:
    assert path_of((0, 0, 101), (0, 100, 50)) == [0, 1]


def test_bottleneck_is_clearly_longer_than_every_other_row() -> None:
    def found(*rows: tuple[int, int | None, int | None]) -> int | None:
        depths, starts, durations = zip(*rows, strict=True)
        return critical_path(depths, starts, durations).bottleneck

    assert found((0, 0, 700), (1, 0, 601), (1, 601, 99)) == 1  # the step only waits
    assert found((0, 0, 1202), (1, 0, 601), (1, 601, 601)) is None
    assert found((0, 0, 601), (1, 0, 601), (1, 0, 595)) is None  # side by side
    assert found((0, 0, 0), (0, 5, None)) is None
    # Without starts the durations decide.
    assert found((0, None, 900), (1, None, 850), (1, None, 30), (1, None, 20)) == 1
    assert found((0, None, 900), (1, None, 450), (1, None, 450)) is None
    assert found((0, 0, 900), (1, None, 850), (1, None, 50)) == 1  # the step has a start
    assert found((0, None, 900), (1, 10, 850), (1, 860, 30)) == 1
    assert found((0, 0, 300), (0, 300, 10), (0, None, 900)) == 2
    assert found((0, 0, 900), (0, 900, 10), (0, None, 300)) == 0


def test_bottleneck_is_a_large_part_of_the_run() -> None:
    def found(took_ms: int | None) -> int | None:
        return critical_path([0, 0], [0, 41], [41, 5], took_ms=took_ms).bottleneck

    assert [found(took) for took in (None, 46, 164, 165, 24_100)] == [0, 0, 0, None, None]


@given(st.lists(ROW, max_size=30))
def test_any_path_goes_forward_in_time_and_ends_last(rows: list[tuple[int, int | None, int | None]]) -> None:
    depths = []
    for depth, _start, _took in rows:
        depths.append(min(depth, depths[-1] + 1) if depths else 0)
    starts, durations = [row[1] for row in rows], [row[2] for row in rows]
    path = critical_path(depths, starts, durations).rows
    times = [(starts[row], starts[row] + durations[row]) for row in path]  # type: ignore[operator]
    assert len(set(path)) == len(path)
    for (_start, end), (start, _end) in zip(times, times[1:], strict=False):
        assert end <= start + 1
