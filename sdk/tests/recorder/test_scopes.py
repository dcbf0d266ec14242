"""Test sessions, messages, steps and calls: how they begin, end and find their enclosing scope."""

from __future__ import annotations

import asyncio
from collections import UserDict, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from tracesite_sdk import MemorySink, Recorder, records, trace_tool
from tracesite_sdk.testing import RecorderForTests, recording, tree


def data_of(recorder: RecorderForTests, type_: str) -> list[dict[str, Any]]:
    return [event["data"] for event in recorder.events if event["type"] == type_]


def test_session_knows_its_start_and_end() -> None:
    with recording() as recorder:
        before = datetime.now(UTC)
        session = recorder.session("weather-1")
        assert (session.started_at, session.ended_at) == (None, None)
        with session:
            assert session.started_at is not None
            assert session.ended_at is None
        assert session.ended_at is not None
        assert before <= session.started_at <= session.ended_at <= datetime.now(UTC)


def test_run_becomes_these_events() -> None:
    with (
        recording() as recorder,
        recorder.session("weather-1", title="Weather", tags=["demo"], metadata={"team": 7}),
        recorder.message("What is the weather?", external_id="m1", request_id="r1") as message,
    ):
        with recorder.step(model="gpt-5", agent="planner", iteration=1) as step:
            step.thought = "Ask the weather service."
            step.usage = {"input_tokens": 12}
            with recorder.tool_call("get_weather", {"city": "Shanghai"}, call_id="call_1") as call:
                call.result = {"celsius": 31}
                call.reflection = "Hot."
        message.content = "31 degrees."
        message.references.append({"id": "doc-1"})
        message.usage = {"input_tokens": 12, "output_tokens": 3}
        message.metadata["cost"] = 0.1

    def event(second: int, id_: str, type_: str, data: dict[str, Any]) -> dict[str, Any]:
        return {
            "session_id": "weather-1",
            "message_id": "m1",
            "id": id_,
            "type": type_,
            "number": 1767225600_000000000 + second * 1_000_000_000,
            "timestamp": f"2026-01-01T00:00:0{second}.000000Z",
            "data": data,
        }

    assert recorder.events == [
        event(
            0,
            "m1.1.s",
            "workflow_execute_start",
            {
                "request_id": "r1",
                "attempt": "1",
                "prompt": "What is the weather?",
                "session": {"title": "Weather", "tags": ["demo"], "metadata": {"team": 7}},
            },
        ),
        event(1, "2.s", "llm_request_start", {"step": "2", "model": "gpt-5", "agent_name": "planner", "iteration": 1}),
        event(
            2,
            "3.s",
            "tool_call_start",
            {"uuid": "3", "name": "get_weather", "call_id": "call_1", "step": "2", "args": {"city": "Shanghai"}},
        ),
        event(
            3,
            "3.e",
            "tool_call_complete",
            {
                "uuid": "3",
                "name": "get_weather",
                "duration": 1000.0,
                "call_id": "call_1",
                "result": {"celsius": 31},
                "reflection": "Hot.",
            },
        ),
        event(
            4,
            "2.e",
            "llm_request_complete",
            {
                "step": "2",
                "model": "gpt-5",
                "agent_name": "planner",
                "iteration": 1,
                "duration": 3000.0,
                "thought": "Ask the weather service.",
                "usage": {"input_tokens": 12},
            },
        ),
        event(
            5,
            "m1.1.e",
            "workflow_execute_complete",
            {
                "duration": 5000.0,
                "result": "31 degrees.",
                "references": [{"id": "doc-1"}],
                "usage": {"input_tokens": 12, "output_tokens": 3},
                "metadata": {"cost": 0.1},
            },
        ),
    ]


