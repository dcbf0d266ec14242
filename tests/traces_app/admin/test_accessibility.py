"""The pages of the admin have no serious or critical violation of axe-core and fit phones.

tests/tracesite/live/test_page.py looks at the live page, which needs a server of its own. /api/v1/docs/ and the
form of a user are left out: Swagger UI and a script of Django's admin make faults there that templates cannot mend.
At length it looks at all pages in all ways, which takes a minute more.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from playwright.sync_api import Browser

from access_app.keys import create_key
from access_app.models import Project, Scope
from messages_app import writes
from messages_app.models import SavedView
from sdk.tests.length import AT_LENGTH
from tests.axe import AXE, faults_of, faults_of_width, needs_axe
from tests.chromium import needs_chromium
from tests.traces_app.admin.test_admin_in_browser import session_key
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.scores import Place, PlacedScore, store_scores
from traces_app.maintenance.search_index import index_queued
from traces_app.models import AgentStep, Tool, ToolCall
from tracesite.samples.loader import load_samples
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.redaction.rules import DEFAULT_RULES

pytestmark = [pytest.mark.system, needs_chromium, needs_axe]
__all__ = ["session_key"]  # a fixture

NOWHERE = "/admin/nowhere/"
LOOKS: list[dict[str, Any]] = [
    {"locale": "en", "color_scheme": "light", "viewport": {"width": 1440, "height": 900}},
    {"locale": "zh-CN", "color_scheme": "dark", "viewport": {"width": 1440, "height": 900}},
    {"locale": "en", "color_scheme": "light", "viewport": {"width": 390, "height": 844}},
]
ON_PHONES = 4
"""Pages at the beginning of the list, home and lists, whose layout on phones is another one: axe-core looks at these there,
and of all others only the width is tested, because it takes most of the time."""


def pages_of(look: dict[str, Any], pages: list[str]) -> tuple[list[str], list[str]]:
    """Return the pages that are visited in a look, and those of them that axe-core looks at."""
    if AT_LENGTH:
        return pages, pages
    if look is LOOKS[-1]:
        return pages, pages[:ON_PHONES]
    # What is dark is the same style sheet on all pages, and so are most parts of them: every other page shows it.
    shown = pages if look is LOOKS[0] else pages[::2]
    return shown, shown


@pytest.fixture
def pages(session_key: str) -> list[str]:
    """Return the paths of the pages, each with data."""
    project = Project.objects.create(slug="demo", name="Demo")
    load_samples(project)
    asked = {"messages": [{"role": "user", "content": "Which?"}], "system": "Be brief.", "tools": [{"name": "search"}]}
    steps = answer()["agent_steps"]
    steps[0] |= {"model": "gpt-5", "agent_name": "researcher", "input": asked}
    call = {"id": "call_a", "name": "get_weather", "args": {"city": "Oslo"}, "result": {"output": "20 °C"}}
    otherwise = {"iteration": 0, "thought": "Ask for one city.", "tool_calls": [call]}
    reference = {"id": "r", "content": "A passage.", "knowledge_title": "Atlas"}
    shown = store(
        project,
        question(),
        answer(agent_steps=steps, knowledge_references=[reference]),
        answer(external_id="a2", content="Other.", agent_steps=[otherwise]),
        {"external_id": "s", "role": "system", "content": "Be brief."},
        {"external_id": "a3", "role": "assistant", "content": "", "is_completed": False},
        title="The weather",
        end_user="ada",
        tags=["weather"],
    )
    session, run, other, running = shown.id, *(shown.messages[place].id for place in (1, 2, 4))
    assert session is not None
    for place in (Place(session_id=session), Place(session_id=session, message_id=run)):
        score = records.Score(name="helpful", value=True, comment="Good.", author="ada")
        store_scores(project.pk, [PlacedScore(redacted=redact_score(score, DEFAULT_RULES), place=place)])
    deleted = store(project, question(), external_id="deleted", title="Deleted").id
    assert deleted is not None
    writes.delete_session(deleted, by="ada")
    key, _token = create_key(project, "Agents", Scope.values)
    owner = User.objects.get(username="ada")
    view = SavedView.objects.create(owner=owner, name="Paused", list_name="messages_app.session", query="status=paused")
    SavedView.objects.create(
        owner=User.objects.create_superuser("bob"),
        name="Broken",
        list_name="messages_app.session",
        query="has_errors=yes",
        shared=True,
    )
    index_queued(patience=timedelta(0))
    failed = ToolCall.objects.get(message_id=run, status="error")
    tool = Tool.objects.get(project=project, name="get_weather")
    step = AgentStep.objects.filter(message_id=run).earliest("iteration")
    messages, sessions, calls = (
        "/admin/messages_app/message",
        "/admin/messages_app/session",
        "/admin/traces_app/toolcall",
    )
    return [
        *("/admin/?created=30d", f"{sessions}/", f"{messages}/", f"{calls}/"),
        *(f"{sessions}/?status=paused", f"{sessions}/views/{view.pk}/"),
        *(f"{sessions}/?q=weather", f"{calls}/?status=error&q=unknown", f"{messages}/?q=nothing"),
        *(f"{sessions}/{session}/change/", f"{calls}/{failed.pk}/change/", f"{messages}/{running}/change/"),
        *(f"{messages}/{run}/change/?call={failed.pk}#call-{failed.pk}", f"{messages}/{run}/change/?view=waterfall"),
        *(f"{messages}/{run}/change/?view=text", f"{messages}/{run}/steps/{step.pk}/input/"),
        *(f"{messages}/{run}/compare/", f"{messages}/{run}/compare/?other={other}"),
        *(f"{messages}/{run}/similar/", f"{messages}/{run}/similar/?by=errors"),
        *("/admin/traces_app/tool/", "/admin/traces_app/tool/statistics/?created_after=2026-01-01"),
        f"{calls}/errors/?created_after=2026-01-01",
        f"/admin/traces_app/tool/{tool.pk}/change/?created_after=2026-01-01",
        *(f"{sessions}/trash/", f"{sessions}/{deleted}/change/", f"{sessions}/{deleted}/restore/"),
        *("/admin/traces_app/score/", "/admin/traces_app/modelprice/add/"),
        *("/admin/access_app/apikey/", "/admin/access_app/apikey/add/", f"/admin/access_app/apikey/{key.pk}/change/"),
        *("/admin/access_app/project/", f"/admin/access_app/project/{project.pk}/change/"),
        f"/admin/traces_app/maskingrun/{project.pk}/",
        *("/admin/auth/user/", "/admin/auth/user/add/", "/admin/password_change/", "/admin/time-zone/"),
        *(f"{sessions}/{session}/delete/", f"{messages}/add/", NOWHERE),
    ]


def test_pages_have_no_grave_fault(pages: list[str], session_key: str, browser: Browser, live_server: Any) -> None:
    faults = []
    for look in LOOKS:
        with browser.new_context(base_url=live_server.url, **look) as context:
            context.add_init_script(path=AXE)
            page = context.new_page()
            page.goto("/admin/login/")
            name = f"{look['locale']} {look['color_scheme']} {look['viewport']['width']}"
            faults += [f"{name} login: {fault}" for fault in faults_of(page)]
            context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session_key, "url": live_server.url}])
            shown, thorough = pages_of(look, pages)
            for path in shown:
                response = page.goto(path)
                assert response is not None
                assert (path, response.status) == (path, 404 if path == NOWHERE else 200)
                if "view=" in path or "call=" in path:
                    page.locator(".run-row:visible, #run-text .step:visible").first.wait_for()
                found = faults_of(page) if path in thorough else faults_of_width(page)
                faults += [f"{name} {path}: {fault}" for fault in found]
    assert not faults, "\n".join(faults)
