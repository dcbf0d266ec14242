"""An example of the time machine to run and to copy: a LangGraph agent fails, is replayed from that node, and goes on.

    python -m tracesite.recorder.example_langgraph_replay --url http://127.0.0.1:8000 --key ts_...

The handler keeps the state before each node. The order number is wrong, so that `look_up` fails; the replay runs it with another
one. The model follows a script; everything else is real.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from . import Recorder
from .example_time_machine import find_order, run_example
from .snapshot_stores import MemoryStore, SnapshotStore
from .snapshotting import Snapshots
from .time_machine import Overrides, Replay, TimeMachine, Workflow

try:
    from langchain_core.language_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import StructuredTool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.graph.message import add_messages

    from .langchain import TracesiteHandler
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(f"The example needs LangGraph: pip install langgraph ({missing})") from missing

NODES = ("plan", "look_up", "answer")


class State(MessagesState):
    """The state that the nodes share."""

    order: int
    found: dict[str, str]


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


def failed_and_replayed(recorder: Recorder, store: SnapshotStore | None = None) -> tuple[str, Replay]:
    """Run the example, and return the session that failed and its replay."""
    recorder.snapshots = Snapshots(MemoryStore() if store is None else store)
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
    run_example(failed_and_replayed, __spec__.name, __doc__)
