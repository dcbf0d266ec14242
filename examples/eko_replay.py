"""An example of the time machine to run and to copy: a task of Eko fails, is replayed from the agent that failed, and goes on.

    TRACESITE_URL=http://127.0.0.1:8000 TRACESITE_KEY=ts_... python -m examples.eko_replay

Eko runs in a browser or in Node, so what comes from it are its callback messages, here a transcript of them. The recorder keeps
what each agent knows before it begins. The order number is wrong, so that the second agent fails; the replay runs it in Python,
with another number. An agent in Python does what the prompts of Eko's agent say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from secrets import token_hex
from typing import Any

from tracesite_sdk import (
    Overrides,
    Recorder,
    Replay,
    ServerStore,
    Snapshots,
    SnapshotStore,
    TimeMachine,
    Workflow,
    children_of,
)

ORDERS = {2041: {"status": "in transit", "arrives": "Monday"}}
Context = dict[str, Any]


def transcript(task: str) -> Iterator[Mapping[str, Any]]:
    """Return the callback messages of Eko 4 for a task of three agents, whose second one fails."""
    reader, clerk, writer = (f"{task}-{number:02}" for number in range(3))
    agents = [
        {"id": reader, "name": "Reader", "dependsOn": [], "task": "Find the order number in the question."},
        {"id": clerk, "name": "Clerk", "dependsOn": [reader], "task": "Look up the order."},
        {"id": writer, "name": "Writer", "dependsOn": [clerk], "task": "Answer the customer."},
    ]
    workflow = {"taskId": task, "name": "Where is my order 2014?", "agents": agents}

    def message(type_: str, agent: Mapping[str, Any] | None = None, **fields: Any) -> Mapping[str, Any]:
        of = {} if agent is None else {"agentName": agent["name"], "nodeId": agent["id"]}
        return {"streamType": "agent", "chatId": "parcels", "taskId": task, "type": type_, **of, **fields}

    yield message("workflow", streamDone=True, workflow=workflow)
    yield message("agent_start", agents[0], agentNode=agents[0])
    yield message("text", agents[0], streamId="1", streamDone=True, text="The customer asks for order 2014.")
    yield message("finish", agents[0], finishReason="stop", usage={"promptTokens": 40, "completionTokens": 8})
    yield message("agent_result", agents[0], result=2014)
    yield message("agent_start", agents[1], agentNode=agents[1])
    yield message("text", agents[1], streamId="2", streamDone=True, text="Look up order 2014.")
    call = {"toolCallId": "call_1", "toolName": "find_order", "params": {"number": 2014}}
    yield message("tool_use", agents[1], **call)
    yield message("finish", agents[1], finishReason="tool-calls", usage={"promptTokens": 60, "completionTokens": 9})
    failure = "LookupError: There is no order 2014."
    result = {"content": [{"type": "text", "text": failure}], "isError": True}
    yield message("tool_result", agents[1], **call, toolResult=result)
    yield message("error", agents[1], error=failure)
    yield message("debug_task_finished", stopReason="error", success=False, error=failure)


class Task:
    """A task of Eko, as the process that gets its callback messages sees it."""

    def __init__(self, on_message: Callable[[Mapping[str, Any]], None]) -> None:
        self.callback = {"onMessage": on_message}

    def play(self, messages: Iterator[Mapping[str, Any]]) -> None:
        for message in messages:
            self.callback["onMessage"](message)


class Agents:
    """The agents of the workflow, in Python."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.find_order = recorder.tool_call("find_order")(find_order)

    def run(self, node: str, context: Context, overrides: Overrides) -> Context:
        """Run one agent, and return the context after it."""
        (agent,) = (one for one in context["workflow"]["agents"] if one["id"] == node)
        results = dict(context["results"])
        before = [results[name] for name in agent["dependsOn"]]
        with self.recorder.step(agent=agent["name"]) as step:
            if agent["name"] == "Clerk":
                step.thought = f"Look up order {before[0]}."
                results[node] = self.find_order(number=before[0])
            else:
                step.message.content = results[node] = f"Your parcel arrives on {before[0]['arrives']}."
        return {**context, "results": results}


def find_order(number: int) -> dict[str, str]:
    """Look up an order."""
    if number not in ORDERS:
        raise LookupError(f"There is no order {number}.")
    return ORDERS[number]


def failed_and_replayed(recorder: Recorder, store: SnapshotStore) -> tuple[str, Replay]:
    """Run the example, and return the session that failed and its replay."""
    recorder.snapshots = Snapshots(store)
    task = f"eko-{token_hex(4)}"
    messages = list(transcript(task))
    recorder.enable(Task(lambda _message: None), snapshots=True).play(iter(messages))
    workflow = Workflow(Agents(recorder).run, children_of(messages[0]["workflow"]))
    machine = TimeMachine(recorder.snapshots.store, workflow, recorder=recorder)
    replay = machine.replay(
        session_id=task,
        node_id=f"{task}-01",
        overrides={"context": {"results": {f"{task}-00": 2041}}},
        mode="live",  # reading an order has no side effects
    )
    machine.go_on(replay)
    return task, replay


if __name__ == "__main__":
    recorder = Recorder()  # the server is in TRACESITE_URL, the key in TRACESITE_KEY
    session_id, replay = failed_and_replayed(recorder, ServerStore())
    recorder.close(timeout=10)
    print(f"{session_id} failed; {replay.session_id} replayed it.")
