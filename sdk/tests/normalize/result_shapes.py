"""Results of tools in every shape that is known, and the record that each becomes."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tracesite_sdk.normalize.tool_results import NO_REASON

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
