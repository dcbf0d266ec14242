"""Spans as the SDKs of OpenTelemetry print them, and as programs dump them into files.

Sources: `ReadableSpan.to_json` of opentelemetry-sdk for Python (ids as "0x...", times as text), the ReadableSpan of
@opentelemetry/sdk-trace-base for JavaScript (times as [seconds, nanoseconds]), any-agent's AgentTrace (ids as integers, times in
nanoseconds).
"""

from __future__ import annotations

from typing import Any

from tracesite_sdk.normalize.json_values import fields, instant, items

from .span import DEEPEST, TOO_DEEP, Attributes, InvalidBody, Scope, Span, SpanEvent, SpanLink, Status, number

_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
# JavaScript's enum begins at 0 with INTERNAL.
_FIRST_KIND_OF_JAVASCRIPT = 1
_STATUSES: dict[str, Status] = {"ok": "ok", "error": "error", "1": "ok", "2": "error"}
_INT64 = range(-(2**63), 2**63)


def is_readable_span(value: Any) -> bool:
    """Return whether a value is a span in one of these forms."""
    span = fields(value)
    context = fields(span.get("context")) or fields(span.get("spanContext"))
    return "name" in span and bool({"trace_id", "span_id"} <= context.keys() or {"traceId", "spanId"} <= context.keys())


def readable_span(value: Any) -> Span:
    """Return the span of a value that is one. Raise InvalidBody, which names the field."""
    span = fields(value)
    context = fields(span.get("context")) or fields(span.get("spanContext"))
    parent = fields(span.get("parent")) or fields(span.get("parentSpanContext"))
    status = fields(span.get("status"))
    resource = fields(span.get("resource"))
    scope = (
        fields(span.get("instrumentationScope"))
        or fields(span.get("instrumentationLibrary"))
        or fields(span.get("scope"))
    )
    parent_id = span.get("parent_id", span.get("parentSpanId", parent.get("span_id", parent.get("spanId"))))
    code = status.get("status_code", status.get("code"))
    return Span(
        trace_id=_id(context.get("trace_id", context.get("traceId")), 32, "trace_id"),
        span_id=_id(context.get("span_id", context.get("spanId")), 16, "span_id"),
        parent_id=_id(parent_id, 16, "parent_id") if parent_id else "",
        name=str(span["name"]),
        kind=_kind(span.get("kind")),
        start=_time(span.get("start_time", span.get("startTime")), "start_time"),
        end=_time(span.get("end_time", span.get("endTime")), "end_time"),
        status=_STATUSES.get(str(code).lower().removeprefix("statuscode."), ""),
        status_message=str(status.get("description") or status.get("message") or ""),
        attributes=_attributes(span.get("attributes")),
        events=[
            SpanEvent(
                name=str(event.get("name", "")),
                time=_time(event.get("timestamp", event.get("time")), "events"),
                attributes=_attributes(event.get("attributes")),
            )
            for event in map(fields, items(span.get("events")))
        ],
        links=[_link(fields(link)) for link in items(span.get("links"))],
        scope=Scope(
            name=str(scope.get("name", "")),
            version=str(scope.get("version") or ""),
            resource=_attributes(resource.get("attributes", resource.get("_rawAttributes"))),
            resource_schema_url=str(resource.get("schema_url") or ""),
        ),
    )


def _link(link: dict[str, Any]) -> SpanLink:
    context = fields(link.get("context"))
    return SpanLink(
        trace_id=_id(context.get("trace_id", context.get("traceId")), 32, "links"),
        span_id=_id(context.get("span_id", context.get("spanId")), 16, "links"),
        attributes=_attributes(link.get("attributes")),
    )


def _id(value: Any, digits: int, name: str) -> str:
    """Return an id in hexadecimal. Integers are read in base 10 also where they are text."""
    if isinstance(value, str) and value.isdecimal() and len(value) != digits:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 16**digits:
        return f"{value:0{digits}x}"
    if isinstance(value, str):
        return value.lower().removeprefix("0x")
    raise InvalidBody(f"{name}: expected an id of {digits // 2} bytes, not {value!r:.50}")


def _kind(value: Any) -> int:
    if isinstance(value, str):
        return _KINDS.get(value.lower().removeprefix("spankind."), 0)
    return value + _FIRST_KIND_OF_JAVASCRIPT if isinstance(value, int) and 0 <= value < 5 else 0


def _time(value: Any, name: str) -> int:
    """Return a time in nanoseconds since 1970; 0 for none."""
    if value is None:
        return 0
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value):
        value = value[0] * 10**9 + value[1]
    if isinstance(value, int) and not isinstance(value, bool) and value in _INT64:
        return value
    if isinstance(value, str) and (moment := instant(value)) is not None:
        return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000
    raise InvalidBody(f"{name}: expected a time, not {value!r:.50}")


def _attributes(value: Any) -> Attributes:
    if isinstance(value, list):  # JavaScript's resources: pairs
        value = {str(pair[0]): pair[1] for pair in value if isinstance(pair, list) and len(pair) == 2}
    return {name: _value(item, 0) for name, item in fields(value).items()}


def _value(value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        return TOO_DEEP
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int) and value not in _INT64:
        return str(value)
    if isinstance(value, list):
        return [_value(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {name: _value(item, depth + 1) for name, item in value.items()}
    return value