def test_current_scope_is_the_parent_and_missing_ones_are_made() -> None:
    with recording() as recorder:
        with recorder.tool_call("alone"), recorder.tool_call("inside"):
            pass
        with recorder.step(model="gpt-5"):
            pass
        with recorder.session("s"), recorder.message("a"), recorder.step() as step:
            with recorder.tool_call("of the step") as call:
                assert (call.step, call.call, call.message, call.parent) == (step, call, step.message, None)
                assert recorder.current() is call
            assert recorder.current() is step
        assert recorder.current() is None
    assert tree(recorder.events) == [
        "message",
        "  alone",
        "    inside",
        "message",
        "  step gpt-5",
        "message",
        "  step",
        "    of the step",
    ]
    # Calls outside of a message share the session of the process.
    assert len({event["session_id"] for event in recorder.events}) == 2


def test_failure_is_recorded_and_its_exception_unchanged() -> None:
    failure = ValueError("no such city")
    with recording() as recorder:
        with pytest.raises(ValueError, match="no such city") as caught, recorder.message(), recorder.tool_call("find"):
            raise failure
        with recorder.message() as message:
            with recorder.tool_call("find") as call:
                call.error = "not found"
            message.start().end("over")
    assert caught.value is failure
    assert [data["error"] for data in data_of(recorder, "tool_call_error")] == ["ValueError: no such city", "not found"]
    assert [data["error"] for data in data_of(recorder, "workflow_execute_complete")] == [
        "ValueError: no such city",
        "over",
    ]


async def open_in_async_with(recorder: Recorder) -> None:
    async with recorder.session("s"), recorder.message("a"), recorder.step(), recorder.tool_call("find"):
        await asyncio.sleep(0)


def test_async_with_records_the_same() -> None:
    with recording() as recorder:
        asyncio.run(open_in_async_with(recorder))
    assert tree(recorder.events) == ["message", "  step", "    find"]


def test_start_within_names_the_parent() -> None:
    with recording() as recorder:
        message = recorder.message("a").start()
        outer = recorder.tool_call("outer").start(within=message)
        with recorder.tool_call("elsewhere"):
            inner = recorder.tool_call("inner").start(within=outer)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: recorder.tool_call("in a thread").start(within=inner).end()).result()
        inner.end()
        outer.end()
        outer.end("a second time does nothing")
        message.end()
    assert tree(recorder.events) == ["message", "  outer", "    inner", "      in a thread", "message", "  elsewhere"]
    assert data_of(recorder, "tool_call_error") == []


def test_updates_work_before_and_after_the_end() -> None:
    with recording() as recorder, recorder.message("a", external_id="m"):
        with recorder.step() as step:
            step.update("Let me see", model="gpt-5")
        with recorder.tool_call("find") as call:
            call.update(result="half", progress=0.5)
        call.update(reflection="Good.")
        step.update(reasoning="Because.")
        recorder.tool_call("never begun").update(reflection="nothing")
    assert [(event["id"], event["type"], event["data"]) for event in recorder.events if ".u" in event["id"]] == [
        ("3.u1", "llm_request_complete", {"step": "3", "thought": "Let me see", "model": "gpt-5"}),
        ("4.u1", "tool_call_complete", {"uuid": "4", "result": "half", "progress": 0.5}),
        ("4.u2", "tool_call_start", {"uuid": "4", "reflection": "Good."}),
        ("3.u2", "llm_request_complete", {"step": "3", "reasoning": "Because."}),
    ]


def test_message_in_a_message_is_separate() -> None:
    with recording() as recorder:
        with (
            recorder.session("s"),
            recorder.message("first", external_id="m1"),
            recorder.tool_call("ask another agent"),
        ):
            with recorder.message("second", external_id="m2"), recorder.tool_call("search"):
                pass
            with recorder.tool_call("after"):
                pass
        with recorder.session("other"), recorder.message("third", external_id="m3"):
            pass
    assert tree(recorder.events) == [
        "message",
        "  ask another agent",
        "    after",
        "message",
        "  search",
        "message",
    ]
    calls = {event["data"]["name"]: event for event in recorder.events if event["type"] == "tool_call_start"}
    assert [(calls[name]["message_id"], "parent" in calls[name]["data"]) for name in calls] == [
        ("m1", False),
        ("m2", False),
        ("m1", True),
    ]
    ends = {event["message_id"]: event["data"] for event in recorder.events if event["id"].startswith("m")}
    assert {message: "error" in data for message, data in ends.items()} == {"m1": False, "m2": False, "m3": False}
    assert {event["message_id"]: event["session_id"] for event in recorder.events} == {
        "m1": "s",
        "m2": "s",
        "m3": "other",
    }


def test_call_open_at_the_end_of_its_message_ends_itself() -> None:
    with recording() as recorder:
        with recorder.message("a", external_id="m") as message:
            forgotten = recorder.tool_call("forgotten").start()
            late = recorder.tool_call("late").start()
        late.end()
        with recorder.tool_call("too late"):
            pass
    ids = [event["id"] for event in recorder.events]
    assert message.id == "m"
    assert [id_ for id_ in ids if id_.startswith((forgotten.id, late.id, "m."))] == [
        "m.2.s",
        "3.s",
        "4.s",
        "m.2.e",
        "4.e",
    ]
    assert tree(recorder.events) == ["message", "  forgotten", "  late", "message", "  too late"]


def test_ends_out_of_order_leave_nothing_current() -> None:
    with recording() as recorder, recorder.message():
        outer = recorder.tool_call("outer")
        inner = recorder.tool_call("inner")
        outer.__enter__()
        inner.__enter__()
        outer.__exit__(None, None, None)
        assert recorder.current() is inner
        inner.__exit__(None, None, None)
        with recorder.tool_call("after"):
            pass
    assert tree(recorder.events) == ["message", "  outer", "    inner", "  after"]


def test_entering_twice_is_entering_once() -> None:
    with recording() as recorder:
        with recorder.message() as message:
            call = recorder.tool_call("twice")
            other = recorder.tool_call("other")
            with call, other, call, other, recorder.tool_call("inside"):
                pass
            assert recorder.current() is message
            with call, recorder.tool_call("after"):
                pass
            with recorder.tool_call("started").start(), recorder.tool_call("in what was started"):
                pass
        assert recorder.current() is None
    assert tree(recorder.events) == [
        "message",
        "  twice",
        "    other",
        "      inside",
        "  after",
        "  started",
        "    in what was started",
    ]


def test_carried_function_has_the_scope_of_its_origin() -> None:
    with recording() as recorder, ThreadPoolExecutor(1) as pool:

        def work(name: str) -> str:
            with recorder.tool_call(name):
                return name

        with recorder.message(), recorder.tool_call("outer"):
            assert pool.submit(recorder.carry(work), "carried").result() == "carried"
        late = recorder.carry(work)
        pool.submit(late, "alone").result()
        with recorder.message():
            ended = recorder.carry(work)
        pool.submit(ended, "after its message").result()
    assert tree(recorder.events) == [
        "message",
        "  outer",
        "    carried",
        "message",
        "  alone",
        "message",
        "message",
        "  after its message",
    ]


# --- Values of the host ------------------------------------------------------------------------------------------


class Refuses:
    """An object on which every operation fails."""

    def __repr__(self) -> str:
        raise LookupError("repr")

    def __str__(self) -> str:
        raise KeyError("str")

    def __bool__(self) -> bool:
        raise ArithmeticError("bool")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Any:
        raise OSError("iter")

    def __len__(self) -> int:
        raise BufferError("len")

    def __getattr__(self, name: str) -> Any:
        raise EOFError(name)


class Custom(Exception):
    def __str__(self) -> str:
        raise Custom


class Model:
    """An object like a pydantic model whose dump fails."""

    def model_dump(self) -> dict[str, Any]:
        raise Custom


class Bomb(UserDict):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise Custom


def holds_itself() -> list[Any]:
    """Return nested lists that expand exponentially, and contain themselves."""
    one: list[Any] = []
    two: list[Any] = [one] * 20
    one += [two] * 20
    return one


