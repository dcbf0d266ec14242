"""The pages of the admin have no serious or critical violation of axe-core and fit phones.

tests/tracesite/live/test_page.py looks at the events of a session, which needs a server of its own. /api/v1/docs/ is left out:
Swagger UI makes faults there that templates cannot mend.
At length it looks at all pages in all ways, which takes a minute more.

axe-core takes 0.3 s a page and loading one 0.2 s, on two cores that do nothing else. So a page is loaded once in a language and then
made narrow, which is the same as loading it narrow, because the layout is that of style sheets: no script asks for the window's width.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, ViewportSize

from sdk.tests.length import AT_LENGTH
from tests.axe import AXE, faults_of, faults_of_width, needs_axe
from tests.chromium import needs_chromium
from tests.traces_app.admin.pages import NOWHERE, stored_pages
from tests.traces_app.admin.test_admin_in_browser import session_key

pytestmark = [pytest.mark.system, needs_chromium, needs_axe]
__all__ = ["session_key"]  # a fixture

WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
ENGLISH: dict[str, Any] = {"locale": "en", "color_scheme": "light", "viewport": WIDE}
CHINESE: dict[str, Any] = {"locale": "zh-CN", "color_scheme": "dark", "viewport": WIDE}
LISTS = 4
"""Pages at the beginning of the list, home and lists, whose layout on phones is another one: axe-core looks at these there,
and of all others only the width is tested, because it takes most of the time."""
PARTS = 3
"""Tests into which the pages are divided, so that several processes share them."""


@pytest.fixture
def pages(session_key: str) -> list[str]:
    """Return the paths of the pages, each with data, but for the live page."""
    return [path for path in stored_pages(User.objects.get(username="ada")) if not path.endswith("?tab=events")]


@pytest.mark.parametrize("part", range(PARTS))
def test_pages_have_no_grave_fault(
    part: int, pages: list[str], session_key: str, browser: Browser, live_server: Any
) -> None:
    # What is dark is the same style sheet on all pages, and so are most parts of them: every other page shows it.
    chinese = set(pages if AT_LENGTH else pages[::2])
    narrow = set(pages if AT_LENGTH else pages[:LISTS])
    faults = []
    for look in (ENGLISH, CHINESE):
        with browser.new_context(base_url=live_server.url, **look) as context:
            context.add_init_script(path=AXE)
            page = context.new_page()
            if part == 0:
                page.goto("/admin/login/")
                faults += faults_of_looks(page, look, "login", axe_on_phone=True)
            context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session_key, "url": live_server.url}])
            for path in pages[part::PARTS]:
                if look is ENGLISH or path in chinese:
                    load(page, path)
                    faults += faults_of_looks(page, look, path, axe_on_phone=path in narrow)
    assert not faults, "\n".join(faults)


def load(page: Page, path: str) -> None:
    response = page.goto(path)
    assert response is not None
    assert (path, response.status) == (path, 404 if path == NOWHERE else 200)
    if "view=" in path or "call=" in path:
        page.locator(".run-row:visible, #run-text .step:visible").first.wait_for()


def faults_of_looks(page: Page, look: dict[str, Any], name: str, *, axe_on_phone: bool) -> list[str]:
    """Return the faults of a page as it is and, if it is English, as narrow as on a phone. Leave it wide."""
    language = look["locale"]
    faults = [f"{language} {name}: {fault}" for fault in faults_of(page)]
    if look is ENGLISH:
        page.set_viewport_size(PHONE)
        page.wait_for_function("width => innerWidth === width", arg=PHONE["width"])
        found = faults_of(page) if axe_on_phone else faults_of_width(page)
        faults += [f"{language} on a phone {name}: {fault}" for fault in found]
        page.set_viewport_size(WIDE)
    return faults
