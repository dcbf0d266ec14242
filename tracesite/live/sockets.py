"""WebSocket at /live/ws: a client sends `{"type": "subscribe", "sessionId": ..., "after"?, "apiKey"?}` once per session, and
`{"type": "unsubscribe", "sessionId": ...}` to let go of it.

Other messages and unknown fields are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from access_app.errors import ApiError, NotAuthenticated

from .clients import Client, Live, error_message
from .feeds import LiveMessage

LARGEST_MESSAGE = 16_384
KEY_SECONDS = 5.0
"""Timeout of a WebSocket without a key, for being accepted and then for subscribing with a key."""
LONGEST_QUEUE = 100
"""Most handshakes without a key that wait to be accepted; they are not read meanwhile."""
MAX_URGENT = 100
"""Most unsent errors of a client that sends but does not read."""
NORMAL, POLICY, TOO_BIG, RESTART, AGAIN = 1000, 1008, 1009, 1012, 1013
_CODES = {"gone": AGAIN, "refused": POLICY, "restart": RESTART, "too big": TOO_BIG}


async def serve_socket(live: Live, scope: Mapping[str, Any], query: Mapping[str, str], receive: Any, send: Any) -> None:
    """Serve one connection from its handshake to its end."""
    await receive()
    client = await live.enter(scope)
    try:
        try:
            client.viewer = await live.viewer_of(scope, query)
        except ApiError as error:
            _refuse(client, None, error)
        if client.viewer is not None or client.ending:
            await _converse(live, client, receive, send)
        elif await _has_turn(live):
            slot = asyncio.create_task(_expect_key(client))
            slot.add_done_callback(lambda _slot: live.without_key.release())
            try:
                await _converse(live, client, receive, send)
            finally:
                slot.cancel()
        else:
            await send({"type": "websocket.close", "code": POLICY})  # before it is accepted: the handshake is refused
    finally:
        live.leave(client)


async def _converse(live: Live, client: Client, receive: Any, send: Any) -> None:
    await send({"type": "websocket.accept"})
    listening = asyncio.create_task(_listen(live, client, receive))

    async def send_text(message: LiveMessage) -> bool:
        await send({"type": "websocket.send", "text": message.json})
        return True

    try:
        await live.send_all(client, send_text)
    finally:
        listening.cancel()
    if client.ending != "closed":
        live.leave(client)  # the server waits some seconds for the peer to confirm the end
        await send({"type": "websocket.close", "code": _CODES[client.ending]})


async def _has_turn(live: Live) -> bool:
    """Take a slot for a connection without a key; False if too many wait or none becomes free in time."""
    if live.queue_without_key >= LONGEST_QUEUE:
        return False
    live.queue_without_key += 1
    try:
        async with asyncio.timeout(KEY_SECONDS):
            await live.without_key.acquire()
    except TimeoutError:
        return False
    finally:
        live.queue_without_key -= 1
    return True


async def _expect_key(client: Client) -> None:
    """Wait for a subscription with a key; after the timeout end the connection and keep its slot until it is closed."""
    try:
        async with asyncio.timeout(KEY_SECONDS):
            await client.has_subscribed.wait()
    except TimeoutError:
        message = _("Subscribe with an API key within %(seconds)d seconds.") % {"seconds": KEY_SECONDS}
        _refuse(client, None, NotAuthenticated(message))
        await asyncio.Event().wait()  # cancelled when the connection is closed


async def _listen(live: Live, client: Client, receive: Any) -> None:
    while not client.ending:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            client.end("closed")
            return
        content = message.get("text") or message.get("bytes") or ""
        if len(content) > LARGEST_MESSAGE or len(client.urgent) > MAX_URGENT:
            client.end("too big")
            return
        try:
            fields = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        match fields:
            case {"type": "subscribe"}:
                await _subscribe(live, client, fields)
            case {"type": "unsubscribe", "sessionId": str(name)}:
                live.unsubscribe(client, name)


async def _subscribe(live: Live, client: Client, fields: dict[str, Any]) -> None:
    name, key = fields.get("sessionId"), fields.get("apiKey")
    try:
        viewer = await live.viewer_of_key(key, client.address) if isinstance(key, str) else client.viewer
        await live.subscribe(client, viewer, name, fields.get("after", 0), field="sessionId")
        client.has_subscribed.set()
    except NotAuthenticated as error:
        _refuse(client, name, error)
    except ApiError as error:
        client.urgent.append(error_message(name if isinstance(name, str) else None, error))
        client.wake.set()


def _refuse(client: Client, name: Any, error: ApiError) -> None:
    client.urgent.append(error_message(name if isinstance(name, str) else None, error))
    client.end("refused")
