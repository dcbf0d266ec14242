"""The comparison of two long runs in a real browser: what is in sight, at a desk and on a phone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from access_app.models import Project
from tests.chromium import needs_chromium
from tests.traces_app.admin.test_admin_in_browser import HOSTILE, browse, session_key, watched
from tests.traces_app.conftest import answer, question, store

pytestmark = [pytest.mark.system, needs_chromium]
__all__ = ["session_key"]  # a fixture

WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
# A part that clips what has no room hides from the document that it is wider.
WIDER = """() => [':root', '#container', '#content', '.run-header', '.run-header > div', '.pairs', '.pair', '.about']
  .flatMap((wanted) => [...document.querySelectorAll(wanted)].map((part) => [wanted, part]))
  .filter(([, part]) => part.scrollWidth > part.clientWidth + 1).map(([wanted]) => wanted)"""


@pytest.fixture
def comparison(transactional_db: None) -> str:
    """Return the path of the comparison of two runs of 120 steps with a call each; the 61st, and all from the 81st on, differ."""

    def run_of(side: str) -> Any:
        steps: list[dict[str, Any]] = []
        for number in range(120):
            is_same = number != 60 and number < 80
            result = {"output": f"line {number}"} if is_same else {"output": f"{side} {number}: {HOSTILE}"}
            if number == 60 and side == "left":
                result = {"success": False, "error": f"ValueError: {HOSTILE} {'no such city ' * 40}"}
            call = {"name": "read_file", "args": {"path": f"src/{number}.py"}, "duration": number, "result": result}
            steps.append({"iteration": number, "thought": f"I look at file {number}. " * 9, "tool_calls": [call]})
        made = store(project, question(), answer(agent_steps=steps), external_id=side, end_user="felix")
        return made.messages[1].id

    project = Project.objects.create(slug="compared")
    left, right = map(run_of, ("left", "right"))
    return f"/admin/messages_app/message/{left}/compare/?other={right}"


def top(page: Page, selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    assert box is not None
    return box["y"]


def test_first_difference_is_in_the_first_screen(
    comparison: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page, complaints = watched(context)
        page.set_viewport_size(WIDE)
        page.goto(comparison)
        # The equal rows before the difference are folded, but for two.
        assert top(page, ".pairs") <= 140
        assert top(page, "#at") <= 240
        expect(page.locator("#at .run-error")).to_be_in_viewport()
        expect(page.locator(".about h3").first).to_be_in_viewport()
        assert top(page, ".about") < 600
        assert page.locator("#at .run-bar").first.evaluate("bar => bar.style.width") != ""
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        assert page.evaluate(WIDER) == []

        # A row is a link, and stays in sight when it is selected.
        row = page.locator(".pairs > .pair").nth(20)
        row.click()
        page.wait_for_url("**#at")
        expect(page.locator("#at")).to_be_in_viewport()
        expect(page.locator(".about h2").first).to_be_in_viewport()
        page.locator("[data-copies]").click()
        expect(page.locator("[data-copies]")).to_contain_text("✓")
        assert page.evaluate("navigator.clipboard.readText()") == page.url
        assert complaints == []


def test_comparison_does_not_scroll_sideways_on_a_phone(
    comparison: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.set_viewport_size(PHONE)
        page.goto(comparison)
        assert page.evaluate(WIDER) == []
        expect(page.locator("#at .right")).to_be_in_viewport()
        expect(page.locator(".about h2").first).to_be_in_viewport()
        # The sides are below each other; what is the same is there once.
        assert top(page, "#at .right") >= top(page, "#at .left") + 36
        expect(page.locator(".pair-same > .right").first).to_be_hidden()
        page.locator("details.menu summary").click()
        expect(page.locator("details.menu").get_by_text("Runs like this one")).to_be_in_viewport()
        assert complaints == []
