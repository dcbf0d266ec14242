"""A share of the threads for the forms of pages, which Django reads before it knows who sends them.

A thread serves one request at a time, and granian's WSGI has no deadline for a body: as many slow senders as there are
threads, none of whom needs a login, would stop the whole site. The API checks the key before it reads a body, so it needs
nothing of this. A deadline by reading in another thread was tried: granian 2.8.7 then stops the process, for it holds
Python's lock while it waits for the body.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from .foreign_apis import is_api

MOST_BYTES = 1024 * 1024
"""The largest form in bytes: a message that staff type or paste."""
MOST_READ = 4
"""Forms that a worker reads at a time: half of the threads that `serve` has by default."""

WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def with_bounded_forms(application: WsgiApplication, *, most_read: int = MOST_READ) -> WsgiApplication:
    """Return `application` for requests whose forms are read whole, at most `most_read` at a time.

    A form of more than MOST_BYTES or of unknown length is answered 413, and 503 where others are being read already: slow
    senders keep people from sending forms, and from nothing else. The rest of such a form is not read.
    """
    reading = threading.BoundedSemaphore(most_read)

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD") or is_api(environ["PATH_INFO"]):
            return application(environ, start_response)
        size = _announced(environ)
        if size is None or size > MOST_BYTES:
            return _refuse(start_response, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if size:
            if not reading.acquire(blocking=False):
                return _refuse(start_response, HTTPStatus.SERVICE_UNAVAILABLE)
            try:
                form = environ["wsgi.input"].read(size)
            finally:
                reading.release()
            environ = {**environ, "wsgi.input": io.BytesIO(form)}
        return application(environ, start_response)

    return serve


def _announced(environ: dict[str, Any]) -> int | None:
    """Return the length of the body in bytes; None for a body that does not announce it."""
    length = environ.get("CONTENT_LENGTH") or ""
    if length.isdecimal():
        return int(length)
    return None if "HTTP_TRANSFER_ENCODING" in environ else 0


def _refuse(start_response: Callable[..., Any], status: HTTPStatus) -> list[bytes]:
    text = f"{status.phrase}.\n".encode()
    headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(text))), ("Connection", "close")]
    start_response(f"{status.value} {status.phrase}", headers)
    return [text]
