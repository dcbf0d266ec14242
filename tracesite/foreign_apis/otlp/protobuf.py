"""OTLP/HTTP bodies in protobuf: decode requests, encode answers.

Source of the format: opentelemetry-proto 1.x, `collector/trace/v1/trace_service.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as ProtoLogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

from tracesite_sdk.spans.span import (
    DEEPEST,
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
    encoded_bytes,
    number,
    refuse_all,
)

from . import counts as otlp_counts
from .mended_protobuf import mended

M = TypeVar("M", bound=Message)
_STATUSES: dict[int, Status] = {1: "ok", 2: "error"}
_DEPRECATED, _DEPRECATED_TAG = 1000, b"\xc2\x3e"
"""The number of a field in resources. In the versions before, it had the number of the field that took its place."""


def decode_traces(body: bytes, refuse: Refuse = refuse_all) -> list[Span]:
    """Return the spans of an ExportTraceServiceRequest; refuse the others. Raise InvalidBody and TooManyItems."""
    request = _parsed(ExportTraceServiceRequest(), body)
    spans = []
    for of_resource in request.resource_spans:
        _refuse_deprecated(of_resource, body, refuse)
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            scope = _scope(of_scope.scope, of_scope.schema_url, resource, of_resource.schema_url)
            spans += [_span(span, scope) for span in of_scope.spans]
    return spans


def decode_logs(body: bytes, refuse: Refuse = refuse_all) -> list[LogRecord]:
    """Return the records of an ExportLogsServiceRequest; refuse the others. Raise InvalidBody and TooManyItems."""
    request = _parsed(ExportLogsServiceRequest(), body)
    records = []
    for of_resource in request.resource_logs:
        _refuse_deprecated(of_resource, body, refuse)
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_logs:
            scope = _scope(of_scope.scope, of_scope.schema_url, resource, of_resource.schema_url)
            records += [_log_record(record, scope) for record in of_scope.log_records]
    return records


def count_metrics(body: bytes) -> int:
    """Return the number of metrics in an ExportMetricsServiceRequest. Raise InvalidBody and TooManyItems."""
    # Not parsed, because nothing else is done with them.
    return otlp_counts.counted(body, ExportMetricsServiceRequest, with_values=False).spans


def trace_answer(rejected: int, reason: str) -> bytes:
    """Return an ExportTraceServiceResponse, with a partial success if anything was refused."""
    answer = ExportTraceServiceResponse()
    if rejected or reason:
        answer.partial_success.rejected_spans = rejected
        answer.partial_success.error_message = reason
    return answer.SerializeToString()


def log_answer(rejected: int, reason: str) -> bytes:
    """Return an ExportLogsServiceResponse, with a partial success if anything was refused."""
    answer = ExportLogsServiceResponse()
    if rejected or reason:
        answer.partial_success.rejected_log_records = rejected
        answer.partial_success.error_message = reason
    return answer.SerializeToString()


def metric_answer() -> bytes:
    return ExportMetricsServiceResponse().SerializeToString()


def _refuse_deprecated(of_resource: Message, body: bytes, refuse: Refuse) -> None:
    """Refuse the lists by instrumentation library that versions 0.15 to 0.18 had beside those by scope."""
    if _DEPRECATED_TAG in body and _DEPRECATED in _unknown_fields(of_resource):
        refuse(f"field {_DEPRECATED} of a resource, by instrumentation library, is not read: send scopes instead", 1)


def _unknown_fields(message: Message) -> set[int]:
    unknown: Any = UnknownFieldSet(message)
    return {field.field_number for field in unknown}


def _parsed(message: M, body: bytes) -> M:
    otlp_counts.check_counts(body, type(message))
    try:
        message.ParseFromString(body)
    except DecodeError:
        try:
            message.ParseFromString(mended(body, type(message)))
        except DecodeError as error:
            raise InvalidBody(str(error)) from error
    return message


def _span(span: ProtoSpan, scope: Scope) -> Span:
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        kind=span.kind,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        status=_STATUSES.get(span.status.code, ""),
        status_message=span.status.message,
        attributes=_attributes(span.attributes),
        events=[
            SpanEvent(
                name=event.name,
                time=event.time_unix_nano,
                attributes=_attributes(event.attributes),
                dropped_attributes=event.dropped_attributes_count,
            )
            for event in span.events
        ],
        links=[
            SpanLink(
                trace_id=link.trace_id.hex(),
                span_id=link.span_id.hex(),
                trace_state=link.trace_state,
                attributes=_attributes(link.attributes),
                dropped_attributes=link.dropped_attributes_count,
                flags=link.flags,
            )
            for link in span.links
        ],
        scope=scope,
        trace_state=span.trace_state,
        flags=span.flags,
        dropped_attributes=span.dropped_attributes_count,
        dropped_events=span.dropped_events_count,
        dropped_links=span.dropped_links_count,
    )


def _log_record(record: ProtoLogRecord, scope: Scope) -> LogRecord:
    return LogRecord(
        name=record.event_name,
        trace_id=record.trace_id.hex(),
        span_id=record.span_id.hex(),
        time=record.time_unix_nano or record.observed_time_unix_nano,
        severity=record.severity_number,
        body=_value(record.body, 0),
        attributes=_attributes(record.attributes),
        scope=scope,
    )


def _scope(scope: Any, schema_url: str, resource: Attributes, resource_schema_url: str) -> Scope:
    return Scope(
        name=scope.name,
        version=scope.version,
        attributes=_attributes(scope.attributes),
        schema_url=schema_url,
        resource=resource,
        resource_schema_url=resource_schema_url,
    )


def _attributes(pairs: Iterable[KeyValue], depth: int = 0) -> Attributes:
    return {pair.key: _value(pair.value, depth) for pair in pairs}


def _value(value: AnyValue, depth: int) -> Any:
    if depth > DEEPEST:
        return TOO_DEEP
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            return number(value.double_value)
        case "array_value":
            return [_value(item, depth + 1) for item in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values, depth + 1)
        case "bytes_value":
            return encoded_bytes(value.bytes_value)
        case _:
            return None
