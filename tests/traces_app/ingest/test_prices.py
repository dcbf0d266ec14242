"""The cost of steps and its sums on messages and sessions, through every kind of write."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.session_counters import disagreements, recount
from messages_app.writes import clear_session, delete_message, restore_message
from tests.traces_app.conftest import NOON, store
from traces_app.events.store import record_events
from traces_app.ingest import decode
from traces_app.ingest.changes import change_message
from traces_app.ingest.prices import current_prices, forget_prices
from traces_app.ingest.removal import remove_messages
from traces_app.maintenance.integrity import Tally, check
from traces_app.models import AgentStep, ModelPrice
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise_patch
from tracesite_sdk.normalize.redacted import redact_event, redact_message_patch
from tracesite_sdk.records import ids
from tracesite_sdk.redaction.rules import DEFAULT_RULES

pytestmark = pytest.mark.django_db
USAGE = {"input_tokens": 1_000, "output_tokens": 100}
"""At 2 and 10 USD a million: 0.003 USD."""


@pytest.fixture(autouse=True)
def prices(db: None) -> None:
    ModelPrice.objects.all().delete()
    ModelPrice.objects.create(model="m", input=2, output=10, as_of=date(2026, 1, 1))
    forget_prices()


def run(*steps: dict[str, Any], name: str = "a1", **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "external_id": name, "created_at": NOON, "agent_steps": list(steps), **fields}


def costs() -> tuple[list[Decimal | None], list[tuple[Decimal | None, int]], tuple[Decimal | None, int]]:
    """Return the cost of each step, cost and unpriced steps of each message, and those of the session; check the sums."""
    assert [problem.detail for problem in check(primary, tally=Tally()) if problem.kind.endswith("_counts")] == []
    session = Session.with_deleted.get()
    return (
        list(AgentStep.with_deleted.order_by("id").values_list("cost", flat=True)),
        list(Message.objects.order_by("id").values_list("cost", "unpriced_count")),
        (session.cost, session.unpriced_count),
    )


D = Decimal


def test_cost_is_summed_on_message_and_session(project: Project) -> None:
    store(project, run({"id": "s1", "model": "M", "usage": USAGE}, {"id": "s2", "model": "m", "usage": USAGE}))
    assert costs()[1:] == ([(D("0.006"), 0)], (D("0.006"), 0))
    store(project, run({"id": "s1", "model": "m", "usage": USAGE}, name="a2"))
    assert costs()[2] == (D("0.009"), 0)


def test_cost_of_unknown_model_is_null_not_zero(project: Project) -> None:
    store(project, run({"id": "s1", "model": "unknown", "usage": USAGE}, {"id": "s2", "thought": "No model."}))
    assert costs() == ([None, None], [(None, 1)], (None, 1))
    store(project, run({"id": "s1", "model": "m", "usage": USAGE}, name="a2"))
    assert costs()[2] == (D("0.003"), 1)


def test_stated_cost_goes_before_price(project: Project) -> None:
    store(
        project,
        run({"id": "s1", "model": "m", "usage": USAGE, "cost": 0.5}, {"id": "s2", "usage": {**USAGE, "cost": 0.25}}),
    )
    assert sorted(AgentStep.objects.values_list("said_cost", "cost")) == [(D("0.25"), D("0.25")), (D("0.5"), D("0.5"))]
    assert costs()[1:] == ([(D("0.75"), 0)], (D("0.75"), 0))
    # Sent again without it, the stated cost stays.
    store(project, run({"id": "s1", "model": "m", "usage": {"input_tokens": 9}}, is_completed=False))
    assert costs()[2] == (D("0.75"), 0)


def test_price_of_project_and_day_counts(project: Project) -> None:
    ModelPrice.objects.create(model="m", project=project, input=4, output=0, as_of=NOON, valid_from=NOON)
    forget_prices()
    store(project, run({"id": "s1", "model": "m", "usage": USAGE}))
    assert costs()[0] == [D("0.004")]
    ModelPrice.objects.filter(project=project).update(valid_until=date(2020, 1, 1), valid_from=None)
    forget_prices()
    store(project, run({"id": "s2", "model": "m", "usage": USAGE}, name="a2"))
    assert costs()[2] == (D("0.007"), 0)


def test_merge_prices_model_and_tokens_that_come_apart(project: Project) -> None:
    store(project, run({"id": "s1", "model": "m"}, is_completed=False))
    assert costs()[1] == [(None, 1)]
    store(project, run({"id": "s1", "usage": USAGE}, is_completed=False))
    assert costs() == ([D("0.003")], [(D("0.003"), 0)], (D("0.003"), 0))
    store(project, run({"id": "s1", "usage": {"input_tokens": 5_000}}, is_completed=False))
    assert costs()[2] == (D("0.01"), 0)
    store(project, run({"id": "s1", "model": "unknown"}, is_completed=False))
    assert costs() == ([None], [(None, 1)], (None, 1))


def test_message_sent_again_keeps_its_cost(project: Project) -> None:
    record = run({"id": "s1", "model": "m", "usage": USAGE})
    store(project, record)
    ModelPrice.objects.update(input=100)
    forget_prices()
    assert store(project, record).messages[0].state == "unchanged"
    assert costs()[2] == (D("0.003"), 0)


def test_patch_prices_new_steps(project: Project) -> None:
    stored = store(project, run({"id": "s1", "model": "m", "usage": USAGE}, is_completed=False)).messages[0].id
    assert stored is not None
    body = b'{"agent_steps": [{"id": "s2", "model": "m", "usage": {"input_tokens": 500000}}], "is_completed": true}'
    change_message(
        primary,
        [project.pk],
        stored,
        redact_message_patch(normalise_patch(decode.decode_message_patch(body)), DEFAULT_RULES),
    )
    assert costs()[1:] == ([(D("1.003"), 0)], (D("1.003"), 0))


def send(project: Project, *documents: dict[str, Any]) -> None:
    """Record events of one run."""
    message = str(ids.message_id(NOON, "assistant", 0, ("test", "run")))
    about = {"session_id": "task", "timestamp": NOON, "message_id": message}
    batch = [msgspec.convert({**about, **document}, records.Event) for document in documents]
    record_events(primary, project.pk, [redact_event(one, DEFAULT_RULES) for one in batch])


def test_late_events_price_the_step(project: Project) -> None:
    send(
        project,
        {"id": "e1", "type": "llm_request_start", "data": {"step": "s1"}},
        {"id": "e3", "type": "llm_request_complete", "data": {"step": "s1", "usage": USAGE}},
    )
    assert costs()[1] == [(None, 1)]
    send(project, {"id": "e2", "type": "llm_request_start", "data": {"step": "s1", "model": "m"}})
    assert costs() == ([D("0.003")], [(D("0.003"), 0)], (D("0.003"), 0))
    send(project, {"id": "e4", "type": "llm_request_complete", "data": {"step": "s2", "model": "m", "cost": 0.5}})
    assert costs()[1:] == ([(D("0.503"), 0)], (D("0.503"), 0))


def test_deleted_messages_do_not_cost(project: Project) -> None:
    first = store(project, run({"id": "s1", "model": "m", "usage": USAGE})).messages[0].id
    session = store(project, run({"id": "s1", "model": "m", "usage": USAGE}, name="a2")).id
    assert isinstance(first, UUID) and isinstance(session, UUID)
    delete_message(primary, first, by="x")
    assert costs()[2] == (D("0.003"), 0)
    restore_message(primary, first)
    assert costs()[2] == (D("0.006"), 0)
    clear_session(primary, session, by="x")
    assert costs()[2] == (None, 0)
    restore_message(primary, first)
    remove_messages(primary, [first])
    assert costs()[2] == (None, 0)


def test_counters_of_cost_are_checked_and_recounted(project: Project) -> None:
    session = store(project, run({"id": "s1", "model": "m", "usage": USAGE})).id
    assert isinstance(session, UUID)
    Session.objects.update(cost_sum=9, priced_count=3, unpriced_count=4)
    Message.objects.update(unpriced_count=4)
    assert disagreements(primary, [session])[session] == {"cost_sum": (D(9), D("0.003")), "priced_count": (3, 1)}
    assert "unpriced_count 4, found 0" in next(
        p.detail for p in check(primary, tally=Tally()) if p.kind == "message_counts"
    )
    Message.objects.update(unpriced_count=0)
    recount(primary, [session])
    assert costs()[2] == (D("0.003"), 0)


def test_prices_are_read_once_for_many_writes(project: Project) -> None:
    forget_prices()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        for number in range(3):
            store(project, run({"id": "s1", "model": "m", "usage": USAGE}, name=f"b{number}"))
        current_prices()
    assert sum("modelprice" in query["sql"] for query in queries) == 1
