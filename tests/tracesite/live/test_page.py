"""Test the page of a running session in a browser, against a running server and through cut connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.faults.site import Site
from benchmarks.live.agents import Agent
from tests.axe import AXE, faults_of, needs_axe
from tests.chromium import needs_chromium

from .test_waits import post

PASSWORD = "correct horse battery"
ZONE = "Asia/Kathmandu"  # UTC+05:45
HOSTILE = "<img src=x onerror=\"document.title = 'broken in'\">"

pytestmark = [pytest.mark.system, needs_chromium]


class Network:
    """A proxy between browser and server whose connections can be cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._to))
                self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=[one, other], daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for each in self._open:
            each.close()


@pytest.fixture(scope="module")
def staff(site: Site) -> str:
    script = (
        "from django.contrib.auth.models import User; "
        f"User.objects.filter(username='ada').exists() or User.objects.create_superuser('ada', password='{PASSWORD}')"
    )
    site.manage("shell", "-c", script)
    return "ada"


@pytest.fixture
def network(port: int) -> Iterator[Network]:
    network = Network(port)
    yield network
    network.close()


@contextmanager
def logged_in(browser: Browser, network: Network, name: str, language: str) -> Iterator[tuple[Page, list[str]]]:
    """Open a tab of a logged-in user; yield it with the list of its console errors."""
    complaints: list[str] = []
    with browser.new_context(base_url=f"http://127.0.0.1:{network.port}", locale=language, timezone_id=ZONE) as context:
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            # The browser also logs cut connections, as "net::" errors.
            lambda entry: (
                complaints.append(entry.text) if entry.type == "error" and "net::" not in entry.text else None
            ),
        )
        page.goto("/admin/")
        page.locator("#id_username").fill(name)
        page.locator("#id_password").fill(PASSWORD)
        page.locator("input[type=submit]").click()
        yield page, complaints


def numbers_on(page: Page) -> list[int]:
    rows: list[int] = page.evaluate(
        "[...document.querySelectorAll('#live-events li')].map(row => Number(row.dataset.seq))"
    )
    return rows


@pytest.mark.parametrize(("language", "word"), [("en", "Live: new events"), ("zh-CN", "实时：新事件")])
def test_page_follows_through_cuts_without_gaps_or_duplicates(
    site: Site,
    browser: Browser,
    network: Network,
    staff: str,
    agent: Agent,
    database: psycopg.Connection[Any],
    language: str,
    word: str,
) -> None:
    agent.does(database, *({"n": n} for n in range(300)))
    with logged_in(browser, network, staff, language) as (page, complaints):
        page.goto(f"/admin/messages_app/session/{agent.session}/change/")
        page.get_by_role("link", name={"en": "Events", "zh-CN": "事件"}[language]).click()
        expect(page.locator("#live-connection")).to_contain_text(word)
        expect(page.locator("#live-events li")).to_have_count(300)
        for turn in range(6):
            agent.does(database, *({"turn": turn, "text": HOSTILE} for _ in range(10)))
            if turn % 2:
                network.cut()
                agent.does(database, *({"turn": turn, "while": "cut"} for _ in range(10)))
        expect(page.locator("#live-events li")).to_have_count(390)
        database.execute("UPDATE messages_app_session SET said_status = 'completed' WHERE id = %s", [agent.session])
        expect(page.locator("#run-header .outcome")).to_have_class("outcome outcome-done")
        assert numbers_on(page) == list(range(1, 391))
        assert (page.title().startswith("broken"), page.locator("main img").count(), complaints) == (False, 0, [])


def test_times_are_shown_in_the_zone_of_the_browser_if_it_is_chosen(
    browser: Browser, network: Network, staff: str, agent: Agent, database: psycopg.Connection[Any]
) -> None:
    agent.does(database, {"text": "some words"})
    live = f"/admin/messages_app/session/{agent.session}/change/?tab=events"
    with logged_in(browser, network, staff, "en") as (page, complaints):
        page.goto(f"/admin/time-zone/?next={live}")
        page.get_by_role("button", name=f"Zone of this browser: {ZONE}").click()
        page.wait_for_url("**/change/?tab=events")
        expect(page.locator("#user-tools bdi")).to_have_text(ZONE)
        cell = page.locator("#live-events time")
        at = datetime.fromisoformat(str(cell.get_attribute("datetime")))
        shown = at.astimezone(ZoneInfo(ZONE))
        assert cell.inner_text() == f"{shown:%H:%M:%S}.{at.microsecond // 1000:03}"
        assert cell.get_attribute("title") == f"{at:%Y-%m-%d %H:%M:%S} UTC"
        assert complaints == []


