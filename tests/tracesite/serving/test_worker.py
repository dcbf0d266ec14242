"""Test connections whose clients are slow, in this process; whole servers are tested in test_serve.py and test_bad_requests.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest
import uvicorn

from tracesite.serving import worker

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(int(scope["query_string"] or 0))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def _received(begin: bytes, rest: Iterator[bytes]) -> bytes:
    """Return what a client receives that sends a beginning and then parts of the rest, until the server closes the connection."""
    config = uvicorn.Config(
        _answer, http=worker.Connection, timeout_keep_alive=2, lifespan="off", log_config=None, port=0
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
    receiving = asyncio.create_task(reader.read())
    writer.write(begin)
    async with asyncio.timeout(120):
        while not receiving.done():
            writer.write(next(rest))
            await asyncio.wait([receiving], timeout=0.1)
        content = await receiving
    writer.close()
    server.should_exit = True
    await serving
    return content


def test_first_head_that_is_slow_ends_the_connection(settings: Any) -> None:
    settings.TRACESITE_CLIENT_SECONDS = 1
    assert asyncio.run(_received(b"GET /", repeat(b"a"))) == b""


@pytest.mark.parametrize(("begin", "rest"), [(GET + b"GET /", b"a"), (POST, b" ")], ids=["head", "unwanted body"])
def test_slow_bytes_after_an_answer_end_the_connection(
    begin: bytes, rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "KEEP_ALIVE_SECONDS", 1)
    assert asyncio.run(_received(begin, repeat(rest))).count(b"HTTP/1.1 200 OK") == 1


def test_slow_answer_does_not_end_the_connection(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.TRACESITE_CLIENT_SECONDS = 1
    monkeypatch.setattr(worker, "KEEP_ALIVE_SECONDS", 1)
    late = GET.replace(b"/ ", b"/?2 ", 1)
    assert asyncio.run(_received(late + late, repeat(b""))).count(b"HTTP/1.1 200 OK") == 2


def test_broken_body_after_an_answer_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    chunked = POST.replace(b"Content-Length: 1000", b"Transfer-Encoding: chunked")
    assert asyncio.run(_received(chunked, chain([b"5\r\naaaaa\r\n"], repeat(b"zz\r\n")))).startswith(b"HTTP/1.1 200 OK")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
