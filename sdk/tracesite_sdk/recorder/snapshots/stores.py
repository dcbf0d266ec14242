"""Stores of snapshots: the interface, in memory, and in a local SQLite file.

The parts of a context belong to its session, so that purging a session removes all of its contents. A session's `generation`
counts its purges: `put` refuses parts that rely on others from before a purge.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from .parts import Note, Snapshot


class SessionWasPurged(LookupError):
    """The session was purged after the caller had read its state."""


@dataclass(frozen=True)
class State:
    """The sums of a session."""

    generation: int = 0
    """The number of times that it was purged."""
    size: int = 0
    """Bytes of its parts."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Snapshots that were not kept, by reason."""


@dataclass(frozen=True, kw_only=True)
class Fork:
    """A session that replayed a node of another one."""

    session_id: str
    """The session of the replay."""
    source: str
    """The session that was replayed. It is never changed."""
    node_id: str
    snapshot_id: str
    ts: int
    """The time of the snapshot: nanoseconds since 1970, UTC."""
    overrides: Mapping[str, Any]
    nodes: Mapping[str, str]
    """Snapshots of nodes that the fork takes from its source, by node id."""
    pruned: tuple[str, ...] = ()
    """Nodes whose context the replay made invalid."""

    def as_json(self) -> dict[str, Any]:
        """Return the form of `forked_from` in the metadata of a session."""
        return {
            "session": self.source,
            "node": self.node_id,
            "snapshot": self.snapshot_id,
            "ts": self.ts,
            "overrides": dict(self.overrides),
        }


class SnapshotStore(Protocol):
    """Keeps snapshots, their parts, and forks. Threads may share a store."""

    def state(self, session_id: str) -> State:
        """Return the sums of a session; zeros for an unknown one."""

    def put(self, snapshot: Snapshot, parts: Mapping[str, bytes], generation: int) -> None:
        """Keep a snapshot and its new parts, all or nothing. Raises SessionWasPurged if the generation is another by now."""

    def leave_out(self, session_id: str, reason: str) -> None:
        """Count a snapshot that is not kept."""

    def snapshots(self, session_id: str) -> list[Snapshot]:
        """Return the snapshots of a session, the oldest first."""

    def snapshot(self, snapshot_id: str) -> Snapshot | None:
        """Return a snapshot by its id."""

    def latest(self, session_id: str, node_id: str) -> Snapshot | None:
        """Return the latest snapshot of the session whose nodes include this one."""

    def parts(self, session_id: str, refs: Sequence[str]) -> dict[str, bytes]:
        """Return the parts that there are."""

    def put_fork(self, fork: Fork) -> None:
        """Keep a fork, or replace it."""

    def fork(self, session_id: str) -> Fork | None:
        """Return the fork that made this session, or None."""

    def forks(self, source: str) -> list[Fork]:
        """Return the forks of a session, the oldest first."""

    def purge(self, session_id: str) -> None:
        """Remove the contents of a session's snapshots. Their index stays, marked as purged."""

    def close(self) -> None:
        """Release files."""

    def after_fork(self) -> None:
        """In a child process, before any other method: forget the files and locks of the parent."""


@dataclass
class _Session:
    generation: int = 0
    size: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)
    latest: dict[str, int] = field(default_factory=dict)
    """Places in `snapshots` by node id."""
    parts: dict[str, bytes] = field(default_factory=dict)