@needs_axe
def test_page_has_no_grave_fault(
    browser: Browser, network: Network, staff: str, agent: Agent, database: psycopg.Connection[Any]
) -> None:
    agent.does(database, {"text": "some words"}, {"text": "a" * 500})
    for language, theme, width in (("en", "light", 1440), ("zh-CN", "dark", 390)):
        with logged_in(browser, network, staff, language) as (page, _complaints):
            page.add_init_script(path=AXE)
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(f"/admin/messages_app/session/{agent.session}/live/")
            page.locator("#live-events summary").last.click()
            assert faults_of(page) == [], (language, theme, width)


def test_page_of_deleted_session_shows_it(
    browser: Browser, network: Network, staff: str, agent: Agent, database: psycopg.Connection[Any]
) -> None:
    with logged_in(browser, network, staff, "en") as (page, complaints):
        page.goto(f"/admin/messages_app/session/{agent.session}/live/")
        expect(page.locator("#events")).to_have_attribute("data-state", "live")
        database.execute("UPDATE messages_app_session SET deleted_at = now() WHERE id = %s", [agent.session])
        expect(page.locator("#live-connection")).to_have_text("The session was deleted.")
        assert complaints == []


def test_page_lays_out_many_events_a_few_times(
    browser: Browser, network: Network, staff: str, agent: Agent, database: psycopg.Connection[Any]
) -> None:
    count = 2_500
    agent.does(database, *({"n": n, "text": "some words " * 10} for n in range(count)))
    with logged_in(browser, network, staff, "en") as (page, complaints):
        protocol = page.context.new_cdp_session(page)
        protocol.send("Performance.enable")
        page.goto(f"/admin/messages_app/session/{agent.session}/live/")
        expect(page.locator("#live-events li")).to_have_count(count)
        metrics = {one["name"]: one["value"] for one in protocol.send("Performance.getMetrics")["metrics"]}
        assert numbers_on(page) == list(range(1, count + 1))
        # The page is scrolled to the end and stays there.
        about = page.locator(".about")
        assert about.evaluate("about => about.clientHeight + about.scrollTop > about.scrollHeight - 60")
        about.evaluate("about => { about.scrollTop = 0; }")
        agent.does(database, {"n": count})
        expect(page.locator("#live-events li")).to_have_count(count + 1)
        assert about.evaluate("about => about.scrollTop") == 0
        assert complaints == []
    # One layout per event would make 2,500, each slower than the last.
    assert metrics["LayoutCount"] < count / 5, metrics


def test_page_keeps_the_newest_events(
    browser: Browser, network: Network, staff: str, agent: Agent, database: psycopg.Connection[Any]
) -> None:
    agent.does(database, *({"n": n} for n in range(5_200)))
    with logged_in(browser, network, staff, "en") as (page, complaints):
        page.goto(f"/admin/messages_app/session/{agent.session}/live/")
        expect(page.locator("#live-events li:last-child")).to_have_attribute("data-seq", "5200")
        expect(page.locator("#live-earlier")).to_be_visible()
        assert numbers_on(page) == list(range(201, 5_201))
        assert complaints == []


def test_hidden_characters_are_marked(
    browser: Browser, network: Network, staff: str, agent: Agent, database: psycopg.Connection[Any]
) -> None:
    hidden = "a\u202eb\u2066c\u200bd\U000e0041e\x1bf\x9fg"
    agent.does(database, {"text": hidden, hidden: 1})
    database.execute("UPDATE traces_app_event SET agent = %s WHERE session_id = %s", [hidden, agent.session])
    with logged_in(browser, network, staff, "en") as (page, complaints):
        page.goto(f"/admin/messages_app/session/{agent.session}/live/")
        page.locator("#live-events summary").click()
        expect(page.locator("#live-events pre")).to_contain_text("cU+200Bd")
        marked = "aU+202EbU+2066cU+200BdU+E0041eESCfU+009Fg"
        expect(page.locator("#live-events bdi.quiet")).to_have_text(marked)
        text = page.locator("#events").inner_text()
        assert not set(text) & set("\u202e\u2066\u200b\U000e0041\x1b\x9f")
        assert page.locator("#live-events pre .mark").first.get_attribute("title") == "U+202E"
        assert complaints == []


