"""Read files of OpenTelemetry spans.

* Requests of OTLP in JSON: one, a list of them, or one a line, as the collector's file exporter writes them. Ids are
  hexadecimal, or base64 as protobuf's own printer writes them.
* Spans of such a request, without it.
* Spans as the SDKs for Python and JavaScript print them, Phoenix and others: see spans/readable_span.py. In a list, in lines, or
  under `spans` or `data`; those of requests as well.

The spans are stored as those that arrive over HTTP, so a file and the wire may hold parts of one trace. A document is held
whole, because the spans of a trace may be anywhere in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import fields, items
from tracesite_sdk.spans.conversation import sessions_of_traces
from tracesite_sdk.spans.otlp_json import spans_in
from tracesite_sdk.spans.readable_span import is_readable_span, readable_span
from tracesite_sdk.spans.span import InvalidBody, Span
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values

NAME = "otlp"
_REQUEST = "resourceSpans"


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
        within = _spans_of(value)
        if not (within or _is_span(value)):
            skip(where, "neither an OTLP request nor a span")
            continue
        for index, item in enumerate(within or [value]):
            path = join_place(where, f"spans[{index}]") if within else where
            if _is_wire_span(item):
                yield from _of_request(path, {_REQUEST: [{"scopeSpans": [{"spans": [item]}]}]}, skip)
                continue
            if not is_readable_span(item):
                skip(path, "not a span")
                continue
            try:
                yield readable_span(item)
            except InvalidBody as error:
                skip(path, str(error))


def _spans_of(value: Any) -> list[Any]:
    return items(fields(value).get("spans")) or items(fields(value).get("data"))


def _is_span(value: Any) -> bool:
    return is_readable_span(value) or _is_wire_span(value)


def _is_wire_span(value: Any) -> bool:
    """Return whether a value is a span of an OTLP request, without the request around it."""
    span = fields(value)
    return {"traceId", "spanId", "name"} <= span.keys() and isinstance(span.get("attributes"), list)


def _of_request(where: str, value: Any, skip: Skip) -> list[Span]:
    try:
        return spans_in(value, lambda reason, _items: skip(where, reason))
    except InvalidBody as error:
        skip(where, str(error))
        return []
