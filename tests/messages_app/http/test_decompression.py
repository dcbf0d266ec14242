"""Decoding of bodies: complete streams are decoded, others refused, and bombs only decoded up to the limit."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from messages_app.http.decompression import ENCODINGS, MOST_PARTS, BrokenStreamError, decode
from sdk.tests import steps

ENCODE: dict[str, Callable[[bytes], bytes]] = {"zstd": zstd.compress, "gzip": gzip.compress, "deflate": zlib.compress}
WIDE_WINDOW = {zstd.CompressionParameter.window_log: 24}

each_encoding = pytest.mark.parametrize("encoding", ENCODINGS)


@each_encoding
@given(parts=st.lists(st.binary(max_size=300).map(lambda data: data * 400), min_size=1, max_size=4))
def test_stream_of_any_number_of_parts_is_decoded(encoding: str, parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert decode(b"".join(map(ENCODE[encoding], parts)), encoding, len(whole)) == whole
    if whole:
        assert decode(b"".join(map(ENCODE[encoding], parts)), encoding, len(whole) - 1) is None


@each_encoding
@given(data=st.binary(max_size=2000), keep=st.floats(min_value=0, max_value=1, exclude_max=True))
def test_truncated_stream_is_refused(encoding: str, data: bytes, keep: float) -> None:
    body = ENCODE[encoding](data)
    with pytest.raises(BrokenStreamError):
        decode(body[: int(len(body) * keep)], encoding, 10_000)


@each_encoding
@given(body=st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(encoding: str, body: bytes) -> None:
    for candidate in (body, ENCODE[encoding](b"")[:4] + body, ENCODE[encoding](body) + b"{}"):
        with steps.at_most(10_000), suppress(BrokenStreamError):
            decode(candidate, encoding, 1000)


@each_encoding
def test_bomb_is_decoded_only_up_to_the_limit(encoding: str) -> None:
    bomb = ENCODE[encoding](bytes(100_000_000))
    tracemalloc.start()
    try:
        assert decode(bomb, encoding, 1_000_000) is None
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@each_encoding
def test_stream_of_too_many_parts_is_refused_quickly(encoding: str) -> None:
    empty = ENCODE[encoding](b"")
    assert decode(empty * MOST_PARTS, encoding, 0) == b""
    with pytest.raises(BrokenStreamError, match="too many members"):
        decode(empty * 1_000_000, encoding, 0)


def test_frame_with_window_above_eight_megabytes_is_refused() -> None:
    with pytest.raises(BrokenStreamError):
        decode(zstd.compress(bytes(20_000_000), options=WIDE_WINDOW), "zstd", 100_000_000)
