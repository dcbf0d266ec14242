"""The oldest supported clients of OpenAI and Anthropic, recorded in a process of their own. `make sdks` installs them."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from sdk.tests.paths import ROOT
from sdk.tests.recorder.provider import ANSWER
from sdk.tests.recorder.scripted_agents import MODEL

from .test_sdks import AGENTS

pytestmark = pytest.mark.system

PYTHON = ROOT / ".sdks" / "oldest" / "bin" / "python"
TREE = ["message", "  step", "    get_weather", "    get_traffic", "  step", "    ask_expert", "  step", "  step"]


def test_oldest_clients_are_recorded_like_the_newest() -> None:
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is not there; `make sdks` installs it")
    done = subprocess.run(
        [PYTHON, "-W", "error::ResourceWarning", AGENTS / "oldest_clients.py"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'sdk'}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 26
    for one in found:
        lines = [line.replace(f" {MODEL}", "") for line in one["tree"]]
        assert (one["answer"], lines) == (ANSWER, TREE), one["name"]
