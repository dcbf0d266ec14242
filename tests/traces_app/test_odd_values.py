"""Odd values in every place of a valid body: each decoder of the server takes or refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from access_app.errors import InvalidInput
from sdk.tests.odd_values import assert_taken_or_refused
from sdk.tests.spans.wires import TIME, finished
from traces_app.events.decode import decode_events, event_from, items_of
from traces_app.ingest import decode
from tracesite_sdk import records
from tracesite_sdk.eko.callbacks import Nodes, events_of, task_named
from tracesite_sdk.normalize import redacted as redaction
from tracesite_sdk.redaction.rules import DEFAULT_RULES as RULES


def callbacks(body: bytes) -> None:
    nodes = Nodes()
    for message in items_of(body, "messages", ndjson=False):
        if task_named(message) is None:
            raise InvalidInput
        try:
            documents = list(events_of(message, nodes))
        except ValueError as error:
            raise InvalidInput from error
        for document in documents:
            redaction.redact_event(event_from(document, ""), RULES)


CALL = {
    "id": "c", "uuid": "u", "name": "t", "args": {"a": 1}, "status": "success", "duration": 1, "started_at": TIME, "reflection": "r",
    "parent": "p", "metadata": {"a": 1}, "result": {"output": "o", "data": {"a": 1}, "success": True, "error": "e", "attachments": [{}]},
}  # fmt: skip
MESSAGE = {
    "external_id": "m", "role": "assistant", "content": "c", "request_id": "r", "created_at": TIME, "completed_at": TIME, "duration": 1,
    "is_completed": True, "health": ["h"], "error": "e", "usage": {"input_tokens": 1}, "metadata": {"a": 1},
    "knowledge_references": [{"id": "i", "content": "c", "chunk_index": 1, "score": 0.5, "metadata": {"a": 1}}],
    "agent_steps": [{"id": "s", "thought": "t", "iteration": 1, "timestamp": TIME, "duration": 1, "usage": {"input_tokens": 1},
                     "model": "m", "agent_name": "a", "tool_calls": [CALL]}],
}  # fmt: skip
SCORE = {
    "name": "q",
    "value": 1,
    "kind": "numeric",
    "label": "l",
    "comment": "c",
    "session": "s",
    "metadata": {"a": 1},
    "created_at": TIME,
}
SESSION = {
    "external_id": "s", "title": "t", "end_user": "u", "tags": ["a"], "metadata": {"a": 1}, "status": "running", "created_at": TIME,
    "messages": [MESSAGE], "scores": [SCORE], "unknown": 1,
}  # fmt: skip
EVENT = {
    "id": "e", "type": "tool_call_complete", "session_id": "s", "message_id": "m", "agent": "a", "timestamp": TIME, "number": 1,
    "level": "info", "category": "tool", "data": {"call_id": "c", "name": "t", "args": {"a": 1}, "result": {"output": "o"}, "step": "s:0"},
}  # fmt: skip
MONITOR = {
    "type": "tool",
    "taskId": "t",
    "ts": 1790000000000,
    "payload": {"phase": "start", "name": "t", "data": {"a": 1}},
}
CALLBACK = {
    "taskId": "t", "agentName": "a", "nodeId": "n", "streamId": "s", "streamDone": True, "toolCallId": "c", "toolName": "t", "params": {"a": 1},
    "text": "x", "timestamp": 1790000000000, "usage": {"promptTokens": 1}, "error": "e", "finishReason": "stop", "duration": 1,
    "toolResult": {"content": [{"type": "text", "text": "t"}], "isError": False}, "workflow": {"name": "w"}, "stopReason": "done",
}  # fmt: skip
KINDS_OF_CALLBACKS = (
    "workflow", "agent_start", "text", "tool_use", "finish", "tool_result", "agent_result", "error", "file", "raw", "tool_running",
    "debug_plan_start", "debug_agent_finished", "debug_llm_request_start", "debug_tool_call_finished", "debug_task_finished",
)  # fmt: skip

WIRES: dict[str, tuple[Callable[[bytes], object], Any]] = {
    "ingest": (lambda body: finished(decode.decode_ingest(body, ndjson=False)), {"sessions": [SESSION]}),
    "session": (lambda body: finished([decode.decode_session(body)]), SESSION),
    "messages": (lambda body: finished([records.Session(messages=decode.decode_messages(body))]), [MESSAGE]),
    "message patch": (decode.decode_message_patch, {name: MESSAGE[name] for name in ("content", "agent_steps", "error", "usage")}),
    "session patch": (decode.decode_session_patch, {name: SESSION[name] for name in ("title", "tags", "metadata", "status")}),
    "scores": (decode.decode_scores, [SCORE]),
    "events": (lambda body: [redaction.redact_event(event, RULES) for event in decode_events(body, ndjson=False)], {"events": [EVENT]}),
    "monitor messages": (lambda body: decode_events(body, ndjson=False), [MONITOR]),
    **{f"callback {kind}": (callbacks, [{"type": kind, **CALLBACK}]) for kind in KINDS_OF_CALLBACKS},
    "callbacks of a run": (callbacks, [{"type": kind, **CALLBACK} for kind in ("workflow", "tool_use", "tool_result", "error")]),
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
def test_odd_value_is_taken_or_refused(wire: str) -> None:
    assert_taken_or_refused(*WIRES[wire], InvalidInput, msgspec.DecodeError)
