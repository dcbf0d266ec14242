"""Floors of OTLP, by psycopg alone: the spans as JSON, and the rows of the messages by the floor of ingest beside them.

The second is given the messages beside their spans. Neither understands the spans, and nothing is checked or redacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from .floor_ingest import Floor

_COPY = "COPY traces_app_span (id, project_id, trace_id, kind, content) FROM STDIN"
_VERSION_AND_VARIANT = 7 << 76 | 0b10 << 62
_decode_both = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode


def both(messages: bytes, spans: bytes) -> bytes:
    """Return the body of a request for `SpanFloor`: the same messages for the floor of ingest and as OTLP."""
    return msgspec.msgpack.encode((messages, spans))


class SpanFloor(Floor):
    """Connection that writes messages with their spans."""

    def copy_both(self, body: bytes) -> None:
        """Write a batch of `both` by COPY, in one transaction."""
        messages, spans = _decode_both(body)
        with self.connection.transaction():
            self.copy(messages)
            self.copy_spans(spans)

    def copy_spans(self, body: bytes) -> None:
        """Write the spans of a request by COPY, in one transaction."""
        with self.connection.transaction(), self.connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            for row in self._span_rows(body):
                copy.write_row(row)

    def _span_rows(self, body: bytes) -> Iterator[tuple[str, int, str, str, str]]:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for of_resource in request.resource_spans:
            resource = _attributes(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                scope = {"name": of_scope.scope.name, "resource": resource}
                for span in of_scope.spans:
                    milliseconds = span.start_time_unix_nano // 1_000_000
                    id_ = milliseconds << 80 | _VERSION_AND_VARIANT | next(self._tails)
                    yield f"{id_:032x}", self.project_id, span.trace_id.hex(), "span", _as_json(span, scope)


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, str | int]:
    """Return attributes of the benchmark, which are texts and whole numbers."""
    return {
        pair.key: pair.value.string_value if pair.value.HasField("string_value") else pair.value.int_value
        for pair in pairs
    }


def _as_json(span: Span, scope: dict[str, object]) -> str:
    """Return a span of the benchmark as Tracesite stores it, but for redaction."""
    content = {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_id": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "status": "error" if span.status.code == Status.STATUS_CODE_ERROR else "",
        "status_message": span.status.message,
        "attributes": _attributes(span.attributes),
        "scope": scope,
    }
    return msgspec.json.encode(content).decode()
