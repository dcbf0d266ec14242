"""The first page of the admin: its figures are those of the rows that they link to."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project, Role
from access_app.roles import grant_role
from messages_app import writes
from messages_app.models import Change, Message, PurgedPeriod, Session
from tests.admin_pages import html_of, links_of, rows_of, statements_of, text_of
from tests.traces_app.conftest import question, store
from traces_app.admin import home
from traces_app.maintenance.error_patterns import store_patterns
from traces_app.maintenance.run_vectors import store_vectors
from traces_app.maintenance.seals.sealing import seal_changed
from traces_app.maintenance.search_index import index_changed
from traces_app.maintenance.tool_roll_up import roll_up
from traces_app.models import ToolCall, ToolRollUp

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


def waiting_run() -> dict[str, Any]:
    """Return a run of three hours ago whose call waits for a person."""
    steps = [{"model": "m-2", "usage": {"input_tokens": 7}, "tool_calls": [{"name": "refund", "args": {"eur": 40}}]}]
    open_run = run("waiting", ago(hours=3), agent_steps=steps)
    return {**open_run, "is_completed": False, "completed_at": None}


def links_in(html: str) -> list[tuple[str, str]]:
    """Return the URL and the text of each link that leads to a list, in order; of a bar its title."""
    found = re.findall(r'<a [^>]*?href="([^"]*)"[^>]*>(.*?)</a>', html, re.DOTALL)
    return [(unescape(url), " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())) for url, text in found]


def part_of(html: str, begin: str, end: str) -> str:
    return html[html.index(begin) :].partition(end)[0]


@pytest.fixture
def traces(project: Project) -> None:
    store(project, question(created_at=ago(minutes=50)), run("now", ago(minutes=40), "", "late", "gone 7"), title="Now")
    store(project, run("error", ago(minutes=30), error="out of memory"), title="Crash", external_id="crash")
    store(project, run("slow run", ago(hours=30), "", "", "", ""), title="Yesterday", external_id="yesterday")
    open_run = {**run("open", ago(hours=2)), "is_completed": False, "completed_at": None}
    store(project, open_run, title="Open", external_id="open")
    store(
        project,
        waiting_run(),
        title="Refund",
        external_id="paused",
        status="paused",
        current_phase="approval of 40 EUR",
    )
    deleted = store(project, run("deleted", ago(minutes=20), "x"), external_id="deleted")
    assert deleted.id is not None
    writes.delete_session(primary, deleted.id, by="ada")


@pytest.mark.usefixtures("traces")
def test_figures_lead_to_their_rows(staff: Client) -> None:
    page = staff.get(HOME)
    html = html_of(page)
    figures = links_in(" ".join(re.findall(r"<figcaption>.*?</figcaption>|<h2>.*?</h2>", html, re.DOTALL)))
    numbers = [(text, len(rows_of(staff.get(url)))) for url, text in figures if text[0].isdecimal()]
    assert numbers == [("4", 4), ("2 failed · 50%", 2), ("4", 4), ("2 failed · 50%", 2)]
    lists = {text: len(rows_of(staff.get(url))) for url, text in figures if "role=assistant" in url}
    assert (lists["Failed runs"], lists["Waiting for a person"], lists["Running now"]) == (2, 1, 1)
    text = text_of(page)
    assert "52 Tokens 37 in 15 out · without those cached beside the input" in text
    assert "— Cost unknown for 2 requests" in text
    for counted in ("Failed runs 2", "Waiting for a person 1", "Running now 1"):
        assert counted in text


def test_run_whose_failed_call_was_made_good_has_not_failed(staff: Client, project: Project) -> None:
    store(project, run("good", ago(minutes=9), "late", ""), run("bad", ago(minutes=8), "late"), title="One")
    store_patterns(primary, patience=timedelta(0))
    page = staff.get(HOME)
    assert "1 failed · 50%" in text_of(page)
    (url,) = [url for url, text in links_in(html_of(page)) if text == "1 failed · 50%"]
    assert len(rows_of(staff.get(url))) == 1
    assert "Failed runs 1 One" in text_of(page)


@pytest.mark.usefixtures("traces")
def test_rows_of_tables_agree_with_their_links(staff: Client, project: Project) -> None:
    store(Project.objects.create(slug="other"), run("elsewhere", ago(minutes=1), "x"))  # a tool of the same name
    html = html_of(staff.get(HOME))
    counts = [(url, text) for url, text in links_in(part_of(html, 'class="changes"', "</table>")) if "/" in text]
    assert [text for _url, text in counts] == ["67% 2/3", "100% 1/1"]
    assert [len(rows_of(staff.get(url))) for url, _text in counts] == [2, 1]
    models = part_of(html, 'id="models"', "</table>")
    assert [(text, len(rows_of(staff.get(url)))) for url, text in links_in(models)] == [("4", 4), ("1", 1)]
    intake = part_of(html, ">Intake<", "</details>")
    received = [(text, len(rows_of(staff.get(url)))) for url, text in links_in(intake) if text.isdecimal()]
    assert received == [("6", 6), ("5", 5)]


def test_tools_that_changed_most_come_first(staff: Client, project: Project) -> None:
    def timed(name: str, at: datetime, tool: str, duration: int, *errors: str) -> dict[str, Any]:
        made = run(name, at, *errors, tool=tool)
        for call in made["agent_steps"][0]["tool_calls"]:
            call["duration"] = duration
        return made

    store(
        project,
        # As bad as before, although it fails most often; it fails now; it is slower; it is new and fails rarely.
        *(run(f"usual {hours}", ago(hours=hours), *["x"] * 9, "", tool="usual") for hours in (2, 30)),
        run("fails before", ago(hours=30), *[""] * 8, tool="fails"),
        run("fails now", ago(hours=2), *["y"] * 6, "", "", tool="fails"),
        timed("slow before", ago(hours=30), "slow", 100, *[""] * 6),
        timed("slow now", ago(hours=2), "slow", 400, *[""] * 6),
        run("new", ago(hours=2), "z", *[""] * 9, tool="new"),
        run("good", ago(hours=2), "", tool="good"),
    )
    page = staff.get(HOME)
    table = part_of(html_of(page), 'class="changes"', "</table>")
    assert re.findall(r"<td><a [^>]+><bdi>([^<]+)</bdi>", table) == ["fails", "slow", "new", "usual"]
    text = text_of(page)
    assert (
        "fails ▲ fails more 75% in this period, 0% in the one before y 75% 6/8 slow ▲ slower p95 400 ms in this period, 100 ms in the one before new fails 10%, not called before"
        in text
    )
    listed = html_of(staff.get(unescape(links_of(page)["All tools"])))
    names = re.findall(r'<th scope="row"><a [^>]+><bdi>([^<]+)</bdi>', listed)
    assert names == ["slow", "fails", "new", "usual", "good"]


def test_parameters_that_are_not_valid_are_warned_of_once(staff: Client, project: Project) -> None:
    warned = text_of(staff.get(f"{HOME}?created=zzz&project=zzz"))
    assert (
        "Invalid filter: time “zzz”. Use one of: 1h, today, yesterday, 24h, 7d, 30d, any. The last 24 hours are shown."
        in warned
    )
    assert "Project “zzz” cannot be chosen here. All projects are shown." in warned
    assert "zzz" not in text_of(staff.get(HOME))


@pytest.mark.parametrize("period", ["1h", "24h", "7d", "30d"])
@pytest.mark.usefixtures("traces")
def test_bars_lead_to_their_rows(staff: Client, period: str) -> None:
    html = html_of(staff.get(f"{HOME}?created={period}"))
    runs = part_of(html, 'aria-label="Runs over time"', "</svg>")
    bars = [(url, text) for url, text in links_in(runs) if " 0 runs" not in text and "outcome" not in url]
    titles = {text: url for url, text in bars}
    found = {text: rows_of(staff.get(url)) for text, url in titles.items()}
    assert found
    assert {text: len(rows) for text, rows in found.items()} == {
        text: int(re.search(r"(\d+) runs?", text)[1])
        for text in found  # type: ignore[index]
    }
    failed = [(url, text) for url, text in links_in(runs) if "outcome=failed" in url]
    for url, text in failed:
        assert f" {len(rows_of(staff.get(url)))} failed" in text


def test_cost_of_days_and_models_leads_to_its_runs(staff: Client, project: Project) -> None:
    day = datetime(2026, 3, 1, 12, tzinfo=UTC)
    priced = [{"model": "m-1", "cost": 2}, {"model": "m-1", "cost": 1}, {"model": "m-2", "cost": 0.5}]
    unknown = [{"model": "m-3", "usage": {"input_tokens": 9, "output_tokens": 1}}]
    store(
        project,
        run("one", day, agent_steps=priced),
        run("two", day + timedelta(days=1), agent_steps=unknown),
        run("three", day + timedelta(days=1), agent_steps=[*priced, *unknown]),
    )
    url = f"{HOME}?created_after=2026-02-20T00:00:00Z&created_before=2026-03-10T00:00:00Z"
    html = html_of(staff.get(url))
    chart = links_in(part_of(html, 'aria-label="Cost over time, by model"', "</svg>"))
    bars = [(text, len(rows_of(staff.get(url)))) for url, text in chart if " m-" in text or "unknown" in text]
    assert bars == [
        ("2026-03-01 · m-1: $3.00, 2 requests", 1),
        ("2026-03-01 · m-2: $0.5000, 1 request", 1),
        ("2026-03-02 · m-1: $3.00, 2 requests", 1),
        ("2026-03-02 · m-2: $0.5000, 1 request", 1),
        ("2026-03-02 · the cost of 2 requests is unknown", 2),
    ]
    models = part_of(html, 'id="models"', "</table>")
    assert [(text, len(rows_of(staff.get(url)))) for url, text in links_in(models)] == [("2", 2), ("2", 2), ("2", 2)]
    text = text_of(staff.get(url))
    assert "≥ $7.00 Cost unknown for 2 requests" in text
    assert "m-1 2 — $6.00 m-2 2 — $1.00 m-3 2 20 2 unknown" in text
    assert "of unknown cost" not in text
    prices = 'href="/admin/traces_app/modelprice/"'
    assert "Model prices · A cost is unknown if" in text and prices in html
    owner = Client()
    owner.force_login(User.objects.create_user("olga", is_staff=True))
    grant_role(project, User.objects.get(username="olga"), Role.OWNER)
    page = owner.get(url)
    assert "A cost is unknown if" in text_of(page) and prices not in html_of(page)


def test_request_that_runs_makes_no_cost_unknown(staff: Client, project: Project) -> None:
    messages, sessions = "/admin/messages_app/message/", "/admin/messages_app/session/"
    priced = {"model": "m-1", "cost": 2}
    open_run = run("two", ago(minutes=5), agent_steps=[priced, {"model": "m-1"}], is_completed=False, completed_at=None)
    store(project, run("one", ago(minutes=9), agent_steps=[priced]), open_run, external_id="a", title="A")

    def shown() -> tuple[str, ...]:
        listed = [row[-1] for row in rows_of(staff.get(f"{messages}?role=assistant&columns=question,spent"))]
        of_session = [row[-1] for row in rows_of(staff.get(f"{sessions}?columns=name,spent"))]
        sums = re.findall(r'class="facet-sums">([^<]*)<', html_of(staff.get(f"{messages}facets/?role=assistant")))
        return (*listed, *of_session, *sums)

    assert shown() == ("$2.00 so far", "$2.00", "$4.00 so far", "2 in all · $4.00 so far")
    text = text_of(staff.get(HOME))
    assert "$4.00 so far Cost" in text
    # A time that is over has no cost so far, but a run that began in it may go on.
    times = {
        "created_after": f"{ago(minutes=30):%Y-%m-%dT%H:%M:%SZ}",
        "created_before": f"{ago(minutes=2):%Y-%m-%dT%H:%M:%SZ}",
    }
    assert "$4.00 Cost 1 run goes on" in text_of(staff.get(HOME, times))
    assert "unknown" not in text
    store(project, {**open_run, "is_completed": True, "completed_at": ago(minutes=1)}, external_id="a")
    assert shown() == ("≥ $2.00", "$2.00", "≥ $4.00", "2 in all · ≥ $4.00")
    assert "≥ $4.00 Cost unknown for 1 request" in text_of(staff.get(HOME))


@pytest.mark.usefixtures("traces")
def test_waiting_and_silent_runs_are_told_from_running_ones(staff: Client) -> None:
    text = text_of(staff.get(HOME))
    assert re.search(
        r"Waiting for a person 1 Refund begun 3.hours ago Paused: approval of 40 EUR · refund Running now 1 Open for 2.hours ",
        text,
    )
    Session.objects.filter(title="Open").update(active_at=ago(minutes=40))
    assert re.search(r"Open for 2.hours No news for 40.minutes", text_of(staff.get(HOME)))
    listed = rows_of(staff.get("/admin/messages_app/message/?role=assistant&outcome=waiting"))
    assert [row[1] for row in listed] == ["Waiting"]


@pytest.mark.usefixtures("traces")
def test_intake_tells_rate_wait_and_backlog(staff: Client, project: Project) -> None:
    intake = part_of(text_of(staff.get(HOME)), " Intake Messages", "Storage")
    assert re.match(r" Intake Messages 5 · 0.2 an hour Tool calls 4 · 0.2 an hour Newest message \(UTC\) 20", intake)
    assert "Last write (UTC)" in intake
    assert re.search(r"Arrival 39 min \d+ s after the end of a message · p95 50 min \d+ s · of 3 messages", intake)
    assert re.search(r"Search index up to 20\S+ \S+ · \d+ writes wait", intake)
    assert "Tool statistics nothing added up yet" in intake
    index_changed(primary, patience=timedelta(0))
    roll_up(primary)
    store_vectors(primary, patience=timedelta(0))
    seal_changed(primary, patience=timedelta(0))
    Change.objects.create(project=project, message_id=uuid4(), kind=Change.Kind.CONTENT, at=ago(minutes=30))
    ToolRollUp.objects.update(rolled_until=ago(hours=20))
    behind = text_of(staff.get(f"{HOME}?created=1h"))
    assert "1 write waits" in behind
    assert re.search(r"Similar runs up to 20\S+ \S+ Seals up to 20", behind)
    assert "a minute" in behind
    assert "A background job is behind." in behind
    ToolRollUp.objects.update(rolled_until=ago(hours=4))
    Change.objects.all().delete()
    page = text_of(staff.get(HOME))
    assert re.search(r"Tool statistics up to date · calls after 20\S+ \S+ are counted when you look", page)
    assert "A background job is behind." not in page


@pytest.mark.usefixtures("traces")
def test_storage_tells_sizes_trash_and_what_a_purge_frees(staff: Client, project: Project) -> None:
    store(project, run("old", datetime(2025, 1, 10, tzinfo=UTC), ""), external_id="old")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messages_app_message")
    page = staff.get(HOME)
    text = part_of(text_of(page), " Storage ·", " All lists and settings")
    assert re.search(
        r"Oldest message \(UTC\) 2025-01-10 00:00:00 Trash 1.session , 0.messages about [\d.,]+.[KM]B", text
    )
    assert re.search(r"purge --older-than 2025-02-01 would drop 2025-01 and free [\d.]+.[KM]B", text)
    kinds = [
        name
        for name in ("Messages", "Steps, calls and results", "Events", "Search index")
        if re.search(f"{name} [\\d.,]+.[KM]B", text)
    ]
    assert kinds == ["Messages", "Steps, calls and results", "Events", "Search index"]
    month = links_of(page)["2025-01"].replace("&amp;", "&")
    assert len(rows_of(staff.get(month))) == 1
    trash = next(url for text, url in links_of(page).items() if text.split() == ["1", "session"])
    assert len(rows_of(staff.get(trash))) == 1
    PurgedPeriod.objects.create(
        begin=date(2024, 12, 1), end=date(2025, 1, 1), purged_at=datetime(2026, 1, 2, tzinfo=UTC)
    )
    assert (
        "No project has days set, so nothing is removed by age. 2024-12 was removed on 2026-01-02 00:00:00 ."
        in text_of(staff.get(HOME))
    )


@pytest.mark.usefixtures("traces")
def test_storage_says_what_retention_removes_next(staff: Client, project: Project) -> None:
    def said() -> str:
        return part_of(text_of(staff.get(HOME)), "Retention ", " Kind")

    few = len(statements_of(staff, HOME))
    Project.objects.update(retention_days=1, keep_pinned=True)
    due = r"owner: 1 day. The next purge removes what is before 20\S+ \S+ ?. Some sessions are kept. purge --policy"
    assert re.search(due, said())
    Project.objects.update(retention_days=90)
    assert re.search(r"owner: 90 days. Nothing goes before 20\S+ \S+ ?. purge --policy , from a timer,", said())
    whole = [Project(slug=f"p{n}", retention_days=2, retention_way="whole") for n in range(6)]
    Project.objects.bulk_create(whole)
    store(whole[5], run("old", datetime(2025, 1, 10, tzinfo=UTC), ""))
    store(whole[4], run("new", datetime(2026, 11, 10, tzinfo=UTC), ""))
    assert re.search(
        r"p5: 2 days. The next .* owner: 90 days. .* p0: 2 days. There are no messages. .* And 2 more projects.", said()
    )
    assert len(statements_of(staff, HOME)) == few


def test_empty_installation_says_how_to_send_a_trace(staff: Client) -> None:
    page = staff.get(HOME)
    text = text_of(page)
    assert text.startswith("No traces yet Waiting for the first trace …")
    assert "curl -s http://testserver/api/v1/ingest/" in text
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=http://testserver" in text
    assert "Failed runs" not in text
    assert links_of(page)["Add a project"] == "/admin/access_app/project/add/"


def test_period_without_runs_leads_to_the_newest_message(staff: Client, project: Project) -> None:
    store(project, run("old", datetime(2026, 3, 1, 12, tzinfo=UTC), ""))
    page = staff.get(HOME)
    assert "No run in this period. The newest message is of 2026-03-01 12:00:00 ." in text_of(page)
    day = links_of(page)["2026-03-01 12:00:00"].replace("&amp;", "&")
    assert "1 Runs" in text_of(staff.get(f"{HOME}{day}"))
    # The range and the project stay until others are chosen.
    assert "1 Runs" in text_of(staff.get(HOME))
    assert "No run in this period." in text_of(staff.get(f"{HOME}?created=24h"))
    assert "No run in this period." in text_of(staff.get(HOME))


@pytest.mark.usefixtures("traces")
def test_period_and_project_limit_the_figures(staff: Client, project: Project) -> None:
    assert "5 Runs" in text_of(staff.get(f"{HOME}?created=7d"))
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
    assert "5 Runs" in text_of(staff.get(f"{HOME}?created=soon&project=none"))


@pytest.mark.parametrize(
    "times",
    [
        "created_after=1970-01-01T00:00:00Z&created_before=9999-12-31T23:59:59Z",
        "created_after=9999-12-31T23:59:59Z",
        "created_before=1980-01-01T00:00:00Z",
        "created_before=2027-01-01T00:00:00Z",
        "created_after=2026-03-02T00:00:00Z&created_before=2026-03-01T00:00:00Z",
        "created_after=0001-01-01T00:00:00Z",
        "created=30d&created_before=2026-03-01T00:00:00Z",
        "created_after=never&created_before=%00",
    ],
)
@pytest.mark.usefixtures("traces")
def test_any_range_of_times_is_shown(staff: Client, times: str) -> None:
    assert "What needs attention" in text_of(staff.get(f"{HOME}?{times}"))
    assert "What needs attention" in text_of(staff.get(HOME))


@pytest.mark.usefixtures("traces")
def test_failed_call_is_one_click_away(staff: Client) -> None:
    page = staff.get(HOME)
    assert "<title>What needs attention | Tracesite</title>" in html_of(page)
    # The first one of its run, not what followed from it.
    failed = ToolCall.objects.get(result__error="late")
    assert f"/admin/messages_app/message/{failed.message_id}/change/?call={failed.pk}#call-{failed.pk}" in html_of(page)
    assert failed.result.error in text_of(page)
    assert "Crash" in text_of(page)
    assert "out of memory" in text_of(page)


def test_longest_run_and_cost_of_models_are_listed(staff: Client, project: Project) -> None:
    steps = [{"model": "m-1", "cost": 2, "usage": {"prompt_tokens": 1000, "completion_tokens": 20}}]
    store(
        project,
        run("a" * 30, ago(minutes=10), agent_steps=steps),
        run("b", ago(minutes=9), agent_steps=steps),
        title="Long",
    )
    page = text_of(staff.get(HOME))
    assert "Long 30.0 s" in page
    assert "m-1 2 2,040 $4.00" in page
    assert "$4.00 Cost" in page


def test_answers_without_a_model_are_counted_beside_the_models(staff: Client, project: Project) -> None:
    store(project, run("one", ago(minutes=10), agent_steps=[]))
    text = text_of(staff.get(HOME))
    assert "Cost unknown for 1 request" in text
    assert "1 answer of unknown cost names no model" in text


def test_page_takes_constant_queries(staff: Client, project: Project) -> None:
    store(project, run("one", ago(minutes=10), "x"))
    few = len(statements_of(staff, HOME))
    for number in range(8):
        runs = [run(f"{number}-{n}", ago(minutes=n), "", "x", tool=f"tool {n}") for n in range(8)]
        store(project, *runs, external_id=f"s{number}")
    assert len(statements_of(staff, HOME)) == few
    # Of these 20 begin and end the parts of the page and set their time limits, and 3 are only of runs that ended just now; 2 read
    # the names of sessions without a title.
    assert few <= 51


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
    monkeypatch.setattr(home.overview, "slow_runs", lambda _db, _scope, _period: list(slow))
    page = staff.get(HOME)
    assert page.status_code == 200
    assert "This period holds too much to count it now." in text_of(page)
