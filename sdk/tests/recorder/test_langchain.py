"""Test the handler of LangChain and LangGraph: the events of real graphs on a scripted model."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

pytest.importorskip("langgraph", reason="needs LangGraph, which brings langchain-core")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.config import ensure_config
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy

from sdk.tests.recorder.conftest import data_of
from sdk.tests.recorder.scripted_graphs import (
    SCRIPT,
    TWO,
    Library,
    ScriptedChat,
    StreamingChat,
    agent,
    ask_person,
    asks,
    config,
    get_weather,
    on_thread,
    reply,
)
from tracesite_sdk import langchain
from tracesite_sdk.langchain import TracesiteHandler
from tracesite_sdk.testing import RecorderForTests, recording, tree


def numbered_events(recorder: RecorderForTests) -> list[tuple[str, str, dict[str, Any]]]:
    """Return id, type and data of the events, with ids numbered in order of appearance; 1 is the message."""
    names: dict[str, str] = {}
    found = []
    for event in recorder.events:
        subject, _, kind = event["id"].rpartition(".")
        name = names.setdefault(subject, str(len(names) + 1))
        data = {
            key: names.get(value, value) if key in ("uuid", "step") else value for key, value in event["data"].items()
        }
        found.append((f"{name}.{kind}", event["type"], data))
    return found


def ends(recorder: RecorderForTests) -> list[dict[str, Any]]:
    return data_of(recorder.events, "workflow_execute_complete")


RUN = UUID("01900000-0000-7000-8000-000000000001")


def test_run_is_sent_event_by_event() -> None:
    script = [reply("Let me look.", ("c1", "get_weather", {"city": "Oslo"})), reply("31 degrees.")]
    fields = {"request_id": "req-1", "user_id": "ada", "app": "cli"}
    with recording() as recorder:
        agent(script, name="forecaster").invoke(asks(), on_thread(recorder, metadata=fields, tags=["test"], run_id=RUN))
    assert {event["session_id"] for event in recorder.events} == {"weather-1"}
    first, second = ({"step": name, "agent_name": "forecaster"} for name in ("2", "4"))
    events = numbered_events(recorder)
    # The request to the model in LangChain's form.
    requests = [data.pop("request") for _name, _type, data in events if "request" in data]
    asked = [[(one["type"], one["content"]) for one in request["messages"]] for request in requests]
    question = ("human", "What is the weather in Shanghai?")
    assert asked == [[question], [question, ("ai", "Let me look."), ("tool", "31 degrees in Oslo")]]
    assert events == [
        ("1.s", "workflow_execute_start", {
            "request_id": "req-1",
            "prompt": "What is the weather in Shanghai?",
            "session": {"end_user": "ada"},
            "metadata": {"app": "cli", "run_id": str(RUN), "tags": ["test"]},
        }),
        ("2.s", "llm_request_start", first),
        ("2.e", "llm_request_complete", {**first, "iteration": 0, "duration": 1000.0, "thought": "Let me look."}),
        # A call begins when the model requests it, and again when the tool starts.
        ("3.s", "tool_call_start", {"uuid": "3", "name": "get_weather", "call_id": "c1", "step": "2", "args": {"city": "Oslo"}}),
        ("3.u1", "tool_call_start", {"uuid": "3", "runs": True}),
        ("3.e", "tool_call_complete", {
            "uuid": "3", "name": "get_weather", "call_id": "c1", "duration": 2000.0, "result": {"output": "31 degrees in Oslo"},
        }),
        ("4.s", "llm_request_start", second),
        # Its text is the answer, as soon as it is available.
        ("4.e", "llm_request_complete", {**second, "iteration": 1, "duration": 1000.0}),
        ("1.u1a", "agent_complete", {"result": "31 degrees."}),
        ("1.e", "workflow_execute_complete", {
            "duration": 9000.0,
            "result": "31 degrees.",
            "metadata": {"app": "cli", "run_id": str(RUN), "tags": ["test"]},
        }),
    ]  # fmt: skip


# --- Agents in agents ---------------------------------------------------------------------------------------------


def test_graph_in_a_node_belongs_to_the_same_message() -> None:
    with recording() as recorder:
        inner = agent([reply("", ("i1", "get_weather", {"city": "Oslo"})), reply("Warm.")])
        graph = StateGraph(MessagesState)
        graph.add_node("ask", lambda state: inner.invoke(asks(), on_thread(recorder, "another")))
        graph.add_edge(START, "ask")
        graph.compile().invoke(asks(), on_thread(recorder))
    # Both handlers are called, and one of them records it.
    assert tree(recorder.events) == ["message", "  step ask", "    get_weather", "  step ask"]
    assert {event["session_id"] for event in recorder.events} == {"weather-1"}
    assert [end["result"] for end in ends(recorder)] == ["Warm."]


# --- Ways to run --------------------------------------------------------------------------------------------------


def test_stream_makes_one_step_without_token_events() -> None:
    script = [reply("One two three.", ("c1", "get_weather", {"city": "Oslo"}), id="a1"), reply("Four five.", id="a2")]
    with recording() as recorder:
        list(agent(script, model=StreamingChat).stream(asks(), on_thread(recorder), stream_mode="messages"))
    assert [id_ for id_, _type, _data in numbered_events(recorder)] == [
        "1.s", "2.s", "2.e", "3.s", "3.u1", "3.e", "4.s", "4.e", "1.u1a", "1.e"
    ]  # fmt: skip
    assert [data.get("thought") for data in data_of(recorder.events, "llm_request_complete")] == [
        "One two three. ",
        None,
    ]
    assert all(data["time_to_first_token"] > 0 for data in data_of(recorder.events, "llm_request_complete"))
    assert [data["args"] for data in data_of(recorder.events, "tool_call_start") if "args" in data] == [
        {"city": "Oslo"}
    ]


def test_concurrent_runs_are_separate_messages() -> None:
    async def both(recorder: RecorderForTests) -> None:
        threads = ("one", "two", "three")
        await asyncio.gather(*(agent(TWO).ainvoke(asks(name), on_thread(recorder, name)) for name in threads))

    with recording() as recorder:
        asyncio.run(both(recorder))
    whole = ["message", "  step", "    get_weather", "    get_weather", "  step"]
    for name in ("one", "two", "three"):
        events = [event for event in recorder.events if event["session_id"] == name]
        assert tree(events) == whole
        assert data_of(events, "workflow_execute_start")[0]["prompt"] == name


def test_interleaved_streams_are_two_messages() -> None:
    with recording() as recorder:
        one, two = (agent(TWO).stream(asks(name), on_thread(recorder, name)) for name in ("one", "two"))
        for _parts in zip(one, two, strict=True):
            assert recorder.current() is None
    assert [event["session_id"] for event in recorder.events if event["type"] == "workflow_execute_start"] == [
        "one",
        "two",
    ]
    assert len(ends(recorder)) == 2


def test_plain_replies_of_branches_are_steps_but_the_last() -> None:
    replies = {name: ScriptedChat(script=[reply(f"I am {name}.")]) for name in ("a", "b", "c")}
    graph = StateGraph(MessagesState)
    for name, chat in replies.items():
        graph.add_node(name, lambda state, chat=chat: {"messages": [chat.invoke(state["messages"])]})
        graph.add_edge(START, name)
    with recording() as recorder:
        state = graph.compile().invoke(asks(), on_thread(recorder))
    (end,) = ends(recorder)
    ended = data_of(recorder.events, "llm_request_complete")
    thoughts = {data["thought"] for data in ended if "thought" in data}
    assert end["result"] == state["messages"][-1].content
    assert thoughts | {end["result"]} == {"I am a.", "I am b.", "I am c."}


def test_replies_of_many_threads_leave_one_answer() -> None:
    names = [str(number) for number in range(40)]
    for _round in range(5):
        with recording() as recorder:
            handler = TracesiteHandler(recorder)

            def parallel(_given: str, handler: TracesiteHandler = handler) -> None:
                about: RunnableConfig = {"callbacks": [handler], **ensure_config()}
                with ThreadPoolExecutor(8) as pool:
                    chats = [ScriptedChat(script=[reply(name)]) for name in names]
                    list(pool.map(lambda chat: chat.invoke("Hello", about), chats))

            RunnableLambda(parallel).invoke("Go", {"callbacks": [handler]})
        (end,) = ends(recorder)
        ended = data_of(recorder.events, "llm_request_complete")
        thoughts = [data["thought"] for data in ended if "thought" in data]
        assert sorted([*thoughts, end["result"]]) == sorted(names)


def test_models_tools_and_chains_without_graph_are_messages() -> None:
    with recording() as recorder:
        ScriptedChat(script=[reply("Good day.")]).invoke([HumanMessage("Hello")], config(recorder))
        get_weather.invoke({"city": "Oslo"}, config(recorder))
        (RunnableLambda(lambda text: f"{text}!", name="shout") | RunnableLambda(str.upper)).invoke(
            "hey", config(recorder)
        )
        Library().invoke("Where?", config(recorder))
    assert [(data.get("prompt"), end.get("result")) for data, end in zip(
        data_of(recorder.events, "workflow_execute_start"), ends(recorder), strict=True
    )] == [("Hello", "Good day."), (None, None), ("hey", "HEY!"), ("Where?", None)]  # fmt: skip
    assert tree(recorder.events) == [
        *("message", "  step", "message", "  get_weather", "message", "message", "  Library")
    ]


# --- Failures -----------------------------------------------------------------------------------------------------


def test_tool_exception_passes_and_fails_the_message() -> None:
    script = [reply("", ("c1", "get_weather", {"city": "Atlantis"}))]
    with recording() as recorder, pytest.raises(ValueError, match="^no such city"):
        agent(script, handle_tool_errors=False).invoke(asks(), on_thread(recorder))
    assert [event["type"] for event in recorder.events[-3:]] == [
        "tool_call_start", "tool_call_error", "workflow_execute_complete"
    ]  # fmt: skip
    assert [data["error"] for data in data_of(recorder.events, "tool_call_error")] == ["ValueError: no such city"]
    assert ends(recorder)[0]["error"] == "ValueError: no such city"


def test_failed_and_retried_model_leaves_a_failed_step() -> None:
    script = [ConnectionError("away"), reply("", ("c1", "get_weather", {"city": "Oslo"})), reply("31 degrees.")]
    retry = RetryPolicy(initial_interval=0.001, retry_on=ConnectionError)
    with recording() as recorder:
        agent(script, retry=retry).invoke(asks(), on_thread(recorder))
    (end,) = ends(recorder)
    assert [(data["iteration"], data.get("error")) for data in data_of(recorder.events, "llm_request_complete")] == [
        (0, "ConnectionError: away"),
        (1, None),
        (2, None),
    ]
    assert (end["result"], end.get("error")) == ("31 degrees.", None)


def test_model_that_fails_for_good_fails_the_message() -> None:
    with recording() as recorder, pytest.raises(ConnectionError):
        ScriptedChat(script=[ConnectionError("away")]).invoke("Hello", config(recorder))
    assert tree(recorder.events) == ["message", "  step"]
    assert ends(recorder)[0]["error"] == "ConnectionError: away"


def test_abandoned_run_has_an_error() -> None:
    async def give_up(recorder: RecorderForTests) -> None:
        async def read() -> None:
            async for _part in agent(TWO).astream(asks(), on_thread(recorder, "cancelled")):
                reached.set()
                await asyncio.sleep(60)

        reached = asyncio.Event()
        task = asyncio.create_task(read())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with recording() as recorder:
        parts = agent(TWO).stream(asks(), on_thread(recorder, "left"))
        next(parts)
        parts.close()
        asyncio.run(give_up(recorder))
    assert [end["error"] for end in ends(recorder)] == [
        "GeneratorExit: its stream was not read to the end",
        "CancelledError: it was cancelled",
    ]
    assert recorder.current() is None


# --- People -------------------------------------------------------------------------------------------------------


def test_graph_interrupted_before_a_node_is_paused() -> None:
    script = [reply("", ("c1", "get_weather", {"city": "Oslo"})), reply("31 degrees.")]
    graph = agent(script, checkpointer=InMemorySaver(), interrupt_before=["tools"])
    with recording() as recorder:
        fields = on_thread(recorder)
        graph.invoke(asks(), fields)
        assert [data["status"] for data in data_of(recorder.events, "workflow_execute_start") if "status" in data] == [
            "paused"
        ]
        graph.invoke(None, fields)
    assert tree(recorder.events) == ["message", "  step", "    get_weather", "  step"]
    assert [end["result"] for end in ends(recorder)] == ["31 degrees."]


def test_new_question_on_a_paused_thread_is_a_new_message() -> None:
    script = [reply("", ("c1", "ask_person", {"question": "Book?"})), reply("Never mind then.")]
    graph = agent(script, [ask_person], checkpointer=InMemorySaver())
    with recording() as recorder:
        fields = on_thread(recorder)
        graph.invoke(asks("Book a flight."), fields)
        graph.update_state(fields, {"messages": [ToolMessage("no", tool_call_id="c1")]}, as_node="tools")
        graph.invoke(asks("Never mind."), fields)
    assert [data["prompt"] for data in data_of(recorder.events, "workflow_execute_start") if "prompt" in data] == [
        "Book a flight.",
        "Never mind.",
    ]


# --- Sessions, messages, references -------------------------------------------------------------------------------


def test_run_without_thread_uses_current_or_new_session() -> None:
    with recording() as recorder:
        with recorder.session("open"):
            agent([reply("One.")]).invoke(asks(), config(recorder))
            agent([reply("Two.")]).invoke(asks(), on_thread(recorder, "named"))
        with recorder.session("titled", title="A title"):
            agent([reply("Two.")]).invoke(asks(), on_thread(recorder, "titled"))
        agent([reply("Three.")]).invoke(asks(), config(recorder))
    *named, made = [event["session_id"] for event in recorder.events if event["type"] == "workflow_execute_complete"]
    assert named == ["open", "named", "titled"]
    assert [data.get("session") for data in data_of(recorder.events, "workflow_execute_start")] == [
        None, None, {"title": "A title"}, None
    ]  # fmt: skip
    assert made.startswith("session-")


def test_graph_inside_a_message_is_a_part_of_it() -> None:
    with recording() as recorder, recorder.session("open"), recorder.message("Question") as message:
        agent([reply("", ("c1", "get_weather", {"city": "Oslo"})), reply("31 degrees.")]).invoke(
            asks(), on_thread(recorder)
        )
        assert message.content == "31 degrees."
        message.content = "It is 31 degrees."
    assert tree(recorder.events) == ["message", "  step", "    get_weather", "  step"]
    assert [(event["session_id"], event["data"]["result"]) for event in recorder.events[-1:]] == [
        ("open", "It is 31 degrees.")
    ]


@pytest.mark.parametrize(
    ("inputs", "prompt"),
    [
        ({"messages": [HumanMessage("First"), AIMessage("Yes"), HumanMessage("Second")]}, "Second"),
        ({"messages": [("user", "In short form")]}, "In short form"),
        ({"messages": [{"role": "user", "content": "As an object"}]}, "As an object"),
        ({"messages": [HumanMessage([{"type": "text", "text": "Look"}])]}, [{"type": "text", "text": "Look"}]),
        ({"messages": HumanMessage("Alone")}, "Alone"),
    ],
)
def test_prompt_is_the_last_human_message(inputs: dict[str, Any], prompt: Any) -> None:
    with recording() as recorder:
        agent([reply("Well.")]).invoke(inputs, on_thread(recorder))
    assert recorder.events[0]["data"]["prompt"] == prompt


# --- Effects on the host ------------------------------------------------------------------------------------------


def test_graph_and_other_callbacks_are_not_affected() -> None:
    class Other(BaseCallbackHandler):
        def __init__(self) -> None:
            self.heard: list[tuple[str, Any]] = []

        def on_tool_start(self, serialized: dict[str, Any], input_str: str, **kwargs: Any) -> None:
            self.heard.append(("start", kwargs["inputs"]))

        def on_tool_end(self, output: Any, **kwargs: Any) -> None:
            self.heard.append(("end", output.content))

    alone, beside = Other(), Other()
    expected = agent(TWO).invoke(asks(), {"callbacks": [alone]})
    with recording() as recorder:
        state = agent(TWO).invoke(asks(), {"callbacks": [TracesiteHandler(recorder), beside]})
    assert [message.content for message in state["messages"]] == [message.content for message in expected["messages"]]
    assert sorted(map(str, beside.heard)) == sorted(map(str, alone.heard))


def test_disabled_recorder_records_nothing() -> None:
    recorder = RecorderForTests(enabled=False)
    handler = TracesiteHandler(recorder)
    agent(TWO).invoke(asks(), {"callbacks": [handler]})
    assert (recorder.events, len(handler._runs)) == ([], 0)


def test_handler_never_raises_into_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise LookupError("a mistake of ours")

    with recording(strict=False) as recorder:
        with monkeypatch.context() as patched:
            patched.setattr(langchain, "entries_of", broken)
            state = agent(TWO).invoke(asks(), on_thread(recorder))
        assert state["messages"][-1].content == "Warm in both."
        assert recorder.report().failed > 0
    # The events are recorded without the values that could not be read.
    assert tree(recorder.events) == ["message", "  step", "  get_weather", "  get_weather", "  step"]
    assert len(ends(recorder)) == 1
    with recording() as strict, pytest.raises(LookupError), monkeypatch.context() as patched:
        patched.setattr(langchain, "entries_of", broken)
        agent(TWO).invoke(asks(), on_thread(strict))


def test_runs_are_removed_at_their_end_or_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with recording() as recorder:
        handler = TracesiteHandler(recorder)
        agent(SCRIPT).invoke(asks(), {"callbacks": [handler]})
        assert len(handler._runs) == 0
        monkeypatch.setattr(langchain, "_MOST_RUNS", 3)
        for _one in range(5):
            handler.on_chain_start(None, "Hello", run_id=uuid4())
        assert len(handler._runs) == 3


@pytest.mark.system
def test_missing_langchain_is_named() -> None:
    program = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "import tracesite_sdk\n"
        "try:\n    import tracesite_sdk.langchain\n"
        "except ImportError as missing:\n    print(missing)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "tracesite_sdk.langchain needs langchain-core: pip install langchain-core.\n"


@pytest.mark.system
def test_recorder_does_not_import_langchain() -> None:
    program = "import sys, tracesite_sdk; print([name for name in sys.modules if name.startswith('lang')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
