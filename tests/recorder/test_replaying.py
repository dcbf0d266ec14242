"""Tests from traces: an agent gets what a recorded run got, and fails where it takes another path."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from django.core.management import CommandError, call_command

from access_app.models import Project
from sdk.tests.recorder.scripted_agents import QUESTION, Chat, Messages, plan
from sdk.tests.secret import SECRET
from tracesite_sdk import Recorder
from tracesite_sdk.recorder.time_machine.recorded import Recorded, Unrecorded
from tracesite_sdk.recorder.time_machine.replaying import PathChanged, replaying
from tracesite_sdk.testing import RecorderForTests, recording, tree

from .conftest import send
from .test_model_clients import ANSWER, CASES, client_of, run, url
from .test_model_clients import recorded as observed

__all__ = ["url"]

Agent = Callable[..., str]


def agent_of(recorder: Recorder, ran: list[str]) -> Agent:
    """Return an agent whose model and tools count that they run."""

    @recorder.step(model="m1")
    def ask(question: str) -> str:
        ran.append("model")
        return f"Look up {question}."

    @recorder.tool_call
    def search(q: str, token: str = SECRET) -> dict[str, Any]:
        ran.append("search")
        return {"found": q.upper(), "size": len(q)}

    @recorder.tool_call
    def fail(q: str) -> None:
        ran.append("fail")
        raise ValueError(f"no {q}")

    def run(question: str, cities: tuple[str, ...] = ("Oslo", "Bergen"), asks: int = 2) -> str:
        with recorder.session("weather-1"), recorder.message(question) as message:
            thoughts = [ask(question) for _ in range(asks)]
            found = [search(city)["found"] for city in cities]
            try:
                fail("snow")
            except (ValueError, Unrecorded) as error:
                found.append(str(error))
            message.content = f"{thoughts[0]} {found}"
        return message.content

    return run


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[RecorderForTests, Agent, list[str], Path]:
    ran: list[str] = []
    with recording() as recorder:
        agent = agent_of(recorder, ran)
        agent("the weather")
        Recorded.of(recorder.events).save(tmp_path / "failure.json")
    ran.clear()
    again = RecorderForTests()
    return again, agent_of(again, ran), ran, tmp_path / "failure.json"


Run = tuple[RecorderForTests, Agent, list[str], Path]


def test_agent_gets_recorded_replies_and_results(recorded: Run) -> None:
    recorder, agent, ran, path = recorded
    assert SECRET not in path.read_text()
    with replaying(path) as replay:
        assert agent(replay.prompts[0]) == "Look up the weather. ['OSLO', 'BERGEN', 'no snow']"
    assert ran == []
    # The new run is recorded, too.
    assert [event["data"]["result"] for event in recorder.events if event["type"] == "tool_call_complete"] == [
        {"found": "OSLO", "size": 4},
        {"found": "BERGEN", "size": 6},
    ]
    with replaying(path, as_reply=lambda reply: str(reply.model)) as replay:
        assert agent("the weather").startswith("m1 ")
    recorder.close()


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"cities": ("Oslo",)}, ['  search({"q": "Oslo"', '- search({"q": "Bergen"']),
        ({"asks": 1}, ["  (the model replies)", "- (the model replies)"]),
    ],
)
def test_other_path_fails_with_its_difference(recorded: Run, options: Any, difference: list[str]) -> None:
    recorder, agent, ran, path = recorded
    with pytest.raises(PathChanged) as raised, replaying(path):
        agent("the weather", **options)
    lines = str(raised.value).split("\n")
    assert lines[0] == "The agent took another path than the recorded run:"
    assert all(any(line.startswith(one) for line in lines) for one in difference), lines
    assert ran == []
    recorder.close()


def test_unrecorded_call_fails_although_agent_catches_it(recorded: Run) -> None:
    recorder, agent, _ran, path = recorded
    with pytest.raises(PathChanged, match=r'\+ search\({"q": "Paris"'), replaying(path):
        agent("the weather", cities=("Oslo", "Paris"))
    with pytest.raises(PathChanged), replaying(path):
        agent("the weather", asks=3)
    with pytest.raises(ZeroDivisionError), replaying(path):
        raise ZeroDivisionError
    (path.parent / "other").write_text("no json")
    with pytest.raises(ValueError, match="expected events, one a line, or a file of Recorded.save"):
        Recorded.load(path.parent / "other")
    recorder.close()


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


MODES = [case for case in CASES if case[1] in ("create", "create streamed", "stream")]


@pytest.mark.parametrize(("api", "mode", "is_async"), MODES)
def test_clients_of_models_are_answered_from_the_recording(api: Any, mode: str, is_async: bool, url: str) -> None:
    with recording() as recorder:
        client = observed(recorder, client_of(api, url, is_async=is_async))
        with recorder.message(QUESTION):
            assert run(client, plan(api(client, mode), recorder.tool_call)) == ANSWER
    recorded = Recorded.of(recorder.events)
    with recording() as again, replaying(recorded) as replay:
        client = observed(again, client_of(api, f"{replay.url}/v1", is_async=is_async))
        with again.message(QUESTION):
            assert run(client, plan(api(client, mode), again.tool_call)) == ANSWER
    # The expert is not asked, because the tool that asks it is answered, too.
    *before, expert, last = tree(recorder.events)
    assert tree(again.events) == [*before, last], tree(recorder.events)


def test_client_that_asks_more_often_gets_an_error() -> None:
    with pytest.raises(PathChanged) as raised, replaying(Recorded(calls=[], replies=[])) as replay:
        for api, error in ((Chat, openai.BadRequestError), (Messages, anthropic.BadRequestError)):
            with pytest.raises(error, match="The recorded run asked the model 0 times, not more."):
                run(client := client_of(api, f"{replay.url}/v1"), api(client, "create").ask("Hello", []))
        with pytest.raises(openai.NotFoundError, match="are answered from the recorded run, not /models"):
            client_of(Chat, f"{replay.url}/v1").models.list()
        address = replay.url
    assert str(raised.value).endswith("+ (the model replies)")
    with pytest.raises(openai.APIConnectionError):
        run(client := client_of(Chat, address, max_retries=0), Chat(client, "create").ask("Hello", []))
