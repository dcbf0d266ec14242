"""Connections of gunicorn that are closed if their clients are too slow, for which gunicorn has no settings."""

from __future__ import annotations

import asyncio
from typing import Any

from gunicorn.asgi.protocol import ASGIProtocol

from access_app.conf import conf

_MEBIBYTE = 1024 * 1024


class Connection(ASGIProtocol):
    """A connection that is closed if its client keeps the server waiting for longer than conf.CLIENT_SECONDS.

    That is until the head of its first request has arrived; gunicorn closes idle connections, and with them those with later
    heads that are slow. And it is until the client has taken so much of an answer that more can be written, or a MiB of it: the
    thread that writes waits for it.
    """

    app: Any
    """The application; gunicorn reads it for each request."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.head_deadline = asyncio.get_running_loop().call_later(conf.CLIENT_SECONDS, transport.abort)
        self.taking_deadline: asyncio.TimerHandle | None = None
        self.application, self.app = self.app, self.serve
        super().connection_made(transport)

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        self.head_deadline.cancel()
        await self.application(scope, receive, send)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_taking()

    def resume_writing(self) -> None:
        if self.taking_deadline:
            self.taking_deadline.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.head_deadline.cancel()
        super().connection_lost(exc)
        self.resume_writing()  # gunicorn would go on to wait for the client, and its thread with it

    def _wait_for_taking(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self.taking_deadline = asyncio.get_running_loop().call_later(conf.CLIENT_SECONDS, self._check_taking, waiting)

    def _check_taking(self, waiting: int) -> None:
        if waiting - self.transport.get_write_buffer_size() < _MEBIBYTE:
            self.transport.abort()
        else:
            self._wait_for_taking()