class MemoryStore:
    """Keeps snapshots in memory: at most `max_bytes` of contents, and the index of at most `max_sessions` sessions. Beyond it
    the sessions that were not used for the longest time are purged; a single session is limited by `Snapshots.session_bytes`."""

    def __init__(self, max_bytes: int = 256 * 2**20, max_sessions: int = 10_000) -> None:
        self._max_bytes = max_bytes
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._by_id: dict[str, Snapshot] = {}
        self._forks: dict[str, Fork] = {}
        self._bytes = 0
        self._lock = threading.RLock()

    def state(self, session_id: str) -> State:
        with self._lock:
            session = self._sessions.get(session_id)
            return State() if session is None else State(session.generation, session.size, dict(session.left_out))

    def put(self, snapshot: Snapshot, parts: Mapping[str, bytes], generation: int) -> None:
        with self._lock:
            session = self._used(snapshot.session_id)
            if session.generation != generation:
                raise SessionWasPurged(snapshot.session_id)
            new = {ref: part for ref, part in parts.items() if ref not in session.parts}
            added = sum(map(len, new.values()))
            session.parts |= new
            session.size += added
            self._bytes += added
            session.latest.update(dict.fromkeys(snapshot.node_ids, len(session.snapshots)))
            session.snapshots.append(snapshot)
            self._by_id[snapshot.id] = snapshot
            self._make_room()

    def leave_out(self, session_id: str, reason: str) -> None:
        with self._lock:
            left_out = self._used(session_id).left_out
            left_out[reason] = left_out.get(reason, 0) + 1

    def snapshots(self, session_id: str) -> list[Snapshot]:
        with self._lock:
            session = self._sessions.get(session_id)
            return [] if session is None else list(session.snapshots)

    def snapshot(self, snapshot_id: str) -> Snapshot | None:
        with self._lock:
            return self._by_id.get(snapshot_id)

    def latest(self, session_id: str, node_id: str) -> Snapshot | None:
        with self._lock:
            session = self._sessions.get(session_id)
            index = None if session is None else session.latest.get(node_id)
            return None if session is None or index is None else session.snapshots[index]

    def parts(self, session_id: str, refs: Sequence[str]) -> dict[str, bytes]:
        with self._lock:
            if session_id not in self._sessions:
                return {}
            parts = self._used(session_id).parts
            return {ref: parts[ref] for ref in refs if ref in parts}

    def put_fork(self, fork: Fork) -> None:
        with self._lock:
            self._forks[fork.session_id] = fork

    def fork(self, session_id: str) -> Fork | None:
        with self._lock:
            return self._forks.get(session_id)

    def forks(self, source: str) -> list[Fork]:
        with self._lock:
            return [fork for fork in self._forks.values() if fork.source == source]

    def purge(self, session_id: str) -> None:
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return
            self._bytes -= session.size
            session.generation += 1
            session.size, session.parts = 0, {}
            session.snapshots = [replace(snapshot, is_purged=True) for snapshot in session.snapshots]
            self._by_id.update((snapshot.id, snapshot) for snapshot in session.snapshots)

    def close(self) -> None:
        pass

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    def _used(self, session_id: str) -> _Session:
        session = self._sessions.setdefault(session_id, _Session())
        self._sessions.move_to_end(session_id)
        return session

    def _make_room(self) -> None:
        for session_id in list(self._sessions)[:-1]:
            if self._bytes <= self._max_bytes:
                break
            self.purge(session_id)
        while len(self._sessions) > self._max_sessions:
            session_id, session = self._sessions.popitem(last=False)
            self._bytes -= session.size
            self._forks.pop(session_id, None)
            for snapshot in session.snapshots:
                self._by_id.pop(snapshot.id, None)


