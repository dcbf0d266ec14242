"""Test wrap and enable: code without a recorder is recorded, and behaves as before."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import inspect
import json
import os
import pickle
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.recorder.conftest import data_of
from sdk.tests.recorder.host_agents import Agent, Listener, Refused, Weather
from tracesite_sdk import JsonLinesSink, MemorySink, Privacy, Recorder, Sampling, wrap
from tracesite_sdk.events.monitor_messages import event_document
from tracesite_sdk.recorder.guard import Guard
from tracesite_sdk.recorder.instruments.answers import Answer, read
from tracesite_sdk.recorder.instruments.enabling import Names
from tracesite_sdk.testing import FIRST_TOKEN, recording, tree

# --- wrap: functions of every kind ----------------------------------------------------------------------------------------


def plain(city: str, *, unit: str = "C") -> str:
    """Degrees."""
    if city == "nowhere":
        raise Refused(city)
    return f"{city} {unit}"


async def coroutine(city: str, *, unit: str = "C") -> str:
    """Degrees."""
    await asyncio.sleep(0)
    return plain(city, unit=unit)


def generator(city: str, *, unit: str = "C") -> Iterator[str]:
    """Degrees."""
    yield "so: "
    yield plain(city, unit=unit)


async def asynchronous_generator(city: str, *, unit: str = "C") -> AsyncIterator[str]:
    """Degrees."""
    yield "so: "
    await asyncio.sleep(0)
    yield plain(city, unit=unit)


def makes_coroutine(city: str, *, unit: str = "C") -> Awaitable[str]:
    """Degrees."""
    return coroutine(city, unit=unit)


def makes_generator(city: str, *, unit: str = "C") -> Iterator[str]:
    """Degrees."""
    return generator(city, unit=unit)


class Callable_:
    """Degrees."""

    def __call__(self, city: str, *, unit: str = "C") -> str:
        return plain(city, unit=unit)


class Holder:
    def method(self, city: str, *, unit: str = "C") -> str:
        """Degrees."""
        return plain(city, unit=unit)


KINDS: dict[str, Callable[..., Any]] = {
    "plain": plain,
    "coroutine": coroutine,
    "generator": generator,
    "asynchronous generator": asynchronous_generator,
    "makes a coroutine": makes_coroutine,
    "makes a generator": makes_generator,
    "callable": Callable_(),
    "method": Holder().method,
    "partial": functools.partial(plain, unit="C"),
}
STREAMS = {"generator", "asynchronous generator", "makes a generator"}


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, Any]:
    """Return the outcome of a function of any kind."""

    async def everything() -> Any:
        result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            return await result
        if hasattr(result, "__aiter__"):
            return [item async for item in result]
        return list(result) if inspect.isgenerator(result) else result

    try:
        return "returned", asyncio.run(everything())
    except Refused as error:
        return "raised", error.args


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_are_called_before_and_after(kind: str) -> None:
    hook_calls: list[Any] = []
    wrapped = wrap(
        KINDS[kind],
        before=lambda args: hook_calls.append(("before", dict(args))),
        after=lambda value, args: hook_calls.append(("after", value, dict(args))),
        on_error=lambda error, args: hook_calls.append(("error", error, dict(args))),
    )
    assert outcome(KINDS[kind], "Rome", unit="F") == outcome(wrapped, "Rome", unit="F")
    args = {"city": "Rome", "unit": "F"}
    value = "so: Rome F" if kind in STREAMS else "Rome F"
    assert [("before", args), ("after", value, args)] == hook_calls


@pytest.mark.parametrize("kind", KINDS)
def test_error_hook_is_called_and_the_error_raised(kind: str) -> None:
    hook_calls: list[Any] = []
    wrapped = wrap(
        KINDS[kind],
        before=lambda args: hook_calls.append("before"),
        after=lambda value, args: hook_calls.append("after"),
        on_error=lambda error, args: hook_calls.append((type(error), error.args, args["city"])),
    )
    assert outcome(wrapped, "nowhere") == ("raised", ("nowhere",))
    assert ["before", (Refused, ("nowhere",), "nowhere")] == hook_calls


@pytest.mark.parametrize("kind", KINDS)
def test_wrapped_function_keeps_its_kind(kind: str) -> None:
    function = KINDS[kind]
    wrapped = wrap(function)
    questions = [
        inspect.signature,
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        lambda one: one.__doc__,
        lambda one: getattr(one, "__name__", None) if kind not in ("callable", "partial") else None,
        lambda one: type(one("Rome")) if kind != "coroutine" and kind != "makes a coroutine" else None,
    ]
    assert [question(function) for question in questions] == [question(wrapped) for question in questions]


@given(
    kind=st.sampled_from(list(KINDS)),
    city=st.sampled_from(["Rome", "nowhere"]),
    broken=st.sets(st.sampled_from(["before", "after", "on_error"])),
    given_=st.sets(st.sampled_from(["before", "after", "on_error"])),
)
def test_failing_hooks_break_nothing(kind: str, city: str, broken: set[str], given_: set[str]) -> None:
    called: list[str] = []

    def hook(name: str) -> Callable[..., None]:
        def call(*_args: Any) -> None:
            called.append(name)
            if name in broken:
                raise ValueError("hook")

        return call

    guard = Guard()
    wrapped = wrap(KINDS[kind], **{name: hook(name) for name in given_}, guard=guard)
    assert outcome(KINDS[kind], city) == outcome(wrapped, city)
    expected = [name for name in ("before", "on_error" if city == "nowhere" else "after") if name in given_]
    assert expected == called
    assert len(set(expected) & broken) == guard.failures


def test_wrapped_generator_takes_send_and_close() -> None:
    hook_calls: list[Any] = []

    def talk() -> Any:
        try:
            heard = yield "hello"
            try:
                yield heard
            except Refused:
                yield "refused"
            return "over"
        finally:
            hook_calls.append("closed")

    wrapped = wrap(talk, after=lambda value, _args: hook_calls.append(value))
    one = wrapped()
    assert [next(one), one.send("x"), one.throw(Refused())] == ["hello", "x", "refused"]
    with pytest.raises(StopIteration) as stop:
        next(one)
    assert stop.value.value == "over"
    early = wrapped()
    next(early)
    early.close()
    assert hook_calls == ["closed", "helloxrefused", "closed", "hello"]


def test_wrap_accepts_functions_only() -> None:
    for nothing in (None, 7, "text", Holder):
        with pytest.raises(TypeError, match="wrap: expected a function"):
            wrap(nothing)  # type: ignore[type-var]


# --- enable ---------------------------------------------------------------------------------------------------------------


def test_agent_is_started_enabled_and_run() -> None:
    with recording() as recorder:
        agent = recorder.enable(Agent(), session="task-1")
        assert agent.run("How is it?") == {"success": True, "result": "Asking: 31 degrees in Rome", "error": None}
    events = recorder.events
    assert tree(events) == ["message", "  step planner", "  step planner gpt-5", "  get_weather"]
    assert {"task-1"} == {event["session_id"] for event in events}
    (begun,) = data_of(events, "workflow_execute_start")
    (ended,) = data_of(events, "workflow_execute_complete")
    assert (begun["prompt"], ended["result"]) == ("How is it?", "Asking: 31 degrees in Rome")
    assert "error" not in ended
    asked = data_of(events, "llm_request_complete")[0]
    assert (
        asked["thought"],
        asked["usage"],
        asked["model"],
    ) == ("Asking", {"prompt_tokens": 7, "completion_tokens": 2}, "gpt-5-mini")
    (call,) = data_of(events, "tool_call_start")
    assert (call["name"], call["args"], call["call_id"]) == ("get_weather", {"city": "Rome"}, "call_1")
    (result,) = data_of(events, "tool_call_complete")
    assert result["result"] == "31 degrees in Rome"


def test_prompts_are_recorded_with_kind_length_and_text() -> None:
    for privacy, texts in [
        (Privacy(), ["You are a planner.", "The weather in Rome, password=[redacted]"]),
        (Privacy(lean=True), [None, None]),
    ]:
        with recording(privacy=privacy) as recorder:
            recorder.enable(Agent()).run("How is it?")
        prompts = data_of(recorder.events, "prompt_build")
        assert [(prompt["kind"], prompt["length"]) for prompt in prompts] == [("system", 18), ("user", 44)]
        assert texts == [prompt.get("text") for prompt in prompts]


def test_errors_are_recorded_and_raised_again() -> None:
    with recording() as recorder:
        agent = recorder.enable(Agent())
        with pytest.raises(Refused, match="no such city") as raised:
            agent.run("How is it?", "nowhere")
        assert [frame.name for frame in inspect.getinnerframes(raised.value.__traceback__) if False] == []
    events = recorder.events
    (failed,) = data_of(events, "tool_call_error")
    assert failed["error"] == "Refused: no such city"
    assert data_of(events, "workflow_execute_complete")[0]["error"] == "Refused: no such city"


def test_failure_in_the_result_is_the_error_of_the_run() -> None:
    class Failing:
        def run(self, prompt: str) -> Any:
            return {"taskId": "t", "success": False, "stopReason": "error", "result": "no answer", "error": "broke"}

    with recording() as recorder:
        recorder.enable(Failing()).run("x")
    (ended,) = data_of(recorder.events, "workflow_execute_complete")
    assert (ended["error"], ended["result"]) == ("broke", "no answer")


class OfTask:
    """An agent whose runs are tasks; it names them in one of these places."""

    def __init__(self, place: str, callback: Any = None) -> None:
        self.place = place
        self.callback = callback
        self.task_id: str | None = "that of the last run" if place == "attribute" else None

    def run(self, prompt: str, taskId: str | None = None) -> Any:
        self.build_system_prompt()
        if self.place == "attribute":
            self.task_id = "task-1"
        if self.place == "part":
            self.execute(task_id="task-1")
        if self.callback is not None:
            self.callback({"taskId": "task-1", "type": "agent_start", "agentName": "planner", "nodeId": "n"})
            self.callback({"taskId": "of an agent in it", "type": "agent_start", "agentName": "other", "nodeId": "m"})
        answer = {"success": True, "result": "done", "taskId": "task-1"}
        return {"object": SimpleNamespace(**answer), "dict": answer}.get(self.place, "done")

    def execute(self, task_id: str) -> None:
        pass

    def build_system_prompt(self) -> str:
        return "You are a planner."


@pytest.mark.parametrize("place", ["argument", "part", "callback", "attribute", "dict", "object"])
def test_session_of_a_run_is_its_task(place: str) -> None:
    heard: list[Any] = []
    with recording() as recorder:
        agent = recorder.enable(OfTask(place, heard.append if place == "callback" else None))
        agent.run("How is it?", "task-1" if place == "argument" else None)
        agent.place, agent.callback = "nowhere", None
        agent.task_id = None
        agent.run("And now?")
    events = recorder.events
    of_runs = {event["message_id"]: event["session_id"] for event in events}
    assert (len(of_runs), list(of_runs.values())[0]) == (2, "task-1")
    assert list(of_runs.values())[1].startswith("session-")


def test_given_session_takes_precedence_over_the_task() -> None:
    with recording() as recorder:
        recorder.enable(OfTask("dict"), session="given").run("x")
        with recorder.session("around"):
            recorder.enable(OfTask("dict")).run("x", "task-1")
    assert {"given", "around"} == {event["session_id"] for event in recorder.events}


def test_agent_inside_a_run_does_not_name_its_session() -> None:
    class Outer:
        def __init__(self, inner: OfTask) -> None:
            self.inner = inner

        def run(self, prompt: str) -> Any:
            self.inner.run(prompt, "of the inner one")
            return {"taskId": "task-1"}

    with recording() as recorder:
        recorder.enable(Outer(recorder.enable(OfTask("nowhere")))).run("x")
    assert {"task-1"} == {event["session_id"] for event in recorder.events}


def test_run_that_nothing_names_is_sent_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracesite_sdk.recorder.instruments.enabling._NAMING_SECONDS", 0.1)
    sink = MemorySink()
    recorder = Recorder(sink=sink, strict=True)

    class Long:
        def run(self, prompt: str) -> Any:
            wait_for(lambda: len(sink.events) == 1)
            return {"taskId": "too late"}

    recorder.enable(Long()).run("x")
    recorder.close(60)
    (session,) = {event["session_id"] for event in sink.events}
    assert session.startswith("session-")


def test_others_do_not_wait_for_a_name() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink, strict=True)

    class Waiting:
        def run(self, prompt: str) -> Any:
            with recorder.session("other"), recorder.message("y").start(within=recorder.session("other")) as other:
                other.end()
            wait_for(lambda: {event["session_id"] for event in sink.events} == {"other"})
            return {"taskId": "task-1"}

    recorder.enable(Waiting()).run("x")
    recorder.close(60)
    assert {"other", "task-1"} == {event["session_id"] for event in sink.events}


def test_flush_inside_a_run_sends_it_under_its_own_name() -> None:
    with recording() as recorder:

        class Flushing:
            def run(self, prompt: str) -> Any:
                assert recorder.flush() == 0
                assert len(recorder.sink.events) == 1
                return {"taskId": "too late"}

        recorder.enable(Flushing()).run("x")
    (session,) = {event["session_id"] for event in recorder.events}
    assert session.startswith("session-")


@pytest.mark.system
def test_forked_child_shares_the_name_of_the_session(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = Recorder(sink=JsonLinesSink(path), delay_ms=10_000)

    class Forking:
        def run(self, prompt: str) -> Any:
            pid = os.fork()
            if pid == 0:
                with recorder.tool_call("child's"):
                    pass
                os._exit(recorder.flush(60))
            assert os.waitpid(pid, 0)[1] == 0
            return {"taskId": "too late"}

    recorder.enable(Forking()).run("x")
    recorder.close(60)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(events) == 4
    assert len({(event["session_id"], event["message_id"]) for event in events}) == 1


def wait_for(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_callback_keeps_its_methods_and_arguments() -> None:
    listener = Listener()
    with recording() as recorder:
        agent = recorder.enable(Agent(listener))
        agent.run("How is it?")
        assert listener is agent.callback
        assert listener.on_human_confirm("yes?")
        assert listener.on_message("anything") == "heard"
    message = {"taskId": "t1", "type": "agent_start", "agentName": "planner"}
    assert [(message, agent), ("anything", None)] == listener.heard
    assert listener.heard[0][0] == message
    assert [data["agent_name"] for data in data_of(recorder.events, "agent_start")] == ["planner"]


@pytest.mark.parametrize("make", [lambda heard: {"onMessage": heard}, lambda heard: heard])
def test_callbacks_may_be_dicts_or_functions(make: Callable[[Any], Any]) -> None:
    heard: list[Any] = []

    class Eko:
        def __init__(self) -> None:
            self.config = {"callback": make(lambda message, context=None: heard.append((message, context)))}

        def run(self, prompt: str) -> str:
            callback = self.config["callback"]
            send = callback["onMessage"] if isinstance(callback, dict) else callback
            for message in MESSAGES:
                send(message, context=1)
            return "done"

    with recording() as recorder:
        eko = Eko()
        before = dict(eko.config)
        inner = dict(before["callback"]) if isinstance(before["callback"], dict) else before["callback"]
        recorder.enable(eko).run("go")
        recorder.disable(eko)
    assert [(message, 1) for message in MESSAGES] == heard
    assert inner == eko.config["callback"]
    events = recorder.events
    assert [event["type"] for event in events if event["type"].startswith(("tool", "llm"))] == [
        "tool_call_start",
        "llm_request_complete",
        "tool_call_complete",
    ]
    assert [(data["args"], data["call_id"]) for data in data_of(events, "tool_call_start")] == [({"q": 1}, "c1")]
    assert len({event["message_id"] for event in events}) == 1


MESSAGES = [
    {"taskId": "t1", "agentName": "A", "nodeId": "n", "type": "agent_start", "agentNode": {"status": "running"}},
    {"taskId": "t1", "nodeId": "n", "type": "text", "streamDone": False, "text": "hal"},
    {"taskId": "t1", "nodeId": "n", "type": "tool_use", "toolCallId": "c1", "toolName": "search", "params": {"q": 1}},
    {"taskId": "t1", "nodeId": "n", "type": "finish", "usage": {"totalTokens": 3}},
    {
        "taskId": "t1",
        "nodeId": "n",
        "type": "tool_result",
        "toolCallId": "c1",
        "toolName": "search",
        "toolResult": {"content": [{"type": "text", "text": "found"}]},
    },
]


class NamedS:
    def onMessage(s, message: Any, context: Any = None) -> None:
        pass


class NamedThis:
    async def on_message(this, message: Any, context: Any = None) -> None:
        pass


class Unnamed:
    def onMessage(*args: Any) -> None:
        pass


class Inherited(NamedS):
    pass


class Other(NamedS):
    def onMessage(me, message: Any, context: Any = None) -> None:
        super().onMessage(message, context)


@pytest.mark.parametrize("kind", [NamedS, NamedThis, Unnamed, Inherited, Other])
def test_callbacks_may_call_their_object_anything(kind: type[Any]) -> None:
    callback = kind()
    with recording() as recorder:
        recorder.enable(SimpleNamespace(callback=callback))
        send = getattr(callback, "onMessage", None) or callback.on_message
        for message in MESSAGES:
            sent = send(message, None)
            if inspect.isawaitable(sent):
                asyncio.run(waited(sent))
    assert [event["type"] for event in recorder.events] == [
        "workflow_execute_start",
        "workflow_execute_start",
        "agent_start",
        "tool_call_start",
        "llm_request_complete",
        "tool_call_complete",
    ]


async def waited(sent: Awaitable[Any]) -> Any:
    return await sent


def test_callback_that_raises_does_so_and_is_recorded() -> None:
    class Broken(Listener):
        def on_message(self, message: Any, context: Any = None) -> str:
            raise Refused("host's own")

    with recording() as recorder:
        agent = recorder.enable(Agent(Broken()))
        with pytest.raises(Refused, match="host's own"):
            agent.run("How is it?")
    assert len(data_of(recorder.events, "agent_start")) == 1


def test_callback_is_called_when_recording_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def get(self) -> None:
            raise OSError("broken")

    listener = Listener()
    recorder = Recorder(sink=MemorySink())
    monkeypatch.setattr(recorder.runtime, "current", Failing())
    recorder.enable(listener_holder := SimpleNamespace(callback=listener))
    assert listener_holder.callback.on_message({"taskId": "t1", "nodeId": "n", "type": "agent_start"}, 2) == "heard"
    assert recorder.guard.failures == 1
    assert listener.heard == [({"taskId": "t1", "nodeId": "n", "type": "agent_start"}, 2)]
    recorder.close(60)


def test_asynchronous_callback_stays_one_and_keeps_its_order() -> None:
    class Later(Listener):
        async def on_message(self, message: Any, context: Any = None) -> str:  # type: ignore[override]
            await asyncio.sleep(0)
            return super().on_message(message, context)

    later = Later()
    with recording() as recorder:
        recorder.enable(SimpleNamespace(callback=later))
        assert inspect.iscoroutinefunction(later.on_message)

        async def main() -> None:
            for number in range(5):
                await later.on_message({"taskId": "t", "nodeId": "n", "type": "error", "error": f"e{number}"})

        asyncio.run(main())
    assert [f"e{number}" for number in range(5)] == [message["error"] for message, _context in later.heard]
    assert [f"e{number}" for number in range(5)] == [data["error"] for data in data_of(recorder.events, "agent_error")]


def test_disable_leaves_no_trace() -> None:
    agent = Agent(Listener(), {"get_weather": Weather(), "shout": str.upper, "own": plain})
    before = {name: dict(vars(one)) for name, one in objects_of(agent).items()}
    tools = dict(agent.tools)
    with recording() as recorder:
        assert agent is recorder.enable(agent)
        assert recorder.enable(agent) is agent
        assert agent.run.__self__ is agent
        assert agent.run.__doc__ == "Answers."
        assert inspect.signature(Agent(None).run) == inspect.signature(agent.run)
        assert agent.tools["own"] is not plain
        recorder.disable(agent)
        recorder.disable(agent)
        assert before == {name: dict(vars(one)) for name, one in objects_of(agent).items()}
        assert tools == agent.tools
        agent.tools = [Weather()]
        agent.run("not recorded")
    assert recorder.events == []


def objects_of(agent: Agent) -> dict[str, Any]:
    return {"agent": agent, "callback": agent.callback, "tool": agent.tools["get_weather"]}


@pytest.mark.parametrize("off", [Recorder(enabled=False), Recorder(sink=MemorySink(), enabled=False)])
def test_disabled_recorder_touches_nothing(off: Recorder) -> None:
    agent = Agent(Listener())
    before = [dict(vars(one)) for one in (agent, agent.callback, agent.tools[0])]
    assert agent is off.enable(agent)
    assert before == [dict(vars(one)) for one in (agent, agent.callback, agent.tools[0])]
    assert agent is off.disable(agent)


def test_enabled_object_works_after_its_recorder_is_closed() -> None:
    with recording() as recorder:
        agent = recorder.enable(Agent())
    assert agent.run("after")["success"]
    assert recorder.events == []


def test_shared_tool_is_recorded_until_the_last_disable() -> None:
    with recording() as recorder:
        tool = Weather()
        one, two = recorder.enable(Agent(None, [tool])), recorder.enable(Agent(None, [tool]))
        one.run("x")
        recorder.disable(one)
        two.run("x")
        recorder.disable(two)
        tool.execute({"city": "Rome"})
    assert len(data_of(recorder.events, "tool_call_start")) == 2
    assert vars(tool) == {"calls": 3}


def test_tool_alone_is_recorded() -> None:
    with recording() as recorder:
        tool = recorder.enable(Weather())
        assert tool.execute({"city": "Rome"}) == "31 degrees in Rome"
        recorder.disable(tool)
    assert vars(tool) == {"calls": 1}
    assert tree(recorder.events) == ["message", "  get_weather"]


def test_deep_copy_calls_its_own_methods_and_pickle_is_unchanged() -> None:
    with recording() as recorder:
        agent = recorder.enable(Agent())
        twin = copy.deepcopy(agent)
        loaded = pickle.loads(pickle.dumps(agent))
        twin.run("twin")
        loaded.run("loaded")
        assert (agent.log, twin.log, loaded.log) == ([], ["twin"], ["loaded"])
        recorder.enable(twin).run("again")
        recorder.disable(agent)
        agent.run("off")
        twin.run("still")
        recorder.disable(twin)
        twin.run("off")
    prompts = [data["prompt"] for data in data_of(recorder.events, "workflow_execute_start")]
    assert [prompt for prompt in prompts if prompt != "loaded"] == ["twin", "again", "still"]


def test_attributes_that_the_host_replaced_stay() -> None:
    with recording() as recorder:
        agent = recorder.enable(Agent())
        agent.run = own = lambda prompt: "own"  # type: ignore[assignment, method-assign, misc]
        recorder.disable(agent)
    assert agent.run is own


def test_immutable_objects_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Slotted:
        __slots__ = ("city",)

        def run(self, prompt: str) -> str:
            return prompt

    recorder = Recorder(sink=MemorySink())
    for value in (Slotted(), 7, "text", None, [], object()):
        assert value is recorder.enable(value)  # type: ignore[comparison-overlap]
        assert value is recorder.disable(value)  # type: ignore[comparison-overlap]
    assert recorder.enable(Slotted()).run("x") == "x"
    assert "Not recorded: methods of Slotted cannot be replaced." in caplog.text
    recorder.close(60)


def test_object_that_observes_changes_is_not_disturbed() -> None:
    class Strict:
        def __setattr__(self, name: str, value: Any) -> None:
            raise AssertionError(name)

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name) if not name.startswith("__") else AttributeError(name)

        def run(self, prompt: str) -> str:
            return prompt

    with recording() as recorder:
        assert recorder.enable(Strict()).run("x") == "x"
    assert len(recorder.events) == 2


def test_custom_names_are_recorded() -> None:
    class Client:
        def create(self, **_options: Any) -> Any:
            message = SimpleNamespace(content="Hello", reasoning_content="thinking")
            return SimpleNamespace(
                choices=[SimpleNamespace(message=message)],
                usage=SimpleNamespace(prompt_tokens=3, completion_tokens=1, details=None),
                model="gpt-5-2026",
            )

    class Own:
        def __init__(self) -> None:
            self.client = SimpleNamespace(chat=SimpleNamespace(completions=Client()))

        def answer(self, question: str) -> str:
            found = self.client.chat.completions.create(model="gpt-5", messages=[])
            return str(found.choices[0].message.content)

    with recording() as recorder:
        own = recorder.enable(
            Own(),
            name="own agent",
            session=lambda args: f"about {args['question']}",
            names=Names(runs=["answer"], models=["client.chat.completions.create"], prompts=["missing.part"]),
        )
        assert own.answer("cats") == "Hello"
    events = recorder.events
    assert {"about cats"} == {event["session_id"] for event in events}
    (asked,) = data_of(events, "llm_request_complete")
    assert (
        asked["agent_name"],
        asked["model"],
        asked["thought"],
        asked["reasoning"],
        asked["usage"],
    ) == ("own agent", "gpt-5-2026", "Hello", "thinking", {"prompt_tokens": 3, "completion_tokens": 1})


def test_object_of_which_nothing_is_recorded_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Driver:
        def go(self) -> int:
            return 1

    with recording() as recorder:
        assert recorder.enable(Driver()).go() == 1
        recorder.enable(Driver(), names=Names(runs=["go"])).go()
    nothing, *no_more = [record.getMessage() for record in caplog.records]
    assert nothing.startswith(
        "Nothing of Driver is recorded: it has no tools, no callback, and none of the methods run, arun,"
    )
    assert nothing.endswith("Name its own: names=Names(runs=[...]).")
    assert no_more == []


def test_agent_in_a_tool_is_nested_in_its_call() -> None:
    class Researcher:
        name = "researcher"

        def run(self, task: str) -> str:
            return self.call_llm(task)

        def call_llm(self, task: str) -> str:
            return f"about {task}"

    with recording() as recorder:
        researcher = recorder.enable(Researcher())
        agent = recorder.enable(Agent(None, [tool := Weather()]))
        tool.execute = lambda args, context=None, tool_call=None: researcher.run(args["city"])  # type: ignore[assignment, method-assign]
        recorder.disable(agent)
        recorder.enable(agent)
        assert agent.run("x")["result"] == "Asking: about Rome"
    events = recorder.events
    assert len(data_of(events, "workflow_execute_start")) == 1
    steps = data_of(events, "llm_request_start")
    assert [step["agent_name"] for step in steps] == ["planner", "planner", "researcher", "researcher"]


def test_concurrent_asynchronous_agents_are_kept_apart() -> None:
    class Slow:
        name = "slow"

        def __init__(self) -> None:
            self.tools = {"look": self.look}

        async def look(self, city: str) -> str:
            await asyncio.sleep(0)
            return city

        async def run(self, city: str) -> str:
            await self.call_llm(city)
            return await self.tools["look"](city)

        async def call_llm(self, city: str) -> str:
            await asyncio.sleep(0)
            return f"look at {city}"

        async def generate(self, city: str) -> AsyncIterator[str]:
            yield await self.run(city)

    with recording() as recorder:
        slow = recorder.enable(Slow())
        assert inspect.iscoroutinefunction(slow.run)
        assert inspect.isasyncgenfunction(slow.generate)

        async def main() -> list[str]:
            found = await asyncio.gather(*(slow.run(f"c{number}") for number in range(5)))
            return [*found, *[city async for city in slow.generate("c5")]]

        assert [f"c{number}" for number in range(6)] == asyncio.run(main())
    by_message: dict[str, list[Any]] = {}
    for event in recorder.events:
        by_message.setdefault(event["message_id"], []).append(event)
    assert len(by_message) == 6
    for events in by_message.values():
        prompt = data_of(events, "workflow_execute_start")[0]["prompt"]
        assert [{"city": prompt}] == [data["args"] for data in data_of(events, "tool_call_start")]
        assert prompt == data_of(events, "workflow_execute_complete")[0]["result"]


def test_threads_are_kept_apart() -> None:
    with recording() as recorder:
        agent = recorder.enable(Agent())
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: agent.run(f"p{number}", f"c{number}"), range(40)))
    events = recorder.events
    prompts = {event["message_id"]: event["data"]["prompt"] for event in events if "prompt" in event["data"]}
    calls = {event["message_id"]: event["data"]["args"] for event in events if "args" in event["data"]}
    assert len(prompts) == 40
    assert {one: {"city": f"c{prompt[1:]}"} for one, prompt in prompts.items()} == calls


def test_callback_without_a_run_makes_one_run_for_each_task() -> None:
    class Quiet:
        def __init__(self) -> None:
            self.callback = Listener()

        @property
        def config(self) -> Any:
            raise AssertionError("nobody asks")

    with recording() as recorder:
        quiet = recorder.enable(Quiet())
        for message in [
            *MESSAGES,
            {"taskId": "t1", "type": "debug_task_finished", "success": True, "stopReason": "done", "result": "42"},
        ]:
            for task in ("t1", "t2"):
                quiet.callback.on_message({**message, "taskId": task})
    events = recorder.events
    assert {"t1", "t2"} == {event["session_id"] for event in events}
    by_task = {task: [event for event in events if event["session_id"] == task] for task in ("t1", "t2")}
    assert [len({event["message_id"] for event in by_task[task]}) for task in by_task] == [1, 1]
    assert sorted({data["step"] for data in data_of(by_task["t1"], "tool_call_start")}) == ["n:0"]
    assert data_of(by_task["t2"], "workflow_execute_complete")[0]["result"] == "42"


def test_lean_recorder_keeps_metadata_only() -> None:
    with recording(privacy=Privacy(lean=True)) as recorder:
        agent = recorder.enable(Agent(Listener()))
        agent.run("How is it in secret?", "Hidden")
    events = recorder.events
    written = str(events)
    contents = ("secret", "Hidden", "31 degrees", "You are", "Asking")
    assert [content for content in contents if content in written] == []
    assert [set(event["data"]) - {"duration", "usage", "uuid", "step"} for event in events] == [
        set(),
        {"agent_name"},
        {"kind", "length"},
        {"kind", "length"},
        {"agent_name", "model"},
        {"agent_name", "model"},
        {"name", "call_id"},
        {"name", "call_id"},
        set(),
        {"agent_name"},
        {"agent_name"},
        set(),
    ]


def test_wrapper_keeps_no_object_of_the_host_alive() -> None:
    class Value:
        pass

    kept: list[weakref.ref[Any]] = []

    class Maker:
        def run(self, value: Any) -> Any:
            return value

    with recording() as recorder:
        maker = recorder.enable(Maker())
        function = wrap(lambda value: value, after=lambda value, args: None)
        for work in (maker.run, function):
            value = Value()
            kept.append(weakref.ref(value))
            work(value)
            del value
        kept.append(weakref.ref(maker))
        del maker, work
        recorder.flush()
        gc.collect()
        assert [one() for one in kept] == [None, None, None]


# --- Responses of models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", Answer(text="text")),
        (None, Answer()),
        (7, Answer()),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, Answer(text="ab")),
        (
            {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}], "usage": {"in": 1}},
            Answer(text="a", reasoning="hm", usage={"in": 1}),
        ),
        (
            {"message": {"content": "hi", "reasoning": "hm"}, "model": "llama"},
            Answer(text="hi", reasoning="hm", model="llama"),
        ),
        (
            [
                {"choices": [{"delta": {"content": "he"}}], "model": "m"},
                {"choices": [{"delta": {"content": "y"}}]},
                {"choices": [], "usage": {"total_tokens": 3}},
            ],
            Answer(text="hey", usage={"total_tokens": 3}, model="m"),
        ),
        (SimpleNamespace(usage_metadata={"input_tokens": 1}, content="x"), Answer(text="x", usage={"input_tokens": 1})),
        (SimpleNamespace(response_metadata={"token_usage": {"t": 1}}, text=lambda: "x"), Answer(usage={"t": 1})),
        ({"usage": "much", "model": 7, "text": 8}, Answer()),
    ],
)
def test_response_of_a_model_is_read_from_its_client(value: Any, expected: Answer) -> None:
    assert expected == read(value)


# --- Subscribers ---------------------------------------------------------------------------------------------------------------


def test_subscribers_get_all_events() -> None:
    heard: list[Any] = []
    with recording() as recorder:
        end = recorder.subscribe(heard.append)
        recorder.enable(Agent(Listener())).run("How is it?")
        recorder.flush()
        assert heard == recorder.sink.events
        assert all(isinstance(event["type"], str) for event in heard)
        assert not any("hunter2" in str(event) for event in heard)
        end()
        recorder.enable(Agent()).run("Again")
        recorder.flush()
        assert len(heard) < len(recorder.sink.events)


def test_subscribers_may_ask_for_messages() -> None:
    heard: list[Any] = []
    with recording() as recorder:
        recorder.subscribe(heard.append, messages=True)
        recorder.enable(OfTask("callback", lambda message: None)).run("How is it?")
        with recorder.session("task-2"), recorder.message("Hi") as message:
            with recorder.step(agent="writer") as step:
                step.usage = {"output_tokens": 3}
            with pytest.raises(Refused), recorder.tool_call("search", {"q": 1}):
                raise Refused("no")
            message.score("helpful", True)
            message.update(status="paused")
            message.content = "Bye"
    ours = {"step", "uuid", "duration", "length", "kind", "agent_name", "time_to_first_token"}
    brief = [
        (one["taskId"], one["type"], {name: it for name, it in one["payload"].items() if name not in ours})
        for one in heard
    ]
    assert brief == [
        ("task-1", "session", {"status": "running", "prompt": "How is it?"}),
        ("task-1", "prompt", {"role": "system", "text": "You are a planner."}),
        ("task-1", "session", {"status": "running"}),
        ("task-1", "agent", {"agentId": "n", "status": "start"}),
        ("task-1", "session", {"status": "running"}),
        ("task-1", "agent", {"agentId": "m", "status": "start"}),
        ("task-1", "session", {"status": "completed", "result": "done"}),
        ("task-2", "session", {"status": "running", "prompt": "Hi"}),
        ("task-2", "llm", {"agentId": "writer", "phase": "start"}),
        ("task-2", "llm", {"agentId": "writer", "phase": "complete", "usage": {"output_tokens": 3}}),
        ("task-2", "tool", {"phase": "start", "name": "search", "args": {"q": 1}}),
        ("task-2", "tool", {"phase": "error", "name": "search", "error": "Refused: no", "result": None}),
        ("task-2", "session", {"status": "paused"}),
        ("task-2", "session", {"status": "completed", "result": "Bye"}),
    ]
    assert {frozenset(one) for one in heard} == {frozenset(["taskId", "type", "ts", "payload"])}
    # Sent to the server, they become the same events.
    types = [event["type"] for event in recorder.events if event["type"] != "score"]
    assert [event_document(one)["type"] for one in heard] == types
    # The clock of the test begins in 2026.
    assert all(isinstance(one["ts"], int) and one["ts"] > 1_767_000_000_000 for one in heard)


@pytest.mark.parametrize("from_loop", [False, True])
def test_asynchronous_subscribers_are_awaited(from_loop: bool) -> None:
    heard: list[Any] = []

    async def subscriber(message: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        heard.append(message["type"])
        if len(heard) == 1:
            raise OSError("subscriber")

    recorder = Recorder(sink=MemorySink(), delay_ms=10_000)
    recorder.subscribe(subscriber, messages=True)

    async def agent() -> None:
        with recorder.message("Hi"), recorder.tool_call("search"):
            pass
        if from_loop:
            recorder.flush(60)

    asyncio.run(agent())
    recorder.close(60)
    assert heard == ["session", "tool", "tool", "session"]
    assert recorder.guard.failures == 1


class Passing:
    """An agent whose parts return the response of their request, as they are or as streams."""

    def call_llm(self, messages: list[Any]) -> dict[str, Any]:
        return {"content": "Hi.", "usage": {"input_tokens": 10, "output_tokens": 1}}

    def call_model(self, messages: list[Any]) -> Iterator[dict[str, Any]]:
        yield from ({"content": "Hi."}, {"usage": {"input_tokens": 10, "output_tokens": 1}})

    def execute(self, question: str) -> dict[str, Any]:
        return self.generate(question)

    def generate(self, question: str) -> dict[str, Any]:
        return self.call_llm([question])

    async def aexecute(self, question: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        return self.execute(question)

    async def agenerate(self, question: str) -> AsyncIterator[dict[str, Any]]:
        for chunk in self.call_model([question]):
            await asyncio.sleep(0)
            yield chunk

    def run(self, question: str) -> Any:
        async def all_at_once() -> None:
            async def read() -> None:
                async for _chunk in self.agenerate(question):
                    pass

            await asyncio.gather(read(), read(), *(self.aexecute(question) for _each in range(3)))

        asyncio.run(all_at_once())
        return self.execute(question)["content"]


class Alone(Passing):
    """An agent whose parts ask the model themselves."""

    def generate(self, question: str) -> dict[str, Any]:
        return {"content": "Hi.", "usage": {"input_tokens": 10, "output_tokens": 1}}


class Wrapping(Passing):
    """An agent whose client is enabled, too."""

    def __init__(self) -> None:
        self.client = Passing()

    def call_llm(self, messages: list[Any]) -> dict[str, Any]:
        return self.client.call_llm(messages)


@pytest.mark.parametrize("kind", [Passing, Alone, Wrapping])
def test_tokens_of_a_response_that_is_passed_on_count_once(kind: type[Passing]) -> None:
    with recording() as recorder:
        agent = kind()
        if isinstance(agent, Wrapping):
            recorder.enable(agent.client)
        assert recorder.enable(agent).run("How is it?") == "Hi."
    ended = data_of(recorder.events, "llm_request_complete")
    # Six requests: four by execute and two by agenerate.
    assert sum(data["usage"]["input_tokens"] for data in ended if "usage" in data) == 60
    assert [event["data"]["result"] for event in recorder.events[-1:]] == ["Hi."]


def test_stream_that_goes_on_inside_its_own_task_ends() -> None:
    class Circular:
        async def call_llm(self, rest: Any) -> dict[str, Any]:
            async for _chunk in rest():
                pass
            return {"content": "Hi.", "usage": {"input_tokens": 10, "output_tokens": 1}}

        async def agenerate(self, started: list[Any]) -> AsyncIterator[str]:
            started.append(asyncio.create_task(self.call_llm(lambda: started[0])))
            yield "Hello."
            yield "Hello again."

        async def run(self) -> Any:
            started: list[Any] = []
            started.append(self.agenerate(started))
            await anext(started[0])
            return (await started[1])["content"]

    with recording() as recorder:
        agent = recorder.enable(Circular())
        assert asyncio.run(asyncio.wait_for(agent.run(), 5)) == "Hi."
    assert len(data_of(recorder.events, "llm_request_complete")) == 2


class Streaming:
    """A client whose requests are streams, sync and async."""

    def call_llm(self, messages: list[Any], tools: Any = None) -> Iterator[str]:
        yield "Hello "
        messages.append("changed")
        yield "you."

    async def call_model(self, messages: list[Any], temperature: float = 1) -> AsyncIterator[dict[str, Any]]:
        yield {"content": "Hello."}
        yield {"usage": {"input_tokens": 3, "output_tokens": 1}}


def test_stream_of_enabled_client_has_input_and_first_token() -> None:
    async def read_all(client: Streaming) -> int:
        return len([chunk async for chunk in client.call_model(["b"], temperature=0)])

    with recording() as recorder, recorder.message("Hi"):
        client = recorder.enable(Streaming())
        assert list(client.call_llm(["a"], tools=[{"name": "search"}])) == ["Hello ", "you."]
        assert asyncio.run(read_all(client)) == 2
    begun = [event["data"] for event in recorder.events if event["type"] == "llm_request_start"]
    ended = [event["data"] for event in recorder.events if event["type"] == "llm_request_complete"]
    assert [data["request"] for data in begun] == [
        {"messages": ["a"], "tools": [{"name": "search"}]},
        {"messages": ["b"], "temperature": 0},
    ]
    assert [(data["thought"], data["time_to_first_token"]) for data in ended] == [
        ("Hello you.", FIRST_TOKEN),
        ("Hello.", FIRST_TOKEN),
    ]
    assert ended[1]["usage"] == {"input_tokens": 3, "output_tokens": 1}


def test_failing_subscriber_stops_neither_stream_nor_sink() -> None:
    heard: list[Any] = []
    sink = MemorySink()
    recorder = Recorder(sink=sink)

    def broken(event: dict[str, Any]) -> None:
        event.clear()
        raise OSError("subscriber")

    recorder.subscribe(broken)
    recorder.subscribe(heard.append)
    recorder.enable(Agent()).run("How is it?")
    recorder.close(60)
    assert sink.events == heard
    assert len(heard) == recorder.guard.failures > 5


def test_failing_sink_stops_no_subscriber() -> None:
    class Broken(MemorySink):
        def send(self, events: Any) -> int:
            raise OSError("store")

    heard: list[Any] = []
    recorder = Recorder(sink=Broken(), sampling=Sampling())
    recorder.subscribe(heard.append)
    recorder.enable(Agent()).run("How is it?")
    recorder.close(60)
    assert {"workflow_execute_start", "workflow_execute_complete"} <= {event["type"] for event in heard}
