"""One request at a time, and what it costs: CPU seconds and the growth of the peak memory of the server's processes."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks import processes
from benchmarks.faults.site import Site

PATIENCE_SECONDS = 60
MOST_GROWTH_MB = 3000
"""The server is killed beyond it, because the machine has other memory to lose."""
KEPT_MB = 500
"""The server is started again when it has kept more, so that kept memory does not hide what the next request takes."""
HANDSHAKE = {"Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str = "POST"
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: str = "length"
    """How the body is framed: by its length, in chunks, as one message of a WebSocket, or wrongly: see `encoded`."""

    def encoded(self) -> tuple[bytes, bytes]:
        """Return what is sent, and what is sent when an answer has begun."""
        headers = {"Host": "127.0.0.1", "Connection": "close", **self.headers}
        size, body, later = len(self.body), self.body, b""
        match self.framing:
            case "length":
                headers["Content-Length"] = str(size)
            case "longer than its length":
                headers["Content-Length"] = str(size // 2)
            case "shorter than its length":
                headers["Content-Length"] = str(size + 1)
            case "length and chunks":
                headers |= {"Content-Length": str(size), "Transfer-Encoding": "chunked"}
            case "chunked" | "without its last chunk":
                headers["Transfer-Encoding"] = "chunked"
                step = max(1, size // 7)
                chunks = [body[at : at + step] for at in range(0, size, step)]
                body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
                body += b"0\r\n\r\n" if self.framing == "chunked" else b""
            case "websocket":
                headers |= {**HANDSHAKE, "Connection": "Upgrade"}
                body, later = b"", _frame(0x81, body) + _frame(0x88, b"")
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body, later

    @property
    def is_whole(self) -> bool:
        """Whether the server has all that it waits for; otherwise the client leaves, and need not get an answer."""
        return self.framing not in ("shorter than its length", "without its last chunk")


def _frame(kind: int, content: bytes) -> bytes:
    """Return a frame of a WebSocket, masked with zeros."""
    size = len(content)
    width, mark = (0, size) if size < 126 else (2, 126) if size < 65_536 else (8, 127)
    return bytes([kind, 0x80 | mark]) + (size.to_bytes(width, "big") if width else b"") + bytes(4) + content


@dataclass(frozen=True, kw_only=True)
class Outcome:
    status: int
    """0 without an answer."""
    answer: bytes
    seconds: float
    cpu: float
    database_cpu: float
    megabytes: float
    """Growth of the peak of resident memory above what the server had before."""
    log: str
    """What the server logged meanwhile."""

    def faults(self, request: Request, *, seconds: float, megabytes: float) -> list[str]:
        """Return what is wrong with it, given the most CPU seconds and MB that it may take."""
        wrong = {
            f"status {self.status}": self.status >= 500,
            f"no answer in {self.seconds:.0f} s": not self.status
            and (request.is_whole or self.seconds >= PATIENCE_SECONDS),
            f"{self.cpu:.1f} s of CPU": self.cpu > seconds,
            f"{self.database_cpu:.1f} s of CPU in PostgreSQL": self.database_cpu > seconds,
            f"{self.megabytes:.0f} MB": self.megabytes > megabytes,
        }
        return [text for text, is_so in wrong.items() if is_so]


class Sender:
    """The only client of a site. A server that is left without an answer, or has kept memory, is started again."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._start()

    @property
    def port(self) -> int:
        return self._site.server.port

    def _start(self) -> None:
        self._site.server.start()
        self._postmaster = self._site.postmaster()
        self._fresh = self._from_now()

    def send(self, request: Request) -> Outcome:
        """Send a request and measure it until its answer, for at most a minute."""
        if self._from_now() > self._fresh + KEPT_MB:
            self.restart()
        encoded = request.encoded()
        log = self._site.server.log
        logged = log.stat().st_size
        before, began = self._from_now(), time.monotonic()
        cpu, database_cpu = self._cpu()
        received = self._exchanged(encoded, before, waits=request.is_whole)
        after, peak = self._cpu(), self._peak()
        seconds = time.monotonic() - began
        found = [int(status) for status in re.findall(rb"^HTTP/1\.1 (\d{3})", received, re.M)]
        with log.open("rb") as lines:
            lines.seek(logged)
            text = lines.read()[-5000:].decode("utf-8", "replace")
        if (not found and request.is_whole) or seconds >= PATIENCE_SECONDS:
            self.restart()
        return Outcome(
            status=next((status for status in found if status >= 200), found[0] if found else 0),
            answer=received,
            seconds=seconds,
            cpu=after[0] - cpu,
            database_cpu=after[1] - database_cpu,
            megabytes=peak - before,
            log=text,
        )

    def ask(self, method: str, path: str, value: Any = None, key: str = "") -> Any:
        """Return the JSON that a request is answered with, unmeasured; {} for any other answer."""
        headers = {"Content-Type": "application/json", **({"X-API-Key": key} if key else {})}
        body = b"" if value is None else json.dumps(value).encode()
        request = Request(method=method, path=path, body=body, headers=headers)
        received = self._exchanged(request.encoded(), self._peak(), waits=True)
        try:
            return json.loads(received.partition(b"\r\n\r\n")[2])
        except ValueError:
            return {}

    def restart(self) -> None:
        assert self._site.server.process is not None, "it was started"
        os.killpg(self._site.server.process.pid, signal.SIGKILL)
        self._start()

    def _exchanged(self, encoded: tuple[bytes, bytes], before: float, *, waits: bool) -> bytes:
        """Return what the server sends until it closes the connection. It may answer before it has all."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        received, unsent, later = bytearray(), memoryview(encoded[0]), encoded[1]
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS) as connection:
            connection.setblocking(False)
            while time.monotonic() < deadline and self._peak() - before < MOST_GROWTH_MB:
                readable, writable, _failed = select.select([connection], [connection] if unsent else [], [], 0.25)
                if writable:
                    try:
                        unsent = unsent[connection.send(unsent[: 2**20]) :]
                        if not unsent and not waits:
                            connection.shutdown(socket.SHUT_WR)
                    except (ConnectionResetError, BrokenPipeError):  # it has answered and closed
                        unsent = unsent[:0]
                if readable:
                    try:
                        block = connection.recv(2**20)
                    except ConnectionResetError:
                        break
                    if not block:
                        break
                    received += block
                    if later:
                        unsent, later = memoryview(later), b""
        return bytes(received)

    def _cpu(self) -> tuple[float, float]:
        """Return the CPU seconds so far of the server and of PostgreSQL."""
        database = processes.cpu_seconds([self._postmaster], with_ended=True)
        database += processes.cpu_seconds(pid for pid in processes.family(self._postmaster) if pid != self._postmaster)
        return processes.cpu_seconds(self._pids), database

    def _from_now(self) -> float:
        """Measure CPU and the peak from now on. Return the MB that the server has."""
        self._pids = self._site.server.family()
        for pid in self._pids:
            processes.forget_peak(pid)
        return self._peak()

    def _peak(self) -> float:
        """Return the peak in MB; 0 if a process has ended."""
        try:
            return sum(map(processes.peak_bytes, self._pids)) / 1e6
        except (FileNotFoundError, ProcessLookupError):
            return 0