_TABLES = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, generation INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS left_out (
    session_id TEXT, reason TEXT, count INTEGER NOT NULL, PRIMARY KEY (session_id, reason)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS snapshots (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, ts INTEGER NOT NULL,
    node_ids TEXT NOT NULL, context_ref TEXT NOT NULL, notes TEXT NOT NULL, redactions TEXT NOT NULL,
    is_purged INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS snapshots_of_session ON snapshots (session_id, number);
CREATE TABLE IF NOT EXISTS latest (
    session_id TEXT, node_id TEXT, number INTEGER NOT NULL, PRIMARY KEY (session_id, node_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS packs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, refs TEXT NOT NULL, content BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS packs_of_session ON packs (session_id, number);
CREATE TABLE IF NOT EXISTS forks (
    number INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, source TEXT NOT NULL, content TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS forks_of_source ON forks (source, number);
"""
_MOST_SESSIONS = 100
"""Sessions whose parts are known by name."""
_COLUMNS = "snapshots.id, snapshots.session_id, ts, node_ids, context_ref, notes, redactions, is_purged"


@dataclass
class _Packs:
    """The parts of a session in the file, as far as this process knows them."""

    generation: int
    of_refs: dict[str, int] = field(default_factory=dict)
    """Numbers of packs by the names of their parts."""
    newest: int = 0


class SqliteStore:
    """Keeps snapshots in a SQLite file, readable by its owner only. Processes may share it.

    The new parts of a snapshot are one row, a pack: rows of 2 KB each would fill half of a page. A part that another process has
    stored in the meantime is stored twice.

    A snapshot is one transaction: after a kill -9 it is whole or absent. After a power cut the newest ones may be absent.
    Methods raise sqlite3.Error if the file cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = None
        self._of_parents: list[sqlite3.Connection | None] = []
        self._packs: OrderedDict[str, _Packs] = OrderedDict()
        self._last: tuple[int, dict[str, msgspec.Raw]] = (0, {})
        """The pack that was read last: a snapshot's parts are read one by one."""
        with self._transaction():
            pass

    def state(self, session_id: str) -> State:
        with self._transaction(writes=False) as connection:
            row = connection.execute("SELECT generation, bytes FROM sessions WHERE id = ?", [session_id]).fetchone()
            left_out = connection.execute("SELECT reason, count FROM left_out WHERE session_id = ?", [session_id])
            generation, size = row or (0, 0)
            return State(generation, size, dict(left_out))

    def put(self, snapshot: Snapshot, parts: Mapping[str, bytes], generation: int) -> None:
        session_id = snapshot.session_id
        with self._transaction() as connection:
            row = connection.execute("SELECT generation FROM sessions WHERE id = ?", [session_id]).fetchone()
            if row is None:
                connection.execute("INSERT INTO sessions (id) VALUES (?)", [session_id])
            if generation != (row or (0,))[0]:
                raise SessionWasPurged(session_id)
            known = self._packs_of(connection, session_id, generation)
            new = {ref: msgspec.Raw(content) for ref, content in parts.items() if ref not in known.of_refs}
            pack: int | None = None
            if new:
                pack = connection.execute(
                    "INSERT INTO packs (session_id, refs, content) VALUES (?, ?, ?)",
                    [session_id, " ".join(new), msgspec.json.encode(new)],
                ).lastrowid
            added = sum(len(parts[ref]) for ref in new)
            number = connection.execute(
                "INSERT INTO snapshots (id, session_id, ts, node_ids, context_ref, notes, redactions)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    snapshot.id,
                    session_id,
                    snapshot.ts,
                    _json(snapshot.node_ids),
                    snapshot.context_ref,
                    _json(snapshot.notes),
                    _json(snapshot.redactions),
                ],
            ).lastrowid
            connection.executemany(
                "INSERT OR REPLACE INTO latest VALUES (?, ?, ?)",
                [(session_id, node_id, number) for node_id in snapshot.node_ids],
            )
            connection.execute("UPDATE sessions SET bytes = bytes + ? WHERE id = ?", [added, session_id])
        # Not before the transaction has ended.
        if pack is not None:
            known.of_refs.update(dict.fromkeys(new, pack))

    def leave_out(self, session_id: str, reason: str) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO left_out VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
                [session_id, reason],
            )

    def snapshots(self, session_id: str) -> list[Snapshot]:
        return self._select("WHERE session_id = ? ORDER BY number", session_id)

    def snapshot(self, snapshot_id: str) -> Snapshot | None:
        return next(iter(self._select("WHERE id = ?", snapshot_id)), None)

    def latest(self, session_id: str, node_id: str) -> Snapshot | None:
        joined = "JOIN latest USING (number) WHERE latest.session_id = ? AND latest.node_id = ?"
        return next(iter(self._select(joined, session_id, node_id)), None)

    def parts(self, session_id: str, refs: Sequence[str]) -> dict[str, bytes]:
        with self._transaction(writes=False) as connection:
            row = connection.execute("SELECT generation FROM sessions WHERE id = ?", [session_id]).fetchone()
            known = self._packs_of(connection, session_id, (row or (0,))[0])
            if not known.of_refs.keys() >= set(refs):
                self._read_names(connection, session_id, known)
            contents: dict[str, bytes] = {}
            for ref in refs:
                number = known.of_refs.get(ref)
                if number is not None:
                    contents[ref] = bytes(self._pack(connection, number)[ref])
            return contents

    def put_fork(self, fork: Fork) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO forks (session_id, source, content) VALUES (?, ?, ?)"
                " ON CONFLICT (session_id) DO UPDATE SET content = excluded.content",
                [fork.session_id, fork.source, _json(fork)],
            )

    def fork(self, session_id: str) -> Fork | None:
        return next(iter(self._forks("session_id = ?", session_id)), None)

    def forks(self, source: str) -> list[Fork]:
        return self._forks("source = ?", source)

    def purge(self, session_id: str) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM packs WHERE session_id = ?", [session_id])
            connection.execute("UPDATE snapshots SET is_purged = 1 WHERE session_id = ?", [session_id])
            connection.execute("UPDATE sessions SET generation = generation + 1, bytes = 0 WHERE id = ?", [session_id])

    def close(self) -> None:
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._open = None

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        # Kept, because closing it would end the parent's locks on the file.
        self._of_parents.append(self._open)
        self._open = None

    def _packs_of(self, connection: sqlite3.Connection, session_id: str, generation: int) -> _Packs:
        """Return the parts of a session that this process knows; the first time, all."""
        known = self._packs.get(session_id)
        if known is None or known.generation != generation:
            known = self._packs[session_id] = _Packs(generation)
            self._last = (0, {})
            self._read_names(connection, session_id, known)
            if len(self._packs) > _MOST_SESSIONS:
                self._packs.popitem(last=False)
        self._packs.move_to_end(session_id)
        return known

    def _read_names(self, connection: sqlite3.Connection, session_id: str, known: _Packs) -> None:
        rows = connection.execute(
            "SELECT number, refs FROM packs WHERE session_id = ? AND number > ? ORDER BY number",
            [session_id, known.newest],
        )
        for number, refs in rows:
            known.newest = number
            for ref in refs.split():
                known.of_refs.setdefault(ref, number)

    def _pack(self, connection: sqlite3.Connection, number: int) -> dict[str, msgspec.Raw]:
        if self._last[0] != number:
            (content,) = connection.execute("SELECT content FROM packs WHERE number = ?", [number]).fetchone()
            self._last = number, msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        return self._last[1]

    def _select(self, where: str, *parameters: str) -> list[Snapshot]:
        with self._transaction(writes=False) as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM snapshots {where}", parameters).fetchall()  # noqa: S608
        return [
            Snapshot(
                id=id_,
                session_id=session_id,
                ts=ts,
                node_ids=tuple(msgspec.json.decode(node_ids)),
                context_ref=context_ref,
                notes=tuple(Note(*note) for note in msgspec.json.decode(notes)),
                redactions=tuple(msgspec.json.decode(redactions)),
                is_purged=bool(is_purged),
            )
            for id_, session_id, ts, node_ids, context_ref, notes, redactions, is_purged in rows
        ]

    def _forks(self, where: str, parameter: str) -> list[Fork]:
        with self._transaction(writes=False) as connection:
            rows = connection.execute(f"SELECT content FROM forks WHERE {where} ORDER BY number", [parameter])  # noqa: S608
            return [msgspec.json.decode(content, type=Fork) for (content,) in rows]

    @contextmanager
    def _transaction(self, *, writes: bool = True) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._open is None:
                self._open = self._connection()
            connection = self._open
            # IMMEDIATE: a transaction that reads first and writes later could fail while another process writes.
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            with connection:
                yield connection

    def _connection(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.executescript(_TABLES)
        return connection


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
