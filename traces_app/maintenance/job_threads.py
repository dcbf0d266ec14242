"""Threads that run jobs and keep their database connections from one run to the next (`JobThreads`).

Short jobs that ran each with a new connection were most of what an idle server cost: a process of PostgreSQL begins without caches, and
plans on partitioned tables take milliseconds then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, LifoQueue, SimpleQueue

from django.db import close_old_connections, connections

A_MOMENT = 0.05
"""Seconds for which a task waits for a thread that is about to be idle, because most tasks are shorter."""
KEPT_SECONDS = 10
"""How long a thread that has nothing to do keeps its connections."""

Task = Callable[[], object]
_Tasks = SimpleQueue[Task | None]
"""The tasks of a thread: one at a time, or None at the end."""


class JobThreads:
    """As many threads as there are tasks at a time; no task waits for one that takes long.

    A task is for the thread that has been idle for the shortest time. So one thread runs all short tasks, with one connection to each
    database, and the others give up theirs.
    """

    def __init__(self) -> None:
        self._idle: LifoQueue[_Tasks] = LifoQueue()
        self._all: list[tuple[threading.Thread, _Tasks]] = []

    def run(self, task: Task) -> None:
        """Run a task in a thread that is idle, or else in a new one. Called by one thread only."""
        try:
            tasks = self._idle.get(timeout=A_MOMENT if self._all else 0)
        except Empty:
            tasks = self._add()
        tasks.put(task)

    def end(self) -> None:
        """Wait until the tasks have ended, and end the threads."""
        for _thread, tasks in self._all:
            tasks.put(None)
        for thread, _tasks in self._all:
            thread.join()

    def _add(self) -> _Tasks:
        tasks: _Tasks = SimpleQueue()
        thread = threading.Thread(target=self._work, args=[tasks], name="job", daemon=True)
        thread.start()
        self._all.append((thread, tasks))
        return tasks

    def _work(self, tasks: _Tasks) -> None:
        try:
            while (task := _next(tasks)) is not None:
                # PostgreSQL may have been restarted since the last task: a connection that is broken is replaced.
                close_old_connections()
                task()
                self._idle.put(tasks)
        finally:
            connections.close_all()


def _next(tasks: _Tasks) -> Task | None:
    """Return the next task of this thread, which closes its connections if that does not come soon."""
    try:
        return tasks.get(timeout=KEPT_SECONDS)
    except Empty:
        connections.close_all()
        return tasks.get()
