"""Normalise the results of tools: status, output for people, data for machines, error, metadata, attachments.

This module decides the outcome of every result, wherever it comes from: ingest and PATCH, events, monitor messages, Eko
callbacks, imports and the recorder. No other code may derive a status that the producer did not state.

A tool may return an object, JSON text (encoded once or several times), Python's repr of an object, content blocks of MCP,
Anthropic or LangChain, a whole tool message, or plain text. The rules, in this order:

1. A status or `success` next to the output takes precedence over everything inside it, then an `error` next to it. `raw`
   means that the output has been parsed already.
2. A text that is JSON or Python's repr is parsed; strings within strings are unwrapped.
3. A tool message and a list of content blocks are split: text, images and files, structured content.
4. An object is either a result (see `result_fields`) and is split, or the tool's own data and is kept whole. An object and
   its JSON text give the same result.
5. If nothing states the outcome, a non-empty error means error, and last the text decides: see `is_error_text`.
6. Images are moved from text and data into attachments (images.py).

The received text is kept in `raw` if the output differs from it. Pure functions, which never raise and are
idempotent. docs/what_is_stored.md has examples.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Set
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import msgspec
from msgspec.structs import replace

from tracesite_sdk import records

from .images import Attachments, data_may_hold_images, may_hold_images, seems_to_hold_images
from .mended_json import decode_json

NO_REASON = "The tool reported a failure and gave no reason."
TOO_DEEP = "[nested too deeply]"

MOST_WRAPPINGS = 8
"""How often JSON may be nested in a string of JSON, or a message in a message. Text nested deeper is not parsed."""
MOST_NESTED = 200
"""Levels of objects and lists that are parsed; deeper JSON stays text."""
_LONGEST_REPR = 100_000
"""Python's parser takes much more time and memory than a JSON decoder does."""

_STATUS_WORDS: dict[Any, records.CallStatus] = {
    "success": "success",
    "succeeded": "success",
    "ok": "success",
    "completed": "success",
    "error": "error",
    "failed": "error",
    "failure": "error",
    "pending": "pending",
}
_DETAILS = (
    *("error_type", "error_code", "suggestion", "suggestions", "troubleshooting", "details"),
    *("execution_time", "execution_time_ms", "rows_affected", "row_count", "from_cache", "tool_name", "timestamp"),
)
_FIELDS = frozenset(records.ToolResult.__struct_fields__)
_KNOWN = frozenset([*_FIELDS, "message", "result", "images", *_DETAILS])
"""Fields with a known meaning in a result; any other is the tool's own."""
_TYPES: dict[str, type] = {"success": bool, "metadata": dict, "attachments": list, "images": list, "raw": str}
"""The types of the fields of a result; null is allowed too."""
_NOTHING: tuple[Any, ...] = (None, "", [], {})
_MCP = frozenset(["content", "isError", "is_error", "structuredContent", "structured_content", "_meta", "meta"])
_TOOL_MESSAGES = ("tool", "tool_result", "function_call_output")
_CALL_IDS = ("tool_call_id", "tool_use_id", "call_id")
_STRUCTURED = ("structuredContent", "structured_content", "artifact")
_MESSAGE_FIELDS = frozenset(["type", "role", "content", "output", "status", "isError", "is_error", *_STRUCTURED])
_OF_TEXT = frozenset(["type", "text"])
_TEXT_BLOCKS = frozenset(["text", "input_text", "output_text"])
_FILE_BLOCKS = frozenset(
    [
        *("image", "image_url", "input_image", "image_data", "image-data", "media", "audio", "input_audio", "video"),
        *("file", "input_file", "file-data", "document", "resource", "resource_link", "container_upload"),
    ]
)
_DATA_BLOCKS = frozenset(["json", "search_result", "tool_reference", "web_search_result"])
_OTHER_BLOCKS = _DATA_BLOCKS | {"thinking", "refusal"}

