"""The first call after a change is found among those between two steps, whichever of them it is."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from access_app.db import primary
from access_app.models import Project
from tests.traces_app.conftest import store
from traces_app.models import Tool
from traces_app.queries import first_changed
from traces_app.queries.first_changed import Between, Measure
from traces_app.queries.tool_statistics import ALL_CALLS, CallFilter

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MIDDLE = (math.log(100) + math.log(900)) / 2


def record(project: Project, durations: list[int | None], *, agent: str = "a") -> None:
    for minutes, duration in enumerate(durations):
        result = {"success": duration is None or duration < 500, "output": "", "error": ""}
        call: dict[str, Any] = {"name": "search", "args": {}, "duration": duration, "result": result}
        step = {"agent_name": agent, "tool_calls": [call]}
        at = BEGIN + minutes * MINUTE
        store(
            project, {"external_id": f"{agent} {minutes}", "role": "assistant", "created_at": at, "agent_steps": [step]}
        )


def found(
    *measures: Measure, which: CallFilter = ALL_CALLS, end: datetime = BEGIN + 60 * MINUTE
) -> list[datetime | None]:
    tool_id = Tool.objects.get().pk
    middle = {Measure.DURATION: MIDDLE, Measure.FAILURES: 0.5}
    changes = [Between(tool_id, measure, BEGIN, end, middle[measure]) for measure in measures]
    return [one and one.at for one in first_changed.first_changed(primary, changes, which, at_most_ms=1000)]


def test_first_slow_and_first_failed_call_are_found(project: Project) -> None:
    # One slow call before the change is an outlier, and one without a duration says nothing of it.
    record(project, [100, 100, 900, 100, 100, 100, None, 900, 900, 900, 100, 900])
    assert found(Measure.DURATION, Measure.FAILURES) == [BEGIN + 7 * MINUTE] * 2


def test_calls_before_and_after_the_change_are_counted(project: Project) -> None:
    record(project, [100, 900, 100, 100, 100, 100, 900, 900, 100, 900])
    change = Between(Tool.objects.get().pk, Measure.FAILURES, BEGIN, BEGIN + 60 * MINUTE, 0.5)
    (one,) = first_changed.first_changed(primary, [change], ALL_CALLS, at_most_ms=1000)
    assert one == (BEGIN + 6 * MINUTE, 6, 1, 10, 4)


def test_filter_leaves_out_calls_of_others(project: Project) -> None:
    record(project, [900] * 12, agent="other")
    record(project, [100] * 5 + [900] * 5)
    assert found(Measure.DURATION, which=CallFilter(agent="a")) == [BEGIN + 5 * MINUTE]
    assert found(Measure.DURATION) != [BEGIN + 5 * MINUTE]


def test_nothing_is_found_without_calls_or_among_too_many(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    record(project, [100, 100, 900, 900])
    assert found(Measure.DURATION, end=BEGIN) == [None]
    assert found() == []
    monkeypatch.setattr(first_changed, "MOST_CALLS", 4)
    assert found(Measure.DURATION) == [BEGIN + 2 * MINUTE]
    monkeypatch.setattr(first_changed, "MOST_CALLS", 3)
    assert found(Measure.DURATION) == [None]
