"""The sink for agents that run inside Django: it stores events in the tables of this process's own database.

    from tracesite_sdk import Recorder
    from traces_app.events.database_sink import DatabaseSink

    recorder = Recorder(sink=DatabaseSink("my-project"))

The sink uses a thread and a database connection of its own, because the thread that flushes may be in a transaction that is
rolled back later, or in an event loop, where Django refuses database access. Events that it took are committed. The thread
begins with the first batch and ends, with its connection, when the sink is closed.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

import msgspec
from django.db import DataError, Error, InterfaceError, OperationalError, close_old_connections, connections

from access_app.errors import ApiError, Conflict, NotFound
from access_app.masking import masking_of
from access_app.models import Project
from access_app.request_database import database_of
from traces_app.events.decode import event_from
from traces_app.events.store import record_events
from tracesite_sdk.normalize.redacted import RedactedEvent, redact_event
from tracesite_sdk.recorder.delivery.sinks import Clean, ServerSampling, ServerSettings
from tracesite_sdk.recorder.guard import Guard

logger = logging.getLogger(__name__)

SETTINGS_SECONDS = 30.0
"""Seconds for which the project's settings are cached."""
ATTEMPTS = 3
_PAUSES = (0.05, 0.25)
"""Seconds before the second attempt and the third."""
_PATIENCE_SECONDS = 10.0
"""A batch that takes longer counts as lost, so that no thread of a recorder waits for ever."""
_AT_A_TIME = 500


@dataclass(kw_only=True, eq=False)
class _Task:
    """A function for the thread, and its result or error."""

    work: Callable[[], Any]
    done: Event = field(default_factory=Event)
    result: Any = None
    error: BaseException | None = None

    def failed(self) -> None:
        self.error = sys.exception()


class DatabaseSink:
    """Stores events in the project of this slug, as POST /events/ does; storing them again changes nothing.

    `send` raises database errors after `ATTEMPTS`, NotFound if there is no such project, and TimeoutError after 10 s: the
    recorder then counts the events as lost.
    """

    discards = False

    _thread: Thread | None
    _project_id: int | None
    _settings: ServerSettings | None
    _asked_at: float | None

    def __init__(self, project: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.project = project
        self.refused: Counter[str] = Counter()
        """Events that were not stored, by reason: `message_deleted`, `invalid_input` ..."""
        self._clock = clock
        self._renew()

    def send(self, events: Sequence[Clean]) -> int:
        """Store events. Blocks up to 10 s. Refused events are counted, without affecting others."""
        taken: int = self._do(lambda: self._store(events))
        return taken

    def flush(self, deadline: float) -> int:
        # Events that were taken are committed.
        return 0

    def close(self, deadline: float) -> int:
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._tasks.put(None)
        if thread is not None:
            thread.join(max(0.0, deadline - time.monotonic()))
        return 0

    def after_fork(self) -> None:
        """In the child: start without the parent's thread and connection."""
        self._renew()

    def settings(self) -> ServerSettings | None:
        """Return the project's settings, up to 30 s old, or older if the database fails."""
        now = self._clock()
        if self._asked_at is None or now - self._asked_at >= SETTINGS_SECONDS:
            self._asked_at = now
            try:
                self._settings = self._do(self._ask)
            except (Error, NotFound, TimeoutError):
                logger.warning("The recorder settings of project %s could not be read.", self.project)
        return self._settings

    # --- The thread ---------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        self._lock = Lock()
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread = None
        self._project_id = None
        self._settings = None
        self._asked_at = None

    def _do(self, work: Callable[[], Any]) -> Any:
        task = _Task(work=work)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._tasks = SimpleQueue()
                self._thread = Thread(
                    target=_work, args=(self._tasks,), name="tracesite-recorder-database", daemon=True
                )
                self._thread.start()
            self._tasks.put(task)
        if not task.done.wait(_PATIENCE_SECONDS):
            raise TimeoutError("The database did not respond in time.")
        if task.error is not None:
            raise task.error
        return task.result

    # --- On the thread ------------------------------------------------------------------------------------------------

    def _ask(self) -> ServerSettings:
        asked = _again(lambda: Project.objects.get(pk=self._find_project()).sampling())
        return ServerSettings(sampling=ServerSampling(**asked) if asked else None)

    def _store(self, events: Sequence[Clean]) -> int:
        taken = 0
        for first in range(0, len(events), _AT_A_TIME):
            some = events[first : first + _AT_A_TIME]
            try:
                self._store_at_once(list(self._decoded(some)))
            except Error:
                if not taken:
                    raise
                logger.warning("A part of a batch could not be stored.", exc_info=True)
                break
            taken += len(some)
        return taken

    def _store_at_once(self, events: Sequence[RedactedEvent]) -> None:
        """Store events in one transaction; if it is refused, each half by itself, so that one event does not affect others."""
        if not events:
            return
        try:
            outcomes = _again(lambda: self._record(events))
        except (Conflict, DataError) as error:
            if len(events) == 1:
                self._refuse(error.code if isinstance(error, Conflict) else "invalid_input")
                return
            half = len(events) // 2
            self._store_at_once(events[:half])
            self._store_at_once(events[half:])
            return
        for outcome in outcomes:
            if outcome.refused:
                self._refuse(outcome.refused)

    def _record(self, events: Sequence[RedactedEvent]) -> Any:
        project_id = self._find_project()
        return record_events(database_of(project_id), project_id, events)

    def _decoded(self, events: Sequence[Clean]) -> Iterator[RedactedEvent]:
        rules = _again(lambda: masking_of(self._find_project()))
        for event in events:
            try:
                # Redacted again, because the project may have masking rules of its own.
                yield redact_event(event_from(msgspec.json.decode(event), ""), rules)
            except (ApiError, msgspec.DecodeError) as error:
                self._refuse(error.code if isinstance(error, ApiError) else "invalid_input")

    def _refuse(self, reason: str) -> None:
        if reason not in self.refused:
            logger.warning("An event was refused: %s. Further ones with this reason are only counted.", reason)
        self.refused[reason] += 1

    def _find_project(self) -> int:
        if self._project_id is None:
            project_id = Project.objects.filter(slug=self.project).values_list("pk", flat=True).first()
            if project_id is None:
                raise NotFound(f"There is no project “{self.project}” here.", code="project_not_found")
            self._project_id = project_id
        return self._project_id


def _work(tasks: SimpleQueue[_Task | None]) -> None:
    guard = Guard()
    try:
        while (task := tasks.get()) is not None:
            # An unexpected error goes to the thread that waits, and this one goes on.
            with guard.around(task.failed):
                try:
                    task.result = task.work()
                except (Error, ApiError) as error:
                    task.error = error
            task.done.set()
    finally:
        connections.close_all()


def _again(ask: Callable[[], Any]) -> Any:
    """Return the result of `ask`, retried after a lost connection or a conflict with another transaction."""
    for pause in _PAUSES:
        close_old_connections()
        try:
            return ask()
        except (OperationalError, InterfaceError):
            time.sleep(pause)
    close_old_connections()
    return ask()
