"""Map callback messages of Eko (versions 2 to 4, and the debugger branch) to events. Pure Python, without Django.

    workflow, still streaming            workflow_plan_start, once a task
    workflow, done                       workflow_plan_complete with the workflow
    agent_start                          workflow_execute_start, once a task; agent_start
    text, thinking, with streamDone      llm_request_complete: thought and reasoning of the step
    tool_use                             tool_call_start
    finish                               llm_request_complete with the usage: ends the step, and nothing else
    tool_result                          tool_call_complete; tool_call_error with isError
    agent_result                         agent_complete; agent_error where it has an error
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
events that are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from traces_app.normalize.json_values import fields, text
from traces_app.transcripts.formats.eko import call_id_of, message_of, reason_of, result_of, task_of

from .monitor_messages import moment

_STOPPED = {"done": "completed", "error": "error", "abort": "aborted"}
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

    def remember(self, node: str, external_id: str, step: str) -> None:
        """Add a stored event of a step; call it in the order of the events."""
        self._steps[external_id] = step
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

    def step_of(self, node: str, external_id: str) -> str:
        """Return the step of an event, which is a new one after a `finish`."""
        agent = self._node(node)
        if external_id not in self._steps:
            self.remember(node, external_id, f"{node}:{agent.step if agent.is_open else agent.step + 1}")
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
    task = task_of(message)[:_MAX_TASK_LENGTH]
    content = {name: item for name, item in message.items() if name != "timestamp"}
    digest = blake2b(msgspec.json.encode(content, order="sorted"), digest_size=12).hexdigest()
    name = text(message.get("agentName"))
    node = (text(message.get("nodeId")) or text(message.get("messageId")) or name or "")[:_MAX_NODE_LENGTH]
    common = {"session_id": task_of(message), "timestamp": moment(message.get("timestamp")), "agent": node or None}

    def event(type_: str, data: dict[str, Any], id_: str = "", **more: Any) -> dict[str, Any]:
        known = {key: item for key, item in data.items() if item is not None}
        return {**common, "type": type_, "id": id_ or f"{task}:{digest}", "data": known, **more}

    kind = str(message["type"])
    error = reason_of(message.get("error"))
    match kind:
        case "workflow" if message.get("streamDone") is False:
            yield event("workflow_plan_start", {}, f"{task}:plan_start")
        case "workflow" | "debug_plan_finished":
            yield event("workflow_plan_complete", {"workflow": message.get("workflow"), "usage": message.get("usage")})
        case "agent_start":
            yield event("workflow_execute_start", {}, f"{task}:execute_start", agent=None)
            yield event("agent_start", {"agent_name": name, "status": fields(message.get("agentNode")).get("status")})
        case "text" | "thinking" if message.get("streamDone") is not False:
            step = nodes.step_of(node, f"{task}:{digest}")
            key = "thought" if kind == "text" else "reasoning"
            yield event(
                "llm_request_complete",
                {"step": step, "agent_name": name, "stream": message.get("streamId"), key: message.get("text")},
            )
        case "tool_use":
            step = nodes.step_of(node, f"{task}:{digest}")
            yield event("tool_call_start", {"step": step, **_call(message), "agent_name": name})
        case "finish":
            id_, step = nodes.finished(node, task, digest)
            usage = message.get("usage")
            yield event(
                "llm_request_complete",
                {"step": step, "agent_name": name, "finish_reason": message.get("finishReason"), "usage": usage},
                id_,
            )
        case "tool_result" | "debug_tool_call_finished":
            yield _result_event(message, event)
        case "agent_result":
            type_ = "agent_complete" if error is None else "agent_error"
            yield event(type_, {"agent_name": name, "result": message.get("result"), "error": error})
        case "error":
            yield event("agent_error", {"agent_name": name, "error": error})
        case "file":
            file = {"mimeType": message.get("mimeType"), "file": message.get("data")}
            yield event(
                "llm_request_complete", {"step": nodes.step_of(node, f"{task}:{digest}"), "agent_name": name, **file}
            )
        case "raw":
            yield event("llm_request_start", {"agent_name": name, "raw": message.get("rawValue")}, level="trace")
        case "tool_running" | "debug_tool_call_process" if message.get("streamDone") is not False:
            progress = {"stream": message.get("streamId"), "progress": message.get("text")}
            yield event("tool_call_start", {**_call(message), "agent_name": name, **progress}, level="trace")
        case "debug_llm_request_start":
            request: dict[str, Any] = {"agent_name": name, "model": message.get("modelName")}
            request |= {key: message.get(key) for key in ("request", "context")} | {"stream": message.get("streamId")}
            if text(message.get("nodeId")):
                # A request of the planner has no node and is not a step of an agent.
                request["step"] = nodes.step_of(node, f"{task}:{digest}")
            yield event("llm_request_start", request)
        case "debug_agent_process":
            loop = {"loop": message.get("loopNum"), "loops": message.get("maxReactNum")}
            conversation = {"currentMessages": message.get("currentMessages")}
            yield event("agent_start", {"agent_name": name, **loop, **conversation}, level="debug")
        case "debug_agent_finished":
            # The result is in agent_result.
            outcome = {"executionStats": message.get("executionStats"), "error": error}
            type_ = "agent_complete" if error is None else "agent_error"
            yield event(type_, {"agent_name": name, **outcome}, level="debug" if error is None else None)
        case "debug_plan_start":
            yield event(
                "workflow_plan_start",
                {"prompt": message.get("taskPrompt"), "availableAgents": message.get("availableAgents")},
            )
            prompts = fields(message.get("plannerPrompt"))
            for role, prompt in (("system", prompts.get("systemPrompt")), ("user", prompts.get("userPrompt"))):
                if prompt is not None:
                    data = {"agent_name": name, "kind": role, "text": prompt}
                    yield event("prompt_build", data, f"{task}:{digest}:{role}")
        case "debug_workflow_start":
            tree = {"workflow": message.get("workflow"), "agentTree": message.get("agentTree")}
            yield event("workflow_execute_start", tree, agent=None)
        case "debug_task_start":
            yield event("workflow_plan_start", {"prompt": message.get("taskPrompt")})
        case "debug_task_finished":
            status = _STOPPED.get(str(message.get("stopReason"))) or (
                "error" if message.get("success") is False else None
            )
            yield event(
                "workflow_execute_complete",
                {"status": status, "success": message.get("success"), "result": message.get("result"), "error": error},
            )


def _call(message: dict[str, Any]) -> dict[str, Any]:
    return {"call_id": call_id_of(message) or None, "name": message.get("toolName"), "args": message.get("params")}


def _result_event(message: dict[str, Any], event: Any) -> dict[str, Any]:
    entry = result_of("", message.get("toolResult"), call_id=call_id_of(message), metadata={})
    result = {"output": entry.output, "data": entry.data, "metadata": entry.metadata or None}
    if entry.failed is False:
        result["success"] = True
    data = {
        **_call(message),
        "result": {name: value for name, value in result.items() if value is not None} or None,
        "duration": message.get("duration"),
    }
    document: dict[str, Any] = event("tool_call_error" if entry.failed else "tool_call_complete", data)
    return document


def _number_of(step: str) -> int:
    number = step.rpartition(":")[2]
    return int(number) if number.isascii() and number.isdecimal() else -1
