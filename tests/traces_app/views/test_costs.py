"""The cost of steps, messages and sessions in answers, filters and exports."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from access_app.models import Project
from tests.traces_app.conftest import NOON, store
from tests.traces_app.views.conftest import Caller
from traces_app.ingest.prices import forget_prices
from traces_app.models import AgentStep, ModelPrice

pytestmark = pytest.mark.django_db
USAGE = {"input_tokens": 1_000, "output_tokens": 100}


def run(name: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "external_id": name, "created_at": NOON, "agent_steps": list(steps)}


@pytest.fixture(autouse=True)
def costs(project: Project) -> None:
    """Sessions of 0.003, 0.5 and an unknown cost."""
    ModelPrice.objects.all().delete()
    ModelPrice.objects.create(model="m", input=2, output=10, as_of=date(2026, 1, 1))
    forget_prices()
    store(project, run("a", {"model": "m", "usage": USAGE}, {"model": "x", "usage": USAGE}), external_id="cheap")
    store(project, run("b", {"model": "m", "usage": USAGE, "cost": 0.5}), external_id="dear")
    store(project, run("c", {"model": "x", "usage": USAGE}, {"thought": "No model."}), external_id="unknown")


def test_answers_have_cost_and_what_is_unknown(viewer: Caller) -> None:
    session = viewer.get("sessions/cheap/")
    assert (session.json["cost"], session.json["unpriced_count"]) == (0.003, 1)
    assert b'"cost":0.003,' in session.body
    (message,) = viewer.get("sessions/cheap/messages/").results
    assert (message["cost"], message["unpriced_count"]) == (0.003, 1)
    first, second = message["agent_steps"]
    assert (first["cost"], first["cost_is_explicit"]) == (0.003, False)
    assert "cost" not in second and "cost_is_explicit" not in second
    (message,) = viewer.get("sessions/dear/messages/").results
    assert message["agent_steps"][0]["cost_is_explicit"] is True
    assert viewer.get("sessions/unknown/").json["cost"] is None
    assert viewer.get("messages/", external_id="c").results[0]["cost"] is None


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({"min_cost": "0"}, ["dear", "cheap"]),
        ({"min_cost": "0.003"}, ["dear", "cheap"]),
        ({"min_cost": "0.0030000001"}, ["dear"]),
        ({"max_cost": "0.4"}, ["cheap"]),
        ({"min_cost": "0.004", "max_cost": "0.49"}, []),
    ],
)
def test_cost_filters_leave_out_unknown_costs(viewer: Caller, parameters: dict[str, str], found: list[str]) -> None:
    assert {row["external_id"] for row in viewer.get("sessions/", **parameters).results} == set(found)
    names = {"a": "cheap", "b": "dear", "c": "unknown"}
    assert {names[row["external_id"]] for row in viewer.get("messages/", **parameters).results} == set(found)


@pytest.mark.parametrize("value", ["-1", "x", "NaN", "1e400", "1" * 30])
def test_cost_filter_that_is_no_amount_is_refused(viewer: Caller, value: str) -> None:
    for path in ("sessions/", "messages/"):
        assert viewer.get(path, min_cost=value).error == (400, "invalid_input", "min_cost")


def test_export_sent_back_has_the_same_costs(owner: Caller, viewer: Caller) -> None:
    ModelPrice.objects.update(input=4)
    forget_prices()
    for name in ("cheap", "dear"):
        exported = viewer.get(f"sessions/{name}/export/").json
        exported |= {"external_id": f"{name}-2"}
        exported.pop("id")
        for message in exported["messages"]:
            message.pop("id")
        sent = owner.post("ingest/", {"sessions": [exported]})
        assert sent.status in (200, 201), sent.body
    # Only what a producer stated is kept; the other one is computed with the prices of this site.
    assert [viewer.get(f"sessions/{name}-2/").json["cost"] for name in ("cheap", "dear")] == [0.005, 0.5]
    assert AgentStep.objects.filter(said_cost__isnull=False).count() == 2
    assert viewer.get("sessions/cheap-2/").json["metadata"] == {}


@pytest.mark.parametrize("cost", [-1, "0.5", 10**10, True])
def test_stated_cost_that_is_no_amount_is_refused(owner: Caller, cost: object) -> None:
    sent = owner.post("ingest/", {"sessions": [{"messages": [run("a", {"cost": cost})]}]})
    assert sent.error[:2] == (400, "invalid_input")
    assert sent.error[2].endswith("agent_steps[0].cost")
