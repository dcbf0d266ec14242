"""The ASGI application of a worker: the live part, and Django in threads for everything else."""

from __future__ import annotations

import asyncio
from typing import Any

from tracesite.http.arriving_bodies import AsgiApplication, with_arrived_bodies
from tracesite.live.application import application
from tracesite.live.clients import Live
from tracesite.wsgi import application as wsgi_application

from .bridge import Bridge
from .cpu_limit import CpuLimit


class Site:
    """Serve the live part, the rest or both. Each request of the rest takes one of `threads`."""

    def __init__(self, *, live: bool, rest: bool, threads: int) -> None:
        self._cpu_limit = CpuLimit()
        over_wsgi = _over_wsgi(threads, self._cpu_limit) if rest else None
        if rest:
            self._cpu_limit.start()
        self._live = Live() if live else None
        self._serve: Any = application(self._live, over_wsgi) if self._live else over_wsgi
        self.is_ending = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_on(message: Any) -> None:
            if self.is_ending and message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        await self._serve(scope, receive, send_on)

    def end(self) -> None:
        """Close connections with their next response, and ask live clients to reconnect, because this process ends."""
        self.is_ending = True
        self._cpu_limit.end()
        if self._live:
            self._live.restart()


def _over_wsgi(threads: int, cpu_limit: CpuLimit) -> AsgiApplication:
    """Return Django in `threads`, of which bodies that still arrive take at most half. The CPU time of requests is limited.

    Reading a body that is cut off raises ConnectionResetError.

    ASGI announces that a client left, or paused for too long, by `http.disconnect`. The body must not end there, because what has
    arrived of it may be valid and would be stored.

    gunicorn cancels what serves a connection some seconds after its client has left. A thread cannot be cancelled, and would wait
    for ever to hand over the rest of its answer, so its request goes on.
    """
    django = with_arrived_bodies(Bridge(cpu_limit.measured(wsgi_application), threads), max(1, threads // 2))
    running: set[asyncio.Future[None]] = set()  # or a request whose client has left could be collected as garbage

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return

        async def receive_part() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError("The client left before the end of the body.")
            return message

        request = asyncio.ensure_future(django(scope, receive_part, send))
        running.add(request)
        request.add_done_callback(running.discard)
        await asyncio.shield(request)

    return serve
