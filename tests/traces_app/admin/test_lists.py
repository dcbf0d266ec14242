"""Lists of the admin: their orders, facets, typed filters, and the panel of a row."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags

from access_app.db import primary
from access_app.models import Project, Role
from access_app.roles import grant_role
from messages_app import writes
from messages_app.admin import row_pages
from messages_app.admin.filters import BeganFilter, CreatedFilter
from messages_app.admin.typed_filters import typed_filters
from messages_app.models import Message, Session
from tests.admin_pages import html_of, links_of, rows_of, text_of
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.admin import facets, search_page
from traces_app.admin.filters import MessageAgentFilter, OutcomeFilter
from traces_app.admin.list_filters import CostFilter, DurationFilter
from traces_app.ingest.scores import PlacedScore, store_scores
from traces_app.models import ToolCall
from traces_app.queries.runs.outcome import Outcome
from traces_app.queries.scores import find_place
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.redaction.rules import DEFAULT_RULES

pytestmark = pytest.mark.django_db
SESSIONS, MESSAGES = "/admin/messages_app/session/", "/admin/messages_app/message/"
CALLS = "/admin/traces_app/toolcall/"
RUNS = f"{MESSAGES}?role=assistant"
SECOND = timedelta(seconds=1)


@pytest.fixture
def runs(project: Project) -> dict[str, str]:
    """Three runs of two agents; each name is the question, the session and its title."""
    found = {}
    for minute, (name, agent, error, cost, duration) in enumerate(
        (
            ("cheap", "planner", "", 0.5, 900),
            ("dear", "order desk", "no <b>account", 7.25, 300),
            ("unknown", "planner", "", None, None),
        )
    ):
        call: dict[str, Any] = {
            "name": f"tool_{name}",
            "args": {},
            "result": {"error": error} if error else {"output": "ok"},
        }
        step = {"thought": f"I think of {name}.", "agent_name": agent, "cost": cost, "tool_calls": [call]}
        at = NOON + timedelta(minutes=minute)
        run = answer(
            content=f"{name} **answer**", agent_steps=[step], duration=duration, usage=None, created_at=at + SECOND
        )
        outcome = store(
            project,
            question(content=name, created_at=at),
            run,
            created_at=at,
            external_id=name,
            title=name,
            end_user=f"user-{name}",
        )
        found[name] = str(outcome.messages[1].id)
    return found


def names_in(client: Client, url: str) -> list[str]:
    return [re.split(r"\W", row[0])[0] for row in rows_of(client.get(url))]


# --- Orders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [RUNS, f"{SESSIONS}?project=owner"])
@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("cost", ["dear", "cheap", "unknown"]),
        ("duration", ["cheap", "dear", "unknown"]),
        ("failures", ["dear", "unknown", "cheap"]),
        ("", ["unknown", "dear", "cheap"]),
    ],
)
def test_lists_are_sorted_with_the_unknown_last(
    staff: Client, runs: dict[str, str], url: str, order: str, expected: list[str]
) -> None:
    assert names_in(staff, f"{url}&order={order}" if order else url) == expected


def test_header_leads_to_the_order_of_its_column(staff: Client, runs: dict[str, str]) -> None:
    page = staff.get(RUNS)
    assert links_of(page)["Cost"] == "?order=cost&role=assistant"
    assert 'aria-sort="descending"><div class="text"><a href="?order=cost&amp;role=assistant">Cost' in html_of(
        staff.get(f"{RUNS}&order=cost")
    )
    assert "Most expensive first, of the newest 10,000" in text_of(staff.get(f"{RUNS}&order=cost"))


def test_sorted_list_has_pages(staff: Client, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces_app.admin.message_admin.MessageAdmin.list_per_page", 2)
    first = staff.get(f"{RUNS}&order=cost")
    assert links_of(first)["Older →"] == "?cursor=2&order=cost&role=assistant"
    second = f"{RUNS}&order=cost&cursor=2"
    assert names_in(staff, second) == ["unknown"]
    assert links_of(staff.get(second))["← Newer"] == "?cursor=1&order=cost&role=assistant"
    for wrong in ("0", "x", "\u0662", "9" * 30):
        answer = staff.get(f"{RUNS}&order=cost&cursor={wrong}", follow=True)
        assert "Invalid filter" in text_of(answer), wrong
    monkeypatch.setattr(row_pages, "SORTED_ROWS", 1)
    assert names_in(staff, f"{RUNS}&order=cost") == ["unknown"], "only the newest are sorted"


# --- Facets -----------------------------------------------------------------------------------------------------------


def facets_of(client: Client, query: str, url: str = MESSAGES) -> dict[str, dict[str, int]]:
    html = html_of(client.get(f"{url}facets/{query}"))
    found = {}
    for name, section in re.findall(r'<section data-parameter="(\w+)">(.*?)</section>', html, re.DOTALL):
        values = re.findall(r'data-value="([^"]*)"[^>]*><bdi>.*?</bdi> <span>(\d+)</span>', section)
        found[name] = {value: int(count) for value, count in values}
    return found


def test_facets_count_the_values_within_the_other_filters(staff: Client, runs: dict[str, str]) -> None:
    all_ = facets_of(staff, "?role=assistant")
    assert all_["outcome"] == {"failed": 1, "done": 2}
    assert all_["agent"] == {"planner": 2, "order desk": 1}
    assert all_["tool"] == {"tool_cheap": 1, "tool_dear": 1, "tool_unknown": 1}
    assert all_["end_user"] == {"user-cheap": 1, "user-dear": 1, "user-unknown": 1}
    of_planner = facets_of(staff, "?role=assistant&agent=planner")
    assert of_planner["outcome"] == {"done": 2}
    assert of_planner["agent"] == {"planner": 2, "order desk": 1}, "the values that one can change to"
    assert facets_of(staff, "", SESSIONS)["outcome"] == {"failed": 1, "done": 2}
    assert facets_of(staff, "?status=error", CALLS)["tool"] == {"tool_dear": 1}


def test_facet_folds_all_but_its_most_frequent_values(staff: Client, project: Project) -> None:
    for number in range(facets.VALUES_SHOWN + 3):
        store(project, question(), external_id=f"s{number}", end_user=f"user {number:02}")
    store(project, question(external_id="again"), external_id="s again", end_user="user 10")
    html = html_of(staff.get(f"{SESSIONS}facets/"))
    assert len(facets_of(staff, "", SESSIONS)["end_user"]) == facets.VALUES_SHOWN + 3
    shown, folded = html.split('data-parameter="end_user"')[1].split("<details><summary>3 more</summary>")
    assert shown.index("user 10") < shown.index("user 00")
    assert re.findall(r"<bdi>([^<]+)</bdi>", folded) == ["user 07", "user 08", "user 09"]
    assert html.count("<details>") == 1


def test_facets_of_sessions_count_them_by_what_is_below(
    staff: Client, runs: dict[str, str], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = answer(
        external_id="again", created_at=NOON + 60 * SECOND, agent_steps=[{"agent_name": "planner", "model": "m"}]
    )
    store(project, again, external_id="cheap")
    deleted = store(
        project, answer(external_id="x", agent_steps=[{"agent_name": "spy"}]), external_id="cheap"
    ).messages[0]
    assert deleted.id is not None
    writes.delete_message(primary, deleted.id, by="ada")
    found = facets_of(staff, "", SESSIONS)
    assert found["agent"] == {"planner": 2, "order desk": 1}
    assert found["tool"] == {"tool_cheap": 1, "tool_dear": 1, "tool_unknown": 1}
    assert found["model"] == {"m": 1}
    for name in ("agent", "tool", "model"):
        for value, count in found[name].items():
            assert len(rows_of(staff.get(SESSIONS, {name: value}))) == count
    monkeypatch.setattr(facets, "COUNTED_MESSAGES", 6)
    assert "agent" not in facets_of(staff, "", SESSIONS)


def test_facets_sum_the_list_and_lead_to_it(
    staff: Client, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = staff.get(f"{MESSAGES}facets/?role=assistant&agent=planner")
    assert "2 in all · ≥ $0.5000" in text_of(page)
    assert "3 in all · 1 failed · ≥ $7.75" in text_of(staff.get(f"{MESSAGES}facets/?role=assistant"))
    assert text_of(staff.get(f"{CALLS}facets/?status=error")).startswith("1 in all Status"), "said once"
    html = html_of(page)
    assert 'href="?agent=planner&amp;outcome=done&amp;role=assistant" data-value="done"' in html
    assert 'href="?role=assistant" data-value="planner" aria-current="true"' in html
    monkeypatch.setattr(facets, "COUNTED_ROWS", 2)
    assert "the newest 2 · 1 failed" in text_of(staff.get(f"{MESSAGES}facets/?role=assistant"))
    # One failed, but that is not the number of the facet, whose other values are of all runs.
    words = text_of(staff.get(f"{MESSAGES}facets/?role=assistant&outcome=failed"))
    assert words.startswith("1 in all") and "Outcome of the newest 2 " in words
    assert staff.get(f"{MESSAGES}facets/?outcome=odd").status_code == 204


def test_facets_are_those_of_readable_projects(runs: dict[str, str], project: Project) -> None:
    store(Project.objects.create(slug="elsewhere"), answer(agent_steps=[{"agent_name": "spy"}]))
    user = User.objects.create_user("reader", is_staff=True)
    grant_role(project, user, Role.ANALYST)
    reader = Client()
    reader.force_login(user)
    assert set(facets_of(reader, "?role=assistant")["agent"]) == {"planner", "order desk"}


# --- Typed filters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rest", "found"),
    [
        ("refund outcome:failed now", "refund now", {"outcome": "failed"}),
        ('agent:"order desk" x', "x", {"agent": "order desk"}),
        ("cost:>0.01", "", {"min_cost": "0.01"}),
        ("cost:<=2 created:today", "", {"max_cost": "2", "created": "today"}),
        ("cost:1", "", {"min_cost": "1", "max_cost": "1"}),
        ("duration:>1.5s", "", {"min_duration": "1500"}),
        ("duration:<2min", "", {"max_duration": "120000"}),
        ("error:timeout https://x.example a:b", "error:timeout https://x.example a:b", {}),
        ('"outcome: failed"  twice', '"outcome: failed"  twice', {}),
        ("tool:x outcome:", "tool:x outcome:", {}),
    ],
)
def test_typed_names_become_filters(text: str, rest: str, found: dict[str, str]) -> None:
    filters = [OutcomeFilter, MessageAgentFilter, CostFilter, DurationFilter, CreatedFilter, BeganFilter]
    assert typed_filters(text, filters, {"error", "tool"}) == (rest, found)


def test_list_goes_on_to_its_typed_filters(staff: Client, runs: dict[str, str]) -> None:
    typed = staff.get(MESSAGES, {"role": "assistant", "q": 'end_user:"user-dear" cost:>1'})
    assert typed.status_code == 302
    assert typed["Location"] == f"{MESSAGES}?role=assistant&end_user=user-dear&min_cost=1"
    assert names_in(staff, typed["Location"]) == ["dear"]


# --- The panel --------------------------------------------------------------------------------------------------------


def test_panel_says_how_a_run_ended_and_why(staff: Client, runs: dict[str, str]) -> None:
    failed = staff.get(f"{MESSAGES}{runs['dear']}/peek/")
    words = text_of(failed)
    assert "Failed" in words and "$7.25" in words
    assert "Why it failed no <b>account" in words
    assert "Failed calls 0 tool_dear no <b>account" in words
    assert "<strong>answer</strong>" in html_of(failed)
    good = text_of(staff.get(f"{MESSAGES}{runs['cheap']}/peek/"))
    assert "Done" in good and "Why it failed" not in good and "Failed calls" not in good


def test_panel_of_a_session_has_its_newest_runs(staff: Client, project: Project, runs: dict[str, str]) -> None:
    dear = Message.objects.get(pk=runs["dear"]).session
    words = text_of(staff.get(f"{SESSIONS}{dear.pk}/peek/"))
    assert words.startswith("Failed") and "user-dear" in words
    assert "Why it failed no <b>account" in words and "Newest runs Failed dear Answer dear answer" in words
    later = NOON + timedelta(hours=1)
    store(project, answer(external_id="a2", created_at=later, agent_steps=[]), external_id="dear")
    words = text_of(staff.get(f"{SESSIONS}{dear.pk}/peek/"))
    assert words.startswith("Done") and "Why it failed" not in words and "2 runs 1 failed call user-dear" in words
    assert "Newest runs Done dear Failed dear" in words
    asked = store(project, question(), external_id="asked", title="Only asked").id
    words = text_of(staff.get(f"{SESSIONS}{asked}/peek/"))
    assert "Only asked" in words and "Newest runs" not in words and "0 runs" not in words


def test_panel_of_a_call_has_its_values_and_run(staff: Client, runs: dict[str, str]) -> None:
    call = ToolCall.objects.get(message_id=runs["dear"])
    page = staff.get(f"{CALLS}{call.pk}/peek/")
    words = text_of(page)
    assert words.startswith("Error") and "tool_dear" in words
    assert "Error no <b>account" in words and "Run Failed dear" in words
    assert links_of(page)["tool_dear"] == f"{CALLS}{call.pk}/change/"


def test_panel_leads_to_deletion_and_back_to_the_list(staff: Client, runs: dict[str, str]) -> None:
    run = Message.objects.get(pk=runs["dear"])
    kept = "_changelist_filters=outcome%3Dfailed"
    for url, key in ((SESSIONS, run.session_id), (MESSAGES, run.pk)):
        page = staff.get(f"{url}{key}/peek/?{kept}")
        links = links_of(page)
        assert f'formaction="{url}{key}/delete/?{kept}" name="post" value="yes">Move to the trash<' in html_of(page)
        assert links["Open"] == f"{url}{key}/change/?{kept}"
    deleted = staff.post(f"{SESSIONS}{run.session_id}/delete/?{kept}", {"post": "yes"})
    assert deleted["Location"] == f"{SESSIONS}?outcome=failed"
    viewer, user = Client(), User.objects.create_user("viewer", is_staff=True)
    grant_role(run.project, user, Role.ANALYST)
    viewer.force_login(user)
    other = Message.objects.get(pk=runs["cheap"])
    assert "Move to the trash" in text_of(staff.get(f"{SESSIONS}{other.session_id}/peek/"))
    assert "Move to the trash" not in text_of(viewer.get(f"{SESSIONS}{other.session_id}/peek/"))
    call = ToolCall.objects.get(message=other)
    assert "Move to the trash" not in text_of(staff.get(f"{CALLS}{call.pk}/peek/"))
    Message.objects.filter(pk=other.pk).update(is_completed=False)
    assert links_of(staff.get(f"{MESSAGES}{other.pk}/peek/"))["Delete"].startswith(f"{MESSAGES}{other.pk}/delete/")


def test_panel_is_of_readable_projects(staff: Client, runs: dict[str, str]) -> None:
    user = User.objects.create_user("reader", is_staff=True)
    grant_role(Project.objects.create(slug="elsewhere"), user, Role.VIEWER)
    reader = Client()
    reader.force_login(user)
    run = Message.objects.get(pk=runs["dear"])
    call = ToolCall.objects.get(message=run)
    for panel in (f"{MESSAGES}{run.pk}/peek/", f"{SESSIONS}{run.session_id}/peek/", f"{CALLS}{call.pk}/peek/"):
        assert (staff.get(panel).status_code, reader.get(panel).status_code) == (200, 404)


def place_score(project: Project, **fields: Any) -> None:
    record = records.Score(**fields)
    place = find_place(primary, project.pk, record)
    store_scores(primary, project.pk, [PlacedScore(redacted=redact_score(record, DEFAULT_RULES), place=place)])


# --- What tells runs apart --------------------------------------------------------------------------------------------


def about_runs(page: Any) -> dict[str, str]:
    """Return the lines below the names of the sessions, by these."""
    cells = re.findall(r'<td class="field-in_session"><a [^>]+>(.*?)</a>(.*?)</td>', html_of(page))
    return {name: unescape(re.sub("<[^>]+>", "", line)).strip() for name, line in cells}


def test_rows_of_runs_say_what_is_not_the_same_in_all(staff: Client, project: Project) -> None:
    def stored(name: str, agents: list[str], tags: list[str], user: str = "eve") -> None:
        steps = [{"agent_name": agent, "model": "m1"} for agent in agents]
        run = answer(external_id=f"a {name}", agent_steps=steps)
        store(project, run, external_id=name, title=name, end_user=user, tags=tags)

    stored("one", ["<b>planner", "writer", "tester"], ["prod"])
    stored("two", ["writer"], [])
    place_score(project, name="score 1", message_id="a two", session_id="two", value=False)
    place_score(project, name="score 2", session_id="two", value=0.5)
    # All have one model and one end user. A score of a session is of its newest run.
    assert about_runs(staff.get(RUNS)) == {
        "one": "<b>planner, tester +1 · #prod",
        "two": "score 2: 0.5, score 1: no · writer",
    }
    panel = text_of(staff.get(f"{MESSAGES}{Message.objects.get(external_id='a one').pk}/peek/"))
    assert "one eve <b>planner tester writer m1 #prod" in panel
    assert about_runs(staff.get(f"{RUNS}&session=two")) == {"two": "eve · score 2: 0.5, score 1: no · writer · m1"}
    stored("three", ["writer"], [], "bob")
    assert about_runs(staff.get(f"{RUNS}&order=cost"))["three"] == "bob · writer"
    later = answer(external_id="later", created_at=NOON + 60 * SECOND, agent_steps=[{"agent_name": "editor"}])
    store(project, later, external_id="two")
    of_two = html_of(staff.get(f"{RUNS}&session=two"))
    lines = re.findall('<span class="second-line quiet">([^<]*(?:writer|editor)[^<]*)<', of_two)
    assert lines == ["score 2: 0.5 · editor", "score 1: no · writer · m1"]
    assert "writer" not in text_of(staff.get(MESSAGES))


# --- The search of everything -----------------------------------------------------------------------------------------


def test_search_finds_in_all_lists(staff: Client, runs: dict[str, str]) -> None:
    url = f"{SESSIONS}everything/"
    assert "Sessions" not in text_of(staff.get(url)).split("Search for words")[1]
    page = staff.get(url, {"q": "dear"})
    words = text_of(page)
    assert all(f"{name} 1" in words for name in ("Sessions", "Runs", "Failed calls", "Tool calls"))
    assert links_of(page)["Tool calls"].endswith("/toolcall/?q=dear")
    assert f'href="{MESSAGES}?q=dear&amp;role=assistant"' in html_of(page)
    assert text_of(staff.get(url, {"q": "nowhere"})).count("Nothing found") == 1


def test_search_shows_names_before_tools_and_tools_before_the_rest(staff: Client, project: Project) -> None:
    def run(name: str, minute: int, asked: str, said: str, tool: str, title: str | None = None) -> None:
        at = timezone.now() - timedelta(hours=1) + timedelta(minutes=minute)
        call = {"id": "c", "name": tool, "args": {}, "result": {"output": "ok"}}
        steps = [{"iteration": 0, "tool_calls": [call]}]
        said_then = answer(external_id="a", content=said, created_at=at + SECOND, agent_steps=steps)
        store(project, question(content=asked, created_at=at), said_then, external_id=name, title=title)

    run("titled", -1, "Hello?", "The refund is on its way.", "look", title="Refund of order 5")
    run("asked", 0, "Where is my refund?", "The refund is on its way.", "look")
    run("tool", 1, "Where is my money?", "On its way.", "refund_order")
    run("said", 2, "Hello?", "A refund takes long.", "look")
    run("other", 3, "Good bye.", "Bye.", "look")
    page = html_of(staff.get("/admin/messages_app/session/everything/?q=refund"))
    assert "Titles and questions with the words come first" in page
    sessions = strip_tags(re.findall(r'<section class="found-in-list">(.*?)</section>', page, re.DOTALL)[0])
    assert sessions.find("Where is my refund?") < sessions.find("of order 5") < sessions.find("Where is my money?")
    for part in re.findall(r'<section class="found-in-list">(.*?)</section>', page, re.DOTALL)[:2]:
        places = [part.find(words) for words in ("Where is my refund?", "Where is my money?", "Hello?")]
        assert sorted(places) == places, part
        assert -1 not in places


def test_search_page_says_what_can_be_typed_and_what_lacks_the_words(staff: Client, runs: dict[str, str]) -> None:
    url = f"{SESSIONS}everything/"
    empty = staff.get(url)
    assert "error:timeout -retry" in text_of(empty) and "79e9becd" in text_of(empty)
    example = staff.get(f"{url}{links_of(empty)['error:timeout -retry']}")
    assert example.context["query"] == "error:timeout -retry"
    nothing = staff.get(url, {"q": "nowhere OR dear"})
    assert "Nothing found. All words must occur. Search for one of them: nowhere · dear" in text_of(nothing)
    assert "Sessions 1" in text_of(staff.get(f"{url}{links_of(nothing)['dear']}"))
    assert "Search at any time" not in links_of(nothing)
    today = staff.get(url, {"q": "dear", "created": "yesterday", "outcome": "failed"})
    assert links_of(today)["Search at any time"] == "?q=dear&outcome=failed"


def test_search_leads_to_all_that_it_found(
    staff: Client, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_page, "SHOWN", 2)
    page = staff.get(f"{SESSIONS}everything/", {"q": "answer"})
    assert "Runs 3" in text_of(page) and text_of(page).count("Show all 3") == 2
    assert "Nothing found in: Failed calls, Tool calls" in text_of(page)
    link = links_of(page)["Show all 3"]
    assert len(rows_of(staff.get(link))) == 3
    assert "3 in all" in text_of(staff.get(link.replace("/?", "/facets/?")))


def found_lists(page: Any) -> dict[str, str]:
    return dict(re.findall(r'<h2><a [^>]+>([^<]+)</a> <span class="quiet">([^<]+)<', html_of(page)))


def test_search_takes_the_filters_of_the_lists(staff: Client, runs: dict[str, str]) -> None:
    url = f"{SESSIONS}everything/"
    moved = staff.get(url, {"q": "answer outcome:failed cost:>1 created:7d"})
    assert moved["Location"] == "?q=answer&outcome=failed&min_cost=1&created=7d"
    page = staff.get(url, {"q": "dear", "outcome": "failed"})
    assert found_lists(page) == {"Sessions": "1", "Runs": "1", "Failed calls": "1", "Tool calls": "1"}
    assert links_of(page)["Failed calls"] == f"{CALLS}?q=dear&status=error"
    # The links keep the words and the other filters.
    assert links_of(page)["Any outcome"] == "?q=dear"
    assert links_of(page)["Today"] == "?q=dear&outcome=failed&created=today"
    assert 'aria-current="true">Failed<' in html_of(page) and 'class="chips"' not in html_of(page)
    assert found_lists(staff.get(url, {"q": "dear", "outcome": "done"})) == {}
    assert found_lists(staff.get(url, {"outcome": "failed", "created": "yesterday"})) == {}
    page = staff.get(url, {"agent": "planner", "q": "answer"})
    assert "agent planner ✕" in text_of(page)
    assert '<input type="hidden" name="agent" value="planner">' in html_of(page)


def test_search_leaves_out_lists_that_lack_a_filter(staff: Client, runs: dict[str, str]) -> None:
    url = f"{SESSIONS}everything/"
    page = staff.get(url, {"min_cost": "1"})
    assert found_lists(page) == {"Sessions": "1", "Runs": "1"}
    assert "Not searched, because they lack one of the filters: Failed calls, Tool calls" in text_of(page)
    assert found_lists(staff.get(url, {"q": "dear", "status": "error"})) == {"Failed calls": "1", "Tool calls": "1"}
    assert found_lists(staff.get(url, {"q": "dear", "status": "success"})) == {}
    stopped = text_of(staff.get(url, {"q": "dear", "outcome": "stopped"}))
    assert "lack one of the filters: Failed calls, Tool calls" in stopped


def test_search_says_once_what_concerns_all_lists(staff: Client, runs: dict[str, str]) -> None:
    url = f"{SESSIONS}everything/"
    assert text_of(staff.get(url, {"q": '"dear'})).count("This quotation mark has no partner.") == 1
    # The messages are not indexed, which changes nothing of what is found.
    assert "Indexed up to" in text_of(staff.get(RUNS, {"q": "dear", "role": "assistant"}))
    assert "Indexed up to" not in text_of(staff.get(url, {"q": "dear"}))


def test_search_warns_of_filters_that_are_not_valid(staff: Client, runs: dict[str, str]) -> None:
    url = f"{SESSIONS}everything/"
    moved = staff.get(url, {"q": "dear", "outcome": "bogus"})
    assert moved["Location"] == f"{url}?q=dear"
    assert "Invalid filter: outcome “bogus”. Use one of: failed" in text_of(staff.get(moved["Location"]))
    assert "This page has no such filter: colour" in text_of(staff.get(url, {"q": "dear", "colour": "red"}))


# --- Outcomes of sessions, and filters that are not valid -----------------------------------------------------------------


def test_sessions_are_filtered_by_the_outcome_that_they_show(
    staff: Client, runs: dict[str, str], project: Project
) -> None:
    store(project, question(), external_id="asked", title="asked", status="paused")
    shown = {row[0].split()[0]: row[1] for row in rows_of(staff.get(f"{SESSIONS}?columns=name,state"))}
    for outcome in Outcome:
        found = names_in(staff, f"{SESSIONS}?outcome={outcome}")
        assert set(found) == {name for name, word in shown.items() if word == outcome.label}, outcome
    assert facets_of(staff, "", SESSIONS)["outcome"] == {"failed": 1, "done": 2, "waiting": 1}


def test_filter_that_is_not_valid_leaves_the_others(staff: Client, runs: dict[str, str]) -> None:
    answer = staff.get(f"{RUNS}&q=dear&outcome=failde")
    assert answer["Location"] == f"{MESSAGES}?role=assistant&q=dear"
    assert "Invalid filter: outcome “failde”. Use one of: failed, waiting" in text_of(staff.get(answer["Location"]))


def test_session_without_a_title_is_named_by_its_first_question(staff: Client, project: Project) -> None:
    at, asked = timezone.now() - 9 * SECOND, "Where is my order 2041?"
    failed = answer(created_at=at + SECOND, error="no order")
    store(project, question(content=asked, created_at=at), failed, external_id="chat-7", end_user="ada")
    store(project, question(external_id="q2", content="And?", created_at=at + 2 * SECOND), external_id="chat-7")
    place_score(project, name="solved", value=False, session_id="chat-7")
    session = Session.objects.get()
    tool = ToolCall.objects.order_by("-duration_ms")[0].tool_id
    for url in (
        *("/admin/", SESSIONS, MESSAGES, CALLS, "/admin/traces_app/score/"),
        *(f"{MESSAGES}{session.last_run_id}/change/", f"/admin/traces_app/tool/{tool}/change/"),
        f"{SESSIONS}user/?end_user=ada",
    ):
        links = links_of(staff.get(url))
        assert (url, asked in " ".join(links), "chat-7" in links) == (url, True, False)
    assert f"<title>{asked}" in html_of(staff.get(f"{SESSIONS}{session.pk}/change/"))
