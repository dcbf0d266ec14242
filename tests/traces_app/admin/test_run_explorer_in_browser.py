"""The path of a run, its views and the panel of what is selected in a real browser."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, ViewportSize, expect

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message
from tests.chromium import needs_chromium
from tests.traces_app.admin.test_admin_in_browser import HOSTILE, browse, session_key, watched
from tests.traces_app.conftest import NOON, answer, question, store
from tests.waiting import eventually
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.search import found, in_run
from traces_app.spans.deliveries import record_spans
from tracesite_sdk.spans.span import Span

pytestmark = [pytest.mark.system, needs_chromium]
__all__ = ["session_key"]  # a fixture

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
WHOLE_ROWS = """() => {
  const list = document.querySelector('.run-list').getBoundingClientRect();
  const end = Math.min(list.bottom, innerHeight);
  const boxes = [...document.querySelectorAll('.run-row')].map((row) => row.getBoundingClientRect());
  return boxes.filter((box) => box.top >= list.top && box.bottom <= end).length;
}"""
ROWS_ABUT = """() => {
  const boxes = [...document.querySelectorAll('.run-row')].map((row) => row.getBoundingClientRect());
  return boxes.length > 2 && boxes.every((box, place) => place === 0 || box.top === boxes[place - 1].bottom);
}"""
# A part that clips what has no room hides from the document that it is wider.
WIDER = """() => [':root', '#container', '#content', '.run-header', '.run-header > div', '.split', '.path', '.side', '.run-list']
  .flatMap((wanted) => [...document.querySelectorAll(wanted)].map((part) => [wanted, part]))
  .filter(([, part]) => part.scrollWidth > part.clientWidth + 1).map(([wanted]) => wanted)"""
# Whether the element of one of the rows is in the document after scrolling.
SCROLL_BY = """async ([by, place]) => {
  const row = document.querySelectorAll('.run-row')[place ?? 20];
  document.querySelector('.run-list').scrollTop += by;
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return row.isConnected;
}"""
SCROLL = """async (list) => {
  for (let top = 0; top < list.scrollHeight; top += 1_000) {
    list.scrollTop = top;
    await new Promise((done) => requestAnimationFrame(done));
  }
  list.scrollTop = list.scrollHeight;
}"""
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
    calls[2_005] = call_of(HOSTILE, 21_000, 9_000, args={HOSTILE: HOSTILE}, result=failed)
    steps = [
        {"iteration": step, "thought": f"thought {step}", "timestamp": NOON, "tool_calls": calls[first : first + 100]}
        for step, first in enumerate(range(0, 3_000, 100))
    ]
    steps[0]["input"] = {"messages": [{"role": "user", "content": f"What is asked? {HOSTILE}"}]}
    outcome = store(Project.objects.create(slug="explored"), answer(agent_steps=steps))
    return f"/admin/messages_app/message/{outcome.messages[0].id}/change/"


@pytest.fixture
def forty(transactional_db: None) -> str:
    """Return the path of a run of 40 steps, each with a call, of which the 20th failed and was not made good."""

    def step_of(number: int) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "name": "read_file" if number <= 20 else "grep",
            "args": {"path": f"src/file_{number}.py"},
        }
        if number == 20:
            error = "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: no such city"
            fields["result"] = {"success": False, "error": error}
        else:
            fields["result"] = {"output": "first line\nsecond line\nthird line"}
        at = NOON + timedelta(seconds=number)
        call = {**call_of("", 1_000 * number, 600), **fields}
        asked = {"input": {"messages": [{"role": "user", "content": "What is asked?"}]}} if number == 1 else {}
        return {
            "iteration": number,
            "thought": f"I look at file {number}.",
            "timestamp": at,
            "tool_calls": [call],
            **asked,
        }

    steps = [step_of(number) for number in range(1, 41)]
    outcome = store(Project.objects.create(slug="forty"), question(), answer(agent_steps=steps))
    return f"/admin/messages_app/message/{outcome.messages[1].id}/change/"


def wider_than_its_place(page: Page) -> list[str]:
    """Return the parts of the page that have more than their width."""
    found: list[str] = page.evaluate(WIDER)
    return found


def row(page: Page, name: str) -> Locator:
    return page.locator(".run-row").filter(has=page.get_by_text(name, exact=True))


def title_of(page: Page) -> Locator:
    """Return the name of the call in the panel."""
    return page.locator(".run-panel h2 .tool")


def share_of(page: Page, drawn: Locator) -> tuple[float, float]:
    """Return where something begins and ends on the axis of time, from 0 to 1."""
    # What is clicked is painted in the next frame.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    axis, box = page.locator(".run-times").bounding_box(), drawn.bounding_box()
    assert axis is not None
    return tuple((x - axis["x"]) / axis["width"] for x in (box["x"], box["x"] + box["width"]))


def test_path_folds_finds_and_jumps_to_failures(run: str, session_key: str, browser: Browser, live_server: Any) -> None:
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
        expect(row(page, "tool_0").locator(".run-note")).to_have_text("ok")
        row(page, "thought 0").locator(".run-fold").click()
        expect(row(page, "tool_0")).to_have_count(0)
        expect(row(page, "thought 1")).to_be_visible()
        # The keyboard: the next failure unfolds and shows what it selects.
        page.keyboard.press("n")
        expect(page.locator(".run-panel .run-value-error")).to_contain_text("<script>document.title")
        expect(page.locator(".run-row[aria-selected=true]")).to_be_in_viewport()
        assert "U+202E" in page.locator(".run-panel").inner_text()
        assert "?call=" in page.url
        page.keyboard.press("k")
        expect(title_of(page)).to_have_text("tool_2004")
        page.keyboard.press("/")
        page.keyboard.type("tool_2500")
        page.keyboard.press("Enter")
        expect(title_of(page)).to_have_text("tool_2500")
        # What the payloads say is found, too: by the grammar of the search, and shown with its place.
        said = page.locator(".path-tools [role=status]")
        find = page.get_by_label("Find in this run")
        find.fill('error:"document.title"')
        page.keyboard.press("Enter")
        expect(said).to_have_text("1 of 1")
        expect(page.locator(".run-places")).to_contain_text("Error: <script>document.title")
        find.fill("tool_2501 ok")
        expect(said).to_have_text("Found: 1")
        page.get_by_role("button", name="Next match").click()
        expect(title_of(page)).to_have_text("tool_2501")
        find.fill('output:"no end')
        expect(said).to_contain_text("Character 8: This quotation mark has no partner.")
        find.fill("")
        page.keyboard.press("Escape")  # to the rows
        page.keyboard.press("b")
        expect(page.locator(".run-row[aria-selected=true] .run-bottleneck")).to_be_visible()
        expect(page.locator(".run-bottleneck")).to_have_text("Bottleneck 9.0 s")
        page.get_by_label("1 failure").check()
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
        row(page, "thought 0").locator(".run-fold").click()
        row(page, "thought 1").click()
        expect(page.locator(".run-panel h2")).to_have_text("Step 1")
        page.locator(".run-list").evaluate("list => { list.scrollTop = 52; }")
        page.get_by_label("Find in this run").fill("tool_2500")
        (outline,) = held
        outline.continue_()
        expect(page.locator(".path-tools [role=status]")).to_have_text("Found: 1")
        expect(page.get_by_text("The other rows are being loaded.")).to_be_hidden()
        # What was folded, selected and in sight stays so.
        expect(page.locator(".run-row").first).to_have_attribute("aria-setsize", "2931")
        assert page.locator(".run-list").evaluate("list => list.scrollTop") == 52
        expect(page.locator(".run-row[aria-selected=true]")).to_contain_text("thought 1")
        expect(row(page, "tool_0")).to_have_count(0)
        assert complaints == []


def test_time_zooms_and_shows_gaps(run: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url, theme="dark"):
        page, complaints = watched(context)
        page.goto(run)
        page.get_by_role("button", name="Time", exact=True).click()
        expect(page.locator(".run-bar").first).to_be_visible()
        assert page.locator(".run-row").count() < 60
        ticks = page.locator(".run-times").inner_text()
        # Nothing ran in the 3 seconds before the last call, and one call failed, at 21 of 33 seconds.
        expect(page.locator(".run-times .run-gap")).to_have_count(1)
        assert share_of(page, page.locator(".run-times .run-gap")) == pytest.approx((30 / 33, 1), abs=0.02)
        expect(page.locator(".run-times .run-failure-mark")).to_have_count(1)
        assert share_of(page, page.locator(".run-times .run-failure-mark"))[0] == pytest.approx(21 / 33, abs=0.02)
        # Links to failures elsewhere on the page keep the view.
        page.get_by_role("link", name="Next failure").click()
        expect(page.locator(".run-panel .run-value-error")).to_be_visible()
        assert "view=time" in page.url
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
        page.get_by_label("1 failure").check()
        page.locator(".run-row-error").click()
        expect(page.locator(".run-panel .run-value-error")).to_be_visible()
        expect(page.locator(".run-row .run-bar-error")).to_be_visible()
        page.get_by_label("1 failure").uncheck()
        page.get_by_role("button", name="Whole run").click()
        expect(page.locator(".run-row[aria-selected=true]")).to_be_in_viewport()
        began, ended = share_of(page, page.locator(".run-row[aria-selected=true] .run-bar"))
        assert (began, ended) == pytest.approx((21 / 33, 30 / 33), abs=0.02)
        # The rows keep their order: the call after it began a second before it.
        after = page.locator(".run-row[aria-selected=true] + .run-row")
        expect(after).to_contain_text("tool_2006")
        assert share_of(page, after.locator(".run-bar"))[0] == pytest.approx(20.06 / 33, abs=0.02)
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
        expect(title_of(page)).to_have_text("query")
        panel.locator(".json-branch > summary").filter(has_text="rows").first.click()
        panel.locator(".json-branch > summary").filter(has_text="0: {1}").first.click()  # not the attachment
        expect(panel.get_by_text("12345678901234567890123").first).to_be_visible()  # not rounded
        assert panel.locator("img").count() == 1  # the pixel; a drawing may hold scripts
        expect(panel.get_by_text("JSON in a string")).to_be_visible()
        panel.get_by_role("tab", name="JSON").click()
        copied = {}
        for name in ("JSON", "Markdown", "curl", "Python"):
            panel.get_by_role("button", name=name, exact=True).click()
            expect(page.locator(".path-tools [role=status]")).to_have_text("Copied.")
            copied[name] = page.evaluate("navigator.clipboard.readText()")
        for name in ("thought 0", "query"):  # a call shows what the model of its step was asked
            row(page, name).click()
            panel.get_by_role("tab", name="Model input").click()
            expect(panel.get_by_text("What is asked?")).to_be_visible()
        panel.get_by_role("tab", name="Result").click()
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
        page.set_viewport_size(PHONE)
        page.goto(run)
        # What failed comes before what one can do with the rows.
        failed, tools = page.locator(".why .said-error").bounding_box(), page.locator(".path-tools").bounding_box()
        assert failed is not None
        assert tools is not None
        assert failed["y"] < tools["y"]
        page.get_by_role("button", name="Account").click()
        page.get_by_role("button", name="简体中文").click()
        for view in ("time", "text", "steps"):
            button = page.locator(f"[data-view-button={view}]")
            button.click()
            expect(button).to_have_attribute("aria-pressed", "true")
            assert wider_than_its_place(page) == [], view
        page.get_by_role("button", name="文本").click()
        # A wide window is used.
        page.set_viewport_size({"width": 1800, "height": 900})
        assert page.evaluate("document.getElementById('content').clientWidth") > 1600
        expect(page.locator("#run-text .step").first).to_be_visible()
        assert complaints == []


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_run_is_readable_without_scripts(
    forty: str, session_key: str, browser: Browser, live_server: Any, size: ViewportSize
) -> None:
    for context in browse(browser, session_key, live_server.url, scripts=False):
        page = context.new_page()
        page.set_viewport_size(size)
        page.goto(forty)
        expect(page.get_by_role("heading", name="What is the weather in Shanghai")).to_be_visible()
        expect(page.locator(".why")).to_contain_text("ValueError: no such city")
        expect(page.get_by_text("I look at file 1.", exact=True)).to_be_in_viewport()
        for said in ("#run-text .bubble-user", "#run-text .bubble-assistant"):
            page.locator(said).scroll_into_view_if_needed()
            expect(page.locator(said)).to_be_in_viewport(ratio=1)
        # What needs the script is not there; finding does not.
        expect(
            page.locator(".views, .run-list, .run-panel, [data-part=fold-all]").locator("visible=true")
        ).to_have_count(0)
        page.locator("details.menu > summary").click()
        expect(page.get_by_role("link", name="Export JSON")).to_be_visible()
        find = page.get_by_label("Find in this run")
        find.fill("error:city")
        find.press("Enter")
        page.locator(".run-matches").get_by_role("link", name="Step 20").click()
        expect(page.locator("details.call:target")).to_be_in_viewport()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_panel_is_readable_without_scripts(
    forty: str, traced: str, session_key: str, browser: Browser, live_server: Any, size: ViewportSize
) -> None:
    for context in browse(browser, session_key, live_server.url, scripts=False):
        page = context.new_page()
        page.set_viewport_size(size)
        page.goto(forty)
        page.locator("#run-text").get_by_role("link", name="Model input").click()
        asked = page.get_by_role("region", name="Selected")
        expect(asked.get_by_text("What is asked?")).to_be_in_viewport()
        asked.get_by_role("link", name="Result").click()
        expect(asked.get_by_text("I look at file 1.")).to_be_visible()
        asked.get_by_role("link", name="Question and answer").click()
        expect(page.locator("#answer")).to_be_visible()
        call = str(ToolCall.objects.get(status="error").pk)
        page.goto(f"/admin/traces_app/toolcall/{call}/change/")
        expect(asked.locator(".run-value-error")).to_contain_text("ValueError: no such city")
        expect(asked.get_by_role("link", name="Calls with this error")).to_be_visible()
        page.goto(f"{traced}?tab=spans#selected")
        expect(asked.locator(".spans li").first).to_be_in_viewport()


@pytest.mark.parametrize(("size", "lowest", "most"), [(WIDE, 140, 20), (PHONE, 200, 15)], ids=["wide", "phone"])
def test_window_is_for_the_rows(
    forty: str, session_key: str, browser: Browser, live_server: Any, size: ViewportSize, lowest: int, most: int
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.set_viewport_size(size)
        page.goto(forty)
        expect(row(page, "I look at file 1.")).to_be_visible()
        for view in ("time", "steps"):
            page.locator(f"[data-view-button={view}]").click()
            assert wider_than_its_place(page) == [], view
        page.locator(".run-list").evaluate("list => { list.scrollTop = 0; }")
        first = row(page, "I look at file 1.").bounding_box()
        assert first is not None
        assert first["y"] <= lowest
        assert page.evaluate(WHOLE_ROWS) >= most
        # The rows follow the window: on a phone they are higher.
        for other in (PHONE, WIDE):
            page.set_viewport_size(other)
            expect(page.locator(".run-row").nth(2)).to_be_visible()
            page.wait_for_function(ROWS_ABUT)
        assert complaints == []


def test_bars_lie_below_the_words_on_a_phone(forty: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.set_viewport_size(PHONE)
        page.goto(f"{forty}?view=time")
        first = row(page, "I look at file 1.")
        expect(first).to_be_visible()
        page.wait_for_function(ROWS_ABUT)
        place = first.bounding_box()
        assert place is not None
        assert place["y"] <= 200
        assert page.evaluate(WHOLE_ROWS) >= 12
        words, took, bar = (first.locator(part).bounding_box() for part in (".run-label", ".run-took", ".run-track"))
        assert words is not None
        assert took is not None
        assert bar is not None
        assert words["width"] + took["width"] > 0.85 * PHONE["width"]
        assert bar["width"] > 0.85 * PHONE["width"]
        assert bar["y"] >= words["y"] + words["height"] - 1
        # What is selected opens over the path, and Back closes it.
        first.click()
        expect(page.get_by_role("button", name="Back to the path")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("button", name="Back to the path")).to_be_hidden()
        assert complaints == []


def test_rows_say_what_happened(forty: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(forty)
        step, call = page.locator(".run-row").nth(0), page.locator(".run-row").nth(1)
        expect(step.locator(".run-number")).to_have_text("1")
        expect(step.get_by_role("img", name="Step 1")).to_be_visible()
        expect(step.locator(".run-said")).to_have_text("I look at file 1.")
        expect(call.locator(".tool")).to_have_text("read_file")
        expect(call.locator(".run-text")).to_have_text("src/file_1.py")
        expect(call.locator(".run-note")).to_have_text("3 lines")
        failed = page.locator(".run-row-error")
        page.keyboard.press("n")
        expect(failed.locator(".run-text")).to_have_text("src/file_20.py")
        expect(failed.locator(".run-error")).to_have_text("error: ValueError: no such city")
        # Of the run, too: how it ended, and which failure decided that.
        expect(page.locator(".outcome")).to_have_text("Failed")
        expect(page.locator(".why")).to_have_text("Answered despite Step 20 read_file ValueError: no such city")
        page.keyboard.press("Escape")
        page.locator(".why").get_by_role("link").click()
        expect(page.locator(".run-row-error[aria-selected=true]")).to_be_in_viewport()
        # The last row is the answer.
        page.locator(".run-list").evaluate("list => { list.scrollTop = list.scrollHeight; }")
        expect(page.locator(".run-row").last).to_have_text("AnswerShanghai 31 °C; there is no Atlantis.")
        page.locator(".run-row").last.click()
        expect(page.locator("#answer")).to_be_in_viewport()
        assert complaints == []


def test_call_stands_for_its_step_without_words(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    def step(number: int, thought: str, tool: str, **fields: Any) -> dict[str, Any]:
        at = NOON + timedelta(seconds=number)
        call = call_of(tool, 1_000 * number + 600, 40, args={"path": f"file_{number}.py"})
        return {"thought": thought, "timestamp": at, "duration": 600, "tool_calls": [call], **fields}

    steps = [
        step(0, "I look.", "read"),
        step(1, "", "grep", agent_name="researcher", model="opus"),
        step(2, "", "find", agent_name="researcher"),
        step(3, "Done.", "write"),
    ]
    message = store(Project.objects.create(slug="merged"), question(), answer(agent_steps=steps)).messages[1].id
    second = AgentStep.objects.get(iteration=1).pk
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(f"/admin/messages_app/message/{message}/change/?call={second}")
        rows, panel = page.locator(".run-row"), page.locator(".run-panel")
        expect(rows).to_have_count(7)  # with the answer
        expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
        expect(rows.nth(2).locator(".run-number")).to_have_text("1")
        expect(rows.nth(2).locator(".run-who")).to_have_text("researcher")
        expect(rows.nth(2).locator(".run-text")).to_have_text("file_1.py")
        expect(rows.nth(2)).to_have_attribute("aria-level", "1")
        expect(rows.nth(3).locator(".run-number")).to_have_text("2")
        expect(rows.nth(3).locator(".run-who")).to_have_count(0)  # the same as before
        # Its row took as long as both, and says how long each.
        expect(rows.nth(2).locator(".run-took")).to_have_text("640 ms")
        expect(rows.nth(2).locator(".run-took")).to_have_attribute("title", "Step 1: 600 ms, grep: 40 ms")
        expect(panel).to_contain_text("40 ms · 1.6 s into the run · Step 1 600 ms · opus")
        # What the step says of itself is behind the call, and the call behind that.
        expect(title_of(page)).to_have_text("grep")
        expect(panel).to_contain_text("1.6 s into the run")
        panel.get_by_role("button", name="Step 1").click()
        expect(panel.locator("h2")).to_have_text("Step 1")
        expect(panel).to_contain_text("600 ms · 1.0 s into the run · opus")
        panel.get_by_role("tab", name="Details").click()
        expect(panel).to_contain_text("opus")
        panel.get_by_role("button", name="grep").click()
        expect(title_of(page)).to_have_text("grep")
        # The time of the model is drawn before that of the tool.
        page.keyboard.press("t")
        model, tool = (share_of(page, rows.nth(2).locator(f".run-bar-{kind}")) for kind in ("step", "success"))
        assert (model, tool) == (
            pytest.approx((1 / 3.64, 1.6 / 3.64), abs=0.02),
            pytest.approx((1.6 / 3.64, 1.64 / 3.64), abs=0.02),
        )
        expect(page.locator(".run-times .run-gap")).to_have_count(3)  # after each of the first three calls
        page.keyboard.press("j")
        expect(title_of(page)).to_have_text("find")
        assert complaints == []


def test_equal_calls_fold_to_one_row(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    def failed(name: str, error: str) -> dict[str, Any]:
        return {"name": name, "args": {"command": "x"}, "result": {"success": False, "error": error}}

    listed = {"name": "ls", "args": {}, "result": {"output": "ok"}}
    steps: list[dict[str, Any]] = [{"tool_calls": [{**listed, "name": f"read_{number}"}]} for number in range(20)]
    steps += [{"tool_calls": [failed("install", "no host")]} for _attempt in range(4)]
    steps += [{"thought": "Something else.", "tool_calls": [listed] * 3}, {"tool_calls": [failed("make", "boom")]}]
    message = store(Project.objects.create(slug="folded"), question(), answer(agent_steps=steps)).messages[1].id
    third = ToolCall.objects.filter(tool__name="install").order_by("step__iteration")[2].pk
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(f"/admin/messages_app/message/{message}/change/")
        rows, selected = page.locator(".run-row"), page.locator(".run-row[aria-selected=true]")
        expect(rows).to_have_count(25)  # 20 reads, the attempts, a step, its calls, the last failure and the answer
        attempts = page.locator(".run-row", has_text="install")
        expect(attempts).to_have_text("▸20installx× 4error: no host")
        expect(attempts).to_have_attribute("aria-expanded", "false")
        expect(page.locator(".run-row", has_text="× 3")).to_contain_text("ls")
        expect(page.locator(".run-map-error")).to_have_count(2)
        # Going from failure to failure, the attempts are one.
        expect(title_of(page)).to_have_text("make")
        for key, name in (("n", "install"), ("n", "make"), ("p", "install")):
            page.keyboard.press(key)
            expect(selected.locator(".tool")).to_have_text(name)
        expect(attempts).to_have_count(1)
        attempts.locator(".run-fold").click()
        expect(attempts).to_have_count(4)
        expect(page.locator(".run-map-error")).to_have_count(5)
        assert [one.get_attribute("aria-level") for one in attempts.all()] == ["1", "2", "2", "2"]
        page.keyboard.press("j")
        expect(selected.locator(".run-number")).to_have_text("21")
        page.keyboard.press("n")
        expect(selected.locator(".tool")).to_have_text("make")
        # Also where only failures are shown.
        page.get_by_label("5 failures").check()
        expect(rows).to_have_count(5)
        attempts.first.locator(".run-fold").click()
        expect(rows).to_have_count(2)
        page.get_by_role("button", name="Expand all").click()
        expect(rows).to_have_count(5)
        # An address opens what hides its row.
        page.goto(f"/admin/messages_app/message/{message}/change/?call={third}")
        expect(attempts).to_have_count(4)
        expect(selected.locator(".run-number")).to_have_text("22")
        assert complaints == []


def test_sub_agents_of_long_run_are_folded_at_first(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    def step(number: int, **fields: Any) -> dict[str, Any]:
        call = {"name": f"read_{number}", "args": {}, "result": {"output": "ok"}, **fields}
        return {"iteration": number, "thought": f"I look at file {number}.", "tool_calls": [call]}

    project = Project.objects.create(slug="agents")
    urls = []
    for count in (60, 10):
        steps = [step(number) for number in range(1, count)]
        steps.insert(0, step(0, name="explore", uuid="explore", id="explore"))
        error = {"success": False, "error": "no such file"}
        below: list[dict[str, Any]] = [{"name": "list"}, {"name": "find", "result": error}, {"name": "find"}]
        steps += [step(100 + place, parent="explore", **fields) for place, fields in enumerate(below)]
        run = answer(external_id=f"of {count}", agent_steps=steps)
        messages = store(project, question(), run, external_id=f"with {count}").messages
        urls.append(f"/admin/messages_app/message/{messages[1].id}/change/")
    listed = ToolCall.objects.get(tool__name="list", message__external_id="of 60").pk
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(urls[0])
        agent, failed = row(page, "explore"), page.locator(".run-row-error")
        expect(agent).to_have_text("▸explore3 steps3 calls1 failed")
        expect(agent).to_have_attribute("aria-expanded", "false")
        expect(row(page, "I look at file 0.").locator(".run-below")).to_have_count(0)
        expect(row(page, "I look at file 1.")).to_be_visible()
        expect(failed).to_have_count(0)
        # What is selected is opened.
        page.keyboard.press("n")
        expect(failed).to_be_in_viewport()
        expect(agent).to_have_text("▾exploreok")
        agent.locator(".run-fold").click()
        expect(failed).to_have_count(0)
        # So is a failure where only those are shown.
        page.get_by_label("1 failure").check()
        expect(page.locator(".run-row")).to_have_count(4)
        page.get_by_label("1 failure").uncheck()
        page.get_by_role("button", name="Collapse all").click()
        expect(row(page, "I look at file 0.")).to_contain_text("3 steps4 calls1 failed")
        expect(row(page, "I look at file 1.")).to_contain_text("1 call")
        page.get_by_role("button", name="Expand all").click()
        expect(failed).to_be_visible()
        # A short run has room.
        page.goto(urls[1])
        expect(failed).to_be_visible()
        page.goto(f"{urls[0]}?call={listed}")
        expect(row(page, "list")).to_have_attribute("aria-selected", "true")
        assert complaints == []


def test_rows_fetch_their_words_in_sight(run: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        asked: list[int] = []
        turns: list[str] = []

        def note(sent: Request, turn: str, *, asked: list[int] = asked, turns: list[str] = turns) -> None:
            if "/words/" in sent.url:
                turns.append(turn)
                asked += [sent.url.count("id=")] if turn == "begins" else []

        page.on("request", lambda sent, note=note: note(sent, "begins"))
        page.on("requestfinished", lambda sent, note=note: note(sent, "ends"))
        page.goto(run)
        expect(page.locator(".run-row").first).to_have_attribute("aria-setsize", "3031")
        expect(page.locator(".run-row").first.locator(".run-said")).to_have_text("thought 0")
        assert asked == []  # the words of the first rows come with them
        page.locator(".run-list").evaluate(SCROLL)
        expect(row(page, "after_a_gap").locator(".run-note")).to_have_text("ok")
        expect(row(page, "thought 29")).to_have_count(0)
        # Who scrolls fast does not ask for all that went by.
        assert max(asked) <= 100
        assert "begins begins" not in " ".join(turns)
        before = len(asked)
        page.locator(".run-list").evaluate("list => { list.scrollTop -= 60; }")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        expect(row(page, "after_a_gap").locator(".run-note")).to_have_text("ok")
        assert len(asked) <= before + 1
        assert complaints == []


def test_rows_that_stay_in_sight_keep_their_elements(
    run: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(run)
        expect(page.locator(".run-row").first).to_have_attribute("aria-setsize", "3031")
        for by, row_in_sight in ((140, 20), (-84, 15), (4_000, None), (-1_000, None)):
            kept = page.evaluate(SCROLL_BY, [by, row_in_sight])
            assert kept is (row_in_sight is not None)
            assert page.evaluate(ROWS_ABUT)
            expect(page.locator(".run-row").nth(15)).to_be_in_viewport()
        # What changes is made anew, and all of it is what it would be at once.
        row(page, "tool_110").click()
        expect(page.locator(".run-row[aria-selected=true]")).to_have_count(1)
        page.keyboard.press("j")
        expect(page.locator(".run-row[aria-selected=true]")).to_contain_text("tool_111")
        page.get_by_role("button", name="Time", exact=True).click()
        expect(page.locator(".run-row[aria-selected=true]")).to_contain_text("tool_111")
        page.wait_for_function(ROWS_ABUT)
        assert complaints == []


def test_short_run_cuts_no_words(transactional_db: None, session_key: str, browser: Browser, live_server: Any) -> None:
    error = "PermissionError: a refund to a bank account needs its IBAN, and the customer has none on file; ask for it"
    call = {"name": "refund", "args": {"order": 5471}, "result": {"success": False, "error": error}}
    step = {"thought": "I look at the order, and then I refund all of it. " * 3, "tool_calls": [call]}
    message = store(Project.objects.create(slug="short"), question(), answer(agent_steps=[step])).messages[1].id
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(f"/admin/messages_app/message/{message}/change/")
        said = page.locator(".run-row .run-error")
        expect(said).to_contain_text(error)
        for shown in (said, page.locator(".run-row .run-said").first):
            assert shown.evaluate("(part) => part.scrollWidth <= part.clientWidth + 1")
        # What comes after the tool is below its argument.
        left = [page.locator(".run-row").nth(1).locator(name).bounding_box() for name in (".run-text", ".run-error")]
        assert left[0] is not None and left[1] is not None and left[0]["x"] == pytest.approx(left[1]["x"], abs=1)
        tops = [box["y"] for row in page.locator(".run-row").all() if (box := row.bounding_box())]
        assert tops == sorted(set(tops))
        page.keyboard.press("n")
        expect(page.locator(".run-row[aria-selected=true]")).to_be_in_viewport()
        assert complaints == []


def test_error_instead_of_an_answer_is_no_answer(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    failed = answer(content="", error="GraphRecursionError: limit of 12", agent_steps=[{"thought": "I look again."}])
    outcome = store(Project.objects.create(slug="failed"), question(), failed)
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        for address in ("message", outcome.messages[1].id), ("session", outcome.id):
            page.goto("/admin/messages_app/{}/{}/change/".format(*address))
            last = page.locator(".run-row").last
            expect(last.locator(".run-error")).to_have_text("GraphRecursionError: limit of 12")
            expect(last.locator(".run-who")).to_have_text("Error")
            expect(page.locator(".side .failure")).to_contain_text("GraphRecursionError: limit of 12")
            expect(page.get_by_text("(empty)")).to_have_count(0)
        assert complaints == []


def test_found_words_are_marked_in_the_panel(forty: str, session_key: str, browser: Browser, live_server: Any) -> None:
    marked = "() => [...(CSS.highlights.get('found') ?? [])].map(String)"
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(forty)
        page.get_by_label("Find in this run").fill("FILE_38 grep")
        expect(page.locator(".path-tools [role=status]")).to_have_text("Found: 1")
        page.keyboard.press("Enter")
        page.get_by_role("tab", name="Arguments").click()
        expect(page.locator(".run-panel")).to_contain_text("src/file_38.py")
        eventually(lambda page=page: page.evaluate(marked) == ["file_38"], seconds=30)
        page.get_by_label("Find in this run").fill("")
        eventually(lambda page=page: page.evaluate(marked) == [], seconds=30)
        assert complaints == []


def test_map_shows_failures_and_leads_to_them(forty: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(forty)
        (mark,) = page.locator(".run-map-mark").all()
        # The failure is the call of step 20 of 40, so it is in the middle of the path.
        box, whole = mark.bounding_box(), page.locator(".run-map").bounding_box()
        assert box is not None
        assert whole is not None
        assert abs((box["y"] - whole["y"]) / whole["height"] - 0.5) < 0.05
        expect(row(page, "ValueError: no such city")).to_have_count(0)
        page.mouse.click(whole["x"] + 5, box["y"])
        expect(page.locator(".run-row-error")).to_be_in_viewport()
        expect(page.locator(".run-map-here")).to_be_visible()
        assert complaints == []


def test_tabs_stay_while_rows_change(forty: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(forty)
        panel = page.locator(".run-panel")

        def is_open(name: str, text: str, *, panel: Locator = panel) -> None:
            expect(panel.get_by_role("tab", name=name, selected=True)).to_be_visible()
            expect(panel.get_by_role("tab", selected=True)).to_have_count(1)
            expect(panel.get_by_role("tabpanel", name=name)).to_contain_text(text)

        row(page, "src/file_1.py").click()
        expect(panel.get_by_role("tab")).to_have_text(["Result", "Arguments", "Model input", "Details", "JSON"])
        is_open("Result", "first line")
        panel.get_by_role("tab", name="Arguments").click()
        is_open("Arguments", "src/file_1.py")
        page.keyboard.press("j")  # a step has no arguments
        expect(panel.locator("h2")).to_have_text("Step 2")
        is_open("Result", "I look at file 2.")
        page.keyboard.press("j")
        is_open("Arguments", "src/file_2.py")
        # Numbers count the tabs that there are.
        page.keyboard.press("3")
        is_open("Details", "Call ID")
        page.keyboard.press("4")
        is_open("JSON", '"name": "read_file"')
        page.keyboard.press("1")
        is_open("Result", "first line")
        # Arrow keys go through the tabs and keep the focus there, also in another row.
        panel.get_by_role("tab", name="Result").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        is_open("Details", "Status")
        expect(panel.get_by_role("tab", name="Details")).to_be_focused()
        page.keyboard.press("j")
        expect(panel.locator("h2")).to_have_text("Step 3")
        expect(panel.get_by_role("tab", name="Details")).to_be_focused()
        page.keyboard.press("ArrowLeft")
        is_open("Result", "I look at file 3.")
        page.keyboard.press("ArrowLeft")
        is_open("JSON", '"name": "Step 3"')
        # Escape leads to question and answer, with the focus on the rows.
        page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        expect(page.locator("#answer")).to_be_in_viewport()
        expect(page.locator(".run-list")).to_be_focused()
        assert page.evaluate("location.search") == ""
        page.keyboard.press("ArrowDown")
        expect(panel.locator("h2")).to_have_text("Step 1")
        assert complaints == []


def test_address_has_the_tab(forty: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(forty)
        row(page, "I look at file 1.").click()
        panel = page.locator(".run-panel")
        panel.get_by_role("tab", name="Model input").click()
        expect(panel.get_by_role("tabpanel")).to_contain_text("User What is asked?")
        assert page.url.endswith("&tab=input")
        # A page with a row has its values, and what its tab reads.
        asked: list[str] = []
        page.on("request", lambda sent, asked=asked: asked.append(sent.url))
        page.reload()
        expect(panel.get_by_role("tab", name="Model input", selected=True)).to_be_visible()
        expect(panel.get_by_role("tabpanel")).to_contain_text("User What is asked?")
        assert not [url for url in asked if "/outline/" in url or "/input/" in url]
        # The row keeps its address when its first tab is shown again.
        panel.get_by_role("tab", name="Result").click()
        assert "tab=" not in page.url
        assert "call=" in page.url
        # A link in the text leads there, too, and the address of the input.
        page.get_by_role("button", name="Text", exact=True).click()
        page.locator("#run-text").get_by_role("link", name="Model input").click()
        expect(panel.get_by_role("tabpanel", name="Model input")).to_contain_text("What is asked?")
        step = page.url.partition("call=")[2].partition("&")[0]
        page.goto(forty.replace("change/", f"steps/{step}/input/"))
        expect(panel.get_by_role("tabpanel", name="Model input")).to_contain_text("What is asked?")
        page.keyboard.press("Escape")
        expect(page.locator("#answer")).to_be_in_viewport()
        assert complaints == []


def test_failed_call_shows_the_last_good_run(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    project = Project.objects.create(slug="asked-twice")

    def asked(name: str, *calls: dict[str, Any]) -> UUID:
        run = answer(external_id=f"{name} answer", agent_steps=[{"tool_calls": list(calls)}])
        made = store(project, question(external_id=f"{name} question"), run, external_id=name).messages[1].id
        assert made is not None
        return made

    good, other = (
        {"name": "find", "args": {"city": city}, "result": {"output": f"sun in {city}"}} for city in ("Oslo", "Rome")
    )
    asked("good", other, good)
    bad = {"name": "find", "args": {"city": "Oslo"}, "result": {"success": False, "error": "no network"}}
    lost = {"name": "other", "args": {}, "result": {"success": False, "error": "no network"}}
    run = asked("bad", bad, lost)
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(f"/admin/messages_app/message/{run}/change/")
        panel = page.locator(".run-panel")
        page.locator(".run-row-error").first.click()
        expect(title_of(page)).to_have_text("find")
        panel.get_by_role("button", name="In the last good run").click()
        expect(panel.locator(".run-good")).to_contain_text("sun in Oslo")
        panel.get_by_role("link", name="In the last good run").click()
        expect(page.locator(".run-row[aria-selected=true]")).to_contain_text("Oslo")
        expect(page.locator(".outcome")).to_have_text("Done")
        page.goto(f"/admin/messages_app/message/{run}/change/")
        page.locator(".run-row-error").last.click()
        expect(title_of(page)).to_have_text("other")
        panel.get_by_role("button", name="In the last good run").click()
        expect(panel.get_by_text("No good run of the same question has this call.")).to_be_visible()
        assert complaints == []


@pytest.fixture
def traced(transactional_db: None) -> str:
    """Return the path of a run that three spans have made."""
    project = Project.objects.create(slug="traced")
    start = 1_790_000_000 * 10**9
    kinds: list[dict[str, Any]] = [
        {"gen_ai.operation.name": "invoke_agent"},
        {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5", "gen_ai.completion": "31"},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find", HOSTILE: HOSTILE},
    ]
    for number, attributes in enumerate(kinds, 1):
        names = {"span_id": f"{number:016x}", "parent_id": f"{1:016x}" if number > 1 else "", "name": f"span {number}"}
        times = {"start": start + number, "end": start + 10**9}
        record_spans(primary, project.pk, [Span(trace_id="a" * 32, **names, **times, attributes=attributes)])
    return f"/admin/messages_app/message/{Message.objects.get(role='assistant', request_id='a' * 32).pk}/change/"


def test_spans_are_in_the_panel(traced: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(traced)
        panel = page.locator(".run-panel")
        page.locator(".run-row", has_text="find").click()
        panel.get_by_role("tab", name="Span").click()
        expect(panel.locator(".spans li")).to_have_count(1)
        expect(panel.locator(".spans")).to_contain_text("gen_ai.tool.name")
        page.locator("details.menu > summary").click()
        page.get_by_role("link", name="Spans as received").click()
        expect(panel.locator(".spans li")).to_have_count(3)
        expect(panel.get_by_role("link", name="Download all spans of the session")).to_be_visible()
        expect(page.locator("#answer")).to_be_hidden()
        page.locator(".run-row").first.click()
        expect(panel.get_by_role("tab", name="Result")).to_be_visible()
        assert "tab=spans" not in page.url
        page.go_back()
        page.set_viewport_size(PHONE)
        page.goto(f"{traced}?tab=spans")
        expect(panel.locator(".spans li").first).to_be_in_viewport()
        page.get_by_role("button", name="Back to the path").click()
        expect(page.locator(".side")).to_be_hidden()
        expect(page.locator(".run-row").first).to_be_visible()
        assert complaints == []


def test_back_of_the_browser_closes_the_panel_of_a_phone(
    forty: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.set_viewport_size(PHONE)
        page.goto("/admin/messages_app/message/?role=assistant")
        page.goto(forty)
        side, panel = page.locator(".side"), page.locator(".run-panel")
        row(page, "I look at file 1.").click()
        expect(panel.locator("h2")).to_have_text("Step 1")
        # Other rows and tabs are the same entry of the history.
        page.keyboard.press("j")
        expect(title_of(page)).to_have_text("read_file")
        panel.get_by_role("tab", name="Details").click()
        page.go_back()
        expect(side).to_be_hidden()
        expect(row(page, "I look at file 1.")).to_be_visible()
        assert page.evaluate("location.search") == ""
        page.go_forward()
        expect(title_of(page)).to_have_text("read_file")
        expect(panel.get_by_role("tab", name="Details", selected=True)).to_be_visible()
        # So does the button, which leaves no entry behind.
        page.get_by_role("button", name="Back to the path").click()
        expect(side).to_be_hidden()
        page.wait_for_function("location.search === ''")
        page.go_back()
        page.wait_for_url("**?role=assistant")
        # A link to a call opens its panel with the page, and Back leads to where the link was.
        page.goto(f"{forty}?failure")
        expect(title_of(page)).to_have_text("read_file")
        page.get_by_role("button", name="Back to the path").click()
        expect(side).to_be_hidden()
        page.go_back()
        page.wait_for_url("**?role=assistant")
        assert complaints == []


def test_link_leads_to_the_same_row(forty: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page, complaints = watched(context)
        page.goto(forty)
        page.locator(".run-row", has_text="src/file_7.py").click()
        page.get_by_role("button", name="Time", exact=True).click()
        page.locator(".tool-button[data-part=copy-link]").click()
        expect(page.get_by_text("Copied.")).to_be_visible()
        page.goto(page.evaluate("navigator.clipboard.readText()"))
        expect(page.locator(".run-row[aria-selected=true]")).to_contain_text("src/file_7.py")
        expect(page.locator(".run-axis")).to_be_visible()
        expect(page.locator(".run-panel h2")).to_have_text("read_file src/file_7.py")
        page.keyboard.press("t")
        expect(page.locator(".run-axis")).to_be_hidden()
        # Links of before the page was a workspace.
        call = page.url.partition("call=")[2]
        for view, is_time in (("tree", False), ("waterfall", True)):
            page.goto(f"{forty}?view={view}&call={call}#call-{call}")
            expect(page.locator(".run-row[aria-selected=true]")).to_contain_text("src/file_7.py")
            assert page.locator(".run-axis").is_visible() is is_time
        assert complaints == []


def test_text_keeps_its_view_in_links_and_search(
    forty: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(f"{forty}?view=text")
        # It reads from the question to the answer, in one column, and what a call was given and gave is there before it is opened.
        said = page.locator(".bubble-user, .step > .step-head, .bubble-assistant").locator("visible=true")
        boxes = said.evaluate_all(
            "all => all.map((one) => [one.getBoundingClientRect().left, one.getBoundingClientRect().top])"
        )
        assert len(boxes) > 40 and boxes == sorted(boxes) and len({left for left, _top in boxes}) == 1
        assert "bubble-user" in (said.first.get_attribute("class") or "")
        expect(page.locator("details.call > summary").first).to_contain_text("src/file_1.py")
        page.locator(".why").get_by_role("link").click()
        page.wait_for_url("**?view=text&call=*#call-*")
        expect(page.locator("details.call:target")).to_contain_text("no such city")
        expect(page.locator("details.call:target")).to_be_in_viewport()
        find = page.get_by_label("Find in this run")
        find.fill("error:city")
        find.press("Enter")
        page.wait_for_url("**q=error*")
        page.locator(".run-matches").get_by_role("link", name="Step 20").click()
        page.wait_for_url("**?view=text&call=*#call-*")
        expect(page.locator("details.call:target")).to_be_in_viewport()
        expect(page.locator(".run-panel")).to_be_hidden()
        # What is typed there is looked for in the rows when they come. That failure is selected.
        find.fill("error:city")
        expect(page.get_by_role("button", name="Next match")).to_be_hidden()
        page.get_by_role("button", name="Steps", exact=True).click()
        expect(page.locator(".path-tools [role=status]")).to_have_text("1 of 1")
        assert complaints == []


def test_time_says_that_its_order_is_assumed(
    transactional_db: None, session_key: str, browser: Browser, live_server: Any
) -> None:
    calls = [{"name": f"tool_{number}", "duration": 100, "result": {"output": "ok"}} for number in range(4)]
    steps = [{"iteration": 0, "duration": 100, "tool_calls": calls}]
    outcome = store(Project.objects.create(slug="timeless"), answer(agent_steps=steps))
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(f"/admin/messages_app/message/{outcome.messages[0].id}/change/?view=time")
        expect(page.get_by_text("Order assumed: no times are known")).to_be_visible()
        # One after the other.
        for number in range(4):
            drawn = page.locator(".run-row", has_text=f"tool_{number}").locator(".run-bar")
            assert share_of(page, drawn) == pytest.approx(((number + 1) / 5, (number + 2) / 5), abs=0.02)
        page.locator(".run-row", has_text="tool_2").click()
        expect(page.locator(".run-panel")).to_contain_text("100 ms")
        expect(page.locator(".run-panel")).not_to_contain_text("into the run")
        assert complaints == []


def test_panel_opens_over_the_path_of_a_phone(forty: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page, complaints = watched(context)
        page.set_viewport_size(PHONE)
        page.goto(forty)
        path, back = row(page, "I look at file 1."), page.get_by_role("button", name="Back to the path")
        expect(path).to_be_visible()
        expect(page.locator(".side")).to_be_hidden()  # also with a failure that decided
        path.click()
        expect(page.locator(".run-panel h2")).to_have_text("Step 1")
        assert page.locator(".side").bounding_box() == {"x": 0, "y": 0, **PHONE}
        expect(page.locator(".side-head")).to_have_text("←1I look at file 1.↑↓")
        page.keyboard.press("j")
        expect(page.locator(".side-head")).to_have_text("←1read_filesrc/file_1.py3 lines↑↓")
        back.click()
        expect(page.locator(".side")).to_be_hidden()
        path.click(trial=True)
        # So does the answer, with the question.
        page.locator(".run-list").evaluate("list => { list.scrollTop = list.scrollHeight; }")
        page.locator(".run-row").last.click()
        expect(page.locator("#answer")).to_be_in_viewport()
        back.click()
        expect(page.locator(".side")).to_be_hidden()
        # What has no room in the header is in its menu, which closes.
        menu = page.locator("details.menu")
        menu.locator("summary").click()
        expect(menu.get_by_role("link", name="Full conversation")).to_be_visible()
        page.keyboard.press("Escape")
        expect(menu.locator("ul")).to_be_hidden()
        menu.locator("summary").click()
        menu.get_by_role("button", name="Copy link").click()
        expect(menu.locator("ul")).to_be_hidden()
        assert page.evaluate("navigator.clipboard.readText()") == page.url
        page.get_by_role("button", name="Text", exact=True).click()
        expect(page.get_by_text("I look at file 1.", exact=True).locator("visible=true")).to_be_in_viewport()
        page.locator("#answer").scroll_into_view_if_needed()
        expect(page.locator("#answer")).to_be_in_viewport()
        assert complaints == []