HOSTILE = {
    "fails": (Refuses(), "<Refuses>"),
    "fails inside": ({"a": Refuses(), ("b",): 1}, {"a": "<Refuses>", "('b',)": 1}),
    "custom exception": (Custom(), "Custom: <Custom>"),
    "model": (Model(), "<Model>"),
    "mapping": ({"in": Bomb(a=1), ("x",): 2}, {"in": "<Bomb>", "('x',)": 2}),
    "huge number": ({"n": 10**400}, {"n": 10**400}),
    "huge number, said": ({"n": 2**64, "\ud83d": 1}, {"n": str(2**64), "\\ud83d": 1}),
    "half a character": ("\ud83d!", "\\ud83d!"),
    "half a character inside": (["\ud83d"], ["\\ud83d"]),
    "half a character as a name": ({"\ud83d": 1}, {"\\ud83d": 1}),
    "no number": ([float("nan"), float("inf")], [None, None]),
    "bytes": (b"\xff\xfe", "//4="),
    "set": ({3}, [3]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_values_of_any_kind_are_recorded(name: str) -> None:
    value, expected = HOSTILE[name]
    with recording() as recorder, recorder.message(external_id="m"):
        with recorder.tool_call("tool", {"value": value}) as call:
            call.result = value
        with recorder.step() as step:
            step.thought = value
            step.reasoning = value
            step.usage = value
    (begun,) = data_of(recorder, "tool_call_start")
    (ended,) = data_of(recorder, "tool_call_complete")
    assert begun["args"] == {"value": expected}
    assert ended["result"] == expected
    assert recorder.report().failed == recorder.report().dropped == 0


def test_cyclic_value_is_recorded_quickly() -> None:
    with recording() as recorder, recorder.message(), recorder.tool_call("tool", {"graph": holds_itself()}):
        pass
    (data,) = data_of(recorder, "tool_call_start")
    assert data["args"]["graph"][0][0] == "<list, which holds itself>"


def test_no_argument_makes_the_recorder_raise() -> None:
    bad: Any = Refuses()
    with recording(strict=False) as recorder:
        with (
            recorder.session(bad, title=bad, description=bad, end_user=bad, tags=bad, metadata=bad),
            recorder.message(bad, external_id=bad, request_id=bad, metadata=bad) as message,
        ):
            with recorder.step(bad, model=bad, agent=bad, iteration=bad, metadata=bad) as step:
                step.update(bad, reasoning=bad, anything=bad)
                with recorder.tool_call(bad, bad, call_id=bad, metadata=bad) as call:
                    call.update(reflection=bad, result=bad)
                    call.result = call.error = call.reflection = bad
                step.thought = step.usage = bad
            message.content = message.references = message.usage = message.metadata = bad
        with recorder.session(None, tags=3, metadata=4), recorder.message(metadata="x"):  # type: ignore[arg-type]
            recorder.tool_call(7, call_id=8).start(within=bad).end(error=bad)  # type: ignore[arg-type]
        with recorder.session(42), recorder.message(external_id=7), recorder.tool_call("after"):  # type: ignore[arg-type]
            pass
    assert [event["session_id"] for event in recorder.events][-1] == "42"
    assert [event["message_id"] for event in recorder.events][-1] == "7"
    assert tree(recorder.events)[-2:] == ["message", "  after"]


def test_later_changes_of_values_are_not_recorded() -> None:
    with recording() as recorder, recorder.message(external_id="m", metadata={"at": "begin"}) as message:
        args = {"cities": ["Shanghai"]}
        with recorder.tool_call("tool", args) as call:
            args["cities"].append("Beijing")
            result: list[Any] = [1]
            call.result = result
            result.append(2)
        result.append(3)
        message.metadata["at"] = "end"
    assert data_of(recorder, "tool_call_start")[0]["args"] == {"cities": ["Shanghai"]}
    assert data_of(recorder, "tool_call_complete")[0]["result"] == [1, 2]
    assert data_of(recorder, "workflow_execute_start")[0]["metadata"] == {"at": "begin"}
    assert data_of(recorder, "workflow_execute_complete")[0]["metadata"] == {"at": "end"}


def test_dataclasses_and_models_are_recorded_by_fields() -> None:
    class Weather:
        def model_dump(self) -> dict[str, Any]:
            return {"celsius": 31}

    with recording() as recorder, recorder.message(), recorder.tool_call("tool", {"at": Weather()}) as call:
        call.result = records.ToolResult(status="success", success=True, output="31")
    assert data_of(recorder, "tool_call_start")[0]["args"] == {"at": {"celsius": 31}}
    assert data_of(recorder, "tool_call_complete")[0]["result"]["output"] == "31"


# --- Off ---------------------------------------------------------------------------------------------------------


def test_disabled_recorder_has_the_same_methods() -> None:
    on, off = RecorderForTests(), RecorderForTests(enabled=False)

    def use(recorder: RecorderForTests) -> list[object]:
        @recorder.tool_call
        def plain(value: int) -> int:
            return value + 1

        @recorder.step()
        def values() -> Any:
            yield 1
            yield 2

        @recorder.message()
        async def waits() -> int:
            return 3

        seen: list[object] = [plain(1), list(values()), asyncio.run(waits()), recorder.carry(plain)(4)]
        with recorder.session("s") as session, recorder.message("a") as message, recorder.step() as step:
            with recorder.tool_call("find", {"a": 1}) as call:
                call.result = "x"
                scopes = (session, message, step, call)
                seen += [[name for name in dir(one) if name[0] != "_" and hasattr(one, name)] for one in scopes]
                call.update(reflection="y")
            step.update("z")
        one = recorder.tool_call("find").start(within=message)
        one.end("failed")
        seen += [session.external_id, recorder.flush(), recorder.close(), sorted(dir(one))]
        recorder.sampling, recorder.privacy = recorder.sampling, recorder.privacy
        return seen

    assert use(off) == use(on)
    assert (off.current(), off.events, off.enabled, off.report().recorded) == (None, [], False, 0)
    assert len(on.events) == 26
    assert sorted(dir(off)) == sorted(dir(on))
    assert off._pipeline._worker is None


def test_recorder_without_a_server_logs_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TRACESITE_URL", raising=False)
    monkeypatch.delenv("TRACESITE_KEY", raising=False)
    assert not Recorder().enabled
    assert not Recorder(key="ts_x").enabled
    assert not Recorder(enabled=False).enabled
    assert [record.getMessage() for record in caplog.records] == [
        "Nothing is recorded: set TRACESITE_URL and TRACESITE_KEY, or pass url and key to Recorder().",
        "Nothing is recorded: set TRACESITE_URL, or pass url and key to Recorder().",
    ]


def test_trace_tool_runs_with_any_address_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tracesite_sdk.recorder.recording._latest", deque(maxlen=1))
    monkeypatch.setenv("TRACESITE_URL", "127.0.0.1:8000")
    monkeypatch.setenv("TRACESITE_KEY", "ts_x")

    @trace_tool
    def search(query: str) -> str:
        return f"found {query}"

    assert (search("a"), search("b")) == ("found a", "found b")
    assert [record.getMessage() for record in caplog.records] == [
        "Nothing is recorded: the URL or the key (TRACESITE_URL, TRACESITE_KEY) is invalid: url: expected the address of a "
        "server, such as http://127.0.0.1:8000.",
    ]


WRONG = [
    *({"delay_ms": value} for value in (0, float("nan"), "50", None)),
    *({"queue_bytes": value} for value in (0, -1, True)),
    {"spool_bytes": 0},
    {"exit_seconds": -1},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_invalid_setting_warns_and_default_is_used(wrong: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink, **wrong)
    with recorder.message("a"):
        pass
    recorder.close(60)
    assert [event["type"] for event in sink.events] == ["workflow_execute_start", "workflow_execute_complete"]
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"Recorder.{next(iter(wrong))}: expected a number above 0, not ")


@pytest.mark.parametrize("wrong", WRONG)
def test_invalid_setting_raises_when_strict(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Recorder.{next(iter(wrong))}: expected"):
        Recorder(sink=MemorySink(), strict=True, **wrong)


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("127.0.0.1:8000", "ts_x"),
        ("tracesite", "ts_x"),
        ("ftp://127.0.0.1", "ts_x"),
        ("http://user:password@127.0.0.1", "ts_x"),
        ("http://127.0.0.1:99999", "ts_x"),
        ("http://127.0.0.1:1", "two words"),
        ("http://127.0.0.1:1", "ts_é"),
    ],
)
def test_invalid_address_disables_with_one_warning(url: str, key: str, caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(url, key)
    with recorder.message("a"), recorder.tool_call("tool"):
        pass
    assert (recorder.enabled, recorder.close(60)) == (False, 0)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("Nothing is recorded: the URL or the key (TRACESITE_URL, TRACESITE_KEY) is invalid: ")
    assert "expected" in message
    assert "password@" not in message
    with pytest.raises(ValueError, match="expected"):
        Recorder(url, key, strict=True)


# --- Callbacks: data that arrives in parts --------------------------------------------------------------------------


def test_request_is_sent_once_at_the_start_of_its_step() -> None:
    messages = [{"role": "user", "content": "Hello"}]
    with recording() as recorder, recorder.message("Hello"):
        with recorder.step(model="gpt-5", request={"messages": messages, "temperature": 0}) as step:
            messages.append({"role": "user", "content": "Changed."})
            step.first_token()
            step.first_token()
            step.usage = {"input_tokens": 3}
        with recorder.step() as other:
            other.request = "Hello?"
    first, second = data_of(recorder, "llm_request_start")
    ended, also_ended = data_of(recorder, "llm_request_complete")
    assert first["request"] == {"messages": messages[:1], "temperature": 0}
    assert (ended["time_to_first_token"], "request" in ended) == (500, False)
    # A request that is assigned later is sent with the end.
    assert ("request" in second, also_ended["request"], "time_to_first_token" in also_ended) == (
        False,
        "Hello?",
        False,
    )


def test_first_value_of_a_generator_is_the_first_token() -> None:
    with recording() as recorder, recorder.message("Hello"):

        @recorder.step(model="gpt-5")
        def words() -> Iterator[str]:
            yield "Hello "
            yield "you."

        assert list(words()) == ["Hello ", "you."]
    (ended,) = data_of(recorder, "llm_request_complete")
    assert (ended["thought"], ended["time_to_first_token"], ended["duration"]) == ("Hello you.", 500, 1000)


def test_open_message_sends_its_answer_so_far() -> None:
    with recording() as recorder:
        with recorder.message("Hello") as message:
            message.update("So far.", status="paused")
            message.content = "All of it."
        message.update("Too late.")
    assert [(event["type"], event["data"].get("result"), event["data"].get("status")) for event in recorder.events] == [
        ("workflow_execute_start", None, None),
        ("agent_complete", "So far.", None),
        ("workflow_execute_start", None, "paused"),
        ("workflow_execute_complete", "All of it.", None),
    ]


def test_announced_call_is_timed_from_the_start_of_its_tool() -> None:
    with recording() as recorder, recorder.message("Hello"):
        first, second = (recorder.tool_call(name).start() for name in ("first", "second"))
        first.run()
        first.end()
        second.run()
        second.end()
    assert data_of(recorder, "tool_call_start")[2:] == [{"uuid": one.id, "runs": True} for one in (first, second)]
    assert [data["name"] for data in data_of(recorder, "tool_call_complete")] == ["first", "second"]


# --- The answer of the model -----------------------------------------------------------------------------------------


def test_answer_without_model_and_tokens_makes_no_step() -> None:
    with recording() as recorder, recorder.message("Hello") as message:
        message.answered("Hi.")
    assert tree(recorder.events) == ["message"]
    message.answered("Too late.", model="gpt-5")
    assert tree(recorder.events) == ["message"]


def test_usage_of_message_without_answered_is_left_alone() -> None:
    with recording() as recorder, recorder.message("Hello") as message:
        with recorder.step() as step:
            step.usage = {"input_tokens": 1, "output_tokens": 1}
        message.usage = {"input_tokens": 5, "output_tokens": 5}
    assert recorder.events[-1]["data"]["usage"] == {"input_tokens": 5, "output_tokens": 5}


def test_odd_usage_of_answer_breaks_nothing() -> None:
    with recording() as recorder, recorder.message("Hello") as message:
        message.answered("Hi.", usage=["many"])  # type: ignore[arg-type]
    assert recorder.events[-1]["data"]["result"] == "Hi."
