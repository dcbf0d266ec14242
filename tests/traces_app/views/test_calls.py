"""/tool-calls/ over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from access_app.models import Project
from tests.traces_app.conftest import NOON, store
from traces_app.ingest.batch import SessionOutcome

from .conftest import Caller


def call_ids(results: list[dict[str, Any]]) -> list[str]:
    return sorted(result["id"] for result in results)


def test_call_has_the_ids_of_session_message_and_step(viewer: Caller, weather: SessionOutcome) -> None:
    (found,) = viewer.get("tool-calls/", call_id="call_b").results
    (message,) = viewer.get("messages/", call_id="call_b").results
    step = message["agent_steps"][0]
    assert found == {
        "id": "call_b",
        "uuid": step["tool_calls"][1]["uuid"],
        "name": "get_weather",
        "session_id": str(weather.id),
        "message_id": str(weather.messages[1].id),
        "step_id": step["id"],
        "created_at": "2026-03-01T12:00:00.000000Z",
        "iteration": 0,
        "position": 1,
        "args": {"city": "Atlantis"},
        "result": {"status": "error", "success": False, "output": "", "error": "unknown city"},
        "reflection": "The city does not exist.",
        "duration": 12,
        "status": "error",
        "started_at": None,
        "completed_at": None,
    }
    assert found == viewer.get(f"tool-calls/{found['uuid']}/").json


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["call_a", "call_b", "call_c", "call_d"]),
        ({"tool": "get_weather"}, ["call_a", "call_b"]),
        ({"tool": ["search", "ask_researcher"]}, ["call_c", "call_d"]),
        ({"tool": "none"}, []),
        ({"status": "error"}, ["call_b"]),
        ({"tool": "get_weather", "status": "success"}, ["call_a"]),
        ({"call_id": "call_d"}, ["call_d"]),
        ({"session": "weather"}, ["call_a", "call_b", "call_c", "call_d"]),
        ({"min_duration": "40", "max_duration": "60"}, ["call_a", "call_d"]),
        ({"has_reflection": "true"}, ["call_b"]),
        ({"has_reflection": "false"}, ["call_a", "call_c", "call_d"]),
        ({"created_after": "2026-03-01T12:00:00Z"}, ["call_a", "call_b", "call_c", "call_d"]),
        ({"created_before": "2026-03-01T12:00:00Z"}, []),
        ({"created_after": "2026-03-01T12:00:00.000000001Z"}, []),
    ],
)
def test_calls_are_filtered(
    viewer: Caller, weather: SessionOutcome, parameters: dict[str, Any], expected: list[str]
) -> None:
    assert expected == call_ids(viewer.get("tool-calls/", **parameters).results)


def test_calls_of_a_message_and_of_a_parent(viewer: Caller, weather: SessionOutcome) -> None:
    message = str(weather.messages[1].id)
    for name in (message, "a1"):
        assert len(viewer.get("tool-calls/", message=name).results) == 4
    assert viewer.get("tool-calls/", message="q1").results == []
    (outer,) = viewer.get("tool-calls/", call_id="call_c").results
    assert call_ids(viewer.get("tool-calls/", parent=outer["uuid"]).results) == ["call_d"]


def test_only_the_fields_that_are_asked_for_are_answered(viewer: Caller, weather: SessionOutcome) -> None:
    assert viewer.get("tool-calls/", call_id="call_b", fields="id").results == [{"id": "call_b"}]
    expected = {"session_id": str(weather.id), "iteration": 0, "result": {"status": "success", "success": True, "output": "31 °C", "data": {"temp_c": 31}}}  # fmt: skip
    assert [expected] == viewer.get("tool-calls/", call_id="call_a", fields="session_id,iteration,result").results


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("session=none", (404, "session_not_found", "session")),
        ("message=%00", (400, "invalid_input", "message")),
        ("status=failed", (400, "invalid_input", "status")),
        ("before_time=2026-03-01T12:00:00Z", (400, "invalid_input", "before_time")),
        ("page=1", (400, "invalid_input", "page")),
    ],
)
def test_a_bad_filter_is_named(viewer: Caller, weather: SessionOutcome, query: str, error: tuple[Any, ...]) -> None:
    assert error == viewer.get(f"tool-calls/?{query}").error


@pytest.mark.parametrize("name", ["call_a", "0193e0f0-0000-7000-8000-000000000000", "%00"])
def test_unknown_call_is_a_clear_404(viewer: Caller, weather: SessionOutcome, name: str) -> None:
    answer = viewer.get(f"tool-calls/{name}/")
    assert answer.error == (404, "not_found", None)
    assert "?call_id=" in answer.json["error"]["message"]


def test_cursors_reach_all_calls_also_within_one_message(viewer: Caller, project: Project) -> None:
    steps = [{"tool_calls": [{"id": f"c{i}-{j}", "name": "t"} for j in range(5)]} for i in range(5)]
    store(project, {"role": "assistant", "is_completed": False, "created_at": NOON, "agent_steps": steps})
    for order in ("asc", "desc"):
        page, seen = viewer.get("tool-calls/", limit=4, order=order), []
        while seen.extend(call_ids(page.results)) or page.json["next"]:
            page = viewer.get("tool-calls/", limit=4, order=order, cursor=page.json["next"])
        assert sorted(f"c{i}-{j}" for i in range(5) for j in range(5)) == sorted(seen)


@pytest.mark.parametrize("fields", ["", "id,name", "uuid,result,status", "name,metadata"])
def test_calls_of_one_tool_are_those_that_are_read_one_by_one(
    viewer: Caller, project: Project, weather: SessionOutcome, fields: str
) -> None:
    calls = [{"id": "left open", "name": "get_weather"}, {"name": "get_weather", "result": {"metadata": {"a": 1}}}]
    store(
        project,
        {"role": "assistant", "is_completed": False, "created_at": NOON, "agent_steps": [{"tool_calls": calls}]},
    )
    chosen = {"fields": fields} if fields else {}
    uuids = [call["uuid"] for call in viewer.get("tool-calls/", tool="get_weather").results]
    assert len(uuids) == 4
    for query in ({"tool": "get_weather"}, {"tool": ["get_weather", "get_weather"]}, {"tool": ["get_weather", "none"]}):
        found = viewer.get("tool-calls/", **query, **chosen).results
        assert found == [viewer.get(f"tool-calls/{uuid}/", **chosen).json for uuid in uuids]


def test_calls_of_deleted_message_or_session_are_hidden(owner: Caller, weather: SessionOutcome) -> None:
    for path in (f"messages/{weather.messages[1].id}/", f"sessions/{weather.id}/"):
        owner.delete(path)
        assert owner.get("tool-calls/", tool="get_weather").results == []
        assert owner.post(f"{path}restore/").status == 200
        assert len(owner.get("tool-calls/", tool="get_weather").results) == 2
