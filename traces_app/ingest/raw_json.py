"""JSON that goes from a request into its column without being decoded: the arguments of calls, and the data of results.

Most objects of a batch would be created only to encode them again. So such a value stays a msgspec.Raw, valid undecoded
JSON, if it is certain that decoding would neither reject nor change it: an object (data may be an array) in UTF-8, without
long or large numbers, escaped characters, images, or more than MAX_DEPTH levels. Any other value is decoded, and so are
values that are mostly text. Measured: at 4 x 20 a message takes a seventh less CPU of the server.

Plain Python, without Django.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, DecodeError, Raw, json
from msgspec.structs import force_setattr

from tracesite_sdk import records
from tracesite_sdk.normalize.images import json_may_hold_images
from tracesite_sdk.redaction.engine import MAX_DEPTH

# The records of a request: those of records.py, with fields that may stay undecoded. Their lists may have narrower items,
# because no code adds to them.


class RawToolResult(records.ToolResult, frozen=True, kw_only=True):
    output: Any = UNSET
    data: Raw = None  # type: ignore[assignment]  # omitted


class RawToolCall(records.ToolCall, frozen=True, kw_only=True):
    args: Raw = None  # type: ignore[assignment]  # omitted
    result: RawToolResult | str | list[Any] | None = None


class RawAgentStep(records.AgentStep, frozen=True, kw_only=True):
    tool_calls: list[RawToolCall] | None = None  # type: ignore[assignment]


class RawMessage(records.Message, frozen=True, kw_only=True):
    agent_steps: list[RawAgentStep] | None = None  # type: ignore[assignment]


class RawSession(records.Session, frozen=True, kw_only=True):
    messages: list[RawMessage] | None = None  # type: ignore[assignment]


_EMPTY = RawToolResult()
_LONGEST = 64_000
"""Maximum bytes of a value, because the checks copy it several times."""
_SAMPLED = 16
_SHORT = 1_000
_LEAST_QUOTES = 1 / 20
"""The least share of quotes among the bytes (one in sixteen is sampled). A value with fewer is mostly text, and decoding it
takes less time than these checks."""
_ESCAPED = re.compile(rb"\\[u/]")
# More digits than a double needs, and as many as 64 bits may have.
_MANY_DIGITS = b"0" * 21
_DIGITS_AS_ZEROS = bytes(ord("0") if chr(code) in "0123456789." else ord("x") for code in range(256))
# In lower case. The lookbehind makes sure that it is in a number, not in a text such as hexadecimal digits.
_LARGE_EXPONENT = re.compile(
    rb"e(?=[+-]?[0-9]{3})(?:%b)"
    % b"|".join(rb"(?<=[:,\[\s][-0-9][0-9.]{%d}e)" % digits for digits in range(len(_MANY_DIGITS)))
)


def decode_what_cannot_stay(messages: Iterable[records.Message]) -> None:
    """Decode the values that cannot stay raw, in place, in messages that were just decoded and are not shared yet. All raw
    values of a message stay or are decoded, except single values that are long, or neither objects nor arrays.

    Raise msgspec.DecodeError or UnicodeDecodeError for values that are not JSON in UTF-8 after all, and for results that
    have to be parsed as objects.
    """
    for message in messages:
        calls = [call for step in message.agent_steps or () for call in step.tool_calls or ()]
        results = [call.result for call in calls if isinstance(call.result, records.ToolResult)]
        for result in results:
            if result == _EMPTY:
                # {} and {"error": null} are indistinguishable here.
                raise DecodeError("a result that states nothing")
            if result.output is UNSET:
                force_setattr(result, "output", "")
        for call in calls:
            if type(call.args) is Raw and not _is_short(call.args, b"{"):
                force_setattr(call, "args", json.decode(call.args))
        for result in results:
            if type(result.data) is Raw and not _is_short(result.data, b"{["):
                force_setattr(result, "data", json.decode(result.data))
        args = [bytes(call.args) for call in calls if type(call.args) is Raw]
        data = [bytes(result.data) for result in results if type(result.data) is Raw]
        if (args or data) and (any(map(_may_hold_json, results)) or not _may_stay(args, data)):
            for call in calls:
                force_setattr(call, "args", decoded(call.args))
            for result in results:
                force_setattr(result, "data", decoded(result.data))


def _may_hold_json(result: records.ToolResult) -> bool:
    """Return whether strings of `data` may hold JSON that normalisation parses: see `tool_results.normalize_result`."""
    is_finished = result.output or (result.status is not None and result.success is not None)
    return not is_finished and type(result.data) is Raw and b'\\"' in bytes(result.data)


def decoded(value: Any) -> Any:
    """Return the decoded value of a Raw, and any other value unchanged."""
    return json.decode(value) if type(value) is Raw else value


def _is_short(value: Raw, begins: bytes) -> bool:
    view = memoryview(value)
    return view[0] in begins and view.nbytes <= _LONGEST


def _may_be_deep(written: bytes) -> bool:
    # Nested deeper than redaction can search when it is decoded.
    return len(written) > 2 * MAX_DEPTH and written.count(b"{") + written.count(b"[") > MAX_DEPTH


def _may_stay(args: Sequence[bytes], data: Sequence[bytes]) -> bool:
    low = b"\n".join([*args, *data]).lower()
    sample = low[::_SAMPLED]
    if len(low) > _SHORT and sample.count(b'"') < _LEAST_QUOTES * len(sample):
        return False
    if not low.isascii():
        low.decode()
    return (
        (b"\\" not in low or _ESCAPED.search(low) is None)
        and not any(_may_be_deep(value) for value in (*args, *data))
        and _MANY_DIGITS not in low.translate(_DIGITS_AS_ZEROS)
        and _LARGE_EXPONENT.search(low) is None
        and not json_may_hold_images(data)
    )