# Only the beginning of a text counts as a report of failure, unlike "0 errors found" or a guide to error handling.
_SAYS_ERROR = re.compile(
    r"""[\s\W]{0,8}(?:
        <(?:tool_use_)?error>
      | (?-i:Traceback\ \(most\ recent\ call\ last\))
      | (?:[a-z_]\w{0,30}\.){0,6}(?-i:[A-Z]\w{0,60}(?:Error|Exception))\s{0,2}(?:[:(]|$|[\r\n])  # httpx.ReadError: ...
      | (?:(?:tool|api|http|server|internal|connection|network|timeout|unexpected|fatal|runtime|syntax|validation
          |database|sql|execution|command|input|unknown|system|permission|parse|access)\s){0,2}
        (?:error|exception)\s{0,2}(?:[:(!\-\u2013\u2014\uff1a](?!\s{0,3}(?:-?\d|(?:none|null)\s*$))|$|[\r\n])
      | error\s(?:while|when|during|occurred|executing|calling|running|invoking|reading|writing|fetching|loading|opening
          |parsing|processing|connecting|creating|updating|deleting|sending|searching|getting|in\stool)\b
      | (?:an?\s)?(?:\w{1,40}\s)?error\s(?:has\s)?occurred\b
      | (?:\w{1,40}\s){0,3}(?:execution|call|request|command)\sfailed\b
      | failed\sto\s
      | (?:\u9519\u8bef|\u5f02\u5e38|\u5931\u8d25)\s{0,2}[:\uff1a]                              # error, exception, failed
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_NO_ERROR = re.compile(r"\W{0,8}(?:no|0|zero|without)\s", re.IGNORECASE)
# The tokens in the repr of plain values, without anything that makes the parser warn or take long. repr() escapes
# backslashes, so a text with a backslash before any other character is not a repr.
_REPR = re.compile(
    r"""(?:\s|[\[\]{}(),:]|'(?:[^'\\\n]|\\[\\'"nrtxuU])*'|"(?:[^"\\\n]|\\[\\'"nrtxuU])*"
      |-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])|True|False|None)+""",
    re.VERBOSE,
)
_FIRST_OF_JSON = frozenset('{["' + string.whitespace)
_LAST_OF_JSON = {"{": "}", "[": "]", '"': '"'}


def normalize_result(
    result: records.ToolResult | str | list[Any] | None, call_status: records.CallStatus | None
) -> records.ToolResult | None:
    """Return the result in normal form, the same object if it is in normal form already. `call_status` is used if the
    result states none."""
    if result is None:
        return records.ToolResult(status="error", success=False, error=NO_REASON) if call_status == "error" else None
    if not isinstance(result, records.ToolResult):
        result = records.ToolResult(output=result)
    status = _stated(result)
    if status is None and call_status != "pending":
        # A pending status is outdated, because the call has a result.
        status = call_status
    if status is not None and (status != "error" or result.error) and _is_plain(result):
        success = status == "success"
        if result.status == status and result.success is success:
            return result
        return replace(result, status=status, success=success, error=result.error or "")
    return _read(result, status)


def received(value: Any) -> records.ToolResult:
    """Return the record of a value given as a result: a result in the form of the API, or the return value of a tool."""
    if isinstance(value, records.ToolResult):
        return value
    fields = result_fields(value) if isinstance(value, dict) else None
    return records.ToolResult(output=value) if fields is None else records.ToolResult(**fields)


def result_fields(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of records.ToolResult in an object, or None if it is the tool's own data.

    An object is a result

    * if it has only fields of a result (at least one) and other known fields (`message`, `images`, `execution_time` ...);
    * if it also has fields of its own, but `data` and a statement of the outcome too: `success`, `error`, or the status
      "success" or "error". Any other status ("pending", "failed") may be that of an order or a payment.

    Known fields that a record does not have, and the tool's own fields, go to its `metadata`, empty or not.
    """
    own = value.keys() - _KNOWN
    if not own and _FIELDS.isdisjoint(value):
        return None
    for name, type_ in _TYPES.items():
        if value.get(name) is not None and not isinstance(value[name], type_):
            return None
    word, success = value.get("status"), value.get("success")
    status = _STATUS_WORDS.get(word.lower()) if isinstance(word, str) else None
    if word not in (None, "") and (status is None or (own and word not in ("success", "error"))):
        return None
    if own and not ("data" in value and (status is not None or success is not None or "error" in value)):
        return None
    if _tool_message(value) is not None:
        return None
    return _fields_of(value, own, status)


