"""Clients that receive every event of a session and resume after each disconnect."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

from benchmarks.faults.site import Site

from .viewer import Closed, EventStream, Refused, WebSocket

PATIENCE_SECONDS = 120
_AGAIN_SECONDS = 0.02


class Loyal(threading.Thread):
    """Viewer of a session until its last event."""

    def __init__(self, site: Site, session: str, last: int, *, streams: bool) -> None:
        super().__init__(daemon=True)
        self.site, self.session, self.last, self.streams = site, session, last, streams
        self.seen: list[int] = []
        self.connections = 0
        self.viewer: WebSocket | EventStream | None = None

    def run(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.seen_to < self.last and time.monotonic() < deadline:
            try:
                self._look()
            except (Closed, Refused, OSError):
                time.sleep(_AGAIN_SECONDS)
            finally:
                if self.viewer is not None:
                    self.viewer.close()

    @property
    def seen_to(self) -> int:
        return self.seen[-1] if self.seen else 0

    @property
    def has_all(self) -> bool:
        """Return whether it received each number once and in order."""
        return self.seen == list(range(1, self.last + 1))

    def cut_off(self) -> None:
        """Reset the connection in the middle of a stream, as a network failure does."""
        if self.viewer is not None:
            with contextlib.suppress(OSError):  # already closed
                self.viewer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.viewer.socket.shutdown(socket.SHUT_RD)
                self.viewer.close()

    def _look(self) -> None:
        headers = {"X-API-Key": self.site.key}
        port = self.site.server.port
        if self.streams:
            self.viewer = EventStream(port, self.session, headers, timeout=5, after=self.seen_to)
        else:
            self.viewer = WebSocket(port, headers, timeout=5)
            self.viewer.subscribe(self.session, after=self.seen_to)
        self.connections += 1
        while self.seen_to < self.last:
            message = self.viewer.hear()
            if message["type"] == "monitor_event":
                self.seen.append(message["event"]["seq"])
