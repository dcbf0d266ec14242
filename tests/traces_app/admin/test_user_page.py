"""The page of an end user: figures, runs, sessions and errors, and the links that lead there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote_plus

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.models import MaskingRule, Project, Role
from access_app.roles import grant_role
from messages_app import writes
from messages_app.models import Message, Session
from tests.admin_pages import links_of, statements_of, text_of
from tests.traces_app.conftest import store

USER = "/admin/messages_app/session/user/"
NAME = "<b>Ann & 'Bob'</b>/?#&+"


def run(name: str, hours: float, error: str = "", **more: Any) -> list[dict[str, Any]]:
    """Return a question and a run that answers it."""
    result = {"success": False, "error": error} if error else {"output": "found"}
    created_at = timezone.now() - timedelta(hours=hours)
    return [
        {"external_id": f"q{name}", "role": "user", "content": f"Where is {name}?", "created_at": created_at},
        {
            "external_id": name,
            "role": "assistant",
            "content": f"{name} is here.",
            "created_at": created_at,
            "agent_steps": [{"model": "m", "tool_calls": [{"name": "search", "result": result}]}],
            **more,
        },
    ]


@pytest.fixture
def traces(project: Project, stranger: Project) -> None:
    store(project, *run("one", 3), *run("two", 2, "timeout after 3 s"), external_id="s", title="Things", end_user=NAME)
    store(stranger, *run("three", 1), external_id="t", title="Others", end_user=NAME)
    store(project, *run("four", 1, "no disk"), external_id="u", title="Not of Ann", end_user="Ann")


@pytest.mark.usefixtures("traces")
def test_page_shows_what_an_end_user_did(staff: Client) -> None:
    page = staff.get(USER, {"end_user": NAME})
    text = text_of(page)
    assert NAME in text
    assert "2 sessions 1 failed call" in text
    assert "Last seen 1 hour ago" in text
    assert text.index("Done Where is three?") < text.index("Failed Where is two?") < text.index("Done Where is one?")
    assert "1× timeout after # s e.g. timeout after 3 s · 2 hours ago" in text
    assert "Others 1 hour ago" in text
    assert "Things 3 hours ago · 1 failed call" in text
    assert "four" not in text
    assert "Not of Ann" not in text
    links = links_of(page)
    for label in ("All runs", "All sessions", "All errors"):
        assert staff.get(links[label].replace("&amp;", "&")).status_code == 200
    assert "1 failed calls in 1 groups" in text_of(staff.get(links["All errors"].replace("&amp;", "&")))


@pytest.mark.usefixtures("traces")
def test_names_of_end_users_lead_to_their_page(staff: Client) -> None:
    session = Session.objects.get(external_id="s")
    run_of = Message.objects.get(external_id="one")
    for url in (
        "/admin/messages_app/session/",
        f"/admin/messages_app/session/{session.pk}/change/",
        f"/admin/messages_app/message/{run_of.pk}/change/",
        "/admin/traces_app/toolcall/errors/?q=timeout",
    ):
        target = links_of(staff.get(url))[NAME]
        assert target.replace("%20", "+") in (f"{USER}?end_user={quote_plus(NAME)}",)
        assert "2 sessions" in text_of(staff.get(target))


@pytest.mark.usefixtures("traces")
def test_project_limits_the_page(staff: Client) -> None:
    text = text_of(staff.get(USER, {"end_user": NAME, "project": "owner"}))
    assert "1 session 1 failed call" in text
    assert "three" not in text
    assert "Project “nope” cannot be chosen here." in text_of(staff.get(USER, {"end_user": NAME, "project": "nope"}))


@pytest.mark.parametrize("name", ["", "nobody", "a\x00b", "x" * 5000])
def test_unknown_end_user_has_no_figures(staff: Client, name: str) -> None:
    assert "No session of your projects has this end user." in text_of(staff.get(USER, {"end_user": name}))


@pytest.mark.usefixtures("traces")
def test_deleted_sessions_do_not_count(staff: Client) -> None:
    writes.delete_session(primary, Session.objects.get(external_id="s").pk, by="ada")
    text = text_of(staff.get(USER, {"end_user": NAME}))
    assert "1 session 0 failed calls" in text
    assert "Things" not in text


@pytest.mark.usefixtures("traces")
def test_viewer_sees_own_projects_and_masked_values(project: Project) -> None:
    client, user = Client(), User.objects.create_user("eve", is_staff=True)
    client.force_login(user)
    assert client.get(USER, {"end_user": NAME}).status_code == 403
    grant_role(project, user, Role.VIEWER)
    MaskingRule.objects.create(project=project, name="places", kind="pattern", value="Where is [a-z]+|Things|timeout")
    text = text_of(client.get(USER, {"end_user": NAME}))
    assert "1 session 1 failed call" in text
    for hidden in ("Others", "Where is", "Things", "timeout"):
        assert hidden not in text


@pytest.mark.usefixtures("traces")
def test_page_takes_constant_queries(staff: Client, project: Project) -> None:
    url = f"{USER}?end_user={quote_plus(NAME)}"
    before = len(statements_of(staff, url))
    for at in range(5):
        store(
            project,
            *run(f"more {at}", 1, f"error {chr(97 + at)}"),
            external_id=f"more {at}",
            title="More",
            end_user=NAME,
        )
    assert len(statements_of(staff, url)) == before <= 25