def _fields_of(value: dict[str, Any], own: Set[str], status: records.CallStatus | None) -> dict[str, Any]:
    success, error, output, data = (value.get(name) for name in ("success", "error", "output", "data"))
    rest = {name: item for name, item in value.items() if name not in _FIELDS and (name in own or item not in _NOTHING)}
    images = rest.pop("images", None) or []
    has_failed = status == "error" or (status is None and (success is False or (success is None and bool(error))))
    if has_failed and not _reason(error) and isinstance(rest.get("message"), str):
        error = rest.pop("message")
    if output in _NOTHING and "message" in rest:
        output = rest.pop("message")
    if data is None and "result" in rest:
        data = rest.pop("result")
    return {
        "status": status,
        "success": success,
        "output": "" if output is None else output,
        "data": data,
        "error": error,
        "metadata": {**rest, **(value.get("metadata") or {})} or None,
        "attachments": [*(value.get("attachments") or ()), *images] or None,
        "raw": value.get("raw"),
    }


def is_error_text(text: str) -> bool:
    """Return whether a plain text reports a failure of the tool. The last resort, if nothing else states the outcome."""
    return _SAYS_ERROR.match(text) is not None and _NO_ERROR.match(text) is None


def text_as_json(value: Any) -> str:
    """Return text unchanged, anything else as JSON with non-ASCII characters kept, and "" for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return TOO_DEEP


# --- One result -----------------------------------------------------------------------------------------------------


def _stated(result: records.ToolResult) -> records.CallStatus | None:
    """Return the outcome that the producer states next to the output."""
    if result.status == "pending" and result.success is True:
        return "success"
    if result.status is None and result.success is not None:
        return "success" if result.success else "error"
    return result.status


def _reason(failure: Any) -> str:
    """Return the text of an `error`. true is an error without a text; null, "", false and {} are no error."""
    return text_as_json(failure) if failure and failure is not True else ""


def _is_plain(result: records.ToolResult) -> bool:
    """Return whether there is nothing to parse, find or correct, as in nearly all results of requests."""
    output, data = result.output, result.data
    if not isinstance(output, str) or not (result.error is None or isinstance(result.error, str)) or result.attachments:
        return False
    if output and result.raw is None and ((data is None and output[0] in _FIRST_OF_JSON) or may_hold_images(output)):
        return False
    if data is None or type(data) is msgspec.Raw:
        # Undecoded JSON was checked before: see raw_json.py.
        return True
    if _is_read_in_data(result):
        return _with_inner(data, MOST_WRAPPINGS) is data and not data_may_hold_images(data)
    return not seems_to_hold_images(data)


def _is_read_in_data(result: records.ToolResult) -> bool:
    """Return whether to look for JSON and images in `data`: if a tool returned data and nothing for people.

    A result that has an output, or both `status` and `success`, was produced by code that knows the normal form.
    """
    return not result.output and result.raw is None and (result.status is None or result.success is None)


def _read(result: records.ToolResult, status: records.CallStatus | None) -> records.ToolResult:
    reading = _of_record(result, MOST_WRAPPINGS)
    status = status or reading.status or "success"
    error = reading.error
    if status == "error" and not error:
        error = reading.output or NO_REASON
    return replace(
        result,
        status=status,
        success=status == "success",
        output=reading.output,
        data=reading.data,
        error=error,
        metadata=reading.metadata or result.metadata,
        attachments=reading.attachments or result.attachments,
        raw=reading.raw,
    )


# --- Reading --------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Reading:
    """The content of a result that has been parsed."""

    status: records.CallStatus | None = None
    """None if it states no outcome."""
    output: str = ""
    data: Any = None
    error: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    attachments: list[Any] = field(default_factory=list)
    text: str | None = None
    """The text inside a received value that is not text itself."""
    raw: str | None = None
    """For a record: the received text, if the output differs from it."""
    is_apart: bool = False
    """Whether output and data are different parts of the received value; if not, the output is the text of the data."""
    is_searched: bool = False
    """Whether images have been searched for."""
    is_cut: bool = False
    """Whether there are more wrappings than MOST_WRAPPINGS."""


def _of_record(result: records.ToolResult, wrappings: int) -> _Reading:
    """Parse a result whose fields the producer gave separately."""
    received, data, raw = result.output, result.data, result.raw
    if raw is not None or (data is not None and not isinstance(received, list)):
        reading = _Reading(output=text_as_json(received))
        if raw is None and received and _stated(result) is None and not result.error:
            # The output is kept, but the outcome that it states is used.
            inside = _of(received, wrappings)
            reading.status, reading.error = inside.status, inside.error
    else:
        reading = _of(received, wrappings)
    output, text = reading.output, received if isinstance(received, str) else reading.text
    images = Attachments([*(result.attachments or ()), *reading.attachments])
    if data is not None:
        if type(data) is not msgspec.Raw and _is_read_in_data(result):
            data = _with_inner(data, wrappings)
            if data_may_hold_images(data):
                data = images.take_from(data)
        elif seems_to_hold_images(data):
            # The producer's output is kept; its images are attached as well.
            images.take_from(data)
    elif reading.data is not None:
        data = reading.data
        if not reading.is_searched and data_may_hold_images(data):
            data = images.take_from(data)
            if data is not reading.data and not reading.is_apart:
                output = text_as_json(data)
    if raw is None and output and not reading.is_searched and may_hold_images(output):
        output = images.take_from_text(output)
    if raw is None and text is not None and (output != text or reading.is_cut):
        raw = text
    status = _stated(result) or ("error" if result.error else reading.status)
    if status is None and (reading.error or (reading.data is None and is_error_text(output))):
        status = "error"
    return _Reading(
        status=status,
        output=output,
        data=data,
        error=_reason(result.error) or reading.error,
        metadata={**reading.metadata, **(result.metadata or {})},
        attachments=images.attachments,
        raw=raw,
        is_apart=True,
        is_searched=True,
    )


def _of(received: Any, wrappings: int) -> _Reading:
    """Parse a raw result; `wrappings` is how many levels may still be unwrapped."""
    if isinstance(received, str):
        return _of_text(received, wrappings)
    if received is None:
        return _Reading()
    return _of_value(received, None, wrappings)


def _of_text(text: str, wrappings: int) -> _Reading:
    value = _decoded(text)
    if value is None:
        return _Reading(output=text)
    if wrappings == 0:
        return _Reading(output=text, is_cut=True)
    return _of_text(value, wrappings - 1) if isinstance(value, str) else _of_value(value, text, wrappings - 1)


def _of_value(value: Any, text: str | None, wrappings: int) -> _Reading:
    """Parse a value that is not text, or that was parsed from `text`."""
    if wrappings > 0:
        if isinstance(value, list) and _are_blocks(value):
            return _of_blocks(value, wrappings - 1)
        if isinstance(value, dict):
            message = _tool_message(value)
            if message is not None:
                return _of_message(message, wrappings - 1)
            fields = result_fields(value)
            if fields is not None:
                reading = _of_record(records.ToolResult(**fields), wrappings - 1)
                reading.text = text_as_json(value) if text is None else text
                return reading
            return _data_of_a_tool(value, text, wrappings)
    return _whole(value, text, wrappings)


def _whole(value: Any, text: str | None, wrappings: int) -> _Reading:
    """Return an object or list, parsed from `text` if given, as data with the JSON in its strings parsed."""
    # JSON within strings of JSON has escaped quotes; within a repr it is in single quotes.
    data = _with_inner(value, wrappings) if text is None or '\\"' in text or "'" in text else value
    return _Reading(output=text_as_json(value) if text is None else text, data=data)


def _with_inner(value: Any, wrappings: int, depth: int = 0) -> Any:
    """Return the value with the JSON in its strings parsed; the same object if there is none."""
    if isinstance(value, str):
        decoded = _decoded(value) if wrappings > 0 and '"' in value else None
        return _with_inner(decoded, wrappings - 1, depth) if isinstance(decoded, (dict, list)) else value
    if depth > MOST_NESTED or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, dict):
        items = {name: _with_inner(item, wrappings, depth + 1) for name, item in value.items()}
        return value if all(items[name] is item for name, item in value.items()) else items
    read = [_with_inner(item, wrappings, depth + 1) for item in value]
    return value if all(new is old for new, old in zip(read, value, strict=True)) else read


def _data_of_a_tool(value: dict[str, Any], text: str | None, wrappings: int) -> _Reading:
    """Return an object that is not a result as data. Only unmistakable statements of an outcome count: `success`, the
    statuses "success" and "error", `isError`, and a non-empty `error`."""
    reading = _whole(value, text, wrappings)
    reading.status, reading.error = _status_in(value), _reason(value.get("error"))
    message, output = value.get("message"), value.get("output")
    if reading.status is None and value.get("error"):
        reading.status = "error"
    if reading.status == "error" and not reading.error and isinstance(message, str):
        reading.error = message
    if reading.status or reading.error:
        reading.metadata = {name: value[name] for name in _DETAILS if value.get(name) not in _NOTHING}
    if isinstance(output, str) and output and _decoded(output) is None:
        # The text for people in a result with fields of its own; the data holds all of it.
        reading.text, reading.output, reading.is_apart = reading.output, output, True
        if reading.status is None and is_error_text(output):
            reading.status = "error"
    return reading


def _status_in(value: dict[str, Any]) -> records.CallStatus | None:
    """Return the success that an object states, or None."""
    word, success = value.get("status"), value.get("success")
    if word in ("success", "error"):
        return "success" if word == "success" else "error"
    if isinstance(success, bool):
        return "success" if success else "error"
    failed = _is_error(value)
    return None if failed is None else "error" if failed else "success"


def _is_error(value: dict[str, Any]) -> bool | None:
    """Return the error flag of MCP, in either spelling."""
    return next((value[name] for name in ("isError", "is_error") if isinstance(value.get(name), bool)), None)


# --- Messages and content blocks ------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Message:
    """A tool message of an API."""

    content: Any
    status: records.CallStatus | None
    data: Any
    rest: dict[str, Any]


def _tool_message(value: dict[str, Any]) -> _Message | None:
    """Return the tool message that an object is: of LangChain (in each serialisation), Anthropic, OpenAI or MCP."""
    if value.get("type") == "constructor" and isinstance(value.get("kwargs"), dict):
        value = value["kwargs"]
    elif value.get("type") == "tool" and isinstance(value.get("data"), dict):
        value = value["data"]
    is_message = (value.get("type") in _TOOL_MESSAGES or value.get("role") == "tool") and any(
        name in value for name in _CALL_IDS
    )
    content = value.get("content", value.get("output") if is_message else None)
    if not is_message and not _is_of_mcp(value, content):
        return None
    failed = _is_error(value)
    status: records.CallStatus | None = None if failed is None else "error" if failed else "success"
    # LangChain's default is "success", so only its "error" is a statement.
    if status is None and value.get("status") == "error":
        status = "error"
    data = next((value[name] for name in _STRUCTURED if value.get(name) is not None), None)
    rest = {name: item for name, item in value.items() if name not in _MESSAGE_FIELDS and item not in _NOTHING}
    return _Message(content=content, status=status, data=data, rest=rest)


def _is_of_mcp(value: dict[str, Any], content: Any) -> bool:
    if isinstance(content, str):
        # Not allowed by the specification, but common.
        return value.keys() <= _MCP and _is_error(value) is not None
    if not isinstance(content, list) or (content and not _are_blocks(content)):
        return False
    return value.keys() <= _MCP or isinstance(value.get("isError"), bool)


def _of_message(message: _Message, wrappings: int) -> _Reading:
    reading = _of(message.content, wrappings)
    if isinstance(message.content, str):
        reading.text = message.content
    # Statements of the message take precedence over those in its content.
    reading.status = message.status or reading.status
    if message.data is not None:
        found = [block for block in message.content if _is_data(block)] if isinstance(message.content, list) else []
        if found and reading.data != message.data:
            reading.metadata = {"content": found, **reading.metadata}
        reading.data = message.data
        reading.is_apart = True
    reading.metadata = {**reading.metadata, **message.rest}
    return reading


def _are_blocks(items: list[Any]) -> bool:
    return any(isinstance(item, dict) for item in items) and all(map(_is_block, items))


def _is_block(item: Any) -> bool:
    if not isinstance(item, dict):
        return isinstance(item, str)
    type_ = item.get("type")
    if not isinstance(type_, str):
        return False
    return (
        isinstance(item.get("text"), str) if type_ in _TEXT_BLOCKS else type_ in _FILE_BLOCKS or type_ in _OTHER_BLOCKS
    )


def _of_blocks(blocks: list[Any], wrappings: int) -> _Reading:
    """Join the texts with spaces, make attachments of images and files, data of JSON and of what a search found, and put
    anything else into the metadata."""
    texts, files, data, others = [], [], [], []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
            continue
        if block["type"] in _FILE_BLOCKS:
            files.append(block)
            inner = block.get("resource")
            text = inner.get("text") if isinstance(inner, dict) else None
        elif _is_data(block):
            data.append(block.get("json", block))
            text = _text_of_found(block)
        else:
            text = block.get("text")
            if block["type"] not in _TEXT_BLOCKS or any(
                block[name] not in _NOTHING for name in block.keys() - _OF_TEXT
            ):
                others.append(block)
        if isinstance(text, str):
            texts.append(text)
    reading = _of_text(texts[0], wrappings) if len(texts) == 1 else _Reading(output=" ".join(texts).strip())
    reading.text = texts[0] if len(texts) == 1 else reading.output
    reading.attachments += files
    if data:
        stated = [_of_value(item, None, wrappings) for item in data if isinstance(item, dict)]
        failure = next((inside for inside in stated if inside.status == "error"), None)
        if failure is not None and reading.status is None:
            reading.status, reading.error = failure.status, failure.error
        data = [*([reading.data] if reading.data is not None else []), *data]
        reading.data = data[0] if len(data) == 1 or all(item == data[0] for item in data) else data
        reading.is_apart = bool(texts)
        if not texts:
            reading.output = reading.text = text_as_json(reading.data)
    if others:
        reading.metadata = {**reading.metadata, "content": others}
    return reading


def _is_data(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _DATA_BLOCKS


def _text_of_found(block: dict[str, Any]) -> str | None:
    """Return what a person reads of a block that a search found: its title, its source and its text."""
    content = block.get("content")
    parts = [block.get(name) for name in ("tool_name", "title", "source", "url")]
    parts += (
        [item.get("text") for item in content if isinstance(item, dict)] if isinstance(content, list) else [content]
    )
    return "\n".join(part for part in parts if isinstance(part, str) and part) or None


# --- Texts ------------------------------------------------------------------------------------------------------------


def _decoded(text: str) -> Any:
    """Parse a text as JSON or Python's repr into an object, list or string; return None for any other text."""
    text = text.strip()
    if len(text) < 2 or _LAST_OF_JSON.get(text[0]) != text[-1]:
        return None
    try:
        value = decode_json(text)
    except msgspec.DecodeError:
        value = _of_repr(text)
    except RecursionError:
        return None
    return value if _is_bounded(value, text) else None


def _of_repr(text: str) -> Any:
    if len(text) > _LONGEST_REPR or _REPR.fullmatch(text) is None:
        return None
    try:
        return _as_json(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _as_json(value: Any) -> Any:
    """Convert Python's literals to JSON values; raise ValueError for those that have none."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return [_as_json(item) for item in sorted(value, key=repr)]
    if isinstance(value, str):
        value.encode()  # a lone surrogate raises here
        return value
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and isfinite(value)):
        return value
    raise ValueError(f"{type(value).__name__} is nothing in JSON")


def _is_bounded(value: Any, text: str) -> bool:
    if not isinstance(value, (dict, list)) or text.count("[") + text.count("{") <= MOST_NESTED:
        return True
    level = [value]
    for _depth in range(MOST_NESTED):
        level = [
            item
            for above in level
            for item in (above.values() if isinstance(above, dict) else above)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return True
    return False
