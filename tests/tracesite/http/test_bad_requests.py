"""Test "Connections" of docs/what_is_stored.md: faulty connections to a server started with `serve`."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command
from django.db import connection

from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Session
from sdk.tests.ports import free_port
from tests.tracesite.serving.test_serve import serving

# Without this mark pytest-django does not create the database.
pytestmark = [pytest.mark.system, pytest.mark.django_db]

HOST = b"Host: localhost\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HOST
CLOSE = b"Connection: close\r\n"
BODY = b'{"external_id": "a"}'
PATIENT_SECONDS = 600
CLIENT_SECONDS = 3


@dataclass
class Server:
    port: int
    key: str
    environment: dict[str, str]

    def connect(self, sent: bytes) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        client.sendall(sent)
        return client

    def answer(self, sent: bytes, *, then_end: bool = False) -> bytes:
        """Return all bytes received until the server closes the connection."""
        with self.connect(sent) as client:
            if then_end:
                client.shutdown(socket.SHUT_WR)
            return received(client)

    def statuses(self, sent: bytes, *, then_end: bool = False) -> list[int]:
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", self.answer(sent, then_end=then_end))]

    def field(self, sent: bytes, *, then_end: bool = False) -> tuple[int, str, str | None]:
        head, _, body = self.answer(sent, then_end=then_end).partition(b"\r\n\r\n")
        error = json.loads(body)["error"]
        return int(head.split()[1]), error["code"], error["field"]

    def post(
        self,
        *headers: bytes,
        key: bool = True,
        path: bytes = b"sessions/",
        content_type: bytes = b"application/json",
    ) -> bytes:
        lines = [b"POST /api/v1/" + path + b" HTTP/1.1", b"Host: localhost", b"Content-Type: " + content_type, *headers]
        if key:
            lines.append(b"Authorization: Bearer " + self.key.encode())
        return b"\r\n".join([*lines, b"", b""])

    def is_alive(self) -> bool:
        return self.statuses(HEALTH + CLOSE + b"\r\n") == [200]


@pytest.fixture(scope="module")
def server(django_db_setup: None, django_db_blocker: Any) -> Iterator[Server]:
    """One server for all tests of this module, on the test database; which is flushed at the end."""
    with django_db_blocker.unblock():
        project = Project.objects.create(slug="bad-requests")
        key = create_key(project, "agent", ["read", "write"])[1]
        url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
        port = free_port()
        try:
            patiently = {"TRACESITE_BACKGROUND_JOBS": "0", "TRACESITE_CLIENT_SECONDS": str(PATIENT_SECONDS)}
            environment = {**os.environ, "DATABASE_URL": url, **patiently}
            with serving(environment, port):
                running = Server(port, key, environment)
                wait_for(running)
                yield running
        finally:
            # Other tests roll back, and would find these rows. Ids go on, because caches of this process have some.
            call_command("flush", verbosity=0, interactive=False, reset_sequences=False)
            connection.close()


@contextmanager
def impatient(server: Server) -> Iterator[Server]:
    """Another server on the same database, which waits for clients CLIENT_SECONDS, and not only as long as its heartbeats allow."""
    little = {"TRACESITE_CLIENT_SECONDS": str(CLIENT_SECONDS), "TRACESITE_LIVE_HEARTBEAT_SECONDS": str(PATIENT_SECONDS)}
    other = replace(server, port=free_port())
    with serving(server.environment | little, other.port):
        wait_for(other)
        yield other


def received(client: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    return b"".join(iter(partial(client.recv, 65536), b""))


def wait_for(server: Server) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", server.port)).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


# --- One function for each row of the table; its name is the row's first word ------------------------------------------


def short(server: Server) -> None:
    assert server.answer(server.post(b"Content-Length: 100") + b'{"external_id": "short"}', then_end=True) == b""
    assert not Session.with_deleted.filter(external_id="short").exists()


def long(server: Server) -> None:
    assert server.statuses(server.post(b"Content-Length: 5") + BODY + b"\r\n\r\n") == [400, 400]


def length(server: Server) -> None:
    for lines in (
        b"Content-Length: x",
        b"Content-Length: -5",
        b"Content-Length: 5\r\nContent-Length: 20",
        b"Content-Length: 1%030d" % 0,
    ):
        assert server.statuses(server.post(lines) + BODY) == [400]
    assert server.statuses(server.post(CLOSE + b"Content-Length: 1%018d" % 0) + BODY) == [413]


def chunked(server: Server) -> None:
    begin = server.post(b"Transfer-Encoding: chunked", b"Connection: close")
    assert server.statuses(begin + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)) in ([200], [201])
    assert server.statuses(begin + b"zz\r\n") == [400]
    assert server.answer(begin + b"14\r\n" + BODY[:5], then_end=True) == b""


def cut(server: Server) -> None:
    """Chunked bodies without their last chunk, whose bytes so far are a valid body."""
    session = b'{"external_id": "%s"}'
    batch = b'{"session": "%s", "external_id": "1", "role": "user", "content": "a"}\n'
    for path, content_type, body in (
        (b"sessions/", b"application/json", lambda name: session % name),
        (b"sessions/", b"application/json\r\nContent-Encoding: gzip", lambda name: gzip.compress(session % name)),
        (b"ingest/", b"application/x-ndjson", lambda name: batch % name),
    ):
        head = server.post(CLOSE[:-2], b"Transfer-Encoding: chunked", path=path, content_type=content_type)
        whole, parts = [b"%x\r\n%s\r\n" % (len(body(name)), body(name)) for name in (b"whole", b"cut")]
        assert server.statuses(head + whole + b"0\r\n\r\n")[0] in (200, 201)
        for rest in (b"", b"zz\r\n"):
            with server.connect(head + parts) as client:
                time.sleep(0.3)  # until a thread has the first chunk and waits for the next
                client.sendall(rest)
                client.shutdown(socket.SHUT_WR)
                assert client.recv(65536)[:13] == (b"HTTP/1.1 400 " if rest else b"")
    time.sleep(0.3)  # until threads that would store something have done it
    assert not Session.with_deleted.filter(external_id="cut").exists()


def garbage(server: Server) -> None:
    bad = (
        b"\x16\x03\x01\x02\x00" * 100 + b"\r\n\r\n",
        HEALTH + b"X-A: a\x00b\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    )
    for each in bad:
        assert server.statuses(each) == [400]
        assert server.statuses(HEALTH + b"\r\n" + each) == [200, 400]
    assert server.statuses(HEALTH + b"\r\n" + HEALTH + CLOSE + b"\r\n") == [200, 200]


def lines(server: Server) -> None:
    assert server.statuses(HEALTH + b"X-A: a\r\n" * 200 + b"\r\n") == [431]
    assert server.statuses(HEALTH + b"X-A: " + b"a" * 1_000_000 + b"\r\n\r\n") == [431]
    assert server.statuses(b"GET /healthz?" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n") == [414]
    # The server closes the connection before it has read the whole request.
    with pytest.raises(ConnectionError), server.connect(HEALTH) as client:
        for _ in range(100_000):
            client.sendall(b"X-A: " + b"a" * 10_000)


def methods(server: Server) -> None:
    for method in (b"BREW", b"TRACE", b"PUT"):
        assert server.statuses(method + b" /api/v1/sessions/ HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n") in ([401], [405])
        assert server.statuses(method + b" /healthz HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n") == [405]


def slow(server: Server) -> None:
    """20 of each kind, in a worker with 8 threads: some stop, others send a byte now and then. On a server with little patience."""
    with impatient(server) as other:
        send_slowly(other)


def send_slowly(server: Server) -> None:
    begun = {
        "head": HEALTH[:12],
        "stranger": server.post(b"Content-Length: 1000", key=False) + b"{",
        # Without a key, where a key is asked for in the body: refused for its announced length, before any thread waits for it.
        "token": server.post(b"Content-Length: 60000000", key=False).replace(b"/api/v1/sessions/", b"/v3/auth/token")
        + b" " * 1_100_000,
        "small": server.post(b"Content-Length: 1000") + b"{",
        "large": server.post(b"Content-Length: 3000000") + b" " * 1_100_000,
        "asking": server.post(b"Content-Length: 1000", b"Expect: 100-continue") + b"{",
    }
    stored = server.post(CLOSE + b"Content-Length: %d" % len(BODY)) + BODY
    with ExitStack() as stack:
        stopped = {kind: stack.enter_context(server.connect(sent)) for kind, sent in begun.items()}
        trickling = [stack.enter_context(server.connect(sent)) for sent in begun.values() for _ in range(20)]
        ends = time.monotonic() + CLIENT_SECONDS + 1
        while time.monotonic() < ends:
            for client in trickling:
                with suppress(ConnectionError):  # the server has given it up
                    client.sendall(b"a")
            assert server.statuses(stored) in ([200], [201])
            assert server.is_alive()
            time.sleep(0.2)
        assert received(stopped["head"]) == b""
        assert received(stopped["stranger"])[:13] == b"HTTP/1.1 401 "
        assert received(stopped["token"])[:13] == b"HTTP/1.1 413 "
        refused = received(stopped["small"])
        assert (refused[:13], b'"request_too_slow"' in refused) == (b"HTTP/1.1 408 ", True)


def readers(server: Server) -> None:
    """More than there are threads, which take nothing of a long list: some leave, others stay until the server has no more patience."""
    messages = [{"external_id": str(number), "role": "user", "content": "x" * 200_000} for number in range(60)]
    body = json.dumps({"sessions": [{"external_id": "readers", "messages": messages}]}).encode()
    head = server.post(CLOSE + b"Content-Length: %d" % len(body), path=b"ingest/")
    assert server.statuses(head + body) == [200]
    request = (
        b"GET /api/v1/messages/?limit=200 HTTP/1.1\r\nAuthorization: Bearer " + server.key.encode() + b"\r\n" + HOST
    )
    for _ in range(10):
        with server.connect(request + b"\r\n") as leaving:
            leaving.recv(1000)
    assert server.is_alive()
    with impatient(server) as other, ExitStack() as stack:
        staying = [stack.enter_context(other.connect(request + b"\r\n")) for _ in range(10)]
        for client in staying[:8]:
            client.recv(1000)  # until all threads have one
        assert other.is_alive()


def forms(server: Server) -> None:
    heads = [
        b"POST /admin/login/ HTTP/1.1\r\nCookie: a=b\r\nContent-Type: application/x-www-form-urlencoded\r\n" + HOST,
        b"POST /i18n/setlang/ HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\n" + HOST,
    ]
    assert server.statuses(heads[0] + b"Content-Length: 2000000\r\n\r\n") == [413]
    assert server.statuses(heads[0] + CLOSE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n") == [413]
    with ExitStack() as stack:
        for number in range(20):
            stack.enter_context(server.connect(heads[number % 2] + b"Content-Length: 1000\r\n\r\n-"))
        time.sleep(0.5)
        assert server.is_alive()
        assert server.statuses(heads[0] + CLOSE + b"Content-Length: 3\r\n\r\na=b") == [403]


def huge(server: Server) -> None:
    text = "x" * 50_000_000
    body = json.dumps({"external_id": "huge", "messages": [{"role": "user", "content": text}]}).encode()
    assert server.statuses(server.post(b"Content-Length: %d" % len(body), b"Connection: close") + body) == [201]
    headers = b"Authorization: Bearer " + server.key.encode() + b"\r\n" + HOST + CLOSE
    answer = server.answer(b"GET /api/v1/sessions/huge/messages/?fields=content HTTP/1.1\r\n" + headers + b"\r\n")
    assert text.encode() in answer


def test_header_with_an_underscore_is_ignored(server: Server) -> None:
    """Django could not tell it from the one with a hyphen, which a proxy may set."""
    for name, status in ((b"X-API-Key", 200), (b"X_API_Key", 401)):
        header = name + b": " + server.key.encode() + b"\r\n"
        assert server.statuses(b"GET /api/v1/sessions/ HTTP/1.1\r\n" + header + HOST + CLOSE + b"\r\n") == [status]


KINDS: dict[str, Callable[[Server], None]] = {
    each.__name__: each
    for each in (short, long, length, chunked, cut, garbage, lines, methods, slow, forms, readers, huge)
}


@pytest.mark.parametrize("kind", KINDS)
def test_bad_connection_gets_documented_response(kind: str, server: Server) -> None:
    KINDS[kind](server)
    assert server.is_alive()
