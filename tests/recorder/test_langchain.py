"""Test the handler of LangChain and LangGraph: the rows of real graphs on a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Session
from sdk.tests.formats import reading
from sdk.tests.recorder.scripted_graphs import (
    SCRIPT,
    TWO,
    Library,
    ScriptedChat,
    agent,
    ask_person,
    asks,
    get_weather,
    on_thread,
    reply,
)
from traces_app.ingest.pipeline import ingest
from tracesite_sdk.formats import langchain as transcripts_of_langchain
from tracesite_sdk.testing import RecorderForTests, recording

from .conftest import answers, inputs_of, send


@pytest.fixture
def other(db: None) -> Project:
    return Project.objects.create(slug="other")


IDS_AND_TIMES = (
    *("uuid", "id", "timestamp", "duration", "started_at", "completed_at", "created_at", "updated_at"),
    # LangChain gives its messages random ids, which are in the input.
    *("input_ref", "time_to_first_token"),
)


def without_ids_and_times(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return steps without ids and times, but with the ids that the model gave its calls."""
    return [
        {name: value for name, value in step.items() if name not in IDS_AND_TIMES}
        | {
            "tool_calls": [
                {name: value for name, value in call.items() if name not in IDS_AND_TIMES or name == "id"}
                for call in step["tool_calls"]
            ]
        }
        for step in steps
    ]


def test_recorded_run_equals_its_imported_transcript(project: Project, other: Project) -> None:
    with recording() as recorder:
        state = agent(SCRIPT).invoke(asks(), on_thread(recorder))
    send(project, recorder)
    (recorded,) = answers(project)
    transcript = [message.model_dump() for message in state["messages"]]
    ingest(primary, other.pk, [reading.only(transcripts_of_langchain, transcript)], source="import")
    (imported,) = answers(other)
    steps, expected = (without_ids_and_times(one["agent_steps"]) for one in (recorded, imported))
    # The transcript holds only the error text that the model received.
    raised, numbered_events = (one[0]["tool_calls"][1]["result"] for one in (steps, expected))
    assert (raised.pop("error"), numbered_events.pop("error")) == (
        "ValueError: no such city",
        numbered_events["output"],
    )
    assert steps == expected
    # The request of the answer is a step, with its tokens.
    usage = {"input_tokens": 30, "output_tokens": 3, "total_tokens": 33}
    assert steps[-1] == {"iteration": 3, "thought": "", "usage": usage, "tool_calls": []}
    assert recorded["content"] == imported["content"] == "31 degrees."
    assert [(one["input_tokens"], one["output_tokens"]) for one in (recorded, imported)] == [(50, 12)] * 2
    assert [step["iteration"] for step in steps] == [0, 1, 2, 3]


def test_call_starts_when_its_tool_takes_it_up(project: Project) -> None:
    script = [reply("", ("c1", "get_weather", {"city": "Oslo"})), reply("31 degrees.")]
    with recording() as recorder:
        agent(script).invoke(asks(), on_thread(recorder))
    send(project, recorder)
    (call,) = answers(project)[0]["agent_steps"][0]["tool_calls"]
    _asked, runs, done = [event["timestamp"] for event in recorder.events if event["type"].startswith("tool_call")]
    assert (call["started_at"], call["completed_at"], call["duration"]) == (runs, done, 2000)


# --- Agents in agents ---------------------------------------------------------------------------------------------


def test_agent_in_a_tool_is_inside_its_call(project: Project) -> None:
    helper = agent([reply("I look.", ("h1", "get_weather", {"city": "Oslo"})), reply("It is warm.")], name="helper")
    with recording() as recorder:

        @tool
        def ask_helper(task: str) -> str:
            """Asks the helper."""
            with recorder.tool_call("read_notes", {"about": task}) as call:
                call.result = "none"
            return str(helper.invoke(asks(task))["messages"][-1].content)

        script = [reply("", ("c1", "ask_helper", {"task": "Oslo?"})), reply("Warm.")]
        agent(script, [ask_helper]).invoke(asks(), on_thread(recorder))
    send(project, recorder)
    (answer,) = answers(project)
    steps = answer["agent_steps"]
    calls = {call["name"]: call for step in steps for call in step["tool_calls"]}
    assert answer["content"] == "Warm."
    assert [(step["iteration"], step.get("agent_name"), step["thought"], step.get("metadata")) for step in steps] == [
        (0, None, "", None),
        (0, "helper", "I look.", {"parent_call": "c1"}),
        # Its last message is not the answer of the run.
        (0, "helper", "It is warm.", {"parent_call": "c1"}),
        (1, None, "", None),
    ]
    assert calls["ask_helper"]["result"]["output"] == "It is warm."
    assert {name: call.get("parent") for name, call in calls.items()} == {
        "ask_helper": None,
        "read_notes": calls["ask_helper"]["uuid"],
        "get_weather": calls["ask_helper"]["uuid"],
    }


