"""Test that the recorder never raises into the agent."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tracesite_sdk import MemorySink, Recorder
from tracesite_sdk.recorder.guard import Guard, failure_of, instead_of_failing
from tracesite_sdk.testing import RecorderForTests, recording


class Leaky(logging.Handler):
    """A log handler of the host that raises."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("no log today")


def test_failure_is_logged_once_without_content(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    for _turn in range(3):
        with guard.around():
            raise ValueError("hunter2")
    with guard.around():
        raise KeyError("hunter2")
    assert guard.failures == 4
    lines = [record.getMessage() for record in caplog.records]
    assert [message.split(" at ")[0] for message in lines] == [
        "The recorder failed: ValueError",
        "The recorder failed: KeyError",
    ]
    assert "hunter2" not in "".join(lines)


def test_failing_log_handler_changes_nothing() -> None:
    logger = logging.getLogger("tracesite_sdk")
    handler = Leaky()
    logger.addHandler(handler)
    try:
        guard = Guard()
        with guard.around():
            raise ValueError
        assert guard.failures == 1
    finally:
        logger.removeHandler(handler)


def test_strict_raises() -> None:
    with pytest.raises(ValueError, match="seen"), Guard(strict=True).around():
        raise ValueError("seen")


def test_exit_requests_are_not_caught() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        instead_of_failing(None, interrupted)
    with pytest.raises(KeyboardInterrupt):
        failure_of(interrupted)
    with pytest.raises(KeyboardInterrupt), Guard().around():
        interrupted()


def broken(monkeypatch: pytest.MonkeyPatch, *, strict: bool) -> RecorderForTests:
    """A recorder in which every part fails."""
    recorder = RecorderForTests(strict=strict)

    def fail(*_arguments: Any, **_more: Any) -> Any:
        raise ArithmeticError("broken")

    monkeypatch.setattr(recorder._pipeline, "put", fail)
    return recorder


def test_broken_recorder_leaves_the_agent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = broken(monkeypatch, strict=False)

    @recorder.tool_call
    def tool(value: int) -> int:
        return value + 1

    with recorder.session("s"), recorder.message("a") as message, recorder.step() as step:
        with recorder.tool_call("find") as call:
            call.update(reflection="x")
        step.update("y")
        assert tool(1) == 2
        recorder.tool_call("z").start(within=message).end("failed")
    assert recorder.current() is None
    assert (recorder.events, recorder.close()) == ([], 0)
    assert recorder.report().failed > 0


def test_broken_strict_recorder_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = broken(monkeypatch, strict=True)
    with pytest.raises(ArithmeticError), recorder.message("a"):
        pass


def test_clock_and_ids_of_the_host_may_fail() -> None:
    def fail() -> Any:
        raise OSError("no time")

    sink = MemorySink()
    with_clock = Recorder(sink=sink, clock=fail)
    with with_clock.message("a"), with_clock.tool_call("find"):
        pass
    with_clock.close()
    assert (sink.events, with_clock.report().failed > 0) == ([], True)


class Exits:
    """An object of the host whose repr raises SystemExit."""

    def __repr__(self) -> str:
        raise SystemExit(3)

    __str__ = __repr__


class ExitingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(4)


def test_repr_that_exits_does_not_end_the_agent() -> None:
    bad: Any = Exits()
    with recording() as recorder, recorder.session(bad, metadata={"x": bad}), recorder.message(bad, metadata=bad):
        with recorder.tool_call("tool", {"x": bad}) as call:
            call.result = [bad, {bad: bad}]
        with pytest.raises(ExitingError), recorder.tool_call("fails"):
            raise ExitingError
    begun = [event["data"] for event in recorder.events if event["type"] == "tool_call_start"]
    assert begun[0]["args"] == {"x": "<Exits>"}
    ends = [event["data"] for event in recorder.events if event["id"].endswith(".e") and "uuid" in event["data"]]
    assert ends[0]["result"] == ["<Exits>", {"<Exits>": "<Exits>"}]
    assert ends[1]["error"] == "ExitingError: <ExitingError>"


def test_agent_that_exits_inside_a_call_exits() -> None:
    with recording() as recorder, pytest.raises(SystemExit), recorder.message(), recorder.tool_call("tool"):
        raise SystemExit(5)
    assert [event["data"]["error"] for event in recorder.events if event["id"].endswith(".e")] == ["SystemExit: 5"] * 2
