"""The page of a session in a real browser: its questions as chapters of one path, beside the conversation."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from access_app.models import Project
from messages_app.models import Session
from tests.chromium import needs_chromium
from tests.traces_app.admin.test_admin_in_browser import browse, session_key, watched
from tests.traces_app.admin.test_run_explorer_in_browser import PHONE, WHOLE_ROWS, WIDE, WIDER, call_of
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.admin import conversation

pytestmark = [pytest.mark.system, needs_chromium]
__all__ = ["session_key"]  # a fixture

IN_SIGHT = """message => {
  const about = document.querySelector('.about').getBoundingClientRect();
  const box = message.getBoundingClientRect();
  return box.top >= about.top - 1 && box.top < about.bottom && document.querySelector('#container').scrollTop === 0;
}"""


@pytest.fixture
def talk(project: Project) -> str:
    """Store twelve questions with their runs, more rows than are open at first, and return the path of the session's page."""
    said: list[dict[str, Any]] = []
    for place in range(12):
        after = timedelta(hours=place)
        calls = [call_of(f"look_{place}_{number}", number * 100, 90) for number in range(8)]
        calls[3]["result"] = {
            "success": place != 5,
            "output": "ok",
            "error": "" if place != 5 else "ValueError: no such day",
        }
        steps = [{"thought": f"Look at day {place}.", "tool_calls": calls}]
        asked = question(external_id=f"q{place}", content=f"What about day {place}?", created_at=NOON + after)
        told = answer(
            external_id=f"a{place}", content=f"Day {place} is fine. " * 30, created_at=NOON + after, agent_steps=steps
        )
        said += [asked, told]
    return f"/admin/messages_app/session/{store(project, *said).id}/change/"


