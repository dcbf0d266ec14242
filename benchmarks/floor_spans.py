"""Floor of OTLP: the rows of the messages by the floor of ingest, and the spans as JSON, by psycopg alone.

It is given the messages beside their spans, so that it need not understand the spans, and checks and redacts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

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
            with self.connection.cursor() as cursor, cursor.copy(_COPY) as copy:
                for row in self._span_rows(spans):
                    copy.write_row(row)

    def _span_rows(self, body: bytes) -> Iterator[tuple[str, int, str, str, str]]:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for of_resource in request.resource_spans:
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    milliseconds = span.start_time_unix_nano // 1_000_000
                    id_ = milliseconds << 80 | _VERSION_AND_VARIANT | next(self._tails)
                    yield f"{id_:032x}", self.project_id, span.trace_id.hex(), "span", _as_json(span)


def _as_json(span: Span) -> str:
    """Return the span as Tracesite stores one of the benchmark, whose attributes are texts and whole numbers."""
    attributes = {
        pair.key: pair.value.string_value if pair.value.HasField("string_value") else pair.value.int_value
        for pair in span.attributes
    }
    content = {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_id": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "status_message": span.status.message,
        "attributes": attributes,
    }
    return msgspec.json.encode(content).decode()
