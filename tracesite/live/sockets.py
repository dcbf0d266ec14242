"""WebSocket at /live/ws: `{"type": "subscribe", "sessionId": ..., "after"?, "apiKey"?}`, as often as there are sessions.

Anything else that a client sends is ignored, and so are fields that are not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from access_app.errors import ApiError, NotAuthenticated

from .clients import Client, Live, error_message
from .feeds import Message

LARGEST_MESSAGE = 16_384
KEY_SECONDS = 5.0
"""How long a WebSocket without a key may wait for its turn to be accepted, and then for a subscription with a key."""
LONGEST_QUEUE = 100
"""Handshakes that wait for their turn; nothing is read from them meanwhile."""
MOST_WORDS = 100
"""Errors that wait to be sent to a client who only asks and does not read."""
NORMAL, POLICY, TOO_BIG, RESTART, AGAIN = 1000, 1008, 1009, 1012, 1013
_CODES = {"gone": AGAIN, "refused": POLICY, "restart": RESTART, "too big": TOO_BIG}


async def talk(live: Live, scope: Mapping[str, Any], query: Mapping[str, str], receive: Any, send: Any) -> None:
    """One connection, from beginning to end."""
    await receive()
    client = await live.enter()
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

    async def send_text(message: Message) -> bool:
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
    """Take one of the slots of connections without a key; False where too many wait, or none became free in time."""
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
    """Wait until the client has subscribed with a key; where it has not in time, end it and wait for the end."""
    try:
        async with asyncio.timeout(KEY_SECONDS):
            await client.has_subscribed.wait()
    except TimeoutError:
        message = _("Subscribe with an API key within %(seconds)d s.") % {"seconds": KEY_SECONDS}
        _refuse(client, None, NotAuthenticated(message))
        await asyncio.Event().wait()  # it takes a slot until its connection is closed, and this is cancelled


async def _listen(live: Live, client: Client, receive: Any) -> None:
    while not client.ending:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            client.end("closed")
            return
        said = message.get("text") or message.get("bytes") or ""
        if len(said) > LARGEST_MESSAGE or len(client.words) > MOST_WORDS:
            client.end("too big")
            return
        try:
            fields = msgspec.json.decode(said)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(fields, dict) and fields.get("type") == "subscribe":
            await _subscribe(live, client, fields)


async def _subscribe(live: Live, client: Client, fields: dict[str, Any]) -> None:
    name, key = fields.get("sessionId"), fields.get("apiKey")
    try:
        viewer = await live.viewer_of_key(key) if isinstance(key, str) else client.viewer
        await live.subscribe(client, viewer, name, fields.get("after", 0))
        client.has_subscribed.set()
    except NotAuthenticated as error:
        _refuse(client, name, error)
    except ApiError as error:
        client.words.append(error_message(name if isinstance(name, str) else None, error))
        client.wake.set()


def _refuse(client: Client, name: Any, error: ApiError) -> None:
    client.words.append(error_message(name if isinstance(name, str) else None, error))
    client.end("refused")
