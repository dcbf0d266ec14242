"""Read files of OpenTelemetry spans.

* Requests of OTLP in JSON: one, a list of them, or one a line, as the collector's file exporter writes them. Ids are
  hexadecimal, or base64 as protobuf's own printer writes them.
* Spans of such a request, without it, also with the names of protobuf (`trace_id`), as Phoenix lists them.
* Spans as the SDKs for Python and JavaScript print them, Phoenix, MLflow and others: see spans/readable_span.py. In a list, in
  lines, or under `spans`, `data` or `data.spans`; those of requests as well. What MLflow says of a trace in its `info`
  belongs to the spans without a parent.

The spans are stored as those that arrive over HTTP, so a file and the wire may hold parts of one trace. A document is held
whole, because the spans of a trace may be anywhere in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import camel_case, fields, items
from tracesite_sdk.spans.conversation import sessions_of_traces
from tracesite_sdk.spans.otlp_json import spans_in
from tracesite_sdk.spans.readable_span import is_readable_span, readable_span
from tracesite_sdk.spans.span import DEEPEST, Attributes, InvalidBody, Span
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values

NAME = "otlp"
_REQUEST = "resourceSpans"
_OF_TRACE = ("mlflow.trace.session", "mlflow.trace.user", "mlflow.traceName")


def recognises(document: Document) -> bool:
    """Return whether one of the first values is an OTLP request or a printed span."""
    return any(
        isinstance(fields(value).get(_REQUEST), list) or any(map(_is_span, [value, *_spans_of(value)[:10]]))
        for value in first_values(document, 50)
    )


def transcripts(document: Document, skip: Skip) -> Iterator[records.Session]:
    """Yield the session of each trace."""
    return sessions_of_traces(spans(document, skip))


def spans(document: Document, skip: Skip) -> Iterator[Span]:
    """Yield the spans of a document that `recognises` accepts; report the values that are none to `skip`."""
    for where, value in numbered_values(document):
        if isinstance(fields(value).get(_REQUEST), list):
            yield from _of_request(where, value, skip)
            continue
        within, of_trace = _spans_of(value), _of_trace(fields(value))
        if not (within or _is_span(value)):
            skip(where, "neither an OTLP request nor a span")
            continue
        for index, item in enumerate(within or [value]):
            path = join_place(where, f"spans[{index}]") if within else where
            if _is_wire_span(item):
                yield from _of_request(path, {_REQUEST: [{"scopeSpans": [{"spans": [_renamed(item)]}]}]}, skip)
                continue
            if not is_readable_span(item):
                skip(path, "not a span")
                continue
            try:
                span = readable_span(item)
                yield span if span.parent_id else replace(span, attributes=of_trace | span.attributes)
            except InvalidBody as error:
                skip(path, str(error))


def _spans_of(value: Any) -> list[Any]:
    data = fields(value).get("data")
    return items(fields(value).get("spans")) or items(data) or items(fields(data).get("spans"))


def _of_trace(trace: dict[str, Any]) -> Attributes:
    """Return MLflow's conversation, user and name of a trace: of its info, or of a row of a data frame."""
    info = fields(trace.get("info")) or trace
    said = fields(info.get("tags")) | fields(info.get("request_metadata")) | fields(info.get("trace_metadata"))
    return {name: said[name] for name in _OF_TRACE if said.get(name)}


def _is_span(value: Any) -> bool:
    return is_readable_span(value) or _is_wire_span(value)


def _is_wire_span(value: Any) -> bool:
    """Return whether a value is a span of an OTLP request, without the request around it."""
    span = fields(value)
    has_ids = {"traceId", "spanId", "name"} <= span.keys() or {"trace_id", "span_id", "name"} <= span.keys()
    return has_ids and isinstance(span.get("attributes"), list)


def _renamed(value: Any, depth: int = 0) -> Any:
    """Return a value with the names that JSON has for those of protobuf; names of attributes are no keys."""
    if depth > DEEPEST:
        return value
    if isinstance(value, list):
        return [_renamed(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    return {camel_case(key): _renamed(item, depth + 1) for key, item in value.items()}


def _of_request(where: str, value: Any, skip: Skip) -> list[Span]:
    try:
        return spans_in(value, lambda reason, _items: skip(where, reason))
    except InvalidBody as error:
        skip(where, str(error))
        return []
