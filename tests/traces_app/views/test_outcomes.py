"""One result, one record: in each shape, as an object and as its JSON text, and over each way of input.

Each way sends all shapes in one batch and compares whole rows with the same table. To see the record of a new shape, add a
line to SHAPES and run `pytest tests/traces_app/views/test_outcomes.py`: a failure names the way and the shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from messages_app.models import Message
from traces_app.models import ToolCall
from tracesite_sdk import records, results
from tracesite_sdk.normalize.tool_results import NO_REASON, normalize_result, received
from tracesite_sdk.recorder.capture.entries import Entry, Kind, freeze, result_says_error
from tracesite_sdk.testing import recording

from .conftest import Caller

PNG = "iVBORw0KGgo" + "A" * 121
IMAGE = {"type": "image", "media_type": "image/png", "data": PNG}
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: no such column'


class Row(NamedTuple):
    """The columns of a call and its result, without `raw`."""

    status: str
    output: str = ""
    data: Any = None
    error: str = ""
    metadata: dict[str, Any] = {}
    attachments: list[Any] = []


def text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def fine(output: str = "", data: Any = None, **more: Any) -> Row:
    return Row("success", output, data, **more)


def failed(error: str, output: str = "", data: Any = None, **more: Any) -> Row:
    return Row("error", output, data, error, **more)


def told(message: str) -> Row:
    """A text that reports a failure of the tool."""
    return failed(message, message)


def whole(value: Any, error: str | None = None, **more: Any) -> Row:
    """Data of the tool, complete."""
    return fine(text(value), value, **more) if error is None else failed(error, text(value), value, **more)


def mcp(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


QUERY = {"success": True, "sql_query": "SELECT 1", "qa_pairs": [], "note": ""}
TOOL_MESSAGE = {"type": "tool", "content": "No rows.", "name": "query", "tool_call_id": "call_1", "status": "error"}
WEKNORA = {
    "success": True,
    "output": "One picture.",
    "data": {"display_type": "image", "info": '[{"url": "x"}]'},
    "error": "",
    "images": [f"data:image/png;base64,{PNG}"],
}
LISTED = '{"rows": [1]}'

SHAPES: dict[str, tuple[Any, Row]] = {
    # Texts.
    "text": ("31 °C", fine("31 °C")),
    "empty text": ("", fine()),
    "error text": ("Error: it broke", told("Error: it broke")),
    "exception": ("ValueError: no such column", told("ValueError: no such column")),
    "traceback": (TRACEBACK, told(TRACEBACK)),
    "tool_use_error": ("<tool_use_error>Not read yet.</tool_use_error>", told("<tool_use_error>Not read yet.</tool_use_error>")),
    "error in words": ("An error occurred while reading", told("An error occurred while reading")),
    "failed to": ("Failed to fetch page: 404", told("Failed to fetch page: 404")),
    "no errors": ("0 errors found", fine("0 errors found")),
    "about errors": ("Error handling in Go is done by values.", fine("Error handling in Go is done by values.")),
    "log line": ("[INFO] started", fine("[INFO] started")),
    "digits": ("42", fine("42")),
    "python": ("{'success': False, 'reason': 'gone'}",
               failed("{'success': False, 'reason': 'gone'}", "{'success': False, 'reason': 'gone'}",
                      {"success": False, "reason": "gone"})),
    "encoded twice": (text(text({"success": False, "error": "no such table"})), failed("no such table")),
    # Objects of the tool.
    "rows": ({"rows": [1]}, whole({"rows": [1]})),
    "nothing": ({}, whole({})),
    "message": ({"message": "Hello"}, whole({"message": "Hello"})),
    "list": ([1, 2], whole([1, 2])),
    "empty list": ([], whole([])),
    "JSON inside": ({"rows": '[{"id": 1}]'}, fine(text({"rows": '[{"id": 1}]'}), {"rows": [{"id": 1}]})),
    "order pending": ({"order_id": "#W1", "status": "pending"}, whole({"order_id": "#W1", "status": "pending"})),
    "order shipped": ({"order_id": "#W1", "status": "shipped"}, whole({"order_id": "#W1", "status": "shipped"})),
    "payment failed": ({"payment": 3, "status": "failed"}, whole({"payment": 3, "status": "failed"})),
    "unknown status": ({"status": "shipped"}, whole({"status": "shipped"})),
    "HTTP status": ({"status": 200, "data": {"a": 1}}, whole({"status": 200, "data": {"a": 1}})),
    "own fields, success": (QUERY, whole(QUERY)),
    "own fields, failure": ({"success": False, "code": 5, "message": "No."},
                            whole({"success": False, "code": 5, "message": "No."}, "No.")),
    "own fields, status error": ({"status": "error", "id": 3}, whole({"status": "error", "id": 3}, text({"status": "error", "id": 3}))),
    "own fields, error": ({"error": "Rate limited.", "response": ""}, whole({"error": "Rate limited.", "response": ""}, "Rate limited.")),
    "own fields, no error": ({"error": None, "rows": []}, whole({"error": None, "rows": []})),
    "own fields, output": ({"output": "3 rows", "exit_code": 0}, fine("3 rows", {"output": "3 rows", "exit_code": 0})),
    "own fields, error in output": (
        {"output": "Error: no such file", "exit_code": 1},
        failed("Error: no such file", "Error: no such file", {"output": "Error: no such file", "exit_code": 1})),
    "own meaning of success": ({"success": "partly", "output": "x"}, fine("x", {"success": "partly", "output": "x"})),
    "flag alone": ({"isError": True, "message": "Gone."}, whole({"isError": True, "message": "Gone."}, "Gone.")),
    # Results with the names of tools.
    "success, data": ({"success": True, "data": {"rows": [1]}}, fine("", {"rows": [1]})),
    "success, data, own fields": (
        {"success": True, "data": {"rows": []}, "sql_query": "SELECT 1", "qa_pairs": []},
        fine("", {"rows": []}, metadata={"sql_query": "SELECT 1", "qa_pairs": []})),
    "success, times": ({"success": True, "data": [1], "error": None, "execution_time": 0.2},
                       fine("", [1], metadata={"execution_time": 0.2})),
    "failure": ({"success": False, "error": "no such table"}, failed("no such table")),
    "failure without a reason": ({"success": False}, failed(NO_REASON)),
    "failure, message": ({"success": False, "message": "No such table.", "suggestion": "Name it."},
                         failed("No such table.", metadata={"suggestion": "Name it."})),
    "status error, message": ({"status": "error", "message": "Gone."}, failed("Gone.")),
    "status failed": ({"status": "failed", "message": "Gone."}, failed("Gone.")),
    "status OK": ({"status": "OK", "data": {"a": 1}}, fine("", {"a": 1})),
    "pending": ({"status": "pending", "message": "Queued."}, Row("pending", "Queued.")),
    "success wins over pending": ({"success": True, "status": "pending", "data": {"order": 1}}, fine("", {"order": 1})),
    "error object": ({"error": {"code": 7}}, failed('{"code":7}')),
    "error true": ({"error": True, "message": "Gone."}, failed("Gone.")),
    "error false": ({"error": False, "data": [1]}, fine("", [1])),
    "data is JSON": ({"success": True, "data": LISTED}, fine("", {"rows": [1]})),
    "JSON in data": ({"success": True, "data": {"inner": LISTED}}, fine("", {"inner": {"rows": [1]}})),
    "output is JSON": ({"output": text({"success": False, "error": "no"})}, failed("no")),
    "stated success": ({"success": True, "output": "Error: as was asked"}, fine("Error: as was asked")),
    "of the README": ({"success": True, "output": "31 C", "data": {"temp_c": 31}}, fine("31 C", {"temp_c": 31})),
    "of WeKnora": (WEKNORA, fine("One picture.", WEKNORA["data"], attachments=[IMAGE])),
    "image in data": ({"success": True, "data": {"screenshot": PNG}},
                      fine("", {"screenshot": "[image 1]"}, attachments=[IMAGE])),
    # Results of protocols.
    "MCP": (mcp("31 °C"), fine("31 °C")),
    "MCP error": (mcp("No such table.", isError=True), failed("No such table.", "No such table.")),
    "MCP success": (mcp("Error: as was asked", isError=False), fine("Error: as was asked")),
    "MCP without a flag": (mcp("Error: it broke"), told("Error: it broke")),
    "MCP, JSON": (mcp(text({"success": False, "error": "no such table"})), failed("no such table")),
    "MCP, text only": ({"content": "No such city.", "isError": True}, failed("No such city.", "No such city.")),
    "blocks": ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], fine("a b")),
    "LangChain": (TOOL_MESSAGE, failed("No rows.", "No rows.", metadata={"name": "query", "tool_call_id": "call_1"})),
    "Anthropic": ({"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True},
                  failed("no", "no", metadata={"tool_use_id": "t1"})),
}  # fmt: skip


class Sent(NamedTuple):
    id: str
    shape: str
    value: Any
    """The value of the shape as it is sent, or its JSON."""


def sent() -> list[Sent]:
    """All shapes, those that are no text as their JSON too; a call of each has an id of its own."""
    made = []
    for number, (name, (value, _row)) in enumerate(SHAPES.items()):
        made.append(Sent(f"call_{number}", name, value))
        if not isinstance(value, str):
            made.append(Sent(f"call_{number}_text", name, text(value)))
    return made


def calls_of(sent: list[Sent]) -> list[dict[str, Any]]:
    return [{"id": one.id, "uuid": one.id, "name": "query", "args": {}} for one in sent]


# --- Seven ways in --------------------------------------------------------------------------------------------------


def by_ingest(owner: Caller, sent: list[Sent]) -> None:
    calls = [{**call, "result": one.value} for call, one in zip(calls_of(sent), sent, strict=True)]
    message = {"role": "assistant", "external_id": "run", "agent_steps": [{"tool_calls": calls}]}
    answer = owner.post("ingest/", {"sessions": [{"external_id": "s", "messages": [message]}]})
    assert answer.status == 200, answer.body


def by_events(owner: Caller, sent: list[Sent]) -> None:
    events = []
    for one in sent:
        call = {"call_id": one.id, "name": "query"}
        events.append({"session_id": "s", "type": "tool_call_start", "data": {**call, "args": {}}})
        events.append({"session_id": "s", "type": "tool_call_complete", "data": {**call, "result": one.value}})
    answer = owner.post("events/", events)
    assert answer.status == 200, answer.body


def by_monitor_messages(owner: Caller, sent: list[Sent]) -> None:
    messages = []
    for number, one in enumerate(sent):
        call = {"agentId": "a", "name": "query", "toolCallId": one.id}
        said = [{"phase": "start", "args": {}}, {"phase": "complete", "result": one.value}]
        for at, more in enumerate(said):
            ts = 1772366400000 + 2 * number + at
            messages.append({"taskId": "s", "type": "tool", "ts": ts, "payload": {**call, **more}})
    answer = owner.post("events/", messages)
    assert answer.status == 200, answer.body


def by_callbacks(owner: Caller, sent: list[Sent]) -> None:
    """Tools of Eko return {content, isError}: anything else is text in it."""
    messages = []
    for one in sent:
        call = {"taskId": "s", "agentName": "A", "nodeId": "n", "toolName": "query", "toolCallId": one.id, "params": {}}
        is_own = isinstance(one.value, dict) and "content" in one.value and "type" not in one.value
        answered = one.value if is_own else mcp(one.value if isinstance(one.value, str) else text(one.value))
        messages += [{**call, "type": "tool_use"}, {**call, "type": "tool_result", "toolResult": answered}]
    answer = owner.post("eko/callbacks/", {"messages": messages})
    assert answer.status == 200, answer.body


def by_import(owner: Caller, sent: list[Sent]) -> None:
    """Texts in a transcript of OpenAI's chat format, objects in an export of Tracesite."""
    texts = [one for one in sent if isinstance(one.value, str)]
    asked = [{"id": one.id, "type": "function", "function": {"name": "query", "arguments": "{}"}} for one in texts]
    talk: list[dict[str, Any]] = [{"role": "user", "content": "Try."}, {"role": "assistant", "tool_calls": asked}]
    talk += [{"role": "tool", "tool_call_id": one.id, "content": one.value} for one in texts]
    answer = owner.post("import/", json.dumps(talk), content_type="application/octet-stream")
    assert answer.status in (200, 201), answer.body
    objects = [one for one in sent if not isinstance(one.value, str)]
    calls = [{**call, "result": one.value} for call, one in zip(calls_of(objects), objects, strict=True)]
    message = {"role": "assistant", "external_id": "run", "agent_steps": [{"tool_calls": calls}]}
    export = {"external_id": "s", "messages": [message]}
    answer = owner.post("import/", json.dumps(export), content_type="application/octet-stream")
    assert answer.status in (200, 201), answer.body


