"""The filter bar of the admin's lists: its filters, chips, columns and the same request to the API."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, time, timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access_app.db import primary
from access_app.models import Project, Role
from access_app.roles import grant_role
from messages_app.admin.time_zones import COOKIE
from messages_app.models import ListColumns, SavedView
from tests.admin_pages import html_of, links_of, rows_of, statements_of, text_of
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.scores import PlacedScore, delete_score, store_scores
from traces_app.models import Score, ToolCall
from traces_app.queries.scores import find_place
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.redaction.rules import DEFAULT_RULES

pytestmark = pytest.mark.django_db
SESSIONS, MESSAGES = "/admin/messages_app/session/", "/admin/messages_app/message/"
CALLS, SCORES, TOOLS = "/admin/traces_app/toolcall/", "/admin/traces_app/score/", "/admin/traces_app/tool/"
LISTS = (SESSIONS, MESSAGES, CALLS, SCORES, TOOLS)


@pytest.fixture
def runs(project: Project) -> dict[str, UUID]:
    """Two sessions, each a question and an answer of one step with one call, by another model and agent."""
    found: dict[str, UUID] = {}
    for name, model, agent, tags in (("good", "large", "planner", ["prod"]), ("poor", "small", "writer", [])):
        step = {"iteration": 0, "model": model, "agent_name": agent, "tool_calls": [{"name": f"{name}_tool"}]}
        outcome = store(
            project,
            question(external_id=f"{name}-q"),
            answer(external_id=f"{name}-a", request_id=name, content=f"{name} answer", agent_steps=[step], usage=None),
            external_id=name,
            title=name,
            tags=tags,
            end_user=f"user of {name}",
        )
        assert outcome.id is not None
        found[name] = outcome.id
    score(project, "helpful", 0.9, message_id="good-a", session_id="good")
    score(project, "helpful", 0.2, message_id="poor-a", session_id="poor")
    score(project, "solved", True, session_id="good")
    score(project, "exact", True, call_id=str(ToolCall.objects.get(tool__name="poor_tool").pk))
    return found


def score(project: Project, name: str, value: Any, **place: str) -> None:
    record = records.Score(name=name, value=value, **place)
    store_scores(
        primary,
        project.pk,
        [PlacedScore(redacted=redact_score(record, DEFAULT_RULES), place=find_place(primary, project.pk, record))],
    )


def api_of(page: Any) -> str:
    """Return the address of the request to the API that a list shows."""
    return unescape(re.findall(r'<a href="(/api/v1/(?!docs)[^"]*)">', html_of(page))[0])


@pytest.mark.parametrize(
    ("url", "query", "expected"),
    [
        (SESSIONS, "model=large", ["good"]),
        (SESSIONS, "model=larg", []),
        (SESSIONS, "agent=writer", ["poor"]),
        (SESSIONS, "model=large&agent=writer", []),
        (SESSIONS, "tool=poor_tool", ["poor"]),
        (SESSIONS, "score=helpful", ["good", "poor"]),
        (SESSIONS, "score=helpful&min_score=0.5", ["good"]),
        (SESSIONS, "score=helpful&max_score=0.5", ["poor"]),
        (SESSIONS, "min_score=0.95", ["good", "poor"]),
        (SESSIONS, "score=solved&min_score=1", ["good"]),
        (SESSIONS, "score=none", []),
        (SESSIONS, "min_duration=0&max_duration=999999999", ["good", "poor"]),
        (SESSIONS, "min_duration=999999999", []),
        (SESSIONS, "active_after=2026-03-01T12:00&has_errors=false", ["good", "poor"]),
        (SESSIONS, "active_before=2026-03-01T12:00", []),
        (SESSIONS, "status=completed&tag=prod&end_user=user%20of%20good", ["good"]),
        (MESSAGES, "model=large", ["good-a"]),
        (MESSAGES, "agent=writer&role=assistant", ["poor-a"]),
        (MESSAGES, "model=large&created_before=2026-03-01T12:00", []),
        (MESSAGES, "tag=prod", ["good-a", "good-q"]),
        (MESSAGES, "end_user=user%20of%20poor", ["poor-a", "poor-q"]),
        (MESSAGES, "score=helpful&max_score=0.2", ["poor-a"]),
        (MESSAGES, "score=solved", []),
        (MESSAGES, "score=exact", ["poor-a"]),
        (MESSAGES, "is_completed=true&has_errors=false&role=user", ["good-q", "poor-q"]),
        (CALLS, "model=large", ["good_tool"]),
        (CALLS, "agent=writer", ["poor_tool"]),
        (CALLS, "agent=writer&created_before=2026-03-01T12:00", []),
        (CALLS, "score=exact&min_score=1", ["poor_tool"]),
        (CALLS, "score=helpful", []),
    ],
)
def test_list_and_its_api_request_find_the_same_rows(
    staff: Client, runs: dict[str, UUID], url: str, query: str, expected: list[str]
) -> None:
    named = {SESSIONS: "named", MESSAGES: "named", CALLS: "tool_name"}[url]
    page = staff.get(f"{url}?{query}&columns={named}")
    assert sorted(row[-1] for row in rows_of(page)) == expected
    key = {SESSIONS: "external_id", MESSAGES: "external_id", CALLS: "name"}[url]
    assert sorted(row[key] for row in staff.get(api_of(page)).json()["results"]) == expected


def test_deleted_score_is_not_found(staff: Client, runs: dict[str, UUID]) -> None:
    delete_score(primary, Score.objects.get(name="solved").pk)
    assert rows_of(staff.get(f"{SESSIONS}?score=solved")) == []


@pytest.mark.parametrize(
    ("url", "query", "reason"),
    [
        (SESSIONS, "min_score=much", "score “much”"),
        (MESSAGES, "max_score=nan", "score “nan”"),
        (CALLS, "min_score=1e999", "score “1e999”"),
        (MESSAGES, "model=%00", "model “"),
        (SESSIONS, "min_duration=-1", "duration (ms) “-1”"),
    ],
)
def test_value_that_the_api_refuses_is_named(
    staff: Client, project: Project, url: str, query: str, reason: str
) -> None:
    assert f"Invalid filter: {reason}" in text_of(staff.get(f"{url}?{query}", follow=True))
    assert staff.get(f"/api/v1/{'tool-calls' if url == CALLS else 'sessions'}/?{query}").status_code == 400


def test_each_active_filter_is_a_chip_that_removes_it(staff: Client, runs: dict[str, UUID]) -> None:
    page = staff.get(
        SESSIONS,
        {
            "status": "completed",
            "score": "helpful",
            "min_score": "0.5",
            "q": "good",
            "columns": "name,user",
            "order": "activity",
        },
    )
    chips = re.findall(r'<span class="chip-label">(.*?)</span> <bdi>(.*?)</bdi> <a href="([^"]+)"', html_of(page))
    kept = {"columns": ["name,user"], "order": ["activity"]}
    given = {"status": ["completed"], "score": ["helpful"], "min_score": ["0.5"], "q": ["good"], **kept}
    assert [(label, text) for label, text, _without in chips] == [
        ("search", "good"),
        ("status", "completed"),
        ("score", "helpful ≥ 0.5"),
    ]
    without = [parse_qs(unescape(query)[1:]) for _label, _text, query in chips]
    assert without == [
        {name: value for name, value in given.items() if name != "q"},
        {name: value for name, value in given.items() if name != "status"},
        {name: value for name, value in given.items() if name not in ("score", "min_score")},
    ]
    assert parse_qs(links_of(page)["Clear all"][1:]) == kept
    assert "Newest first" in text_of(page)  # a search walks by the time at which sessions began
    assert [row[0] for row in rows_of(page)] == ["good"]


@pytest.mark.parametrize("url", [f"{MESSAGES}?role=assistant&", f"{SESSIONS}?"])
def test_links_choose_a_period_and_an_outcome_and_keep_the_rest(staff: Client, project: Project, url: str) -> None:
    at = datetime.now(UTC) - timedelta(days=1)
    store(project, question(created_at=at), answer(created_at=at, error="broken", is_completed=True), external_id="a")
    page = staff.get(f"{url}project=owner&created_after=2026-01-01")
    assert chosen(page) == ["Any outcome"]
    page = staff.get(url.partition("?")[0] + links_of(page)["Yesterday"])
    assert chosen(page) == ["Any outcome", "Yesterday"]
    page = staff.get(url.partition("?")[0] + links_of(page)["Failed"])
    assert chosen(page) == ["Failed", "Yesterday"]
    assert len(rows_of(page)) == 1
    kept = {**parse_qs(urlsplit(url).query), "project": ["owner"]}
    assert parse_qs(links_of(page)["Any time"][1:]) == {**kept, "outcome": ["failed"], "created": ["any"]}
    assert parse_qs(links_of(page)["Done"][1:]) == {**kept, "outcome": ["done"], "created": ["yesterday"]}


def test_period_without_a_link_has_one_while_it_is_chosen(staff: Client, project: Project) -> None:
    assert chosen(staff.get(f"{SCORES}?created=24h")) == ["Last 24 hours"]
    assert chosen(staff.get(SCORES)) == ["Any time"]
    assert "Last 24 hours" not in links_of(staff.get(SCORES))
    assert "Any time" not in links_of(staff.get(f"{MESSAGES}trash/"))


def chosen(page: Any) -> list[str]:
    """Return the links above the rows that are chosen."""
    bar = html_of(page).partition('class="chips"')[0]
    return re.findall(r'<a href="[^"]*" aria-current="true">([^<]*)</a>', bar)


def test_filter_that_the_title_says_has_no_chip(staff: Client, runs: dict[str, UUID]) -> None:
    for url, said in ((MESSAGES, "role=assistant"), (CALLS, "status=error")):
        assert 'class="chip"' not in html_of(staff.get(f"{url}?{said}"))
        page = staff.get(f"{url}?{said}&model=large")
        assert re.findall(r'class="chip-label">(.*?)<', html_of(page)) == ["model"]
        assert links_of(page)["Clear all"] == f"?{said}"


def test_empty_fields_of_the_form_leave_the_address(staff: Client, project: Project) -> None:
    response = staff.get(f"{MESSAGES}?q=&role=user&min_cost=&created=&session=%20")
    assert response.headers["Location"] == f"{MESSAGES}?role=user&session=+"
    page = staff.get(response.headers["Location"])
    # A space is no session.
    assert re.findall(r'<span class="chip-label">(.*?)</span>', html_of(page)) == ["role"]


def test_time_of_a_list_becomes_times_of_the_api(staff: Client, project: Project) -> None:
    address = api_of(staff.get(f"{MESSAGES}?created=24h&created_before=2026-12-01T10:00"))
    given = parse_qs(urlsplit(address).query)
    assert given["created_before"] == ["2026-12-01T10:00:00Z"]
    age = datetime.now(UTC) - datetime.fromisoformat(given["created_after"][0])
    assert timedelta(hours=24) <= age < timedelta(hours=24, minutes=1)
    page = staff.get(f"{SESSIONS}?order=activity&q=a'b")
    assert "Not in the API: order." in text_of(page)
    command = unescape(re.findall(r"<code>(curl.*?)</code>", html_of(staff.get(f"{MESSAGES}?q=a%27b")))[0])
    assert parse_qs(urlsplit(shlex.split(command)[-1]).query) == {"q": ["a'b"]}


@pytest.mark.parametrize("url", [MESSAGES, SESSIONS])
def test_today_and_yesterday_are_days_of_the_reader(staff: Client, project: Project, url: str) -> None:
    zone = "Pacific/Kiritimati"  # 14 hours before UTC
    staff.cookies[COOKIE] = zone
    midnight = datetime.combine(datetime.now(ZoneInfo(zone)), time.min, ZoneInfo(zone))
    minute = timedelta(minutes=1)
    for name, at in (
        ("before", midnight - timedelta(days=1) - minute),
        ("yesterday", midnight - minute),
        ("today", midnight),
    ):
        store(project, question(created_at=at.isoformat()), external_id=name, title=name)
    for period in ("yesterday", "today"):
        page = staff.get(f"{url}?created={period}")
        assert (len(rows_of(page)), f"selected>{period.capitalize()}<" in html_of(page)) == (1, True)
        given = parse_qs(urlsplit(api_of(page)).query)
        begin = midnight if period == "today" else midnight - timedelta(days=1)
        assert datetime.fromisoformat(given["created_after"][0]) == begin
        assert given.get("created_before") == (
            None if period == "today" else [f"{midnight.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"]
        )


def test_empty_list_says_what_was_searched(staff: Client, project: Project) -> None:
    page = staff.get(f"{MESSAGES}?q=nothing&role=system&min_cost=3")
    assert "No messages match: search “nothing” , role “system” , cost (USD) “≥ 3”" in text_of(page)
    assert links_of(page)["Clear search and filters"] == "?"
    assert "No runs match: search" in text_of(staff.get(f"{MESSAGES}?q=nothing&role=assistant"))
    staff.cookies["django_language"] = "zh-hans"
    assert "没有符合条件的消息： 搜索 “nothing”" in text_of(staff.get(f"{MESSAGES}?q=nothing"))


def test_hostile_values_are_shown_as_text(staff: Client, project: Project) -> None:
    hostile = "<script>alert(1)</script>"
    for url, name in ((MESSAGES, "q"), (MESSAGES, "model"), (SESSIONS, "tag"), (CALLS, "agent"), (SESSIONS, "columns")):
        page = html_of(staff.get(url, {name: hostile}))
        assert hostile not in page
        assert "&lt;script&gt;" in page


# --- Columns ----------------------------------------------------------------------------------------------------------


def headers_of(page: Any) -> list[str]:
    return re.findall(r'<th scope="col" class="column-(\w+)', html_of(page))


def test_columns_are_chosen_in_the_address(staff: Client, runs: dict[str, UUID]) -> None:
    page = staff.post(
        f"{SESSIONS}columns/",
        {"query": "status=completed&columns=name", "column": ["tokens_in", "user", "labels", "x"]},
    )
    # In the order of the list, with the column that names the row.
    assert page.headers["Location"] == f"{SESSIONS}?status=completed&columns=name,user,labels,tokens_in"
    page = staff.get(page.headers["Location"])
    assert headers_of(page) == ["name", "user", "labels", "tokens_in"]
    assert ["good", "user of good", "prod", ""] in rows_of(page)
    assert not ListColumns.objects.exists()
    # The links of the page and saved views keep them.
    assert "columns=name%2Cuser%2Clabels%2Ctokens_in" in links_of(page)["Clear all"]
    staff.post(f"{SESSIONS}views/", {"name": "People", "query": "columns=user&status=completed"})
    assert SavedView.objects.get().query == "columns=user&status=completed"


def test_unknown_columns_are_left_out_with_a_message(staff: Client, runs: dict[str, UUID]) -> None:
    page = staff.get(f"{MESSAGES}?columns=who,nonsense,__class__")
    assert "Unknown columns were left out: nonsense, __class__. The list has: text, outcome," in text_of(page)
    assert headers_of(page) == ["text", "who"]
    assert headers_of(staff.get(f"{MESSAGES}?columns=nonsense")) == headers_of(staff.get(MESSAGES))


def test_columns_are_kept_for_their_reader(staff: Client, runs: dict[str, UUID]) -> None:
    usual = headers_of(staff.get(CALLS))
    page = staff.post(f"{CALLS}columns/", {"query": "status=success", "column": ["agent", "arguments"], "keep": "yes"})
    assert page.headers["Location"] == f"{CALLS}?status=success"
    assert headers_of(staff.get(CALLS)) == ["tool_name", "arguments", "agent"]
    assert headers_of(staff.get(f"{CALLS}?columns=took")) == ["tool_name", "took"]
    other = Client()
    other.force_login(User.objects.create_superuser("bob"))
    assert headers_of(other.get(CALLS)) == usual
    # Runs are a list of their own.
    asked, chosen = f"{MESSAGES}?role=assistant", {"query": "role=assistant", "column": ["question", "took"]}
    of_messages = headers_of(staff.get(MESSAGES))
    staff.post(f"{MESSAGES}columns/", {**chosen, "keep": "yes"})
    assert headers_of(staff.get(asked)) == ["question", "took"]
    assert headers_of(staff.get(MESSAGES)) == of_messages
    staff.post(f"{MESSAGES}columns/", {"query": "", "column": ["text", "steps"], "keep": "yes"})
    assert headers_of(staff.get(MESSAGES)) == ["text", "steps"]
    assert headers_of(staff.get(asked)) == ["question", "took"]
    staff.post(f"{CALLS}columns/", {"query": "", "forget": "yes"})
    assert headers_of(staff.get(CALLS)) == usual
    assert staff.get(f"{CALLS}columns/").status_code == 405
    clerk = Client()
    clerk.force_login(User.objects.create_user("clerk", is_staff=True))
    assert clerk.post(f"{CALLS}columns/", {"column": "took"}).status_code == 403


@pytest.mark.parametrize("url", [*LISTS, f"{MESSAGES}?role=assistant"])
def test_all_columns_take_the_same_queries_for_any_number_of_rows(
    staff: Client, project: Project, runs: dict[str, UUID], url: str
) -> None:
    store(project, answer(external_id="failed"), external_id="first")
    score(project, "helpful", True, message_id="failed", session_id="first")
    names = re.findall(r'name="column" value="(\w+)"', html_of(staff.get(url)))
    address = f"{url}{'&' if '?' in url else '?'}columns={','.join(names)}"
    assert sorted(headers_of(staff.get(address))) == sorted(names)
    few = len(statements_of(staff, address))
    for number in range(5):
        store(project, answer(external_id=f"a{number}"), external_id=f"s{number}")
        score(project, "helpful", True, message_id=f"a{number}", session_id=f"s{number}")
    assert len(statements_of(staff, address)) == few
    assert few <= 18


@pytest.mark.parametrize(
    ("url", "table"),
    [
        (f"{SESSIONS}?model=large", "agentstep"),
        (f"{CALLS}?agent=writer", "agentstep"),
        (f"{MESSAGES}?score=helpful", "score"),
    ],
)
def test_filter_on_rows_below_is_applied_once(staff: Client, runs: dict[str, UUID], url: str, table: str) -> None:
    reads = [text for text in statements_of(staff, url) if f'FROM "traces_app_{table}"' in text]
    assert len([text for text in reads if "LIMIT 1000" not in text]) == 1  # besides the names that the filters suggest


STATISTICS = f"{TOOLS}statistics/"


@pytest.mark.parametrize("url", [SESSIONS, MESSAGES, CALLS, STATISTICS])
def test_filters_suggest_names_of_readable_projects(runs: dict[str, UUID], project: Project, url: str) -> None:
    elsewhere = Project.objects.create(slug="elsewhere")
    hidden = {"model": "secret", "agent_name": "spy", "tool_calls": [{"name": "hidden_tool"}]}
    store(elsewhere, answer(agent_steps=[hidden]))
    store(project, answer(agent_steps=[{"model": "<b>\u202e", "agent_name": "", "tool_calls": []}]), external_id="odd")

    def suggested(reader: Client, name: str) -> list[str]:
        listed = url if url == STATISTICS else f"{url}facets/"
        found = re.search(rf'<datalist id="names-{name}">(.*?)</datalist>', html_of(reader.get(listed)))
        return re.findall(r'value="([^"]*)"', found[1]) if found else []

    user = User.objects.create_user("reader", is_staff=True)
    grant_role(project, user, Role.ANALYST)
    analyst = Client()
    analyst.force_login(user)
    assert suggested(analyst, "model") == ["large", "small"]
    assert suggested(analyst, "agent") == ["planner", "writer"]
    if url != STATISTICS:
        assert suggested(analyst, "tool") == ["good_tool", "poor_tool"]


def test_export_has_its_own_columns(staff: Client, runs: dict[str, UUID]) -> None:
    exported = staff.get(f"{SESSIONS}export/csv/?columns=name&model=large").content
    header, *rows = exported.decode("utf-8-sig").splitlines()
    assert header.startswith("id,project,external_id,title,end_user,tags,status")
    assert [row.split(",")[2] for row in rows] == ["good"]
