"""Rounds of fault injection: senders and a purge run, a process is killed, the site recovers, all data is checked."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

import psycopg

from . import findings, span_runs, traces
from .ledger import Entry, Ledger
from .senders import EXPENDABLE_YEARS, SHARED_MESSAGE, Client, Sender, break_off, in_a_session
from .site import ROOT, Site

Kind = Literal["server", "worker", "jobs", "postgres", "backend", "client", "purge"]
KINDS: tuple[Kind, ...] = ("server", "worker", "jobs", "postgres", "backend", "client", "purge")

SENDERS = 4
_LATE = """
    SELECT name, count(*) FROM messages_app_changereader AS reader
    JOIN messages_app_change AS change ON (change.transaction, change.position) > (reader.transaction, reader.position)
    GROUP BY name
    """
# Seconds that the senders run before and after a kill.
BEFORE_SECONDS = (0.2, 1.0)
AFTER_SECONDS = 0.3


@dataclass
class Campaign:
    """Rounds on one site; `ledger` has the acknowledged messages of all rounds."""

    site: Site
    seed: int
    pause: float = 0
    """Maximum seconds between two actions of a sender."""
    ledger: Ledger = field(default_factory=Ledger)
    kills: Counter[Kind] = field(default_factory=Counter)
    restarts: int = 0
    """Number of times that the server ended and was restarted, as by a supervisor."""
    slowest_recovery: float = 0
    """Maximum seconds from a kill to the acknowledgement of a request that began after it."""
    purges: int = 0
    """Number of completed purge commands."""

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.prefix = f"faults-{self.seed}/"
        self.shared = f"{self.prefix}shared"
        self.senders = [self._sender(str(number), random.Random(f"{self.seed}/{number}")) for number in range(SENDERS)]
        message = {**traces.message(self.dice, SHARED_MESSAGE, steps=1), "content": "a list of tokens"}
        _, answer = self.senders[0].client.request("POST", "/api/v1/ingest/", in_a_session(self.shared, [message]))
        entry = Entry(session=self.shared, sent=message, id=answer["sessions"][0]["messages"][0]["id"])
        self.ledger.acknowledge(entry)

    def close(self) -> None:
        for sender in self.senders:
            sender.client.close()

    def round(self, kind: Kind) -> list[str]:
        """Kill once and return the problems found afterwards."""
        if self.site.server.has_ended():
            return [f"The server has ended before anything was killed:\n{self.site.server.end_of_log()}"]
        stop = threading.Event()
        threads = [threading.Thread(target=sender.run, args=[stop], name=sender.name) for sender in self.senders]
        if kind != "purge" and self.dice.random() < 0.5:
            threads.append(threading.Thread(target=self._purge_until, args=[stop]))
        for thread in threads:
            thread.start()
        try:
            time.sleep(self.dice.uniform(*BEFORE_SECONDS))
            self._kill(kind)
            killed = time.monotonic()
            self._supervise()
            self._wait_for_an_acknowledgement()
            self.slowest_recovery = max(self.slowest_recovery, time.monotonic() - killed)
            time.sleep(AFTER_SECONDS)
        finally:
            stop.set()
            while any(thread.is_alive() for thread in threads):
                self._supervise()
                for thread in threads:
                    thread.join(0.1)
        self.kills[kind] += 1
        return self.check(in_a_purge=True)

    def check(self, *, in_a_purge: bool = False) -> list[str]:
        with self.site.connect() as connection:
            problems = self._problems_of_spans(connection)
            problems += findings.problems(connection, self.ledger, self.prefix, in_a_purge=in_a_purge)
        return [*self.ledger.faults, *problems]

    def _problems_of_spans(self, connection: psycopg.Connection) -> list[str]:
        """Wait until the messages of all spans are made, and compare them."""
        deadline = time.monotonic() + span_runs.SETTLED_SECONDS
        while due := connection.execute(span_runs.DUE).fetchall():
            if time.monotonic() > deadline:
                return [f"the messages of {len(due)} traces are not made"]
            self._supervise()
            time.sleep(0.05)
        return span_runs.differences(connection, self.ledger.span_runs)

    def finish(self) -> list[str]:
        """Complete the purge of expendable messages and return the problems found afterwards."""
        self._purge(check=True)
        problems = self.check()
        with self.site.connect() as connection:
            left = [
                name for session, name in findings.stored(connection, self.prefix) if session.endswith("-expendable")
            ]
        if left:
            problems.append(f"{len(left)} purged messages are there, such as {left[0]}")
        problems += self._late_readers()
        checked = self.site.commands.run("check_traces", timeout=self.site.patience)
        if checked.returncode:
            problems.append(f"check_traces: {checked.stdout}{checked.stderr}")
        return problems

    def _late_readers(self) -> list[str]:
        """Wait until every reader of the log of changes has read it."""
        deadline = time.monotonic() + span_runs.SETTLED_SECONDS
        with self.site.connect() as connection:
            while late := connection.execute(_LATE).fetchall():
                if time.monotonic() > deadline:
                    return [f"{name} has not read {count} changes" for name, count in late]
                self._supervise()
                time.sleep(0.5)
        return []

    # --- Kills -----------------------------------------------------------------------------------------------

    def _kill(self, kind: Kind) -> None:
        server = self.site.server
        match kind:
            case "server":
                assert server.process is not None, "it was started"
                os.kill(server.process.pid, signal.SIGKILL)
                server.process.wait()
            case "worker":
                os.kill(self.dice.choice(server.worker_pids()), signal.SIGKILL)
            case "jobs":
                os.kill(server.jobs_pid(), signal.SIGKILL)
            case "postgres":
                os.kill(self.site.postmaster(), signal.SIGKILL)
            case "backend":
                self._kill_a_backend()
            case "client":
                self._break_off()
            case "purge":
                self._kill_a_purge()

    def _kill_a_backend(self) -> None:
        """Kill a backend, upon which PostgreSQL ends all other backends and recovers."""
        with self.site.connect() as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ).fetchall()
        os.kill(self.dice.choice(rows)[0], signal.SIGKILL)

    def _break_off(self) -> None:
        sender = self._sender(f"client-{self.kills['client']}", self.dice)
        messages = sender.batch()
        for _ in range(3):
            break_off(self.site.server.port, self.site.key, in_a_session(self.shared, messages), self.dice)
        with closing(sender.client):
            sender.send(messages, session=self.shared)

    def _kill_a_purge(self) -> None:
        """Kill a purge while it runs; retry if it ended before the kill."""
        with self.site.connect() as connection:
            while True:
                process = self._start_purge()
                while process.poll() is None and not _is_purging(connection):
                    time.sleep(0.002)
                time.sleep(self.dice.random() ** 2 * 0.5)
                hit = process.poll() is None
                process.kill()
                process.communicate()
                if hit:
                    return

    # --- Load ------------------------------------------------------------------------------------------

    def _client(self) -> Client:
        return Client(self.site.server.port, self.site.key, self.ledger)

    def _sender(self, name: str, dice: random.Random) -> Sender:
        return Sender(f"{self.prefix}{name}", self.shared, self._client(), self.ledger, dice, pause=self.pause)

    def _supervise(self) -> None:
        server = self.site.server
        if server.has_ended():
            server.start()
            self.restarts += 1

    def _wait_for_an_acknowledgement(self) -> None:
        sender = self._sender(f"after-{self.kills.total()}", self.dice)
        thread = threading.Thread(target=sender.once)
        thread.start()
        while thread.is_alive():
            self._supervise()
            thread.join(0.1)
        sender.client.close()

    def _purge_until(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._purge(check=False)

    def _purge(self, *, check: bool) -> None:
        process = self._start_purge()
        said = process.communicate(timeout=300)[1]
        # A purge whose connection broke ends with an error and is run again.
        if process.returncode == 0:
            self.purges += 1
        elif check:
            self.ledger.fault(f"purge: {said[-500:]}")

    def _start_purge(self) -> subprocess.Popen[str]:
        first, years = EXPENDABLE_YEARS
        return subprocess.Popen(
            [sys.executable, "manage.py", "purge", "--older-than", f"{first + years + 1}-01-01", "--yes"],
            cwd=ROOT,
            env=self.site.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )


def _is_purging(connection: psycopg.Connection) -> bool:
    """Return whether a purge has begun to change data. The senders never run these statements."""
    query = (
        "SELECT 1 FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND query ~ 'messages_app_purgedmonth|messages_app_sessiontombstone|DETACH PARTITION|DELETE FROM'"
    )
    return connection.execute(query).fetchone() is not None
