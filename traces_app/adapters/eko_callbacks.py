"""Callback messages of Eko (versions 2 to 4, and its debugger branch) as events: a pure mapping, without Django.

    workflow, still streaming            workflow_plan_start, once a task
    workflow, done                       workflow_plan_complete with the workflow
    agent_start                          workflow_execute_start, once a task; agent_start
    text, thinking, with streamDone      llm_request_complete: thought and reasoning of the step
    tool_use                             tool_call_start
    finish                               llm_request_complete with the usage: ends the step, and nothing else
    tool_result                          tool_call_complete; tool_call_error where it says isError
    agent_result                         agent_complete; agent_error where it has an error
    error                                agent_error
    file                                 llm_request_complete with the file, which lies behind a reference (contexts.py)
    raw                                  llm_request_start of level trace: what the provider said, and no row
    tool_running, when it is done        tool_call_start of level trace: how far a call is
    debug_task_start                     workflow_plan_start with the prompt
    debug_plan_start                     workflow_plan_start; prompt_build for each prompt of the planner
    debug_plan_finished                  workflow_plan_complete
    debug_workflow_start                 workflow_execute_start with the tree of agents
    debug_agent_process                  agent_start of level debug: which loop, and the conversation behind a reference
    debug_agent_finished                 agent_complete or agent_error of level debug, with how much was done
    debug_llm_request_start              llm_request_start: model, and the conversation behind a reference
    debug_tool_call_process, when done   as tool_running
    debug_tool_call_finished             tool_call_complete with the duration
    debug_task_finished                  workflow_execute_complete: only this ends a task

What else there is repeats these, or is said again when it is done: it is ignored. The agent is the node; what it says between
two `finish` is one step, `node:0`, `node:1` ...; calls are told apart by task, node and call id (toolId, toolCallId).

Messages have neither ids nor numbers. The id of an event is made of its message, of a `finish` also of the step that it
ends (two of them may say the same), so that a second delivery is the same event: `Nodes` remembers what is there.
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
_LONGEST_TASK = 300
_LONGEST_NODE = 100


@dataclass
class _Node:
    """How far an agent is."""

    step: int = -1
    is_open: bool = False
    said_here: str = ""
    """The step of what was last said in this batch, new or not."""
    finishes: dict[str, str] = field(default_factory=dict)
    """The steps that were finished, by the digest of what finished them."""


class Nodes:
    """The agents of a task, and which events of it are there."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._steps: dict[str, str] = {}

    def remember(self, node: str, external_id: str, step: str) -> None:
        """An event of a step that is there, in the order in which they came."""
        self._steps[external_id] = step
        one = self._node(node)
        number = _number_of(step)
        if number > one.step:
            one.step, one.is_open = number, True
        digest = _finish_digest(external_id)
        if digest:
            one.finishes[digest] = step
            if number == one.step:
                one.is_open = False

    def step_of(self, node: str, external_id: str) -> str:
        """The step that something an agent says belongs to."""
        one = self._node(node)
        if external_id in self._steps:
            one.said_here = self._steps[external_id]
            return one.said_here
        step = _step(node, one.step if one.is_open else one.step + 1)
        self.remember(node, external_id, step)
        one.said_here = step
        return step

    def finished(self, node: str, task: str, digest: str) -> tuple[str, str]:
        """The id of a `finish` and the step that it ends."""
        one = self._node(node)
        if one.said_here:
            step = one.said_here
        elif one.is_open:
            step = _step(node, one.step)
        else:
            # Delivered again, or the model said nothing at all.
            step = one.finishes.get(digest) or _step(node, one.step + 1)
        one.said_here = ""
        external_id = f"{task}:finish:{digest}:{_number_of(step)}"
        if external_id not in self._steps:
            self.remember(node, external_id, step)
        return external_id, step

    def _node(self, node: str) -> _Node:
        return self._nodes.setdefault(node, _Node())


def task_named(value: object) -> str | None:
    """The task of a callback message; None for what is none."""
    message = message_of(value)
    return None if message is None else task_of(message) or None


