"""Watch the replica, so that no request waits for one that is gone or reads what is too old. See docs/scaling.md.

A thread in each process that serves asks the primary and then the replica, each second, how far they are. Positions are those of the
write-ahead log (LSN). The time by which the replica lags follows from the positions that the primary had: it needs no clocks
that agree, and does not grow while nothing is written.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import Any, Literal

import psycopg
from django.db import connections
from msgspec import Struct

from access_app.conf import conf

from . import PRIMARY, REPLICA, Database
from .base import DatabaseWrapper
from .direct import connection_parameters

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
ANSWER_SECONDS = 2
"""How long a check waits for a connection; 2 is the least that libpq takes."""
STARTING_SECONDS = 3.0
"""How long to wait for the first check."""
FRESH_SECONDS = 4.0
"""A check that is older says nothing: the replica, or the primary, does not answer the next one."""

Reason = Literal["", "away", "lagging", "not_a_replica", "primary_away"]
Place = tuple[str, str]
"""The host, or the directory of a socket, and the port."""


class ReplicaState(Struct, frozen=True, kw_only=True):
    """The result of the last check of the replica."""

    reason: Reason
    """Why the replica answers no reads; "" if it does."""
    at: float
    """The time by the monotonic clock."""
    lag_seconds: float | None = None
    """The most that it may be behind the primary; None if that is not known."""
    replayed: int = 0
    """The position up to which its data is that of the primary."""
    place: Place = ("", "")
    opened: int = 0
    """The number of the connection that was checked. Connections from before may lead to another server."""


def replica_state(*, wait_seconds: float = 0.0) -> ReplicaState | None:
    """Return what is known of the replica; None without one.

    The first call of a process starts its watch: it waits up to `wait_seconds` for the first check.
    """
    if REPLICA not in connections.settings:
        return None
    watch = _watch_of_process()
    watch.checked.wait(wait_seconds)
    state = watch.state
    if state.reason == "" and time.monotonic() - state.at > FRESH_SECONDS:
        return ReplicaState(reason="away", at=state.at)
    return state


def usable_replica(written: int = 0) -> bool:
    """Return whether reads may go to the replica, which has everything up to the position `written`.

    The connection of this thread then leads to the server that was checked.
    """
    state = replica_state()
    if state is None or state.reason or state.replayed < written:
        return False
    connection: Any = connections[REPLICA]
    assert isinstance(connection, DatabaseWrapper), "the settings give all databases the same backend"
    if connection.place != (state.place, state.opened):
        connection.close()
        connection.place = (state.place, state.opened)
    return True


def note_failure() -> None:
    """Leave the replica out until the next check, because a read failed there."""
    watch = _watch_of_process()
    watch.state = ReplicaState(reason="away", at=time.monotonic())


def written_position() -> int:
    """Return the position up to which the primary has written, which covers all that was committed before."""
    with connections[PRIMARY].cursor() as cursor:
        cursor.execute("SELECT (pg_current_wal_lsn() - '0/0')::bigint")
        (position,) = cursor.fetchone()
    return int(position)


class Watch:
    """The thread that checks, with connections of its own, and what it found last."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.checked = threading.Event()
        self.state = ReplicaState(reason="away", at=time.monotonic())
        self._positions: deque[tuple[float, int]] = deque(maxlen=int(conf.REPLICA_MAX_LAG_SECONDS / CHECK_SECONDS) + 2)
        self._primary: psycopg.Connection[Any] | None = None
        self._replica: psycopg.Connection[Any] | None = None
        self._opened = 0

    def run(self) -> None:
        while True:
            before, self.state = self.state.reason, self.check()
            if before != self.state.reason or not self.checked.is_set():
                log = logger.warning if self.state.reason else logger.info
                log("reads go to the %s", f"primary: replica {self.state.reason}" if self.state.reason else "replica")
            self.checked.set()
            time.sleep(CHECK_SECONDS)

    def check(self) -> ReplicaState:
        asked_at = time.monotonic()
        try:
            if self._primary is None:
                self._primary = _connect(PRIMARY)
            written = self._primary.execute("SELECT (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
        except psycopg.Error:
            self._close(self._primary)
            self._primary = None
            return ReplicaState(reason="primary_away", at=asked_at)
        assert written is not None
        self._positions.append((asked_at, written[0]))
        try:
            if self._replica is None:
                self._replica = _connect(REPLICA)
                self._opened += 1
            found = self._replica.execute(
                "SELECT pg_is_in_recovery(), (pg_last_wal_replay_lsn() - '0/0')::bigint"
            ).fetchone()
        except psycopg.Error:
            self._close(self._replica)
            self._replica = None
            return ReplicaState(reason="away", at=asked_at)
        assert found is not None
        is_replica, replayed = found
        if not is_replica or replayed is None:
            # It was promoted, say. Of several hosts in the URL, another may be a replica by now.
            self._close(self._replica)
            self._replica = None
            return ReplicaState(reason="not_a_replica", at=asked_at)
        lag = next((asked_at - at for at, position in reversed(self._positions) if position <= replayed), None)
        info = self._replica.info
        return ReplicaState(
            reason="" if lag is not None and lag <= conf.REPLICA_MAX_LAG_SECONDS else "lagging",
            at=asked_at,
            lag_seconds=lag,
            replayed=replayed,
            place=(info.host, str(info.port)),
            opened=self._opened,
        )

    def _close(self, connection: psycopg.Connection[Any] | None) -> None:
        if connection is not None:
            connection.close()


_watch: Watch | None = None
_starting = threading.Lock()


def _watch_of_process() -> Watch:
    """Return the watch, started: not at import, because a fork has none of its parent's threads."""
    global _watch
    watch = _watch
    if watch is not None and watch.process == os.getpid():
        return watch
    with _starting:
        if _watch is None or _watch.process != os.getpid():
            _watch = Watch()
            threading.Thread(target=_watch.run, name="watch the replica", daemon=True).start()
        return _watch


def _connect(alias: str) -> psycopg.Connection[Any]:
    limits = {"connect_timeout": ANSWER_SECONDS, "tcp_user_timeout": ANSWER_SECONDS * 1000}
    parameters = {**connection_parameters(Database(alias)), **limits, "application_name": "tracesite replica check"}
    return psycopg.connect(**parameters, autocommit=True)
