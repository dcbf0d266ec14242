"""Server-sent events at /live/sse?session=...&after=...: one session, the same messages as over a WebSocket.

The id of an event is its number, so a browser that reconnects sends its position by itself (Last-Event-ID).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from access_app.errors import ApiError, InvalidInput

from .answers import answer
from .clients import Client, Live, headers_of
from .feeds import LiveMessage

RETRY_MS = 1_000
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    # Otherwise nginx buffers the stream.
    (b"x-accel-buffering", b"no"),
]


async def stream(live: Live, scope: Mapping[str, Any], query: Mapping[str, str], receive: Any, send: Any) -> None:
    """Serve one request until the client leaves or the session is deleted."""
    client = await live.enter(scope)
    try:
        try:
            viewer = client.viewer = await live.viewer_of(scope, query)
            after = _after(headers_of(scope), query)
            await live.subscribe(client, viewer, query.get("session"), after, field="session")
        except ApiError as error:
            return await answer(send, error, scope)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        leaving = asyncio.create_task(wait_for_the_end(client, receive))

        async def send_event(message: LiveMessage) -> bool:
            await send({"type": "http.response.body", "body": _event(message), "more_body": True})
            if message.kind == "session_deleted":
                client.end("over")
            return True

        try:
            await send({"type": "http.response.body", "body": b"retry: %d\n\n" % RETRY_MS, "more_body": True})
            await live.send_all(client, send_event)
        finally:
            leaving.cancel()
        if client.ending != "closed":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        live.leave(client)


async def wait_for_the_end(client: Client, receive: Any) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    client.end("closed")


def _after(headers: Mapping[str, str], query: Mapping[str, str]) -> int:
    """Return the start number. Last-Event-ID precedes `after`, because a browser reconnects to the same URL."""
    last = headers.get("last-event-id") or query.get("after") or "0"
    if not (last.isascii() and last.isdigit() and len(last) <= 19):
        raise InvalidInput(_("“after” must be the number of the last event received, or 0."), field="after")
    return int(last)


def _event(message: LiveMessage) -> bytes:
    number = "" if message.seq is None else f"id: {message.seq}\n"
    # Not "error", because browsers use that event name for connection errors.
    kind = "refused" if message.kind == "error" else message.kind
    return f"{number}event: {kind}\ndata: {message.json}\n\n".encode()
