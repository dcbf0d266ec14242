"""A client that openapi-python-client generates from the OpenAPI document of a running server writes a trace and reads it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.faults.site import running
from sdk.tests.paths import ROOT

pytestmark = pytest.mark.system

PROGRAM = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "api.md").read_text(), re.M | re.S)
"""The example of the documentation."""
OTHER_CALLS = """
from tracesite_client.api.sessions import get_session, list_sessions
from tracesite_client.models import ErrorAnswer, MessagePart, SessionStatus

assert sent.sessions[0].created and sent.refused == []
assert get_session.sync("weather-9", client=client).status is SessionStatus.COMPLETED
assert isinstance(get_session.sync("none", client=client), ErrorAnswer)
assert [found.external_id for found in list_sessions.sync(client=client, status=SessionStatus.COMPLETED).results] == ["weather-9"]
whole = list_session_messages.sync_detailed("weather-9", client=client, expand=[part for part in MessagePart if part not in ("none", "inputs")])
assert whole.parsed == page
"""


def run(*command: str | Path) -> str:
    # The generator formats with ruff, which is beside Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stdout[:5_000] + done.stderr[-5_000:]
    return done.stdout


def test_generated_python_client_writes_and_reads_a_trace(tmp_path: Path) -> None:
    with running(workers=1) as site:
        url = f"http://127.0.0.1:{site.server.port}"
        generator = [sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning"]
        run(
            *generator,
            "--url",
            f"{url}/api/v1/schema/",
            "--meta",
            "none",
            "--output-path",
            tmp_path / "tracesite_client",
        )
        program = tmp_path / "program.py"
        program.write_text((PROGRAM[0] + OTHER_CALLS).replace("http://127.0.0.1:8000", url).replace("ts_...", site.key))
        printed = run(sys.executable, program)
    assert printed.splitlines() == ["user How is the weather in Oslo? []", "assistant 7 °C. ['7 °C']"]
