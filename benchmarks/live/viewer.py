"""Minimal client of /live/ over a WebSocket or server-sent events.

It keeps received messages, and reconnects from its latest number.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode

PATIENCE_SECONDS = 60

CONTINUATION, TEXT, CLOSE, PING, PONG = 0, 1, 8, 9, 10


class Closed(Exception):
    """Connection closed by the server, with the code of its close frame if any."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(str(code))
        self.code = code


class Refused(Exception):
    """Response that is not a stream."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status} {body[:300]!r}")
        self.status, self.body = status, body


class WebSocket:
    """Connection to /live/ws."""

    def __init__(
        self,
        port: int,
        headers: dict[str, str] | None = None,
        query: str = "",
        timeout: float = PATIENCE_SECONDS,
        path: str = "/live/ws",
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        given = {"Host": f"127.0.0.1:{port}", **(headers or {})}
        lines = [
            f"GET {path}{query} HTTP/1.1",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
        ]
        lines += [f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}"]
        lines += [f"{name}: {value}" for name, value in given.items()]
        status, self._received = _answer(self.socket, "\r\n".join([*lines, "", ""]).encode())
        if status != 101:
            self.close()
            raise Refused(status, self._received)

    def say(self, message: dict[str, Any] | str | bytes) -> None:
        """Send a message as JSON, or a str or bytes unchanged."""
        data = message if isinstance(message, bytes) else message if isinstance(message, str) else json.dumps(message)
        self._send(TEXT, data.encode() if isinstance(data, str) else data)

    def subscribe(self, session: str, after: int | None = None, **fields: Any) -> None:
        number = {} if after is None else {"after": after}
        self.say({"type": "subscribe", "sessionId": session, **number, **fields})

    def hear(self) -> dict[str, Any]:
        """Return the next message. Raise Closed or TimeoutError."""
        while True:
            for message in self.messages():
                return message
            self.receive()

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the completely received messages. Raise Closed."""
        while (frame := self._frame()) is not None:
            kind, data = frame
            if kind == TEXT:
                yield json.loads(data)
            elif kind == PING:
                self._send(PONG, data)
            elif kind == CLOSE:
                raise Closed(struct.unpack(">H", data[:2])[0] if data else 0)

    def receive(self) -> None:
        """Wait for data. Raise Closed."""
        self._received += _some_of(self.socket)

    def close(self) -> None:
        self.socket.close()

    def _frame(self) -> tuple[int, bytes] | None:
        data = self._received
        if len(data) < 2:
            return None
        kind, length, start = data[0] & 15, data[1] & 127, 2
        if length >= 126:
            start = 4 if length == 126 else 10
            if len(data) < start:
                return None
            length = int.from_bytes(data[2:start], "big")
        if len(data) < start + length:
            return None
        self._received = data[start + length :]
        return kind, data[start : start + length]

    def _send(self, kind: int, data: bytes) -> None:
        length = bytes([128 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        self.socket.sendall(bytes([128 | kind]) + length + mask + masked)


class EventStream:
    """Request to /live/sse. Its messages have the name of their event as `_event`, and its id as `_id`."""

    def __init__(
        self,
        port: int,
        session: str,
        headers: dict[str, str] | None = None,
        timeout: float = PATIENCE_SECONDS,
        **query: Any,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        given = {"Host": f"127.0.0.1:{port}", **(headers or {})}
        lines = [f"GET /live/sse?{urlencode({'session': session, **query})} HTTP/1.1"]
        lines += [*(f"{name}: {value}" for name, value in given.items()), "", ""]
        status, self._chunks = _answer(self.socket, "\r\n".join(lines).encode())
        self._text = b""
        if status != 200:
            self.close()
            raise Refused(status, self._chunks)

    def hear(self) -> dict[str, Any]:
        """Return the next event. Raise Closed or TimeoutError."""
        while True:
            while b"\n\n" in self._text:
                event, _, self._text = self._text.partition(b"\n\n")
                fields = dict(line.split(": ", 1) for line in event.decode().splitlines())
                if "data" in fields:
                    return {**json.loads(fields["data"]), "_event": fields["event"], "_id": fields.get("id")}
            self._receive()

    def _receive(self) -> None:
        while b"\r\n" not in self._chunks:
            self._more()
        size, _, rest = self._chunks.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            raise Closed
        while len(rest) < length + 2:
            self._more()
            rest = self._chunks.partition(b"\r\n")[2]
        self._text += rest[:length]
        self._chunks = rest[length + 2 :]

    def _more(self) -> None:
        self._chunks += _some_of(self.socket)

    def close(self) -> None:
        self.socket.close()


def _some_of(connection: socket.socket) -> bytes:
    """Return the next bytes. Raise Closed."""
    try:
        data = connection.recv(262_144)
    except ConnectionError as error:
        raise Closed from error
    if not data:
        raise Closed
    return data


def _answer(connection: socket.socket, request: bytes) -> tuple[int, bytes]:
    """Send a request, and return the status and the bytes after the head. Close the connection if there is no answer."""
    with ExitStack() as stack:
        stack.callback(connection.close)
        connection.sendall(request)
        found = _head(connection)
        stack.pop_all()
    return found


def _head(connection: socket.socket) -> tuple[int, bytes]:
    """Return the status of a response and the bytes after its head: the whole body, if its length is announced."""
    received = b""
    while True:
        head, end, rest = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if end and (length is None or len(rest) >= int(length[1])):
            return int(head.split()[1]), rest
        try:
            data = connection.recv(65_536)
        except ConnectionError as error:
            raise Closed from error
        if not data:
            raise Closed
        received += data
