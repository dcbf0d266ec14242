"""Search over HTTP: what is found, who finds it, and how odd searches are answered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.change_log import Reader, unread
from tests.traces_app.conftest import NOON, question, store
from tests.traces_app.views.conftest import Caller
from traces_app.ingest.batch import SessionOutcome
from traces_app.maintenance.search_index import index_changed

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["new", "indexed"])
def searched(request: pytest.FixtureRequest, weather: SessionOutcome) -> SessionOutcome:
    if request.param == "indexed":
        index_changed(primary, patience=timedelta(0))
        assert not unread(primary, Reader.SEARCH).exists()
    return weather


def found(caller: Caller, q: str, **parameters: Any) -> list[str]:
    return [result["message_id"] for result in caller.get("search/", q=q, **parameters).results]


def test_search_finds_texts_of_messages_steps_calls_and_results(owner: Caller, searched: SessionOutcome) -> None:
    asked, answered = (str(message.id) for message in searched.messages)
    assert found(owner, "weather in shanghai") == [asked]
    assert found(owner, "atlantis") == [answered, asked]
    assert found(owner, "ATLANTIS -weather") == []
    assert found(owner, "both cities") == [answered]
    assert found(owner, "上海") == [answered]
    assert found(owner, "error:city") == [answered]
    assert found(owner, "error:cities") == []
    assert found(owner, 'tool:researcher "a myth" 31') == [answered]
    assert found(owner, "temp_c: 31") == [answered]
    assert found(owner, "3 1 hits -q") == []
    assert found(owner, "3 1 hits -z") == [answered]
    assert found(owner, "atlantis", role="user") == [asked]
    assert found(owner, "atlantis", tool="search", limit=1) == [answered]
    assert found(owner, "atlantis", created_before="2026-03-01") == []


def test_hits_tell_where_each_term_was_found(owner: Caller, searched: SessionOutcome) -> None:
    (result,) = owner.get("search/", q="UNKNOWN myth").results
    unknown, myth = result["hits"]
    assert (unknown["kind"], unknown["field"], unknown["before"], unknown["match"], unknown["after"]) == (
        "call",
        "error",
        "",
        "unknown",
        " city",
    )
    assert (myth["field"], myth["before"], myth["match"]) == ("output", "a ", "myth")
    call = owner.get(f"tool-calls/{unknown['id']}/").json
    assert call["args"] == {"city": "Atlantis"}


def test_lists_of_messages_and_calls_take_a_search(owner: Caller, searched: SessionOutcome) -> None:
    assert [one["id"] for one in owner.get("messages/", q="myth").results] == [str(searched.messages[1].id)]
    calls = owner.get("tool-calls/", q="atlantis").results
    assert {one["name"] for one in calls} == {"get_weather", "ask_researcher", "search"}
    assert [one["name"] for one in owner.get("tool-calls/", q="atlantis", status="error").results] == ["get_weather"]
    assert owner.get("tool-calls/", q="atlantis -myth tool:ask").results == []


def test_sessions_are_found_with_the_place_of_each_term(
    project: Project, owner: Caller, searched: SessionOutcome
) -> None:
    later = NOON + timedelta(days=1)
    store(
        project,
        question(content="Nothing.", created_at=later),
        external_id="other",
        title="A myth of ÅNGSTRÖM",
        created_at=later,
    )
    (other, weather) = owner.get("sessions/", q="myth").results
    assert (other["external_id"], weather["external_id"]) == ("other", "weather")
    assert [(hit["field"], hit["match"]) for hit in other["hits"]] == [("title", "myth")]
    (hit,) = weather["hits"]
    assert hit["url"] == f"http://testserver/api/v1/tool-calls/{hit['id']}/"
    assert owner.client.get(hit["url"]).json()["message_id"] == hit["message_id"]
    page = f"/admin/messages_app/message/{hit['message_id']}/change/?call={hit['id']}#call-{hit['id']}"
    assert hit["page"] == f"http://testserver{page}"
    answer = owner.get("sessions/", q="title:ångström", fields="id").json
    assert [sorted(one) for one in answer["results"]] == [["hits", "id"]]
    assert answer["searched_to"] is None
    assert [one["id"] for one in owner.get("sessions/", q="atlantis -title:myth").results] == [weather["id"]]
    assert owner.get("sessions/", q="atlantis", has_errors="false").results == []
    # Another title is found in its messages, too, whoever gives it.
    owner.patch("sessions/other/", {"title": "Legends"})
    assert owner.get("sessions/", q="ångström").results == []
    assert len(owner.get("messages/", q="title:legends").results) == 1
    index_changed(primary, patience=timedelta(0))
    for ways in ("live", "import"):
        store(project, question(external_id=ways), external_id="other", title=f"Titled by {ways}", source=ways)
        assert len(owner.get("messages/", q=f'title:"by {ways}" nothing').results) == 1
        index_changed(primary, patience=timedelta(0))


def test_pages_of_sessions_follow_each_other_both_ways(project: Project, owner: Caller) -> None:
    for number in range(9):
        for day in (number, number + 40):
            at = NOON + timedelta(days=day)
            store(project, question(external_id=str(day), created_at=at), external_id=f"s{number}")
        if number == 5:
            index_changed(primary, patience=timedelta(0))
    page = owner.get("sessions/", q="atlantis", limit=4).json
    pages = [[one["id"] for one in page["results"]]]
    while page["next"]:
        page = owner.get("sessions/", q="atlantis", limit=4, cursor=page["next"]).json
        pages.append([one["id"] for one in page["results"]])
    assert [len(one) for one in pages] == [4, 4, 1]
    assert sum(pages, []) == sorted(sum(pages, []), reverse=True)
    page = owner.get("sessions/", q="atlantis", limit=4, cursor=page["previous"]).json
    assert [one["id"] for one in page["results"]] == pages[1]
    assert [one["id"] for one in owner.get("sessions/", q="atlantis", order="asc", limit=9).results] == sorted(
        sum(pages, [])
    )


def test_texts_of_events_are_found(owner: Caller, project: Project) -> None:
    event = {"session_id": "eko", "timestamp": 1_772_366_400_000}
    events = [
        {**event, "type": "agent_start", "id": "e1", "data": {"task": "Water the orchids"}},
        {**event, "type": "tool_call_start", "id": "e2", "data": {"call_id": "c1", "name": "hose", "args": {"l": 7}}},
    ]
    assert owner.post("events/", {"events": events}).status == 200
    (unindexed,) = owner.get("search/", q="event:orchids").results
    index_changed(primary, patience=timedelta(0))
    (indexed,) = owner.get("search/", q="event:orchids").results
    assert indexed == unindexed
    (hit,) = indexed["hits"]
    assert (hit["kind"], hit["before"], hit["match"]) == ("event", "task: Water the ", "orchids")
    # What calls say is not said twice.
    assert owner.get("search/", q="event:hose").results == []


def test_masked_values_are_found_nowhere(owner: Caller, project: Project) -> None:
    secret = "sk-proj-" + "Zq7" * 16
    store(project, question(content=f"My key is {secret}."), external_id="secret", title=f"About {secret}")
    for _way in ("new", "indexed"):
        for path in ("search/", "sessions/", "messages/"):
            assert owner.get(path, q=secret).results == []
            assert secret not in owner.get(path, q="my key is").body.decode()
        index_changed(primary, patience=timedelta(0))
    assert len(owner.get("search/", q="my key is").results) == 1


def test_pages_follow_each_other_both_ways(project: Project, owner: Caller) -> None:
    store(project, *(question(external_id=str(n), created_at=NOON + timedelta(days=n)) for n in range(9)))
    index_changed(primary, patience=timedelta(0))
    store(project, *(question(external_id=str(n), created_at=NOON + timedelta(days=n)) for n in range(9, 12)))
    page = owner.get("search/", q="atlantis", limit=5).json
    seen = [one["message_id"] for one in page["results"]]
    pages = [seen]
    while page["next"]:
        page = owner.get("search/", q="atlantis", limit=5, cursor=page["next"]).json
        pages.append([one["message_id"] for one in page["results"]])
    assert [len(one) for one in pages] == [5, 5, 2]
    assert sum(pages, []) == sorted(sum(pages, []), reverse=True)
    page = owner.get("search/", q="atlantis", limit=5, cursor=page["previous"]).json
    assert [one["message_id"] for one in page["results"]] == pages[1]


def test_nobody_finds_what_they_may_not_see(
    owner: Caller, viewer: Caller, outsider: Caller, searched: SessionOutcome
) -> None:
    assert len(found(viewer, "atlantis")) == 2
    assert found(outsider, "atlantis") == []
    for path in ("tool-calls/", "messages/", "sessions/"):
        assert len(viewer.get(path, q="atlantis").results) > 0
        assert outsider.get(path, q="atlantis").results == []
    assert searched.id is not None
    writes.delete_session(primary, searched.id, by="ada")
    for path in ("search/", "tool-calls/", "messages/", "sessions/"):
        assert owner.get(path, q="atlantis").results == []
    assert len(found(owner, "atlantis", deleted="true")) == 2
    assert len(owner.get("sessions/", q="atlantis", deleted="true").results) == 1
    writes.restore_session(primary, searched.id)
    assert len(found(owner, "atlantis")) == 2


def test_changed_text_is_found_as_it_is_now(owner: Caller, searched: SessionOutcome) -> None:
    message = searched.messages[1]
    version = owner.get(f"messages/{message.id}/").json["version"]
    assert owner.patch(f"messages/{message.id}/", {"content": "It is snowing.", "version": version}).status == 200
    assert found(owner, "snowing") == [str(message.id)]
    assert found(owner, "there is no atlantis") == []
    index_changed(primary, patience=timedelta(0))
    assert found(owner, "snowing") == [str(message.id)]
    assert found(owner, "there is no atlantis") == []


@pytest.mark.parametrize("q", ["", "a", '"', "x\0y", "-abc", "a" * 2_000, "ab " * 10_000])
def test_bad_search_is_refused_with_its_field(owner: Caller, q: str) -> None:
    assert owner.get("search/", q=q).error == (400, "invalid_input", "q")


def test_search_of_a_numbered_page_is_refused(owner: Caller) -> None:
    assert owner.get("messages/", q="abc", page=2).error == (400, "invalid_input", "q")


@pytest.mark.parametrize("q", ["(a+)+$", "%_%", "\u202e\u200bab", "' OR 1=1 //", "中" * 500, "ſſ", "[[[[", "\\\\"])
def test_hostile_search_is_answered(owner: Caller, searched: SessionOutcome, q: str) -> None:
    for path in ("search/", "sessions/", "messages/", "tool-calls/"):
        assert owner.get(path, q=q).results == []
