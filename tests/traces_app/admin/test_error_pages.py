"""Groups of equal errors in the admin: each leads to its calls, its example and its tool."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.models import Message
from tests.admin_pages import html_of, links_of, rows_of, statements_of, text_of
from tests.traces_app.conftest import store
from traces_app.models import Tool, ToolCall
from traces_app.queries import error_groups

ERRORS = "/admin/traces_app/toolcall/errors/"


def run(name: str, hours: float, *errors: tuple[str, str]) -> dict[str, Any]:
    calls = [{"name": tool, "result": {"success": False, "error": error}} for tool, error in errors]
    created_at = timezone.now() - timedelta(hours=hours)
    return {"external_id": name, "role": "assistant", "created_at": created_at, "agent_steps": [{"tool_calls": calls}]}


@pytest.fixture
def traces(project: Project, stranger: Project) -> None:
    store(
        project,
        run("old", 30, ("search", "no disk")),
        run("one", 3, ("search", "timeout after 31 s"), ("read", "timeout after 2 s")),
        run("two", 1, ("read", "no <b>key</b> 'a'")),
    )
    store(stranger, run("three", 2, ("search", "timeout after 9 s")))


def target(page: Any, name: str) -> str:
    return next(url for text, url in links_of(page).items() if text.startswith(name)).replace("&amp;", "&")


@pytest.mark.usefixtures("traces")
def test_groups_lead_to_their_calls_and_examples(staff: Client) -> None:
    page = staff.get(ERRORS)
    text = text_of(page)
    assert "4 failed calls in 2 groups" in text
    assert "First in this period" in text
    assert text.index("timeout after # s new error 3") < text.index("no <b>key</b> 'a' new error 1")
    assert "search 2 read 1" in text
    assert "no disk" not in text
    calls = staff.get(target(page, "timeout after #"))
    assert len(rows_of(calls)) == 3
    assert "error group timeout after # s" in text_of(calls)
    assert "no <b>key</b>" in text_of(staff.get(target(page, "no <b>key</b>")))
    assert "timeout after 9 s" in text_of(staff.get(target(page, "timeout after 9 s").partition("#")[0]))


@pytest.mark.usefixtures("traces")
def test_failed_call_leads_to_calls_and_runs_that_failed_alike(staff: Client, project: Project) -> None:
    failed = ToolCall.objects.get(result__error="timeout after 31 s")
    page = staff.get(f"/admin/traces_app/toolcall/{failed.pk}/change/", follow=True)
    alike = rows_of(staff.get(target(page, "Calls with this error")))
    assert sorted(row[0] for row in alike) == ["read", "search"]
    assert "Failures like this one" in text_of(staff.get(target(page, "Failures like this one")))
    writes.delete_session(primary, failed.message.session_id, by="ada")
    page = staff.get(f"/admin/traces_app/toolcall/{failed.pk}/change/", follow=True)
    assert [label for label, _url in page.context["detail"].links] == ["Calls with this error"]
    store(
        project,
        {**run("good", 1), "agent_steps": [{"tool_calls": [{"name": "good", "result": "ok"}]}]},
        external_id="other",
    )
    good = ToolCall.objects.get(tool__name="good")
    page = staff.get(f"/admin/traces_app/toolcall/{good.pk}/change/", follow=True)
    assert "Calls with this error" not in links_of(page)


@pytest.mark.parametrize(
    ("query", "warning"),
    [
        ("tool=nope", "Tool “nope” is not in the projects of this page. The errors of all tools are shown."),
        ("tool=a%00b", "is not in the projects of this page. The errors of all tools are shown."),
        ("tool=secret&project=owner", "Tool “secret” is not in the projects of this page."),
        ("agent=x&tools=search", "This page has no such filter: agent, tools. It is shown without."),
        ("tool=search&project=owner&created=7d&o=count&entered_in=Asia/Tokyo&_x=1", ""),
    ],
)
@pytest.mark.usefixtures("traces")
def test_filters_that_page_lacks_are_reported(staff: Client, stranger: Project, query: str, warning: str) -> None:
    store(stranger, run("four", 2, ("secret", "x")), external_id="four")
    text = text_of(staff.get(f"{ERRORS}?{query}", follow=True))
    assert warning in text
    assert ("It is shown without." in text or "is not in the projects" in text) == bool(warning)
    assert ("All tools" in text) == (not warning)


@pytest.mark.usefixtures("traces")
def test_project_tool_and_period_limit_groups_and_their_calls(staff: Client) -> None:
    page = staff.get(ERRORS, {"project": "owner", "tool": "search", "created": "7d"})
    assert "2 failed calls in 2 groups" in text_of(page)
    assert len(rows_of(staff.get(target(page, "timeout after #")))) == 1
    assert "4 failed calls" in text_of(staff.get(f"{ERRORS}{target(page, 'All tools')}"))
    assert "No call failed." in text_of(staff.get(ERRORS, {"created_before": "2020-01-01"}))


@pytest.mark.usefixtures("traces")
def test_groups_are_sorted_by_each_time(staff: Client) -> None:
    for order in ("last_seen", "first_seen"):
        text = text_of(staff.get(ERRORS, {"o": order, "created": "7d"}))
        assert text.index("no <b>key") < text.index("timeout after #") < text.index("no disk")


@pytest.mark.usefixtures("traces")
def test_deleted_calls_are_in_no_group(staff: Client) -> None:
    writes.delete_message(primary, Message.objects.get(external_id="one").pk, by="ada")
    assert "2 failed calls in 2 groups" in text_of(staff.get(ERRORS))


@pytest.mark.usefixtures("traces")
def test_home_tools_and_bar_lead_to_the_groups(staff: Client) -> None:
    assert links_of(staff.get("/admin/"))["Errors"] == ERRORS
    for url in ("/admin/?project=owner", "/admin/traces_app/tool/statistics/?project=owner"):
        assert "3 failed calls in 2 groups" in text_of(staff.get(target(staff.get(url), "All errors")))
    tool = Tool.objects.get(name="search", project__slug="owner")
    page = staff.get(f"/admin/traces_app/tool/{tool.pk}/change/")
    assert len(rows_of(staff.get(target(page, "all")))) == 1
    assert f'href="{ERRORS}?project=owner&amp;tool=search' in html_of(page)


@pytest.mark.usefixtures("traces")
def test_page_says_if_calls_were_left_out(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_groups, "MOST_READ", 2)
    assert "Only the newest 2 failed calls are counted, since" in text_of(staff.get(ERRORS))


@pytest.mark.usefixtures("traces")
def test_page_of_errors_takes_constant_queries(staff: Client, project: Project) -> None:
    before = len(statements_of(staff, ERRORS))
    store(project, run("more", 1, *((f"tool {at % 20}", f"error {chr(97 + at % 26)}") for at in range(60))))
    assert len(statements_of(staff, ERRORS)) == before <= 19


@pytest.mark.parametrize("query", ["created=x", "created_after=x"])
def test_invalid_range_of_errors_is_reported(staff: Client, query: str) -> None:
    page = text_of(staff.get(f"{ERRORS}?{query}"))
    assert "Invalid filter: time “x”. Use " in page
    assert "The last 24 hours are shown." in page


def test_errors_of_the_tool_without_a_name_are_shown(staff: Client, project: Project) -> None:
    store(project, run("x", 1, ("", "no name"), ("search", "no disk")))
    tool = Tool.objects.get(name="")
    text = text_of(staff.get(f"/admin/traces_app/tool/{tool.pk}/change/"))
    assert "1× no name" in text
    assert "no disk" not in text


def test_page_of_errors_needs_permission(project: Project) -> None:
    client = Client()
    client.force_login(User.objects.create_user("eve", is_staff=True))
    assert client.get(ERRORS).status_code == 403
