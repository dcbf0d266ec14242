"""The ASGI application of a worker: the live part, and Django over a2wsgi for everything else."""

from __future__ import annotations

from typing import Any

from a2wsgi import WSGIMiddleware

from tracesite.http.form_bodies import with_read_forms
from tracesite.live.application import application
from tracesite.live.clients import Live
from tracesite.wsgi import application as wsgi_application


class Site:
    """Serve the live part, the rest or both. Each request of the rest takes one of `threads`."""

    def __init__(self, *, live: bool, rest: bool, threads: int) -> None:
        over_wsgi: Any = with_read_forms(WSGIMiddleware(wsgi_application, workers=threads)) if rest else None  # type: ignore[arg-type]
        self._live = Live() if live else None
        self._serve = application(self._live, over_wsgi) if self._live else over_wsgi
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
        if self._live:
            self._live.restart()
