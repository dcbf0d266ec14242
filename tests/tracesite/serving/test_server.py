"""The end of a worker; tests of whole servers are in test_serve.py and tests/faults/test_restart.py."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace

from tracesite.serving.server import Worker


class _Answer(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"served")
        transport.close()


async def _end_with_a_connection_just_accepted(listener: socket.socket) -> socket.socket:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Answer, sock=listener)
    worker = Worker.__new__(Worker)  # without gunicorn's arbiter
    worker.loop, worker.servers, worker.nr_conns = loop, [server], 1
    worker.asgi = SimpleNamespace(is_ending=False, end=lambda: None)
    client = socket.create_connection(listener.getsockname())
    client.send(b"request")
    # In the next round the loop accepts the connection; in the one after it, the worker ends before it is served.
    loop.call_soon(loop.call_soon, worker.handle_exit_signal)
    await asyncio.sleep(0.1)
    assert not server.is_serving()
    return client


def test_connection_accepted_before_the_end_is_served() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with asyncio.run(_end_with_a_connection_just_accepted(listener)) as client:
        client.settimeout(60)
        assert client.recv(100) == b"served"
