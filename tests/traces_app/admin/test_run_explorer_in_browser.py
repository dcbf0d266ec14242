"""The tree, the waterfall and the panel of a run in a real browser."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from access_app.models import Project
from tests.chromium import needs_chromium
from tests.traces_app.admin.test_admin_in_browser import HOSTILE, browse, session_key, watched
from tests.traces_app.conftest import NOON, answer, store
from traces_app.queries.search import found, in_run

pytestmark = [pytest.mark.system, needs_chromium]
__all__ = ["session_key"]  # a fixture

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SVG = "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+"


def call_of(name: str, after: int, took: int, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "args": {},
        "started_at": NOON + timedelta(milliseconds=after),
        "duration": took,
        "result": {"output": "ok"},
        **fields,
    }


@pytest.fixture(autouse=True)
def unhurried_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a search a minute: on a busy machine two seconds are not enough for 3,000 calls, and what was found until then is no match."""
    for module in (found, in_run):
        monkeypatch.setattr(module, "SECONDS", 60.0)


@pytest.fixture
def run(transactional_db: None) -> str:
    """Return the path of a run of 3,000 calls: the 11th holds JSON and an image, the 2,006th failed with hostile texts."""
    calls = [call_of(f"tool_{number}", number * 10, 5) for number in range(3_000)]
    json_text = '{"rows": [{"number": 12345678901234567890123}]}'
    data = {"image": PIXEL, "drawing": SVG, "text": json_text}
    calls[10] = call_of("query", 100, 5, result={"output": json_text, "data": data})
    calls[2_999] = call_of("after_a_gap", 33_000, 5)
    failed = {"success": False, "error": HOSTILE, "data": {HOSTILE: HOSTILE}}
    calls[2_005] = call_of(HOSTILE, 25_000, 3_000, args={HOSTILE: HOSTILE}, result=failed)
    steps = [
        {"iteration": step, "thought": f"thought {step}", "timestamp": NOON, "tool_calls": calls[first : first + 100]}
        for step, first in enumerate(range(0, 3_000, 100))
    ]
    steps[0]["input"] = {"messages": [{"role": "user", "content": f"What is asked? {HOSTILE}"}]}
    outcome = store(Project.objects.create(slug="explored"), answer(agent_steps=steps))
    return f"/admin/messages_app/message/{outcome.messages[0].id}/change/"


def row(page: Page, name: str) -> Any:
    return page.locator(".run-row").filter(has=page.get_by_text(name, exact=True))


def share_of(page: Page, drawn: Any) -> tuple[float, float]:
    """Return where something begins and ends on the axis of the waterfall, from 0 to 1."""
    # What is clicked is painted in the next frame.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    axis, box = page.locator(".run-times").bounding_box(), drawn.bounding_box()
    assert axis is not None
    return tuple((x - axis["x"]) / axis["width"] for x in (box["x"], box["x"] + box["width"]))


