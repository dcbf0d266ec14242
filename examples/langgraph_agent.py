"""An example to run and to copy: a recorded LangGraph agent. The model follows a script; everything else is real.

    TRACESITE_URL=http://127.0.0.1:8000 TRACESITE_KEY=ts_... python -m examples.langgraph_agent

The order desk of a shop gets a question about a parcel: it looks up the order and the rules at once, fails to change the
address, and runs another agent, in a tool, to ask the courier. Only `recorder` and `handler` belong to Tracesite. It needs
LangGraph: pip install langgraph.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from secrets import token_hex
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tracesite_sdk import Recorder
from tracesite_sdk.langchain import TracesiteHandler

QUESTION = "Where is my order 2041? And can it still go to 12 Harbour Street instead?"
SECONDS = 0.4
"""Duration of the model; tools take half of it."""


class ScriptedChat(BaseChatModel):
    """A model that returns its scripted replies one after the other."""

    lines: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        time.sleep(SECONDS)
        line = self.lines[sum(isinstance(message, AIMessage) for message in messages)]
        read, written = sum(len(str(message.content)) for message in messages) // 3, len(str(line)) // 9
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        about = {"model_name": "scripted-chat-1"}
        line = line.model_copy(update={"usage_metadata": usage, "response_metadata": about})
        return ChatResult(generations=[ChatGeneration(message=line)])


def say(text: str, *calls: tuple[str, str, dict[str, Any]]) -> AIMessage:
    """Return a reply; calls are (id, tool, arguments)."""
    return AIMessage(text, tool_calls=[{"id": id_, "name": name, "args": args} for id_, name, args in calls])


class Rules(BaseRetriever):
    """Returns all rules of the shop; a real retriever would search."""

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        about = {"title": "Delivery rules", "source": "https://shop.example/rules", "chunk_index": 3, "score": 0.87}
        text = "An address can be changed until the parcel leaves the warehouse; after that, only the courier can."
        return [Document(id="rules-3", page_content=text, metadata=about)]


@tool
def find_order(number: int) -> dict[str, Any]:
    """Look up an order."""
    time.sleep(SECONDS / 2)
    return {"number": number, "status": "shipped", "parcel": "PX-77120", "address": "4 Mill Lane"}


@tool
def read_rules(question: str) -> str:
    """Read the shop's rules about a question."""
    return "\n".join(document.page_content for document in Rules().invoke(question))


@tool
def change_address(number: int, address: str) -> str:
    """Change the address of an order."""
    time.sleep(SECONDS / 2)
    raise ValueError("parcel PX-77120 has left the warehouse")


@tool
def track_parcel(parcel: str) -> dict[str, Any]:
    """Find the location of a parcel."""
    time.sleep(SECONDS / 2)
    return {"parcel": parcel, "at": "depot north", "expected": "tomorrow, 10:00 to 12:00"}


@tool
def ask_courier_desk(task: str) -> str:
    """Give a task to the courier desk, which is an agent of its own."""
    desk = agent("courier desk", COURIER_LINES, [track_parcel])
    return str(desk.invoke({"messages": [HumanMessage(task)]})["messages"][-1].content)


COURIER_LINES = [
    say("First, where it is.", ("call_5", "track_parcel", {"parcel": "PX-77120"})),
    say("It is in depot north and comes tomorrow between 10 and 12. The driver was told to ring at 12 Harbour Street."),
]
ORDER_LINES = [
    say(
        "I need the order, and what the rules say about a change.",
        ("call_1", "find_order", {"number": 2041}),
        ("call_2", "read_rules", {"question": "Can the address of an order be changed?"}),
    ),
    say(
        "It has been shipped; perhaps the change still works.",
        ("call_3", "change_address", {"number": 2041, "address": "12 Harbour Street"}),
    ),
    say(
        "Too late for the warehouse. The courier can do it.",
        ("call_4", "ask_courier_desk", {"task": "Where is PX-77120, and can it go to 12 Harbour Street?"}),
    ),
    say("Your parcel comes tomorrow between 10 and 12, to 12 Harbour Street: the courier has been told."),
]


def agent(name: str, lines: Sequence[AIMessage], tools: Sequence[BaseTool]) -> Any:
    """Return the usual loop as a graph: call the model, run its tool calls, until there are none."""
    model = ScriptedChat(lines=list(lines))

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([SystemMessage(f"You are the {name}."), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", ask)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(name=name)


def run(recorder: Recorder, thread: str) -> str:
    """Run the order desk with QUESTION on a thread, and return its answer."""
    desk = agent("order desk", ORDER_LINES, [find_order, read_rules, change_address, ask_courier_desk])
    handler = TracesiteHandler(recorder)
    # Optional: the session gives the thread a title.
    with recorder.session(thread, title="Order 2041 goes elsewhere", end_user="ada"):
        state = desk.invoke(
            {"messages": [HumanMessage(QUESTION)]},
            {"callbacks": [handler], "configurable": {"thread_id": thread}},
        )
    return str(state["messages"][-1].content)


if __name__ == "__main__":
    recorder = Recorder()  # the server is in TRACESITE_URL, the key in TRACESITE_KEY
    thread = f"order-desk-{token_hex(4)}"
    print(f"{QUESTION}\n{run(recorder, thread)}\n")
    if left := recorder.close(timeout=10):
        raise SystemExit(f"{left} events could not be sent yet: tracesite status")
    print(f"Recorded as session {thread}: {os.environ['TRACESITE_URL']}/admin/messages_app/session/?q={thread}")
