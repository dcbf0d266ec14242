"""Read the forms of pages before a thread is taken for them.

Django reads a form before it knows who sent it, and a thread serves one request at a time: as many slow senders as there are
threads, none of whom needs a login, would stop the whole site. So the event loop reads forms, with a deadline. The API checks
the key before it reads a body and is passed on as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from .foreign_apis import is_api

MOST_BYTES = 1024 * 1024
"""The largest form in bytes: a message that staff type or paste."""
MOST_SECONDS = 30.0
"""The longest time for all of a form to arrive."""

AsgiApplication = Callable[[Any, Any, Any], Awaitable[None]]


def with_read_forms(application: AsgiApplication) -> AsgiApplication:
    """Return `application` for requests whose forms have been read whole.

    A form of more than MOST_BYTES or of unknown length is answered 413, and one that takes longer than MOST_SECONDS 408.
    A form that is cut off, for which `receive` raises ConnectionResetError, is dropped: half a text must not be saved.
    """

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD") or is_api(scope["path"]):
            return await application(scope, receive, send)
        size = _announced(dict(scope["headers"]))
        if size is None or size > MOST_BYTES:
            return await _refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            async with asyncio.timeout(MOST_SECONDS):
                form = await _read(receive)
        except TimeoutError:
            return await _refuse(send, HTTPStatus.REQUEST_TIMEOUT)
        except ConnectionResetError:
            return None

        async def receive_form() -> dict[str, Any]:
            return {"type": "http.request", "body": form, "more_body": False}

        return await application(scope, receive_form, send)

    return serve


def _announced(headers: dict[bytes, bytes]) -> int | None:
    """Return the length of the body in bytes; None for a body that does not announce it."""
    length = headers.get(b"content-length", b"")
    if length.isdigit():
        return int(length)
    return None if b"transfer-encoding" in headers else 0


async def _read(receive: Any) -> bytes:
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body += message.get("body", b"")
        has_more = message.get("more_body", False)
    return body


async def _refuse(send: Any, status: HTTPStatus) -> None:
    text = f"{status.phrase}.\n".encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
