"""The bridge between the event loop and Django, which is a WSGI application in threads.

A request takes a thread when its body has arrived and gives it back with its answer: one hand-off each way. Only what is larger takes
more: each part of a streamed answer, and the rest of a body that arrives while it is read. See PEP 3333 for WSGI, and for ASGI
https://asgi.readthedocs.io/en/stable/specs/www.html.
"""

from __future__ import annotations

import asyncio
import contextvars
import io
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from tracesite.http.arriving_bodies import Body

from .cpu_limit import WsgiApplication


class Bridge:
    """The BodyApplication of a WSGI application, in `threads`."""

    def __init__(self, application: WsgiApplication, threads: int) -> None:
        self._application = application
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="django")

    async def __call__(self, scope: Any, body: Body, send: Any) -> None:
        loop = asyncio.get_running_loop()
        environ = _environ(scope, _Input(body, loop))
        start: list[dict[str, Any]] = []

        async def send_part(part: bytes, *, more: bool) -> None:
            while start:
                await send(start.pop())
            await send({"type": "http.response.body", "body": part, "more_body": more})

        def start_response(status: str, headers: list[tuple[str, str]], _exc_info: Any = None) -> None:
            # Django's cookies begin with a space, which h11 refuses.
            raw = [(name.lower().encode("latin-1"), value.strip(" ").encode("latin-1")) for name, value in headers]
            start[:] = [{"type": "http.response.start", "status": int(status[:3]), "headers": raw}]

        def respond() -> bytes:
            """Run the application, send all parts but the last, and return that."""
            waiting = b""
            with closing(self._application(environ, start_response)) as parts:
                for part in parts:
                    if waiting:
                        asyncio.run_coroutine_threadsafe(send_part(waiting, more=True), loop).result()
                    waiting = part
            return waiting

        context = contextvars.copy_context()
        await send_part(await loop.run_in_executor(self._threads, context.run, respond), more=False)


class _Input(io.RawIOBase):
    """The body of a request for a thread, which waits for what has not arrived."""

    def __init__(self, body: Body, loop: asyncio.AbstractEventLoop) -> None:
        self._body, self._loop = body, loop
        self._part = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        ahead = self._body.ahead
        while not self._part and (ahead or not self._body.has_arrived):
            message = ahead.popleft() if ahead else self._wait()
            self._part = memoryview(message.get("body", b""))
        count = min(len(buffer), len(self._part))
        buffer[:count], self._part = self._part[:count], self._part[count:]
        return count

    def _wait(self) -> dict[str, Any]:
        return asyncio.run_coroutine_threadsafe(self._body.receive(), self._loop).result()


def _environ(scope: Any, body: _Input) -> dict[str, Any]:
    """Return the variables of WSGI. Texts are bytes as latin-1; a header that is sent several times is joined by commas."""
    (host, port), (address, client_port) = scope.get("server") or ("localhost", 80), scope.get("client") or ("", 0)
    environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": scope.get("root_path", "").encode().decode("latin-1"),
        "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or 0),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": address,
        "REMOTE_PORT": str(client_port),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BufferedReader(body, 64 * 1024),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        # Django could not tell a header with an underscore from one with a hyphen, which a proxy may set. None sets Phoenix's.
        if "_" in name and name != "api_key":
            continue
        prefix = "" if name in ("content-type", "content-length") else "HTTP_"
        key = prefix + name.upper().replace("-", "_")
        value = raw_value.decode("latin-1")
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ
