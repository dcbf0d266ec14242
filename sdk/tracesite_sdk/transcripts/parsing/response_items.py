"""Map the calls and results of OpenAI's Responses API, which Codex stores in its files too.

* an item whose type ends in `_call` is a call; a call that the provider carried out (web search, code interpreter, MCP ...)
  contains its result as well;
* an item whose type ends in `_call_output` is a result.
"""

from __future__ import annotations

from typing import Any

from tracesite_sdk.normalize import json_values
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.transcripts.entries import Call, Result, is_text

_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
MARKED_PARTS = ("input_text", "output_text", "input_image", "input_file")
_OUTPUT_PARTS = (*MARKED_PARTS, "text", "image", "computer_screenshot")
# Calls that contain their result, and the fields of the result.
CARRIED_OUT = {
    "web_search_call": ("results",),
    "file_search_call": ("results",),
    "code_interpreter_call": ("outputs",),
    "image_generation_call": ("result",),
    "mcp_call": ("output",),
    "hosted_tool_call": ("output",),
}
_OPEN_STATES = ("in_progress", "searching", "interpreting", "generating", "calling", "queued", "incomplete")
# Fields of the arguments of a call, tried in turn; a call without any of them has all its own fields as arguments.
ARGUMENTS = ("arguments", "input", "action", "actions", "operation")
_CALL_FIELDS = frozenset({"type", "id", "call_id", "callId", "name", "status", "error", *ARGUMENTS})
# Fields of calls that are about the call, where all others are arguments.
_ABOUT_A_CALL = frozenset({"caller", "created_by", "providerData", "pending_safety_checks", "svg_usage", "fingerprint"})
_RESULT_FIELDS = frozenset({"type", "call_id", "callId", "approval_request_id", "output", "result", "name"})


def is_call(kind: object) -> bool:
    """Return whether an item of this type is a call."""
    return isinstance(kind, str) and (kind.endswith("_call") or kind in ("program", "mcp_approval_request"))


def is_result(kind: object) -> bool:
    """Return whether an item of this type is the result of a call."""
    return isinstance(kind, str) and (
        kind.endswith(("_call_output", "_call_result"))
        or kind in ("program_output", "tool_search_output", "mcp_approval_response")
    )


def is_client_search(item: dict[str, Any]) -> bool:
    """Return whether the client carries out a search for tools, so that it is a call like others."""
    return item.get("execution") == "client" or call_id_of(item) is not None


def call_of(kind: str, item: dict[str, Any]) -> Call:
    """Return the call that an item is."""
    own = CARRIED_OUT.get(kind, ())
    name = json_values.text(item.get("name")) or kind.removesuffix("_call")
    args: Any
    metadata = {}
    if kind != "function_call":
        metadata["type"] = kind
    if item.get("status") not in (None, "completed"):
        metadata["status"] = item["status"]
    if call_id_of(item) and item.get("id"):
        metadata["item_id"] = item["id"]
    others = json_values.rest(item, _CALL_FIELDS | frozenset(own))
    key = next((key for key in ARGUMENTS if item.get(key) is not None), None)
    if kind == "mcp_approval_request":
        name, args = kind, json_values.rest(item, frozenset({"type", "id"}))
        others = {}
    elif key is None and kind not in ("function_call", "custom_tool_call", "mcp_call", "hosted_tool_call"):
        args = {name: value for name, value in others.items() if name not in _ABOUT_A_CALL}
        others = {name: value for name, value in others.items() if name in _ABOUT_A_CALL}
    else:
        args = item[key] if key is not None else None
        if key == "input" and isinstance(args, str):
            # Free text by design, stored under the key that broken JSON gets, too.
            args = {"_raw": args}
        elif key == "actions":
            args = {"actions": args}
        elif key == "action" and isinstance(args, dict):
            args = {name: value for name, value in args.items() if name != "sources"}
    return Call(
        id=call_id_of(item) or json_values.text(item.get("id")), name=name, args=args, metadata={**metadata, **others}
    )


