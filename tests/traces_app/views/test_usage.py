"""/usage/ over HTTP: requests, tokens and cost by model, end user and day."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.models import Message
from tests.traces_app.conftest import NOON, store
from tests.traces_app.views.conftest import Caller
from traces_app.ingest.prices import forget_prices
from traces_app.models import ModelPrice
from tracesite_sdk.normalize.pricing import tokens

pytestmark = pytest.mark.django_db
USAGE = {"input_tokens": 1_000, "output_tokens": 100}
NOTHING = {"step_count": 0, "input_tokens": 0, "output_tokens": 0, "cost": None, "unpriced_count": 0}


def run(days: int, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "created_at": NOON + timedelta(days=days), "agent_steps": list(steps)}


def step(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "usage": USAGE, **fields}


def group(key: str, steps: int, cost: float | None, unpriced: int = 0) -> dict[str, Any]:
    return {
        "key": key, "step_count": steps, "input_tokens": 1_000 * steps, "output_tokens": 100 * steps, "cost": cost,
        "unpriced_count": unpriced,
    }  # fmt: skip


@pytest.fixture(autouse=True)
def requests(project: Project) -> None:
    """Requests of two users on two days, in two months, to three models, of which one has no price."""
    ModelPrice.objects.create(model="m", input=2, output=10, as_of=date(2026, 1, 1))
    forget_prices()
    store(project, run(0, step("m"), step("x")), run(40, step("m")), external_id="ada", end_user="ada")
    store(project, run(0, step("y", cost=0.5), {"thought": "No model."}), external_id="bob", end_user="bob")
    store(project, run(40, step("x")), external_id="nobody")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [group("y", 1, 0.5), group("m", 2, 0.006), group("x", 2, None, 2)]),
        ({"group_by": "model", "end_user": "ada"}, [group("m", 2, 0.006), group("x", 1, None, 1)]),
        ({"group_by": "end_user"}, [group("bob", 1, 0.5), group("ada", 3, 0.006, 1), group("", 1, None, 1)]),
        ({"group_by": "day"}, [group("2026-04-10", 2, 0.003, 1), group("2026-03-01", 3, 0.503, 1)]),
        ({"group_by": "day", "model": "m"}, [group("2026-04-10", 1, 0.003), group("2026-03-01", 1, 0.003)]),
        ({"created_after": "2026-03-02"}, [group("m", 1, 0.003), group("x", 1, None, 1)]),
        ({"created_before": "2026-03-02", "group_by": "end_user"}, [group("bob", 1, 0.5), group("ada", 2, 0.003, 1)]),
        ({"created_after": "2027-01-01"}, []),
    ],
)
def test_usage_is_added_up_by_group(viewer: Caller, parameters: dict[str, str], expected: list[dict[str, Any]]) -> None:
    assert viewer.get("usage/", **parameters).results == expected


def test_usage_has_the_total_of_groups_beyond_the_limit(viewer: Caller) -> None:
    answer = viewer.get("usage/", limit=1).json
    assert answer == {
        "group_by": "model",
        "results": [group("y", 1, 0.5)],
        "group_count": 3,
        "total": {name: value for name, value in group("", 5, 0.506, 2).items() if name != "key"},
    }
    nothing = {"group_by": "day", "results": [], "group_count": 0, "total": NOTHING}
    assert viewer.get("usage/", group_by="day", model="none").json == nothing


def test_usage_of_a_project_agrees_with_its_sessions(viewer: Caller) -> None:
    total = viewer.get("usage/").json["total"]
    sessions = viewer.get("sessions/").results
    assert total["unpriced_count"] == sum(session["unpriced_count"] for session in sessions)
    assert total["cost"] == pytest.approx(sum(session["cost"] or 0 for session in sessions))


@pytest.mark.parametrize(
    ("error", "unpriced"),
    [("", 1), (None, 1), (False, 1), (0, 1), ([], 1), ({}, 1), ("429", 0), ("0", 0), ({"code": None}, 0), (True, 0)],
)
def test_failed_request_without_tokens_counts_as_in_its_session(
    viewer: Caller, project: Project, error: Any, unpriced: int
) -> None:
    store(project, run(0, {"model": "z", "metadata": {"error": error}}, step("m")), external_id="failed")
    (session,) = viewer.get("sessions/", external_id="failed").results
    (of_model,) = viewer.get("usage/", model="z").json["results"]
    assert (session["unpriced_count"], of_model["unpriced_count"]) == (unpriced, unpriced)


def test_usage_leaves_out_what_is_deleted(viewer: Caller, project: Project) -> None:
    bob = Message.objects.get(session__external_id="bob")
    writes.delete_session(primary, bob.session_id, by="ada")
    assert [group["key"] for group in viewer.get("usage/").results] == ["m", "x"]
    late = Message.objects.get(session__external_id="ada", created_at__gt=NOON)
    writes.delete_message(primary, late.pk, by="ada")
    assert viewer.get("usage/").results == [group("m", 1, 0.003), group("x", 2, None, 2)]
    writes.restore_session(primary, bob.session_id)
    assert viewer.get("usage/").json["total"]["cost"] == 0.503


def test_usage_of_another_project_is_not_visible(outsider: Caller) -> None:
    assert outsider.get("usage/").json["total"] == NOTHING
    assert outsider.get("usage/?project=owner").error == (404, "not_found", "project")


@pytest.mark.parametrize(
    "query",
    [
        "group_by=tool",
        "group_by=",
        "limit=0",
        "cursor=x",
        "order=asc",
        "min_cost=1",
        "created_after=today",
        "model=%00",
    ],
)
def test_invalid_parameter_is_refused(viewer: Caller, query: str) -> None:
    answer = viewer.get(f"usage/?{query}")
    if query == "group_by=":
        assert answer.json["group_by"] == "model"
    else:
        assert answer.error == (400, "invalid_input", query.partition("=")[0])


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 7, "completion_tokens": 3},
        {"inputTokens": 7, "outputTokens": 0, "total": 9},
        {"input_tokens": "twelve", "prompt_tokens": 7, "output_tokens": None, "completion_tokens": -3},
        {"input_tokens": 1.5, "output_tokens": True, "completionTokens": 4},
        {"input_tokens": 10**13, "promptTokens": 2},
        {"input_tokens": {"a": 1}, "output_tokens": [3]},
    ],
)
def test_tokens_are_counted_as_in_messages(viewer: Caller, project: Project, usage: dict[str, Any]) -> None:
    store(project, run(0, {"model": "odd", "usage": usage}), external_id="odd")
    total = viewer.get("usage/", model="odd").json["total"]
    assert (total["input_tokens"], total["output_tokens"]) == tokens(usage)
