"""An example to run and to copy: a run fails, is replayed from the node that failed, and goes on; the comparison shows the rest.

    TRACESITE_URL=http://127.0.0.1:8000 TRACESITE_KEY=ts_... python -m examples.time_machine

A parcel desk plans, looks up an order, and answers. The wrong order number makes the second node fail. The replay runs that node
again, with another number, in a fork of the session.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from tracesite_sdk import Overrides, Recorder, Replay, ServerStore, Snapshots, SnapshotStore, TimeMachine, Workflow

ORDERS = {2041: {"status": "in transit", "arrives": "Monday"}}
NODES = ("plan", "look_up", "answer")
Context = dict[str, Any]


class ParcelDesk:
    """An agent in plain Python: three nodes, and a loop over them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.find_order = recorder.tool_call("find_order")(find_order)

    def run(self, node: str, context: Context, overrides: Overrides) -> Context:
        """Run one node, and return the context after it."""
        with self.recorder.step(model=overrides.model or "scripted-chat-1", agent="parcel desk") as step:
            if node == "plan":
                step.thought = f"The customer asks for order {context['order']}. Look it up."
                return {**context, "plan": "Look up the order, then answer."}
            if node == "look_up":
                step.thought = f"Look up order {context['order']}."
                return {**context, "found": self.find_order(number=context["order"])}
            step.thought = f"Order {context['order']} is {context['found']['status']}."
            step.message.content = f"Your parcel arrives on {context['found']['arrives']}."
            return {**context, "text": step.message.content}

    def answer(self, session_id: str, question: str, context: Context) -> None:
        """Run all nodes, with a snapshot before each."""
        session = self.recorder.session(session_id, title="Where is my parcel?", tags=["example"])
        with session, self.recorder.message(question):
            for node in NODES:
                self.recorder.snapshot(context, nodes=[node])
                context = self.run(node, context, Overrides())


def find_order(number: int) -> dict[str, str]:
    """Look up an order."""
    if number not in ORDERS:
        raise LookupError(f"There is no order {number}.")
    return ORDERS[number]


def replay_failure(desk: ParcelDesk, session_id: str) -> Replay:
    """Run the node that failed with the right number, and go on."""
    store = desk.recorder.snapshots.store
    machine = TimeMachine(store, Workflow.chain(desk.run, NODES), recorder=desk.recorder)
    replay = machine.replay(
        session_id=session_id,
        node_id="look_up",
        overrides={"context": {"order": 2041}},
        mode="live",  # reading an order has no side effects
    )
    machine.go_on(replay)
    return replay


def failed_and_replayed(recorder: Recorder, store: SnapshotStore) -> tuple[str, Replay]:
    """Run the example, and return the session that failed and its replay."""
    recorder.snapshots = Snapshots(store)
    desk, session_id = ParcelDesk(recorder), f"parcel-{token_hex(4)}"
    try:
        desk.answer(session_id, "Where is my order 2014?", {"order": 2014})
    except LookupError:
        # The run has failed, as the trace shows.
        return session_id, replay_failure(desk, session_id)
    raise AssertionError("there is no such order")


if __name__ == "__main__":
    recorder = Recorder()  # the server is in TRACESITE_URL, the key in TRACESITE_KEY
    session_id, replay = failed_and_replayed(recorder, ServerStore())
    recorder.close(timeout=10)
    print(f"{session_id} failed; {replay.session_id} replayed it.")
