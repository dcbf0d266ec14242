"""Real graphs of LangGraph on a scripted model. Needs langchain-core and langgraph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from langchain_core.callbacks import CallbackManagerForLLMRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import RetryPolicy, interrupt

from tracesite_sdk.langchain import TracesiteHandler
from tracesite_sdk.testing import RecorderForTests


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

TWO = [
    reply("Both.", ("c1", "get_weather", {"city": "Shanghai"}), ("c2", "get_weather", {"city": "Oslo"})),
    reply("Warm in both.", id="last"),
]


@tool
def ask_person(question: str) -> str:
    """Asks a person."""
    return str(interrupt({"question": question}))
