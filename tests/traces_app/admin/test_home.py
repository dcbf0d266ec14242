"""The first page of the admin: its figures are those of the rows that they link to."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from access_app.models import Project
from messages_app import writes
from messages_app.models import Message
from tests.admin_pages import html_of, links_of, rows_of, statements_of, text_of
from tests.traces_app.conftest import question, store
from traces_app.admin import home
from traces_app.models import ToolCall

HOME = "/admin/"


def run(name: str, at: datetime, *errors: str, tool: str = "search", **fields: Any) -> dict[str, Any]:
    """Return a run with one call for each error; an empty one succeeds."""
    calls = [
        {"name": tool, "args": {"n": n}, "result": {"error": error} if error else {"output": "ok"}}
        for n, error in enumerate(errors)
    ]
    step = {"model": "m-1", "usage": {"input_tokens": 10, "output_tokens": 5}, "tool_calls": calls}
    return {
        "external_id": name,
        "role": "assistant",
        "created_at": at,
        "completed_at": at + timedelta(seconds=len(name)),
        "content": "Done.",
        "agent_steps": [step],
        **fields,
    }


def ago(**time: float) -> datetime:
    return timezone.now() - timedelta(**time)


@pytest.fixture
def traces(project: Project) -> None:
    store(project, question(created_at=ago(minutes=50)), run("now", ago(minutes=40), "", "late", "gone 7"), title="Now")
    store(project, run("error", ago(minutes=30), error="out of memory"), title="Crash", external_id="crash")
    store(project, run("slow run", ago(hours=30), "", "", "", ""), title="Yesterday", external_id="yesterday")
    open_run = {**run("open", ago(hours=2)), "is_completed": False, "completed_at": None}
    store(project, open_run, title="Open", external_id="open")
    deleted = store(project, run("deleted", ago(minutes=20), "x"), external_id="deleted")
    assert deleted.id is not None
    writes.delete_session(deleted.id, by="ada")


@pytest.mark.usefixtures("traces")
def test_figures_lead_to_their_rows(staff: Client) -> None:
    page = staff.get(HOME)
    text = text_of(page)
    assert "3 Runs 2 Runs with errors · 67% 3 Tool calls 2 Failed calls · 67% 1 Running now" in text
    assert "45 Tokens · 30 in, 15 out" in text
    links = {name: url.replace("&amp;", "&") for name, url in links_of(page).items()}
    for name, count in (("Runs with errors", 2), ("Failed calls", 2), ("Running now", 1)):
        url = next(url for label, url in links.items() if label.endswith(name) or f" {name} " in f" {label} ")
        assert len(rows_of(staff.get(url))) == count, name


@pytest.mark.usefixtures("traces")
def test_period_and_project_limit_the_figures(staff: Client, project: Project) -> None:
    assert "4 Runs" in text_of(staff.get(f"{HOME}?created=7d"))
    assert "2 Runs" in text_of(staff.get(f"{HOME}?created=1h"))
    other = Project.objects.create(slug="other")
    store(other, run("elsewhere", ago(minutes=1), "other error"))
    assert "3 Runs" in text_of(staff.get(f"{HOME}?created=1h"))
    page = staff.get(f"{HOME}?created=1h&project=other")
    assert "1 Runs" in text_of(page)
    assert "other error" in text_of(page)
    assert "out of memory" not in text_of(page)
    assert "project=other" in html_of(page)
    # Unknown values are those of a page without parameters.
    assert "4 Runs" in text_of(staff.get(f"{HOME}?created=soon&project=none"))


@pytest.mark.usefixtures("traces")
def test_failed_call_is_one_click_away(staff: Client) -> None:
    page = staff.get(HOME)
    failed = ToolCall.objects.filter(status="error").latest("pk")
    assert f"/admin/messages_app/message/{failed.message_id}/change/?call={failed.pk}#call-{failed.pk}" in html_of(page)
    assert failed.result.error in text_of(page)
    assert "Crash" in text_of(page)
    assert "out of memory" in text_of(page)


def test_failing_tool_is_compared_with_the_period_before(staff: Client, project: Project) -> None:
    store(project, run("before", ago(minutes=90), "x", "", "", ""), run("after", ago(minutes=10), "x", "y"))
    page = text_of(staff.get(f"{HOME}?created=1h"))
    assert "search 100% 2/2 25% ▲ " in page
    store(project, run("later", ago(minutes=5), *[""] * 20), external_id="better")
    assert "search 9.1% 2/22 25% ▼ " in text_of(staff.get(f"{HOME}?created=1h"))


def test_longest_run_and_cost_of_models_are_listed(staff: Client, project: Project) -> None:
    steps = [{"model": "m-1", "cost": 2}]
    store(
        project,
        run("a" * 30, ago(minutes=10), agent_steps=steps),
        run("b", ago(minutes=9), agent_steps=steps),
        title="Long",
    )
    page = text_of(staff.get(HOME))
    assert "Long 30.0 s" in page
    assert "m-1 2 $4.00" in page
    assert "$4.00 Cost" in page


def test_page_takes_constant_queries(staff: Client, project: Project) -> None:
    store(project, run("one", ago(minutes=10), "x"))
    few = len(statements_of(staff, HOME))
    for number in range(8):
        runs = [run(f"{number}-{n}", ago(minutes=n), "x", "", tool=f"tool {n}") for n in range(8)]
        store(project, *runs, external_id=f"s{number}")
    assert len(statements_of(staff, HOME)) == few
    # Of these 28 set and end the time limits of the parts.
    assert few <= 42


def test_people_without_access_see_no_figures(client: Client, project: Project) -> None:
    store(project, run("secret", ago(minutes=1), "secret error"), title="Secret")
    client.force_login(User.objects.create_user("eve", is_staff=True))
    page = text_of(client.get(HOME))
    assert "What needs attention" not in page
    assert "Secret" not in page


def test_part_that_takes_too_long_says_so(staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    store(project, run("one", ago(minutes=10), "x"))
    monkeypatch.setattr(home, "SECTION_MS", 1)
    slow = Message.objects.extra(select={"slow": "pg_sleep(0.1)"})
    monkeypatch.setattr(home.overview, "slow_runs", lambda _scope, _period: home.overview.Runs(rows=list(slow)))
    page = staff.get(HOME)
    assert page.status_code == 200
    assert "This period holds too much to count it now." in text_of(page)
