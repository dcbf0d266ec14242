"""Recorders with a wrong clock lose nothing: their times are shifted to now, and the message gets a flag."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from traces_app.events.clocks import moved, shift_into_range

from .conftest import Caller

SECOND = timedelta(seconds=1)
WRONG = {
    "two_days_ahead": timedelta(days=2),
    "a_hundred_years_ahead": timedelta(days=36_500),
    "at_1970": datetime(1970, 1, 1, 0, 1, tzinfo=UTC) - datetime(2026, 11, 22, tzinfo=UTC),
}


def run_at(start: datetime) -> list[dict[str, Any]]:
    """Events of a recorder for a run of 30 s with one call of 2 s."""
    told: list[tuple[float, str, dict[str, Any]]] = [
        (0, "workflow_execute_start", {"prompt": "weather?"}),
        (1, "tool_call_start", {"callId": "c1", "name": "get_weather", "args": {}}),
        (3, "tool_call_complete", {"callId": "c1", "result": "31 C"}),
        (30, "workflow_execute_complete", {"content": "31 degrees"}),
    ]
    return [
        {
            "session_id": "s",
            "type": type_,
            "number": number,
            "timestamp": (start + after * SECOND).isoformat(),
            "data": data,
        }
        for number, (after, type_, data) in enumerate(told)
    ]


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_run_of_a_wrong_clock_is_stored_with_durations_and_flag(owner: Caller, wrong: timedelta) -> None:
    before = timezone.now()
    start = (datetime(2026, 11, 22, tzinfo=UTC) if wrong < timedelta() else before) + wrong

    sent = owner.post("events/", {"events": run_at(start)})
    again = owner.post("events/", {"events": run_at(start)})

    assert ([one["state"] for one in sent.json["results"]], sent.json["refused"]) == (["stored"] * 4, [])
    assert [one["state"] for one in again.json["results"]] == ["duplicate"] * 4
    answer = next(one for one in owner.get("messages/").results if one["role"] == "assistant")
    assert "time_out_of_range" in answer["health"]
    assert (answer["is_completed"], answer["duration"]) == (True, 30_000)
    (call,) = answer["agent_steps"][0]["tool_calls"]
    assert (call["status"], call["duration"]) == ("success", 2_000)
    began = datetime.fromisoformat(answer["created_at"])
    assert before - 31 * SECOND <= began <= timezone.now()
    event = owner.get("sessions/s/events/").results[0]
    assert event["data"]["clock"] == {"timestamp": start.isoformat()}


def test_events_of_a_right_clock_are_not_marked(owner: Caller) -> None:
    owner.post("events/", {"events": run_at(timezone.now() + timedelta(hours=23))})

    answer = next(one for one in owner.get("messages/").results if one["role"] == "assistant")
    assert answer["health"] == []
    assert "clock" not in owner.get("sessions/s/events/").results[0]["data"]


def test_shift_of_clocks_wrong_both_ways_ends_at_now() -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    late, early = datetime.max.replace(tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)
    shift = shift_into_range([late, None, now, early], now)

    assert shift == now - late
    assert moved(late, shift, now) == now
    assert moved(early, shift, now) == now
    assert shift_into_range([None, now], now) is None
