"""Take the pictures of README and docs from the sample traces: `make screenshots`.

Needs Debian's packages chromium, fonts-noto-cjk and fonts-noto-color-emoji.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from socket import create_server

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
LANGUAGES = {"en": "en", "zh": "zh-CN"}
SESSION = "Checkout has been slow since 09:40"
SIZE = {"width": 1280, "height": 800}


def main() -> None:
    with tempfile.TemporaryDirectory() as data, create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        probe.close()
        server = subprocess.Popen(
            [sys.executable, "manage.py", "serve", "--demo", "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, "TRACESITE_DATA_DIR": data},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            take(f"http://127.0.0.1:{port}", password_of(server))
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate()


def password_of(server: subprocess.Popen[str]) -> str:
    """Wait until the server has printed its login, and return the password."""
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"Login +admin, password (\S+)", line):
            return found[1]
    raise SystemExit("The server did not start.")


def take(url: str, password: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, locale in LANGUAGES.items():
            page = browser.new_context(base_url=url, locale=locale, viewport=SIZE).new_page()
            page.goto("/admin/login/?next=/admin/%3Fcreated=7d")
            page.fill("#id_username", "admin")
            page.fill("#id_password", password)
            page.locator("#login-form [type=submit]").click()
            shoot(page, f"home-{name}")
            page.goto("/admin/messages_app/session/")
            page.get_by_role("link", name=SESSION).click()
            shoot(page, f"session-{name}")
            page.locator(".open-run").first.click()
            page.locator(".run-row-error").first.click()
            page.locator(".run-panel .run-value-error").wait_for()
            shoot(page, f"run-{name}")
            page.goto("/admin/traces_app/tool/statistics/?created=7d")
            shoot(page, f"tools-{name}")
        browser.close()


def shoot(page: Page, name: str) -> None:
    page.wait_for_load_state("networkidle")
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
