"""Clients without retries, with a ledger of acknowledged messages."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.faults import traces
from benchmarks.faults.ledger import Entry, Ledger
from benchmarks.faults.senders import in_a_session

Connect = Callable[[int], http.client.HTTPConnection]

IDLE_SECONDS = 1.9
"""A connection that was idle for longer, because the client was paused, too, may be closed by a server that ends: it waits for
LINGER_SECONDS of tracesite/serving/worker.py."""


def to_this_machine(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


@dataclass
class Client:
    """Client that sends batches and reads them back, one request at a time."""

    name: str
    port: int
    key: str
    ledger: Ledger
    dice: random.Random
    connect: Connect
    keeps_connections: bool = True
    pause: float = 0
    """Maximum seconds between two requests on a keep-alive connection."""
    slow_seconds: float = 0
    """Seconds that sending a body takes."""
    slowest: float = 0
    """Maximum seconds of a request, including sending."""
    sent: int = 0
    _idle_since: float = 0
    _connection: http.client.HTTPConnection | None = None

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            begin = time.monotonic()
            try:
                self.send_a_batch()
                self.read_one_back()
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.ledger.fault(f"{self.name}: {type(error).__name__}: {error}")
                self.close()
            self.slowest = max(self.slowest, time.monotonic() - begin)
            stop.wait(self.dice.random() * self.pause)
        self.close()

    def send_a_batch(self) -> None:
        messages = [traces.message(self.dice, self._next_name()) for _ in range(self.dice.randint(1, 8))]
        answer = self._request("POST", "/api/v1/ingest/", in_a_session(self.name, messages))
        results = answer["sessions"][0]["messages"]
        if answer["refused"] or [result["state"] for result in results] != ["created"] * len(messages):
            raise ValueError(f"not stored: {answer}")
        for message, result in zip(messages, results, strict=True):
            self.ledger.acknowledge(Entry(session=self.name, sent=message, id=result["id"]))
            self._last = result["id"]

    def read_one_back(self) -> None:
        self._request("GET", f"/api/v1/messages/{self._last}/")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        if time.monotonic() - self._idle_since > IDLE_SECONDS:
            self.close()
        if self._connection is None:
            self._connection = self.connect(self.port)
        connection = self._connection
        content = b"" if body is None else json.dumps(body).encode()
        connection.putrequest(method, path)
        connection.putheader("Authorization", f"Bearer {self.key}")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(content)))
        connection.endheaders()
        pieces = 10 if self.slow_seconds and content else 1
        size = -(-len(content) // pieces)
        for place in range(pieces):
            time.sleep(self.slow_seconds / pieces if content else 0)
            connection.send(content[place * size : (place + 1) * size])
        answer = connection.getresponse()
        text = answer.read()
        self._idle_since = time.monotonic()
        self.ledger.count(str(answer.status))
        if answer.will_close or not self.keeps_connections:
            self.close()
        if answer.status not in (200, 201):
            raise ValueError(f"{method} {path}: {answer.status} {text[:300].decode(errors='replace')}")
        return json.loads(text)

    def _next_name(self) -> str:
        self.sent += 1
        return f"{self.name}-{self.sent}"


@dataclass
class Load:
    """Clients of a run."""

    port: int
    key: str
    prefix: str
    seed: int = 1
    pause: float = 0
    """Maximum seconds between two requests of those clients that would send the next at once."""
    connect: Connect = to_this_machine
    ledger: Ledger = field(default_factory=Ledger)
    clients: list[Client] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._add("kept", 3, pause=self.pause)
        self._add("fresh", 2, pause=self.pause, keeps_connections=False)
        # Shorter than the grace period of a retiring worker, after which connections are closed.
        self._add("pausing", 2, pause=1.5)
        self._add("slow", 1, slow_seconds=2)

    def start(self) -> None:
        self._threads = [threading.Thread(target=client.run, args=[self._stop]) for client in self.clients]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop after the requests in flight."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def slowest(self) -> float:
        """Return the maximum seconds of a request of the clients without pauses."""
        return max(client.slowest for client in self.clients if not client.slow_seconds)

    def _add(self, kind: str, count: int, **options: Any) -> None:
        for number in range(count):
            name = f"{self.prefix}{kind}-{number}"
            dice = random.Random(f"{self.seed}/{name}")
            self.clients.append(Client(name, self.port, self.key, self.ledger, dice, self.connect, **options))
