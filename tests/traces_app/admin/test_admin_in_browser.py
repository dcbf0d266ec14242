"""The admin in a real browser: no error of the content security policy, and no trace content is executed.

Needs Debian's Chromium; skipped where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.models import Message, Session
from sdk.tests.paths import SHARED
from tests.chromium import needs_chromium
from tests.traces_app.conftest import answer, question, store
from traces_app.imports.importer import import_paths
from traces_app.ingest.scores import PlacedScore, ScoreTarget, store_scores
from traces_app.models import AgentStep, ModelPrice, Score, Tool, ToolCall
from tracesite.samples.loader import load_samples
from tracesite.samples.replayed import load_replayed
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.redaction.rules import DEFAULT_RULES

REAL_TRACE = SHARED / "claude_code/entire_thinking72_errors10_bb-781d6f3a8e-0.jsonl"
HOSTILE = (
    "<script>document.title = 'broken in'</script><img src=x onerror=\"document.title = 'broken in'\">"
    "</div></details></main><a href=\"javascript:document.title = 'broken in'\">\u202e\x1b[31m"
)

pytestmark = [pytest.mark.system, needs_chromium]


@pytest.fixture
def pages(transactional_db: None) -> list[str]:
    """Return the paths of the main pages, each with hostile content."""
    project = Project.objects.create(slug="owner")
    call = {
        "id": HOSTILE,
        "name": HOSTILE,
        "args": {HOSTILE: HOSTILE, "lines": HOSTILE + "\n" + HOSTILE},
        "reflection": HOSTILE,
        "result": {"success": False, "output": HOSTILE * 20, "error": HOSTILE, "data": {HOSTILE: [HOSTILE]}},
    }
    run = answer(
        content=HOSTILE,
        agent_steps=[
            {
                "thought": HOSTILE,
                "agent_name": HOSTILE,
                "model": HOSTILE,
                "tool_calls": [call],
                "input": {"messages": [{"role": HOSTILE, "content": HOSTILE}], "system": HOSTILE, "tools": [HOSTILE]},
            }
        ],
        knowledge_references=[{"id": "r", "content": HOSTILE, "knowledge_title": HOSTILE}],
    )
    outcome = store(project, question(content=HOSTILE), run, title=HOSTILE, end_user=HOSTILE, tags=[HOSTILE])
    message = outcome.messages[1].id
    deleted = store(project, question(content=HOSTILE), external_id="deleted", title=HOSTILE)
    assert isinstance(message, UUID)
    assert deleted.id is not None
    writes.delete_session(primary, deleted.id, by=HOSTILE)
    for place in (ScoreTarget(session_id=outcome.id), ScoreTarget(session_id=outcome.id, message_id=message)):
        score = records.Score(name=HOSTILE, value=HOSTILE, comment=HOSTILE, author=HOSTILE)
        store_scores(primary, project.pk, [PlacedScore(redacted=redact_score(score, DEFAULT_RULES), place=place)])
    price = ModelPrice.objects.create(
        project=project, model=HOSTILE, input=1, output=2, as_of=date(2026, 1, 1), source=HOSTILE
    )
    call_id, step_id = ToolCall.objects.get().pk, AgentStep.objects.get().pk
    return [
        *("/admin/", "/admin/messages_app/session/", "/admin/messages_app/message/", "/admin/traces_app/tool/"),
        *(
            "/admin/traces_app/tool/statistics/?created_after=2026-01-01",
            f"/admin/traces_app/tool/{Tool.objects.all()[0].pk}/change/?created_after=2026-01-01",
        ),
        *("/admin/traces_app/score/", f"/admin/traces_app/score/{Score.objects.all()[0].pk}/change/"),
        *(
            f"/admin/messages_app/session/{outcome.id}/change/",
            f"/admin/messages_app/message/{message}/change/?open=all",
            f"/admin/messages_app/message/{message}/change/?call={step_id}&tab=input",
            f"/admin/messages_app/message/{message}/change/?call={call_id}",
        ),
        *("/admin/traces_app/toolcall/?status=error", f"/admin/traces_app/toolcall/{call_id}/change/"),
        *("/admin/messages_app/session/trash/", f"/admin/messages_app/session/{deleted.id}/restore/"),
        *(f"/admin/messages_app/session/{outcome.id}/delete/", f"/admin/messages_app/session/{outcome.id}/history/"),
        *("/admin/messages_app/session/add/", "/admin/messages_app/message/add/"),
        *("/admin/access_app/project/", "/admin/access_app/apikey/add/", "/admin/password_change/"),
        *("/admin/auth/user/", "/admin/auth/user/add/"),
        *("/admin/traces_app/modelprice/", f"/admin/traces_app/modelprice/{price.pk}/change/"),
    ]


@pytest.fixture
def session_key(transactional_db: None) -> str:
    """Return the cookie of a logged-in superuser."""
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def browse(
    browser: Browser,
    session_key: str,
    url: str,
    *,
    theme: Any = "light",
    timezone: str = "Europe/London",
    scripts: bool = True,
) -> Iterator[BrowserContext]:
    with browser.new_context(
        base_url=url, locale="en", color_scheme=theme, timezone_id=timezone, java_script_enabled=scripts
    ) as context:
        if session_key:
            context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session_key, "url": url}])
        yield context


def watched(context: BrowserContext) -> tuple[Page, list[str]]:
    """Return a new tab, and the list of its errors, among them requests to other hosts."""
    page = context.new_page()
    complaints: list[str] = []
    page.on(
        "request",
        lambda sent: (
            complaints.append(f"{page.url}: {sent.url}")
            if urlsplit(sent.url).hostname not in (None, "localhost", "127.0.0.1")
            else None
        ),
    )
    page.on(
        "console", lambda message: complaints.append(f"{page.url}: {message.text}") if message.type == "error" else None
    )
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    page.on("dialog", lambda dialog: complaints.append(f"{page.url}: dialog {dialog.message}"))
    return page, complaints


def see_failed_call(page: Page, text: str = "") -> None:
    """See that the page of a run shows a failed call: its row in the path, and its error."""
    expect(page.locator(".run-row-error[aria-selected=true]")).to_be_in_viewport()
    error = page.locator(".run-panel .run-value-error")
    expect(error).to_be_in_viewport()
    expect(error).to_contain_text(text)


def test_pages_have_no_browser_errors_and_run_no_trace_content(
    pages: list[str], session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        titles = {}
        for language, label in (("en", "English"), ("zh-hans", "简体中文")):
            page.goto(pages[0])
            if page.locator("html").get_attribute("lang") != language:
                page.locator(".rail button").click()
                page.get_by_role("button", name=label).click()
            assert page.locator("html").get_attribute("lang") == language
            for path in pages:
                response = page.goto(path)
                assert response is not None
                assert (path, response.status) == (path, 200)
                assert page.title() != "broken in"
                assert page.locator("main script:not([src], [type='application/json']), main img[src=x]").count() == 0
                assert page.locator("main").count() == 1
                titles[language, path] = page.title()
        assert complaints == []
        # Each page has a title in its language, except those named after their content.
        named = [path for path in pages if titles["en", path] == titles["zh-hans", path]]
        assert all(path.split("?")[0].endswith("/change/") for path in named), named


def test_failed_call_is_three_clicks_away(
    pages: list[str], session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url, theme="dark"):
        page, complaints = watched(context)
        page.goto("/admin/")
        page.locator(".rail").get_by_role("link", name="Tools").click()
        page.locator(".part-lists").get_by_role("link", name="Failed calls").click()
        page.wait_for_url("**/?status=error")  # with its scripts, without which a row is a link to its page
        page.locator("#result_list tbody th a, #result_list tbody td a").first.click()
        expect(page.locator(".peek")).to_contain_text("U+202E")
        page.locator(".peek").get_by_role("link", name="Open", exact=True).click()
        page.wait_for_url("**/change/?call=*")
        see_failed_call(page, "U+202E")
        assert complaints == []


@pytest.mark.parametrize("data", ["samples", "real"])
def test_failed_call_is_at_most_two_clicks_from_home(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any, data: str
) -> None:
    project = Project.objects.create(slug="demo")
    if data == "samples":
        load_samples(primary, project)
    elif not REAL_TRACE.exists():
        pytest.skip("the shared data are not on this machine")
    else:
        assert [report.status for report in import_paths(primary, [REAL_TRACE], project.pk)] == ["read"]
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto("/admin/?created=30d")
        if data == "real":
            # It is older than the longest preset period.
            page.locator(".note a").click()
            page.wait_for_url("**created_after=*")
        assert page.locator(".charts svg.chart").count() == 4
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
            # A long error takes two lines.
            heights = page.locator(".clip").evaluate_all("all => all.map(each => each.getBoundingClientRect().height)")
            assert max(heights) < 45
        # The figures of a bar are shown to the mouse and to the keyboard.
        page.locator(".chart .bar-bottom").last.hover()
        chart = page.locator(".chart").first
        chart.locator("a").first.focus()
        page.keyboard.press("ArrowRight")
        second = chart.locator("a").nth(1)
        expect(second).to_be_focused()
        expect(second.locator(".words")).to_have_css("opacity", "1")
        page.locator(".changes td.wraps a").first.click()
        page.wait_for_url("**/change/?call=*")
        see_failed_call(page)
        assert complaints == []


def test_failures_are_two_clicks_from_a_search_and_from_the_tools(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    load_samples(primary, Project.objects.create(slug="demo"))
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        # Why did the refund fail?
        page.goto("/admin/")
        page.get_by_label("Search all traces").last.fill("refund IBAN")
        page.keyboard.press("Enter")
        page.locator(".found-in-list mark").first.wait_for()
        page.locator(".found-in-list").get_by_role("link", name="Failed calls").click()
        page.wait_for_url("**/toolcall/?q=refund*&status=error")
        page.locator("#result_list tbody :is(th, td) a").first.click()
        expect(page.locator(".peek")).to_contain_text("a refund to a bank account needs its IBAN")
        page.locator(".peek").get_by_role("link", name="Open", exact=True).click()
        page.wait_for_url("**/change/?call=*")
        see_failed_call(page, "a refund to a bank account needs its IBAN")
        page.locator(".rail").get_by_role("link", name="Search").click()
        page.get_by_role("searchbox", name="Search").fill("expired")
        page.keyboard.press("Enter")
        page.locator(".found-in-list").get_by_role("link", name="Refund order 5471", exact=True).first.wait_for()
        page.goto("/admin/traces_app/tool/statistics/?created_after=2020-01-01")
        assert page.locator(".tool-table tbody tr:has(svg)").count() > 5
        # The whole table fits a laptop; a phone shows what changed without scrolling.
        page.set_viewport_size({"width": 1280, "height": 900})
        assert (
            page.evaluate(
                "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('.wide-table'))"
            )
            <= 0
        )
        page.set_viewport_size({"width": 390, "height": 900})
        page.goto("/admin/traces_app/tool/statistics/?created=24h")
        change = page.locator("main .change").first.bounding_box()
        assert change is not None and change["x"] + change["width"] < 350
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.goto("/admin/traces_app/tool/statistics/?created_after=2020-01-01")
        assert page.locator(".tool-table tbody th a", has_text="change_address").first.evaluate(LINES) == 1
        page.locator(".tool-table tbody th a").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/tool/*/change/?created_after=*")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator(".cards section").first.locator("li .quiet a").first.click()
        page.wait_for_url("**/change/?call=*")
        see_failed_call(page)
        assert complaints == []


def test_filtered_sessions_are_all_tagged(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    project = Project.objects.create(slug="owner")
    for number in range(52):
        store(project, question(), external_id=f"s{number}", tags=["old"] if number else [])
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto("/admin/messages_app/session/")
        page.locator(".filter-panel > summary").click()
        page.get_by_label("Tag", exact=True).fill("old")
        page.get_by_role("button", name="Apply").click()
        page.locator(".chip", has_text="tag").wait_for()
        assert page.url.endswith("/session/?tag=old")
        page.locator("summary", has_text="Columns").click()
        page.get_by_label("Tags", exact=True).check()
        page.get_by_role("button", name="Show", exact=True).click()
        assert page.locator("td.field-labels").first.inner_text() == "old"
        page.wait_for_load_state()  # with the script of the actions
        page.locator("#action-toggle").click()
        page.get_by_role("button", name="Select all that match, on all pages").click()
        expect(page.locator(".actions .all")).to_be_visible()
        page.locator("select[name=action]").select_option("tag_selected")
        page.get_by_role("button", name="Go").click()
        page.get_by_label("Tag for these 51 sessions").fill("reviewed")
        page.get_by_role("button", name="Add the tag").click()
        page.get_by_text("51 sessions have the tag “reviewed” now; 0 had it before.").wait_for()
        assert complaints == []
    assert Session.objects.filter(tags__contains=["reviewed"]).count() == 51


@pytest.fixture
def long_run(transactional_db: None) -> str:
    """Return the path of a run of 2,000 steps, the first two with an output of 5 MB."""
    call = {"id": "c", "name": "read_file", "args": {"path": "log.txt"}, "result": {"output": "ok"}}
    steps = [{"iteration": step, "thought": f"thought {step}", "tool_calls": [call]} for step in range(2_000)]
    for step in steps[:2]:
        step["tool_calls"] = [{**call, "result": {"output": "line of a log\n" * 360_000}}]
    outcome = store(Project.objects.create(slug="long"), answer(agent_steps=steps))
    return f"/admin/messages_app/message/{outcome.messages[0].id}/change/?open=all"


def test_long_run_is_shown_in_pages(long_run: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(long_run)
        assert page.locator("details.call").count() == 50
        assert page.get_by_text("thought 49", exact=True).is_visible()
        # The browser gets 50 steps, and only the beginnings of 10 MB of output.
        assert page.evaluate("document.querySelectorAll('*').length") < 5_000
        assert page.evaluate("document.documentElement.outerHTML.length") < 500_000
        link = page.get_by_role("link", name="Download all (4.8 MB)")
        assert link.count() == 2
        with page.expect_download() as download:
            link.first.click()
        assert download.value.suggested_filename.endswith("-output.txt")
        assert download.value.path().stat().st_size == 14 * 360_000
        output = page.locator("details.call").first.locator("details.fold")
        output.locator("summary").click()
        assert output.locator(".text").is_visible()
        page.get_by_role("link", name="Later steps").click()
        page.wait_for_url("**page=2**")
        assert page.get_by_text("thought 50", exact=True).is_visible()
        assert page.get_by_text("thought 49", exact=True).count() == 0
        assert page.locator("details.call[open]").count() == 50  # as before
        page.get_by_role("link", name="Earlier steps").click()
        page.wait_for_url("**page=1**")
        assert page.get_by_text("thought 0", exact=True).is_visible()
        page.get_by_label("Page 1 of 40").fill("40")
        page.get_by_role("button", name="Show", exact=True).click()
        page.wait_for_url("**page=40**")
        assert page.get_by_text("thought 1999", exact=True).is_visible()
        page.get_by_role("link", name="Collapse all").click()
        page.wait_for_url("**page=40")
        page.locator("details.call > summary").nth(2).click()
        page.goto("/admin/")
        page.go_back()
        page.wait_for_function("document.querySelector('details.call[open]')")
        assert page.locator("details.call").nth(2).get_attribute("open") is not None
        assert page.locator("details.call[open]").count() == 1
        assert complaints == []


@pytest.fixture
def lossy_run(transactional_db: None) -> str:
    """Return the path of a run with losses of its recorder."""
    missing = {"dropped": 12, "sampled_out": 3, "truncated": 1, "redacted": 2}
    outcome = store(Project.objects.create(slug="lossy"), answer(metadata={"recorder": missing}))
    return f"/admin/messages_app/message/{outcome.messages[0].id}/change/"


def test_losses_of_a_recorder_are_shown_at_the_top(
    lossy_run: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(lossy_run)
        note = page.get_by_role("note")
        assert note.is_visible()
        assert note.inner_text() == (
            "Missing from this trace: 12 events were lost. 3 calls were sampled out. 1 value was truncated."
        )
        page.get_by_role("button", name="Account").click()
        page.get_by_role("button", name="简体中文").click()
        assert page.get_by_role("note").inner_text() == (
            "此轨迹中缺少： 丢失了 12 个事件。 3 个调用被采样舍弃。 1 个值被截断。"
        )
        assert complaints == []


def test_first_page_leads_to_the_first_trace(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    project = Project.objects.create(slug="first")
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto("/admin/")
        page.get_by_text("Claude Code", exact=True).click()
        assert page.locator("pre:visible").count() == 1
        assert "import_transcripts --project first ~/.claude/projects" in page.locator("pre:visible").inner_text()
        assert page.get_by_role("status").inner_text() == "Waiting for the first trace …"
        stored = store(project, answer())
        page.wait_for_url(f"**/message/{stored.messages[0].id}/change/", timeout=15_000)
        assert complaints == []


def test_session_is_deleted_and_restored_with_clicks(
    pages: list[str], session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto("/admin/messages_app/session/")
        page.locator("#result_list tbody th a").first.click()
        page.locator(".peek").get_by_role("link", name="Open", exact=True).click()
        page.wait_for_url("**/change/*")
        page.get_by_role("button", name="Move to the trash").click()
        page.wait_for_url("**/admin/messages_app/session/")
        page.get_by_role("link", name="Trash").first.click()
        page.locator("#result_list tbody th a").first.click()
        page.get_by_role("link", name="Restore").click()
        page.get_by_role("button", name="Restore").click()
        page.wait_for_url("**/change/")
        assert page.locator(".note-trash").count() == 0
        assert complaints == []


@pytest.fixture
def weather(transactional_db: None) -> str:
    """Return the path of the run of the standard session."""
    outcome = store(Project.objects.create(slug="owner"), question(), answer())
    return f"/admin/messages_app/message/{outcome.messages[1].id}/change/"


def test_time_shows_local_time_when_pointed_at(
    weather: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url, timezone="Asia/Shanghai"):
        page, complaints = watched(context)
        page.goto(weather)
        time = page.locator(".figures time")
        assert (time.inner_text(), time.get_attribute("title")) == ("2026-03-01 12:00:00", "2026-03-01 12:00:00 UTC")
        for _again in range(2):
            page.mouse.move(0, 0)
            time.hover()
        relative, local, utc = (time.get_attribute("title") or "").split("\n")
        assert relative.endswith(" ago") or relative.startswith(("in ", "last ", "next "))
        assert "Mar 1, 2026, 8:00:00" in local
        assert "GMT+8" in local
        assert utc == "2026-03-01 12:00:00 UTC"
        assert complaints == []


def test_undo_works_without_scripts(weather: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url, scripts=False):
        page = context.new_page()
        page.goto("/admin/messages_app/session/")
        page.locator("#result_list tbody th a").first.click()
        page.get_by_role("button", name="Move to the trash").click()
        page.get_by_role("button", name="Undo").click()
        page.wait_for_url("**/change/")
        assert page.locator(".messagelist").inner_text().endswith("was restored.")
        assert page.locator(".note-trash").count() == 0


@pytest.fixture
def samples(transactional_db: None) -> None:
    """Load the sessions of `make run`; one run has 5,000 calls, and one took long."""
    project = Project.objects.create(slug="demo")
    load_samples(primary, project)
    long = Message.objects.filter(call_count__gt=0).order_by("-pk").first()
    assert long is not None
    Message.objects.filter(pk=long.pk).update(call_count=5_000, failure_count=5_000, duration_ms=3_599_000)


LINES = """cell => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return new Set([...range.getClientRects()].filter(rect => rect.width > 0).map(rect => rect.bottom)).size;
}"""


def test_list_of_runs_fits_laptops_in_both_languages(
    samples: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto("/admin/messages_app/message/?role=assistant")
        for language, label, heading in (("en", "English", "Session"), ("zh-hans", "简体中文", "会话")):
            if page.locator("html").get_attribute("lang") != language:
                page.locator(".rail button").click()
                page.get_by_role("button", name=label).click()
                page.wait_for_load_state()
            for width in (1280, 1440):
                page.set_viewport_size({"width": width, "height": 900})
                results = page.locator(".results")
                assert results.evaluate("element => element.scrollWidth - element.clientWidth") == 0, (language, width)
                cell = page.locator("#result_list thead th").last
                assert cell.inner_text().lower().startswith(heading.lower())
                box, room = cell.bounding_box(), results.bounding_box()
                assert box is not None and room is not None
                assert box["x"] + box["width"] <= room["x"] + room["width"] + 1
                number = page.locator("td.field-failures", has_text="5,000")
                assert number.evaluate(LINES) == 1
            assert page.locator("th.column-failures .text a").evaluate(LINES) == 1
        assert complaints == []


def test_failed_run_leads_to_its_replay_and_snapshots_in_both_languages(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    load_replayed(primary, Project.objects.create(slug="owner"), timezone.now() - timedelta(days=1))
    failed = Session.objects.get(external_id="sample-parcel-desk").pk
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        for language, label, forks, changed in (
            ("en", "English", "Snapshots and forks", "Changed since the snapshot before"),
            ("zh-hans", "简体中文", "快照与分支", "与上一个快照相比的变化"),
        ):
            page.goto(f"/admin/messages_app/session/{failed}/change/")
            if page.locator("html").get_attribute("lang") != language:
                page.locator(".rail button").click()
                page.get_by_role("button", name=label).click()
            page.get_by_role("link", name=forks).click()
            # The tree: the failed session, and its fork with the override.
            expect(page.locator("div.run-row")).to_have_count(2)
            assert "order:2041" in page.locator("div.run-row").nth(1).inner_text().replace(" ", "").replace("\n", "")
            # The snapshot before the failure is selected.
            expect(page.locator("a.run-row[aria-current] .run-error")).to_contain_text("LookupError")
            page.locator("a.run-row").nth(0).click()
            page.locator("a.run-row").nth(1).click()
            expect(page.get_by_role("heading", name=changed)).to_have_count(1)
            expect(page.locator(".about")).to_contain_text("Look up the order, then answer.")
            expect(page.locator(".json-leaf", has_text="order: 2014")).to_be_visible()
        assert complaints == []


@pytest.fixture
def failing_run(transactional_db: None) -> str:
    """Return the path of a run of 60 steps on two pages, with three failed calls."""
    steps = [
        {
            "thought": "Look. " * 40,
            "tool_calls": [{"id": str(n), "name": f"tool {n}", "result": {"output": "ok"}} for n in range(2)],
        }
        for _step in range(60)
    ]
    for step in (2, 20, 50):
        steps[step]["tool_calls"][1] |= {"result": {"success": False, "error": f"boom {step}"}}  # type: ignore[operator]
    outcome = store(Project.objects.create(slug="owner"), question(), answer(agent_steps=steps))
    return f"/admin/messages_app/message/{outcome.messages[1].id}/change/"


def test_bar_leads_through_failures_of_all_pages(
    failing_run: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.set_viewport_size({"width": 1280, "height": 700})
        page.goto(f"{failing_run}?view=text")
        bar = page.locator("#run-failures")
        expect(bar).to_contain_text("3 failures")
        for number, step in ((1, 2), (2, 20), (3, 50)):
            bar.get_by_role("link", name="Next failure").click()
            bar.get_by_text(f"Failure {number} of 3").wait_for()
            target = page.locator("details.call:target")
            assert f"boom {step}" in target.inner_text()
            # With the number of its step, and below the bar, which stays at its place.
            assert page.locator(".step:has(:target) h3", has_text=f"Step {step}").is_visible()
            expect(target).to_be_in_viewport(ratio=1)
            at, call = bar.bounding_box(), target.bounding_box()
            assert at is not None and call is not None
            assert 0 <= at["y"] <= at["y"] + at["height"] <= call["y"]
        assert "Page 2 of 2" in page.locator("main").inner_text()
        page.locator("#run-explorer").evaluate("text => text.scrollTo(0, text.scrollHeight)")
        assert bar.bounding_box() == at
        bar.get_by_role("link", name="Previous failure").click()
        bar.get_by_text("Failure 2 of 3").wait_for()
        # So it does beside the rows, without leaving them.
        page.goto(failing_run)
        for number, step in ((1, 3), (2, 21)):
            bar.get_by_role("link", name="Next failure").click()
            expect(bar).to_contain_text(f"Failure {number} of 3")
            see_failed_call(page, f"boom {step - 1}")
        page.keyboard.press("k")
        expect(page.locator("#run-failures .place")).to_be_hidden()
        assert complaints == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_red_is_for_deleting_and_badges_show_on_red(
    pages: list[str], session_key: str, browser: Browser, live_server: Any, theme: str
) -> None:
    def background(locator: Locator) -> str:
        return str(locator.evaluate("element => getComputedStyle(element).backgroundColor"))

    restore, delete = (next(path for path in pages if path.endswith(f"/{name}/")) for name in ("restore", "delete"))
    run = next(path for path in pages if "/message/" in path and "/change/" in path)
    for context in browse(browser, session_key, live_server.url, theme=theme):
        page, complaints = watched(context)
        colours = []
        for path in (restore, delete):
            page.goto(path)
            colours.append(background(page.locator("main form input[type=submit]")))
        assert colours[0] != colours[1]
        page.goto(run)
        head = page.locator("details.call-error > summary").first
        assert background(head.locator(".badge-error")) != background(head)
        assert complaints == []


def test_pages_fit_a_phone(pages: list[str], session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, _complaints = watched(context)
        page.set_viewport_size({"width": 390, "height": 800})
        for path in pages:
            page.goto(path)
            assert (path, page.evaluate("document.documentElement.scrollWidth")) == (path, 390)
            # Rows of lists are cards there.
            for card in page.locator(".results:has(#result_list)").all():
                assert (path, card.evaluate("element => element.scrollWidth - element.clientWidth")) == (path, 0)
                assert card.locator("[data-label]").count()


def test_login_page_works_in_both_languages(transactional_db: None, browser: Browser, live_server: Any) -> None:
    User.objects.create_superuser("ada", password="correct horse battery")
    for context in browse(browser, "", live_server.url):
        page, complaints = watched(context)
        page.goto("/admin/")
        page.get_by_role("button", name="简体中文").click()
        assert page.locator("html").get_attribute("lang") == "zh-hans"
        page.locator("#id_username").fill("ada")
        page.locator("#id_password").fill("correct horse battery")
        page.locator("#login-form [type=submit]").click()
        page.wait_for_url("**/admin/")
        assert page.locator(".home h1").inner_text() == "还没有轨迹"
        assert complaints == []


def test_answer_is_judged_without_scripts(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    outcome = store(Project.objects.create(slug="owner"), question(), answer())
    conversation = f"/admin/messages_app/session/{outcome.id}/change/"
    for context in browse(browser, session_key, live_server.url, scripts=False):
        page, complaints = watched(context)
        page.goto(conversation)
        page.get_by_text("Note", exact=True).click()
        page.get_by_role("textbox", name="Note").fill("Right, and short.")
        page.get_by_role("button", name="Thumbs up").click()
        assert page.url.endswith(f"{conversation}#scores-{outcome.messages[1].id}")
        expect(page.get_by_role("button", name="Thumbs up", pressed=True)).to_have_count(1)
        page.get_by_role("button", name="Thumbs down").click()
        expect(page.get_by_role("button", name="Thumbs down", pressed=True)).to_have_count(1)
        expect(page.locator(".score-comment")).to_have_text(["Right, and short."])
        assert complaints == []
    score = Score.objects.get()
    assert (score.value, score.comment, score.author) == (False, "Right, and short.", "ada")
