"""Bodies of requests that were sent as gzip, zstd or deflate: decoded, but never to more than is accepted."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# A frame names the memory that it takes to decode: 8 MB is what RFC 9659 has every client keep to.
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
_DECODERS: dict[str, Callable[[], Any]] = {
    "zstd": lambda: zstd.ZstdDecompressor(options=_ZSTD_OPTIONS),
    "gzip": lambda: zlib.decompressobj(31),
    "deflate": lambda: zlib.decompressobj(15),
}
ENCODINGS = tuple(_DECODERS)

# One decoder takes one member (gzip) or frame (zstd). Streams are a few of them; an empty one costs its sender 9 bytes.
MOST_PARTS = 1000
# What is left of a block when a part ends in it is copied, so blocks are small.
_BLOCK = 64 * 1024


class BrokenStreamError(ValueError):
    """The bytes are not, or not all, of the encoding that they were said to be of."""


def decode(body: bytes, encoding: str, most: int) -> bytes | None:
    """The bytes that `body` is the encoded form of, or None when they are more than `most`, which are never held.

    `encoding` is one of ENCODINGS. Raises BrokenStreamError, also where the end is missing or something comes after it.
    """
    decoded: list[bytes] = []
    remaining = most + 1
    at = 0
    try:
        for _part in range(MOST_PARTS):
            decoder = _DECODERS[encoding]()
            while not decoder.eof and at < len(body):
                block = body[at : at + _BLOCK]
                at += len(block)
                while remaining and not decoder.eof and (piece := decoder.decompress(block, remaining)):
                    decoded.append(piece)
                    remaining -= len(piece)
                    block = getattr(decoder, "unconsumed_tail", b"")  # zstd keeps it itself
                if not remaining:
                    return None
            if not decoder.eof:
                raise BrokenStreamError("it ends too early")
            at -= len(decoder.unused_data)
            if at == len(body):
                return b"".join(decoded)
    except (zlib.error, zstd.ZstdError) as error:
        raise BrokenStreamError("it is damaged, or something else") from error
    raise BrokenStreamError("it has too many parts")
