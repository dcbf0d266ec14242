"""Receive the bodies of requests before a thread is taken for them, so that slow senders do not stop the others.

Django reads a body in a thread, and a thread serves one request at a time: as many slow senders as there are threads would
stop the whole site. So the event loop receives the first MOST_BYTES of a body, which is all of most, with a deadline.

- Forms of pages may not be larger. Django reads them before it knows who sent them.
- The rest of a larger body of the API is received while Django reads it, as is a body whose sender wants to be asked for it
  (`Expect`). The key is checked before. These requests take a limited number of threads, so that slow ones delay only each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from access_app.conf import conf

from .foreign_api import is_api

MOST_BYTES = 1024 * 1024
"""The largest form in bytes, and how much of any body is received before a thread is taken."""

LONGEST_PAUSE_SECONDS = 60

AsgiApplication = Callable[[Any, Any, Any], Awaitable[None]]
BodyApplication = Callable[[Any, "Body", Any], Awaitable[None]]
"""As an application of ASGI, with the body in place of `receive`."""


def with_arrived_bodies(application: BodyApplication, most_arriving: int) -> AsgiApplication:
    """Return `application` for requests whose bodies have arrived, and for at most `most_arriving` others at a time.

    A form of more than MOST_BYTES or of unknown length is answered 413, and one that takes longer than conf.CLIENT_SECONDS 408.
    A form that is cut off, for which `receive` raises ConnectionResetError, is dropped: half a text must not be saved.
    In the API such faults are for the application, which checks the key first: `receive` of its body raises TimeoutError for
    one that is too slow, and ConnectionResetError for one that is cut off.
    """
    arriving = asyncio.Semaphore(most_arriving)

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        headers, body = dict(scope["headers"]), Body(receive)
        if scope["method"] in ("GET", "HEAD"):
            return await application(scope, body, send)
        size = _announced(headers)
        if is_api(scope["path"]):
            if b"expect" not in headers and (size is None or size <= conf.MAX_BODY_BYTES):
                await body.receive_ahead()
            if body.has_arrived or body.fault:
                return await application(scope, body, send)
            async with arriving:
                return await application(scope, body, send)
        if size is None or size > MOST_BYTES:
            return await refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        await body.receive_ahead()
        if isinstance(body.fault, TimeoutError):
            return await refuse(send, HTTPStatus.REQUEST_TIMEOUT)
        if body.fault:
            return None
        return await application(scope, body, send)

    return serve


class Body:
    """The messages of a body, whose sender may keep the server waiting for conf.CLIENT_SECONDS in all for every MOST_BYTES, and never
    for longer than LONGEST_PAUSE_SECONDS."""

    def __init__(self, receive: Any) -> None:
        self.has_arrived = False
        self.fault: OSError | None = None
        """Why the rest will not arrive."""
        self.ahead: deque[dict[str, Any]] = deque()
        """The messages that have been received, but not read."""
        self._receive = receive
        self._bytes = 0
        self._waited = 0.0
        """Seconds, without those in which nobody wanted to receive."""

    async def receive_ahead(self) -> None:
        """Receive all of the body or at least MOST_BYTES, unless there is a fault."""
        try:
            while not self.has_arrived and self._bytes < MOST_BYTES:
                self.ahead.append(await self._next())
        except (TimeoutError, ConnectionResetError) as fault:
            self.fault = fault

    async def receive(self) -> dict[str, Any]:
        """Return the next message, as `receive` of ASGI. Raise TimeoutError for a sender that is too slow, and what the server
        raises."""
        if self.ahead:
            return self.ahead.popleft()
        if self.fault:
            raise self.fault
        return await self._next()

    async def _next(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        allowed = conf.CLIENT_SECONDS * (1 + self._bytes // MOST_BYTES)
        begin = loop.time()
        try:
            async with asyncio.timeout(min(allowed - self._waited, LONGEST_PAUSE_SECONDS)):
                message: dict[str, Any] = await self._receive()
        finally:
            self._waited += loop.time() - begin
        self._bytes += len(message.get("body", b""))
        self.has_arrived = not message.get("more_body", False)
        return message


def _announced(headers: dict[bytes, bytes]) -> int | None:
    """Return the length of the body in bytes; None for a body that does not announce it."""
    length = headers.get(b"content-length", b"")
    if length.isdigit():
        return int(length)
    return None if b"transfer-encoding" in headers else 0


async def refuse(send: Any, status: HTTPStatus) -> None:
    """Answer before a thread is taken, and close the connection."""
    text = f"{status.phrase}.\n".encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
