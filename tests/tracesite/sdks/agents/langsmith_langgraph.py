"""LangSmith, configured by LANGSMITH_* variables: the same agent as a LangGraph, which needs no line of code for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, tool
from langchain_core.tracers.langchain import wait_for_all_tracers
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langsmith import Client
from openai import OpenAI
from planner import EXPERT, MODEL, PLANNER, QUESTION, TEMPERATURE, TOOLS
from planner import get_traffic as find_traffic
from planner import get_weather as find_weather

RUN = uuid4()


class Chat(BaseChatModel):
    """OpenAI's streamed chat completions; langchain-openai does the same with many more options."""

    @property
    def _llm_type(self) -> str:
        return "openai-chat"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError("it is streamed")

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        given: Any = convert_to_openai_messages(messages)
        for chunk in OpenAI().chat.completions.create(
            model=MODEL, messages=given, stream=True, stream_options={"include_usage": True}, **kwargs
        ):
            yield ChatGenerationChunk(message=message_of(chunk))
            for choice in chunk.choices:
                if run_manager and choice.delta.content:
                    run_manager.on_llm_new_token(choice.delta.content)


def message_of(chunk: Any) -> AIMessageChunk:
    if chunk.usage:
        counts = {"input_tokens": chunk.usage.prompt_tokens, "output_tokens": chunk.usage.completion_tokens}
        usage: Any = {**counts, "total_tokens": chunk.usage.total_tokens}
        return AIMessageChunk("", usage_metadata=usage, response_metadata={"model_name": chunk.model})
    [choice] = chunk.choices
    calls: list[Any] = [
        {"index": call.index, "id": call.id, "name": call.function.name, "args": call.function.arguments}
        for call in choice.delta.tool_calls or ()
    ]
    return AIMessageChunk(choice.delta.content or "", tool_call_chunks=calls)


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return find_weather(city)


@tool
def get_traffic(city: str) -> str:
    """Get the traffic of a city."""
    return find_traffic(city)


@tool
def ask_expert(question: str) -> str:
    """Ask an expert."""
    return answer(agent("expert", EXPERT, []), question)


def agent(name: str, instructions: str, tools: list[BaseTool]) -> Any:
    """Return the usual loop as a graph: call the model, run its tool calls, until there are none."""
    model = Chat().bind(temperature=TEMPERATURE, **({"tools": TOOLS} if tools else {}))

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([SystemMessage(instructions), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", ask)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(name=name)


def answer(graph: Any, question: str, **config: Any) -> str:
    about: Any = {"configurable": {"thread_id": "sdk-session"}, "metadata": {"user_id": "sdk-user"}, **config}
    last = ""
    for _mode, state in graph.stream({"messages": [HumanMessage(question)]}, about, stream_mode=["messages", "values"]):
        last = state["messages"][-1].text if _mode == "values" else last
    return last


result = answer(agent("planner", PLANNER, [get_weather, get_traffic, ask_expert]), QUESTION, run_id=RUN)
wait_for_all_tracers()
Client().create_feedback(RUN, "helpful", score=0.75, comment="Exact.", trace_id=RUN)
print(result)
