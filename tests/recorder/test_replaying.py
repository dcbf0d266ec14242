"""Test that an exported session answers a test of its agent."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from access_app.models import Project
from tracesite_sdk.recorder.time_machine.recorded import Recorded
from tracesite_sdk.testing import recording

from .conftest import send

TEST = """
from tracesite_sdk.testing import RecorderForTests

recorder = RecorderForTests()

@recorder.tool_call
def search(q):
    raise AssertionError("it runs")

def test_agent(replaying):
    with replaying("failure.json") as replay:
        with recorder.message(replay.prompts[0]):
            assert search("Oslo") == {"celsius": 4}

def test_other(replaying):
    with replaying("failure.json"):
        search("Bergen")
"""


@pytest.mark.system
@pytest.mark.django_db
def test_exported_session_answers_a_test_by_the_fixture(tmp_path: Path) -> None:
    with recording() as recorder, recorder.session("weather-1"), recorder.message("How is Oslo?"):
        with recorder.step("Look.", model="m1"), recorder.tool_call("search", {"q": "Oslo"}) as call:
            call.result = {"celsius": 4}
        with recorder.tool_call("fail", {}) as call:
            call.error = "ValueError: gone"
    project = Project.objects.create(slug="owner")
    send(project, recorder)
    written = StringIO()
    call_command("export_cassette", "weather-1", stdout=written)
    path = tmp_path / "failure.json"
    path.write_text(written.getvalue())
    found = Recorded.load(path)
    assert found.prompts == ["How is Oslo?"]
    assert [(reply.text, reply.model, [one["name"] for one in reply.calls]) for reply in found.replies] == [
        ("Look.", "m1", ["search", "fail"])
    ]
    assert [(call.tool, call.args, call.error) for call in found.calls] == [
        ("search", {"q": "Oslo"}, None),
        ("fail", {}, "ValueError: gone"),
    ]
    with pytest.raises(CommandError, match="There is no session 'nothing'"):
        call_command("export_cassette", "nothing")
    # Without the second call, so that one of the tests passes.
    Recorded(calls=found.calls[:1], replies=[], prompts=found.prompts).save(path)
    (tmp_path / "test_agent.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tracesite_sdk.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, timeout=200)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert '+ search({"q": "Bergen"})' in done.stdout
