"""Reproducible mutations of bodies: of their JSON, lines, parts and messages, of any bytes, and of how they are packed and sent."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

from backports import zstd

from .seeds import ANYTHING, BOUNDARY, FORM, JSON, MULTIPART, NDJSON, PROTOBUF, Seed, tar
from .sending import Request

LARGEST = 64 * 2**20
"""Bytes of a body, as the server allows by default."""
_SIZES, _SHARES = (20_000, 1_000_000, LARGEST), (90, 9, 1)
_MOST_OF_EDITS = 200_000

# fmt: off
_VALUES = [
    *(b"{}", b"[]", b"null", b"true", b"0", b"-1", b"1.5", b"1e308", b"1e400", b"NaN", b"2147483648", b"9223372036854775807"),
    *(b"9223372036854775808", b"18446744073709551616", b"9" * 400, b"9" * 5000, b'""', b'" "', b'"\\u0000"', b'"\\ud800"'),
    *(b'"\\udc00\\ud800"', b'"\xff"', b'"\xed\xa0\x80"', b'"\xef\xbf\xbe\\u202e"', b"[null]", b"[[]]", b"[{}]", b'{"":null}'),
    *(b'{"a":{}}', b'{"$part":"0"}', b'{"$list":null,"tail":[]}', b'{"$type":{}}', b'"0001-01-01T00:00:00Z"', b'"../../a"'),
    *(b'"9999-12-31T23:59:59.999999-14:00"', b'"data:image/png;base64,AA"', b'"00000000-0000-7000-8000-000000000000"'),
    *(b'"@@@langfuseMedia:type=image/png|id=m|source=bytes@@@"', b'"%s{0}"'),
]
_TEXTS = ["a", "'", "\\", "[", '{"a":', '"', " ", "\n", "é", "0", "a.", "Ab1", "password=", "%2e", "<a ", "-----BEGIN ", "\U0001f600"]
_ITEMS = (b"{}", b"[]", b"0", b'""', b"null", b'{"a":[]}', b"[[],[]]")
_BYTES = (b"\0", b"\xff", b"\x80", b"\r\n", b'"', b"{", b"PK\x03\x04", b"\x1f\x8b", b"ustar", b"\n\n")
_NAMES = ("a.json", "a/b.jsonl", "header.json", "samples/1_epoch_1.json", "../a", "x" * 300)
_TYPES = (JSON, NDJSON, PROTOBUF, MULTIPART, FORM, ANYTHING, "application/json; charset=utf-16", "", "a", "text/plain", "*/*; q=\xff")
_FRAMINGS = ("chunked", "without its last chunk", "shorter than its length", "longer than its length", "length and chunks")
_MARK, _END = b"--%b\r\n" % BOUNDARY.encode(), b"--%b--\r\n" % BOUNDARY.encode()
# fmt: on
_ENCODE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 1, mtime=0),
    "zstd": zstd.compress,
    "deflate": lambda body: zlib.compress(body, 1),
}


@dataclass(frozen=True)
class Draw:
    """What a mutation chooses with, and from."""

    rng: random.Random
    seed: Seed
    seeds: Sequence[Seed]
    most: int
    """Bytes of the body."""

    def one(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def some(self, unit: bytes) -> bytes:
        """Return a unit from a few times to as often as it fits; in large bodies mostly rather often."""
        fit = max(1, (self.most - len(self.seed.body)) // len(unit))
        if self.most < LARGEST or self.rng.random() < 0.5:
            fit = int(fit ** self.rng.uniform(0.3, 1))
        return unit * fit


def mutated(rng: random.Random, seed: Seed, seeds: Sequence[Seed]) -> tuple[bytes, str]:
    """Return a mutated body of a seed, and what was done. One in a hundred may be as large as bodies may be."""
    draw = Draw(rng, seed, seeds, rng.choices(_SIZES, _SHARES)[0])
    # Only floods make a body large.
    chosen = [mutation for mutation in _of_type(seed) if draw.most < LARGEST or mutation.__name__.endswith("flood")]
    mutation = draw.one(*chosen)
    return mutation(draw), mutation.__name__.strip("_").replace("_", " ")


def _of_type(seed: Seed) -> list[Callable[[Draw], bytes]]:
    packed = [_packed] if seed.routes == ("/api/v1/import/",) and seed.media_type != MULTIPART else []
    of_type = {
        JSON: [_json, _json, _json, _json_flood],
        NDJSON: [_lines, _lines, _line_flood],
        PROTOBUF: [_message_flood],
        MULTIPART: [_parts, _parts, _part_flood],
    }
    return [*of_type.get(seed.media_type, [_bytes_flood]), _bytes, _splice, *packed]


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json(draw: Draw) -> bytes:
    return _edited(draw, draw.seed.body, draw.one(1, 1, 1, 2, 4))


def _json_flood(draw: Draw) -> bytes:
    return _edited(draw, draw.seed.body, 1, _LARGE)


def _edited(draw: Draw, body: bytes, edits: int = 1, kinds: Sequence[Any] = ()) -> bytes:
    """Leave out, double or rename fields of a document, or put other JSON, which need not be valid, in place of their values."""
    if not kinds:
        draw = replace(draw, most=min(draw.most, _MOST_OF_EDITS))
    root = [json.loads(body)]
    values: dict[str, bytes] = {}
    for number in range(edits):
        holder, key = draw.rng.choice(list(_places(root)))
        edit = draw.one(
            *kinds or (*_SMALL, *_LARGE, *(("leave out", "rename", "twice") if isinstance(holder, dict) else ()))
        )
        if edit == "leave out":
            del holder[key]
        elif edit == "rename":
            holder[draw.one("", "id", "type", "x" * 600, "\0", "$part", key + key)] = holder.pop(key)
        elif edit == "twice":
            holder[f"{key}@TWICE@"] = draw.one(None, {}, holder[key])
        else:
            new = edit(draw, holder[key])
            if draw.rng.random() < 0.1:  # JSON in a text, which some fields hold
                new = json.dumps(new.decode("utf-8", "replace")).encode()
            holder[key], values[f"@VALUE{number}@"] = f"@VALUE{number}@", new
    made = b"".join(json.dumps(value).encode() for value in root).replace(b"@TWICE@", b"")
    for mark, new in values.items():
        made = made.replace(b'"%b"' % mark.encode(), new)
    return made


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _odd(draw: Draw, value: Any) -> bytes:
    return draw.rng.choice(_VALUES)


def _of_other_seed(draw: Draw, value: Any) -> bytes:
    other = draw.one(*(seed for seed in draw.seeds if seed.media_type == JSON))
    holder, key = draw.one(*_places([json.loads(other.body)]))
    return json.dumps(holder[key]).encode()


def _repeated(draw: Draw, value: Any) -> bytes:
    items = json.dumps(value if isinstance(value, list) and value else [value]).encode()
    return b"[" + draw.some(items[1:-1] + b",") + items[1:]


def _flood(draw: Draw, value: Any) -> bytes:
    item = draw.one(*_ITEMS)
    if draw.rng.random() < 0.7:
        return b"[" + draw.some(item + b",") + item + b"]"
    names = range(len(draw.some(b"x" * (len(item) + 12))) // (len(item) + 12))
    return b"{" + b",".join(b'"%d":%b' % (name, item) for name in names) + b"}"


def _nested(draw: Draw, value: Any) -> bytes:
    before, after = draw.one((b"[", b"]"), (b'{"a":', b"}"), (b'[0,{"b":', b"}]"))
    opened = draw.some(before)
    return opened + json.dumps(value).encode() + after * (len(opened) // len(before))


def _long_text(draw: Draw, value: Any) -> bytes:
    text = "".join(draw.rng.choices(_TEXTS, k=draw.one(1, 1, 3)))
    return b'"' + draw.some(json.dumps(text, ensure_ascii=draw.one(True, False)).encode()[1:-1]) + b'"'


_SMALL, _LARGE = [_odd, _odd, _odd, _of_other_seed], [_repeated, _flood, _nested, _long_text]


# --- Lines, parts and messages ----------------------------------------------------------------------------------------


def _lines(draw: Draw) -> bytes:
    lines = draw.seed.body.strip().split(b"\n")
    place = draw.rng.randrange(len(lines))
    lines[place] = _edited(draw, lines[place])
    return b"\n".join(lines)


def _line_flood(draw: Draw) -> bytes:
    first, *_rest = draw.seed.body.split(b"\n")
    return draw.seed.body + b"\n" + draw.some(draw.one(b"", b" ", b"\r", b"{}", b"[]", b"0", first) + b"\n")


def _parts(draw: Draw) -> bytes:
    """Edit one part of a form, or leave it out, send it twice, or the parts in another order."""
    _nothing, *parts = draw.seed.body.removesuffix(_END).split(_MARK)
    place = draw.rng.randrange(len(parts))
    head, _blank, content = parts[place].partition(b"\r\n\r\n")
    if content.startswith((b"{", b"[")):
        content = _edited(draw, content) + b"\r\n"
    edited = draw.one(_changed(draw, head), head) + b"\r\n\r\n" + content
    parts[place : place + 1] = draw.one([edited], [edited], [edited], [], [parts[place]] * 2)
    if draw.rng.random() < 0.1:
        draw.rng.shuffle(parts)
    return b"".join(_MARK + part for part in parts) + draw.one(_END, _END, _END, b"")


def _part_flood(draw: Draw) -> bytes:
    head = b'Content-Disposition: form-data; name="a"\r\n'
    if draw.rng.random() < 0.5:  # in the head of the first part
        line = draw.one(b"a:\r\n", b":\r\n", b"\r", head, b"Content-Type: a;b;c\r\n", b'; x="y"')
        return draw.seed.body.replace(_MARK, _MARK + draw.some(line), 1)
    return (
        draw.some(draw.one(_MARK + head + b"\r\n\r\n", _MARK + b"\r\n\r\n", _MARK, b"\r\n" + _MARK[:-2]))
        + draw.seed.body
    )


def _message_flood(draw: Draw) -> bytes:
    """Append empty messages to a message that the request may hold, at any depth."""
    assert draw.seed.message is not None, "a seed of protobuf names its message"
    path: list[int] = []
    descriptor = draw.seed.message.DESCRIPTOR
    while len(path) < 12 and (below := [field for field in descriptor.fields if field.message_type is not None]):
        if path and draw.rng.random() < 0.1:
            break
        field = draw.one(*below)
        path.append(field.number)
        descriptor = field.message_type
    return draw.seed.body + enclosed(path[:-1], draw.some(bytes([path[-1] << 3 | 2, 0])))


def enclosed(path: Sequence[int], content: bytes) -> bytes:
    """Return the content in messages of protobuf, each in the field of the one around it."""
    for number in reversed(path):
        size, varint = len(content), b""
        while size > 127:
            size, varint = size >> 7, varint + bytes([size & 127 | 128])
        content = bytes([number << 3 | 2]) + varint + bytes([size]) + content
    return content


# --- Bytes and archives -----------------------------------------------------------------------------------------------


def _bytes(draw: Draw) -> bytes:
    body = draw.seed.body
    for _time in range(draw.one(1, 1, 2, 8)):
        body = _changed(draw, body)
    return _with_checksums(body)


def _changed(draw: Draw, body: bytes) -> bytes:
    """Flip, insert, delete, double or fill some bytes, cut the others off, or write another number in place of one."""
    at, size = draw.rng.randrange(len(body) + 1), draw.one(1, 1, 2, 4, 8, 64, 512)
    before, these, after = body[:at], body[at : at + size], body[at + size :]
    numbers = list(re.finditer(rb"\d+", body))
    if numbers and draw.rng.random() < 0.25:
        found = draw.one(*numbers)
        digits = len(found[0])
        new = draw.one(b"0" * digits, b"0", b"-1", b"7" * digits, b"9" * 30, b"", b"%d" % draw.rng.randrange(20))
        return body[: found.start()] + new + body[found.end() :]
    flipped = bytes(byte ^ 1 << draw.rng.randrange(8) for byte in these)
    inserted = draw.one(*_BYTES, draw.rng.randbytes(size)) + these
    new = draw.one(flipped, inserted, b"", these * 2, draw.one(b"\0", b"\xff", b"\x7f", b"\x80") * size)
    return before + new + draw.one(after, after, after, after, after, b"")


def _splice(draw: Draw) -> bytes:
    body, other = draw.seed.body, draw.one(*draw.seeds).body
    return body[: draw.rng.randrange(len(body) + 1)] + other[draw.rng.randrange(len(other) + 1) :]


def _bytes_flood(draw: Draw) -> bytes:
    """Repeat a block of the body, such as the headers of an archive."""
    body = draw.seed.body
    at = draw.rng.randrange(0, len(body), 512)
    return _with_checksums(body[:at] + draw.some(body[at : at + draw.one(1, 512, 1024, 5120)]) + body[at:])


def _with_checksums(body: bytes) -> bytes:
    """Correct the checksums of a tar archive, so that its headers are read."""
    if body[257:262] != b"ustar" or len(body) > 1_000_000:
        return body
    blocks = [body[at : at + 512] for at in range(0, len(body), 512)]
    for place, block in enumerate(blocks):
        if block[257:262] == b"ustar" and len(block) == 512:
            total = sum(block[:148]) + 8 * 32 + sum(block[156:])
            blocks[place] = block[:148] + b"%06o\0 " % total + block[156:]
    return b"".join(blocks)


def _packed(draw: Draw) -> bytes:
    """Pack a transcript, valid or not, in archives and streams, also in each other."""
    body = draw.one(draw.seed.body, _changed(draw, draw.seed.body), draw.some(b" ") + draw.seed.body)
    for _depth in range(draw.one(1, 1, 2, 3, 4, 6)):
        files = dict.fromkeys(draw.rng.sample(_NAMES, draw.one(1, 1, 2)), body)
        if draw.rng.random() < 0.5:
            body = draw.one(_zip, tar)(files)
        else:
            body = draw.one(_ENCODE["gzip"], bz2.compress, lzma.compress, zstd.compress)(body)
        if draw.rng.random() < 0.2:
            body = _with_checksums(_changed(draw, body))
    return body


def _zip(files: dict[str, bytes]) -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


# --- How it is sent ---------------------------------------------------------------------------------------------------


def sent(rng: random.Random, seed: Seed, request: Request) -> tuple[Request, str]:
    """Return the request as it is, or compressed, in chunks, or with headers that do not fit its body."""
    draw = Draw(rng, seed, (), LARGEST)
    how = rng.choices(
        ["as it is", "encoded", "in parts", "damaged", "bomb", "wrong encoding", "wrong type", "framing"],
        [60, 15, 4, 4, 1, 2, 6, 8],
    )[0]
    encoding, encode = draw.one(*_ENCODE.items())
    body, headers, framing = request.body, dict(request.headers), request.framing
    if how in ("encoded", "damaged"):
        body = encode(body)
    if how == "damaged":
        body = _changed(draw, body)
    if how == "in parts":
        at = rng.randrange(len(body) + 1)
        body = encode(body[:at]) + encode(body[at:]) + encode(b"") * draw.one(0, 1, 10_000)
    if how == "bomb":
        filling = draw.one(b" ", b"\0", b"[", b"{},", b"\n")
        body = encode(body + filling * (draw.one(1, 4) * LARGEST // len(filling)))
    if how in ("encoded", "damaged", "in parts", "bomb", "wrong encoding"):
        headers["Content-Encoding"] = encoding
    if how == "wrong type":
        headers["Content-Type"] = draw.one(*_TYPES)
    if how == "framing" and framing != "websocket":
        how = framing = draw.one(*_FRAMINGS)
    return replace(
        request, body=body, headers=headers, framing=framing
    ), f"{how} {encoding}" if encoding in headers.values() else how
