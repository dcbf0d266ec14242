"""recompute_costs: new prices for stored steps, with all sums."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import CommandError, call_command

from access_app.db import Database, primary
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.writes import delete_message, restore_message
from tests.traces_app.conftest import NOON, store
from traces_app.ingest.prices import forget_prices
from traces_app.maintenance import costs
from traces_app.maintenance.integrity import Tally, check
from traces_app.models import AgentStep, ModelPrice

pytestmark = pytest.mark.django_db
USAGE = {"input_tokens": 1_000_000, "output_tokens": 0}
D = Decimal


@pytest.fixture(autouse=True)
def prices(db: None) -> None:
    ModelPrice.objects.all().delete()
    forget_prices()


def price(model: str, amount: int, **fields: Any) -> None:
    ModelPrice.objects.create(model=model, input=amount, output=amount, as_of=date(2026, 1, 1), **fields)


def run(name: str, *steps: dict[str, Any], day: int = 0) -> dict[str, Any]:
    at = NOON + timedelta(days=day)
    return {"role": "assistant", "external_id": name, "created_at": at, "agent_steps": list(steps)}


def recompute(**options: Any) -> str:
    out = StringIO()
    call_command("recompute_costs", stdout=out, **options)
    assert list(check(primary, tally=Tally())) == []
    return out.getvalue()


def costs_of_messages() -> dict[str, Decimal | None]:
    return dict(Message.with_deleted.values_list("external_id", "cost"))


def test_costs_of_stored_steps_are_filled_in(project: Project) -> None:
    outcome = store(
        project,
        run("a", {"model": "m", "usage": USAGE}, {"model": "x", "usage": USAGE}),
        run("b", {"model": "m", "usage": USAGE, "cost": 0.5}),
        run("c", {"model": "m"}),
    )
    assert costs_of_messages() == {"a": None, "b": D("0.5"), "c": None}
    price("m", 2)
    assert "3 messages with steps read, the cost of 1 steps changed. Nothing was changed." in recompute(dry_run=True)
    assert costs_of_messages()["a"] is None
    version = Message.objects.get(external_id="a").version
    assert "3 messages with steps read, the cost of 1 steps changed." in recompute()
    assert costs_of_messages() == {"a": D(2), "b": D("0.5"), "c": None}
    assert Message.objects.get(external_id="a").version == version + 1
    session = Session.objects.get(pk=outcome.id)
    assert (session.cost, session.unpriced_count) == (D("2.5"), 2)
    assert "the cost of 0 steps changed" in recompute()
    ModelPrice.objects.all().delete()
    recompute()
    assert costs_of_messages() == {"a": None, "b": D("0.5"), "c": None}


def test_recompute_can_be_limited(project: Project) -> None:
    with_both = ({"model": "m", "usage": USAGE}, {"model": "openai/x-2024-08-06", "usage": USAGE})
    store(project, run("a", *with_both), run("b", *with_both, day=1))
    price("m", 1)
    price("x", 10)
    recompute(until="2026-03-02", model="x")
    assert costs_of_messages() == {"a": D(10), "b": None}
    recompute(from_="2026-03-02", model="X*")
    assert costs_of_messages() == {"a": D(10), "b": D(10)}
    other = Project.objects.create(slug="other", name="Other")
    store(other, run("c", *with_both))
    AgentStep.objects.update(cost=None)
    Message.objects.update(cost=None, unpriced_count=2)
    Session.objects.update(cost_sum=0, priced_count=0, unpriced_count=4)
    Session.objects.filter(project=other).update(unpriced_count=2)
    recompute(project="owner")
    assert costs_of_messages() == {"a": D(11), "b": D(11), "c": None}


def test_deleted_messages_are_priced_but_not_counted(project: Project) -> None:
    outcome = store(project, run("a", {"model": "m", "usage": USAGE}))
    message = outcome.messages[0].id
    assert message is not None
    delete_message(primary, message, by="x")
    price("m", 2)
    recompute()
    assert Session.objects.get().cost is None
    restore_message(primary, message)
    assert Session.objects.get().cost == 2


def test_interrupted_run_says_where_to_continue(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    store(project, *(run(f"a{day}", {"model": "m", "usage": USAGE}, day=day) for day in range(3)))
    price("m", 2)
    monkeypatch.setattr(costs, "AT_A_TIME", 1)
    real = costs.set_costs
    batches: list[int] = []

    def set_costs(db: Database, new: Any) -> int:
        if len(batches) == 2:
            raise KeyboardInterrupt
        batches.append(1)
        return real(db, new)

    with patch.object(costs, "set_costs", set_costs), pytest.raises(CommandError) as caught:
        recompute()
    assert "--from 2026-03-02T12:00:00.000000Z" in str(caught.value)
    assert list(costs_of_messages().values()).count(None) == 1
    recompute(from_="2026-03-02T12:00:00.000000Z")
    assert set(costs_of_messages().values()) == {D(2)}


def test_bad_arguments_are_named() -> None:
    with pytest.raises(CommandError, match="--from"):
        call_command("recompute_costs", from_="yesterday")
    with pytest.raises(CommandError, match="no project"):
        call_command("recompute_costs", project="none")
