"""Small bodies that once took minutes, gigabytes or all threads: each must be refused, or served within a second of CPU."""

from __future__ import annotations

import bz2
import gzip
import socket
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from benchmarks.workload import Workload
from traces_app.transcripts.spans.langfuse_ids import trace_id_of

from .mutations import enclosed
from .seeds import ANYTHING, BOUNDARY, JSON, MULTIPART, NANOSECONDS, PROTOBUF, TIME, announcement, snapshot
from .sending import Request, Sender

MOST_SECONDS, MOST_MEGABYTES, LONGEST_SECONDS = 1, 500, 10
_encoded = msgspec.json.encode


def send_all(sender: Sender, key: str) -> int:
    """Send each, and print what it got and took. Return 1 if one of them took too much."""
    faulty = 0
    print(f"{'body':66}{'bytes':>11}{'status':>8}{'seconds':>9}{'CPU s':>8}{'SQL s':>8}{'MB':>6}")
    for name, request in _known(sender, key):
        outcome = sender.send(request)
        faults = outcome.faults(request, seconds=MOST_SECONDS, megabytes=MOST_MEGABYTES)
        faults += ["slow"] if outcome.seconds > LONGEST_SECONDS else []
        faulty += bool(faults)
        took = f"{outcome.seconds:9.2f}{outcome.cpu:8.2f}{outcome.database_cpu:8.2f}{outcome.megabytes:6.0f}"
        verdict = f"  {', '.join(faults)}" if faults else ""
        print(f"{name:66}{len(request.body):11,}{outcome.status:8}{took}{verdict}", flush=True)
    print(f"{faulty} took too much" if faulty else "all refused, or served within a second")
    return 1 if faulty else 0


def _known(sender: Sender, key: str) -> Iterator[tuple[str, Request]]:
    def request(path: str, body: bytes, media_type: str = JSON, **more: Any) -> Request:
        headers = {"Content-Type": media_type, "X-API-Key": key, **more.pop("headers", {})}
        return Request(path=path, body=body, headers=headers, **more)

    def packed(path: str, body: bytes, media_type: str = JSON) -> Request:
        return request(path, gzip.compress(body, mtime=0), media_type, headers={"Content-Encoding": "gzip"})

    yield from _archives(request)
    for levels in (5, 7, 8):
        stored = request("/api/v1/snapshots/", snapshot(f"snapshot-{levels}", levels, 10))
        yield f"snapshot of {levels} levels of 10 references", stored
        yield "the same, read", request(f"/api/v1/snapshots/snapshot-{levels}/", b"", method="GET")
    yield from _messages(packed)
    head = b'--%b\r\nContent-Disposition: form-data; name="post.a"\r\n' % BOUNDARY.encode()
    body = head + b"a:\r\n" * 14_000_000 + b"\r\n{}\r\n--%b--\r\n" % BOUNDARY.encode()
    for path in ("/runs/multipart", "/api/v1/import/"):
        yield f"14,000,000 header lines to {path}", packed(path, body, f"{MULTIPART}; boundary={BOUNDARY}")
    part = b'--%b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' % BOUNDARY.encode()
    for path in ("/runs/multipart", "/api/v1/import/"):
        body = part * 1_200_000 + b"--%b--\r\n" % BOUNDARY.encode()
        yield f"1,200,000 parts to {path}", packed(path, body, f"{MULTIPART}; boundary={BOUNDARY}")
    token = Request(
        path="/v3/auth/token", body=b'{"api_key":"%b"}' % (b"a" * 60_000_000), headers={"Content-Type": JSON}
    )
    yield "60 MB without a key to /v3/auth/token", token
    encoded = replace(token, body=gzip.compress(token.body), headers={**token.headers, "Content-Encoding": "gzip"})
    yield "the same as gzip", encoded
    with ExitStack() as senders:
        _send_slowly(senders, sender.port)
        batch = Workload(name="beside", begin=datetime(2026, 1, 1, tzinfo=UTC)).batch(range(65))
        yield "an ingest of 1.5 MB beside 12 slow senders without a key", request("/api/v1/ingest/", batch)
    yield from _media(sender, request, key)
    score = {"traceId": "t1", "name": "q", "value": 1, "dataType": {}}
    yield "a score whose dataType is an object", request("/api/public/scores", _encoded(score))
    event = {"id": "1", "type": "score-create", "timestamp": TIME, "body": score}
    yield "the same in a batch", request("/api/public/ingestion", _encoded({"batch": [event]}))
    for first in (0, 4000):
        calls = [{"id": f"c{number}", "name": "look", "result": {"success": False, "error": f"{number} {'a.b-c+' * 170}"}}
                 for number in range(first, first + 4000)]  # fmt: skip
        message = {"role": "assistant", "agent_steps": [{"iteration": 0, "tool_calls": calls}]}
        sender.ask("POST", "/api/v1/sessions/", {"external_id": f"errors-{first}", "messages": [message]}, key)
    yield "the list of 8,000 errors of 1 KB", request("/api/v1/errors/", b"", method="GET")
    for path in ("/api/v1/import/", "/api/v1/ingest/", "/v1/traces"):
        yield f"60 MB of [] to {path}", request(path, b"[" + b"[]," * 20_000_000 + b"[]]")
        yield f"9 MB of {{}} to {path}", request(path, b"[" + b"{}," * 3_000_000 + b"{}]")