def test_tree_folds_finds_and_jumps_to_failures(run: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(run)
        expect(row(page, "tool_0")).to_be_visible()
        assert page.locator(".run-row").count() < 60
        # The first failure is open, but neither the page nor the list has moved to it.
        expect(page.locator(".run-panel .run-value-error")).to_contain_text("<script>document.title")
        places = (
            "[scrollY, document.querySelector('.run-list').scrollTop, document.activeElement.tagName, location.search]"
        )
        assert page.evaluate(places) == [0, 0, "BODY", ""]
        expect(row(page, "tool_0").locator(".run-took")).to_have_text("5 ms")
        expect(row(page, "tool_0").locator(".run-sign")).to_have_text("✓")
        row(page, "Step 1").locator(".run-fold").click()
        expect(row(page, "tool_0")).to_have_count(0)
        expect(row(page, "Step 2")).to_be_visible()
        # The keyboard: the next failure unfolds and shows what it selects.
        page.keyboard.press("n")
        expect(page.locator(".run-panel .run-value-error")).to_contain_text("<script>document.title")
        expect(page.locator(".run-row[aria-selected=true]")).to_be_in_viewport()
        assert "U+202E" in page.locator(".run-panel").inner_text()
        assert "#call-" in page.url
        page.keyboard.press("k")
        expect(page.locator(".run-panel h3")).to_have_text("tool_2004")
        page.keyboard.press("/")
        page.keyboard.type("tool_2500")
        page.keyboard.press("Enter")
        expect(page.locator(".run-panel h3")).to_have_text("tool_2500")
        # What the payloads say is found, too: by the grammar of the search, and shown with its place.
        said = page.locator(".run-tools [role=status]")
        find = page.get_by_label("Find in this run").first
        find.fill('error:"document.title"')
        page.keyboard.press("Enter")
        expect(said).to_have_text("1 of 1")
        expect(page.locator(".run-places")).to_contain_text("Error: <script>document.title")
        find.fill("tool_2501 ok")
        expect(said).to_have_text("Found: 1")
        page.get_by_role("button", name="Next match").click()
        expect(page.locator(".run-panel h3")).to_have_text("tool_2501")
        find.fill('output:"no end')
        expect(said).to_contain_text("Character 8: This quotation mark has no partner.")
        find.fill("")
        page.get_by_role("button", name="Bottleneck").click()
        expect(page.locator(".run-row[aria-selected=true] .run-bottleneck")).to_be_visible()
        page.get_by_label("Only failures").check()
        expect(page.locator(".run-row")).to_have_count(2)  # with its step
        page.locator(".run-list").click()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.get_by_role("button", name="Close").click()
        assert page.title() != "broken in"
        assert page.locator("img[src=x]").count() == 0
        assert complaints == []


def test_first_rows_are_usable_before_the_others(
    run: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        held: list[Any] = []
        page.route("**/outline/", lambda route, _request, seen=held: seen.append(route))
        page.goto(run)
        expect(row(page, "tool_0")).to_be_visible()
        expect(page.get_by_text("The other rows are being loaded.")).to_be_visible()
        row(page, "Step 1").locator(".run-fold").click()
        row(page, "Step 2").click()
        expect(page.locator(".run-panel h3")).to_have_text("Step 2")
        page.locator(".run-list").evaluate("list => { list.scrollTop = 52; }")
        page.get_by_label("Find in this run").first.fill("tool_2500")
        (outline,) = held
        outline.continue_()
        expect(page.locator(".run-tools [role=status]")).to_have_text("Found: 1")
        expect(page.get_by_text("The other rows are being loaded.")).to_be_hidden()
        # What was folded, selected and in sight stays so.
        expect(page.locator(".run-row").first).to_have_attribute("aria-setsize", "2930")
        assert page.locator(".run-list").evaluate("list => list.scrollTop") == 52
        expect(page.locator(".run-row[aria-selected=true]")).to_contain_text("Step 2")
        expect(row(page, "tool_0")).to_have_count(0)
        assert complaints == []


def test_waterfall_zooms_and_shows_gaps(run: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url, theme="dark"):
        page, complaints = watched(context)
        page.goto(run)
        page.get_by_role("button", name="Waterfall").click()
        expect(page.locator(".run-bar").first).to_be_visible()
        assert page.locator(".run-row").count() < 60
        ticks = page.locator(".run-times").inner_text()
        # Nothing ran in the 3 seconds before the last call, and one call failed, at 25 of 33 seconds.
        expect(page.locator(".run-times .run-gap")).to_have_count(1)
        assert share_of(page, page.locator(".run-times .run-gap")) == pytest.approx((30 / 33, 1), abs=0.02)
        expect(page.locator(".run-times .run-failure-mark")).to_have_count(1)
        assert share_of(page, page.locator(".run-times .run-failure-mark"))[0] == pytest.approx(25 / 33, abs=0.02)
        # Links to failures elsewhere on the page keep the view.
        page.get_by_role("link", name="First failure").click()
        expect(page.locator(".run-panel .run-value-error")).to_be_visible()
        assert "view=waterfall" in page.url
        page.get_by_role("button", name="Whole run").click()
        page.get_by_role("button", name="Zoom in").click()
        assert page.locator(".run-times").inner_text() != ticks
        page.get_by_role("button", name="Whole run").click()
        assert page.locator(".run-times").inner_text() == ticks
        times = page.locator(".run-times").bounding_box()
        assert times is not None
        page.mouse.move(times["x"] + 10, times["y"] + 10)
        page.mouse.down()
        page.mouse.move(times["x"] + 60, times["y"] + 10)
        page.mouse.up()
        assert page.locator(".run-times").inner_text() != ticks
        # The link leads to the same call in the same view.
        page.get_by_label("Only failures").check()
        page.locator(".run-row").first.click()
        expect(page.locator(".run-panel .run-value-error")).to_be_visible()
        expect(page.locator(".run-row .run-bar-error")).to_be_visible()
        page.get_by_label("Only failures").uncheck()
        page.get_by_role("button", name="Whole run").click()
        expect(page.locator(".run-row[aria-selected=true]")).to_be_in_viewport()
        began, ended = share_of(page, page.locator(".run-row[aria-selected=true] .run-bar"))
        assert (began, ended) == pytest.approx((25 / 33, 28 / 33), abs=0.02)
        # The calls after it in time began while it ran: their bars lie below its bar.
        after = page.locator(".run-row[aria-selected=true] + .run-row .run-bar")
        assert began <= share_of(page, after)[0] < ended
        page.reload()
        expect(page.locator(".run-panel .run-value-error")).to_be_visible()
        expect(page.locator(".run-bar").first).to_be_visible()
        assert complaints == []


def test_panel_shows_json_and_images_and_copies(run: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page, complaints = watched(context)
        page.goto(run)
        row(page, "query").click()
        panel = page.locator(".run-panel")
        expect(panel.locator("h3")).to_have_text("query")
        panel.locator(".json-branch > summary").filter(has_text="rows").first.click()
        panel.locator(".json-branch > summary").filter(has_text="0: {1}").first.click()  # not the attachment
        expect(panel.get_by_text("12345678901234567890123").first).to_be_visible()  # not rounded
        assert panel.locator("img").count() == 1  # the pixel; a drawing may hold scripts
        expect(panel.get_by_text("JSON in a string")).to_be_visible()
        copied = {}
        for name in ("JSON", "Markdown", "curl", "Python"):
            panel.get_by_role("button", name=name, exact=True).click()
            expect(page.locator(".run-tools [role=status]")).to_have_text("Copied.")
            copied[name] = page.evaluate("navigator.clipboard.readText()")
        row(page, "Step 1").click()
        panel.get_by_text("Model input", exact=True).click()
        expect(panel.get_by_text("What is asked?")).to_be_visible()
        row(page, "query").click()
        assert '"name": "query"' in copied["JSON"]
        assert "### `query`\n\n- Status: `success`\n" in copied["Markdown"]
        assert "/api/v1/tool-calls/" in copied["curl"]
        assert "result = query(**arguments)" in copied["Python"]
        panel.locator(".run-value").filter(has_text="Output").get_by_role("button", name="Copy").click()
        assert page.evaluate("navigator.clipboard.readText()") == '{"rows": [{"number": 12345678901234567890123}]}'
        assert complaints == []


def test_explorer_fits_phones_and_speaks_chinese(
    run: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(run)
        # What failed comes before what one can do.
        failed, tools = page.locator(".note-error").bounding_box(), page.locator(".object-tools").bounding_box()
        assert failed is not None
        assert tools is not None
        assert failed["y"] < tools["y"]
        page.get_by_role("button", name="简体中文").click()
        for view in ("树形", "瀑布图", "文本"):
            page.get_by_role("button", name=view).click()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        # A wide window is used.
        page.set_viewport_size({"width": 1800, "height": 900})
        assert page.evaluate("document.getElementById('content').clientWidth") > 1600
        expect(page.locator("#run-text .step").first).to_be_visible()
        assert complaints == []


def test_run_is_readable_without_scripts(run: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url, scripts=False):
        page = context.new_page()
        page.goto(run)
        assert page.get_by_text("thought 0", exact=True).is_visible()
        assert not page.locator("#run-explorer").is_visible()
