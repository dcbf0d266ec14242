"""Spans as the SDKs of OpenTelemetry print them, and as programs dump them into files.

Sources: `ReadableSpan.to_json` of opentelemetry-sdk for Python (ids as "0x...", times as text), the ReadableSpan of
@opentelemetry/sdk-trace-base for JavaScript (times as [seconds, nanoseconds]), any-agent's AgentTrace (ids as integers, times in
nanoseconds), the ConsoleSpanExporter of JavaScript as JSON (`timestamp` and `duration` in microseconds), Copilot CLI's file exporter
(ids at the top), Phoenix's span JSON (`span_kind`, `status_code`) with the rows of its data frames (`context.trace_id`), and
`Span.to_dict` of MLflow 2 and 3 (ids in base64 in the latter, `start_time_unix_nano`).
"""

from __future__ import annotations

from typing import Any

from tracesite_sdk.normalize.json_values import fields, instant, items

from .otlp_json import hexadecimal
from .span import DEEPEST, TOO_DEEP, Attributes, InvalidBody, Scope, Span, SpanEvent, SpanLink, Status, number

_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
# JavaScript's enum begins at 0 with INTERNAL.
_FIRST_KIND_OF_JAVASCRIPT = 1
_STATUSES: dict[str, Status] = {"ok": "ok", "error": "error", "1": "ok", "2": "error"}
# MLflow's newest spans have its own id of the trace beside that of OpenTelemetry.
_TRACE_IDS, _IDS = ("otel_trace_id", "trace_id", "traceId"), ("span_id", "spanId", "id")
_STARTS = ("start_time", "startTime", "startTimeUnixNano", "start_time_unix_nano", "timestamp")
_ENDS = ("end_time", "endTime", "endTimeUnixNano", "end_time_unix_nano")
_MLFLOW_ID = "tr-"
"""Before MLflow's id of a trace, which is that of OpenTelemetry."""
_OPENINFERENCE_KIND = "openinference.span.kind"
_OTHER_UNITS = range(10**9, 10**17)
"""Times that are no nanoseconds: those begin in 1973."""
_INT64 = range(-(2**63), 2**63)


def is_readable_span(value: Any) -> bool:
    """Return whether a value is a span in one of these forms."""
    span = _whole(fields(value))
    context = _context(span)
    # Other things have an id and that of a trace, too, such as Langfuse's observations.
    is_span = context is not span or isinstance(span.get("attributes"), dict)
    return "name" in span and is_span and _first(context, _TRACE_IDS) is not None and _first(context, _IDS) is not None


def readable_span(value: Any) -> Span:
    """Return the span of a value that is one. Raise InvalidBody, which names the field."""
    span = _whole(fields(value))
    context = _context(span)
    parent = fields(span.get("parent")) or fields(span.get("parentSpanContext"))
    status = fields(span.get("status"))
    resource = fields(span.get("resource"))
    scope = (
        fields(span.get("instrumentationScope"))
        or fields(span.get("instrumentationLibrary"))
        or fields(span.get("scope"))
    )
    parent_id = _first(span, ("parent_id", "parentSpanId", "parentId", "parent_span_id")) or _first(
        parent, ("span_id", "spanId")
    )
    code = status.get("status_code", status.get("code", span.get("status_code")))
    start = _time(_first(span, _STARTS), "start_time")
    end = _time(_first(span, _ENDS), "end_time")
    if not end and isinstance(duration := span.get("duration"), int) and "timestamp" in span:
        end = start + duration * 1000
    attributes, kind = span.get("attributes"), _kind(span.get("kind", span.get("span_kind")))
    if "span_kind" in span:
        said = {_OPENINFERENCE_KIND: span["span_kind"]} if not kind and _is_known(span["span_kind"]) else {}
        attributes = said | _flat(fields(attributes), "")
    return Span(
        trace_id=_id(_first(context, _TRACE_IDS), 32, "trace_id"),
        span_id=_id(_first(context, _IDS), 16, "span_id"),
        parent_id=_id(parent_id, 16, "parent_id") if parent_id else "",
        name=str(span["name"]),
        kind=kind,
        start=start,
        end=end,
        status=_STATUSES.get(str(code).lower().removeprefix("statuscode.").removeprefix("status_code_"), ""),
        status_message=str(status.get("description") or status.get("message") or span.get("status_message") or ""),
        attributes=_attributes(attributes),
        events=[
            SpanEvent(
                name=str(event.get("name", "")),
                time=_time(_first(event, ("timestamp", "time", "time_unix_nano")), "events"),
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


def _whole(span: dict[str, Any]) -> dict[str, Any]:
    """Return a span, also if it is a row of Phoenix's data frame, whose columns are paths."""
    if "context.trace_id" not in span:
        return span
    row = {name: value for name, value in span.items() if value is not None}
    columns = {name: value for name, value in row.items() if not name.startswith(("context.", "attributes."))}
    for whole in ("context", "attributes"):
        columns[whole] = {
            name.removeprefix(f"{whole}."): value for name, value in row.items() if name.startswith(f"{whole}.")
        }
    return columns


def _context(span: dict[str, Any]) -> dict[str, Any]:
    """Return what has the ids: an object, or the span itself."""
    return fields(span.get("context")) or fields(span.get("spanContext")) or span


def _first(values: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _is_known(kind: Any) -> bool:
    return isinstance(kind, str) and kind.upper() not in ("", "UNKNOWN")


def _flat(attributes: dict[str, Any], prefix: str) -> Attributes:
    """Return Phoenix's attributes by their paths, as OpenInference has them: its data frames nest them again."""
    found: Attributes = {}
    for name, value in attributes.items():
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            value = {str(index): item for index, item in enumerate(value)}
        if isinstance(value, dict) and name != "metadata" and prefix.count(".") < DEEPEST:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def _link(link: dict[str, Any]) -> SpanLink:
    context = fields(link.get("context"))
    return SpanLink(
        trace_id=_id(context.get("trace_id", context.get("traceId")), 32, "links"),
        span_id=_id(context.get("span_id", context.get("spanId")), 16, "links"),
        attributes=_attributes(link.get("attributes")),
    )


def _id(value: Any, digits: int, name: str) -> str:
    """Return an id in hexadecimal. Integers are read in base 10 also where they are text, and bytes in base64."""
    if isinstance(value, str) and value.isdecimal() and len(value) != digits:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 16**digits:
        return f"{value:0{digits}x}"
    if isinstance(value, str):
        return hexadecimal(value.removeprefix("0x").removeprefix(_MLFLOW_ID), digits // 2).lower()
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
    if isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) < 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value in _INT64 and value not in _OTHER_UNITS:
        return value
    # Texts, and seconds, milliseconds or microseconds since 1970.
    if (moment := instant(value)) is not None:
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
