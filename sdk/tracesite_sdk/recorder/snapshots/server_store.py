"""The store of snapshots on a Tracesite server.

    recorder = Recorder(snapshots=Snapshots(ServerStore()))      # TRACESITE_URL and TRACESITE_KEY

A snapshot is one request, in the thread that takes it: an agent that must not wait uses SqliteStore. After the server did not
respond, snapshots are left out for PAUSE_SECONDS, so that the agent does not wait for each of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from tracesite_sdk.recorder.delivery.transport import Answer, NoAnswer, Server

from .parts import Note, Snapshot
from .stores import Fork, SessionWasPurged, State

PAUSE_SECONDS = 30.0
_SECONDS = 10.0
_MOST_CACHED = 64 * 2**20
_MOST_SESSIONS = 1_000
_PER_PAGE = 200


class StoreFailed(RuntimeError):
    """The server did not respond, or refused the request."""


class Connection(Protocol):
    """The methods of `Server` that the store needs."""

    def get(self, path: str) -> Answer: ...
    def post(self, path: str, body: bytes, media_type: str) -> Answer: ...
    def delete(self, path: str) -> Answer: ...


class _Error(msgspec.Struct):
    code: str
    message: str


class _ErrorAnswer(msgspec.Struct):
    error: _Error


class _Parts(msgspec.Struct):
    parts: dict[str, msgspec.Raw]


class ServerStore:
    """Keeps snapshots on a server, with a key that may read and write (`purge`: delete). Sessions are made there when their
    first snapshot arrives. Methods raise StoreFailed."""

    def __init__(self, url: str | None = None, key: str | None = None, *, connection: Connection | None = None) -> None:
        """`url`, `key`: by default TRACESITE_URL and TRACESITE_KEY. Raises ValueError if they are missing or invalid."""
        if connection is None:
            url, key = url or os.environ.get("TRACESITE_URL", ""), key or os.environ.get("TRACESITE_KEY", "")
            connection = Server(url.strip(), key.strip(), connect_timeout=_SECONDS, read_timeout=_SECONDS)
        self._connection = connection
        self._lock = threading.RLock()
        self._ids: OrderedDict[str, str] = OrderedDict()
        """Ids of sessions by external id."""
        self._left_out: dict[str, Counter[str]] = {}
        """Counts that are not sent yet."""
        self._parts: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._cached = 0
        self._paused_until = 0.0

    def state(self, session_id: str) -> State:
        with self._lock:
            if self._left_out.get(session_id):
                self._send(session_id)
            session = self._session(session_id, "snapshot_sums")
            sums = (session or {}).get("snapshot_sums")
            return State() if sums is None else State(sums["generation"], sums["bytes"], sums["left_out"])

    def put(self, snapshot: Snapshot, parts: Mapping[str, bytes], generation: int) -> None:
        self._send(snapshot.session_id, **snapshot_entry(snapshot, parts, generation))

    def leave_out(self, session_id: str, reason: str) -> None:
        with self._lock:
            # With the next snapshot: a request for each would cost more than to keep it.
            self._left_out.setdefault(session_id, Counter())[reason] += 1

    def snapshots(self, session_id: str) -> list[Snapshot]:
        return self._pages(session_id, f"snapshots/?order=asc&limit={_PER_PAGE}", self._snapshot)

    def snapshot(self, snapshot_id: str) -> Snapshot | None:
        document = self._get(f"snapshots/{quote(snapshot_id, safe='')}/")
        if document is None:
            return None
        # None if the session was deleted a moment ago.
        session = self._get(f"sessions/{document['session_id']}/?fields=external_id")
        return None if session is None else self._snapshot(session["external_id"], document)

    def latest(self, session_id: str, node_id: str) -> Snapshot | None:
        page = self._of_session(session_id, f"snapshots/?limit=1&node={quote(node_id, safe='')}")
        entry = next(iter(page["results"]), None) if page else None
        return None if entry is None else self._snapshot(session_id, entry)

    def parts(self, session_id: str, refs: Sequence[str]) -> dict[str, bytes]:
        with self._lock:
            missing = [ref for ref in refs if (session_id, ref) not in self._parts]
            if missing and (key := self._id_of(session_id)) is not None:
                body = self._ask("GET", f"sessions/{key}/snapshots/parts/?refs={','.join(missing)}")
                for ref, content in msgspec.json.decode(body, type=_Parts).parts.items() if body else ():
                    self._cache((session_id, ref), bytes(content))
            return {ref: self._parts[session_id, ref] for ref in refs if (session_id, ref) in self._parts}

    def put_fork(self, fork: Fork) -> None:
        self._send(fork.session_id, **fork_entry(fork))

    def fork(self, session_id: str) -> Fork | None:
        session = self._session(session_id, "forked_from")
        of = (session or {}).get("forked_from")
        return None if of is None else _fork(session_id, of)

    def forks(self, source: str) -> list[Fork]:
        return self._pages(
            source,
            f"forks/?order=asc&limit={_PER_PAGE}",
            lambda _session_id, entry: _fork(entry["external_id"], entry["forked_from"]),
        )

    def purge(self, session_id: str) -> None:
        with self._lock:
            self._parts.clear()
            self._cached = 0
            if (key := self._id_of(session_id)) is not None:
                self._ask("DELETE", f"sessions/{key}/snapshots/")

    def close(self) -> None:
        with self._lock:
            if isinstance(self._connection, Server):
                self._connection.close()

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        if isinstance(self._connection, Server):
            self._connection.after_fork()

    # --- Inside -----------------------------------------------------------------------------------------------------

    def _send(self, session_id: str, **fields: Any) -> None:
        with self._lock:
            left_out = self._left_out.pop(session_id, Counter())
            body = msgspec.json.encode({"session_id": session_id, "left_out": left_out, **fields})
            try:
                answer = self._ask("POST", "snapshots/", body)
            except (StoreFailed, SessionWasPurged):
                self._left_out[session_id] = left_out
                raise
            self._keep_id(session_id, msgspec.json.decode(answer)["session_id"])

    def _snapshot(self, session_id: str, entry: Mapping[str, Any]) -> Snapshot:
        return Snapshot(
            id=entry["external_id"],
            session_id=session_id,
            ts=entry["ts"],
            node_ids=tuple(entry["node_ids"]),
            context_ref=entry["context_ref"],
            notes=tuple(Note(**note) for note in entry["notes"]),
            redactions=tuple(entry["redactions"]),
            is_purged=entry["is_purged"],
        )

    def _session(self, session_id: str, fields: str) -> dict[str, Any] | None:
        session: dict[str, Any] | None = self._of_session(session_id, f"?fields={fields}")
        return session

    def _pages(self, session_id: str, path: str, made: Any) -> list[Any]:
        entries = []
        cursor = ""
        while page := self._of_session(session_id, f"{path}{cursor}"):
            entries += [made(session_id, entry) for entry in page["results"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        return entries

    def _of_session(self, session_id: str, path: str) -> Any:
        with self._lock:
            key = self._id_of(session_id)
            return None if key is None else self._get(f"sessions/{key}/{path}")

    def _id_of(self, session_id: str) -> str | None:
        """Return the id of a session: an external id may hold characters that no path can have."""
        if session_id not in self._ids:
            page = self._get(f"sessions/?fields=id&limit=1&external_id={quote(session_id, safe='')}")
            if not page or not page["results"]:
                return None
            self._keep_id(session_id, page["results"][0]["id"])
        return self._ids[session_id]

    def _keep_id(self, session_id: str, key: str) -> None:
        self._ids[session_id] = key
        if len(self._ids) > _MOST_SESSIONS:
            self._ids.popitem(last=False)

    def _cache(self, key: tuple[str, str], content: bytes) -> None:
        self._cached += len(content) - len(self._parts.get(key, b""))
        self._parts[key] = content
        while self._cached > _MOST_CACHED and len(self._parts) > 1:
            self._cached -= len(self._parts.popitem(last=False)[1])

    def _get(self, path: str) -> Any:
        body = self._ask("GET", path)
        return None if body is None else msgspec.json.decode(body)

    def _ask(self, method: str, path: str, body: bytes = b"") -> Any:
        """Return the body of the response; None for 404."""
        with self._lock:
            if time.monotonic() < self._paused_until:
                raise StoreFailed("The server did not respond a moment ago.")
            try:
                if method == "GET":
                    answer = self._connection.get(f"/api/v1/{path}")
                elif method == "DELETE":
                    answer = self._connection.delete(f"/api/v1/{path}")
                else:
                    answer = self._connection.post(f"/api/v1/{path}", body, "application/json")
            except NoAnswer as error:
                self._paused_until = time.monotonic() + PAUSE_SECONDS
                raise StoreFailed(f"The server did not respond: {error}.") from error
        if answer.status < 300:
            return answer.body
        if answer.status == 404:
            return None
        try:
            refused = msgspec.json.decode(answer.body, type=_ErrorAnswer).error
        except msgspec.DecodeError as error:
            raise StoreFailed(f"The server responded with {answer.status}.") from error
        if refused.code in ("snapshots_purged", "parts_missing"):
            raise SessionWasPurged(refused.message)
        raise StoreFailed(f"The server responded with {answer.status}: {refused.message}")


def snapshot_entry(snapshot: Snapshot, parts: Mapping[str, bytes], generation: int) -> dict[str, Any]:
    """Return the fields of a request that stores a snapshot, besides `session_id`."""
    entry = {
        "id": snapshot.id,
        "ts": snapshot.ts,
        "node_ids": snapshot.node_ids,
        "context_ref": snapshot.context_ref,
        "notes": [note._asdict() for note in snapshot.notes],
        "redactions": snapshot.redactions,
    }
    raw = {ref: msgspec.Raw(content) for ref, content in parts.items()}
    return {"snapshot": entry, "parts": raw, "generation": generation}


def fork_entry(fork: Fork) -> dict[str, Any]:
    """Return the fields of a request that stores a fork, besides `session_id`."""
    return {"fork": {**fork.as_json(), "nodes": fork.nodes, "pruned": fork.pruned}}


def _fork(session_id: str, of: Mapping[str, Any]) -> Fork:
    return Fork(
        session_id=session_id,
        source=of["session"],
        node_id=of["node"],
        snapshot_id=of["snapshot"],
        ts=of["ts"] or 0,
        overrides=of["overrides"],
        nodes=of["nodes"],
        pruned=tuple(of["pruned"]),
    )
