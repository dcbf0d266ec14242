"""Map callback messages of Eko (versions 2 to 4, and the debugger branch) to events. Pure Python.

    workflow, still streaming            workflow_plan_start, once a task
    workflow, done                       workflow_plan_complete with the workflow
    agent_start                          workflow_execute_start, once a task; agent_start
    text, thinking, with streamDone      llm_request_complete: thought and reasoning of the step
    tool_use                             tool_call_start
    finish                               llm_request_complete with the usage: ends the step, and nothing else
    tool_result                          tool_call_complete; tool_call_error with isError
    agent_result                         agent_complete; agent_error where it has an error. llm_request_complete with
                                         `run_answer`: the text of the last step is the answer of the run, and no thought;
                                         that of the agent before it is a thought after all
    error                                agent_error
    file                                 llm_request_complete with the file, stored by reference (contexts.py)
    raw                                  llm_request_start of level trace: the raw output of the provider, no row
    tool_running, when it is done        tool_call_start of level trace: the progress of a call
    debug_task_start                     workflow_plan_start with the prompt
    debug_plan_start                     workflow_plan_start; prompt_build for each prompt of the planner
    debug_plan_finished                  workflow_plan_complete
    debug_workflow_start                 workflow_execute_start with the tree of agents
    debug_agent_process                  agent_start of level debug: loop number, and the conversation by reference
    debug_agent_finished                 agent_complete or agent_error of level debug, with execution statistics
    debug_llm_request_start              llm_request_start: model, and the conversation by reference
    debug_tool_call_process, when done   like tool_running
    debug_tool_call_finished             tool_call_complete with the duration
    debug_task_finished                  workflow_execute_complete: only this ends a task

All other messages repeat these, or are repeated when they are done, so they are ignored. The agent of an event is the
node. The messages of a node between two `finish` are one step, `node:0`, `node:1` ...; task, node and call id (toolId,
toolCallId) identify a call.

Messages have neither ids nor numbers. The id of an event is a digest of its message, so that a repeated delivery is the
same event. The id of a `finish` includes the step that it ends, because two of them may be equal; `Nodes` keeps the
events that are stored. Which agent is the last one is known only when no other gives a result, so each of them takes the
answer from the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from tracesite_sdk.normalize.json_values import fields, moment, text

from .transcripts import call_id_of, message_of, reason_of, result_of, task_of

_STOPPED = {"done": "completed", "error": "error", "abort": "aborted"}
_ANSWER, _NO_ANSWER = ":answer", ":no answer"
"""The ends of the ids of events about the step whose text is the answer of the run, or is so no longer."""
_MAX_TASK_LENGTH = 300
_MAX_NODE_LENGTH = 100


@dataclass
class _Node:
    """The progress of an agent."""

    step: int = -1
    is_open: bool = False
    batch_step: str = ""
    """The step of the last message in this batch, whether the message is new or repeated."""
    finishes: dict[str, str] = field(default_factory=dict)
    """The finished steps, by the digest of their `finish`."""


class Nodes:
    """The agents of a task and its stored events."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._steps: dict[str, str] = {}
        self._calling: set[str] = set()
        """The steps with calls, which are never the answer."""
        self._answer: tuple[str, str] | None = None
        """The node and the step whose text is the answer so far."""

    def remember(self, node: str, external_id: str, step: str, *, is_call: bool = False) -> None:
        """Add a stored event of a step; call it in the order of the events."""
        self._steps[external_id] = step
        if is_call:
            self._calling.add(step)
        if external_id.endswith(_ANSWER):
            self._answer = node, step
        agent = self._node(node)
        number = _number_of(step)
        if number > agent.step:
            agent.step, agent.is_open = number, True
        before, marker, after = external_id.rpartition(":finish:")
        digest = after.partition(":")[0] if marker and before else ""
        if digest:
            agent.finishes[digest] = step
            if number == agent.step:
                agent.is_open = False

    def step_of(self, node: str, external_id: str, *, is_call: bool = False) -> str:
        """Return the step of an event, which is a new one after a `finish`."""
        agent = self._node(node)
        if external_id not in self._steps:
            step = f"{node}:{agent.step if agent.is_open else agent.step + 1}"
            self.remember(node, external_id, step, is_call=is_call)
        agent.batch_step = self._steps[external_id]
        return agent.batch_step

    def finished(self, node: str, task: str, digest: str) -> tuple[str, str]:
        """Return the event id of a `finish` and the step that it ends."""
        agent = self._node(node)
        if agent.batch_step:
            step = agent.batch_step
        elif agent.is_open:
            step = f"{node}:{agent.step}"
        else:
            # The `finish` is a repeated delivery, or the model gave no output.
            step = agent.finishes.get(digest) or f"{node}:{agent.step + 1}"
        agent.batch_step = ""
        external_id = f"{task}:finish:{digest}:{_number_of(step)}"
        if external_id not in self._steps:
            self.remember(node, external_id, step)
        return external_id, step

    def answered(self, node: str, event_id: str) -> list[tuple[str, str, str]]:
        """Return node, event id and step of the events that follow from the result of an agent: its last step answers, and
        that of the agent before it no longer does."""
        agent = self._node(node)
        step = f"{node}:{agent.step}"
        if (known := self._steps.get(event_id + _ANSWER)) is not None:
            return [(node, event_id + _ANSWER, known)]
        if agent.step < 0 or step in self._calling:
            return []
        events = [(node, event_id + _ANSWER, step)]
        if self._answer is not None and self._answer[1] != step:
            events.append((self._answer[0], event_id + _NO_ANSWER, self._answer[1]))
        for event in events:
            self.remember(*event)
        return events

    def _node(self, node: str) -> _Node:
        return self._nodes.setdefault(node, _Node())