def own_result(id_: str, kind: str, item: dict[str, Any], call_id: str | None) -> Result | None:
    """Return the result that a call contains, or None if it has none yet."""
    output = next((item[key] for key in CARRIED_OUT[kind] if item.get(key) is not None), None)
    error, status = item.get("error"), item.get("status")
    if output is None and not error and status in _OPEN_STATES:
        return None
    attachments: list[Any] = []
    data = None
    action = item.get("action")
    if kind == "image_generation_call" and isinstance(output, str):
        image = f"data:image/{json_values.text(item.get('output_format')) or 'png'};base64,{output}"
        output, attachments = None, [{"type": "input_image", "image_url": image}]
    elif kind == "code_interpreter_call" and isinstance(output, list):
        data = output
        attachments = [part for part in output if isinstance(part, dict) and part.get("type") == "image"]
        output = "\n".join(
            part["logs"] for part in output if isinstance(part, dict) and isinstance(part.get("logs"), str)
        )
    elif kind == "web_search_call" and isinstance(action, dict):
        data = action.get("sources")
    metadata = {"error": error} if error and output is not None else {}
    return Result(
        id=id_,
        output=_error_text(error) if output is None and error else output,
        failed=bool(error) or status == "failed",
        data=data,
        call_ids=[call_id] if call_id else [],
        name=json_values.text(item.get("name")) or kind.removesuffix("_call"),
        attachments=attachments or None,
        metadata=metadata,
    )


def result_of(id_: str, kind: str, item: dict[str, Any]) -> Result:
    """Return the result that an item is."""
    output = item.get("output", item.get("result"))
    attachments: list[Any] = []
    if kind == "mcp_approval_response":
        output = json_values.rest(item, frozenset({"type", "id", "approval_request_id"}))
    elif kind == "tool_search_output":
        output = item.get("tools")
    if _is_part(output):
        output = [output]
    if isinstance(output, list) and output and all(map(_is_part, output)):
        text, parts = text_of(content_of(output))
        attachments = [part for part in parts or () if not is_text(part)]
        output = text
    call_id = call_id_of(item) or json_values.text(item.get("approval_request_id"))
    if call_id is None and kind == "local_shell_call_output":
        call_id = json_values.text(item.get("id"))
    failed = True if item.get("status") == "failed" or _exited_badly(item.get("output")) else None
    used = _RESULT_FIELDS | ({"tools"} if kind == "tool_search_output" else frozenset())
    metadata = json_values.rest(item, used | {"status", "approve", "reason"})
    if item.get("status") not in (None, "completed"):
        metadata["status"] = item["status"]
    if kind != "function_call_output":
        metadata["type"] = kind
    return Result(
        id=id_,
        output=output,
        failed=failed,
        call_ids=[call_id] if call_id else [],
        name=json_values.text(item.get("name")),
        attachments=attachments or None,
        metadata=metadata,
    )


def _is_part(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") in _OUTPUT_PARTS


def _exited_badly(output: object) -> bool:
    """Return whether a command of the shell tool timed out or its exit code is not 0."""
    outcomes = [part.get("outcome") for part in json_values.items(output) if isinstance(part, dict)]
    return any(
        isinstance(o, dict) and (o.get("type") == "timeout" or o.get("exit_code") not in (None, 0)) for o in outcomes
    )


# --- Values -------------------------------------------------------------------------------------------------------


def content_of(value: object) -> str | list[Any] | None:
    """Return text or None unchanged, a list of parts with its texts in one form, any other value as its JSON text."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        return json_values.as_json(value)
    return joined([_part(part) for part in value])


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if part.get("type") in _TEXTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if part.get("type") == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": "text", "text": part["refusal"]}
    return part


def joined(parts: list[Any]) -> str | list[Any] | None:
    """Return a single text as it is, because its part adds nothing."""
    if len(parts) == 1 and is_text(parts[0]):
        text = parts[0] if isinstance(parts[0], str) else parts[0].get("text")
        return text if isinstance(text, str) else parts
    return parts or None


def _error_text(error: Any) -> Any:
    """Return the text of an error, which is a text, an object with a message, or an object with content."""
    if not isinstance(error, dict):
        return error
    if isinstance(error.get("content"), list):
        return text_of(content_of(error["content"]))[0] or error
    return error.get("message") or error


def call_id_of(item: dict[str, Any]) -> str | None:
    """Return the id that a call and its result have in common."""
    return json_values.text(item.get("call_id")) or json_values.text(item.get("callId"))
