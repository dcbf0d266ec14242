"""OTLP/HTTP bodies in JSON: decode requests, encode answers and exports.

Source of the format: the OTLP specification, "JSON Protobuf Encoding": lowerCamelCase keys, ids in hexadecimal, 64-bit
integers as text, enums as numbers. Files written by protobuf's own JSON printer have ids in base64 and enums by name,
and are read too, as are the names that lists had before version 0.15. Unknown keys are ignored, as the specification asks.

A body is decoded at once. Only if that fails, because of an item or the encoding of a text, its items are decoded one by one.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tracesite_sdk.normalize.json_values import fields, items, text
from tracesite_sdk.normalize.mended_json import decode_json

from .span import (
    BYTES,
    DEEPEST,
    MOST_SPANS,
    TOO_DEEP,
    Attributes,
    InvalidBody,
    LogRecord,
    Refuse,
    Scope,
    Span,
    SpanEvent,
    SpanLink,
    Status,
    check_numbers,
    decoded_bytes,
    decoded_number,
    encoded_bytes,
    number,
    refuse_all,
)

_KINDS: dict[int | str, int] = {
    "SPAN_KIND_UNSPECIFIED": 0,
    "SPAN_KIND_INTERNAL": 1,
    "SPAN_KIND_SERVER": 2,
    "SPAN_KIND_CLIENT": 3,
    "SPAN_KIND_PRODUCER": 4,
    "SPAN_KIND_CONSUMER": 5,
}
_STATUSES: dict[int | str, Status] = {1: "ok", 2: "error", "STATUS_CODE_OK": "ok", "STATUS_CODE_ERROR": "error"}
_CODES = {"": 0, "ok": 1, "error": 2}
Integer = int | str
"""64-bit integers are text, because JavaScript has none; some exporters write numbers."""


class _Wire(Struct, frozen=True, rename="camel"):
    """The base of the messages as they are on the wire."""


class _AnyValue(_Wire, frozen=True, rename="camel"):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: Integer | None = None
    double_value: float | str | None = None
    array_value: _Array | None = None
    kvlist_value: _Pairs | None = None
    bytes_value: str | None = None


class _Array(_Wire, frozen=True, rename="camel"):
    values: list[_AnyValue] = []


class _Pair(_Wire, frozen=True, rename="camel"):
    key: str = ""
    value: _AnyValue | None = None


class _Pairs(_Wire, frozen=True, rename="camel"):
    values: list[_Pair] = []


class _Scope(_Wire, frozen=True, rename="camel"):
    name: str = ""
    version: str = ""
    attributes: list[_Pair] = []


class _Resource(_Wire, frozen=True, rename="camel"):
    attributes: list[_Pair] = []


class _Event(_Wire, frozen=True, rename="camel"):
    name: str = ""
    time_unix_nano: Integer = 0
    attributes: list[_Pair] = []
    dropped_attributes_count: Integer = 0


class _Link(_Wire, frozen=True, rename="camel"):
    trace_id: str = ""
    span_id: str = ""
    trace_state: str = ""
    attributes: list[_Pair] = []
    dropped_attributes_count: Integer = 0
    flags: Integer = 0


class _Status(_Wire, frozen=True, rename="camel"):
    code: Integer = 0
    message: str = ""


class _Span(_Wire, frozen=True, rename="camel"):
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    name: str = ""
    kind: Integer = 0
    start_time_unix_nano: Integer = 0
    end_time_unix_nano: Integer = 0
    status: _Status | None = None
    attributes: list[_Pair] = []
    events: list[_Event] = []
    links: list[_Link] = []
    trace_state: str = ""
    flags: Integer = 0
    dropped_attributes_count: Integer = 0
    dropped_events_count: Integer = 0
    dropped_links_count: Integer = 0


# The lists of spans and of log records have the same fields, so that one function reads both.
class _ScopeSpans(_Wire, frozen=True, rename="camel"):
    scope: _Scope | None = None
    items: list[_Span] = msgspec.field(name="spans", default_factory=list)
    schema_url: str = ""


class _ResourceSpans(_Wire, frozen=True, rename="camel"):
    resource: _Resource | None = None
    scopes: list[_ScopeSpans] = msgspec.field(name="scopeSpans", default_factory=list)
    older: list[Any] = msgspec.field(name="instrumentationLibrarySpans", default_factory=list)
    schema_url: str = ""


class _TraceRequest(_Wire, frozen=True, rename="camel"):
    resources: list[_ResourceSpans] = msgspec.field(name="resourceSpans")


class _LogRecord(_Wire, frozen=True, rename="camel"):
    event_name: str = ""
    trace_id: str = ""
    span_id: str = ""
    time_unix_nano: Integer = 0
    observed_time_unix_nano: Integer = 0
    severity_number: Integer = 0
    body: _AnyValue | None = None
    attributes: list[_Pair] = []


class _ScopeLogs(_Wire, frozen=True, rename="camel"):
    scope: _Scope | None = None
    items: list[_LogRecord] = msgspec.field(name="logRecords", default_factory=list)
    schema_url: str = ""


class _ResourceLogs(_Wire, frozen=True, rename="camel"):
    resource: _Resource | None = None
    scopes: list[_ScopeLogs] = msgspec.field(name="scopeLogs", default_factory=list)
    older: list[Any] = msgspec.field(name="instrumentationLibraryLogs", default_factory=list)
    schema_url: str = ""


class _LogRequest(_Wire, frozen=True, rename="camel"):
    resources: list[_ResourceLogs] = msgspec.field(name="resourceLogs")


T = TypeVar("T")

_traces = msgspec.json.Decoder(_TraceRequest)
_logs = msgspec.json.Decoder(_LogRequest)


def decode_traces(body: bytes, refuse: Refuse = refuse_all) -> list[Span]:
    """Return the spans of an ExportTraceServiceRequest; refuse the others. Raise InvalidBody, which names the path, and TooManyItems."""
    spans = _all_of(_traces, body, _span)
    return spans if spans is not None else _items_of(_plain(body), "resourceSpans", _Span, _span, refuse)


def spans_in(value: Any, refuse: Refuse) -> list[Span]:
    """Return the spans of a request that is decoded JSON; refuse the others. Raise InvalidBody."""
    return _items_of(value, "resourceSpans", _Span, _span, refuse)


def decode_logs(body: bytes, refuse: Refuse = refuse_all) -> list[LogRecord]:
    """Return the records of an ExportLogsServiceRequest; refuse the others. Raise InvalidBody, which names the path, and TooManyItems."""
    records = _all_of(_logs, body, _log_record)
    return records if records is not None else _items_of(_plain(body), "resourceLogs", _LogRecord, _log_record, refuse)


def count_metrics(body: bytes) -> int:
    """Return the number of metrics in an ExportMetricsServiceRequest. Raise InvalidBody and TooManyItems."""
    return len(_items_of(_plain(body), "resourceMetrics", Any, lambda metric, _scope: metric, refuse_all))


def trace_answer(rejected: int, reason: str) -> bytes:
    """Return an ExportTraceServiceResponse, with a partial success if anything was refused."""
    return _answer("rejectedSpans", rejected, reason)


def log_answer(rejected: int, reason: str) -> bytes:
    """Return an ExportLogsServiceResponse, with a partial success if anything was refused."""
    return _answer("rejectedLogRecords", rejected, reason)


def metric_answer() -> bytes:
    return b"{}"


def _answer(name: str, rejected: int, reason: str) -> bytes:
    if not (rejected or reason):
        return b"{}"
    return msgspec.json.encode({"partialSuccess": {name: str(rejected), "errorMessage": reason}})


def encode_traces(spans: Iterable[Span]) -> bytes:
    """Return an ExportTraceServiceRequest of the spans."""
    return msgspec.json.encode({"resourceSpans": resource_spans(spans)})


def resource_spans(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """Return the spans as the items of `resourceSpans`, grouped by resource and scope in the order given."""
    resources: list[dict[str, Any]] = []
    for resource, of_resource in groupby(spans, lambda span: (span.scope.resource, span.scope.resource_schema_url)):
        scopes = []
        for scope, of_scope in groupby(of_resource, lambda span: span.scope):
            identity = {"name": scope.name, "version": scope.version, "attributes": _pairs(scope.attributes)}
            scopes.append(
                {"scope": identity, "spans": [_exported(span) for span in of_scope]}
                | ({"schemaUrl": scope.schema_url} if scope.schema_url else {})
            )
        attributes, schema_url = resource
        resources.append(
            {"resource": {"attributes": _pairs(attributes)}, "scopeSpans": scopes}
            | ({"schemaUrl": schema_url} if schema_url else {})
        )
    return resources


# --- Decode -----------------------------------------------------------------------------------------------------------


_LISTS = {
    "resourceSpans": (("scopeSpans", "instrumentationLibrarySpans"), ("spans",)),
    "resourceLogs": (("scopeLogs", "instrumentationLibraryLogs"), ("logRecords", "logs")),
    "resourceMetrics": (("scopeMetrics", "instrumentationLibraryMetrics"), ("metrics",)),
}
"""The lists of a request, those in their items, and those in the items of these; the current name is the first."""
_BESIDE_LISTS = frozenset({"resource", "scope", "instrumentationLibrary", "schemaUrl"})


def _check_numbers(request: Any) -> None:
    """Raise TooManyItems for a request, as JSON of any form, that has to be split."""
    spans = parts = 0
    for name, (of_resource, of_scope) in _LISTS.items():
        for resource in items(fields(request).get(name)):
            scopes = [scope for key in of_resource for scope in items(fields(resource).get(key))]
            parts += 1 + len(scopes)
            for scope in scopes:
                items_of_scope = [item for key in of_scope for item in items(fields(scope).get(key))]
                spans += len(items_of_scope)
                check_numbers(spans)
                parts += sum(
                    len(items(fields(span).get(below))) for span in items_of_scope for below in ("events", "links")
                )
    check_numbers(spans, parts)


def _all_of(decoder: msgspec.json.Decoder[Any], body: bytes, make: Callable[[Any, Scope], T]) -> list[T] | None:
    """Return what `make` makes of the items of a request, all of which are valid; None for any other body. Raise TooManyItems."""
    made: list[T] = []
    try:
        if body.count(b"{") > MOST_SPANS:
            # All of these are objects, and as plain JSON they take a fifth of the memory.
            _check_numbers(msgspec.json.decode(body))
        request = decoder.decode(body)
        for of_resource in request.resources:
            if not of_resource.scopes or of_resource.older:
                return None
            resource = _attributes(of_resource.resource.attributes if of_resource.resource else ())
            for of_scope in of_resource.scopes:
                if not of_scope.items:
                    return None
                scope = _scope(of_scope.scope, of_scope.schema_url, resource, of_resource.schema_url)
                made += [make(item, scope) for item in of_scope.items]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidBody):
        return None
    # Without any, the body may have something else in place of the list.
    return made or None


def _plain(body: bytes) -> Any:
    try:
        value = decode_json(body)
    except msgspec.DecodeError as error:
        raise InvalidBody(str(error)) from error
    except RecursionError as error:
        raise InvalidBody("The JSON is nested too deeply.") from error
    _check_numbers(value)
    return value


def _items_of(request: Any, name: str, type_: Any, make: Callable[[Any, Scope], T], refuse: Refuse) -> list[T]:
    """Return what `make` makes of the items of a request that is decoded JSON; refuse those that are not of the type, and
    whatever stands in place of a list. Raise InvalidBody if nothing else is there."""
    refused: list[tuple[str, int]] = []
    found: list[T] = []
    of_resources, of_scopes = _LISTS[name]
    # Other JSON must not be taken for an empty request, but {} is one by the proto3 JSON mapping.
    if request != {} and not isinstance(fields(request).get(name), list):
        raise InvalidBody(f"expected an object with “{name}”, a list")
    for at, of_resource in _listed(request, "", (name,), refused):
        resource = _resource(of_resource, at, refused)
        resource_schema_url = text(fields(of_resource).get("schemaUrl")) or ""
        for path, of_scope in _listed(of_resource, at, of_resources, refused):
            scope = _scope_of(of_scope, resource, resource_schema_url, path, refused)
            for where, item in _listed(of_scope, path, of_scopes, refused):
                try:
                    found.append(make(_converted(item, type_), scope))
                except (msgspec.ValidationError, InvalidBody) as error:
                    refused.append((f"{where}: {error}", 1))
    if refused and not found:
        raise InvalidBody(refused[0][0])
    for reason, count in refused:
        refuse(reason, count)
    return found


def _converted(value: Any, type_: Any) -> Any:
    """Return decoded JSON as a message. Raise msgspec.ValidationError and InvalidBody."""
    try:
        try:
            return msgspec.convert(value, type_)
        except msgspec.ValidationError:
            return msgspec.convert(_without_nulls(value), type_)
    except RecursionError as error:
        raise InvalidBody("nested too deeply") from error


def _without_nulls(value: Any) -> Any:
    """Return a message without the members that are null, which is their default by the proto3 JSON mapping."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _listed(value: Any, where: str, names: Sequence[str], refused: list[tuple[str, int]]) -> Iterator[tuple[str, Any]]:
    """Yield the items of the lists in an object, each with its path; note what is there in place of them."""
    if not isinstance(value, dict):
        refused.append((f"{where}: expected an object", 1))
        return
    is_empty = True
    for name in names:
        path = f"{where}.{name}" if where else name
        if value.get(name) is not None and not isinstance(value[name], list):
            refused.append((f"{path}: expected a list", 1))
        for index, item in enumerate(items(value.get(name))):
            is_empty = False
            yield f"{path}[{index}]", item
    if is_empty and any(item and key not in (*names, *_BESIDE_LISTS) for key, item in value.items()):
        refused.append((f"{where or 'the body'}: expected “{names[0]}”, a list", 1))


