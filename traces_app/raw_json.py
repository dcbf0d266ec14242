"""JSON that goes from a request into its column as it came: the arguments of calls, and the data of their results.

Objects made of it, and JSON made of these again, are a third of what a message costs, and nothing asks for them. So such a
value stays a msgspec.Raw, valid JSON that nobody has decoded, where as much is known of it without: that it is in UTF-8,
an object (data may be an array), that it has no number but what a double or 64 bits hold, no image, and nothing that its
text hides from the search for secrets (access_app.redaction). Any other value is decoded, and then goes the usual way.
Measured at 4 x 20, from bytes to rows: see docs/benchmarks.md.

Plain Python, without Django.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import Any

from msgspec import Raw, json
from msgspec.structs import force_setattr

from access_app.redaction import can_be_judged_as_written

from . import records
from .images import json_may_hold_images

# The records of a request: those of records.py, with what may stay undecoded. Lists of them are lists of those, for nobody
# adds to one.


class _ToolResult(records.ToolResult, frozen=True, kw_only=True):
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


# Beyond it a number may be none that decoding accepts. In lower case; what comes before it says that it is in a number and
# not in a text, such as one of hexadecimal digits.
_LARGE_EXPONENT = re.compile(
    rb"e(?=[+-]?[0-9]{3})(?:%b|(?<=[0-9.]{20}e))"
    % b"|".join(rb"(?<=[:,\[\s][-0-9][0-9.]{%d}e)" % digits for digits in range(20))
)
_MOST_DIGITS = 1_000
_MANY_DIGITS = re.compile(rb"[0-9.]{%d}" % _MOST_DIGITS)


def settle(messages: Iterable[records.Message]) -> None:
    """Decodes what cannot stay as it came, in messages that were just decoded; of one message all or nothing but scalars.

    Raises msgspec.DecodeError and UnicodeDecodeError for what is no JSON in UTF-8 after all.
    """
    for message in messages:
        calls = [call for step in message.agent_steps or () for call in step.tool_calls or ()]
        results = [call.result for call in calls if isinstance(call.result, records.ToolResult)]
        args = _written(calls, "args", (b"{",))
        data = _written(results, "data", (b"{", b"["))
        if (args or data) and not _may_stay(args, data):
            for call in calls:
                force_setattr(call, "args", decoded(call.args))
            for result in results:
                force_setattr(result, "data", decoded(result.data))


def decoded(value: Any) -> Any:
    """The value that a Raw stands for; any other as it is."""
    return json.decode(value) if type(value) is Raw else value


def _written(of_records: Sequence[records.Record], name: str, begins: Container[bytes]) -> list[bytes]:
    """The JSON of a field, where it has been said and is an object or array; where it is something else it is decoded."""
    found = []
    for record in of_records:
        value = getattr(record, name)
        if value is not None:
            written = bytes(value)
            if written[:1] in begins:
                found.append(written)
            else:
                force_setattr(record, name, json.decode(written))
    return found


def _may_stay(args: Sequence[bytes], data: Sequence[bytes]) -> bool:
    low = b"\n".join(data).lower()
    if json_may_hold_images(low):
        return False
    low += b"\n" + b"\n".join(args).lower()
    if not low.isascii():
        low.decode()
    values = [*args, *data]
    return (
        can_be_judged_as_written(values)
        and _LARGE_EXPONENT.search(low) is None
        and not any(len(value) > _MOST_DIGITS and _MANY_DIGITS.search(value) for value in values)
    )
