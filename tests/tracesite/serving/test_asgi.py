"""Test requests whose clients leave, without gunicorn; whole servers are tested in test_serve.py."""

from __future__ import annotations

import asyncio
from typing import Any

from tracesite.serving.asgi import Site

# A file of more parts than wait for a client.
SCOPE = {
    "type": "http",
    "http_version": "1.1",
    "method": "GET",
    "path": "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
}


async def _stay() -> Any:
    await asyncio.Event().wait()


async def _answer_after_one_that_was_cancelled() -> list[Any]:
    site = Site(live=False, rest=True, threads=1)
    begun, goes_on, sent = asyncio.Event(), asyncio.Event(), []

    async def take_later(message: Any) -> None:
        begun.set()
        await goes_on.wait()

    async def take(message: Any) -> None:
        sent.append(message)

    request = asyncio.create_task(site(SCOPE, _stay, take_later))
    await begun.wait()
    request.cancel()  # as gunicorn does some seconds after the client has left
    await asyncio.sleep(0.1)
    goes_on.set()
    async with asyncio.timeout(120):
        await site(SCOPE, _stay, take)
    return sent


def test_thread_of_cancelled_request_serves_the_next_one() -> None:
    begin, *parts = asyncio.run(_answer_after_one_that_was_cancelled())
    assert begin["status"] == 200
    assert len(parts) > 12
