"""Map monitor messages {taskId, type, ts, payload, id?, messageId?} of six types to events, and events to messages. Pure Python.

    workflow  {agentTree, parallel?} or {workflow}                  workflow_plan_complete; workflow_plan_start while it
                                                                    is `partial` or its streamDone is false
    prompt    {agentId, role, text}                                 prompt_build, of kind `role`
    llm       {agentId, phase, token?, usage?}                      llm_request_start; _complete at the end
    agent     {agentId, status, error?}                             agent_start, agent_complete, agent_error
    tool      {agentId, name, args?, result?, error?, phase}        tool_call_start, tool_call_complete, tool_call_error
    session   {status}                                              workflow_plan_start while it is planning,
                                                                    workflow_execute_start while it runs or is paused,
                                                                    workflow_execute_complete at its end

A delta of a model (`llm` in phase `delta`) is an event of level `trace`, and a piece of the text of its step (deltas.py). The whole payload is the data
of the event; a prompt is stored by reference (contexts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tracesite_sdk.normalize.json_values import moment
from tracesite_sdk.records.event_types import EventType

MESSAGES = ("workflow", "prompt", "llm", "agent", "tool", "session")
_STEMS = {"llm": "llm_request", "agent": "agent", "tool": "tool_call"}
_PHASES = {"start": "start", "delta": "start", "complete": "complete", "error": "error"}
_SESSION: dict[str, EventType] = {
    "planning": "workflow_plan_start",
    "running": "workflow_execute_start",
    "paused": "workflow_execute_start",
    "completed": "workflow_execute_complete",
    "error": "workflow_execute_complete",
    "aborted": "workflow_execute_complete",
}
TYPE_FIELDS = {
    "llm": ("phase", ("start", "delta", "complete")),
    "agent": ("status", ("start", "complete", "error")),
    "tool": ("phase", ("start", "complete", "error")),
    "session": ("status", tuple(_SESSION)),
}
"""The field of the payload that selects the event type, and its values."""
EVENTS = frozenset(
    ["workflow_plan_start", "workflow_plan_complete", "prompt_build", *_SESSION.values()]
    + [f"{stem}_{_PHASES[value]}" for kind, stem in _STEMS.items() for value in TYPE_FIELDS[kind][1]]
)
"""The event types that monitor messages become."""


def message_of(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the monitor message that becomes this event of the recorder, with all of its data in the payload; None for a
    score, which has no message."""
    type_, data = str(event["type"]), dict(event["data"])
    stem, _, phase = type_.rpartition("_")
    agent = event.get("agent") or data.get("agent_name")
    if agent is not None:
        data["agentId"] = agent
    match type_:
        case "workflow_plan_complete":
            kind, workflow = "workflow", data.get("workflow")
            own = workflow if isinstance(workflow, dict) and "agentTree" in workflow else {"agentTree": workflow}
            data = {**own, **data}
        case "prompt_build":
            kind = "prompt"
            data["role"] = data.get("kind")
        case "workflow_plan_start" | "workflow_execute_start" | "workflow_execute_complete":
            kind = "session"
            data.setdefault("status", _status_of(type_, data))
        case _:
            kind = next((kind for kind, known in _STEMS.items() if known == stem), "")
            if not kind:
                return None
            data[TYPE_FIELDS[kind][0]] = phase
    at = datetime.fromisoformat(event["timestamp"])
    return {"taskId": event["session_id"], "type": kind, "ts": round(at.timestamp() * 1000), "payload": data}


def _status_of(type_: str, data: Mapping[str, Any]) -> str:
    if type_ != "workflow_execute_complete":
        return next(status for status, known in _SESSION.items() if known == type_)
    return "aborted" if data.get("interrupted") else "error" if data.get("error") else "completed"


def is_monitor_message(item: dict[str, Any]) -> bool:
    return "taskId" in item and "payload" in item and isinstance(item.get("type"), str)


def event_document(item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event, not validated yet. Raises ValueError for an invalid `ts`."""
    kind, payload = item["type"], item["payload"]
    data: dict[str, Any] = dict(payload) if isinstance(payload, dict) else {"payload": payload}
    document: dict[str, Any] = {
        "session_id": item["taskId"],
        "id": item.get("id"),
        "message_id": item.get("messageId"),
        "timestamp": moment(item.get("ts")),
        "agent": data.get("agentId"),
        "data": data,
    }
    match kind:
        case "workflow":
            is_partial = data.get("partial") is True or data.get("streamDone") is False
            document["type"] = "workflow_plan_start" if is_partial else "workflow_plan_complete"
            tree = {name: value for name, value in data.items() if name in ("agentTree", "parallel")}
            data.setdefault("workflow", tree)
        case "prompt":
            # contexts.py moves the text and the role behind a reference.
            document["type"] = "prompt_build"
        case "session":
            status = data.get("status")
            document["type"] = _SESSION.get(status, status) if isinstance(status, str) else status
            if status == "error":
                document["level"] = "error"
        case _:
            value = data.get("status") if kind == "agent" else data.get("phase")
            phase = _PHASES.get(value, value) if isinstance(value, str) else value
            document["type"] = f"{_STEMS[kind]}_{phase}"
            if kind == "llm" and value == "delta":
                document["level"] = "trace"
    return document
