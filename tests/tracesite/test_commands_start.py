"""Commands start without what only the site needs: the checks of all views, the pages of the admin, and what these import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from sdk.tests.paths import ROOT
from tests.test_documentation import OURS

OURS_BY_APP = {name: str(app) for name, app in get_commands().items() if app in OURS}


@pytest.mark.parametrize("name", OURS_BY_APP)
def test_command_does_not_check_the_whole_site(name: str) -> None:
    command = load_command_class(OURS_BY_APP[name], name)
    assert command.requires_system_checks == [], "Make it a TracesiteCommand."


@pytest.mark.system
def test_command_imports_no_page_and_no_numpy() -> None:
    script = (
        "import sys\nimport django\nfrom django.core.management import load_command_class\n"
        "django.setup()\nload_command_class('traces_app', 'purge')\n"
        "print([name for name in sys.modules if name == 'numpy' or '.admin.' in name and 'django' not in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["[]"]), done.stderr


@pytest.mark.system
def test_command_on_data_makes_no_database(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "manage.py", *arguments]
        env = environment | {"TRACESITE_DATA_DIR": str(empty)}
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)

    refused = run("import-transcripts", "README.md", "--project", "demo")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"There is no database in {empty} yet. To make one: manage.py serve, or")
    assert "TRACESITE_DATA_DIR" in refused.stderr and "DATABASE_URL" in refused.stderr
    explained = run("import_transcripts", "--help")
    assert (explained.returncode, "import into" in explained.stdout) == (0, True), explained.stderr
    assert not (empty / "postgres").exists()
