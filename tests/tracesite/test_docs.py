"""Test the API documentation page in a browser, under our Content-Security-Policy."""

from __future__ import annotations

import re
from typing import Any, Literal

import pytest
from django.contrib.staticfiles.finders import find
from django.test import Client
from playwright.sync_api import Browser, ViewportSize, expect

from tests.axe import AXE, faults_of, needs_axe
from tests.chromium import needs_chromium

DESKTOP: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}


def test_docs_page_has_no_inline_script_or_style() -> None:
    html = Client().get("/api/v1/docs/").content.decode()
    assert re.findall(r"<script[^>]*>([^<]*)</script>", html) == ["", "", ""]
    assert "<style" not in html
    assert "style=" not in html


def test_docs_page_loads_own_files_only() -> None:
    html = Client().get("/api/v1/docs/").content.decode()
    loaded = re.findall(r'<(?:script|link) [^>]*(?:src|href)="([^"]+)"', html)
    assert loaded == [
        "/static/tracesite/icon.svg",
        "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css",
        "/static/tracesite/tokens.css",
        "/static/tracesite/docs.css",
        "/static/admin/js/theme.js",
        "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js",
        "/static/tracesite/docs.js",
    ]
    assert all(find(path.removeprefix("/static/")) for path in loaded)


@pytest.mark.system
@needs_chromium
@needs_axe
@pytest.mark.parametrize(
    ("theme", "viewport"), [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE), ("dark", PHONE)]
)
def test_docs_page_in_browser_shows_every_operation(
    browser: Browser, live_server: Any, theme: Literal["light", "dark"], viewport: ViewportSize
) -> None:
    complaints: list[str] = []
    paths = Client().get("/api/v1/schema/", headers={"Accept": "application/json"}).json()["paths"]
    operations = sum(map(len, paths.values()))
    assert operations > 20
    with browser.new_page(color_scheme=theme, viewport=viewport) as page:
        page.add_init_script(path=AXE)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{live_server.url}/api/v1/docs/")
        expect(page.locator(".opblock")).to_have_count(operations)
        page.locator("#operations-Sessions-list_sessions .opblock-summary-control").click()
        page.get_by_text("Part of the title, case-insensitive.").wait_for()
        # Names of controls and what is in what are those of Swagger UI; the colours and the width are ours.
        assert [fault for fault in faults_of(page) if "contrast" in fault or "wider" in fault] == []
    assert complaints == []