@pytest.mark.parametrize(
    ("language", "over", "nothing"),
    [
        ("en", "The session has ended.", "No events: the session was imported"),
        ("zh-CN", "会话已结束", "没有事件：该会话是导入的"),
    ],
)
def test_page_of_ended_session_shows_its_status(
    site: Site, browser: Browser, network: Network, staff: str, port: int, key: dict[str, str], agent: Agent, database: psycopg.Connection[Any],
    language: str, over: str, nothing: str,
) -> None:  # fmt: skip
    database.execute("UPDATE messages_app_session SET said_status = 'completed' WHERE id = %s", [agent.session])
    with logged_in(browser, network, staff, language) as (page, complaints):
        page.goto(f"/admin/messages_app/session/{agent.session}/change/")
        assert page.locator("a[href='#events']").count() == 0
        page.goto(f"/admin/messages_app/session/{agent.session}/live/")
        expect(page.locator("#live-connection")).to_contain_text(over)
        expect(page.locator("#live-nothing")).to_contain_text(nothing)
        agent.does(database, {})
        expect(page.locator("#live-events li")).to_have_count(1)
        expect(page.locator("#live-nothing")).to_be_hidden()
        page.goto(f"/admin/messages_app/session/{agent.session}/change/")
        expect(page.locator("a[href='#events']")).to_have_count(1)
        assert complaints == []


@pytest.mark.parametrize(
    ("language", "live", "step", "answer"),
    [("en", "Live", "1 step", "Answer"), ("zh-CN", "实时", "1 个步骤", "回答")],
)
def test_page_of_running_run_goes_on_in_place(
    browser: Browser, network: Network, staff: str, port: int, key: dict[str, str], database: psycopg.Connection[Any],
    language: str, live: str, step: str, answer: str,
) -> None:  # fmt: skip
    name = f"running in {language}"

    def send_event(type_: str, **data: Any) -> None:
        post(port, key, "/api/v1/events/", {"session_id": name, "type": type_, "data": data})

    def send_calls(first: int, after: int) -> None:
        calls = [{"call_id": f"c{place}", "name": f"count_{place}"} for place in range(first, after)]
        events = [{"session_id": name, "type": "tool_call_start", "data": {"step": "s1", **call}} for call in calls]
        post(port, key, "/api/v1/events/", {"events": events})

    send_event("workflow_execute_start", prompt="How many?")
    row = database.execute(
        "SELECT message.id FROM messages_app_message AS message JOIN messages_app_session AS session"
        " ON session.id = message.session_id WHERE session.external_id = %s AND role = 'assistant'",
        [name],
    ).fetchone()
    assert row is not None
    with logged_in(browser, network, staff, language) as (page, complaints):
        page.goto(f"/admin/messages_app/message/{row[0]}/change/")
        expect(page.locator(".why .live b")).to_have_text(live)
        assert page.title().startswith("● ")
        expect(page.locator(".run-row .run-who")).to_have_text([answer])  # without a step
        expect(page.locator(".outcome")).to_have_class("outcome outcome-running")
        page.evaluate("window.stayed = true")
        send_event("llm_request_start", step="s1")
        send_calls(0, 230)  # more rows than come with the page
        expect(page.locator(".why")).to_contain_text(step)
        expect(page.locator(".run-row")).not_to_have_count(0)
        pending = page.locator(".run-row-pending .run-took").first
        before = pending.text_content() or ""
        assert before
        expect(pending).not_to_have_text(before)
        # The header goes on, too: what runs, how much was done, and when something happened last.
        expect(page.locator(".why .live b")).to_be_visible()
        expect(page.locator(".why > a")).to_have_count(3)  # of the calls that run
        expect(page.locator(".why")).to_contain_text("230")
        before = page.locator(".live time").text_content()
        expect(page.locator(".live time")).not_to_have_text(before or "")
        network.cut()
        expect(page.locator(".why [data-part=lost]")).to_be_visible()
        expect(page.locator(".why .live")).to_be_visible()
        rows = page.locator(".run-list")
        rows.evaluate("list => { list.scrollTop = 0; }")  # it went along with the newest row
        rows.get_by_text("count_3", exact=True).click()
        expect(page.locator(".run-panel h2 .tool")).to_have_text("count_3")
        rows.evaluate("list => { list.scrollTop = 260; }")
        send_event("tool_call_complete", step="s1", call_id="c3", result="Three.")
        expect(page.locator(".run-panel")).to_contain_text("Three.")  # the selected row as it is now
        expect(page.locator(".run-row-success[aria-selected=true] .run-note")).to_have_text("Three.")
        send_calls(230, 260)
        expect(page.locator(".run-row").first).to_have_attribute("aria-setsize", "262")
        assert rows.evaluate("list => list.scrollTop") == 260
        rows.evaluate("list => { list.scrollTop = 0; }")
        page.locator(".run-row-step .run-fold").first.click()
        expect(page.locator(".run-row")).to_have_count(2)  # with the answer
        send_calls(260, 261)
        expect(page.locator("#run-text .call")).to_have_count(261)
        expect(page.locator(".run-row")).to_have_count(2)
        send_event("workflow_execute_complete", result="Three.")
        expect(page.locator(".outcome-running")).to_have_count(0)
        expect(page.locator("#answer")).to_contain_text("Three.")
        expect(page.locator(".why")).to_have_text("Three.")
        expect(page.locator(".run-row").last).to_have_text(f"{answer}Three.")
        assert page.title().startswith("✓ ")
        assert page.evaluate("window.stayed") is True
        assert complaints == []


