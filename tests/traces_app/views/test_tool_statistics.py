"""/tools/stats/ over HTTP, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any

import pytest

from access_app.db import primary
from access_app.models import Project
from tests.traces_app.conftest import NOON, store
from traces_app.ingest.batch import SessionOutcome
from traces_app.maintenance.tool_roll_up import roll_up

from .conftest import Caller


def message(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "created_at": NOON, "agent_steps": [{"tool_calls": list(calls)}], **fields}


@pytest.mark.parametrize("is_stored", [False, True], ids=["rows", "stored"])
def test_statistics_of_a_tool_over_http(
    viewer: Caller, project: Project, weather: SessionOutcome, is_stored: bool
) -> None:
    step = {"tool_calls": [{"name": "get_weather"}, {"name": "get_forecast"}], "cost": 0.5}
    later = NOON + timedelta(hours=2)
    store(project, message(agent_steps=[step], is_completed=False, created_at=later))
    if is_stored:
        assert roll_up(primary).hours == 2
    (found,) = viewer.get(
        "tools/stats/", tool="get_weather", created_after="2026-03-01", created_before="2026-03-02"
    ).results
    assert found == {
        "name": "get_weather", "category": "", "project": "owner", "call_count": 3, "success_count": 1,
        "failure_count": 1, "pending_count": 1, "error_rate": 0.5, "average_duration": 26.0, "longest_duration": 40,
        "p50_duration": 12.0, "p95_duration": 40.0, "p99_duration": 40.0, "total_duration": 52.0,
        "cost": 0.25, "unpriced_count": 2, "trend_step": 3600,
        "trend": [
            {"begin": "2026-03-01T12:00:00.000000Z", "call_count": 2, "failure_count": 1, "error_rate": 0.5,
             "average_duration": 26.0, "p95_duration": 40.0, "cost": None},
            {"begin": "2026-03-01T14:00:00.000000Z", "call_count": 1, "failure_count": 0, "error_rate": None,
             "average_duration": None, "p95_duration": None, "cost": 0.25},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "durations"), [("success", (1, 40.0)), ("error", (1, 12.0)), ("pending", (0, None))]
)
def test_status_limits_the_counted_calls(
    viewer: Caller, weather: SessionOutcome, status: str, durations: tuple[int, float | None]
) -> None:
    (found,) = viewer.get("tools/stats/", tool="get_weather", status=status).results
    assert (found["call_count"], found["p99_duration"]) == durations


def test_agent_model_and_session_limit_the_counted_calls(viewer: Caller, project: Project) -> None:
    for name, agent, model in (("one", "planner", "gpt-4o"), ("two", "worker", "gpt-4o"), ("three", "worker", "qwen")):
        step = {"agent_name": agent, "model": model, "tool_calls": [{"name": "search", "duration": len(name)}]}
        store(project, message(agent_steps=[step]), external_id=name, end_user=f"user {name}", tags=[name, "all"])
    for query, counted in (
        ({"agent": "worker"}, 2),
        ({"agent": "worker", "model": "gpt-4o"}, 1),
        ({"session": "three"}, 1),
        ({"end_user": "user one", "status": "pending"}, 1),
        ({"tag": ["all", "two"]}, 1),
    ):
        (found,) = viewer.get("tools/stats/", **query).results
        assert found["call_count"] == counted, query
    assert viewer.get("tools/stats/", model="none").results[0]["call_count"] == 0
    assert viewer.get("tools/stats/", session="none").status == 404


def test_csv_has_all_tools_and_no_formulas(viewer: Caller, project: Project) -> None:
    store(
        project,
        message(
            {"name": "=cmd()", "duration": 7, "result": {"output": "x"}}, {"name": "search, 2"}, {"name": "\uff1d1"}
        ),
    )
    answer = viewer.client.get("/api/v1/tools/stats/", {"format": "csv", "limit": 1})
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.content.decode(), newline="")))
    assert sorted(row["name"] for row in rows) == ["'=cmd()", "'\uff1d1", "search, 2"]
    (timed,) = [row for row in rows if row["call_count"] == "1" and row["p95_duration"]]
    assert (timed["p95_duration"], timed["error_rate"]) == ("7.0", "0.0")


def test_statistics_of_other_projects_are_not_shown(viewer: Caller, stranger: Project) -> None:
    store(stranger, message({"name": "secret"}))
    assert viewer.get("tools/stats/").results == []


@pytest.mark.parametrize("query", ["agents=x", "status=done", "format=xml", "created_after=x"])
def test_bad_parameter_of_statistics_is_named(viewer: Caller, query: str) -> None:
    assert (400, "invalid_input", query.partition("=")[0]) == viewer.get(f"tools/stats/?{query}").error


def test_examples_show_where_a_tool_is_slow(viewer: Caller, project: Project) -> None:
    def called(duration: int | None, city: str) -> dict[str, Any]:
        return {"name": "map", "args": {"city": city}, "duration": duration}

    store(project, message(called(900, "Rome"), called(800, "Rome"), called(5, "Oslo"), external_id="slow"))
    store(project, message(called(7, "Oslo"), called(None, "Bonn"), external_id="fast", created_at=NOON + timedelta(1)))
    found = viewer.get("tools/examples/", tool="map").json
    assert [(one["arguments"], one["longest_duration"]) for one in found["slowest"]] == [
        *(('{"city": "Rome"}', 900), ('{"city": "Rome"}', 800), ('{"city": "Oslo"}', 7), ('{"city": "Oslo"}', 5))
    ]
    assert [(one["arguments"], one["call_count"], one["total_duration"]) for one in found["arguments"]] == [
        *(('{"city": "Rome"}', 2, 1700.0), ('{"city": "Oslo"}', 2, 12.0))
    ]
    assert [(one["call_count"], one["total_duration"]) for one in found["runs"]] == [(3, 1705.0), (1, 7.0)]
    (repeated,) = found["repeated"]
    assert (repeated["arguments"], repeated["call_count"]) == ('{"city": "Rome"}', 2)
    assert viewer.get(f"messages/{repeated['message_id']}/").json["external_id"] == "slow"
    assert viewer.get(f"tool-calls/{found['arguments'][0]['call']}/").json["args"] == {"city": "Rome"}
    later = viewer.get("tools/examples/", tool="map", created_after="2026-03-02").json
    assert [one["longest_duration"] for one in later["slowest"]] == [7]
    rows = viewer.client.get("/api/v1/tools/examples/", {"format": "csv", "tool": "map"}).content.decode()
    parts = [row["part"] for row in csv.DictReader(io.StringIO(rows, newline=""))]
    assert parts == ["slowest"] * 4 + ["arguments"] * 2 + ["runs"] * 2 + ["repeated"]
    assert viewer.get("tools/examples/", tool="none").error == (404, "not_found", "tool")
    assert viewer.get("tools/examples/").error == (400, "invalid_input", "tool")


def test_examples_tell_how_often_agents_corrected_themselves(viewer: Caller, project: Project) -> None:
    def called(tool: str = "map", *, good: bool = True, reflection: str = "") -> dict[str, Any]:
        result = {"output": "x"} if good else {"success": False, "error": "no"}
        return {"name": tool, "args": {}, "result": result, "reflection": reflection or None}

    steps = [
        [called(good=False, reflection="Wrong city."), called("other", good=False)],
        [called()],
        [called(good=False, reflection="Wrong again.")],
        [called(good=False)],
        [called(reflection="Fine, and the last one.")],
    ]
    run = {"role": "assistant", "created_at": NOON, "agent_steps": [{"tool_calls": calls} for calls in steps]}
    store(project, {**run, "external_id": "corrected"}, external_id="one")
    store(project, message(called("other", reflection="Not this tool.")), external_id="two")
    found = viewer.get("tools/examples/", tool="map").json["reflections"]
    assert found == {
        "call_count": 5,
        "reflection_count": 3,
        "failure_count": 2,
        "retried_count": 2,
        "retry_success_count": 1,
    }
    # The next call counts whatever its status.
    failed = viewer.get("tools/examples/", tool="map", status="error").json["reflections"]
    assert list(failed.values()) == [3, 2, 2, 2, 1]
    assert list(viewer.get("tools/examples/", tool="other", session="one").json["reflections"].values()) == [
        1,
        0,
        0,
        0,
        0,
    ]


def test_unused_tools_were_offered_and_not_called(viewer: Caller, project: Project) -> None:
    asked = {"tools": [{"name": "map"}, {"name": "=cmd"}], "messages": [{"role": "user", "content": "Where?"}]}
    store(project, message(agent_steps=[{"tool_calls": [{"name": "map"}], "input": asked}]))
    assert viewer.get("tools/unused/").json == {"results": ["=cmd"], "inputs_read": 200}
    assert viewer.get("tools/unused/", created_after="2026-03-02").json["results"] == []
    csv_ = viewer.client.get("/api/v1/tools/unused/", {"format": "csv"}).content.decode()
    assert csv_.splitlines() == ["name", "'=cmd"]
