"""Finished chains on the disk: a folder with one JSON document for each of the newest, readable by its owner only.

A worker thread writes them, so that a slow disk does not delay the agent. A file is written completely or not at all.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tracesite_sdk.recorder.delivery import ending
from tracesite_sdk.recorder.guard import Guard, logger

Document = Callable[[], dict[str, Any]]

_NAME = re.compile(r"(chain-\d+)\.json")
_MOST_WAITING = 10_000
_LEFT_OVER_SECONDS = 3600


class ChainFiles:
    """The files of one folder, which processes may share. Each process removes all but the newest `most` files."""

    def __init__(self, folder: str | os.PathLike[str], *, most: int, guard: Guard) -> None:
        if most < 1:
            raise ValueError(f"ToolCallChainTracker.most_files: expected at least 1, not {most!r}.")
        self.folder = Path(folder)
        self.guard = guard
        self.dropped = 0
        """Chains that were not written, because the disk was too slow or failed."""
        self._most = most
        self._begin()
        ending.watch(self)

    def _begin(self) -> None:
        self._waiting: deque[tuple[str, Document]] = deque()
        self._wake = threading.Event()
        self._writing = threading.RLock()
        self._worker: threading.Thread | None = None
        self._closed = False

    def put(self, chain_id: str, document: Document) -> None:
        """Queue a chain for writing. Does not block."""
        if self._closed or len(self._waiting) >= _MOST_WAITING:
            self.dropped += 1
            return
        self._waiting.append((chain_id, document))
        self._wake.set()
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="tracesite-chains", daemon=True)
            self._worker.start()

    def flush(self, timeout: float) -> int:
        """Block until all is written, at most `timeout` seconds. Return how many chains are not."""
        deadline = time.monotonic() + timeout
        if self._writing.acquire(timeout=max(0.0, timeout)):
            try:
                while self._waiting and time.monotonic() < deadline:
                    self._write_next()
            finally:
                self._writing.release()
        return len(self._waiting)

    def close(self, timeout: float) -> int:
        """Flush, and write nothing afterwards. May be called again."""
        self._closed = True
        ending.forget(self)
        left = self.flush(timeout)
        self._wake.set()
        return left

    def close_at_exit(self, began: float) -> int:
        """Close at the end of the process, which began at `began` on the monotonic clock; called by ending.py."""
        return self.close(max(0.0, began + ending.IDLE_AT_EXIT - time.monotonic()))

    def after_fork(self) -> None:
        """In the child: start with an empty queue, because the parent writes its own chains."""
        self._begin()

    def read(self, chain_id: str) -> dict[str, Any] | None:
        """Return the document of a chain, or None if there is none. Raises OSError, and msgspec.DecodeError for a damaged
        file."""
        if not _NAME.fullmatch(f"{chain_id}.json"):
            return None
        try:
            written = (self.folder / f"{chain_id}.json").read_bytes()
        except FileNotFoundError:
            return None
        chain: dict[str, Any] = msgspec.json.decode(written, type=dict[str, Any])
        return chain

    def read_all(self) -> Iterator[dict[str, Any]]:
        """Yield all documents, the oldest first. Raises as `read` does."""
        for name in self._names():
            chain = self.read(name.removesuffix(".json"))
            if chain is not None:
                yield chain

    # --- On the worker ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._closed:
            self._wake.wait()
            self._wake.clear()
            with self._writing:
                while self._waiting:
                    self._write_next()

    def _write_next(self) -> None:
        with self.guard.around(self._lost):
            chain_id, document = self._waiting.popleft()
            self._write(chain_id, document())

    def _lost(self) -> None:
        self.dropped += 1

    def _write(self, chain_id: str, document: dict[str, Any]) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.folder / f".{chain_id}.{os.getpid()}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(document))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / f"{chain_id}.json")
        for name in self._names()[: -self._most]:
            (self.folder / name).unlink(missing_ok=True)
        self._remove_left_over()

    def _names(self) -> list[str]:
        """Return the file names of all chains, the oldest first, because their ids are times."""
        if not self.folder.is_dir():
            return []
        names = [name for name in os.listdir(self.folder) if _NAME.fullmatch(name)]
        return sorted(names, key=lambda name: (len(name), name))

    def _remove_left_over(self) -> None:
        """Remove temporary files of processes that died while writing."""
        for path in self.folder.glob(".chain-*.new"):
            try:
                if time.time() - path.stat().st_mtime > _LEFT_OVER_SECONDS:
                    path.unlink()
            except FileNotFoundError:
                logger.debug("Another process removed the file first.")
