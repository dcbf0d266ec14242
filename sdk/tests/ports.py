"""Ports of this machine for servers of tests and benchmarks."""

from __future__ import annotations

import atexit
import socket


def free_port() -> int:
    """Return a port on which nobody else listens, and from which nobody connects, as long as this process runs.

    Servers may listen on it with SO_REUSEADDR, one after the other.
    """
    reservation = socket.socket()
    reservation.bind(("127.0.0.1", 0))
    # Set after the bind, so that the system chooses a port that nobody has.
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    atexit.register(reservation.close)
    port: int = reservation.getsockname()[1]
    return port