def _resource(of_resource: Any, where: str, refused: list[tuple[str, int]]) -> Attributes:
    resource = fields(of_resource).get("resource")
    try:
        return {} if resource is None else _attributes(_converted(resource, _Resource).attributes)
    except (msgspec.ValidationError, InvalidBody) as error:
        refused.append((f"{where}.resource: {error}", 0))
        return {}


def _scope_of(
    of_scope: Any, resource: Attributes, resource_schema_url: str, where: str, refused: list[tuple[str, int]]
) -> Scope:
    about = fields(of_scope)
    name = "instrumentationLibrary" if "instrumentationLibrary" in about else "scope"
    schema_url = text(about.get("schemaUrl")) or ""
    try:
        scope = None if about.get(name) is None else _converted(about[name], _Scope)
        return _scope(scope, schema_url, resource, resource_schema_url)
    except (msgspec.ValidationError, InvalidBody) as error:
        refused.append((f"{where}.{name}: {error}", 0))
        return _scope(None, schema_url, resource, resource_schema_url)


def _span(span: _Span, scope: Scope) -> Span:
    status = span.status or _Status()
    return Span(
        trace_id=hexadecimal(span.trace_id, 16),
        span_id=hexadecimal(span.span_id, 8),
        parent_id=hexadecimal(span.parent_span_id, 8),
        name=span.name,
        kind=_KINDS[span.kind] if span.kind in _KINDS else _integer(span.kind, "kind"),
        start=_integer(span.start_time_unix_nano, "startTimeUnixNano"),
        end=_integer(span.end_time_unix_nano, "endTimeUnixNano"),
        status=_STATUSES.get(status.code, ""),
        status_message=status.message,
        attributes=_attributes(span.attributes),
        events=[
            SpanEvent(
                name=event.name,
                time=_integer(event.time_unix_nano, "timeUnixNano"),
                attributes=_attributes(event.attributes),
                dropped_attributes=_integer(event.dropped_attributes_count, "droppedAttributesCount"),
            )
            for event in span.events
        ],
        links=[
            SpanLink(
                trace_id=hexadecimal(link.trace_id, 16),
                span_id=hexadecimal(link.span_id, 8),
                trace_state=link.trace_state,
                attributes=_attributes(link.attributes),
                dropped_attributes=_integer(link.dropped_attributes_count, "droppedAttributesCount"),
                flags=_integer(link.flags, "flags"),
            )
            for link in span.links
        ],
        scope=scope,
        trace_state=span.trace_state,
        flags=_integer(span.flags, "flags"),
        dropped_attributes=_integer(span.dropped_attributes_count, "droppedAttributesCount"),
        dropped_events=_integer(span.dropped_events_count, "droppedEventsCount"),
        dropped_links=_integer(span.dropped_links_count, "droppedLinksCount"),
    )


