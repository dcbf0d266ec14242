"""Test that the log can be set up before any app, so that errors in declarations are what people see last."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sdk.tests.paths import ROOT

BROKEN = """
import sys
from tracesite_sdk import records

class Note(records.Record):
    note: str | None = None

sys.argv = ["manage.py", "check"]
from tracesite.__main__ import main
main()
"""
SET_UP = """
import sys
from django.conf import settings
from django.utils.log import configure_logging

configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
ours = {name for name in sys.modules if name.startswith(("access_app", "messages_app", "traces_app"))}
print(sorted(ours - {"access_app", "access_app.conf", "access_app.environment"}))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "DATABASE_URL": "postgresql://unused",
        "DJANGO_SETTINGS_MODULE": "tracesite.settings",
    }
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.system
def test_error_of_a_declaration_is_the_last_line_of_a_command() -> None:
    found = run(BROKEN)
    assert found.returncode != 0
    assert found.stderr.splitlines()[-1] == (
        "TypeError: Declare these fields of Note Searched[...] or NotSearched[...]: ['note']"
    )


@pytest.mark.system
def test_setting_up_the_log_imports_no_app_but_its_settings() -> None:
    found = run(SET_UP)
    assert (found.returncode, found.stdout) == (0, "[]\n"), found.stderr
