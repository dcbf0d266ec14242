"""Tests from traces: an agent gets what a recorded run got, and fails where it takes another path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sdk.tests.secret import SECRET
from tracesite_sdk import Recorder
from tracesite_sdk.recorder.time_machine.recorded import Recorded, Unrecorded
from tracesite_sdk.recorder.time_machine.replaying import PathChanged, replaying
from tracesite_sdk.testing import RecorderForTests, recording

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
