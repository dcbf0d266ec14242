"""Runs the WSGI application for requests that come over ASGI: where one process serves both it and the live part.

Bodies are read and answers are written piece by piece, as they come; each request has a thread.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from typing import Any, TypeVar

T = TypeVar("T")


def over_asgi(application: Callable[..., Iterable[bytes]], threads: int) -> Callable[[Any, Any, Any], Awaitable[None]]:
    """The same application, as ASGI."""
    workers = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="request")

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        loop = asyncio.get_running_loop()

        def wait_for(what: Awaitable[T]) -> T:
            async def awaited() -> T:
                return await what

            return asyncio.run_coroutine_threadsafe(awaited(), loop).result()

        await loop.run_in_executor(workers, _answer, application, scope, receive, send, wait_for)

    return serve


def _answer(application: Any, scope: Any, receive: Any, send: Any, wait_for: Callable[[Any], Any]) -> None:
    begun: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
        begun[:] = [
            {
                "type": "http.response.start",
                "status": int(status[:3]),
                "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            }
        ]

    environ = _environ(scope, io.BufferedReader(_Body(receive, wait_for), 65_536))
    pieces = application(environ, start_response)
    with closing(pieces) if hasattr(pieces, "close") else nullcontext(pieces):
        for piece in pieces:
            if piece:
                wait_for(_send(send, [*begun, {"type": "http.response.body", "body": piece, "more_body": True}]))
                begun.clear()
        wait_for(_send(send, [*begun, {"type": "http.response.body", "body": b"", "more_body": False}]))


async def _send(send: Any, messages: list[Any]) -> None:
    for message in messages:
        await send(message)


class _Body(io.RawIOBase):
    """The body of a request, for a thread that may wait for it."""

    def __init__(self, receive: Any, wait_for: Callable[[Any], Any]) -> None:
        self._receive, self._wait_for = receive, wait_for
        self._rest = b""
        self._has_more = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest and self._has_more:
            message = self._wait_for(self._receive())
            # Of one that went, or broke off, the body ends there; that it is short is noticed where it is read.
            self._rest = message.get("body", b"")
            self._has_more = message.get("more_body", False)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _environ(scope: Any, body: Any) -> dict[str, Any]:
    host, port = scope["server"] or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        # WSGI wants the bytes of the path, unquoted, as Latin-1.
        "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": (scope["client"] or ("",))[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": body,
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        if b"_" in name:
            continue  # it would look like one with hyphens, which a proxy in front may have set
        key = name.decode("latin-1").upper().replace("-", "_")
        key = key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"
        text = value.decode("latin-1")
        # A cookie may come in several lines.
        environ[key] = f"{environ[key]}{';' if key == 'HTTP_COOKIE' else ','}{text}" if key in environ else text
    return environ
