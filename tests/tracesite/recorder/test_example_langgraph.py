"""Test the example of the docs against a server, run as a reader would run it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from access_app.keys import create_key
from access_app.models import Project, Scope
from messages_app.models import Message, Session
from tests.paths import ROOT
from traces_app.models import ToolCall
from tracesite.recorder import example_langgraph


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(example_langgraph, "SECONDS", 0.0)
    monkeypatch.setenv("TRACESITE_SPOOL", str(tmp_path))
    monkeypatch.delenv("TRACESITE_KEY", raising=False)


@pytest.mark.django_db(transaction=True)
def test_example_arrives_at_a_server(live_server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    project = Project.objects.create(slug="demo")
    _, key = create_key(project, name="agent", scopes=list(Scope))
    assert example_langgraph.main(["--url", live_server.url, "--key", key]) == 0
    session = Session.objects.get(project=project)
    answer = Message.objects.get(session=session, role="assistant")
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.splitlines() == [
        example_langgraph.QUESTION,
        answer.content,
        "",
        f"Recorded as session {session.external_id}: "
        f"{live_server.url}/admin/messages_app/session/?q={session.external_id}",
    ]
    assert (session.status, ToolCall.objects.filter(message_id=answer.pk).count()) == ("completed", 6)


def test_missing_key_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        example_langgraph.main([])
    assert "`make run` shows one" in capsys.readouterr().err


def test_example_is_named_in_the_docs() -> None:
    assert "python -m tracesite.recorder.example_langgraph --url" in (ROOT / "docs" / "recorder.md").read_text()
