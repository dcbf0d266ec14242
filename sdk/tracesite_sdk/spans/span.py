"""A span as every wire delivers it. Plain Python.

Attribute values are those of OTLP's `AnyValue` in JSON form: text, bool, int, float, list, dict. Bytes and numbers that
JSON does not have are an object with one key, `$text` (bytes that are text, so that secrets in it are found), `$bytes` (base64
of other bytes) or `$double` ("NaN", "Infinity", "-Infinity"), so that a span can be stored as JSON and exported as it came.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

Status = Literal["", "ok", "error"]
Attributes = dict[str, Any]

MOST_SPANS = 50_000
"""Spans and log records, or runs, events and scores of other protocols, in one request. Collectors send some 8,192 at a time, and
64 MiB hold so many ordinary ones."""
MOST_TRACES = 10_000
"""Traces that the spans of one request may be of, because each costs as much as several spans."""
MOST_EVENTS_AND_LINKS = 100_000
"""Events and links of the spans of a request, with the resources and scopes that they are listed by."""
SPANS, PARTS = "spans or other items", "events, links, resources and scopes of spans"
"""The names of these in errors."""
DEEPEST = 64
"""Levels of arrays and objects that an attribute may have; anything deeper is replaced by TOO_DEEP."""
TOO_DEEP = f"[more than {DEEPEST} levels]"
BYTES = "$bytes"
TEXT = "$text"
DOUBLE = "$double"


class InvalidBody(ValueError):
    """The body is not the message that the endpoint takes."""


Refuse = Callable[[str, int], None]
"""Called with what is wrong, for people, and how many items of a request it costs; 0 if only a part of one."""


def refuse_all(reason: str, _items: int) -> None:
    """Refuse the whole body because of one item."""
    raise InvalidBody(reason)


class TooManyItems(ValueError):
    """The body has more than `most` of `items`, which is a word for people."""

    def __init__(self, most: int, items: str) -> None:
        super().__init__(f"more than {most} {items}")
        self.most, self.items = most, items


def check_numbers(spans: int, parts: int = 0) -> None:
    """Raise TooManyItems if a request with so many is to be split."""
    if spans > MOST_SPANS:
        raise TooManyItems(MOST_SPANS, SPANS)
    if parts > MOST_EVENTS_AND_LINKS:
        raise TooManyItems(MOST_EVENTS_AND_LINKS, PARTS)


class SpanEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened during a span."""

    name: str
    time: int = 0
    """Nanoseconds since 1970."""
    attributes: Attributes = {}
    dropped_attributes: int = 0


class SpanLink(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reference to another span, of any trace."""

    trace_id: str
    span_id: str
    trace_state: str = ""
    attributes: Attributes = {}
    dropped_attributes: int = 0
    flags: int = 0


class Scope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The library that made a span, and the resource (process, service) in which it runs."""

    name: str = ""
    version: str = ""
    attributes: Attributes = {}
    schema_url: str = ""
    resource: Attributes = {}
    resource_schema_url: str = ""


class Span(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation of a trace."""

    trace_id: str
    """32 lower-case hexadecimal digits."""
    span_id: str
    """16 lower-case hexadecimal digits."""
    parent_id: str = ""
    """The span id of the parent; "" for the root of a trace."""
    name: str = ""
    kind: int = 0
    """0 unspecified, 1 internal, 2 server, 3 client, 4 producer, 5 consumer."""
    start: int = 0
    """Nanoseconds since 1970."""
    end: int = 0
    """Nanoseconds since 1970; 0 while the span is open."""
    status: Status = ""
    status_message: str = ""
    attributes: Attributes = {}
    events: list[SpanEvent] = []
    links: list[SpanLink] = []
    scope: Scope = Scope()
    trace_state: str = ""
    flags: int = 0
    dropped_attributes: int = 0
    dropped_events: int = 0
    dropped_links: int = 0
    redactions: list[dict[str, Any]] = []
    """Receipts of the secrets that were taken out of it."""
    revision: int | None = None
    """None for a whole delivery. Otherwise a piece of the span: pieces with a higher revision override, see deliveries.py."""


class LogRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of OTLP logs: the event of a span, if it has the ids of one."""

    name: str = ""
    trace_id: str = ""
    span_id: str = ""
    time: int = 0
    """Nanoseconds since 1970."""
    severity: int = 0
    body: Any = None
    attributes: Attributes = {}
    scope: Scope = Scope()
    redactions: list[dict[str, Any]] = []


def number(value: float) -> float | dict[str, str]:
    """Return a float, or its object form if JSON has no such number."""
    if math.isfinite(value):
        return value
    return {DOUBLE: "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def encoded_bytes(value: bytes) -> dict[str, str]:
    """Return the object form of bytes."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {BYTES: b64encode(value).decode()}
    # PostgreSQL cannot store U+0000.
    return {BYTES: b64encode(value).decode()} if "\x00" in text else {TEXT: text}


def decoded_bytes(value: object) -> bytes | None:
    """Return the bytes of their object form, and None for any other value."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    if isinstance(text := value.get(TEXT), str):
        return text.encode()
    if isinstance(text := value.get(BYTES), str):
        try:
            return b64decode(text, validate=True)
        except ValueError:
            return None
    return None


def decoded_number(value: object) -> float | None:
    """Return the number of an object form, and None for any other value."""
    if isinstance(value, dict) and len(value) == 1 and value.get(DOUBLE) in ("NaN", "Infinity", "-Infinity"):
        return float(value[DOUBLE].replace("Infinity", "inf"))
    return None
