"""Test the handler of LangChain and LangGraph: real graphs on a scripted model, and the stored rows."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any
from uuid import UUID, uuid4

import msgspec
import pytest
from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForLLMRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt

from access_app.models import Project
from messages_app.models import Message, Session
from sdk.tests.formats import reading
from traces_app.ingest.pipeline import ingest
from traces_app.queries import messages as queries
from traces_app.queries.contexts import inputs
from tracesite_sdk import langchain
from tracesite_sdk.formats import langchain as transcripts_of_langchain
from tracesite_sdk.langchain import TracesiteHandler
from tracesite_sdk.testing import RecorderForTests, recording, tree

from .conftest import send


class ScriptedChat(BaseChatModel):
    """A model that answers with the lines of a script in turn, and raises those that are exceptions."""

    script: list[Any]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> ScriptedChat:  # type: ignore[override]
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        line = self.script.pop(0)
        if isinstance(line, Exception):
            raise line
        return ChatResult(generations=[ChatGeneration(message=line)])


class StreamingChat(ScriptedChat):
    """A model that streams each word separately."""

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        line = self.script.pop(0)
        for word in line.content.split():
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} ", id=line.id))
        for index, call in enumerate(line.tool_calls):
            name, args = call["name"], msgspec.json.encode(call["args"]).decode()
            for piece in ({"name": name, "id": call["id"], "args": ""}, {"name": None, "id": None, "args": args}):
                chunk = AIMessageChunk(content="", id=line.id, tool_call_chunks=[{**piece, "index": index, "type": "tool_call_chunk"}])  # type: ignore[typeddict-item]  # fmt: skip
                yield ChatGenerationChunk(message=chunk)


class Library(BaseRetriever):
    """A retriever that returns the same two passages for every question."""

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [
            Document(page_content="Shanghai lies at the sea.", id="p1", metadata={"title": "Cities", "score": 0.9}),
            Document(page_content="So does Oslo.", metadata={"source": "https://cities.example/oslo", "page": 4}),
        ]


def reply(text: str = "", *calls: tuple[str, str, dict[str, Any]], **fields: Any) -> AIMessage:
    return AIMessage(text, tool_calls=[{"id": id_, "name": name, "args": args} for id_, name, args in calls], **fields)


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"31 degrees in {city}"


@tool(response_format="content_and_artifact")
def measure(city: str) -> tuple[str, dict[str, Any]]:
    """Measures."""
    return "2 rows", {"rows": [[1], [2]]}


@tool
def transfer_to_writer() -> str:
    """Hands over."""
    return "Successfully transferred to writer"


TOOLS = [get_weather, measure, transfer_to_writer]


def agent(
    script: Sequence[Any],
    tools: Sequence[BaseTool] = TOOLS,
    *,
    name: str | None = None,
    model: type[ScriptedChat] = ScriptedChat,
    before: Callable[[], object] = lambda: None,
    retry: RetryPolicy | None = None,
    handle_tool_errors: bool = True,
    **compiled: Any,
) -> Any:
    """Return LangGraph's usual agent: it calls the model and runs the requested tools until the model requests none."""
    chat = model(script=list(script))

    def ask(state: MessagesState) -> dict[str, Any]:
        before()
        return {"messages": [chat.invoke(state["messages"])]}

    async def ask_async(state: MessagesState) -> dict[str, Any]:
        before()
        return {"messages": [await chat.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", RunnableLambda(ask, ask_async, name="agent"), retry_policy=retry)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=handle_tool_errors))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(name=name, **compiled)


def asks(text: str = "What is the weather in Shanghai?") -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def config(recorder: RecorderForTests, **fields: Any) -> RunnableConfig:
    return {"callbacks": [TracesiteHandler(recorder)], **fields}  # type: ignore[typeddict-item]


def on_thread(recorder: RecorderForTests, thread: str = "weather-1", **fields: Any) -> RunnableConfig:
    return config(recorder, configurable={"thread_id": thread}, **fields)


def data_of(events: Sequence[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] in types]


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


# --- Rows ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def other(db: None) -> Project:
    return Project.objects.create(slug="other")


def answers(project: Project) -> list[dict[str, Any]]:
    """Return the assistant messages from the API."""
    found = Message.objects.filter(project_id=project.pk, role="assistant").order_by("id")
    documents = msgspec.json.encode(queries.messages([str(one.pk) for one in found]))
    return msgspec.json.decode(documents, type=list[dict[str, Any]])


def inputs_of(answer: dict[str, Any]) -> list[Any]:
    """Return what the models of the steps were asked, None where it is not known."""
    refs = [step.get("input_ref") for step in answer["agent_steps"]]
    found = inputs([(answer["id"], ref) for ref in refs if ref])
    return [msgspec.json.decode(msgspec.json.encode(found[(answer["id"], ref)])) if ref else None for ref in refs]


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


INVALID = AIMessage(
    "",
    invalid_tool_calls=[{"id": "c6", "name": "measure", "args": "{city", "error": None, "type": "invalid_tool_call"}],
    tool_calls=[{"id": "c7", "name": "get_weather", "args": {"city": "Oslo"}}],
)
SCRIPT = [
    reply(
        "Both at once.",
        ("c1", "get_weather", {"city": "Shanghai"}),
        ("c2", "get_weather", {"city": "Atlantis"}),
        ("c3", "measure", {"city": "Oslo"}),
        ("c4", "no_such_tool", {}),
        additional_kwargs={"reasoning_content": "Two cities were named."},
        usage_metadata={"input_tokens": 20, "output_tokens": 9, "total_tokens": 29},
        response_metadata={"model_name": "scripted-1", "finish_reason": "tool_calls"},
    ),
    INVALID,
    AIMessage([{"type": "thinking", "thinking": "It is enough."}, {"type": "text", "text": "Over to the writer."},
               {"type": "tool_use", "id": "c8", "name": "transfer_to_writer", "input": {}}],
              tool_calls=[{"id": "c8", "name": "transfer_to_writer", "args": {}}]),
    reply("31 degrees.", usage_metadata={"input_tokens": 30, "output_tokens": 3, "total_tokens": 33}),
]  # fmt: skip


def test_recorded_run_equals_its_imported_transcript(project: Project, other: Project) -> None:
    with recording() as recorder:
        state = agent(SCRIPT).invoke(asks(), on_thread(recorder))
    send(project, recorder)
    (recorded,) = answers(project)
    transcript = [message.model_dump() for message in state["messages"]]
    ingest(other.pk, [reading.only(transcripts_of_langchain, transcript)], source="import")
    (imported,) = answers(other)
    steps, expected = (without_ids_and_times(one["agent_steps"]) for one in (recorded, imported))
    # The transcript holds only the error text that the model received.
    raised, numbered_events = (one[0]["tool_calls"][1]["result"] for one in (steps, expected))
    assert (raised.pop("error"), numbered_events.pop("error")) == (
        "ValueError: no such city",
        numbered_events["output"],
    )
    # The request of the answer is a step, with its tokens; a transcript has no requests.
    *others, of_answer = steps
    assert others == expected
    usage = {"input_tokens": 30, "output_tokens": 3, "total_tokens": 33}
    assert of_answer == {"iteration": 3, "thought": "", "usage": usage, "tool_calls": []}
    assert recorded["content"] == imported["content"] == "31 degrees."
    assert [(one["input_tokens"], one["output_tokens"]) for one in (recorded, imported)] == [(50, 12)] * 2
    assert [step["iteration"] for step in steps] == [0, 1, 2, 3]


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


TWO = [
    reply("Both.", ("c1", "get_weather", {"city": "Shanghai"}), ("c2", "get_weather", {"city": "Oslo"})),
    reply("Warm in both.", id="last"),
]


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


@tool
def ask_person(question: str) -> str:
    """Asks a person."""
    return str(interrupt({"question": question}))


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
