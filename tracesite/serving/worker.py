"""The worker of gunicorn that serves HTTP and WebSockets by uvicorn, and gives up clients that are too slow."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import h11
import uvicorn
from gunicorn.workers.base import Worker as BaseWorker
from uvicorn.protocols.http.h11_impl import H11Protocol

from access_app.conf import conf

if TYPE_CHECKING:
    from .asgi import Site

# Connections that wait to be accepted, also while all workers are restarted.
BACKLOG = 1024
# Idle connections are closed after so long. A proxy must close its own sooner, or a request may meet a closed connection.
KEEP_ALIVE_SECONDS = 10
# A stopped worker goes on for at most so long with responses that announce the end of their connections, so that no client
# sends its next request at the moment in which they are closed.
LINGER_SECONDS = 2
# Between the end of the grace in a worker, which logs it, and the parent's SIGKILL.
KILL_SECONDS = 4
# Of a head that has not arrived whole; `tracesite.serving.asgi` has lower limits, which it answers with a status of their own.
MOST_HEAD_BYTES = 1024 * 1024
ENDING_SIGNALS = {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}

_MEBIBYTE = 1024 * 1024


class Worker(BaseWorker):
    """A custom worker, as gunicorn's documentation has it: it serves in `run`, and calls `notify` as long as it is well."""

    wsgi: Site
    """The application, which gunicorn loads."""

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._handles_signals = False
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.wsgi,
                http=Connection,
                h11_max_incomplete_event_size=MOST_HEAD_BYTES,
                ws="websockets-sansio",
                ws_max_size=64 * 1024,
                ws_ping_interval=None,  # there are heartbeats (tracesite/live/clients.py)
                ws_per_message_deflate=False,
                interface="asgi3",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # which of them to believe is decided by conf.HTTPS, in Django
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, self.cfg.graceful_timeout - KILL_SECONDS - LINGER_SECONDS),
                callback_notify=self._notify_parent,
                timeout_notify=0,
            )
        )
        await self._server.serve(sockets=[listener.sock for listener in self.sockets])
        # At once: in another round of the loop, requests that were cut off would be answered 500, and Python would wait for
        # threads that wait for the rest of a body.
        os._exit(0)

    async def _notify_parent(self) -> None:
        """Report to the parent every second. If it was killed, end as by SIGTERM instead of serving those connected."""
        self.notify()
        if self.ppid != os.getppid():
            self._end()
        if not self._handles_signals:
            self._handle_signals()

    def _handle_signals(self) -> None:
        """Handle signals from here on, and those that waited since the fork. uvicorn's own handlers close connections without notice."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end)
        for number in (signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, os._exit, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
        self._handles_signals = True

    def _end(self) -> None:
        """Accept no more, and close each connection with its next response; those that are idle after LINGER_SECONDS."""
        if not self.wsgi.is_ending:
            self.wsgi.end()
            loop = asyncio.get_running_loop()
            for listener in self.sockets:
                loop.remove_reader(listener.sock)
            # uvicorn closes a connection that has just been accepted, though its request is there: it is read meanwhile.
            loop.call_later(0.2, self._exit_when_idle, loop.time() + LINGER_SECONDS)

    def _exit_when_idle(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        if self._server.server_state.connections and loop.time() < deadline:
            loop.call_later(0.05, self._exit_when_idle, deadline)
        else:
            self._server.should_exit = True


class Connection(H11Protocol):
    """A connection that is closed if its client keeps the server waiting, for which uvicorn has no settings.

    - The head of the first request must arrive within conf.CLIENT_SECONDS, later ones within KEEP_ALIVE_SECONDS of their first
      byte, and so must the rest of a body that is no longer wanted.
    - A client must take a MiB of an answer, or so much of it that more can be written, within conf.CLIENT_SECONDS: the thread that
      writes waits for it.
    """

    _arriving: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arriving = self.loop.call_later(conf.CLIENT_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # the rest of a body is broken: uvicorn sends 400, but the answer has begun
            self.transport.abort()
            return
        is_waiting = self.conn.our_state in (h11.IDLE, h11.DONE)  # and not for the application
        if self._arriving and not is_waiting:
            self._arriving.cancel()
            self._arriving = None
        elif is_waiting and not self._arriving:
            self._arriving = self.loop.call_later(KEEP_ALIVE_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_taking()

    def resume_writing(self) -> None:
        if self._taking:
            self._taking.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for deadline in (self._arriving, self._taking):
            if deadline:
                deadline.cancel()
        super().connection_lost(exc)

    def _wait_for_taking(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._taking = self.loop.call_later(conf.CLIENT_SECONDS, self._check_taking, waiting)

    def _check_taking(self, waiting: int) -> None:
        if waiting - self.transport.get_write_buffer_size() < _MEBIBYTE:
            self.transport.abort()
        else:
            self._wait_for_taking()
