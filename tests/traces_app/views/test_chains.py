"""/chains/ over HTTP: runs as trees of calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from access_app.models import Project
from tests.traces_app.conftest import NOON, store
from traces_app.ingest.batch import SessionOutcome

from .conftest import Answer, Caller


def test_chain_is_the_tree_of_its_calls(viewer: Caller, weather: SessionOutcome) -> None:
    chain = str(weather.messages[1].id)
    uuids = {call["id"]: call["uuid"] for call in viewer.get("tool-calls/").results}
    a, b, c, d = (uuids[f"call_{letter}"] for letter in "abcd")
    nothing: dict[str, Any] = {"parent_id": None, "child_calls": [], "error_message": None, "started_at": None, "completed_at": None, "metadata": {}}  # fmt: skip
    document = viewer.get(f"chains/{chain}/").json
    assert [a, b, c, d] == list(document["calls"])
    assert document == {
        "chain_id": chain,
        "external_id": "a1",
        "session_id": str(weather.id),
        "root_tool_id": "get_weather",
        "root_call_id": a,
        "created_at": "2026-03-01T12:00:00.000000Z",
        "completed_at": None,
        "duration": 0.142,
        "success": False,
        "error_message": "unknown city",
        "call_count": 4,
        "failure_count": 1,
        "metadata": {},
        "type": "tool_call_chain",
        "root_calls": [a, b, c],
        "calls": {
            a: {
                **nothing,
                "call_id": a,
                "id": "call_a",
                "tool_id": "get_weather",
                "iteration": 0,
                "parameters": {"city": "上海"},
                "result": {"status": "success", "success": True, "output": "31 °C", "data": {"temp_c": 31}},
                "status": "success",
                "success": True,
                "duration": 0.04,
            },
            b: {
                **nothing,
                "call_id": b,
                "id": "call_b",
                "tool_id": "get_weather",
                "iteration": 0,
                "parameters": {"city": "Atlantis"},
                "result": {"status": "error", "success": False, "output": "", "error": "unknown city"},
                "status": "error",
                "success": False,
                "error_message": "unknown city",
                "duration": 0.012,
            },
            c: {
                **nothing,
                "call_id": c,
                "id": "call_c",
                "tool_id": "ask_researcher",
                "iteration": 1,
                "child_calls": [d],
                "parameters": {"q": "Atlantis"},
                "result": {"status": "success", "success": True, "output": "a myth"},
                "status": "success",
                "success": True,
                "duration": 0.09,
            },
            d: {
                **nothing,
                "call_id": d,
                "id": "call_d",
                "tool_id": "search",
                "iteration": 1,
                "parent_id": c,
                "parameters": {"q": "Atlantis"},
                "result": {"status": "success", "success": True, "output": "3 hits"},
                "status": "success",
                "success": True,
                "duration": 0.06,
            },
        },
    }
    summary = {name: value for name, value in document.items() if name not in ("root_calls", "calls")}
    assert [summary] == viewer.get("chains/").results


def test_chain_is_found_by_the_trackers_id(viewer: Caller, project: Project) -> None:
    message = {
        "external_id": "chain-1772366400000000",
        "role": "assistant",
        "agent_steps": [{"tool_calls": [{"name": "t"}]}],
    }
    store(project, message, external_id="one")
    assert viewer.get("chains/chain-1772366400000000/").json["external_id"] == "chain-1772366400000000"
    store(project, message, external_id="two")
    assert viewer.get("chains/chain-1772366400000000/").error == (409, "ambiguous_chain", None)


@pytest.mark.parametrize("name", ["chain-1", "0193e0f0-0000-7000-8000-000000000000", "%00"])
def test_unknown_chain_is_a_clear_404(viewer: Caller, weather: SessionOutcome, name: str) -> None:
    assert viewer.get(f"chains/{name}/").error == (404, "chain_not_found", None)


def test_message_without_calls_is_not_a_chain(viewer: Caller, weather: SessionOutcome) -> None:
    assert viewer.get(f"chains/{weather.messages[0].id}/").error == (404, "chain_not_found", None)


@pytest.fixture
def runs(project: Project) -> None:
    """Store runs of all kinds, a minute apart."""

    def run(minute: int, name: str, *calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
        steps = [{"iteration": index, "tool_calls": [call]} for index, call in enumerate(calls)]
        return {"external_id": name, "role": "assistant", "created_at": NOON + timedelta(minutes=minute), "agent_steps": steps, **fields}  # fmt: skip

    plan = {"uuid": "plan", "id": "c-plan", "name": "plan", "result": {"output": "x"}}
    search = {"id": "c-search", "name": "search", "result": {"output": "x"}}
    store(
        project,
        run(0, "fine", plan, search, duration=2000),
        run(
            1,
            "failed",
            search,
            {**plan, "result": {"error": "no plan"}},
            {**search, "result": {"error": "later"}},
            duration=2001,
        ),  # fmt: skip
        run(2, "broke", search, error="model refused"),
        run(3, "left open", search, {"id": "c-open", "name": "wait"}),
        run(4, "running", plan, {"id": "c-open", "name": "wait"}, is_completed=False),
        run(5, "nested", {"name": "search", "parent": "plan", "result": {"output": "x"}}, plan),
        {"external_id": "no calls", "role": "assistant", "error": "model refused", "created_at": NOON},
    )


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["nested", "running", "left open", "broke", "failed", "fine"]),
        ({"order": "asc", "limit": 2}, ["fine", "failed"]),
        ({"tool": "search"}, ["nested", "left open", "broke", "failed", "fine"]),
        ({"tool": ["wait", "none"]}, ["running", "left open"]),
        ({"root_tool": "plan"}, ["nested", "running", "fine"]),
        ({"root_tool": "search"}, ["left open", "broke", "failed"]),
        ({"root_tool": ["search", "plan"], "tool": "wait"}, ["running", "left open"]),
        ({"root_tool": "wait"}, []),
        ({"success": "false"}, ["left open", "broke", "failed"]),
        ({"success": "true"}, ["nested", "running", "fine"]),
        ({"slower_than": "2"}, ["failed"]),
        ({"slower_than": "1.9999"}, ["failed", "fine"]),
        ({"slower_than": "2.001"}, []),
        ({"min_duration": "2000", "max_duration": "2000"}, ["fine"]),
        ({"call_id": "c-open"}, ["running", "left open"]),
        ({"external_id": "broke"}, ["broke"]),
        ({"session": "weather", "success": "false", "tool": "plan"}, ["failed"]),
        ({"created_after": "2026-03-01T12:01:00Z", "created_before": "2026-03-01T12:03:00Z"}, ["broke", "failed"]),
    ],
)
def test_chains_are_filtered(viewer: Caller, runs: None, parameters: dict[str, Any], expected: list[str]) -> None:
    found = viewer.get("chains/", **parameters).results
    assert expected == [chain["external_id"] for chain in found]


def test_first_error_and_root_are_by_reading_order(viewer: Caller, runs: None) -> None:
    said = ("external_id", "root_tool_id", "success", "error_message")
    found = [tuple(chain[name] for name in said) for chain in viewer.get("chains/", order="asc").results]
    assert found == [
        ("fine", "plan", True, None),
        ("failed", "search", False, "no plan"),
        ("broke", "search", False, "model refused"),
        ("left open", "search", False, None),
        ("running", "plan", True, None),
        ("nested", "plan", True, None),
    ]
    for chain in viewer.get("chains/").results:
        whole = viewer.get(f"chains/{chain['chain_id']}/").json
        assert chain == {name: whole[name] for name in chain}


def test_only_the_fields_that_are_asked_for_are_answered(viewer: Caller, runs: None) -> None:
    found = viewer.get("chains/", external_id="failed", fields="success,error_message,duration").results
    assert found == [{"success": False, "error_message": "no plan", "duration": 2.001}]


@pytest.mark.parametrize(
    "query", ["slower_than=x", "slower_than=-1", "slower_than=NaN", "slower_than=1e400", "failed=true"]
)
def test_a_bad_filter_is_named(viewer: Caller, runs: None, query: str) -> None:
    assert (400, "invalid_input", query.partition("=")[0]) == viewer.get(f"chains/?{query}").error


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_by_root_tool_skip_other_chains(
    viewer: Caller, project: Project, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messages_app.sql.pagination.SIFT_CHUNK", 3)
    monkeypatch.setattr("messages_app.sql.pagination.SIFT_LOOKS", 2)
    steps = {
        True: [{"tool_calls": [{"name": "wanted"}]}],
        False: [{"tool_calls": [{"name": "other"}]}, {"tool_calls": [{"name": "wanted"}]}],
    }
    store(
        project,
        *(
            {
                "external_id": f"m{number}",
                "role": "assistant",
                "is_completed": False,
                "created_at": NOON + timedelta(minutes=number),
                "agent_steps": steps[number % 10 in (0, 1)],
            }
            for number in range(35)
        ),
    )
    parameters = {"root_tool": "wanted", "order": order, "limit": 3}
    forward = [viewer.get("chains/", **parameters)]
    while forward[-1].json["next"]:
        forward.append(viewer.get("chains/", **parameters, cursor=forward[-1].json["next"]))
    backward = [forward[-1]]
    while backward[-1].json["previous"]:
        backward.append(viewer.get("chains/", **parameters, cursor=backward[-1].json["previous"]))

    expected = [f"m{number}" for number in (0, 1, 10, 11, 20, 21, 30, 31)]
    expected = expected if order == "asc" else expected[::-1]
    assert expected == [name for page in forward for name in _names(page)]
    assert expected == [name for page in reversed(backward) for name in _names(page)]
    # Six of 35 chains are read for a page.
    assert len(forward) == 6


def test_slow_root_tool_search_gives_short_page_and_next(
    viewer: Caller, runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messages_app.sql.pagination.SIFT_CHUNK", 1)
    monkeypatch.setattr("messages_app.sql.pagination.SIFT_SECONDS", 0)
    pages = [viewer.get("chains/", root_tool="plan")]
    while pages[-1].json["next"]:
        pages.append(viewer.get("chains/", root_tool="plan", cursor=pages[-1].json["next"]))
    # One read for each page. "failed" has a call of the tool without a parent, but another root; the last read finds nothing.
    assert [_names(page) for page in pages] == [["nested"], ["running"], [], ["fine"], []]


def _names(answer: Answer) -> list[str]:
    return [chain["external_id"] for chain in answer.results]