def _archives(request: Any) -> Iterator[tuple[str, Request]]:
    def of(name: str, content: bytes, type_: bytes = b"x") -> tuple[str, Request]:
        member = tarfile.TarInfo("a")
        member.type, member.size = type_, len(content)
        body = member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)
        return name, request("/api/v1/import/", bz2.compress(body + bytes(1024)), ANYTHING)

    for record in (b"0 a=b\n", b"1 a=b\n", b"3 a=b\n", b"00 a=b\n", b"-6 a=b\n", "\u0663 a=b\n".encode()):
        yield of(f"tar with the extended header {record.decode()!r}", record)
    for type_ in (b"x", b"L", b"Z"):
        yield of(f"tar with a header of 400 MB, type {type_.decode()}", bytes(400_000_000), type_)


def _messages(packed: Any) -> Iterator[tuple[str, Request]]:
    """Empty messages of protobuf, and items of JSON as small, at each depth of a request."""
    paths = {"resources": [1], "scopes": [1, 2], "spans": [1, 2, 2], "attributes": [1, 2, 2, 9]}
    paths |= {"events": [1, 2, 2, 11], "links": [1, 2, 2, 13], "values of a list": [1, 2, 2, 9, 2, 5, 1]}
    for name, path in paths.items():
        body = enclosed(path[:-1], bytes([path[-1] << 3 | 2, 0]) * 3_000_000)
        yield f"3,000,000 empty {name} in protobuf", packed("/v1/traces", body, PROTOBUF)
    for signal in ("logs", "metrics"):
        body = enclosed([1, 2], bytes([2 << 3 | 2, 0]) * 3_000_000)
        yield f"3,000,000 empty records of {signal} in protobuf", packed(f"/v1/{signal}", body, PROTOBUF)


def _send_slowly(senders: ExitStack, port: int) -> None:
    """Open 12 connections without a key that announce 60 MB and stop after the first MiB, when threads read on."""
    for _sender in range(12):
        connection = senders.enter_context(socket.create_connection(("127.0.0.1", port)))
        head = f"POST /v3/auth/token HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nContent-Length: 60000000\r\n\r\n"
        connection.settimeout(5)
        try:
            connection.sendall(head.encode() + b" " * 1_200_000)
        except OSError:
            continue  # it was refused
    time.sleep(1)


def _media(sender: Sender, request: Any, key: str) -> Iterator[tuple[str, Request]]:
    for name, content in (("30 MB", bytes(30_000_000)), ("30 MB of gzip", bytes(30_000_001))):
        asked = sender.ask("POST", "/api/public/media", announcement(content, 10), key)
        path = urlsplit(asked["uploadUrl"]).path
        packed = {"headers": {"Content-Encoding": "gzip"}} if "gzip" in name else {}
        body = gzip.compress(content, mtime=0) if packed else content
        yield f"{name} as media of 10 bytes", request(path, body, "image/png", method="PUT", **packed)
    picture = bytes(range(256)) * 4096
    asked = sender.ask("POST", "/api/public/media", announcement(picture), key)
    yield "media of 1 MB", request(urlsplit(asked["uploadUrl"]).path, picture, "image/png", method="PUT")
    for references in (20, 200, 2000):
        text = f"@@@langfuseMedia:type=image/png|id={asked['mediaId']}|source=bytes@@@" * references
        span = {"name": "a", "attributes": [{"key": "langfuse.observation.input", "value": {"stringValue": text}}]}
        span |= {"traceId": trace_id_of("lf"), "spanId": f"{references:016x}", "startTimeUnixNano": str(NANOSECONDS)}
        yield f"{references} references to it in a span", request("/v1/traces", _of_spans([span]))
    spans = [{"traceId": "b" * 32, "spanId": f"{number:016x}", "name": "a"} for number in range(1, 10_002)]
    sender.ask("POST", "/v1/traces", msgspec.json.decode(_of_spans(spans[1:])), key)
    yield "one more span of a trace of 10,000", request("/v1/traces", _of_spans(spans[:1]))


def _of_spans(spans: list[dict[str, Any]]) -> bytes:
    return _encoded({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
