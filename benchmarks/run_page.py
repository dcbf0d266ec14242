"""Measure the page of a run in Chromium: python -m benchmarks.run_page --steps 500 --calls 100

In a separate database, with `manage.py serve`: a run of STEPS steps of CALLS calls each. Measured from the click on: the first
byte of the page, its first paint, the first rows of the path, all rows, and how long each interaction takes until it is painted.
The median and the longest of RUNS loads, each in a new context (without a cache).

Then, in a window as of a laptop and in one as of a phone: where the first row begins, how many whole rows there are, whether the page
scrolls sideways, how long the server took for the page, and the longest task of the browser while the whole list is scrolled, in the
best of three times, because other programs interrupt it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
from datetime import UTC, datetime, timedelta
from uuid import UUID

from playwright.sync_api import Browser, Page, sync_playwright

from . import server

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOOLS = 40
FAILS = 997
"""Each so many calls fails."""

LOADED = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  while (!document.querySelector('.run-row')) await frame();
  const rows = performance.now();
  while (!document.querySelector('[data-part=loading]').hidden) await frame();
  const paints = performance.getEntriesByType('paint');
  return {
    'first byte': performance.getEntriesByType('navigation')[0].responseStart,
    'first paint': paints[0].startTime,
    'first rows': rows,
    'all rows': performance.now(),
  };
}"""
PAINTED = """async (act) => {
  const begun = performance.now();
  act();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begun;
}"""
CLICK = "() => document.querySelector('%s').click()"
KEY = "() => document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"
TYPE = (
    "() => { const find = document.querySelector('[data-part=find]'); find.value = '%s';"
    " find.dispatchEvent(new Event('input')); }"
)
ACTIONS = {
    "collapse all": CLICK % "[data-part=fold-all]",
    "expand all": CLICK % "[data-part=unfold-all]",
    "only failures": CLICK % "[data-part=failures]",
    "all again": CLICK % "[data-part=failures]",
    "next failure": KEY % "n",
    "next row": KEY % "j",
    "bottleneck": KEY % "b",
    "scroll to the middle": "() => { const list = document.querySelector('.run-list'); list.scrollTop = list.scrollHeight / 2; }",
    "find a name": TYPE % "tool_7",
    "end of finding": TYPE % "",
    "time": CLICK % "[data-view-button=time]",
    "zoom in": CLICK % "[data-part=zoom-in]",
    "scroll in time": "() => { document.querySelector('.run-list').scrollTop += 5000; }",
    "steps": CLICK % "[data-view-button=steps]",
}
WINDOWS = ((1440, 900), (390, 844))
FRAMES = 600
"""In which the whole list is scrolled."""
LAYOUT = """() => {
  const list = document.querySelector('.run-list').getBoundingClientRect();
  const boxes = [...document.querySelectorAll('.run-row')].map((row) => row.getBoundingClientRect());
  const navigation = performance.getEntriesByType('navigation')[0];
  return {
    first: boxes[0].top,
    rows: boxes.filter((box) => box.top >= list.top && box.bottom <= Math.min(list.bottom, innerHeight)).length,
    isWide: [document.documentElement, ...document.querySelectorAll('#container, .split, .path, .run-list')].some(
      (part) => part.scrollWidth > part.clientWidth + 1,
    ),
    server: navigation.responseStart - navigation.requestStart,
  };
}"""
SCROLLED = """async (frames) => {
  const list = document.querySelector('.run-list');
  const tasks = [];
  const observer = new PerformanceObserver((seen) => tasks.push(...seen.getEntries()));
  observer.observe({entryTypes: ['longtask']});
  const step = Math.max(list.clientHeight, list.scrollHeight / frames);
  for (let top = 0; top < list.scrollHeight; top += step) {
    list.scrollTop = top;
    await new Promise((done) => requestAnimationFrame(done));
  }
  await new Promise((done) => setTimeout(done, 500));
  tasks.push(...observer.takeRecords());
  return Math.max(0, ...tasks.map((task) => task.duration));
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--calls", type=int, default=100, help="Of each step (default: %(default)s).")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    with server.database():
        message = fill(options.steps, options.calls)
        cookie = log_in()
        with server.serving(1) as site, sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            url = f"http://127.0.0.1:{site.port}"
            measure(browser, url, cookie, message, options.runs)
            for width, height in WINDOWS:
                look(browser, url, cookie, message, width, height)
            browser.close()
    print("load of the machine, 1 minute:", os.getloadavg()[0])


def fill(steps: int, calls: int) -> UUID:
    """Store the run; return the id of its message."""
    from access_app.db import primary
    from access_app.models import Project
    from traces_app.ingest.pipeline import ingest
    from tracesite_sdk import records

    def call(number: int) -> records.ToolCall:
        failed = number % FAILS == 0
        result = records.ToolResult(
            success=not failed,
            output="" if failed else f"result {number} " * 20,
            error=f"timeout {number}" if failed else "",
        )
        return records.ToolCall(
            name=f"tool_{number % TOOLS}",
            args={"path": f"/src/{number}.py"},
            started_at=BEGIN + timedelta(milliseconds=10 * number),
            duration=5 + number % 7,
            result=result,
        )

    run = [
        records.AgentStep(
            iteration=step,
            thought=f"thought {step}",
            timestamp=BEGIN + timedelta(milliseconds=10 * calls * step),
            tool_calls=[call(number) for number in range(calls * step + 1, calls * (step + 1) + 1)],
        )
        for step in range(steps)
    ]
    message = records.Message(role="assistant", content="Done.", created_at=BEGIN, is_completed=True, agent_steps=run)
    project = Project.objects.create(slug="benchmark")
    outcome = ingest(primary, project.pk, [records.Session(external_id="long", messages=[message])])[0]
    found = outcome.messages[0].id
    assert found is not None
    return found


def log_in() -> tuple[str, str]:
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client()
    client.force_login(User.objects.create_superuser("benchmark"))
    return settings.SESSION_COOKIE_NAME, client.cookies[settings.SESSION_COOKIE_NAME].value


def measure(browser: Browser, url: str, cookie: tuple[str, str], message: UUID, runs: int) -> None:
    loads: list[dict[str, float]] = []
    actions: dict[str, list[float]] = {name: [] for name in ACTIONS}
    payloads: list[float] = []
    for number in range(runs + 1):
        context = browser.new_context(base_url=url, viewport={"width": 1440, "height": 900})
        context.add_cookies([{"name": cookie[0], "value": cookie[1], "url": url}])
        page = context.new_page()
        page.goto(f"/admin/messages_app/message/{message}/change/", wait_until="commit")
        load = page.evaluate(LOADED)
        if number:  # the first load imports and compiles
            loads.append(load)
            for name, act in ACTIONS.items():
                actions[name].append(page.evaluate(f"({PAINTED})({act})"))
            payloads.append(payload(page))
        context.close()
    for name in loads[0]:
        show(name, [load[name] for load in loads])
    for name, times in actions.items():
        show(name, times)
    show("payload of a row", payloads)


def look(browser: Browser, url: str, cookie: tuple[str, str], message: UUID, width: int, height: int) -> None:
    context = browser.new_context(base_url=url, viewport={"width": width, "height": height})
    context.add_cookies([{"name": cookie[0], "value": cookie[1], "url": url}])
    page = context.new_page()
    page.goto(f"/admin/messages_app/message/{message}/change/", wait_until="commit")
    page.evaluate(LOADED)
    layout = page.evaluate(LAYOUT)
    longest = min(page.evaluate(SCROLLED, FRAMES) for _time in range(3))
    context.close()
    sideways = "scrolls" if layout["isWide"] else "does not scroll"
    print(
        f"{width}x{height}: first row at y {layout['first']:.0f}, {layout['rows']} whole rows, {sideways} sideways,"
        f" server {layout['server']:.0f} ms, longest task of scrolling"
        f" {f'{longest:.0f} ms' if longest else 'under 50 ms'}",
        flush=True,
    )


def payload(page: Page) -> float:
    took: float = page.evaluate(
        """async () => {
          const panel = document.querySelector('.run-panel');
          const rows = document.querySelectorAll('.run-row');
          const begun = performance.now();
          const changed = new Promise((done) => new MutationObserver(done).observe(panel, {childList: true}));
          rows[rows.length - 5].click();
          await changed;
          return performance.now() - begun;
        }"""
    )
    return took


def show(name: str, times: list[float]) -> None:
    print(f"{name:24} median {statistics.median(times):7.0f} ms   longest {max(times):7.0f} ms", flush=True)


if __name__ == "__main__":
    main()