def task_named(value: object) -> str | None:
    """Return the task of a callback message; None for any other value."""
    message = message_of(value)
    return None if message is None else task_of(message) or None


def events_of(value: object, nodes: Nodes) -> Iterator[dict[str, Any]]:
    """Yield the fields of the events of a callback message, none for an ignored message.

    Raises ValueError for an invalid `timestamp`.
    """
    message = message_of(value)
    assert message is not None, "the caller checked it with task_named"
    callback = _Callback(message, nodes)
    yield from (_of_debugger if callback.kind.startswith("debug_") else _of_agents)(callback)


# --- Events -----------------------------------------------------------------------------------------------------------


class _Callback:
    """A callback message, and what its events have in common."""

    def __init__(self, message: dict[str, Any], nodes: Nodes) -> None:
        self.message = message
        self.kind = str(message["type"])
        self.task = task_of(message)[:_MAX_TASK_LENGTH]
        content = {name: item for name, item in message.items() if name != "timestamp"}
        self.digest = blake2b(msgspec.json.encode(content, order="sorted"), digest_size=12).hexdigest()
        self.id = f"{self.task}:{self.digest}"
        self.name = text(message.get("agentName"))
        node = text(message.get("nodeId")) or text(message.get("messageId")) or self.name or ""
        self.node = node[:_MAX_NODE_LENGTH]
        self.error = reason_of(message.get("error"))
        self._timestamp = moment(message.get("timestamp"))
        self._nodes = nodes

    @property
    def is_streaming(self) -> bool:
        return self.message.get("streamDone") is False

    def step(self) -> str:
        """Return the step of the message; after a `finish` it is a new one."""
        return self._nodes.step_of(self.node, self.id, is_call=self.kind == "tool_use")

    def finished(self) -> tuple[str, str]:
        """Return the event id of this `finish` and the step that it ends."""
        return self._nodes.finished(self.node, self.task, self.digest)

    def answers(self, answer: object) -> Iterator[dict[str, Any]]:
        """Yield the events about the steps whose text is the answer, or is so no longer."""
        for node, id_, step in self._nodes.answered(self.node, self.id):
            data = {"step": step, "run_answer": answer if id_.endswith(_ANSWER) else ""}
            yield self.event("llm_request_complete", data, id_, agent=node)

    def event(self, type_: str, data: dict[str, Any], id_: str = "", **more: Any) -> dict[str, Any]:
        """Return the fields of an event, without data that are None."""
        return {
            "session_id": task_of(self.message),
            "timestamp": self._timestamp,
            "agent": self.node or None,
            "type": type_,
            "id": id_ or self.id,
            "data": {key: item for key, item in data.items() if item is not None},
            **more,
        }

    def event_of_agent(self, type_: str, data: dict[str, Any], id_: str = "", **more: Any) -> dict[str, Any]:
        """Return the fields of an event with the name of the agent."""
        return self.event(type_, {**data, "agent_name": self.name}, id_, **more)


