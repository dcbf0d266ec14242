"""Where Debian's Chromium is; tests of pages take the fixture `browser` and are skipped without it."""

from __future__ import annotations

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt install chromium")
