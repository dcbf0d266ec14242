"""An example of the time machine to run and to copy: a LangGraph agent fails, is replayed from that node, and goes on.

    TRACESITE_URL=http://127.0.0.1:8000 TRACESITE_KEY=ts_... python -m examples.langgraph_replay

The handler keeps the state before each node. The order number is wrong, so that `look_up` fails; the replay runs it with another
one. The model follows a script; everything else is real. It needs LangGraph: pip install langgraph.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages

from tracesite_sdk import Overrides, Recorder, Replay, ServerStore, Snapshots, SnapshotStore, TimeMachine, Workflow
from tracesite_sdk.langchain import TracesiteHandler

ORDERS = {2041: {"status": "in transit", "arrives": "Monday"}}
NODES = ("plan", "look_up", "answer")


class State(MessagesState):
    """The state that the nodes share."""

    order: int
    found: dict[str, str]


def find_order(number: int) -> dict[str, str]:
    """Look up an order."""
    if number not in ORDERS:
        raise LookupError(f"There is no order {number}.")
    return ORDERS[number]


def order_graph() -> Any:
    """Return a graph of three nodes after each other."""
    planner = FakeMessagesListChatModel(responses=[AIMessage("I look up the order.")])
    writer = FakeMessagesListChatModel(responses=[AIMessage("Your parcel arrives on Monday.")])
    tool = StructuredTool.from_function(find_order)
    graph = StateGraph(State)

    # The config has the callbacks, also where a node is run alone.
    def plan(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [planner.invoke(state["messages"], config)]}

    def look_up(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"found": tool.invoke({"number": state["order"]}, config)}

    def answer(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [writer.invoke(state["messages"], config)]}

    for node in (plan, look_up, answer):
        graph.add_node(node)
    for before, after in zip((START, *NODES), NODES, strict=False):
        graph.add_edge(before, after)
    return graph.compile()


def failed_and_replayed(recorder: Recorder, store: SnapshotStore) -> tuple[str, Replay]:
    """Run the example, and return the session that failed and its replay."""
    recorder.snapshots = Snapshots(store)
    graph, session_id = order_graph(), f"order-{token_hex(4)}"
    config = {"callbacks": [TracesiteHandler(recorder, snapshots=True)], "configurable": {"thread_id": session_id}}
    state = {"messages": [HumanMessage("Where is my order 2014?")], "order": 2014}

    def run(node: str, context: Any, overrides: Overrides) -> Any:
        update = graph.nodes[node].invoke(context, config)
        messages = add_messages(context["messages"], update.get("messages", []))
        return {**context, **update, "messages": messages}

    try:
        graph.invoke(state, config)
    except LookupError:
        # The run has failed, as the trace shows.
        machine = TimeMachine(recorder.snapshots.store, Workflow.chain(run, NODES), recorder=recorder)
        replay = machine.replay(
            session_id=session_id, node_id="look_up", overrides={"context": {"order": 2041}}, mode="live"
        )
        machine.go_on(replay)
        return session_id, replay
    raise AssertionError("there is no such order")


if __name__ == "__main__":
    recorder = Recorder()  # the server is in TRACESITE_URL, the key in TRACESITE_KEY
    session_id, replay = failed_and_replayed(recorder, ServerStore())
    recorder.close(timeout=10)
    print(f"{session_id} failed; {replay.session_id} replayed it.")
