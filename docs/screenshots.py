"""Take the pictures of README and docs from the sample traces, and one of every page to look at: `make screenshots`.

The pictures of all pages are in .tracesite/screenshots: wide, light and in English, and six of them in each language, colour and
width. Needs Debian's packages chromium, fonts-noto-cjk and fonts-noto-color-emoji.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from socket import create_server

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
LANGUAGES = {"en": "en", "zh": "zh-CN"}
SESSION = "Checkout has been slow since 09:40"
SIZE = {"width": 1280, "height": 800}
EVERY = ROOT / ".tracesite" / "screenshots"
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
RUN = "/admin/messages_app/message/?role=assistant&has_errors=yes&q=Refund+order+5471"
PAGES = {
    "home": ["/admin/"],
    "session": ["/admin/messages_app/session/?q=Three+days+in+Lisbon", "open #result_list tbody th a"],
    "run": [RUN, "open #result_list tbody th a"],
    "compare": [RUN, "open #result_list tbody th a", ".run-header a[href*='/compare/']"],
    "runs": ["/admin/messages_app/message/?role=assistant"],
    "errors": ["/admin/traces_app/toolcall/errors/"],
    "sessions": ["/admin/messages_app/session/"],
    "messages": ["/admin/messages_app/message/"],
    "calls": ["/admin/traces_app/toolcall/"],
    "failed": ["/admin/traces_app/toolcall/?status=error"],
    "tools": ["/admin/traces_app/tool/statistics/?created=7d"],
    "tool": ["/admin/traces_app/tool/statistics/?created=30d", "main table tbody th a"],
    "scores": ["/admin/traces_app/score/"],
    "trash": ["/admin/messages_app/session/trash/"],
    "search": ["/admin/messages_app/session/?q=hotel"],
    "events": ["/admin/messages_app/session/?status=running", "open #result_list tbody th a", "a[href='#events']"],
    "time": [RUN, "open #result_list tbody th a", "[data-view-button=time]"],
    "text": [RUN, "open #result_list tbody th a", "[data-view-button=text]"],
    "similar": [RUN, "open #result_list tbody th a", ".menu summary", ".menu a[href*='/similar/']"],
    "snapshots": [
        "/admin/messages_app/session/?q=sample-parcel-desk",
        "open a:has-text('Where is my parcel?')",
        "a[href*='/snapshots/']",
    ],
    "history": [
        "/admin/messages_app/session/",
        "open #result_list tbody th a",
        ".menu summary",
        ".menu a[href*='/history/']",
    ],
    "delete": [
        "/admin/messages_app/session/",
        "open #result_list tbody th a",
        ".menu summary",
        ".menu a[href*='/delete/']",
    ],
    "projects": ["/admin/access_app/project/"],
    "project": ["/admin/access_app/project/", "#result_list tbody th a"],
    "keys": ["/admin/access_app/apikey/"],
    "audit": ["/admin/access_app/auditentry/"],
    "prices": ["/admin/traces_app/modelprice/"],
    "masking": ["/admin/traces_app/maskingrun/1/"],
    "jobs": ["/admin/traces_app/jobrun/"],
    "api": ["/api/v1/docs/"],
}
"""How to come to each page: addresses, and what is clicked then. The first six are taken in each language, colour and width."""


def main() -> None:
    with tempfile.TemporaryDirectory() as data, create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        probe.close()
        log = Path(data, "log")  # not a pipe, which a server fills that nobody reads
        server = subprocess.Popen(
            [sys.executable, "manage.py", "serve", "--demo", "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, "TRACESITE_DATA_DIR": data},
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )
        try:
            take(f"http://127.0.0.1:{port}", password_in(log, server))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()


def password_in(log: Path, server: subprocess.Popen[bytes]) -> str:
    """Wait until the server has printed its login, and return the password."""
    while server.poll() is None:
        if found := re.search(r"Login +admin, password (\S+)", log.read_text()):
            return found[1]
        time.sleep(0.2)
    raise SystemExit("The server did not start.")


def take(url: str, password: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, locale in LANGUAGES.items():
            page = browser.new_context(base_url=url, locale=locale, viewport=SIZE).new_page()
            log_in(page, password)
            shoot(page, IMAGES / f"home-{name}.png")
            page.goto("/admin/messages_app/session/")
            visit(page, page.url, f"open a:has-text('{SESSION}')")
            shoot(page, IMAGES / f"session-{name}.png")
            page.locator(".open-run").first.click()
            page.locator(".run-row-error").first.click()
            page.locator(".run-panel .run-value-error").wait_for()
            shoot(page, IMAGES / f"run-{name}.png")
            visit(page, *PAGES["compare"])
            shoot(page, IMAGES / f"compare-{name}.png")
            page.goto("/admin/traces_app/tool/statistics/?created=7d")
            shoot(page, IMAGES / f"tools-{name}.png")
            page.context.close()
        for name, locale in LANGUAGES.items():
            for colour in ("light", "dark"):
                for width, size in (("wide", WIDE), ("phone", PHONE)):
                    options = {"base_url": url, "locale": locale, "viewport": size, "color_scheme": colour}
                    with browser.new_context(**options) as context:
                        take_pages(context.new_page(), password, f"{name}-{colour}-{width}")
        browser.close()


def take_pages(page: Page, password: str, kind: str) -> None:
    log_in(page, password)
    for name, (address, *clicks) in [*PAGES.items()][: None if kind == "en-light-wide" else 6]:
        visit(page, address, *clicks)
        shoot(page, EVERY / f"{name}-{kind}.png")


def visit(page: Page, address: str, *clicks: str) -> None:
    """Open an address and click; "open " goes where a link leads, because lists show a row beside them."""
    page.goto(address)
    for click in clicks:
        found = page.locator(click.removeprefix("open ")).locator("visible=true").first
        if click.startswith("open "):
            page.goto(found.get_attribute("href") or "")
        else:
            found.click()


def log_in(page: Page, password: str) -> None:
    page.goto("/admin/login/?next=/admin/%3Fcreated=7d")
    page.fill("#id_username", "admin")
    page.fill("#id_password", password)
    page.locator("#login-form [type=submit]").click()


def shoot(page: Page, path: Path) -> None:
    # A page that follows a session is never idle.
    page.wait_for_load_state("load")
    page.wait_for_timeout(700)
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=path)


if __name__ == "__main__":
    main()
