"""Test that the site and a project of others have the same defaults."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sdk.tests.paths import ROOT

DIFFERENT = {"DATA_DIR", "AUDIT_LOGINS"}
"""The site has its own directory, and records its logins."""


@pytest.mark.system
def test_defaults_of_the_site_are_those_of_conf(tmp_path: Path) -> None:
    program = (
        "from access_app.conf import PREFIX, Conf, Setting\n"
        "from tracesite import settings as site\n"
        "for name, setting in vars(Conf).items():\n"
        f"    if isinstance(setting, Setting) and name not in {DIFFERENT}:\n"
        "        of_site = getattr(site, PREFIX + name, setting.default)\n"
        "        of_site = tuple(of_site) if isinstance(of_site, list) else of_site\n"
        "        assert of_site == setting.default, (name, of_site)\n"
        "        print(name)\n"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRACESITE_", "DATABASE_"))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=clean | {"DATABASE_URL": "postgresql://unused", "TRACESITE_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "MAX_BODY_BYTES" in done.stdout.split()
