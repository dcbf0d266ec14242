"""Traces of the OpenAI Agents SDK as it exports them: `{"data": [{"object": "trace"}, {"object": "trace.span"}]}`.

Source: openai/openai-agents-python, src/agents/tracing (traces.py, spans.py, span_data.py).

* An id is `trace_` with 32 hexadecimal digits, which are kept, or any other text, whose hash is taken. The id of a span is always
  hashed, because it is longer than a span's may be. The original ids are attributes.
* A trace has no times: it is a span without a start and an end, which only names the trace.
* The fields of the span's data are attributes below `openai_agents.`, with their JSON values.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tracesite_sdk.normalize.mended_json import decode_json

from .pieces import shown
from .span import DEEPEST, TOO_DEEP, Attributes, InvalidBody, Scope, Span, check_numbers, number

PREFIX = "openai_agents."
TRACE = "trace"
"""The type of the span that stands for a trace."""
_SCOPE = Scope(name="openai-agents")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEX = frozenset("0123456789abcdef")


class _Request(Struct):
    data: list[Any]


class _Object(Struct):
    object: str


class _Trace(Struct):
    object: Literal["trace"]
    id: str
    workflow_name: str | None = None
    group_id: str | None = None
    metadata: dict[str, Any] | None = None


class _Span(Struct):
    object: Literal["trace.span"]
    id: str
    trace_id: str
    span_data: dict[str, Any]
    parent_id: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    error: Any = None
    metadata: dict[str, Any] | None = None


def decode_items(body: bytes) -> tuple[list[Span], list[str]]:
    """Return the spans of a body, and why each invalid item is none. Raise InvalidBody if the body has no items, and TooManyItems."""
    try:
        items = msgspec.convert(decode_json(body), _Request).data
    except msgspec.DecodeError as error:
        raise InvalidBody(str(error)) from error
    except RecursionError as error:
        raise InvalidBody("The JSON is nested too deeply.") from error
    check_numbers(len(items))
    spans: list[Span] = []
    invalid: list[str] = []
    for index, item in enumerate(items):
        try:
            spans.append(_span_of(item))
        except (msgspec.ValidationError, InvalidBody) as error:
            invalid.append(f"data[{index}]: {error}")
    return spans, invalid


def _span_of(item: Any) -> Span:
    kind = msgspec.convert(item, _Object).object
    if kind == "trace":
        return _of_trace(msgspec.convert(item, _Trace))
    if kind == "trace.span":
        return _of_span(msgspec.convert(item, _Span))
    raise InvalidBody(f"Expected “trace” or “trace.span” as `object`, not {shown(kind)}.")


def _of_trace(trace: _Trace) -> Span:
    facts = {"type": TRACE, "group_id": trace.group_id, "metadata": trace.metadata, "trace_id": trace.id}
    return Span(
        trace_id=trace_id_of(trace.id),
        span_id=span_id_of(trace.id),
        name=trace.workflow_name or "",
        attributes=_attributes(facts),
        scope=_SCOPE,
    )


def _of_span(span: _Span) -> Span:
    start, end = _nanoseconds(span.started_at), _nanoseconds(span.ended_at)
    facts = {**span.span_data, "span_id": span.id, "parent_id": span.parent_id, "error": span.error}
    facts |= {
        "trace_id": span.trace_id,
        "metadata": span.metadata,
        # Texts that are no times.
        "started_at": None if start else span.started_at,
        "ended_at": None if end else span.ended_at,
    }
    name = span.span_data.get("name") or span.span_data.get("type")
    message = span.error.get("message") if isinstance(span.error, dict) else span.error
    return Span(
        trace_id=trace_id_of(span.trace_id),
        span_id=span_id_of(span.id),
        parent_id=span_id_of(span.parent_id) if span.parent_id else "",
        name=name if isinstance(name, str) else "",
        start=start,
        end=end,
        status="error" if span.error else "",
        status_message=message if isinstance(message, str) else "",
        attributes=_attributes(facts),
        scope=_SCOPE,
    )


def trace_id_of(id_: str) -> str:
    """Return 32 hexadecimal digits for an id of the SDK."""
    digits = id_.removeprefix("trace_").lower()
    is_hex = len(digits) == 32 and _HEX.issuperset(digits) and digits != "0" * 32
    return digits if is_hex else blake2b(id_.encode("utf-8", "replace"), digest_size=16).hexdigest()


def span_id_of(id_: str) -> str:
    """Return 16 hexadecimal digits for an id of the SDK."""
    return blake2b(id_.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _nanoseconds(time: str | None) -> int:
    """Return nanoseconds since 1970; 0 for a missing time and for a text that is none."""
    if time is None:
        return 0
    try:
        moment = datetime.fromisoformat(time)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return 0
    return max(0, (moment - _EPOCH) // timedelta(microseconds=1) * 1000)


def _attributes(facts: dict[str, Any]) -> Attributes:
    return {f"{PREFIX}{name}": _value(value, 0) for name, value in facts.items() if value is not None}


def _value(value: Any, depth: int) -> Any:
    """Return a JSON value in the form of attributes."""
    if depth > DEEPEST:
        return TOO_DEEP
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, list):
        return [_value(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {name: _value(item, depth + 1) for name, item in value.items()}
    return value