def test_conversation_goes_on_in_place(
    browser: Browser, network: Network, staff: str, port: int, key: dict[str, str], database: psycopg.Connection[Any]
) -> None:
    name = "conversation"

    def send_event(type_: str, **data: Any) -> None:
        post(port, key, "/api/v1/events/", {"session_id": name, "type": type_, "data": data})

    send_event("workflow_execute_start", prompt="How many? " * 2_000)
    send_event("llm_request_start", step="s1")
    send_event("tool_call_start", step="s1", call_id="c1", name="count")
    row = database.execute("SELECT id FROM messages_app_session WHERE external_id = %s", [name]).fetchone()
    assert row is not None
    with logged_in(browser, network, staff, "en") as (page, complaints):
        page.goto(f"/admin/messages_app/session/{row[0]}/change/")
        bubbles = page.locator("ol.conversation > li")
        expect(bubbles).to_have_count(2)
        page.evaluate("window.stayed = true")
        page.locator("ol.conversation > li details summary").first.click()
        send_event("tool_call_complete", step="s1", call_id="c1", result="Three.")
        send_event("workflow_execute_complete", result=f"There are three. {HOSTILE}")
        expect(bubbles.last).to_contain_text("There are three. <img")
        assert bubbles.first.locator("details").first.get_attribute("open") is not None
        assert page.evaluate("window.stayed") is True
        assert (page.title().startswith("broken"), complaints) == (False, [])


def test_page_of_run_without_events_goes_on(
    browser: Browser, network: Network, staff: str, port: int, key: dict[str, str], agent: Agent
) -> None:
    with logged_in(browser, network, staff, "en") as (page, complaints):
        page.goto(f"/admin/messages_app/message/{agent.message}/change/")
        expect(page.locator(".why .live")).to_be_visible()
        page.wait_for_timeout(1_000)
        step = {"tool_calls": [{"id": "c1", "name": "count", "args": {}}]}
        run = {"external_id": "run", "role": "assistant", "is_completed": False, "agent_steps": [step]}
        sessions = [{"external_id": agent.external_id, "messages": [run]}]
        post(port, key, "/api/v1/ingest/", {"sessions": sessions})
        expect(page.locator(".run-row")).to_have_count(2)  # a step with its only call, and the answer
        assert complaints == []


