"""Privacy: make the events that leave the process, without secrets, with long values cut, and with `lean` without contents.

Redaction comes before cutting, because a secret at the place of the cut would be half a secret. The event reports both:
`redactions` as receipts, `truncated` as paths. No other module makes `Clean` events, so no sink gets any other event.

Nearly all entries hold no secret, so many are searched at once first; see redaction/engine.py for the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from typing import Any

import msgspec
from msgspec import Raw

from tracesite_sdk.recorder.capture.entries import (
    MARGIN,
    Cut,
    Entry,
    Kind,
    MessageSubject,
    beginning,
    result_says_error,
)
from tracesite_sdk.recorder.guard import instead_of_failing
from tracesite_sdk.records.event_types import EventType
from tracesite_sdk.redaction.engine import MAX_DEPTH, Receipt, counted, redact, suspects_of
from tracesite_sdk.redaction.rules import DEFAULT_RULES, MARKER, Rules, Shape, key_named

from .sinks import Clean

Masking = Callable[[str, Any], Any]
"""A function of a path (`data.args.iban`) and its value, a text, a number or None, that returns the value to keep:
`lambda path, value: "[redacted]" if path.endswith(".iban") else value`."""

_TYPES: Mapping[Kind, EventType] = {
    Kind.MESSAGE_START: "workflow_execute_start",
    Kind.MESSAGE_UPDATE: "workflow_execute_start",
    # The last agent's result is the content until the run has its own.
    Kind.MESSAGE_ANSWER: "agent_complete",
    Kind.MESSAGE_END: "workflow_execute_complete",
    Kind.STEP_START: "llm_request_start",
    Kind.STEP_UPDATE: "llm_request_complete",
    Kind.STEP_END: "llm_request_complete",
    Kind.CALL_START: "tool_call_start",
    Kind.CALL_UPDATE: "tool_call_start",
    Kind.CALL_RESULT: "tool_call_complete",
    Kind.CALL_END: "tool_call_complete",
    Kind.EVENT: "prompt_build",
}
_LEAN_FIELDS = (
    "kind",
    "length",
    "step",
    "stream",
    "call_id",
    "name",
    "agent_name",
    "status",
    "error",
    "usage",
    "finish_reason",
    "duration",
    "value",
    "label",
    "comment",
)
"""Fields that `lean` keeps of other events, where the names of all the fields with content are not known."""
_BULKY = ("request", "args", "result", "prompt", "thought", "reasoning", "reflection", "references", "metadata")
"""Fields that `lean` removes."""
RESULT_SAYS_ERROR = "The result says that the call failed."
_OF_A_CHAIN = ("parameters", "result", "error_message", "metadata")
"""Fields with content in the document of a chain."""
_WHOLE = ("data.session", "data.references", "data.usage")
"""Objects and lists that are of no use when they are cut."""
_REQUEST = "data.request"
"""The request to a model, which stays in its form, so that its messages are messages."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Rules for secrets and limits, besides the secrets that Tracesite always redacts.

    Raises ValueError for an invalid limit, and re.error for an invalid pattern.
    """

    keys: Sequence[str] = ()
    """Names of secret values: `iban`, `national_id`; in all spellings (`nationalId`, `NATIONAL-ID`)."""
    patterns: Sequence[str | re.Pattern[str]] = ()
    """Patterns of secret texts; a group named `secret` limits redaction to that part."""
    functions: Sequence[Masking] = ()
    """Called with every value, on the worker. A value for which one raises is redacted."""
    max_bytes: int = 2**20
    """Longer values are cut, and the trace reports it."""
    lean: bool = False
    """Keep only names, durations and outcomes: no arguments, results or texts."""

    def __post_init__(self) -> None:
        if isinstance(self.max_bytes, bool) or not isinstance(self.max_bytes, int) or self.max_bytes < 1:
            raise ValueError(f"Privacy.max_bytes: expected bytes above 0, not {self.max_bytes!r}.")
        if isinstance(self.keys, str) or isinstance(self.patterns, str | re.Pattern):
            raise ValueError("Privacy.keys and Privacy.patterns: expected a list.")
        if not isinstance(self.functions, Sequence) or not all(callable(function) for function in self.functions):
            raise ValueError("Privacy.functions: expected a list of functions.")
        for name in self.keys:
            if name.isascii() and not DEFAULT_RULES.split(name):
                raise ValueError(f"Privacy.keys: expected names with letters, not {name!r}.")
        assert self.rules.shapes, "compiling raises for an invalid pattern"

    @cached_property
    def rules(self) -> Rules:
        """The rules of Tracesite with the additional names and patterns."""
        if not self.keys and not self.patterns:
            return DEFAULT_RULES
        keys = tuple(key_named(name) for name in self.keys)
        shapes = tuple(Shape("pattern", re.compile(pattern)) for pattern in self.patterns)
        return replace(DEFAULT_RULES, keys=(*keys, *DEFAULT_RULES.keys), shapes=(*DEFAULT_RULES.shapes, *shapes))


def clean(entries: Sequence[Entry], privacy: Privacy) -> list[Clean]:
    """Return the events of these entries, in the same order."""
    if privacy.lean:
        entries = [_lean(entry) for entry in entries]
    suspects = suspects_of((map(_frozen, entry.content.values()) for entry in entries), privacy.rules)
    closely = [bool(privacy.functions or of_entry) for of_entry in suspects]
    return [_event(*one, privacy) for one in zip(entries, closely, strict=True)]


def clean_document(document: Mapping[str, Any], privacy: Privacy) -> dict[str, Any]:
    """Return the document of a chain without secrets; long values are cut, and with `lean` they are removed. `redactions` and
    `truncated` give the paths, as in an event."""
    clean, receipts = without_secrets(
        {
            **_contents_of(document),
            "calls": {call_id: _contents_of(call) for call_id, call in document["calls"].items()},
        },
        privacy,
        "",
    )
    cuts: list[dict[str, Any]] = []
    calls = {
        call_id: call | _short(f"calls.{call_id}.", clean["calls"][call_id], privacy, cuts)
        for call_id, call in document["calls"].items()
    }
    kept = {**document, **_short("", clean, privacy, cuts), "calls": calls}
    if receipts:
        kept["redactions"] = [receipt.as_json() for receipt in receipts]
    return kept | {"truncated": cuts} if cuts else kept


def _contents_of(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part[name] for name in _OF_A_CHAIN if name in part}


def _short(path: str, contents: Mapping[str, Any], privacy: Privacy, cuts: list[dict[str, Any]]) -> dict[str, Any]:
    """Cut contents that hold no secrets any more. Results are cut elsewhere: see ToolCallChain.to_dict."""
    kept: dict[str, Any] = {}
    for name in _OF_A_CHAIN:
        value = contents.get(name)
        if privacy.lean and name != "error_message":
            value = None if name == "result" else {}
        elif name in ("parameters", "metadata") and value and len(written := _encode(value)) > privacy.max_bytes:
            value = _within(f"{path}{name}", written, privacy.max_bytes, cuts)
        if name in contents:
            kept[name] = value
    return kept


def report_of_losses(message: MessageSubject, losses: Mapping[str, int], name: str) -> Clean:
    """Return an event with the losses that a message could not report itself. It has the number and type of the message's
    beginning, so that it changes nothing else."""
    event = _of(message, f"{message.id}.{name}", _TYPES[Kind.MESSAGE_START], message.number, {"recorder": losses})
    return Clean(_encode(event | {"level": "warn", "category": "system"}))


def _event(entry: Entry, closely: bool, privacy: Privacy) -> Clean:
    _kind, number, scope, name, fields, content, *_rest = entry
    data = dict(fields)
    if closely:
        content, receipts = _redacted(content, privacy)
        if receipts:
            data["redactions"] = [receipt.as_json() for receipt in receipts]
            scope.message.losses.redacted += sum(receipt.count for receipt in receipts)
    for key, value in content.items():
        kind = type(value)
        if kind is Cut:
            cut = _beginning_of(f"data.{key}", value, privacy.max_bytes)
            if cut is not None:
                data[key] = cut
            data.setdefault("truncated", []).append({"path": f"data.{key}{value.path}", "bytes": value.size})
            scope.message.losses.truncated += 1
        # A character of a text has up to four bytes.
        elif (kind is bytes or kind is str) and len(value) > privacy.max_bytes // 4:
            cuts: list[dict[str, Any]] = []
            data[key] = _within(f"data.{key}", value, privacy.max_bytes, cuts)
            if cuts:
                data.setdefault("truncated", []).extend(cuts)
                scope.message.losses.truncated += len(cuts)
        else:
            data[key] = Raw(value) if kind is bytes else value
    type_ = _TYPES[entry.kind]
    if entry.kind is Kind.MESSAGE_END and (losses := scope.message.losses.as_json()):
        data["recorder"] = losses
    elif entry.kind is Kind.CALL_END and "error" in content:
        type_ = "tool_call_error"
    event = _of(scope.message, f"{scope.id}.{name}", type_, number, data)
    return Clean(_encode({**event, **entry.event} if entry.event else event))


def _of(message: MessageSubject, id_: str, type_: EventType, number: int, data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "session_id": message.session.external_id,
        "message_id": message.id,
        "id": id_,
        "type": type_,
        "number": number,
        "timestamp": _time(number),
        "data": data,
    }


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{_seconds(seconds)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=16)
def _seconds(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


# --- Secrets ----------------------------------------------------------------------------------------------------------


def _frozen(value: Any) -> Any:
    """Return what is searched of a frozen value, a text or JSON."""
    kept = value.kept if type(value) is Cut else value
    return Raw(kept) if type(kept) is bytes else kept


def _redacted(content: Mapping[str, Any], privacy: Privacy) -> tuple[dict[str, Any], list[Receipt]]:
    """Return the content without its secrets, and the receipts."""
    frozen = {name: value.kept if type(value) is Cut else value for name, value in content.items()}
    plain = {name: msgspec.json.decode(value) if isinstance(value, bytes) else value for name, value in frozen.items()}
    clean, receipts = without_secrets(plain, privacy, "data")
    kept = {name: _encode(value) if isinstance(value, dict | list) else value for name, value in clean.items()}
    for name, value in content.items():
        if type(value) is Cut:
            kept[name] = replace(value, kept=kept[name])
    return kept, receipts


def without_secrets(value: Any, privacy: Privacy, path: str) -> tuple[Any, list[Receipt]]:
    """Return plain values without the secrets that these rules find, and the receipts, whose paths begin with `path`."""
    clean, receipts = redact(value, privacy.rules, path=path)
    for function in privacy.functions:
        clean = _walk(clean, path, partial(_asked, function, receipts), 0)
    return clean, counted(receipts)


def _walk(value: Any, path: str, ask: Callable[[str, Any], Any], depth: int) -> Any:
    if depth > MAX_DEPTH:
        return MARKER
    if isinstance(value, dict):
        before = f"{path}." if path else ""
        return {key: _walk(item, f"{before}{key}", ask, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, f"{path}[{index}]", ask, depth + 1) for index, item in enumerate(value)]
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        value = _json_walked(value, path, ask, depth)
    return ask(path, value)


def _json_walked(text: str, path: str, ask: Callable[[str, Any], Any], depth: int) -> str:
    """Walk through JSON inside a text. Other text, and JSON without a change, is returned unchanged."""
    try:
        inside = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    walked = _walk(inside, path, ask, depth + 1)
    return text if walked == inside else _encode(walked).decode()


def _asked(function: Masking, receipts: list[Receipt], path: str, value: Any) -> Any:
    answer = instead_of_failing(MARKER, function, path, value)
    if answer is value or answer == value:
        return value
    receipts.append(Receipt(path, getattr(function, "__name__", "function")))
    return answer


# --- Long values ------------------------------------------------------------------------------------------------------


def _lean(entry: Entry) -> Entry:
    is_other = entry.kind is Kind.EVENT
    kept = {
        name: value
        for name, value in entry.content.items()
        if (name in _LEAN_FIELDS if is_other else name not in _BULKY)
    }
    if "error" not in kept and result_says_error(entry):
        kept["error"] = RESULT_SAYS_ERROR
    return entry._replace(content=kept)


def _within(path: str, value: str | bytes, most: int, cuts: list[dict[str, Any]]) -> Any:
    """Return a frozen value; if it is longer than `most` bytes, its beginning and the number of bytes that were cut."""
    raw = value if isinstance(value, bytes) else value.encode()
    if len(raw) <= most:
        return Raw(value) if isinstance(value, bytes) else value
    if path == "data.session":
        # Each field is cut by itself, so that a long description does not remove the title.
        fields = msgspec.json.decode(raw, type=dict[str, Raw])
        return {name: _field(f"{path}.{name}", field, most, cuts) for name, field in fields.items()}
    cuts.append({"path": path, "bytes": len(raw)})
    if path == _REQUEST and isinstance(value, bytes):
        return Raw(beginning(msgspec.json.decode(raw), most))
    text = f"{raw[:most].decode('utf-8', 'ignore')}… [{len(raw) - most} of {len(raw)} bytes were cut]"
    return _in_its_field(path, text)


def _beginning_of(path: str, cut: Cut, most: int) -> Any:
    """Return the beginning of a value that was too long to be frozen, without its end, which may hold half a secret. None for
    a value that is of use only as a whole."""
    if path == "data.session" and cut.kept:
        # A cut object: only its last field is incomplete.
        fields = msgspec.json.decode(cut.kept)
        name, last = fields.popitem()
        return {**fields, name: f"{last[:-MARGIN]}… [cut]"} if isinstance(last, str) else fields
    if path in _WHOLE:
        return None
    if path == _REQUEST and isinstance(cut.kept, bytes):
        return Raw(beginning(msgspec.json.decode(cut.kept), most, 0 if cut.has_whole_texts else MARGIN))
    if path == _REQUEST and not cut.kept:
        return None
    raw = cut.kept if isinstance(cut.kept, bytes) else cut.kept.encode()
    start = raw[: min(most, max(0, len(raw) - MARGIN))].decode("utf-8", "ignore")
    return _in_its_field(path, f"{start}… [cut, of about {cut.size} bytes]")


def _in_its_field(path: str, text: str) -> Any:
    # Arguments are an object: other values are kept under `_raw`, as in the server.
    return {"_raw": text} if path.endswith(("args", "parameters", "metadata")) else text


def _field(path: str, json: Raw, most: int, cuts: list[dict[str, Any]]) -> Any:
    value = msgspec.json.decode(json)
    return _within(path, value if isinstance(value, str) else bytes(json), most, cuts)
