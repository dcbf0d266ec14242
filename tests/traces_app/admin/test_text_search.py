"""The search of the lists of sessions, messages and calls finds what they say."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client

from access_app.db import primary
from access_app.models import Project
from messages_app.change_log import Reader, unread
from tests.admin_pages import html_of, links_of, rows_of, statements_of, text_of
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.maintenance.search_index import index_changed
from traces_app.queries.search import found

pytestmark = pytest.mark.django_db
SESSIONS, MESSAGES = "/admin/messages_app/session/", "/admin/messages_app/message/"
CALLS = "/admin/traces_app/toolcall/"


@pytest.fixture(params=["new", "indexed"], autouse=True)
def weather(request: pytest.FixtureRequest, project: Project) -> None:
    store(project, question(), answer(), title="The weather")
    if request.param == "indexed":
        index_changed(primary, patience=timedelta(0))


def test_lists_find_the_error_that_is_on_the_screen(admin_client: Client) -> None:
    assert len(rows_of(admin_client.get(SESSIONS, {"q": "unknown city"}))) == 1
    (message,) = rows_of(admin_client.get(MESSAGES, {"q": "unknown city"}))
    assert "Atlantis" in message[0]
    (call,) = rows_of(admin_client.get(CALLS, {"q": "error:unknown"}))
    assert "get_weather" in call
    assert rows_of(admin_client.get(CALLS, {"q": "error:unknown", "status": "success"})) == []
    # Names and ids as before.
    assert len(rows_of(admin_client.get(MESSAGES, {"q": "q1"}))) == 1
    assert len(rows_of(admin_client.get(CALLS, {"q": "call_d"}))) == 1
    assert len(rows_of(admin_client.get(MESSAGES, {"q": "The weather"}))) == 2
    nothing = admin_client.get(MESSAGES, {"q": "weather zzz"})
    assert "All words must occur. Search for one of them: weather · zzz" in text_of(nothing)
    assert links_of(nothing)["weather"] == "?q=weather"


def test_rows_show_where_the_terms_are(admin_client: Client) -> None:
    for url in (SESSIONS, MESSAGES, CALLS):
        columns = {"columns": "tool_name"} if url == CALLS else {}  # its errors say it themselves
        page = admin_client.get(url, {"q": 'unknown "get_wea"', **columns})
        assert "Error: unknown city" in text_of(page)
        assert "<mark>unknown</mark>" in page.content.decode()
        (place,) = {link for name, link in links_of(page).items() if name.startswith("Error:")}
        path, anchor = place.split("#")
        assert f'id="{anchor}"' in admin_client.get(path).content.decode()
        assert "field-found" not in admin_client.get(url).content.decode()
        is_unindexed = unread(primary, Reader.SEARCH).exists()
        assert ("newer messages were read directly" in text_of(page)) is is_unindexed


def test_text_that_has_several_terms_is_shown_once(admin_client: Client) -> None:
    marks = "<mark>there</mark> is no <mark>Atlantis</mark>"
    # Where rows show the text anyway, the terms are marked in it.
    answers = html_of(admin_client.get(MESSAGES, {"q": "there atlantis", "role": "assistant", "columns": "answer"}))
    assert (answers.count(marks), "field-found" in answers) == (1, False)
    sessions = html_of(admin_client.get(SESSIONS, {"q": "there atlantis"}))
    assert (sessions.count(marks), "field-found" in sessions) == (1, True)
    named = html_of(admin_client.get(SESSIONS, {"q": "title:weather"}))
    assert ("The <mark>weather</mark>" in named, "field-found" in named) == (True, False)
    failed = html_of(admin_client.get(CALLS, {"q": "error:unknown"}))
    assert ("<mark>unknown</mark> city" in failed, "field-found" in failed) == (True, False)


def test_column_of_places_is_there_if_it_says_something(admin_client: Client) -> None:
    by_name = admin_client.get(MESSAGES, {"q": "q1"})  # an external id
    assert len(rows_of(by_name)) == 1
    assert "field-found" not in html_of(by_name)
    assert "field-found" in html_of(admin_client.get(MESSAGES, {"q": "unknown"}))


@pytest.mark.parametrize("q", ["ab " * 10_000, "a" * 1_000_000, "x\0y", '"', "(a+)+$", "\u202eab", "' OR 1=1 --", "\\"])
def test_hostile_search_is_answered_or_explained(admin_client: Client, q: str) -> None:
    for url in (SESSIONS, MESSAGES, CALLS):
        page = admin_client.get(url, {"q": q})
        # Django leads away from U+0000, with a message.
        assert page.status_code == 200 or (page.status_code == 302 and "\0" in q)
        assert "\0" in q or rows_of(page) == []


def test_text_that_cannot_be_searched_is_explained(admin_client: Client) -> None:
    page = admin_client.get(MESSAGES, {"q": '"unknown'})
    assert "Only names and IDs were searched. Character 1: This quotation mark has no partner." in text_of(page)


def test_pages_of_found_messages_lead_both_ways(admin_client: Client, project: Project) -> None:
    times = [NOON + timedelta(days=number) for number in range(60)]
    store(project, *(question(external_id=f"m{number}", created_at=at) for number, at in enumerate(times)))
    first = admin_client.get(MESSAGES, {"q": "what is the weather"})
    assert len(rows_of(first)) == 50
    second = admin_client.get(MESSAGES + links_of(first)["Older →"])
    assert len(rows_of(second)) == 11
    again = admin_client.get(MESSAGES + links_of(second)["← Newer"])
    assert rows_of(again) == rows_of(first)


def test_search_that_takes_long_says_where_it_stopped(
    admin_client: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [NOON + timedelta(days=number) for number in range(1, 200)]
    store(project, *(question(external_id=f"m{number}", created_at=at) for number, at in enumerate(times)))
    monkeypatch.setattr(found, "SECONDS", -1.0)
    monkeypatch.setattr(found, "UNINDEXED_AT_A_TIME", 10)
    page = admin_client.get(MESSAGES, {"q": "there is no atlantis"})
    assert "The search took long and stopped at" in text_of(page)
    pages = 1
    while "Continue the search from there" in links_of(page):
        page = admin_client.get(MESSAGES + links_of(page)["Continue the search from there"])
        pages += 1
    assert pages > 3
    assert len(rows_of(page)) == 1
    everything = text_of(admin_client.get(f"{SESSIONS}everything/", {"q": "there is no atlantis"}))
    assert everything.count("The search took too long and was stopped.") == 1
    assert "Continue the search" not in everything and "Nothing found in" not in everything


def test_search_uses_a_bounded_number_of_queries(admin_client: Client, project: Project) -> None:
    times = [NOON + timedelta(minutes=number) for number in range(200)]
    store(project, *(question(external_id=f"m{number}", created_at=at) for number, at in enumerate(times)))
    for url in (SESSIONS, MESSAGES, CALLS):
        assert len(statements_of(admin_client, f"{url}?q=weather")) <= 56


def test_list_says_until_when_messages_are_indexed(admin_client: Client, project: Project) -> None:
    store(project, question(external_id="late"))
    page = text_of(admin_client.get(MESSAGES, {"q": "weather"}))
    assert re.search(r"Indexed up to \d{4}-\d\d-\d\d \d\d:\d\d:\d\d ?; newer messages were read directly.", page)