def _log_record(record: _LogRecord, scope: Scope) -> LogRecord:
    return LogRecord(
        name=record.event_name,
        trace_id=hexadecimal(record.trace_id, 16),
        span_id=hexadecimal(record.span_id, 8),
        time=_integer(record.time_unix_nano, "timeUnixNano")
        or _integer(record.observed_time_unix_nano, "observedTimeUnixNano"),
        severity=_integer(record.severity_number, "severityNumber"),
        body=_value(record.body, 0),
        attributes=_attributes(record.attributes),
        scope=scope,
    )


def _scope(scope: _Scope | None, schema_url: str, resource: Attributes, resource_schema_url: str) -> Scope:
    scope = scope or _Scope()
    return Scope(
        name=scope.name,
        version=scope.version,
        attributes=_attributes(scope.attributes),
        schema_url=schema_url,
        resource=resource,
        resource_schema_url=resource_schema_url,
    )


def hexadecimal(text: str, size: int) -> str:
    """Return an id in lower-case hexadecimal. Base64 of `size` bytes is read too; anything else is returned as it is."""
    if len(text) == size * 2 or not text:
        return text.lower()
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text
    return decoded.hex() if len(decoded) == size else text


def _integer(value: Integer, name: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise InvalidBody(f"{name}: expected an integer, not {value!r:.50}") from error


def _attributes(pairs: Iterable[_Pair], depth: int = 0) -> Attributes:
    return {pair.key: _value(pair.value, depth) for pair in pairs}


def _value(value: _AnyValue | None, depth: int) -> Any:
    if value is None:
        return None
    if depth > DEEPEST:
        return TOO_DEEP
    if value.string_value is not None:
        return value.string_value
    if value.int_value is not None:
        return _integer(value.int_value, "intValue")
    if value.bool_value is not None:
        return value.bool_value
    if value.double_value is not None:
        try:
            return number(float(value.double_value))
        except ValueError as error:
            raise InvalidBody(f"doubleValue: expected a number, not {value.double_value!r:.50}") from error
    if value.array_value is not None:
        return [_value(item, depth + 1) for item in value.array_value.values]
    if value.kvlist_value is not None:
        return _attributes(value.kvlist_value.values, depth + 1)
    if value.bytes_value is None:
        return None
    content = decoded_bytes({BYTES: value.bytes_value})
    return {BYTES: value.bytes_value} if content is None else encoded_bytes(content)


# --- Encode -----------------------------------------------------------------------------------------------------------


def _exported(span: Span) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "traceState": span.trace_state,
        "flags": span.flags,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _pairs(span.attributes),
        "droppedAttributesCount": span.dropped_attributes,
        "events": [
            _without_empty(
                {
                    "timeUnixNano": str(event.time),
                    "name": event.name,
                    "attributes": _pairs(event.attributes),
                    "droppedAttributesCount": event.dropped_attributes,
                }
            )
            for event in span.events
        ],
        "droppedEventsCount": span.dropped_events,
        "links": [
            _without_empty(
                {
                    "traceId": link.trace_id,
                    "spanId": link.span_id,
                    "traceState": link.trace_state,
                    "attributes": _pairs(link.attributes),
                    "droppedAttributesCount": link.dropped_attributes,
                    "flags": link.flags,
                }
            )
            for link in span.links
        ],
        "droppedLinksCount": span.dropped_links,
        "status": _without_empty({"message": span.status_message, "code": _CODES[span.status]}),
    }
    return _without_empty(fields)


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value or name == "status"}


def _pairs(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in attributes.items()]


def _any_value(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {}
        case str():
            return {"stringValue": value}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case Sequence():
            return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    if (content := decoded_bytes(value)) is not None:
        return {"bytesValue": base64.b64encode(content).decode()}
    if (special := decoded_number(value)) is not None:
        return {"doubleValue": "NaN" if math.isnan(special) else "Infinity" if special > 0 else "-Infinity"}
    return {"kvlistValue": {"values": _pairs(value)}}
