"""The ASGI application of a worker: the live part, and Django in threads for everything else."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from tracesite.http.arriving_bodies import AsgiApplication, refuse, with_arrived_bodies
from tracesite.live.application import application
from tracesite.live.clients import Live
from tracesite.wsgi import application as wsgi_application

from .bridge import Bridge
from .cpu_limit import CpuLimit

LONGEST_LINE = 8190
"""In bytes: a path with its query, or a header."""
MOST_HEADERS = 100
TOOL_THREADS = 2
"""Of a process that serves only the live part, for the answers to coding agents."""


class Site:
    """Serve the live part, the rest or both. Each request of the rest takes one of `threads`."""

    def __init__(self, *, live: bool, rest: bool, threads: int) -> None:
        self._cpu_limit = CpuLimit()
        # The tools of /mcp ask Django in the process that serves the live part.
        over_wsgi = _over_wsgi(threads if rest else TOOL_THREADS, self._cpu_limit)
        self._cpu_limit.start()
        self._live = Live() if live else None
        elsewhere = over_wsgi if rest else None
        self._serve: Any = application(self._live, elsewhere, over_wsgi) if self._live else over_wsgi
        self.is_ending = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_on(message: Any) -> None:
            if self.is_ending and message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        if scope["type"] == "http" and (excess := _excess(scope)):
            return await refuse(send_on, excess)
        await self._serve(scope, receive, send_on)

    def end(self) -> None:
        """Close connections with their next response, and ask live clients to reconnect, because this process ends."""
        self.is_ending = True
        self._cpu_limit.end()
        if self._live:
            self._live.restart()


def _excess(scope: Any) -> HTTPStatus | None:
    """Return the status for a head that is too long."""
    if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_LINE:
        return HTTPStatus.REQUEST_URI_TOO_LONG
    headers = scope["headers"]
    if len(headers) > MOST_HEADERS or any(len(name) + len(value) > LONGEST_LINE for name, value in headers):
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return None


def _over_wsgi(threads: int, cpu_limit: CpuLimit) -> AsgiApplication:
    """Return Django in `threads`, of which bodies that still arrive take at most half. The CPU time of requests is limited.

    Reading a body that is cut off raises ConnectionResetError.

    ASGI announces that a client left by `http.disconnect`. The body must not end there, because what has arrived of it may be valid
    and would be stored.
    """
    django = with_arrived_bodies(Bridge(cpu_limit.measured(wsgi_application), threads), max(1, threads // 2))

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return

        async def receive_part() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError("The client left before the end of the body.")
            return message

        await django(scope, receive_part, send)

    return serve
