"""Well-behaved clients: after any error they retry the same request until it is acknowledged."""

from __future__ import annotations

import copy
import http.client
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import span_runs, traces
from .ledger import Entry, Ledger

# Longer than any recovery, so that a longer wait is a fault.
PATIENCE_SECONDS = 180
SHARED_MESSAGE = "tokens"
# Years that are purged repeatedly and have no other messages.
EXPENDABLE_YEARS = (2001, 3)
KEPT_YEARS = (2008, 4)


class GivenUp(Exception):
    """No acknowledgement in PATIENCE_SECONDS, or an answer that no retry can change."""


@dataclass
class Client:
    """Keep-alive connection that is reopened after an error."""

    port: int
    key: str
    ledger: Ledger
    _connection: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: Any = None, *, also: tuple[int, ...] = ()) -> tuple[int, Any]:
        """Send an idempotent request until its status is 2xx or in `also`. Return the response."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        pause = 0.02
        while time.monotonic() < deadline:
            try:
                status, headers, answer = self.once(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self.ledger.count(type(error).__name__)
                self.close()
            else:
                self.ledger.count(str(status))
                if status < 300 or status in also:
                    return status, json.loads(answer) if answer else None
                self._judge(method, path, status, headers, answer)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)  # shorter than Retry-After, to put more load on the server
        raise GivenUp(f"{method} {path}: no acknowledgement in {PATIENCE_SECONDS} s")

    def once(self, method: str, path: str, body: Any = None) -> tuple[int, http.client.HTTPMessage, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.key}"}
        content = None
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body), "application/json"
        self._connection.request(method, path, content, headers)
        answer = self._connection.getresponse()
        read = answer.read()
        if answer.will_close:
            self.close()
        return answer.status, answer.headers, read

    def _judge(self, method: str, path: str, status: int, headers: http.client.HTTPMessage, answer: bytes) -> None:
        """Record a fault unless an error during an outage is a 503 with Retry-After, in the shape of API errors."""
        said = f"{method} {path}: {status} {answer[:300].decode(errors='replace')}"
        if status < 500:
            raise GivenUp(said)
        try:
            error = json.loads(answer)["error"]
        except (ValueError, KeyError):
            error = {}
        # Foreign APIs have errors of their own.
        is_as_documented = not path.startswith("/api/v1/") or sorted(error) == [
            "code",
            "field",
            "message",
            "request_id",
        ]
        if status != 503 or not headers.get("Retry-After") or not is_as_documented:
            self.ledger.fault(said)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass
class Sender:
    """Sender of random requests until it is stopped; it completes the last one."""

    name: str
    shared: str
    """Session that all senders write to."""
    client: Client
    ledger: Ledger
    dice: random.Random
    own: list[Entry] = field(default_factory=list)
    """Its acknowledged messages, which no other sender changes."""
    sent: int = 0
    pause: float = 0
    """Maximum seconds between two actions."""

    def run(self, stop: threading.Event) -> None:
        actions = [self.ingest, self.ingest, self.ingest_months, self.ingest_expendable]
        actions += [self.grow, self.rename, self.trash, self.put_token, self.send_spans, self.send_spans]
        while not stop.is_set() and self._see_through(self.dice.choice(actions)):
            stop.wait(self.dice.random() * self.pause)

    def once(self) -> None:
        """Send one batch."""
        self._see_through(self.ingest)

    def _see_through(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except GivenUp as error:
            self.ledger.fault(f"{self.name}: {error}")
            return False
        return True

    def ingest(self) -> None:
        self.send(self.batch())

    def ingest_months(self) -> None:
        """Send a batch whose months have no partitions yet."""
        times = [traces.a_time_in(self.dice, *KEPT_YEARS) for _ in range(self.dice.randint(1, 2))]
        self.send([traces.message(self.dice, self._name(), created_at=time) for time in times])

    def ingest_expendable(self) -> None:
        """Send messages that the concurrent purge removes."""
        times = [traces.a_time_in(self.dice, *EXPENDABLE_YEARS) for _ in range(self.dice.randint(1, 6))]
        messages = [traces.message(self.dice, self._name(), created_at=time) for time in times]
        self.send(messages, session=f"{self.name}-expendable", expendable=True)

    def batch(self) -> list[dict[str, Any]]:
        return [traces.message(self.dice, self._name()) for _ in range(self.dice.randint(1, 8))]

    def send(self, messages: list[dict[str, Any]], *, session: str = "", expendable: bool = False) -> None:
        session = session or self.dice.choice((self.name, self.shared))
        _, answer = self.client.request("POST", "/api/v1/ingest/", in_a_session(session, messages))
        results = answer["sessions"][0]["messages"]
        if not expendable and (answer["refused"] or len(results) != len(messages)):
            raise GivenUp(f"refused: {answer['refused']}")
        for message, result in zip(messages, results, strict=True):
            if expendable:
                # A retry after the purge returns that status.
                if result["state"] != "refused":
                    self.ledger.acknowledge(Entry(session=session, sent=message, id=result["id"]), expendable=True)
                continue
            entry = Entry(session=session, sent=message, id=result["id"])
            self.own.append(entry)
            self.ledger.acknowledge(entry)

    def send_spans(self) -> None:
        """Send a run as OTLP, Langfuse or LangSmith, piece by piece."""
        run = span_runs.make(self.dice, self._name())
        for path, body in run.requests:
            self.client.request("POST", path, body)
        self.ledger.acknowledge_run(run)

    def grow(self) -> None:
        """Send an open message, then PATCH its other steps and its completion."""
        message = traces.message(self.dice, self._name(), steps=1) | {"is_completed": False}
        self.send([message])
        entry = self.own[-1]
        rest = [traces.step(self.dice, message["external_id"], number) for number in (1, 2)]
        self.patch(entry, {"agent_steps": rest, "is_completed": True}, {"agent_steps": message["agent_steps"] + rest})

    def rename(self) -> None:
        """PATCH the content of a message."""
        alive = [entry for entry in self.own if not entry.is_deleted]
        if alive:
            self.patch(self.dice.choice(alive), {"content": f"{self._name()} {traces.text(self.dice, 20)}"}, {})

    def patch(self, entry: Entry, change: dict[str, Any], as_found: dict[str, Any]) -> None:
        """Change an own message. After an error its version shows whether the change was stored."""
        path = f"/api/v1/messages/{entry.id}/"
        _, before = self.client.request("GET", path)
        status, answer = self.client.request("PATCH", path, change | {"version": before["version"]}, also=(409,))
        if status == 409:
            _, now = self.client.request("GET", path)
            if answer["error"]["code"] != "version_conflict" or now["version"] != before["version"] + 1:
                raise GivenUp(f"PATCH {path} at {before['version']}: {answer}, and {now['version']} is there")
        entry.sent = copy.deepcopy(entry.sent | change | as_found)

    def trash(self) -> None:
        """Delete or restore a message."""
        if not self.own:
            return
        entry = self.dice.choice(self.own)
        path = f"/api/v1/messages/{entry.id}/"
        # 404: the request that seemed to fail succeeded.
        if entry.is_deleted:
            self.client.request("POST", f"{path}restore/", also=(404,))
        else:
            self.client.request("DELETE", path, also=(404,))
        entry.is_deleted = not entry.is_deleted

    def put_token(self) -> None:
        """Append to a list that all senders change, to detect lost updates."""
        token = self._name()
        path = f"/api/v1/messages/{self.ledger.entries[SHARED_MESSAGE].id}/"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            _, message = self.client.request("GET", path)
            tokens = message["metadata"].get("tokens", [])
            if token in tokens:
                break
            change = {"metadata": message["metadata"] | {"tokens": [*tokens, token]}, "version": message["version"]}
            if self.client.request("PATCH", path, change, also=(409,))[0] == 200:
                break
            time.sleep(self.dice.random() * 0.05)
        else:
            raise GivenUp("the shared message was always at another version")
        self.ledger.tokens.add(token)

    def _name(self) -> str:
        self.sent += 1
        return f"{self.name}-{self.sent}"


def in_a_session(session: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"sessions": [{"external_id": session, "messages": messages}]}


def break_off(port: int, key: str, body: Any, dice: random.Random) -> None:
    """Send a request or part of it, and reset the connection without reading the response."""
    content = json.dumps(body).encode()
    head = (
        f"POST /api/v1/ingest/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    request = head.encode() + content
    # Half of them complete, so that the client disconnects while the server works.
    part = len(request) if dice.random() < 0.5 else dice.randrange(1, len(request))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(request[:part])
        time.sleep(dice.random() * 0.05)
