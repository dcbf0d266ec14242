"""The pages of the admin have no serious or critical violation of axe-core and fit phones.

tests/tracesite/live/test_page.py looks at the live page, which needs a server of its own. /api/v1/docs/ and the
form of a user are left out: Swagger UI and a script of Django's admin make faults there that templates cannot mend.
At length it looks at all pages in all ways, which takes a minute more.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from playwright.sync_api import Browser

from sdk.tests.length import AT_LENGTH
from tests.axe import AXE, faults_of, faults_of_width, needs_axe
from tests.chromium import needs_chromium
from tests.traces_app.admin.pages import NOWHERE, stored_pages
from tests.traces_app.admin.test_admin_in_browser import session_key

pytestmark = [pytest.mark.system, needs_chromium, needs_axe]
__all__ = ["session_key"]  # a fixture

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
    """Return the paths of the pages, each with data, but for the live page."""
    return [path for path in stored_pages(User.objects.get(username="ada")) if not path.endswith("/live/")]


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