def test_page_of_session_goes_on_in_place(
    browser: Browser, network: Network, staff: str, port: int, key: dict[str, str]
) -> None:
    def send(*messages: dict[str, Any]) -> None:
        post(port, key, "/api/v1/ingest/", {"sessions": [{"external_id": "in place", "messages": list(messages)}]})

    calls = [{"id": f"c{place}", "name": "count", "args": {"from": place}} for place in range(3)]
    run = {"external_id": "a", "role": "assistant", "is_completed": False, "agent_steps": [{"tool_calls": calls[:2]}]}
    send({"external_id": "q", "role": "user", "content": "How many? " * 2_000}, run)
    with logged_in(browser, network, staff, "en") as (page, complaints):
        page.goto("/admin/messages_app/session/?q=in+place")
        page.goto(page.locator("#result_list tbody th a").first.get_attribute("href") or "")
        page.locator("body.scripted").wait_for()  # before, rows are links
        rows = page.locator(".run-row")
        expect(rows).to_have_count(5)  # question, step, two calls, answer
        # The header, the path and the conversation count the same time on, without an event.
        counted = page.locator("#run-header, .run-row-chapter, ol.conversation").locator("[data-begun]")
        expect(counted).to_have_count(3)
        before = counted.all_inner_texts()
        for one, words in zip(counted.all(), before, strict=True):
            expect(one).not_to_have_text(words)
            expect(one).to_contain_text("so far")
        rows.get_by_text("count").first.click()
        expect(page.locator(".run-panel h2")).to_contain_text("count")
        page.locator(".run-fold").first.click()  # the chapter
        page.evaluate("window.stayed = true")
        send({**run, "agent_steps": [{"tool_calls": calls}]})
        expect(page.locator("#conversation .run-summary")).to_contain_text("3 tool calls")
        expect(rows).to_have_count(1)  # as the reader left it
        page.locator(".run-fold").first.click()
        expect(rows).to_have_count(6)
        page.keyboard.press("Escape")
        page.set_viewport_size({"width": 1200, "height": 300})
        page.locator(".about").evaluate("about => { about.scrollTop = 200; }")
        send({**run, "is_completed": True, "content": "Three."})
        page.get_by_text("Note", exact=True).click()  # of an answer that is complete
        page.get_by_label("Note").fill("I read this")
        send({"external_id": "q2", "role": "user", "content": "Sure?"})
        expect(page.locator("ol.conversation > li")).to_have_count(3)
        expect(page.locator(".run-row-chapter").last).to_have_text("Sure?")
        assert page.get_by_label("Note").input_value() == "I read this"
        assert page.locator(".about").evaluate("about => about.scrollTop") >= 200
        page.locator("h1").click()
        send({"external_id": "q3", "role": "user", "content": "Really?"})
        expect(page.locator("#conversation").get_by_text("Really?")).to_have_count(1)
        assert page.evaluate("window.stayed") is True
        assert complaints == []


def be_hidden(page: Page, hidden: bool) -> None:
    """Move the tab to the background or back by an event, because a headless browser shows all tabs."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def streams_of(site: Site) -> int:
    """Return the number of client connections of a server's workers."""
    port = f":{site.server.port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return len([row for row in rows if row[1].endswith(port) and row[3] == "01"])


def test_page_in_the_background_holds_no_connection(
    site: Site, browser: Browser, network: Network, staff: str, agent: Agent, database: psycopg.Connection[Any]
) -> None:
    pages = [
        f"/admin/messages_app/session/{agent.session}/live/",
        f"/admin/messages_app/message/{agent.message}/change/",
    ]
    with logged_in(browser, network, staff, "en") as (page, complaints):
        for path in pages:
            with page.expect_response(lambda response: "/live/sse" in response.url):
                page.goto(path)
            followed = streams_of(site)
            be_hidden(page, True)
            deadline = time.monotonic() + 60
            while streams_of(site) >= followed:
                assert time.monotonic() < deadline, "it is still connected"
                time.sleep(0.1)
            agent.does(database, {}, {})
            page.wait_for_timeout(1_000)
            shown = page.locator("#live-events li")
            expect(shown).to_have_count(0)
            if "live" in path:
                be_hidden(page, False)
                expect(shown).to_have_count(2)
            else:
                with page.expect_request(lambda request, path=path: path in request.url):
                    be_hidden(page, False)
        assert complaints == []