def events_of(value: object, nodes: Nodes) -> Iterator[dict[str, Any]]:
    """The fields of the events that a callback message is; nothing for what is ignored. Raises ValueError for a
    `timestamp` that is no time."""
    message = message_of(value)
    assert message is not None, "task_named says what is one"
    task = task_of(message)[:_LONGEST_TASK]
    said = {name: item for name, item in message.items() if name != "timestamp"}
    digest = blake2b(msgspec.json.encode(said, order="sorted"), digest_size=12).hexdigest()
    name = text(message.get("agentName"))
    node = (text(message.get("nodeId")) or text(message.get("messageId")) or name or "")[:_LONGEST_NODE]
    common = {"session_id": task_of(message), "timestamp": moment(message.get("timestamp")), "agent": node or None}

    def event(type_: str, data: dict[str, Any], id_: str = "", **more: Any) -> dict[str, Any]:
        known = {key: item for key, item in data.items() if item is not None}
        return {**common, "type": type_, "id": id_ or f"{task}:{digest}", "data": known, **more}

    kind = str(message["type"])
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
            word = "thought" if kind == "text" else "reasoning"
            yield event(
                "llm_request_complete",
                {"step": step, "agent_name": name, "stream": message.get("streamId"), word: message.get("text")},
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
            error = reason_of(message.get("error")) if message.get("error") is not None else None
            type_ = "agent_complete" if error is None else "agent_error"
            yield event(type_, {"agent_name": name, "result": message.get("result"), "error": error})
        case "error":
            yield event("agent_error", {"agent_name": name, "error": reason_of(message.get("error"))})
        case "file":
            said = {"mimeType": message.get("mimeType"), "file": message.get("data")}
            yield event(
                "llm_request_complete", {"step": nodes.step_of(node, f"{task}:{digest}"), "agent_name": name, **said}
            )
        case "raw":
            yield event("llm_request_start", {"agent_name": name, "raw": message.get("rawValue")}, level="trace")
        case "tool_running" | "debug_tool_call_process" if message.get("streamDone") is not False:
            progress = {"stream": message.get("streamId"), "progress": message.get("text")}
            yield event("tool_call_start", {**_call(message), "agent_name": name, **progress}, level="trace")
        case "debug_llm_request_start":
            yield event("llm_request_start", _request(message, nodes, node, f"{task}:{digest}"))
        case "debug_agent_process":
            loop = {"loop": message.get("loopNum"), "loops": message.get("maxReactNum")}
            conversation = {"currentMessages": message.get("currentMessages")}
            yield event("agent_start", {"agent_name": name, **loop, **conversation}, level="debug")
        case "debug_agent_finished":
            error = reason_of(message.get("error")) if message.get("error") is not None else None
            # Its result is said by agent_result.
            done = {"executionStats": message.get("executionStats"), "error": error}
            type_ = "agent_complete" if error is None else "agent_error"
            yield event(type_, {"agent_name": name, **done}, level="debug" if error is None else None)
        case "debug_plan_start":
            yield event(
                "workflow_plan_start",
                {"prompt": message.get("taskPrompt"), "availableAgents": message.get("availableAgents")},
            )
            prompts = fields(message.get("plannerPrompt"))
            for word, prompt in (("system", prompts.get("systemPrompt")), ("user", prompts.get("userPrompt"))):
                if prompt is not None:
                    said = {"agent_name": name, "kind": word, "text": prompt}
                    yield event("prompt_build", said, f"{task}:{digest}:{word}")
        case "debug_workflow_start":
            tree = {"workflow": message.get("workflow"), "agentTree": message.get("agentTree")}
            yield event("workflow_execute_start", tree, agent=None)
        case "debug_task_start":
            yield event("workflow_plan_start", {"prompt": message.get("taskPrompt")})
        case "debug_task_finished":
            error = reason_of(message.get("error")) if message.get("error") is not None else None
            status = _STOPPED.get(str(message.get("stopReason"))) or (
                "error" if message.get("success") is False else None
            )
            yield event(
                "workflow_execute_complete",
                {"status": status, "success": message.get("success"), "result": message.get("result"), "error": error},
            )


def _call(message: dict[str, Any]) -> dict[str, Any]:
    return {"call_id": call_id_of(message) or None, "name": message.get("toolName"), "args": message.get("params")}


def _request(message: dict[str, Any], nodes: Nodes, node: str, id_: str) -> dict[str, Any]:
    said = {"agent_name": text(message.get("agentName")), "model": message.get("modelName")}
    said |= {"stream": message.get("streamId"), "request": message.get("request"), "context": message.get("context")}
    # What the planner asks for is no step of an agent.
    return {"step": nodes.step_of(node, id_), **said} if text(message.get("nodeId")) else said


def _result_event(message: dict[str, Any], event: Any) -> dict[str, Any]:
    found = result_of("", message.get("toolResult"), call_id=call_id_of(message), metadata={})
    result = {"output": found.output, "data": found.data, "metadata": found.metadata or None}
    if found.failed is False:
        result["success"] = True
    data = {
        **_call(message),
        "result": {name: value for name, value in result.items() if value is not None} or None,
        "duration": message.get("duration"),
    }
    made: dict[str, Any] = event("tool_call_error" if found.failed else "tool_call_complete", data)
    return made


def _step(node: str, number: int) -> str:
    return f"{node}:{number}"


def _number_of(step: str) -> int:
    number = step.rpartition(":")[2]
    return int(number) if number.isascii() and number.isdecimal() else -1


def _finish_digest(external_id: str) -> str:
    before, found, after = external_id.rpartition(":finish:")
    return after.partition(":")[0] if found and before else ""