def by_recorder(owner: Caller, sent: list[Sent]) -> None:
    with recording() as recorder:
        with recorder.session("s"), recorder.message("Try."):
            for one in sent:
                with recorder.tool_call("query", {}, call_id=one.id) as call:
                    call.result = one.value
        lines = b"\n".join(map(msgspec.json.encode, recorder.events))
    answer = owner.post("events/", lines, content_type="application/x-ndjson")
    assert answer.status == 200, answer.body


def by_patch(owner: Caller, sent: list[Sent]) -> None:
    message = {
        "role": "assistant", "external_id": "run", "is_completed": False,
        "agent_steps": [{"id": "step", "tool_calls": calls_of(sent)}],
    }  # fmt: skip
    assert owner.post("ingest/", {"sessions": [{"external_id": "s", "messages": [message]}]}).status == 200
    calls = [{**call, "result": one.value} for call, one in zip(calls_of(sent), sent, strict=True)]
    stored = Message.objects.get()
    patch = {"version": stored.version, "agent_steps": [{"id": "step", "tool_calls": calls}]}
    answer = owner.patch(f"messages/{stored.pk}/", patch)
    assert answer.status == 200, answer.body


WAYS: list[Callable[[Caller, list[Sent]], None]] = [
    by_ingest, by_events, by_monitor_messages, by_callbacks, by_import, by_recorder, by_patch,
]  # fmt: skip