def test_agents_as_nodes_are_named_and_the_last_answers(project: Project) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("researcher", agent([reply("", ("c1", "get_weather", {"city": "Oslo"})), reply("31 degrees.")]))
    writer = ScriptedChat(script=[reply("It will be warm.")])
    graph.add_node("writer", lambda state: {"messages": [writer.invoke(state["messages"])]})
    graph.add_edge(START, "researcher")
    graph.add_edge("researcher", "writer")
    with recording() as recorder:
        graph.compile().invoke(asks(), on_thread(recorder))
    send(project, recorder)
    (answer,) = answers(project)
    assert answer["content"] == "It will be warm."
    assert [(step["iteration"], step["agent_name"], step["thought"]) for step in answer["agent_steps"]] == [
        (0, "researcher", ""),
        (1, "researcher", "31 degrees."),
        (2, "writer", ""),
    ]


def test_handoff_to_another_agent_ends_at_once(project: Project) -> None:
    @tool
    def transfer_to_booker(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Hands over to the booker."""
        message = ToolMessage("Handed over.", tool_call_id=tool_call_id)
        return Command(goto="booker", graph=Command.PARENT, update={"messages": [message]})

    booker = ScriptedChat(script=[reply("Booked.")])
    graph = StateGraph(MessagesState)
    graph.add_node("planner", agent([reply("", ("c1", "transfer_to_booker", {}))], [transfer_to_booker]))
    graph.add_node("booker", lambda state: {"messages": [booker.invoke(state["messages"])]})
    graph.add_edge(START, "planner")
    with recording() as recorder:
        graph.compile().invoke(asks("A flight, please."), on_thread(recorder))
    send(project, recorder)
    (answer,) = answers(project)
    step, of_answer = without_ids_and_times(answer["agent_steps"])
    assert (answer["content"], answer["error"]) == ("Booked.", "")
    assert of_answer == {"iteration": 1, "thought": "", "agent_name": "booker", "tool_calls": []}
    assert step == {
        "iteration": 0,
        "thought": "",
        "agent_name": "planner",
        "tool_calls": [{
            "id": "c1",
            "name": "transfer_to_booker",
            "args": {},
            "status": "success",
            "result": {"status": "success", "success": True, "output": "Handed over."},
            "metadata": {"handoff_to": "booker"},
        }],
    }  # fmt: skip


# --- Ways to run --------------------------------------------------------------------------------------------------


def rows_of(project: Project, recorder: RecorderForTests) -> list[tuple[Any, ...]]:
    send(project, recorder)
    return [(one["content"], without_ids_and_times(one["agent_steps"])) for one in answers(project)]


async def astreamed(graph: Any, recorder: RecorderForTests) -> None:
    async for _part in graph.astream(asks(), on_thread(recorder), stream_mode=["messages", "updates"]):
        assert recorder.current() is None


async def with_events(graph: Any, recorder: RecorderForTests) -> None:
    kinds = [event["event"] async for event in graph.astream_events(asks(), on_thread(recorder), version="v2")]
    assert "on_tool_end" in kinds


@pytest.mark.parametrize(
    "run",
    [
        lambda graph, recorder: graph.ainvoke(asks(), on_thread(recorder)),
        astreamed,
        with_events,
        lambda graph, recorder: asyncio.to_thread(lambda: list(graph.stream(asks(), on_thread(recorder)))),
    ],
    ids=["ainvoke", "astream", "astream_events", "stream"],
)
def test_every_way_to_run_stores_the_same_rows(
    project: Project, other: Project, run: Callable[[Any, RecorderForTests], Coroutine[Any, Any, Any]]
) -> None:
    with recording() as recorder:
        agent(TWO).invoke(asks(), on_thread(recorder))
    with recording() as again:
        asyncio.run(run(agent(TWO), again))
    expected = rows_of(other, recorder)
    assert len(expected[0][1][0]["tool_calls"]) == 2
    assert rows_of(project, again) == expected


def test_requests_are_the_inputs_of_steps(project: Project) -> None:
    state: dict[str, Any] = {}

    def changing(name: str) -> str:
        # After the request; the message is the object that the model was given.
        state["question"].content = "Changed."
        return name

    script = [reply("", ("c1", "changing", {"name": "x"})), reply("Done.")]
    with recording() as recorder:
        changing_tool = tool(description="Changes the question.")(changing)
        question = state["question"] = HumanMessage("Is it warm?")
        chat = ScriptedChat(script=script)
        fields = on_thread(recorder)
        chat.invoke([question], {**fields, "metadata": {"thread_id": "weather-1"}}, stop=["END"], temperature=0.5)
        changing_tool.invoke({"name": "x"})
        chat.invoke([question], fields, tools=[{"name": "changing"}])
    send(project, recorder)
    first, second = (inputs_of(answer) for answer in answers(project))
    assert [(one["type"], one["content"]) for one in first[0]["messages"]] == [("human", "Is it warm?")]
    assert (first[0]["parameters"]["stop"], first[0]["parameters"]["temperature"]) == (["END"], 0.5)
    assert [(one["type"], one["content"]) for one in second[0]["messages"]] == [("human", "Changed.")]
    assert second[0]["tools"] == [{"name": "changing"}]


def test_answers_of_two_graphs_in_a_message_stay_apart(project: Project) -> None:
    with recording() as recorder, recorder.message("Both?"):
        for text in ("First.", "Second."):
            usage = {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}
            agent([reply(text, usage_metadata=usage)]).invoke(asks(), on_thread(recorder))
    send(project, recorder)
    (answer,) = answers(project)
    assert (answer["content"], answer["input_tokens"]) == ("First.", 14)
    assert answer["agent_steps"][1]["thought"] == "Second."


# --- People -------------------------------------------------------------------------------------------------------


def test_graph_that_waits_is_paused_and_resumes_its_message(project: Project) -> None:
    script = [
        reply("", ("c1", "get_weather", {"city": "Oslo"}), ("c2", "ask_person", {"question": "Book?"})),
        reply("Booked."),
    ]
    graph = agent(script, [get_weather, ask_person], checkpointer=InMemorySaver())
    with recording() as recorder:
        graph.invoke(asks("Book a flight."), on_thread(recorder))
        send(project, recorder)
        (waiting,) = answers(project)
        assert Session.objects.get(external_id="weather-1").status == "paused"
        graph.invoke(Command(resume="yes"), on_thread(recorder))
    send(project, recorder)
    (answer,) = answers(project)
    assert Session.objects.get(external_id="weather-1").status == "completed"
    (interrupt_,) = waiting["metadata"]["interrupts"]
    assert interrupt_["value"] == {"question": "Book?"}
    assert [(one["is_completed"], one["content"], one["error"]) for one in (waiting, answer)] == [
        (False, "", ""),
        (True, "Booked.", ""),
    ]
    found = [
        [(call["name"], call["status"]) for call in one["agent_steps"][0]["tool_calls"]] for one in (waiting, answer)
    ]
    assert found == [
        [("get_weather", "success"), ("ask_person", "pending")],
        [("get_weather", "success"), ("ask_person", "success")],
    ]
    # The node restarted, and with it the tool that had finished.
    assert [call["metadata"] for call in answer["agent_steps"][0]["tool_calls"]] == [{"runs": 2}, {"runs": 2}]


# --- Sessions, messages, references -------------------------------------------------------------------------------


def test_retriever_is_a_call_with_unique_references(project: Project) -> None:
    script = [reply("", ("c1", "get_weather", {"city": "Oslo"})), reply("At the sea.")]
    with recording() as recorder:
        agent(script, before=lambda: Library().invoke("Where is Oslo?")).invoke(asks(), on_thread(recorder))
    send(project, recorder)
    (answer,) = answers(project)
    calls = [call for step in answer["agent_steps"] for call in step["tool_calls"]]
    first, second = answer["knowledge_references"]
    assert {name: value for name, value in first.items() if value} == {
        "id": "p1",
        "content": "Shanghai lies at the sea.",
        "knowledge_title": "Cities",
        "score": 0.9,
    }
    assert (second["seq"], second["knowledge_source"], second["metadata"]) == (
        1,
        "https://cities.example/oslo",
        {"page": 4},
    )
    assert [call["name"] for call in calls] == ["Library", "get_weather", "Library"]
    assert (calls[0]["args"], calls[0]["result"]["output"]) == (
        {"query": "Where is Oslo?"},
        "Shanghai lies at the sea.\n\nSo does Oslo.",
    )
