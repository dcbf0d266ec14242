"""The counter of protobuf counts what the parser makes, whatever the form of the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tracesite.foreign_apis.otlp import counts as otlp_counts
from tracesite_sdk.spans import span
from tracesite_sdk.spans.span import InvalidBody, TooManyItems


def varint(number: int, length: int) -> bytes:
    """Return a number in `length` bytes, which may be more than it needs."""
    return bytes([number >> 7 * place & 127 | (128 if place < length - 1 else 0) for place in range(length)])


@st.composite
def fields(draw: st.DrawFn, inner: st.SearchStrategy[bytes]) -> bytes:
    content = draw(inner)
    longer = draw(st.integers(0, 2))
    tag = draw(st.sampled_from([1, 2, 5, 6, 9, 11, 13, 15, 40])) << 3 | draw(st.sampled_from([2, 2, 2, 2, 0, 1, 5]))
    begin = varint(tag, 2 + longer)
    match tag & 7:
        case 0:
            return begin + varint(draw(st.integers(0, 2**20)), 3 + longer)
        case 1:
            return begin + b"12345678"
        case 5:
            return begin + b"1234"
        case _:
            return begin + varint(len(content), 4) + content


MESSAGES = st.recursive(
    st.binary(max_size=3), lambda inner: st.lists(fields(inner), max_size=4).map(b"".join), max_leaves=30
)


def messages_in(message: Any) -> Iterator[Any]:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield each
                yield from messages_in(each)


@given(st.lists(fields(MESSAGES), max_size=4).map(b"".join))
def test_counter_finds_at_least_what_the_parser_makes(body: bytes) -> None:
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        return
    made = list(messages_in(request))
    found = otlp_counts.counted(body, ExportTraceServiceRequest)
    assert found.spans >= sum(type(each).__name__ == "Span" for each in made)
    assert found.spans + found.parts + found.values >= len(made)
    first_bytes = otlp_counts.first_bytes(ExportTraceServiceRequest)
    assert sum(byte in first_bytes for byte in body) >= len(made)


@pytest.mark.parametrize("most", [3, 4])
def test_one_span_too_many_is_refused(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span, "MOST_SPANS", most)
    monkeypatch.setattr(otlp_counts, "MOST_SPANS", most)
    body = b"\x0a\x0a\x12\x08" + b"\x12\x00" * 4
    if most == 4:
        otlp_counts.check_counts(body, ExportTraceServiceRequest)
    else:
        with pytest.raises(TooManyItems):
            otlp_counts.check_counts(body, ExportTraceServiceRequest)


@pytest.mark.parametrize(
    "body", [b"\x8a\x80\x80\x80\x10\x00", b"\x8a\x80\x80\x80\x80\x80\x00\x00", b"\x0b\x0c", b"\x0a\x05"]
)
def test_tag_that_is_none_of_otlp_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidBody):
        otlp_counts.counted(body, ExportTraceServiceRequest)