def test_chapters_lead_to_what_was_said_and_done(
    talk: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.set_viewport_size(WIDE)
        page.goto(talk)
        chapters = page.locator(".run-row-chapter")
        expect(chapters).to_have_count(12)
        rows = page.locator(".run-row")
        expect(rows.nth(11)).to_have_class(
            re.compile("run-row-chapter")
        )  # all but the newest are folded: there are many rows
        expect(rows.last).to_contain_text("Day 11 is fine.")
        expect(page.locator(".run-map-error")).to_have_count(1)
        expect(chapters.nth(5).locator(".outcome")).to_have_class("outcome outcome-failed")
        expect(chapters.nth(4).locator(".run-below")).to_contain_text("8")
        page.keyboard.press("]")
        page.keyboard.press("]")
        expect(chapters.nth(1)).to_have_attribute("aria-selected", "true")
        chapters.nth(9).click()
        expect(rows.nth(10)).to_contain_text("Look at day 9.")
        asked = page.locator("ol.conversation > li").nth(18)
        expect(asked).to_contain_text("What about day 9?")
        assert asked.evaluate(IN_SIGHT)
        page.keyboard.press("n")  # the failure, in a folded chapter
        expect(page.locator(".run-panel h2 .tool")).to_have_text("look_5_3")
        expect(page.locator(".run-panel")).to_contain_text("ValueError: no such day")
        page.reload()
        expect(page.locator(".run-panel h2 .tool")).to_have_text("look_5_3")
        page.keyboard.press("Escape")
        expect(page.locator(".run-panel")).to_be_hidden()
        page.get_by_role("link", name="Details").or_(page.get_by_role("link", name="详情")).click()
        expect(page.locator("#details dl.facts")).to_be_visible()
        expect(page.locator("ol.conversation")).to_be_hidden()
        chapters.first.click()
        expect(page.locator("ol.conversation")).to_be_visible()
        assert complaints == []


def test_call_that_decided_is_selected_at_first(
    project: Project, session_key: str, browser: Browser, live_server: Any
) -> None:
    call = {**call_of("look", 0, 90), "result": {"success": False, "error": "ValueError: no such day"}}
    session = store(project, question(), answer(agent_steps=[{"tool_calls": [call]}]))
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(f"/admin/messages_app/session/{session.id}/change/")
        expect(page.locator(".run-panel")).to_contain_text("ValueError: no such day")
        page.goto(f"/admin/messages_app/session/{session.id}/change/?tab=details")
        expect(page.locator("#details dl.facts")).to_be_visible()
        assert complaints == []


def test_note_of_client_is_folded_until_it_is_selected(
    project: Project, session_key: str, browser: Browser, live_server: Any
) -> None:
    note = question(role="system", external_id="n", content="<command-name>/mcp</command-name>")
    session = store(project, note, question(), answer())
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(f"/admin/messages_app/session/{session.id}/change/")
        expect(page.locator(".run-row-chapter")).to_have_count(1)
        said = page.locator(".bubble-system .value")
        expect(said).to_be_hidden()
        page.locator(".run-row.quiet .run-who").click()
        expect(said).to_have_text("<command-name>/mcp</command-name>")
        assert complaints == []


def test_question_of_the_rows_in_sight_stays_there(
    talk: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.set_viewport_size(PHONE)
        page.goto(talk)
        page.locator(".run-fold").nth(2).click()
        page.locator(".run-list").evaluate("list => { list.scrollTop = 4 * 36; }")
        above = page.locator('[data-part="chapter"] .run-row-chapter')
        expect(above).to_contain_text("What about day 2?")
        above.click()
        expect(page.locator("ol.conversation > li").nth(4)).to_be_in_viewport()
        assert complaints == []


def test_notes_of_one_kind_fold_to_one_row(
    project: Project, session_key: str, browser: Browser, live_server: Any
) -> None:
    notes = [
        question(
            role="system",
            external_id=f"n{number}",
            content=f"<command-name>/{number}</command-name>",
            created_at=NOON + timedelta(hours=1),
        )
        for number in range(3)
    ]
    session = store(
        project,
        question(),
        answer(agent_steps=[]),
        *notes,
        question(external_id="q2", content="Anybody?", created_at=NOON + timedelta(hours=2)),
    )
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(f"/admin/messages_app/session/{session.id}/change/")
        rows = page.locator(".run-row")
        expect(rows).to_have_count(4)
        expect(rows.nth(2)).to_contain_text("Notes of the client")
        expect(rows.nth(2).locator(".run-count")).to_have_text("× 3")
        expect(rows.nth(3)).to_contain_text("No answer")
        rows.nth(2).locator(".run-fold").click()
        expect(rows).to_have_count(6)
        assert complaints == []


def test_first_screen_shows_the_path(talk: str, session_key: str, browser: Browser, live_server: Any) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        for size, lowest, least in ((WIDE, 140, 20), (PHONE, 200, 14)):
            page.set_viewport_size(size)
            page.goto(talk)
            expect(page.locator(".run-row").first).to_be_visible()
            box = page.locator(".run-row").first.bounding_box()
            assert box is not None and box["y"] <= lowest, size
            assert page.evaluate(WHOLE_ROWS) >= least
            assert page.evaluate(WIDER) == []
        page.locator(".run-row-chapter").first.click()
        expect(page.locator("ol.conversation")).to_be_visible()  # over the path
        page.go_back()
        expect(page.locator("ol.conversation")).to_be_hidden()
        assert complaints == []


def test_search_marks_rows_as_one_types(
    talk: str, session_key: str, browser: Browser, live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(talk)
        find, said = page.get_by_label("Search this session"), page.locator(".path-tools [role=status]")
        find.fill("look_7")
        expect(said).to_have_text("Found: 8")
        page.get_by_role("button", name="Next match").click()
        expect(page.locator(".run-panel h2 .tool")).to_have_text("look_7_0")  # in a folded chapter
        expect(page.locator(".run-row-found")).to_have_count(8)
        # What payloads and messages say is found by the server.
        find.fill("error:day")
        find.press("Enter")
        expect(page.locator(".run-panel .run-places")).to_contain_text("no such day")
        expect(said).to_have_text("1 of 1")
        find.fill('"about day 3"')
        find.press("Enter")
        expect(page.locator("ol.conversation > li").nth(6)).to_be_in_viewport()
        # A search without a match goes on in the other pages of the conversation.
        monkeypatch.setattr(conversation, "PAGE_SIZE", 4)
        page.goto(talk)
        find.fill("error:day")
        expect(said).to_have_text("Found: 0")
        find.press("Enter")
        expect(page.locator(".session-matches")).to_contain_text("no such day")
        assert complaints == []


def test_failures_lead_through_the_parts_of_a_session(
    project: Project, session_key: str, browser: Browser, live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, Any]] = []
    for place in range(6):
        at = NOON + timedelta(hours=place)
        result = {"success": place != 1, "output": "ok", "error": "" if place != 1 else "ValueError: no such day"}
        steps = [{"tool_calls": [{**call_of(f"look_{place}", 0, 90), "result": result}]}]
        failed = {"content": "", "error": "The model was overloaded."} if place in (0, 4) else {}
        said.append(question(external_id=f"q{place}", content=f"What about day {place}?", created_at=at))
        said.append(answer(external_id=f"a{place}", created_at=at, agent_steps=steps, **failed))
    session = store(project, *said)
    monkeypatch.setattr(conversation, "PAGE_SIZE", 4)
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.set_viewport_size(WIDE)
        page.goto(f"/admin/messages_app/session/{session.id}/change/")
        place = page.locator("#run-failures .place")
        expect(page.locator(".only-failures")).to_have_text("2 of 3 failures here")
        page.locator('[data-part="failures"]').check()  # a run that failed without a failed call stays
        expect(page.locator(".run-row")).to_have_count(4)
        expect(page.locator(".run-row").nth(1)).to_contain_text("The model was overloaded.")
        page.keyboard.press("n")
        expect(place).to_have_text("Failure 1 of 3")
        page.keyboard.press("n")
        expect(page.locator(".run-panel h2 .tool")).to_have_text("look_1")
        page.keyboard.press("n")  # in the last part
        expect(place).to_have_text("Failure 3 of 3")
        expect(page.locator("ol.conversation > li").first).to_contain_text("The model was overloaded.")
        page.get_by_role("link", name="Previous failure").click()
        expect(place).to_have_text("Failure 2 of 3")
        expect(page.locator(".run-panel h2 .tool")).to_have_text("look_1")
        assert complaints == []


def test_question_at_the_end_of_a_part_is_not_unanswered(
    talk: str, session_key: str, browser: Browser, live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "PAGE_SIZE", 3)
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(talk)
        expect(page.locator(".run-row-chapter").last).to_contain_text("Goes on in the next part")
        expect(page.get_by_text("No answer")).to_have_count(0)
        assert complaints == []


def test_search_of_a_part_leads_to_that_of_the_session(
    talk: str, session_key: str, browser: Browser, live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "PAGE_SIZE", 4)
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.set_viewport_size(WIDE)
        page.goto(talk)
        find, said = page.get_by_label("Search this session"), page.locator(".path-tools [role=status]")
        everywhere = page.get_by_role("link", name="Whole session")
        expect(everywhere).to_be_hidden()
        find.fill("about")
        expect(said).to_have_text("Found: 2")
        everywhere.click()
        expect(page.locator(".session-matches > li")).to_have_count(12)
        expect(page.locator(".run-row-found").first).to_be_visible()
        expect(said).to_have_text("")
        expect(everywhere).to_be_hidden()
        find.fill("day")
        expect(everywhere).to_be_visible()
        assert complaints == []


def test_session_is_read_and_searched_without_scripts(
    talk: str, session_key: str, browser: Browser, live_server: Any
) -> None:
    for context in browse(browser, session_key, live_server.url, scripts=False):
        page = context.new_page()
        page.goto(talk)
        expect(page.locator("ol.conversation > li")).to_have_count(24)
        expect(page.locator("#details dl.facts")).to_be_visible()
        expect(page.locator(".run-row-chapter")).to_have_count(12)
        page.locator("a.run-row", has_text="look_5_3").click()
        expect(page.locator(".run-panel h2 .tool")).to_have_text("look_5_3")
        page.goto(talk)
        page.locator(".path-search input[name=q]").fill("error:day")
        page.locator(".path-search input[name=q]").press("Enter")
        page.locator(".session-matches a", has_text="look_5_3").click()
        expect(page.locator(".run-panel h2 .tool")).to_have_text("look_5_3")
    assert Session.objects.count() == 1
