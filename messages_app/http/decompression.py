"""Decode request bodies in gzip, zstd or deflate, up to a maximum size."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# A frame declares the memory for decoding it. RFC 9659 limits it to 8 MB.
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
_DECODERS: dict[str, Callable[[], Any]] = {
    "zstd": lambda: zstd.ZstdDecompressor(options=_ZSTD_OPTIONS),
    "gzip": lambda: zlib.decompressobj(31),
    "deflate": lambda: zlib.decompressobj(15),
}
ENCODINGS = tuple(_DECODERS)

# A decoder decodes one member (gzip) or frame (zstd). Real streams have few of them, but an empty one takes only 9 bytes.
MOST_PARTS = 1000
# Small, because the rest of a block is copied when a part ends in it.
_BLOCK = 64 * 1024


class BrokenStreamError(ValueError):
    """The bytes are not a complete stream of the declared encoding."""


def decode(body: bytes, encoding: str, most: int) -> bytes | None:
    """Decode `body`, whose `encoding` is one of ENCODINGS; return None if the result exceeds `most` bytes.

    A longer result is never held in memory. Raise BrokenStreamError, also if the end is missing or other data follows it.
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
                    block = getattr(decoder, "unconsumed_tail", b"")  # zstd keeps it internally
                if not remaining:
                    return None
            if not decoder.eof:
                raise BrokenStreamError("the stream is truncated")
            at -= len(decoder.unused_data)
            if at == len(body):
                return b"".join(decoded)
    except (zlib.error, zstd.ZstdError) as error:
        raise BrokenStreamError("damaged, or in another format") from error
    raise BrokenStreamError("the stream has too many members")
