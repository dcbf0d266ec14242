"""Count what an OTLP request in protobuf holds before it is parsed, because an empty span takes 2 bytes there and 1 KB as objects.

Only the lengths of messages are read, never their values: https://protobuf.dev/programming-guides/encoding/. Everything else takes
the parser neither memory nor time: 64 MB of empty texts or unknown fields are parsed in 0.3 s (2 cores, busy).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from tracesite_sdk.spans.span import MOST_SPANS, InvalidBody, TooManyItems, check_numbers

MOST_VALUES = 2_000_000
"""Attributes, and values of arrays and objects in them."""
_MOST_FIELDS = 8_000_000
"""Fields that are read to count. Those of ordinary spans take 14 bytes each, so that 64 MB have 5 million."""
_DEEPEST = 100
"""Levels of messages that the parser reads."""
_KINDS = dict.fromkeys(("Span", "LogRecord", "Metric"), "span") | dict.fromkeys(
    ("Event", "Link", "ResourceSpans", "ScopeSpans", "ResourceLogs", "ScopeLogs", "ResourceMetrics", "ScopeMetrics"),
    "part",
)
"""Kinds of messages by their names; all others are values."""

_Table = dict[int, tuple[str, "_Table"]]
"""The fields of a message that are messages: by their tags, the kind of them, and their own fields."""


@dataclass
class RequestCounts:
    spans: int = 0
    """With log records and metrics."""
    parts: int = 0
    values: int = 0
    fields: int = 0


def check_counts(body: bytes, request: Any) -> None:
    """Raise TooManyItems if a request, a class of protobuf, holds more than MOST_SPANS, MOST_EVENTS_AND_LINKS or MOST_VALUES.

    Raise InvalidBody for what is no protobuf.
    """
    # A message begins with its tag, so there are at most as many as bytes that may begin one. Most bodies have fewer values.
    at_most = len(body) - len(body.translate(None, first_bytes(request)))
    if at_most > MOST_SPANS:
        counted(body, request, with_values=at_most > MOST_VALUES)


def counted(body: bytes, request: Any, *, with_values: bool = True) -> RequestCounts:
    """Return the numbers of what a request holds. Raise as `check_counts` does."""
    found = RequestCounts()
    _count(body, 0, len(body), _tables(request, with_values)[request.DESCRIPTOR.full_name], found, 0)
    return found


def _count(body: bytes, at: int, end: int, table: _Table, found: RequestCounts, depth: int) -> None:
    """Add what the message in these bytes holds to `found`."""
    if depth > _DEEPEST:
        raise InvalidBody("messages in messages to more than 100 levels")
    try:
        while at < end:
            found.fields += 1
            tag = body[at]
            at += 1
            if tag > 127:
                tag, at = _long(body, tag, at)
            wire_type = tag & 7
            if wire_type == 2:
                size = body[at]
                at += 1
                if size > 127:
                    size, at = _long(body, size, at)
                if at + size > end:
                    raise InvalidBody("a field is longer than the message that it is in")
                if tag in table:
                    kind, inner = table[tag]
                    _add(found, kind)
                    if size and inner:
                        _count(body, at, at + size, inner, found, depth + 1)
                at += size
            elif wire_type == 0:
                longest = at + 10
                while body[at] > 127 and at < longest:
                    at += 1
                at += 1
            elif wire_type == 1:
                at += 8
            elif wire_type == 5:
                at += 4
            else:
                raise InvalidBody("groups, which OTLP does not have, or no protobuf")
            if found.fields > _MOST_FIELDS:
                raise TooManyItems(_MOST_FIELDS, "fields")
    except IndexError as error:
        raise InvalidBody("the body is cut off") from error
    if at > end:
        raise InvalidBody("a field is longer than the message that it is in")


def _add(found: RequestCounts, kind: str) -> None:
    if kind == "value":
        found.values += 1
        if found.values > MOST_VALUES:
            raise TooManyItems(MOST_VALUES, "values")
    else:
        found.spans += kind == "span"
        found.parts += kind == "part"
        check_numbers(found.spans, found.parts)


def _long(body: bytes, first: int, at: int) -> tuple[int, int]:
    """Return a number whose first byte says that it goes on, and where it ends."""
    number, shift = first & 127, 7
    while shift < 35:
        byte = body[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number >= 2**32:
                break
            return number, at
        shift += 7
    raise InvalidBody("a tag or a length of more than 32 bits")


@functools.cache
def _tables(request: Any, deep: bool) -> dict[str, _Table]:
    """Return the fields that are counted of each message of a request, by its name; those that are values if it is `deep`."""
    messages = [request.DESCRIPTOR]
    tables: dict[str, _Table] = {request.DESCRIPTOR.full_name: {}}
    for message in messages:
        for field in message.fields:
            of = field.message_type if field.type == FieldDescriptor.TYPE_MESSAGE else None
            kind = _KINDS.get(of.name, "value") if of else ""
            if of is None or (kind == "value" and not deep):
                continue
            if of.full_name not in tables:
                tables[of.full_name] = {}
                messages.append(of)
            tables[message.full_name][field.number << 3 | 2] = (kind, tables[of.full_name])
    return tables


@functools.cache
def first_bytes(request: Any) -> bytes:
    """Return the bytes with which the tags of all these fields may begin. Writers may make a tag longer than it has to be."""
    tags = {tag for table in _tables(request, True).values() for tag in table}
    return bytes(sorted({byte for tag in tags for byte in (tag & 127, tag & 127 | 128)}))
