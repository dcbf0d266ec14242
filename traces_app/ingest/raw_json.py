"""JSON that goes from a request into its column as it came: the arguments of calls, and the data of their results.

Objects made of it, and JSON made of these again, are most of the objects of a batch, and nothing asks for them. So such a
value stays a msgspec.Raw, valid JSON that nobody has decoded, where it is known without that decoding would neither refuse
nor change it: it is an object (data may be an array) in UTF-8, without long or large numbers, escaped characters, images, or more than
MAX_DEPTH objects and arrays. Any other is decoded, and goes the usual way; so is what is mostly text. Measured: a message at 4 x 20 takes a seventh less CPU
of the server.

Plain Python, without Django.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, DecodeError, Raw, json
from msgspec.structs import force_setattr

from access_app.redaction.engine import MAX_DEPTH
from traces_app.normalize.images import json_may_hold_images
from traces_app.schema import records

# The records of a request: those of records.py, with what may stay undecoded. Lists of them are lists of those, for nobody
# adds to one.


class _ToolResult(records.ToolResult, frozen=True, kw_only=True):
    output: Any = UNSET
    data: Raw = None  # type: ignore[assignment]  # not said


class _ToolCall(records.ToolCall, frozen=True, kw_only=True):
    args: Raw = None  # type: ignore[assignment]  # not said
    result: _ToolResult | str | list[Any] | None = None


class _AgentStep(records.AgentStep, frozen=True, kw_only=True):
    tool_calls: list[_ToolCall] | None = None  # type: ignore[assignment]


class Message(records.Message, frozen=True, kw_only=True):
    agent_steps: list[_AgentStep] | None = None  # type: ignore[assignment]


class Session(records.Session, frozen=True, kw_only=True):
    messages: list[Message] | None = None  # type: ignore[assignment]


_EMPTY = _ToolResult()
_LONGEST = 64_000
"""Bytes of a value: several copies are made of it here."""
_SAMPLED = 16
_SHORT = 1_000
_LEAST_QUOTES = 1 / 20
"""Of the bytes of what stays so many are quotes, one in sixteen looked at, unless there are few: what is mostly text is decoded
in less time than is needed to look at it here."""
_ESCAPED = re.compile(rb"\\[u/]")
# More characters than a double needs, and as many as 64 bits may have.
_MANY_DIGITS = b"0" * 21
_DIGITS_AS_ZEROS = bytes(ord("0") if chr(code) in "0123456789." else ord("x") for code in range(256))
# In lower case. What comes before it says that it is in a number, and not in a text such as one of hexadecimal digits.
_LARGE_EXPONENT = re.compile(
    rb"e(?=[+-]?[0-9]{3})(?:%b)"
    % b"|".join(rb"(?<=[:,\[\s][-0-9][0-9.]{%d}e)" % digits for digits in range(len(_MANY_DIGITS)))
)


def decode_what_cannot_stay(messages: Iterable[records.Message]) -> None:
    """Takes messages that were just decoded, and belong to nobody yet: their records are changed. Of one message all of it
    stays or is decoded, but for single values that are long, or no objects and arrays.

    Raises msgspec.DecodeError and UnicodeDecodeError for what is no JSON in UTF-8 after all, and for results that have to be
    read as objects.
    """
    for message in messages:
        calls = [call for step in message.agent_steps or () for call in step.tool_calls or ()]
        results = [call.result for call in calls if isinstance(call.result, records.ToolResult)]
        for result in results:
            if result == _EMPTY:
                # What {} is and what {"error": null} is nobody can tell any more.
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
    """Whether there may be JSON in the strings of `data` that normalise reads: see `results.normal`."""
    is_finished = result.output or (result.status is not None and result.success is not None)
    return not is_finished and type(result.data) is Raw and b'\\"' in bytes(result.data)


def decoded(value: Any) -> Any:
    """The value that a Raw stands for; any other as it is."""
    return json.decode(value) if type(value) is Raw else value


def _is_short(value: Raw, begins: bytes) -> bool:
    view = memoryview(value)
    return view[0] in begins and view.nbytes <= _LONGEST


def _may_be_deep(written: bytes) -> bool:
    # What is nested deeper than it can be searched when it is decoded.
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
