"""Lists in a real browser: facets, the completion of the search, and the panel of a run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from access_app.models import Project
from tests.chromium import needs_chromium
from tests.traces_app.admin.test_admin_in_browser import browse, session_key, watched
from tests.traces_app.conftest import NOON, answer, question, store

__all__ = ["session_key"]
pytestmark = [pytest.mark.system, needs_chromium]
RUNS = "/admin/messages_app/message/?role=assistant"
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture
def runs(transactional_db: None) -> None:
    """Three runs, of which the second has failed."""
    project = Project.objects.create(slug="owner")
    for name, error in (("one", ""), ("two", "the disk is full"), ("three", "")):
        call = {"name": f"tool_{name}", "result": {"error": error} if error else {"output": "ok"}}
        run = answer(content=f"answer {name}", agent_steps=[{"agent_name": "planner", "tool_calls": [call]}])
        store(project, question(content=f"question {name}"), run, external_id=name)


@pytest.fixture
def page(runs: None, session_key: str, browser: Browser, live_server: Any) -> Iterator[Page]:
    """The list of the runs in a wide window, which has no errors."""
    for context in browse(browser, session_key, live_server.url):
        opened, complaints = watched(context)
        opened.set_viewport_size(WIDE)
        opened.goto(RUNS)
        yield opened
        assert complaints == []


def test_panel_of_a_run_is_gone_through_by_keyboard(page: Page) -> None:
    rows = page.locator("#result_list tbody tr")
    rows.nth(0).locator("th a").click()
    panel = page.get_by_role("complementary", name="The selected row")
    first = rows.nth(0).locator("th a").inner_text().splitlines()[0]
    expect(panel.get_by_role("heading", name=first)).to_be_visible()
    beside, table = panel.bounding_box(), page.locator("#result_list").bounding_box()
    assert beside is not None and table is not None
    assert beside["x"] >= table["x"] + table["width"] and beside["y"] < 200
    page.keyboard.press("ArrowDown")
    second = rows.nth(1).locator("th a").inner_text().splitlines()[0]
    expect(panel.get_by_role("heading", name=second)).to_be_visible()
    page.keyboard.press("k")
    expect(panel.get_by_role("heading", name=first)).to_be_visible()
    assert "#peek-" in page.url
    page.reload()
    expect(panel.get_by_role("heading", name=first)).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    assert "#" not in page.url
    rows.filter(has_text="question two").locator("td").nth(3).click()
    expect(panel.get_by_text("Why it failed")).to_be_visible()
    panel.get_by_role("link", name="tool_two").click()
    page.wait_for_url("**/change/?call=*")
    page.set_viewport_size(NARROW)
    page.goto(RUNS)
    rows.nth(0).locator("th a").click()
    page.wait_for_url("**/change/**")


def test_session_is_deleted_in_two_clicks_and_restored_in_one(page: Page) -> None:
    sessions = "/admin/messages_app/session/"
    page.goto(sessions)
    rows = page.locator("#result_list tbody tr")
    expect(rows).to_have_count(3)
    rows.nth(0).locator("th a").click()
    page.get_by_role("complementary", name="The selected row").get_by_role("button", name="Move to the trash").click()
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Undo").click()
    page.wait_for_url("**/change/")
    page.get_by_role("button", name="Move to the trash").click()
    page.wait_for_url(f"**{sessions}")
    expect(rows).to_have_count(2)


@pytest.mark.parametrize("url", ["/admin/messages_app/session/", "/admin/traces_app/toolcall/?order=duration"])
def test_panel_of_any_list_leads_to_the_page(page: Page, url: str) -> None:
    page.goto(url)
    row = page.locator("#result_list tbody tr").nth(1)
    row.locator("td").last.click()
    panel = page.get_by_role("complementary", name="The selected row")
    expect(panel.get_by_role("heading", level=2)).to_contain_text(row.locator("th a").inner_text().splitlines()[0])
    page.keyboard.press("Enter")
    page.wait_for_url("**/change/**")
    page.go_back()
    panel.get_by_role("heading", level=2).get_by_role("link").click()
    page.wait_for_url("**/change/**")


def test_facets_filter_and_complete_the_search(page: Page) -> None:
    facets = page.get_by_role("navigation", name="Filters with counts")
    expect(facets.get_by_text("3 in all · 1 failed")).to_be_visible()
    page.locator("#searchbar").fill("outc")
    expect(page.locator("#search-words option").first).to_have_attribute("value", "outcome:failed ")
    page.locator("#searchbar").fill("outcome:failed")
    page.keyboard.press("Enter")
    page.wait_for_url("**outcome=failed**")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    facets.get_by_role("link", name="Failed").click()
    expect(page.locator("#result_list tbody tr")).to_have_count(3)


def test_head_stays_in_sight_while_one_scrolls(page: Page) -> None:
    head = page.locator("#result_list thead")
    page.set_viewport_size({"width": 1440, "height": 200})
    expect(page.locator(".results.fits")).to_have_count(1)
    page.locator("#result_list tbody tr").nth(1).evaluate(
        "row => scrollTo(0, row.getBoundingClientRect().top + scrollY)"
    )
    box = head.locator("th").nth(1).bounding_box()
    assert box is not None and abs(box["y"]) < 2
    # One that is wider than its frame scrolls in it.
    page.set_viewport_size({"width": 800, "height": 200})
    page.evaluate("document.getElementById('result_list').style.minWidth = '2000px'")
    expect(page.locator(".results.fits")).to_have_count(0)


def test_list_says_how_many_runs_have_come(page: Page) -> None:
    page.clock.install()
    with page.expect_response("**/arrived/**"):
        page.reload()
    news = page.get_by_role("link", name="New runs:")
    project = Project.objects.get()
    for name in ("four", "five"):
        at = NOON + timedelta(minutes=1)
        store(project, question(created_at=at), answer(created_at=at), external_id=name)
    for _try in range(300):
        if news.count():
            break
        page.clock.fast_forward(31_000)  # it may come before the script waits for it
        page.wait_for_timeout(200)
    expect(news).to_have_text("New runs: 2")
    news.click()
    expect(page.locator("#result_list tbody tr")).to_have_count(5)
    expect(news).to_have_count(0)