def rows() -> dict[str, tuple[Row, str | None]]:
    """Return the rows of all calls with `raw`, by the id of the call."""
    found = {}
    for call in ToolCall.objects.select_related("result"):
        result = call.result
        row = Row(call.status, result.output, result.data, result.error, result.metadata, result.attachments)
        assert call.call_id not in found
        found[call.call_id] = (row, result.raw)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_result_of_any_shape_is_one_record(owner: Caller, way: Callable[[Caller, list[Sent]], None]) -> None:
    all_sent = sent()
    way(owner, all_sent)
    found = rows()
    wrong = []
    for one in all_sent:
        expected = SHAPES[one.shape][1]
        row, raw = found[one.id]
        # The received text is kept if the row does not hold all of it.
        received_text = one.value if isinstance(one.value, str) else text(one.value)
        if row != expected or raw not in (None, received_text, *_inner_texts(one)):
            wrong.append(f"{one.shape!r} as {type(one.value).__name__}:\n    {expected}\n    {row}\n    raw {raw!r}")
        if isinstance(one.value, str) and raw is None and row.output != one.value and way is not by_callbacks:
            wrong.append(f"{one.shape!r}: the text that was received is lost")
    assert not wrong, "\n".join(wrong)
    assert len(found) == len(all_sent)
    failures = sum(SHAPES[one.shape][1].status == "error" for one in all_sent)
    assert sum(Message.objects.values_list("failure_count", flat=True)) == failures


