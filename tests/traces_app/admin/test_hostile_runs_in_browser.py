"""Hostile traces in a real browser: whatever a trace says is text on the page of its run, and the page stays responsive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from access_app.models import Project
from tests.chromium import needs_chromium
from tests.traces_app.admin.test_admin_in_browser import HOSTILE, browse, session_key, watched
from tests.traces_app.conftest import answer, question, store
from traces_app.models import AgentStep, ToolCall
from tracesite_sdk.redaction.engine import MAX_DEPTH

pytestmark = [pytest.mark.system, needs_chromium]
__all__ = ["session_key"]  # a fixture

DEEP = "[" * 10_000 + "]" * 10_000
"""Only as text: as JSON it is refused (tests/tracesite/http/test_bad_input.py:deep)."""
LEVELS: Any = HOSTILE
for _level in range(MAX_DEPTH):
    LEVELS = {"level": LEVELS}
OPEN_ALL = """async () => {
  for (let each; (each = document.querySelector(".run-panel .json-branch:not([open])")); ) {
    each.open = true;
    await new Promise((done) => each.addEventListener("toggle", () => setTimeout(done), { once: true }));
  }
}"""
SVG = "<svg xmlns='http://www.w3.org/2000/svg' onload=\"document.title = 'broken in'\"><script>document.title = 'broken in'</script></svg>"
BIDI = "\u202egnp.exe\u202c \u2066\u2069 zero\u200bwidth\u200d\ufeff \U000e0041"
ANSI = "\x1b[31mred\x1b[0m\x1b]8;;https://evil.example/\x07link\x1b]8;;\x07\x1b[2J"
SAFE = "noopener noreferrer nofollow"
LINKS = (
    "[a](javascript:document.title='broken%20in') <a href='javascript:alert(1)'>b</a> ![c](https://evil.example/p.png)"
)
HIDDEN = set("\u202e\u202c\u2066\u2069\u200b\ufeff\U000e0041\x1b\x07")
MARKDOWN = (
    f"# {HOSTILE}\n\n[a](javascript:alert(1)) [b](<java\tscript:alert(1)>) [c](data:text/html,x) [d](//evil.example) [e](/admin/logout/)\n"
    f"![f](https://evil.example/p.png) [![g](http://evil.example/q.png)](javascript:alert(1)) <javascript:alert(1)> [{BIDI}](http://a/{BIDI})\n\n"
    f"|{HOSTILE}|b|\n|-:|-|\n|{SVG}|`{HOSTILE}`|\n\n```html\n{HOSTILE}{SVG}\n```\n\n- {HOSTILE}\n  1. > {BIDI}{ANSI}\n"
)
OUTPUTS: dict[str, Any] = {
    "html": {"output": HOSTILE, "data": {HOSTILE: [HOSTILE, SVG]}},
    "svg": {"output": SVG, "data": {"image": "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+", "svg": SVG}},
    "links": {"output": LINKS, "data": {"href": "javascript:alert(1)", "image": "https://evil.example/p.png"}},
    "bidi": {"output": BIDI * 100, "data": {BIDI: BIDI}},
    "ansi": {"output": ANSI, "data": [ANSI]},
    "hidden": {"output": "\u200b\u202e" * 1_000_000},
    "deep": {"output": DEEP, "data": {"json": DEEP}},
    "nested": {"output": "x", "data": LEVELS},
    "long": {"output": "x<b>" * 5_000_000, "data": {"text": "y" * 20_000_000}},
    "wide": {"output": json.dumps([{"n": number} for number in range(100_000)])},
    "failed": {"success": False, "error": HOSTILE + SVG + BIDI + ANSI + LINKS},
}


HOSTILE_CALL = {"id": HOSTILE, "function": {"name": HOSTILE, "arguments": DEEP}}
ASKED: dict[str, Any] = {
    "system": [{"type": "text", "text": HOSTILE}, {"type": HOSTILE, HOSTILE: SVG}],
    "messages": [
        {"role": HOSTILE, "content": SVG},
        {"role": "assistant", "name": BIDI, "content": LINKS, "tool_calls": [HOSTILE_CALL], HOSTILE: BIDI},
        {"role": "tool", "tool_call_id": HOSTILE, "content": BIDI + ANSI},
        {"role": "assistant", "content": [{"type": "tool_use", "id": BIDI, "name": ANSI, "input": {HOSTILE: LEVELS}}]},
        {"type": HOSTILE, SVG: ANSI},
        DEEP,
        "x<b>" * 1_000_000,
    ],
    "tools": [{"name": HOSTILE, "description": SVG}, BIDI, [ANSI]],
    "parameters": {HOSTILE: ANSI},
}
"""What the model was asked, in several shapes."""


@pytest.fixture
def paths(transactional_db: None) -> list[str]:
    """Return the paths of the pages that show the hostile run, that of the run first."""
    calls = [
        {"name": name, "id": name, "args": {"name": name, name: HOSTILE, "deep": DEEP}, "result": result}
        for name, result in OUTPUTS.items()
    ]
    steps = [
        {"thought": HOSTILE + BIDI + ANSI, "agent_name": BIDI, "tool_calls": calls, "input": ASKED},
        {"iteration": 1, "thought": MARKDOWN},
    ]
    project = Project.objects.create(slug="hostile")
    outcome = store(
        project,
        question(content=LINKS),
        answer(content=SVG + BIDI + ANSI + LINKS, agent_steps=steps),
        answer(external_id="markdown", content=MARKDOWN, agent_steps=[]),
    )
    few = [{"thought": BIDI, "tool_calls": calls[:3]}]
    other = store(project, answer(agent_steps=few), external_id="other").messages[0].id
    run, session, rendered = outcome.messages[1].id, outcome.id, outcome.messages[2].id
    message = "/admin/messages_app/message"
    exports = [
        f"/api/v1/sessions/{session}/export/?format={name}" for name in ("tracesite", "jsonl", "markdown", "openai")
    ]
    calls_of_run = ToolCall.objects.filter(message_id=run).values_list("pk", flat=True)
    step = str(AgentStep.objects.get(message_id=run, iteration=0).pk)
    pages = [f"{message}/{run}/change/?call={call}" for call in calls_of_run]
    pages.append(f"{message}/{run}/change/?call={step}&tab=input")
    return [
        f"{message}/{run}/change/",
        f"{message}/{run}/change/?open=all",
        f"{message}/{run}/change/?q=javascript",
        f"{message}/{run}/change/?view=text",
        f"{message}/{rendered}/change/",
        f"{message}/{rendered}/change/?raw=1",
        f"{message}/{run}/compare/?other={other}",
        f"/admin/messages_app/session/{session}/change/",
        *pages,
        *exports,
    ]


def test_hostile_trace_is_only_text_on_every_page(
    paths: list[str], session_key: str, browser: Browser, live_server: Any
) -> None:
    run, *others = paths
    for context in browse(browser, session_key, live_server.url):
        page, complaints = watched(context)
        page.goto(run)
        panel = page.locator(".run-panel")
        for name in OUTPUTS:
            row = page.locator(".run-row").filter(has=page.get_by_text(name, exact=True))
            row.click()
            expect(panel.locator("h2 .tool")).to_have_text(name)
            for tab in panel.get_by_role("tab").all():
                tab.click()
                for fold in panel.locator(".json-branch:not([open]) > summary").all()[:5]:
                    fold.click()
                assert panel.locator("script, svg, iframe, a[href^=javascript], img").count() == 0, name
                assert not set(panel.inner_text()) & HIDDEN, name
            panel.get_by_role("tab", name="Result").click()
        # What the model was asked comes as HTML of the server.
        panel.get_by_role("tab", name="Model input").click()
        expect(panel.locator(".model-input .bubble")).to_have_count(len(ASKED["messages"]) + 2)
        for fold in panel.locator(".model-input details > summary").all():
            fold.evaluate("summary => { summary.parentElement.open = true; }")
        assert panel.locator("script, svg, iframe, a[href^=javascript], img").count() == 0
        assert not set(panel.inner_text()) & HIDDEN
        panel.get_by_role("tab", name="Result").click()
        # As deep as JSON is stored: every level opens, and the leaf is text.
        page.locator(".run-row").filter(has=page.get_by_text("nested", exact=True)).click()
        expect(panel.locator("h2 .tool")).to_have_text("nested")
        expect(panel.get_by_text("level", exact=True).first).to_be_attached()
        page.evaluate(OPEN_ALL)
        assert panel.get_by_text("level", exact=True).count() == MAX_DEPTH
        assert "broken in" in panel.locator(".json-branch").last.inner_text()
        page.locator(".run-row").filter(has=page.get_by_text("wide", exact=True)).click()
        panel.get_by_role("button", name="Load all").first.click()
        expect(panel.get_by_text("[100000]")).to_be_visible()
        page.locator(".run-row").filter(has=page.get_by_text("hidden", exact=True)).click()
        expect(panel.locator(".mark").first).to_be_visible()
        assert page.locator(".run-panel .mark").count() < 5_000
        # The rows and the header say words of the trace, too.
        expect(page.locator(".run-row-error .run-error")).to_contain_text("onerror=")
        expect(page.locator(".why .said-error")).to_contain_text("onerror=")
        assert not set(page.locator("body").inner_text()) & HIDDEN
        for view in ("Time", "Text", "Steps"):
            page.get_by_role("button", name=view, exact=True).click()
        assert page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
        )
        rendered: list[str] = []
        for path in others:
            if "/export/" in path:
                assert context.request.get(path).status == 200, path
                continue
            response = page.goto(path)
            assert response is not None and response.status == 200, path
            assert len(response.body()) < 12_000_000, path
            assert page.title() != "broken in", path
            risky = page.locator(
                "main :is(svg, iframe, object, embed, a[href^='javascript'], img:not([src^='data:image/']))"
            )
            assert risky.count() == 0, path
            links = page.locator(".prose a").evaluate_all("links => links.map((link) => [link.protocol, link.rel])")
            assert all(link == ["https:", SAFE] or link == ["http:", SAFE] for link in links), path
            if links:
                rendered.append(path)
        # The pages of both answers, and of the session.
        assert len(rendered) >= 5
        assert page.title() != "broken in"
        assert complaints == []
