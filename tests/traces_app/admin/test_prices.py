"""The admin of prices, and the costs of runs in the admin."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from access_app.models import Project
from messages_app.models import Message
from tests.admin_pages import html_of, links_of, rows_of, text_of
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.prices import forget_prices
from traces_app.models import ModelPrice

PRICES = "/admin/traces_app/modelprice/"
MESSAGES = "/admin/messages_app/message/"
SESSIONS = "/admin/messages_app/session/"
FORM = {"model": "GPT-5 ", "input": "1.25", "output": "10", "as_of": "2026-01-01"}


@pytest.fixture
def prices(db: None) -> None:
    ModelPrice.objects.create(model="m", input=1, output=Decimal("10.5"), as_of=date(2026, 1, 1))
    forget_prices()


def add(staff: Client, **values: str) -> list[str]:
    """Send the form of a new price; return its errors."""
    response = staff.post(f"{PRICES}add/", {**FORM, **values})
    if response.status_code == 302:
        return []
    return [str(error) for errors in response.context["adminform"].form.errors.values() for error in errors]


def step(model: str | None, **fields: Any) -> dict[str, Any]:
    return {"thought": "t", "model": model, "usage": {"input_tokens": 1000, "output_tokens": 100}, **fields}


def run(project: Project, external_id: str, *steps: dict[str, Any]) -> UUID:
    outcome = store(project, question(), answer(agent_steps=list(steps)), external_id=external_id)
    message_id = outcome.messages[1].id
    assert message_id is not None
    return message_id


def test_price_is_added_with_a_hint_on_stored_runs(staff: Client) -> None:
    response = staff.post(f"{PRICES}add/", FORM, follow=True)
    price = ModelPrice.objects.get()
    assert (price.model, price.input, price.cached_input, price.output) == ("gpt-5", Decimal("1.25"), None, 10)
    said = "Stored runs keep their costs, until whoever operates the server computes these anew with the command: manage.py recompute_costs --model gpt-5"
    assert said in text_of(response)
    assert rows_of(staff.get(PRICES)) == [["gpt-5", "", "$1.25", "$10.00", "2026-01-01"]]


def test_prices_have_the_columns_in_which_they_differ(staff: Client, project: Project, prices: None) -> None:
    common = {"model": "n", "input": 1, "output": 1, "as_of": date(2026, 1, 1)}
    ModelPrice.objects.create(**common, project=project, cached_input=Decimal("0.5"), valid_from=date(2026, 2, 1))
    assert rows_of(staff.get(PRICES)) == [
        ["m", "", "All projects", "$1.00", "", "$10.50", "always", "2026-01-01"],
        ["n", "", "owner", "$1.00", "$0.50", "$1.00", "from 2026-02-01", "2026-01-01"],
    ]


def test_price_leads_to_a_new_one_from_today_on(staff: Client, prices: None) -> None:
    old = ModelPrice.objects.get()
    target = links_of(staff.get(f"{PRICES}{old.pk}/change/"))["New price from a day on"].replace("&amp;", "&")
    form = staff.get(target).context["adminform"].form
    values = {name: form[name].value() for name in ("model", "project", "valid_from", "valid_until", "input", "output")}
    today = timezone.now().date().isoformat()
    assert values == {
        "model": "m",
        "project": None,
        "valid_from": today,
        "valid_until": None,
        "input": "1",
        "output": "10.5",
    }
    old.valid_until = date(2026, 3, 1)
    old.save()
    assert "New price from a day on" not in links_of(staff.get(f"{PRICES}{old.pk}/change/"))


def test_prices_say_their_unit_and_projects(staff: Client, project: Project, prices: None) -> None:
    page = staff.get(PRICES)
    assert "Input / 1M" in text_of(page) and "USD for a million tokens" in text_of(page)
    assert html_of(page).count('class="field-amount"') == 2
    assert links_of(page)["All projects"] == "?project__isnull=True"


def test_prices_that_runs_used_come_first(staff: Client, project: Project, stranger: Project, prices: None) -> None:
    day = date(2026, 1, 1)
    for model, owner, until in (
        ("a", None, None),
        ("z", None, None),
        ("z", project, None),
        ("n*", None, None),
        ("q", None, day),
    ):
        ModelPrice.objects.create(model=model, project=owner, valid_until=until, input=1, output=1, as_of=day)

    def listed(query: str = "") -> list[tuple[str, str, bool]]:
        return [(row[0], row[2], bool(row[1])) for row in rows_of(staff.get(f"{PRICES}{query}"))]

    every = "All projects"
    unused = [("a", every, False), ("m", every, False), ("n*", every, False), ("q", every, False)]
    assert listed() == [*unused, ("z", "owner", False), ("z", every, False)]
    run(project, "1", step("openai/Z-2026-01-02"), step("n-2"), step("q"), step(None))
    assert listed() == [
        *(("n*", every, True), ("z", "owner", True)),
        *(("a", every, False), ("m", every, False), ("q", every, False), ("z", every, False)),
    ]
    run(stranger, "2", step("z"))
    assert ("z", every, True) in listed()
    assert [row[:1] for row in listed("?o=1")] == [("a",), ("m",), ("n*",), ("q",), ("z",), ("z",)]


def test_price_changed_or_deleted_counts_at_the_next_write(staff: Client, project: Project, prices: None) -> None:
    assert Message.objects.get(pk=run(project, "1", step("m"))).cost == Decimal("0.00205")
    price = ModelPrice.objects.get()
    staff.post(f"{PRICES}{price.pk}/change/", {**FORM, "model": "m", "input": "2"})
    assert Message.objects.get(pk=run(project, "2", step("m"))).cost == Decimal("0.003")
    staff.post(f"{PRICES}{price.pk}/delete/", {"post": "yes"})
    assert Message.objects.get(pk=run(project, "3", step("m"))).cost is None


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        (("", ""), ("", ""), "There is already a price of this model (always) with this first day."),
        (("2026-01-01", "2026-03-31"), ("2026-01-01", ""), "There is already a price of this model (2026-01-01 to 2026-03-31)"),
        (("2026-01-01", "2026-03-31"), ("2026-03-31", ""), "Overlaps the price 2026-01-01 to 2026-03-31 of the same model."),
        (("2026-01-01", ""), ("2025-01-01", "2026-01-01"), "Overlaps the price from 2026-01-01 of the same model."),
        (("", "2026-01-01"), ("2025-12-01", "2025-12-31"), "Overlaps the price until 2026-01-01 of the same model."),
        (("2026-01-01", "2026-03-31"), ("2026-04-01", ""), None),
        (("", ""), ("2026-04-01", ""), None),
        (("", ""), ("2026-04-01", "2026-04-30"), None),
    ],
)  # fmt: skip
def test_price_overlapping_another_is_refused(
    staff: Client, first: tuple[str, str], second: tuple[str, str], error: str | None
) -> None:
    assert add(staff, valid_from=first[0], valid_until=first[1]) == []
    errors = add(staff, model="gpt-5", valid_from=second[0], valid_until=second[1])
    if error is None:
        assert errors == []
    else:
        assert len(errors) == 1 and errors[0].startswith(error)
    assert ModelPrice.objects.count() == (2 if error is None else 1)


def test_price_of_a_project_may_overlap_that_of_all(staff: Client, project: Project) -> None:
    assert add(staff) == []
    assert add(staff, project=str(project.pk)) == []
    assert len(add(staff, project=str(project.pk))) == 1


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("model", "a*b", "Expected a name, or the beginning of names with one * at the end."),
        ("input", "-1", "Ensure this value is greater than or equal to 0."),
        ("output", "", "This field is required."),
        ("valid_until", "2019-01-01", "It is before the first day."),
    ],
)
def test_price_that_is_invalid_is_refused(staff: Client, field: str, value: str, error: str) -> None:
    assert add(staff, valid_from="2020-01-01", **{field: value}) == [error]


def test_cost_of_a_run_is_shown_with_what_is_unknown(staff: Client, project: Project, prices: None) -> None:
    full = run(project, "full", step("m"), step("m"))
    partly = run(project, "partly", step("m"), step("unheard-of"), step("m", cost=0.5))
    unknown = run(project, "unknown", step("unheard-of"))
    free = run(project, "free", step("m", cost=0))
    pages = {
        name: text_of(staff.get(f"{MESSAGES}{id_}/change/"))
        for name, id_ in {"full": full, "partly": partly, "unknown": unknown, "free": free}.items()
    }
    assert "Cost $0.0041 " in pages["full"]
    assert pages["full"].count("1,000 tokens in, 100 out") == 2
    assert "Cost ≥ $0.5020" in pages["partly"] and "1 answer without a known cost" in pages["partly"]
    assert "$0.5000, stated" in pages["partly"] and pages["partly"].count("stated") == 1
    assert "Models without a known cost unheard-of" in pages["partly"] and "Models without" not in pages["full"]
    assert "Cost — (1 answer without a known cost)" in pages["unknown"] and "$0" not in pages["unknown"]
    assert "Cost $0.00 " in pages["free"]
    session = Message.objects.get(pk=partly).session_id
    assert "Cost ≥ $0.5020 (1 answer without a known cost)" in text_of(staff.get(f"{SESSIONS}{session}/change/"))
    assert {row[-2] for row in rows_of(staff.get(SESSIONS))} == {"$0.00", "—", "≥ $0.5020", "$0.0041"}


def test_cost_of_tokens_without_a_step_is_unknown(staff: Client, project: Project, prices: None) -> None:
    usage = {"input_tokens": 70, "output_tokens": 8}
    stored = store(project, question(), answer(usage=usage), external_id="without steps").messages[1].id
    page = staff.get(f"{MESSAGES}{stored}/change/")
    assert "Tokens 78 (70 in, 8 out) Cost — (1 answer without a known cost)" in text_of(page)
    run(project, "known", step("m", cost=1.5))  # without it runs have no column of costs
    for listed in (SESSIONS, f"{MESSAGES}?role=assistant"):
        assert sorted("—" in row for row in rows_of(staff.get(listed))) == [False, True]


def test_lists_are_filtered_by_cost(staff: Client, project: Project, prices: None) -> None:
    run(project, "cheap", step("m", duration=1200))
    run(project, "dear", step("m", cost=1.5))
    run(project, "unknown", step("unheard-of"))
    assert len(rows_of(staff.get(SESSIONS))) == 3
    assert [row[-2] for row in rows_of(staff.get(f"{SESSIONS}?min_cost=0.5"))] == ["$1.50"]
    assert {row[-1] for row in rows_of(staff.get(f"{MESSAGES}?min_cost=0.002&columns=text,spent"))} == {
        "$1.50",
        "$0.0020",
    }
    for address in (SESSIONS, MESSAGES):
        assert "min_cost" in html_of(staff.get(f"{address}?min_cost=much", follow=True))
