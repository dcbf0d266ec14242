"""A fake server on a real socket. By default it accepts events like Tracesite; tests can change its behaviour."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

Response = tuple[int, dict[str, str], bytes]


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    ids: list[str]
    """The ids of its events."""
    bytes: int
    """The headers as they were sent."""
    at: float


@dataclass
class FakeTracesite:
    """A server that records its requests and the events it stored."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    """Event ids in the order of arrival."""
    duplicates: list[str] = field(default_factory=list)
    answer: Callable[[Request], Response | None] = lambda _request: None
    """The behaviour of the test; None for that of Tracesite."""
    settings: dict[str, Any] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def posts(self) -> list[Request]:
        return [request for request in self.requests if request.method == "POST"]

    def take(self, request: Request) -> Response:
        results = []
        with self.lock:
            known = set(self.stored)
            for name in request.ids:
                state = "duplicate" if name in known else "stored"
                (self.duplicates if name in known else self.stored).append(name)
                known.add(name)
                results.append({"session_id": None, "external_id": name, "state": state, "seq": 1})
        return json_response(200, {"results": results, "refused": []})


def json_response(status: int, body: Any, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"Content-Type": "application/json", **named}, msgspec.json.encode(body)


def error(status: int, code: str = "code", field: str | None = None, **headers: str) -> Response:
    return json_response(
        status, {"error": {"code": code, "message": "m", "field": field, "request_id": None}}, **headers
    )


@contextmanager
def serve(port: int = 0) -> Iterator[FakeTracesite]:
    fake = FakeTracesite()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            text = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            ids = [msgspec.json.decode(line)["id"] for line in text.splitlines()]
            self.respond(Request("POST", self.path, dict(self.headers), ids, len(body), time.monotonic()))

        def do_GET(self) -> None:
            self.respond(Request("GET", self.path, dict(self.headers), [], 0, time.monotonic()))

        def respond(self, request: Request) -> None:
            fake.requests.append(request)
            response = fake.answer(request)
            if response is None and request.method == "GET":
                response = error(404) if fake.settings is None else json_response(200, fake.settings)
            status, headers, body = response or fake.take(request)
            try:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, *_args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def get_request(self) -> Any:
            connection, address = super().get_request()
            open_sockets.append(connection)
            return connection, address

        def handle_error(self, *_args: Any) -> None:
            """Ignore clients that disconnect in the middle, which many tests provoke."""

    open_sockets: list[socket.socket] = []
    server = Server(("127.0.0.1", port), Handler)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        for connection in open_sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
