"""The page of runs like one, and of failures like one."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.models import Message
from tests.admin_pages import ago, html_of, links_of, statements_of, text_of
from tests.traces_app.conftest import NOON
from tests.traces_app.views.test_similar_runs import asked


@pytest.fixture
def run(project: Project, stranger: Project) -> UUID:
    asked(project, "same", NOON, "Weather in <b>Oslo</b>?", ("search", "timeout after 7 s"))
    asked(project, "fine", NOON - timedelta(days=1), "Weather in Rome?", ("search", ""))
    asked(stranger, "foreign", NOON, "Weather in <b>Oslo</b>?", ("search", "timeout after 7 s"))
    return asked(project, "given", NOON, "Weather in <b>Oslo</b>?", ("search", "timeout after 31 s"))


def page_of(message: UUID) -> str:
    return f"/admin/messages_app/message/{message}/similar/"


def test_run_leads_to_runs_like_it_and_their_comparison(staff: Client, run: UUID) -> None:
    page = staff.get(links_of(staff.get(f"/admin/messages_app/message/{run}/change/"))["Runs like this one"])
    text = text_of(page)
    same = Message.objects.get(external_id="same")
    assert "Failed timeout after 31 s 2026-03-01 12:00:00 Runs like this one" in text
    # What each gave: the first one is selected.
    assert (
        f"Failed Weather in <b>Oslo</b>? timeout after 7 s 100% alike · same question · same tools · same errors {ago(NOON)}"
        in text
    )
    assert "Done Weather in Rome? 62% alike · similar question · same tools" in text
    assert "1 tool call 1 failed · Weather in <b>Oslo</b>? Likeness 100% same question same tools same errors" in text
    fine = Message.objects.get(external_id="fine")
    selected = staff.get(f"{page_of(run)}?run={fine.pk}")
    assert f'href="?run={fine.pk}#selected" aria-current="true"' in html_of(selected)
    assert "1 tool call · Weather in Rome? Likeness 62% similar question same tools" in text_of(selected)
    # Why it went another way, with the place in the comparison.
    assert "First difference This run search timeout after 31 s The selected run search x" in text_of(selected)
    assert links_of(selected)["First difference"].startswith(
        f"/admin/messages_app/message/{run}/compare/?other={fine.pk}&at="
    )
    assert links_of(selected)["Compare"] == f"/admin/messages_app/message/{run}/compare/?other={fine.pk}"
    assert "Compared with the newest 2 other runs of this project." in text
    assert "&lt;b&gt;Oslo" in html_of(page)
    assert links_of(page)["Compare"] == f"/admin/messages_app/message/{run}/compare/?other={same.pk}"
    assert "≠ 0" not in text_of(staff.get(links_of(page)["Compare"]))


def test_failed_run_leads_to_failures_like_it(staff: Client, run: UUID) -> None:
    page = staff.get(links_of(staff.get(f"/admin/messages_app/message/{run}/change/"))["Failures like this one"])
    text = text_of(page)
    assert "Failed Weather in <b>Oslo</b>? timeout after 7 s 100% alike · same question" in text
    assert "Weather in Rome?" not in text
    # What they have in common, not what else differs.
    assert "First difference" not in text
    assert "Failures This run search timeout after 31 s The selected run search timeout after 7 s Answer" in text
    fine = Message.objects.get(external_id="fine").pk
    assert "Failures like this one" not in text_of(staff.get(page_of(fine)))
    assert "No other run of this project failed" in text_of(staff.get(f"{page_of(fine)}?by=errors"))


def test_trash_is_not_compared(staff: Client, run: UUID) -> None:
    writes.delete_message(primary, Message.objects.get(external_id="same").pk, by="ada")
    assert "100%" not in text_of(staff.get(page_of(run)))
    writes.delete_message(primary, run, by="ada")
    assert staff.get(page_of(run)).status_code == 302
    assert "Runs like this one" not in links_of(staff.get(f"/admin/messages_app/message/{run}/change/"))


def test_page_of_similar_runs_needs_permission(client: Client, run: UUID) -> None:
    client.force_login(User.objects.create_user("eve", is_staff=True))
    assert client.get(page_of(run)).status_code == 403


def test_page_of_similar_runs_takes_constant_queries(staff: Client, project: Project, run: UUID) -> None:
    before = len(statements_of(staff, page_of(run)))
    for number in range(15):
        asked(project, f"m{number}", NOON, "Weather in Oslo?", (f"tool {number}", "timeout"))
    assert len(statements_of(staff, page_of(run))) == before <= 25
