"""Minimal HTTP client for measurements: requests encoded in advance, one keep-alive connection."""

from __future__ import annotations

import socket

JSON = "application/json"


class HttpError(Exception):
    """Unexpected response, with its body."""


def get(path: str, headers: dict[str, str]) -> bytes:
    """Return an encoded GET request."""
    return _head("GET", path, headers) + b"\r\n"


def post(path: str, headers: dict[str, str], body: bytes, content_type: str = JSON) -> bytes:
    """Return an encoded POST request."""
    length = {"Content-Type": content_type, "Content-Length": str(len(body))}
    return _head("POST", path, headers | length) + b"\r\n" + body


def _head(method: str, path: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "".join(f"{line}\r\n" for line in lines).encode()


class Connection:
    """Keep-alive connection, because http.client costs 150 us a request and the fastest requests take 2 ms."""

    def __init__(self, port: int, timeout: float = 120) -> None:
        self._address = ("127.0.0.1", port)
        self._timeout = timeout
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(self._address, timeout=self._timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> bytes | bytearray:
        """Return the body of the response. Raise HttpError for a status other than 200 and 201."""
        self._socket.sendall(request)
        received = b""
        while b"\r\n\r\n" not in received:
            block = self._socket.recv(65_536)
            self._checked(len(block))
            received += block
        head, _, body = received.partition(b"\r\n\r\n")
        # Received into one preallocated buffer, because a response may be a megabyte.
        answer = bytearray(_content_length(head))
        answer[: len(body)] = body
        filled, rest = len(body), memoryview(answer)
        while filled < len(answer):
            filled += self._checked(self._socket.recv_into(rest[filled:]))
        if b"\r\nconnection: close" in head.lower():
            self._socket.close()
            self._open()
        if head[9:12] not in (b"200", b"201"):
            raise HttpError(f"{head.decode()}\n{answer[:1000].decode(errors='replace')}")
        return answer

    def close(self) -> None:
        self._socket.close()

    def _checked(self, received: int) -> int:
        if not received:
            raise HttpError("The server closed the connection.")
        return received


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    raise HttpError(f"An answer without Content-Length:\n{head.decode()}")