def _of_agents(callback: _Callback) -> Iterator[dict[str, Any]]:
    """Yield the events of a message that every version of Eko sends."""
    message, task = callback.message, callback.task
    match callback.kind:
        case "workflow" if callback.is_streaming:
            yield callback.event("workflow_plan_start", {}, f"{task}:plan_start")
        case "workflow":
            yield _plan_complete(callback)
        case "agent_start":
            yield callback.event("workflow_execute_start", {}, f"{task}:execute_start", agent=None)
            yield callback.event_of_agent("agent_start", {"status": fields(message.get("agentNode")).get("status")})
        case "text" | "thinking" if not callback.is_streaming:
            key = "thought" if callback.kind == "text" else "reasoning"
            said = {"step": callback.step(), "stream": message.get("streamId"), key: message.get("text")}
            yield callback.event_of_agent("llm_request_complete", said)
        case "tool_use":
            yield callback.event_of_agent("tool_call_start", {"step": callback.step(), **_call(message)})
        case "finish":
            id_, step = callback.finished()
            ended = {"step": step, "finish_reason": message.get("finishReason"), "usage": message.get("usage")}
            yield callback.event_of_agent("llm_request_complete", ended, id_)
        case "tool_result":
            yield _call_result(callback)
        case "agent_result":
            outcome = {"result": message.get("result"), "error": callback.error}
            yield callback.event_of_agent("agent_complete" if callback.error is None else "agent_error", outcome)
            if callback.error is None and (answer := text(message.get("result"))):
                yield from callback.answers(answer)
        case "error":
            yield callback.event_of_agent("agent_error", {"error": callback.error})
        case "file":
            file = {"mimeType": message.get("mimeType"), "file": message.get("data")}
            yield callback.event_of_agent("llm_request_complete", {"step": callback.step(), **file})
        case "raw":
            yield callback.event_of_agent("llm_request_start", {"raw": message.get("rawValue")}, level="trace")
        case "tool_running" if not callback.is_streaming:
            yield _call_progress(callback)


def _of_debugger(callback: _Callback) -> Iterator[dict[str, Any]]:
    """Yield the events of a message that only the debugger branch of Eko sends."""
    message = callback.message
    match callback.kind:
        case "debug_task_start":
            yield callback.event("workflow_plan_start", {"prompt": message.get("taskPrompt")})
        case "debug_plan_start":
            plan = {"prompt": message.get("taskPrompt"), "availableAgents": message.get("availableAgents")}
            yield callback.event("workflow_plan_start", plan)
            prompts = fields(message.get("plannerPrompt"))
            for role, prompt in (("system", prompts.get("systemPrompt")), ("user", prompts.get("userPrompt"))):
                if prompt is not None:
                    data = {"kind": role, "text": prompt}
                    yield callback.event_of_agent("prompt_build", data, f"{callback.id}:{role}")
        case "debug_plan_finished":
            yield _plan_complete(callback)
        case "debug_workflow_start":
            tree = {"workflow": message.get("workflow"), "agentTree": message.get("agentTree")}
            yield callback.event("workflow_execute_start", tree, agent=None)
        case "debug_agent_process":
            loop = {"loop": message.get("loopNum"), "loops": message.get("maxReactNum")}
            conversation = {"currentMessages": message.get("currentMessages")}
            yield callback.event_of_agent("agent_start", {**loop, **conversation}, level="debug")
        case "debug_agent_finished":
            # The result is in agent_result.
            outcome = {"executionStats": message.get("executionStats"), "error": callback.error}
            if callback.error is None:
                yield callback.event_of_agent("agent_complete", outcome, level="debug")
            else:
                yield callback.event_of_agent("agent_error", outcome, level=None)
        case "debug_llm_request_start":
            request = {"model": message.get("modelName"), "stream": message.get("streamId")}
            request |= {key: message.get(key) for key in ("request", "context")}
            if text(message.get("nodeId")):
                # A request of the planner has no node and is not a step of an agent.
                request["step"] = callback.step()
            yield callback.event_of_agent("llm_request_start", request)
        case "debug_tool_call_process" if not callback.is_streaming:
            yield _call_progress(callback)
        case "debug_tool_call_finished":
            yield _call_result(callback)
        case "debug_task_finished":
            status = _STOPPED.get(str(message.get("stopReason")))
            if status is None and message.get("success") is False:
                status = "error"
            outcome = {"success": message.get("success"), "result": message.get("result"), "error": callback.error}
            yield callback.event("workflow_execute_complete", {"status": status, **outcome})


def _plan_complete(callback: _Callback) -> dict[str, Any]:
    plan = {"workflow": callback.message.get("workflow"), "usage": callback.message.get("usage")}
    return callback.event("workflow_plan_complete", plan)


def _call(message: dict[str, Any]) -> dict[str, Any]:
    return {"call_id": call_id_of(message) or None, "name": message.get("toolName"), "args": message.get("params")}


def _call_progress(callback: _Callback) -> dict[str, Any]:
    message = callback.message
    progress = {"stream": message.get("streamId"), "progress": message.get("text")}
    return callback.event_of_agent("tool_call_start", {**_call(message), **progress}, level="trace")


def _call_result(callback: _Callback) -> dict[str, Any]:
    message = callback.message
    entry = result_of("", message.get("toolResult"), call_id=call_id_of(message), metadata={})
    result = {"output": entry.output, "data": entry.data, "metadata": entry.metadata or None}
    if entry.failed is False:
        result["success"] = True
    data = {
        **_call(message),
        "result": {name: value for name, value in result.items() if value is not None} or None,
        "duration": message.get("duration"),
    }
    return callback.event("tool_call_error" if entry.failed else "tool_call_complete", data)


def _number_of(step: str) -> int:
    number = step.rpartition(":")[2]
    return int(number) if number.isascii() and number.isdecimal() else -1
