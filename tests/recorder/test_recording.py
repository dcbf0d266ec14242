"""Test what a server stores of a recorder: texts that were compressed, and the first example of the docs."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from access_app.keys import create_key
from access_app.models import Project, Scope
from messages_app.models import Message, Session
from sdk.tests.paths import ROOT
from sdk.tests.recorder.isolation import alone
from traces_app.models import AgentStep, Context, ToolCall
from tracesite_sdk import Recorder
from tracesite_sdk.recorder.delivery.http_sink import HttpSink

__all__ = ["alone"]


@pytest.mark.django_db(transaction=True)
def test_compressed_events_are_read_unchanged(
    live_server: Any, client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project = Project.objects.create(slug="owner")
    _key, token = create_key(project, "agent", [Scope.READ, Scope.WRITE])
    text = "All is well in Shanghai, 一切都好. " * 3000
    sent: list[tuple[str | None, int]] = []

    class Recording(HttpSink):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            exchange = self._server._exchange

            def counted(
                method: str, path: str, body: bytes | None, headers: dict[str, str], within: float | None
            ) -> Any:
                if method == "POST":
                    sent.append((headers.get("Content-Encoding"), len(body or b"")))
                return exchange(method, path, body, headers, within)

            monkeypatch.setattr(self._server, "_exchange", counted)

    recorder = Recorder(sink=Recording(live_server.url, token, spool=tmp_path / "spool"), strict=True)
    with recorder.session("s"), recorder.message(external_id="m") as message:
        with recorder.tool_call("tool", {"text": text}) as call:
            call.result = {"text": text}
        message.content = text
    assert recorder.close(60) == 0
    assert {encoding for encoding, size in sent if size > 1500} == {"gzip"}
    assert sum(size for _encoding, size in sent) < 3 * len(text.encode()) // 20
    head = {"HTTP_AUTHORIZATION": f"Bearer {token}"}
    stored = ToolCall.objects.get()
    read = client.get(f"/api/v1/messages/{stored.message_id}/", **head).json()
    (found,) = [found for step in read["agent_steps"] for found in step["tool_calls"]]
    assert (read["content"], found["args"]["text"], found["result"]["data"]["text"]) == (text, text, text)


# --- The first example of the docs --------------------------------------------------------------------------------


def first_example(path: str) -> str:
    """Return the first Python block of a document, without its indentation."""
    found = re.search(r"(?m)^    from tracesite_sdk import Recorder\n(?:(?:    .*)?\n)*", (ROOT / path).read_text())
    assert found is not None
    return textwrap.dedent(found[0]).strip()


@pytest.mark.system
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["README.md", "docs/recorder.md"])
def test_first_example_is_a_whole_run(live_server: Any, path: str) -> None:
    _key, token = create_key(Project.objects.create(slug="owner"), "agent", [Scope.WRITE])
    script = first_example(path)
    for placeholder, value in (("http://127.0.0.1:8000", live_server.url), ("ts_...", token)):
        assert script.count(placeholder) == 1
        script = script.replace(placeholder, value)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True, timeout=200
    )
    assert (done.stdout, done.stderr) == ("", "")
    session = Session.objects.get()
    assert (session.external_id, session.title, session.end_user) == ("weather-1", "Weather", "ada")
    question, answer = Message.objects.order_by("role").reverse()
    assert (question.content, answer.content) == ("What is the weather in Shanghai?", "It is 31 degrees.")
    (step,) = AgentStep.objects.all()
    assert (step.model, step.thought, step.usage) == (
        "gpt-5", "Ask the weather service.", {"input_tokens": 81, "output_tokens": 9},
    )  # fmt: skip
    (call,) = ToolCall.objects.select_related("tool")
    assert (call.tool.name, call.args, call.status, call.step_id) == (
        "get_weather", {"city": "Shanghai"}, "success", step.pk,
    )  # fmt: skip
    assert Context.objects.filter(kind="conversation").count() == 1


def test_readme_and_manual_begin_with_the_same_example() -> None:
    assert first_example("README.md") == first_example("docs/recorder.md") == first_example("sdk/README.md")
    assert len(first_example("README.md").splitlines()) <= 22
