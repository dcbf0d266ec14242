"""One form for whatever a tool returned: status, output for people, data for machines, error, metadata, attachments.

This module decides the outcome of every result, whichever way it came: ingest and PATCH, events, monitor messages, the
callbacks of Eko, imports and the recorder. Nobody else may give a result a status that its producer did not state.

What tools return comes as an object, as JSON text (encoded once or several times), as Python's repr of an object, as the
content blocks of MCP, Anthropic and LangChain, as a whole tool message, or as plain text. In this order:

1. A status or `success` beside the output wins over everything inside it, then an `error` beside it; `raw` means that
   the output has been read already.
2. A text that is JSON or Python's repr is read; strings within strings are unwrapped.
3. A tool message and a list of content blocks are taken apart: text, images and files, structured content.
4. An object is either a result (`result_fields` says which) and taken apart, or data of the tool's own and kept whole.
   It makes no difference whether it came as an object or as its JSON text.
5. Where nothing states the outcome, a non-empty error means error; at last the text does: see `says_error`.
6. Images leave text and data and become attachments (images.py).

The text as received is kept in `raw` wherever the output is another one. Pure functions, without Django; nothing raises,
and reading a result again changes nothing. docs/normalisation.md has examples.
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

from traces_app.schema import records

from .images import Found, data_may_hold_images, may_hold_images, seems_to_hold_images

NO_REASON = "The tool reported a failure and gave no reason."
TOO_DEEP = "[nested too deeply]"

MOST_WRAPPINGS = 8
"""How many times JSON may stand in a string of JSON, a message in a message: beyond it the text stays as it is."""
MOST_NESTED = 200
"""Objects and lists below each other in what is read; what is deeper stays text."""
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
"""Fields of which we know what they mean in a result; any other is the tool's own."""
_TYPES: dict[str, type] = {"success": bool, "metadata": dict, "attachments": list, "images": list, "raw": str}
"""What the fields of a result hold, besides null."""
_NOTHING: tuple[Any, ...] = (None, "", [], {})
_MCP = frozenset(["content", "isError", "is_error", "structuredContent", "structured_content", "_meta", "meta"])
_TOOL_MESSAGES = ("tool", "tool_result", "function_call_output")
_CALL_IDS = ("tool_call_id", "tool_use_id", "call_id")
_STRUCTURED = ("structuredContent", "structured_content", "artifact")
_SAID_BY_A_MESSAGE = frozenset(["type", "role", "content", "output", "status", "isError", "is_error", *_STRUCTURED])
_OF_TEXT = frozenset(["type", "text"])
_TEXT_BLOCKS = frozenset(["text", "input_text", "output_text"])
_FILE_BLOCKS = frozenset(
    [
        *("image", "image_url", "input_image", "image_data", "image-data", "media", "audio", "input_audio", "video"),
        *("file", "input_file", "file-data", "document", "resource", "resource_link", "container_upload"),
    ]
)
_OTHER_BLOCKS = frozenset(["json", "search_result", "tool_reference", "web_search_result", "thinking", "refusal"])

# A text speaks of its own failure only by how it begins: "0 errors found" and a guide to error handling do not.
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
# What the repr of plain values is made of, and nothing that a parser would warn of or work long on. repr() escapes a
# backslash, so one before any other character says that this is none.
_REPR = re.compile(
    r"""(?:\s|[\[\]{}(),:]|'(?:[^'\\\n]|\\[\\'"nrtxuU])*'|"(?:[^"\\\n]|\\[\\'"nrtxuU])*"
      |-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])|True|False|None)+""",
    re.VERBOSE,
)
_FIRST_OF_JSON = frozenset('{["' + string.whitespace)
_LAST_OF_JSON = {"{": "}", "[": "]", '"': '"'}


def normal(
    result: records.ToolResult | str | list[Any] | None, call_status: records.CallStatus | None
) -> records.ToolResult | None:
    """The result in its one form, itself where it is in it already. `call_status` counts where the result says none."""
    if result is None:
        return records.ToolResult(status="error", success=False, error=NO_REASON) if call_status == "error" else None
    if not isinstance(result, records.ToolResult):
        result = records.ToolResult(output=result)
    status = _stated(result)
    if status is None and call_status != "pending":
        # A call that was pending when its sender last looked has its result now.
        status = call_status
    if status is not None and (status != "error" or result.error) and _is_plain(result):
        success = status == "success"
        if result.status == status and result.success is success:
            return result
        return replace(result, status=status, success=success, error=result.error or "")
    return _read(result, status)