def _inner_texts(one: Sent) -> list[str]:
    """If an object wraps the text of a tool, that text is the received one."""
    value = msgspec.json.decode(one.value) if one.id.endswith("_text") else one.value
    inner = value.get("content", value.get("output")) if isinstance(value, dict) else None
    return [inner] if isinstance(inner, str) else [part["text"] for part in inner or ()]


def test_table_of_outcomes_has_forty_shapes_and_seven_ways() -> None:
    assert len(SHAPES) >= 40
    assert len(WAYS) == 7


@pytest.mark.parametrize("name", SHAPES)
def test_recorder_reads_a_result_as_the_server_does(name: str) -> None:
    value, expected = SHAPES[name]
    for said in (value, text(value)) if not isinstance(value, str) else (value,):
        entry = Entry(Kind.CALL_END, 0, None, "e", {}, {"result": freeze(said)}, 0)  # type: ignore[arg-type]  # no scope is asked
        assert result_says_error(entry) is (expected.status == "error")
        assert results.read(said).status == expected.status


@pytest.mark.parametrize("name", SHAPES)
def test_result_read_again_is_the_same(name: str) -> None:
    value, _row = SHAPES[name]
    once = normalize_result(received(value), None)
    assert isinstance(once, records.ToolResult)
    assert normalize_result(once, None) == once
