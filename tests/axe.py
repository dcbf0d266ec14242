"""Find faults of accessibility on pages, with axe-core and by their width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

AXE = Path(__file__).parent.parent / ".sdks" / "node" / "node_modules" / "axe-core" / "axe.min.js"

needs_axe = pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: `make sdks` installs it where there is npm")

_RUN = """async () => {
    const found = await axe.run({resultTypes: ["violations"]});
    return found.violations.flatMap(rule => rule.nodes.map(node => [rule.impact, rule.id, node.target.flat().join(" ")]));
}"""


def faults_of(page: Page) -> list[str]:
    """Return the serious and critical violations, and whether the page is wider than the window.

    The context of the page needs AXE as an init script, because the Content-Security-Policy blocks a script element.
    """
    violations: list[Any] = page.evaluate(_RUN)
    faults = [f"{rule}: {target}" for impact, rule, target in violations if impact in ("serious", "critical")]
    return faults + faults_of_width(page)


def faults_of_width(page: Page) -> list[str]:
    """Return the fault of a page that is wider than the window, if it is."""
    fits = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return [] if fits else ["wider than the window"]
