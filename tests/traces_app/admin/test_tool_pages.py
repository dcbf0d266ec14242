"""The statistics of tools in the admin: figures lead to their rows, examples to their calls."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from access_app.models import Project
from messages_app.models import Message
from tests.admin_pages import html_of, links_of, rows_of, statements_of, text_of
from tests.traces_app.conftest import store
from traces_app.admin.tool_pages import COLUMNS
from traces_app.models import Tool
from traces_app.queries import tool_examples

STATISTICS = "/admin/traces_app/tool/statistics/"


def call(tool: str, duration: int | None, error: str = "", **args: Any) -> dict[str, Any]:
    result = {"success": not error, "error": error, "output": "" if error else "x"}
    return {"name": tool, "args": args, "duration": duration, "result": result}


def run(name: str, at: datetime, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"external_id": name, "role": "assistant", "created_at": at, "agent_steps": [{"tool_calls": list(calls)}]}


def ago(**time: float) -> datetime:
    return timezone.now() - timedelta(**time)


@pytest.fixture
def traces(project: Project) -> None:
    store(
        project,
        run("before", ago(hours=30), call("search", 100, q=1), call("search", 100, q=2)),
        run("now", ago(hours=2), call("search", 400, q=1), call("search", 400, q=1), call("read", 9, p=1)),
        run(
            "bad",
            ago(hours=1),
            call("search", 300, "timeout after 31 s, request 3f2b8c0e-1111-4222-8333-944455556666", q=5),
            call("search", 5, "no such index", q=7),
        ),
        run(
            "last",
            ago(minutes=30),
            call("search", 700, "timeout after 7 s, request 9f2b8c0e-1111-4222-8333-944455556667"),
        ),
    )


@pytest.mark.usefixtures("traces")
def test_tools_are_listed_with_figures_and_change(staff: Client) -> None:
    page = staff.get(STATISTICS)
    text = text_of(page)
    # Before there were two calls only, too few to compare with.
    assert (
        "Cost search fails 60%, too few calls before to compare 5 60% 3 400 ms 700 ms 1.8 s — read 1 0% 9 ms 9 ms 9 ms —"
        in text
    )
    assert "Slowest: search p95 700 ms Tool" in text
    links = {name: url.replace("&amp;", "&") for name, url in links_of(page).items()}
    assert len(rows_of(staff.get(links["60% 3"]))) == 3
    assert len(rows_of(staff.get(links["5"]))) == 5
    assert text_of(staff.get(links["search"])).startswith("search")


def test_calls_of_one_hour_on_both_sides_of_a_boundary(staff: Client, project: Project) -> None:
    boundary = datetime(2026, 3, 2, 0, 30, tzinfo=UTC)
    for minutes in (-10, 10):
        store(project, run(f"at {minutes}", boundary + timedelta(minutes=minutes), call("search", 100)))
    times = {"created_after": "2026-03-02T00:30Z", "created_before": "2026-03-03T00:30Z"}
    assert "Cost search 1 0% 100 ms" in text_of(staff.get(STATISTICS, times))
    assert "No call failed, and no tool got slower." in text_of(staff.get("/admin/", times))


@pytest.mark.usefixtures("traces")
def test_calls_without_a_result_are_counted_and_linked(staff: Client, project: Project) -> None:
    store(project, {**run("open", ago(minutes=4), {"name": "read"}, {"name": "read"}), "is_completed": False})
    links = {name: url.replace("&amp;", "&") for name, url in links_of(staff.get(STATISTICS)).items()}
    assert len(rows_of(staff.get(links["2 without a result"]))) == 2
    assert "without a result" not in text_of(staff.get(STATISTICS, {"agent": "nobody"}))
    tools = links_of(staff.get("/admin/traces_app/tool/"))
    assert "status=pending" in tools["without a result"]


@pytest.mark.usefixtures("traces")
def test_tool_page_groups_errors_and_finds_repeated_calls(staff: Client) -> None:
    tool = Tool.objects.get(name="search")
    page = staff.get(f"/admin/traces_app/tool/{tool.pk}/change/")
    text = text_of(page)
    assert "2× timeout after # s, request # e.g. timeout after 7 s, request " in text
    assert "1× no such index Last call · " in text
    assert "2 calls with the same arguments in one run" in text
    assert "before: 2" in text
    assert "700 ms p95" in text and "p95 before" not in text  # of too few calls
    slowest = text[text.index("Slowest calls") :]
    assert slowest.split()[2:5] == ["700", "ms", "error"]
    target = next(url for name, url in links_of(page).items() if name.startswith("timeout after 7"))
    assert "timeout after 7 s" in text_of(staff.get(target.replace("&amp;", "&").partition("#")[0]))


@pytest.mark.usefixtures("traces")
def test_tool_page_tells_how_often_agents_corrected_themselves(staff: Client, project: Project) -> None:
    url = f"/admin/traces_app/tool/{Tool.objects.get(name='search').pk}/change/"
    text = text_of(staff.get(url))
    assert "reflection" not in text and "No run repeated a call." not in text
    assert "Reflections" not in text
    reflected = {**call("search", 5, "no such index"), "reflection": "Use the other index."}
    store(project, run("corrected", ago(minutes=9), reflected, call("search", 6)))
    page = staff.get(url)
    assert (
        "Reflections 1 of 7 calls have a reflection 1 of them had failed"
        " The run called the tool again after 1 of them; 1 of these calls succeeded"
    ) in text_of(page)
    listed = staff.get(links_of(page)["1 of 7 calls have a reflection"].replace("&amp;", "&"))
    assert len(rows_of(listed)) == 1
    assert "/api/v1/tool-calls/?" in html_of(listed)
    assert "has_reflection=true" in html_of(listed)


@pytest.mark.usefixtures("traces")
def test_tools_offered_but_not_called_are_listed(staff: Client, project: Project) -> None:
    tools = [{"name": "search"}, {"type": "function", "function": {"name": "unused"}}, {"name": "<b>odd</b>"}, 7]
    asked = {"system": "Be brief.", "tools": tools, "messages": [{"role": "user", "content": "name"}]}
    steps = [{"tool_calls": [call("search", 1)], "input": asked}]
    store(project, {"role": "assistant", "external_id": "i", "created_at": ago(hours=1), "agent_steps": steps})
    page = staff.get(STATISTICS, {"project": "owner"})
    assert text_of(page).endswith(
        "Offered but not called <b>odd</b> unused Tools of the newest 200 requests to models whose input is known."
    )
    assert "Offered" not in text_of(staff.get(STATISTICS, {"created_before": "2026-01-01"}))


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize("order", [name for name in COLUMNS if name != "tool"])
def test_tools_are_sorted_by_each_column_both_ways(staff: Client, project: Project, order: str) -> None:
    store(project, {**run("paid", ago(minutes=5), call("search", 500)), "agent_steps": [
        {"cost": 0.5, "tool_calls": [call("search", 500)]}, {"cost": 0.1, "tool_calls": [call("read", 1)]}]})  # fmt: skip
    store(project, run("older", ago(hours=29), call("search", 1, "no"), call("read", 9)))
    store(project, {**run("open", ago(minutes=4), {"name": "open"}), "is_completed": False})

    def tools(given: str) -> list[str]:
        table = text_of(staff.get(STATISTICS, {"o": given})).partition(" p50 ")[2]
        return sorted(("search", "read", "open"), key=lambda name: table.index(f" {name} "))

    down, up = tools(order), tools(f"-{order}")
    assert down.index("search") < down.index("read")
    assert up.index("search") > up.index("read")
    if order not in ("calls", "total"):
        assert down[-1] == up[-1] == "open"  # nothing is known of it


@pytest.mark.usefixtures("traces")
def test_tools_are_sorted_by_name_and_headings_turn_the_order(staff: Client) -> None:
    page = staff.get(STATISTICS, {"o": "tool"})
    rows = text_of(page).partition(" p50 ")[2]
    assert rows.index(" read ") < rows.index(" search ")
    assert 'aria-sort="ascending"' in html_of(page)
    turned = staff.get(STATISTICS + links_of(page)["Tool ↑"].replace("&amp;", "&"))
    assert text_of(turned).index(" read ") > text_of(turned).index(" search ")


@pytest.mark.usefixtures("traces")
def test_slowest_tools_are_one_click_from_home_and_the_list(staff: Client) -> None:
    from_list = links_of(staff.get(f"{STATISTICS}?created=7d"))["Slowest first"].replace("&amp;", "&")
    from_home = links_of(staff.get("/admin/?created=7d"))["Slowest tools"].replace("&amp;", "&")
    assert from_home == f"{STATISTICS}?o=p95&created=7d"
    assert from_list == "?created=7d&o=p95"
    page = staff.get(from_home)
    assert re.findall(r'aria-current="true">([^<]+)', html_of(page)) == ["Last 7 days", "Slowest first"]
    assert "p95 ↓" in text_of(page)


def test_filters_limit_the_calls_of_both_pages_and_the_csv(staff: Client, project: Project) -> None:
    for agent, model, duration in (("planner", "gpt-4o", 30), ("worker", "gpt-4o", 70), ("worker", "qwen", 90)):
        step = {"agent_name": agent, "model": model, "tool_calls": [call("search", duration, q=agent)], "cost": 0.25}
        store(
            project,
            {**run(f"{agent} {model}", ago(hours=1)), "agent_steps": [step]},
            external_id=f"of {agent} {model}", end_user=agent, tags=[model],
        )  # fmt: skip
    url = f"/admin/traces_app/tool/{Tool.objects.get().pk}/change/"
    for given, longest, calls in (
        ({"agent": "worker", "model": "gpt-4o"}, 70, 1),
        ({"end_user": "worker"}, 90, 2),
        ({"tag": "gpt-4o"}, 70, 2),
        ({"session": "of planner gpt-4o"}, 30, 1),
    ):
        page = staff.get(STATISTICS, given)
        assert f"search {calls} 0%" in text_of(page), given
        assert f"${calls * 0.25:.4f}" in text_of(page)
        of_tool = text_of(staff.get(url, given))
        assert f"longest {longest} ms" in of_tool
        assert f"Slowest calls {longest} ms success" in of_tool
        (row,) = csv.DictReader(staff.get(STATISTICS, {**given, "format": "csv"}).content.decode().splitlines())
        assert (row["name"], row["call_count"], row["longest_duration"]) == ("search", str(calls), str(longest))
    for wrong in ({"session": "none"}, {"agent": "\x00"}):
        for page in (staff.get(STATISTICS, wrong), staff.get(url, wrong)):
            assert 'role="alert"' in html_of(page)
        assert staff.get(STATISTICS, {**wrong, "format": "csv"}).status_code == 302


def test_tool_page_lists_slow_arguments_and_runs(
    staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_examples, "CALLS_READ", 4)
    store(project, run("left out", ago(hours=9), call("search", 9000, q="old")))
    slow = run("slow", ago(hours=5), call("search", 800, q="big"), call("search", 900, q="big"))
    store(project, slow, title="Big <order>", external_id="big")
    store(project, run("fast", ago(hours=1), call("search", 10, q="small"), call("search", 20, q="tiny")))
    page = staff.get(f"/admin/traces_app/tool/{Tool.objects.get().pk}/change/")
    text = text_of(page)
    arguments = text[text.index("Arguments that take most time") :]
    assert '1.7 s 2 calls · average 850 ms, longest 900 ms {"q": "big"}' in arguments
    assert "old" not in arguments
    runs = text[text.index("Runs that wait longest") : text.index("Arguments that take most time")]
    assert runs.index("Big <order> 1.7 s") < runs.index("30 ms")
    last = Message.objects.get(external_id="slow")
    assert f"/message/{last.pk}/change/?call=" in links_of(page)["Big <order>"]


def test_charts_of_a_tool_show_the_period_before_and_lead_to_calls(staff: Client, project: Project) -> None:
    five = datetime(2026, 3, 2, 5, 10, tzinfo=UTC)
    store(project, run("now", five, call("search", 1300, q=1), call("search", 1000, "unknown", q=2)))
    tool = f"/admin/traces_app/tool/{Tool.objects.get().pk}/change/"
    days = {"created_after": "2026-03-02T00:00", "created_before": "2026-03-03T00:00"}
    page = html_of(staff.get(tool, days))
    assert "line-before" not in page
    assert "no calls in the period before" in page
    # A day earlier, at the same time of the day and three hours later; what is two days earlier is not compared.
    for hours in (-24, -21, -48):
        store(project, run(f"before {hours}", five + timedelta(hours=hours), call("search", 400, q=hours)))
    page = html_of(staff.get(tool, days))
    charts = re.findall(r'<svg class="chart".*?</svg>', page, re.S)
    assert [re.findall('aria-label="([^"]+)"', chart)[0] for chart in charts] == [
        "Calls over time",
        "Error rate over time",
        "Duration over time",
    ]
    assert all('class="line line-before"' in chart for chart in charts)
    said = [
        [
            text
            for text in re.findall(r'<text class="words"[^>]*>([^<]+)<', chart)
            if text.startswith("2026-03-02 05:00")
        ]
        for chart in charts
    ]
    assert said == [
        ["2026-03-02 05:00 · 2 calls, 1 failed"] * 3,  # the whole hour, and both parts of its bar
        ["2026-03-02 05:00 · 50% · 2 calls, 1 failed"] * 2,
        ["2026-03-02 05:00 · p95 1.3 s, average 1.1 s"],
    ]
    of_hour = re.findall(r'<a href="([^"]+)"[^>]*>(?:(?!</a>).)*2026-03-02 05:00', charts[0], re.S)
    assert [len(rows_of(staff.get(unescape(url)))) for url in of_hour] == [2, 2, 1]


def test_tool_page_says_since_when_it_is_slower_and_fails(staff: Client, project: Project) -> None:
    since = datetime(2026, 3, 2, 18, tzinfo=UTC)
    for hours in range(-40, 6):
        is_late = hours >= 0
        calls = [
            call("search", 900 if is_late else 300, "busy" if is_late and hours % 2 else "", q=n) for n in range(2)
        ]
        store(project, run(f"run {hours}", since + timedelta(hours=hours, minutes=5), *calls))
    tool = f"/admin/traces_app/tool/{Tool.objects.get().pk}/change/"
    days = {"created_after": "2026-03-02T00:00", "created_before": "2026-03-03T00:00"}
    text = text_of(staff.get(tool, days))
    # The time of the call, not of its hour.
    assert "slower since 2026-03-02 18:05 p95 900 ms in this period, 300 ms in the one before" in text
    assert "fails more since 2026-03-02 19:05 60% since then, 0% until then" in text
    assert "since 18:05" in text
    for page in (STATISTICS, "/admin/"):
        assert "search ▲ slower since 2026-03-02 18:05" in text_of(staff.get(page, days))
    assert "slower since 2026-03-02 18:05" in text_of(staff.get(STATISTICS, {**days, "end_user": ""}))
    assert "since" not in text_of(staff.get(STATISTICS, {**days, "agent": "nobody"}))
    earlier = {"created_after": "2026-03-01T03:00", "created_before": "2026-03-02T03:00"}
    assert "since" not in text_of(staff.get(tool, earlier))


def test_list_of_tools_begins_with_what_got_slower(staff: Client, project: Project) -> None:
    for hours, duration, error in ((26, 100, ""), (2, 500, "down")):
        calls = [*([call("slow", duration)] * 6), *([call("slowest", 900)] * 6), *([call("broken", 9, error)] * 6)]
        store(project, run(f"run {hours}", ago(hours=hours), *calls))
    text = text_of(staff.get(STATISTICS))
    assert "Slowest: slowest p95 900 ms" in text
    assert "Cost slow ▲ slower p95 500 ms in this period, 100 ms in the one before 6 0%" in text
    assert "broken ▲ fails more 100% in this period, 0% in the one before 6 100% 6" in text


@pytest.mark.usefixtures("traces")
def test_any_time_is_compared_with_nothing(staff: Client) -> None:
    text = text_of(staff.get(STATISTICS, {"created": "any"}))
    assert "No period is before this one, so nothing can be compared. Compare the last 24 hours" in text
    assert "search 7 43% 3" in text
    home = text_of(staff.get("/admin/", {"created": "any"}))
    assert "What fails Tool" in home and "3/7" in home


@pytest.mark.usefixtures("traces")
def test_tab_of_a_tool_is_that_of_the_list_of_tools(staff: Client) -> None:
    page = html_of(staff.get(f"/admin/traces_app/tool/{Tool.objects.get(name='search').pk}/change/"))
    assert f'<a href="{STATISTICS}" aria-current="true">Tools</a>' in page


@pytest.mark.usefixtures("traces")
def test_custom_range_has_its_calls_only(staff: Client) -> None:
    times = {"created_after": f"{ago(hours=48):%Y-%m-%dT%H:%M}", "created_before": f"{ago(hours=24):%Y-%m-%dT%H:%M}"}
    text = text_of(staff.get(STATISTICS, times))
    assert "search 2 0% 100 ms 100 ms" in text
    assert "read" not in text.split("Failed")[1].split("A call belongs")[0]


@pytest.mark.parametrize(
    ("query", "warning"),
    [
        (
            "created=9y",
            "Invalid filter: time “9y”. Use one of: 1h, today, yesterday, 24h, 7d, 30d, any. The last 24 hours are shown.",
        ),
        ("created_after=2026-13-01", "Invalid filter: time “2026-13-01”. Use a date or a time since 1970, such as"),
        (
            "created_after=2026-02-01&created_before=2026-01-01",
            "Invalid filter: time “2026-02-01 – 2026-01-01”. “From” must be earlier than “Until”. The last 24 hours",
        ),
        ("o=foo&project=zzz", "Project “zzz” cannot be chosen here. All projects are shown."),
        ("tool=search", "This page has no such filter: tool. It is shown without."),
        ("o=foo&project=zzz", "Invalid order “foo”. Use one of: change, tool,"),
    ],
)
@pytest.mark.usefixtures("traces")
def test_invalid_parameters_are_reported_and_times_kept(staff: Client, query: str, warning: str) -> None:
    response = staff.get(f"{STATISTICS}?{query}")
    assert warning in text_of(response)
    if "created_before" in query:
        html = html_of(response)
        assert 'name="created_after" value="2026-02-01T00:00:00"' in html
        assert 'name="created_before" value="2026-01-01T00:00:00"' in html
        assert warning in text_of(staff.get(f"{STATISTICS}?{query}&format=csv", follow=True))


@pytest.mark.usefixtures("traces")
def test_pages_of_tools_take_constant_queries(staff: Client, project: Project) -> None:
    url = f"/admin/traces_app/tool/{Tool.objects.get(name='search').pk}/change/"
    before = [len(statements_of(staff, page)) for page in (STATISTICS, url)]
    store(project, run("more", ago(minutes=9), *(call(f"tool {at % 20}", at, "x" * at) for at in range(60))))
    assert [len(statements_of(staff, page)) for page in (STATISTICS, url)] == before
    assert max(before) <= 49


def test_pages_need_permission(project: Project) -> None:
    client = Client()
    client.force_login(User.objects.create_user("eve", is_staff=True))
    tool = Tool.objects.create(project=project, name="secret")
    for url in (STATISTICS, f"/admin/traces_app/tool/{tool.pk}/change/"):
        assert client.get(url).status_code == 403


def test_period_that_is_chosen_on_a_page_holds_for_all(staff: Client, project: Project) -> None:
    now = timezone.now().isoformat()
    store(project, {"external_id": "a", "role": "assistant", "content": "Yes.", "created_at": now})
    pages = ["/admin/traces_app/tool/statistics/", "/admin/traces_app/toolcall/errors/", "/admin/"]
    runs = "/admin/messages_app/message/?role=assistant"
    for first in (*pages, runs):
        staff.get(f"{first}{'&' if '?' in first else '?'}created=7d")
        for page in pages:
            html = html_of(staff.get(page))
            assert 'aria-current="true">Last 7 days' in html, (first, page)
            assert f'href="{runs.replace("&", "&amp;")}&amp;created=7d"' in html
            assert 'href="/admin/traces_app/score/?created=7d"' in html
        staff.get("/admin/?created=never")  # no period: the others keep their own
        assert staff.get(pages[0]).status_code == 200
        # A list at any time has no period in its address, and what a chart leads to is chosen by nobody.
        moved = staff.get(f"{runs}&created=any")
        assert moved.headers["Location"] == runs
        staff.get(f"{runs}&created_after=2026-01-01")
        assert 'aria-current="true">Any time' in html_of(staff.get(runs))
        for page in pages:
            html = html_of(staff.get(page))
            assert 'aria-current="true">Any time' in html, (first, page)
            assert f'href="{runs}"' in html