def received(value: Any) -> records.ToolResult:
    """Return the record of what stands where a result is expected: a result as the API has it, or what a tool returned."""
    if isinstance(value, records.ToolResult):
        return value
    fields = result_fields(value) if isinstance(value, dict) else None
    return records.ToolResult(output=value) if fields is None else records.ToolResult(**fields)


def result_fields(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of records.ToolResult that an object states, or None where it is data of the tool's own.

    An object is a result

    * where it has no fields but those of a result, those that we know besides (`message`, `images`, `execution_time`
      ...), and at least one of the former;
    * where it has fields of its own too, but also `data` and a statement of how it went: `success`, `error`, or the
      status "success" or "error". Any other word there ("pending", "failed") may be about an order or a payment.

    Known fields that a record does not have go to its `metadata`, and so do those of the tool's own, empty or not.
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


def says_error(text: str) -> bool:
    """Whether a plain text says that the tool failed: the last resort, where nothing else tells."""
    return _SAYS_ERROR.match(text) is not None and _NO_ERROR.match(text) is None


def text_as_json(value: Any) -> str:
    """Text as it is; anything else as JSON, with non-ASCII characters kept; "" for None."""
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
    """How it went, as far as its producer states that beside the output."""
    if result.status == "pending" and result.success is True:
        return "success"
    if result.status is None and result.success is not None:
        return "success" if result.success else "error"
    return result.status


def _reason(failure: Any) -> str:
    """The text of an `error`: true says that there is one, and not which; null, "", false and {} are none."""
    return text_as_json(failure) if failure and failure is not True else ""


def _is_plain(result: records.ToolResult) -> bool:
    """Whether there is nothing to read, to find or to put right. Nearly all results that come over the wire are such."""
    output, data = result.output, result.data
    if not isinstance(output, str) or not (result.error is None or isinstance(result.error, str)) or result.attachments:
        return False
    if output and result.raw is None and ((data is None and output[0] in _FIRST_OF_JSON) or may_hold_images(output)):
        return False
    if data is None or type(data) is msgspec.Raw:
        # What is still JSON was looked at before: see raw_json.py.
        return True
    if _is_read_in_data(result):
        return _with_inner(data, MOST_WRAPPINGS) is data and not data_may_hold_images(data)
    return not seems_to_hold_images(data)


def _is_read_in_data(result: records.ToolResult) -> bool:
    """Whether JSON and images in `data` are looked for: where a tool returned data and nothing for people.

    A result that has an output, or both `status` and `success`, was made by somebody who knows its form.
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
    """What a raw result says."""

    status: records.CallStatus | None = None
    """None where it says nothing of it."""
    output: str = ""
    data: Any = None
    error: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    attachments: list[Any] = field(default_factory=list)
    text: str | None = None
    """The text in what was received as something else than text."""
    raw: str | None = None
    """Of a record: the text as received, where the output is another one."""
    is_apart: bool = False
    """Whether output and data each say a part of what was received; else the output is the text of the data."""
    is_searched: bool = False
    """Whether images were looked for already."""
    is_cut: bool = False
    """Whether more could be unwrapped than MOST_WRAPPINGS allows."""


def _of_record(result: records.ToolResult, wrappings: int) -> _Reading:
    """Reads a result whose fields its producer states apart."""
    received, data, raw = result.output, result.data, result.raw
    if raw is not None or (data is not None and not isinstance(received, list)):
        reading = _Reading(output=text_as_json(received))
        if raw is None and received and _stated(result) is None and not result.error:
            # The output stays as it is, but what it says of its outcome counts.
            inside = _of(received, wrappings)
            reading.status, reading.error = inside.status, inside.error
    else:
        reading = _of(received, wrappings)
    output, text = reading.output, received if isinstance(received, str) else reading.text
    found = Found([*(result.attachments or ()), *reading.attachments])
    if data is not None:
        if type(data) is not msgspec.Raw and _is_read_in_data(result):
            data = _with_inner(data, wrappings)
            if data_may_hold_images(data):
                data = found.take_from(data)
        elif seems_to_hold_images(data):
            # The producer's word stays as it is; its images are attached all the same.
            found.take_from(data)
    elif reading.data is not None:
        data = reading.data
        if not reading.is_searched and data_may_hold_images(data):
            data = found.take_from(data)
            if data is not reading.data and not reading.is_apart:
                output = text_as_json(data)
    if raw is None and output and not reading.is_searched and may_hold_images(output):
        output = found.take_from_text(output)
    if raw is None and text is not None and (output != text or reading.is_cut):
        raw = text
    status = _stated(result) or ("error" if result.error else reading.status)
    if status is None and (reading.error or (reading.data is None and says_error(output))):
        status = "error"
    return _Reading(
        status=status,
        output=output,
        data=data,
        error=_reason(result.error) or reading.error,
        metadata={**reading.metadata, **(result.metadata or {})},
        attachments=found.attachments,
        raw=raw,
        is_apart=True,
        is_searched=True,
    )


def _of(received: Any, wrappings: int) -> _Reading:
    """Reads a raw result; `wrappings` is how many may still be taken off."""
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
    """Reads what is no text, or was read from `text`."""
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
    """An object or list that is data, all of it."""
    return _Reading(output=text_as_json(value) if text is None else text, data=_inner(value, text, wrappings))


def _inner(value: Any, text: str | None, wrappings: int) -> Any:
    """The value, which was read from `text` if there was one, with the JSON that stands in its strings read."""
    # JSON within the strings of JSON has escaped quotes, and that of a repr stands in single ones.
    return _with_inner(value, wrappings) if text is None or '\\"' in text or "'" in text else value


def _with_inner(value: Any, wrappings: int, depth: int = 0) -> Any:
    """The value with the JSON that stands in its strings read; itself where there is none."""
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
    """An object that is no result: data, all of it. Only what is unmistakable counts: `success`, the statuses "success" and
    "error", `isError`, and a non-empty `error`."""
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
        # The words for people of a result with fields of its own; machines have the whole of it.
        reading.text, reading.output, reading.is_apart = reading.output, output, True
        if reading.status is None and says_error(output):
            reading.status = "error"
    return reading


def _status_in(value: dict[str, Any]) -> records.CallStatus | None:
    """What an object states of its own success, None where it states nothing that counts."""
    word, success = value.get("status"), value.get("success")
    if word in ("success", "error"):
        return "success" if word == "success" else "error"
    if isinstance(success, bool):
        return "success" if success else "error"
    failed = _is_error(value)
    return None if failed is None else "error" if failed else "success"


def _is_error(value: dict[str, Any]) -> bool | None:
    """The flag of MCP, in either spelling."""
    return next((value[name] for name in ("isError", "is_error") if isinstance(value.get(name), bool)), None)


# --- Messages and content blocks ------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Message:
    """A tool message of some API."""

    content: Any
    status: records.CallStatus | None
    data: Any
    rest: dict[str, Any]


def _tool_message(value: dict[str, Any]) -> _Message | None:
    """The message that an object is: of LangChain (in each of its dumps), Anthropic, OpenAI, or the result of MCP."""
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
    # LangChain writes "success" wherever nobody said otherwise, so only its "error" says something.
    if status is None and value.get("status") == "error":
        status = "error"
    data = next((value[name] for name in _STRUCTURED if value.get(name) is not None), None)
    rest = {name: item for name, item in value.items() if name not in _SAID_BY_A_MESSAGE and item not in _NOTHING}
    return _Message(content=content, status=status, data=data, rest=rest)


def _is_of_mcp(value: dict[str, Any], content: Any) -> bool:
    if isinstance(content, str):
        # Against its specification, and done all the same.
        return value.keys() <= _MCP and _is_error(value) is not None
    if not isinstance(content, list) or (content and not _are_blocks(content)):
        return False
    return value.keys() <= _MCP or isinstance(value.get("isError"), bool)


def _of_message(message: _Message, wrappings: int) -> _Reading:
    reading = _of(message.content, wrappings)
    if isinstance(message.content, str):
        reading.text = message.content
    # What a message says of itself wins over what stands in its content.
    reading.status = message.status or reading.status
    if message.data is not None:
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
    """Text is joined by one space, images and files are attachments, and what else there is goes to the metadata."""
    texts, files, others = [], [], []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
            continue
        if block["type"] in _FILE_BLOCKS:
            files.append(block)
            inner = block.get("resource")
            text = inner.get("text") if isinstance(inner, dict) else None
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
    if others:
        reading.metadata = {**reading.metadata, "content": others}
    return reading


# --- Texts ------------------------------------------------------------------------------------------------------------


def _decoded(text: str) -> Any:
    """The object, list or string that a text is as JSON or as Python's repr; None for any other text."""
    text = text.strip()
    if len(text) < 2 or _LAST_OF_JSON.get(text[0]) != text[-1]:
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
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
    """What Python's literals are in JSON; raises ValueError where they are nothing."""
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
