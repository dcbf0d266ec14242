"""The search within a session on its page: where each term is, and links that open there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from access_app.db import primary
from access_app.models import Project
from messages_app.sql.pagination import Cursor
from tests.admin_pages import html_of, links_of, statements_of, text_of
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.admin import session_search
from traces_app.ingest.batch import SessionOutcome
from traces_app.maintenance.search_index import index_changed
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.search import found, in_session

PASSAGE = {"id": "r1", "knowledge_title": "Refund handbook", "content": "Pay within 3 days.", "score": 0.5}


@pytest.fixture
def session(project: Project) -> SessionOutcome:
    store(project, question(), answer(), external_id="other")  # has the same words
    later = question(external_id="q2", content="And <b>Osaka</b>, 上海?", created_at=NOON + timedelta(minutes=1))
    return store(project, question(), answer(knowledge_references=[PASSAGE]), later)


def page_of(session: SessionOutcome) -> str:
    return f"/admin/messages_app/session/{session.id}/change/"


def search_of(client: Client, session: SessionOutcome, query: str, **others: Any) -> session_search.SessionSearch:
    context = client.get(page_of(session), {"q": query, **others}).context
    answered = context["search"]
    assert isinstance(answered, session_search.SessionSearch)
    return answered


@pytest.mark.parametrize("indexed", [True, False])
def test_search_leads_to_each_place(staff: Client, session: SessionOutcome, indexed: bool) -> None:
    if indexed:
        index_changed(primary)
    asked, answered, later = (message.id for message in session.messages)
    call = ToolCall.objects.get(message_id=answered, result__error="unknown city")
    step = AgentStep.objects.get(message_id=answered, thought__startswith="Ask for both")
    run = f"/admin/messages_app/message/{answered}/change/"
    for query, number, label, url in (
        ('"what is the weather"', 1, "Content", f"{page_of(session)}#message-{asked}"),
        ("error:unknown", 2, "Step 0 · get_weather · Error", f"{run}?call={call.pk}#call-{call.pk}"),
        ('"both cities"', 2, "Step 0 · Thought", f"{run}?call={step.pk}#step-{step.pk}"),
        ("handbook", 2, "Reference", f"{run}#references"),
        ("上海 osaka", 3, "Content", f"{page_of(session)}#message-{later}"),
    ):
        page = staff.get(page_of(session), {"q": query})
        assert [one.number for one in page.context["search"].messages] == [number]
        assert links_of(page)[label] == url
        assert staff.get(url).status_code == 200
    found = html_of(page).partition('<section id="conversation">')[2]
    assert "<mark>Osaka</mark>" in found and "<b>" not in found
    assert "Nothing matches." in text_of(staff.get(page_of(session), {"q": "absent"}))


def test_fault_of_query_or_cursor_is_said(staff: Client, session: SessionOutcome) -> None:
    page = staff.get(page_of(session), {"q": 'say "refund'})
    assert "Character 5: This quotation mark has no partner." in text_of(page)
    assert "Invalid cursor." in search_of(staff, session, "weather", found="x").error
    assert search_of(staff, session, "").error != ""


def test_matches_are_paged_in_reading_order(staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_session, "MESSAGES", 20)
    times = [NOON + timedelta(seconds=place) for place in range(55)]
    said = [{"external_id": f"m{at:%M%S}", "role": "user", "content": "refund", "created_at": at} for at in times]
    session = store(project, *said)
    first = search_of(staff, session, "refund")
    second = search_of(staff, session, "refund", found=first.next)
    third = search_of(staff, session, "refund", found=second.next)
    numbers = [[one.number for one in page.messages] for page in (first, second, third)]
    assert numbers == [list(range(1, 21)), list(range(21, 41)), list(range(41, 56))]
    assert (first.previous, third.next) == (None, None)
    back = search_of(staff, session, "refund", found=third.previous)
    assert [one.number for one in back.messages] == numbers[1]
    # A link opens the page of the conversation that begins with the message.
    url = list(third.messages)[-1].url
    assert staff.get(url).context["bubbles"][0].message.external_id == "m0054"


def test_long_search_stops_and_goes_on(staff: Client, session: SessionOutcome, monkeypatch: pytest.MonkeyPatch) -> None:
    index_changed(primary)
    monkeypatch.setattr(found, "SECONDS", 0.0)
    monkeypatch.setattr(found, "COMPARED_AT_A_TIME", 1)
    page, numbers, cursor = None, [], ""
    for _page in range(6):
        page = search_of(staff, session, "shanghai", **({"found": cursor} if cursor else {}))
        numbers += [one.number for one in page.messages]
        if page.next is None:
            break
        assert page.searched_to is not None
        cursor = page.next
    assert numbers == [1, 2]


def test_deleted_rows_are_not_found(staff: Client, session: SessionOutcome) -> None:
    staff.post(f"/admin/messages_app/message/{session.messages[0].id}/delete/", {"post": "yes"})
    assert [one.number for one in search_of(staff, session, "shanghai").messages] == [1]  # the answer is the first now
    staff.post(f"/admin/messages_app/session/{session.id}/delete/", {"post": "yes"})
    page = staff.get(page_of(session), {"q": "shanghai"})
    assert "search" not in page.context and "Search this session" not in html_of(page)


def test_search_takes_few_queries(staff: Client, session: SessionOutcome) -> None:
    index_changed(primary)
    plain = len(statements_of(staff, page_of(session)))
    assert len(statements_of(staff, f"{page_of(session)}?q=city")) <= plain + 19


@pytest.mark.parametrize("indexed", [True, False])
def test_title_of_the_session_is_not_a_place_in_it(staff: Client, project: Project, indexed: bool) -> None:
    session = store(project, question(), answer(), title="Kyoto weather")
    if indexed:
        index_changed(primary)
    assert search_of(staff, session, "kyoto").messages == []
    assert [one.number for one in search_of(staff, session, "shanghai -kyoto").messages] == [1, 2]


@pytest.mark.parametrize("indexed", [True, False])
def test_path_gets_the_rows_of_its_page(staff: Client, session: SessionOutcome, indexed: bool) -> None:
    if indexed:
        index_changed(primary)
    address = page_of(session).replace("change/", "search/")

    def found_rows(query: str, **others: Any) -> dict[str, str]:
        matches = staff.get(address, {"q": query, **others}).json()["matches"]
        return {match["id"]: match["places"][0]["field"] for match in matches}

    asked, answered, later = (str(message.id) for message in session.messages)
    call = str(ToolCall.objects.get(message_id=answered, result__error="unknown city").pk)
    step = str(AgentStep.objects.get(message_id=answered, thought__startswith="Ask for both").pk)
    assert found_rows('"what is the weather"') == {asked: "Content"}
    assert found_rows("error:unknown") == {call: "Error"}
    assert found_rows('"both cities"') == {step: "Thought"}
    assert found_rows("handbook") == {answered: "Reference"}
    assert found_rows("上海 osaka") == {later: "Content"}
    assert found_rows("osaka", newest="") == {later: "Content"}
    after = str(Cursor(position=UUID(asked), newer=True))
    assert found_rows('"what is the weather"', cursor=after) == {}
    assert "no partner" in staff.get(address, {"q": 'say "x'}).json()["error"]
    assert staff.get(address, {"q": "osaka", "cursor": "x"}).status_code == 400
    staff.post(f"/admin/messages_app/session/{session.id}/delete/", {"post": "yes"})
    assert staff.get(address, {"q": "osaka"}).status_code == 404
