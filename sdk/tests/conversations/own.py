"""The conversation as Tracesite's own JSON and events, and as Eko's callback messages."""

from __future__ import annotations

import json
from typing import Any

from tracesite_sdk import records

from .conversation import LAST, QUESTION, Call, Conversation, Form, Lack, Request, stamp
from .files import file_form

SESSION = "session"


def own_export(conversation: Conversation) -> dict[str, Any]:
    """Write a body of ingest/, which is also what an export is."""
    status = (
        {"status": "paused", "current_phase": "waiting for approval"}
        if conversation.is_paused
        else {"status": "completed"}
    )
    answer = {
        "external_id": "answer", "role": "assistant", "content": "" if conversation.is_paused else LAST.text, "is_completed": not conversation.is_paused,
        "created_at": stamp(1), "agent_steps": [own_step(number, request) for number, request in enumerate(conversation.requests)],
        **({} if conversation.is_paused else {"completed_at": stamp(conversation.ends)}),
    }  # fmt: skip
    question = {"external_id": "question", "role": "user", "content": QUESTION, "created_at": stamp(0)}
    return {"external_id": SESSION, "created_at": stamp(0), "messages": [question, answer], **status}


def own_step(number: int, request: Request) -> dict[str, Any]:
    thought = {"thought": request.text} if request.calls else {}
    return {"iteration": number, "model": request.model, "usage": own_usage(request), "timestamp": stamp(request.begins), "tool_calls": [own_call(call) for call in request.calls], **thought}  # fmt: skip


def own_usage(request: Request) -> dict[str, int]:
    return {"input_tokens": request.input, "cached_input_tokens": request.cached, "output_tokens": request.output}


def own_call(call: Call) -> dict[str, Any]:
    outcome = {"error": call.output} if call.failed else {}
    result = (
        {"result": {"success": not call.failed, "output": call.output, **outcome}} if call.output is not None else {}
    )
    ended = {"completed_at": stamp(call.ends)} if result else {}
    return {"id": call.id, "name": call.name, "args": call.args, "started_at": stamp(call.begins), **ended, **result}


def own_events(conversation: Conversation) -> list[dict[str, Any]]:
    """Write the events of the recorder, in an order in which they happen."""
    events: list[tuple[int, str, dict[str, Any]]] = [(0, "workflow_execute_start", {"prompt": QUESTION})]
    for number, request in enumerate(conversation.requests):
        step = {"step": f"step-{number}", "model": request.model}
        events += [(request.begins, "llm_request_start", step), (request.ends, "llm_request_complete", {**step, "iteration": number, "usage": own_usage(request), **({"thought": request.text} if request.calls else {})})]  # fmt: skip
        for call in request.calls:
            events.append((call.begins, "tool_call_start", {"call_id": call.id, "step": step["step"], "name": call.name, "args": call.args}))  # fmt: skip
            if call.output is None:
                events.append((call.begins, "workflow_execute_start", {"status": "paused", "phase": "waiting for approval"}))  # fmt: skip
            else:
                outcome = {"error": call.output} if call.failed else {}
                events.append((call.ends, "tool_call_error" if call.failed else "tool_call_complete", {"call_id": call.id, "result": call.output, **outcome}))  # fmt: skip
    if not conversation.is_paused:
        events.append((conversation.ends, "workflow_execute_complete", {"result": LAST.text, "success": True}))
        events.append((conversation.ends, "workflow_execute_complete", {"status": "completed"}))
    return [{"session_id": SESSION, "id": f"{type_}-{second}-{json.dumps(data)[:60]}", "type": type_, "timestamp": stamp(second), "data": data} for second, type_, data in sorted(events, key=lambda event: event[0])]  # fmt: skip


def eko(conversation: Conversation) -> tuple[Any, ...]:
    """Write the callback messages of Eko 4.x, with the one of its debugger that ends a task. None tells of a person who confirms."""
    agent = {"name": "Weather", "id": "task-00", "task": QUESTION, "dependsOn": [], "nodes": []}
    plan = {"taskId": SESSION, "name": "Cities", "thought": "", "agents": [agent], "taskPrompt": QUESTION}
    frame = {"streamType": "agent", "chatId": "chat", "taskId": SESSION, "agentName": "Weather", "nodeId": "task-00"}
    messages: list[dict[str, Any]] = [{**frame, "agentName": "Planer", "nodeId": None, "type": "workflow", "streamDone": True, "workflow": plan}, {**frame, "type": "agent_start", "agentNode": agent}]  # fmt: skip
    for number, request in enumerate(conversation.requests):
        messages.append({**frame, "type": "text", "streamId": f"text-{number}", "streamDone": True, "text": request.text})  # fmt: skip
        messages += [{**frame, "type": "tool_use", "toolCallId": call.id, "toolName": call.name, "params": call.args} for call in request.calls]  # fmt: skip
        usage = {"promptTokens": request.input, "completionTokens": request.output, "totalTokens": request.total}  # fmt: skip
        messages.append({**frame, "type": "finish", "finishReason": "tool-calls" if request.calls else "stop", "usage": usage})  # fmt: skip
        messages += [{**frame, "type": "tool_result", "toolCallId": call.id, "toolName": call.name, "params": call.args, "toolResult": {"content": [{"type": "text", "text": call.output}], "isError": call.failed}} for call in request.results]  # fmt: skip
    if not conversation.is_paused:
        messages.append({**frame, "type": "agent_result", "agentNode": agent, "result": LAST.text})
        messages.append(
            {**frame, "type": "debug_task_finished", "success": True, "stopReason": "done", "result": LAST.text}
        )
    return tuple(messages)


def read_by_server(_conversation: Conversation) -> records.Session:
    raise NotImplementedError("The server makes rows of events: tests/traces_app/imports/test_one_conversation.py.")


OF_EKO: tuple[Lack, ...] = ("models", "cached", "pause")
OWN_FORMS = [file_form(own_export), file_form(eko, *OF_EKO, "end")]
EVENT_FORMS = [
    Form(name="events", session=read_by_server),
    Form(name="callbacks of Eko", session=read_by_server, lacks=frozenset(OF_EKO)),
]
