"""/tools/ over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from access_app.models import Project
from tests.traces_app.conftest import answer, store
from traces_app.ingest.batch import SessionOutcome

from .conftest import Caller


def tool(name: str, **counts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": "",
        "category": "",
        "project": "owner",
        "call_count": 1,
        "success_count": 1,
        "failure_count": 0,
        "pending_count": 0,
        "last_called_at": "2026-03-01T12:00:00.000000Z",
        **counts,
    }


NEVER = {
    "call_count": 0, "success_count": 0, "average_duration": None, "longest_duration": None, "last_called_at": None,
}  # fmt: skip


def test_tool_has_statistics_of_its_calls(viewer: Caller, project: Project, weather: SessionOutcome) -> None:
    store(project, {"role": "assistant", "is_completed": False, "created_at": "2026-03-01T12:00:00Z",
                    "agent_steps": [{"tool_calls": [{"name": "search"}]}]})  # fmt: skip
    found = sorted(viewer.get("tools/").results, key=lambda each: each["name"])
    assert found == [
        tool("ask_researcher", average_duration=90.0, longest_duration=90),
        tool("get_weather", call_count=2, failure_count=1, average_duration=26.0, longest_duration=40),
        tool("search", call_count=2, pending_count=1, average_duration=60.0, longest_duration=60),
    ]


@pytest.mark.parametrize(
    ("parameters", "counted"),
    [
        ({}, True),
        ({"created_after": "2026-03-01T12:00:00Z"}, True),
        ({"created_after": "2026-03-01T12:00:00.000000001Z"}, False),
        ({"created_before": "2026-03-01T12:00:00Z"}, False),
    ],
)
def test_times_limit_the_counted_calls(
    viewer: Caller, weather: SessionOutcome, parameters: dict[str, str], counted: bool
) -> None:
    expected = {"average_duration": 90.0, "longest_duration": 90} if counted else NEVER
    assert [tool("ask_researcher", **expected)] == viewer.get("tools/", tool="ask_researcher", **parameters).results


def test_statistics_of_all_times_are_answered(viewer: Caller, weather: SessionOutcome) -> None:
    for times in (
        {"created_after": "0001-01-01T00:00:00Z", "created_before": "9999-12-31T23:59:59Z"},
        {"created_before": "0001-02-01T00:00:00Z"},
        {"created_after": "9999-12-31T23:59:59Z"},
    ):
        assert viewer.get("tools/stats/", **times).status == 200
    assert viewer.get("tools/stats/", created_after="1000-01-01T00:00:00Z").results[0]["call_count"] > 0


@pytest.mark.parametrize("path", ["sessions/weather/", "messages/{}/"])
def test_calls_of_deleted_messages_are_not_counted(owner: Caller, weather: SessionOutcome, path: str) -> None:
    path = path.format(weather.messages[1].id)
    owner.delete(path)
    assert [tool("search", **NEVER)] == owner.get("tools/", tool="search").results
    owner.post(f"{path}restore/")
    assert owner.get("tools/", tool="search").results[0]["call_count"] == 1


def test_tools_are_paged(viewer: Caller, weather: SessionOutcome) -> None:
    page, pages = viewer.get("tools/", limit=1), []
    while pages.append([each["name"] for each in page.results]) or page.json["next"]:
        page = viewer.get("tools/", limit=1, cursor=page.json["next"])
    assert sorted(pages, reverse=True) == [["search"], ["get_weather"], ["ask_researcher"]]
    back = viewer.get("tools/", limit=5, cursor=page.json["previous"]).results
    assert [pages[0][0], pages[1][0]] == [each["name"] for each in back]


def test_calls_without_tool_name_are_found_but_not_a_tool(viewer: Caller, project: Project) -> None:
    store(project, answer(agent_steps=[{"tool_calls": [{"name": " ", "id": "c1"}, {"name": "search", "id": "c2"}]}]))
    assert [tool["name"] for tool in viewer.get("tools/").results] == ["search"]
    assert [call["id"] for call in viewer.get("tool-calls/").results if not call["name"]] == ["c1"]


@pytest.mark.parametrize("query", ["name=x", "before_time=2026-03-01T12:00:00Z", "fields=name", "created_after=x"])
def test_a_bad_filter_is_named(viewer: Caller, query: str) -> None:
    assert (400, "invalid_input", query.partition("=")[0]) == viewer.get(f"tools/?{query}").error
