"""Store callback messages of Eko: map them to events, given the stored steps of their tasks, and record those."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.masking import masking_of
from traces_app.events.batch import EventOutcome
from traces_app.events.decode import check_sessions, event_from
from traces_app.events.store import record_events, take_turns
from tracesite_sdk.eko.callbacks import Nodes, events_of, task_named
from tracesite_sdk.normalize.redacted import RedactedEvent, redact_event
from tracesite_sdk.records import pg_text

_STEPS = """
    SELECT event.agent, event.external_id, event.data ->> 'step', event.type = 'tool_call_start' FROM traces_app_event AS event
    JOIN messages_app_session AS session ON session.id = event.session_id
    WHERE session.project_id = %s AND session.external_id = %s AND event.data ->> 'step' IS NOT NULL ORDER BY event.seq
    """


@dataclass(frozen=True, kw_only=True)
class CallbackOutcome:
    """The outcome of a batch of callback messages."""

    events: list[EventOutcome]
    places: list[int]
    """For each event, the index of its message in the batch."""
    ignored: int
    """The number of messages that are not events."""


def record_callbacks(db: Database, project_id: int, messages: Sequence[Any]) -> CallbackOutcome:
    """Store the events of the messages in one transaction. Raise InvalidInput for anything but a callback message."""
    tasks: list[str] = []
    for index, message in enumerate(messages):
        task = task_named(message)
        if task is None:
            raise InvalidInput(
                _("Invalid Eko callback message. Expected an object with type, taskId and agentName."),
                field=f"messages[{index}]",
            )
        tasks.append(task)
    check_sessions(tasks)
    with db.atomic():
        # Locked, because the meaning of a message depends on those before it.
        take_turns(db, project_id, map(pg_text.text, tasks))
        nodes = {task: _nodes(db, project_id, task) for task in sorted(set(tasks))}
        # Only some messages have times, and these do not order them. They are numbered as they arrive, by the clock that
        # orders events without a number.
        first = time.time_ns()
        rules = masking_of(project_id)
        events: list[RedactedEvent] = []
        places: list[int] = []
        for index, (message, task) in enumerate(zip(messages, tasks, strict=True)):
            for document in _documents(message, nodes[task], f"messages[{index}]"):
                document["number"] = first + len(events)
                events.append(redact_event(event_from(document, f"messages[{index}]"), rules))
                places.append(index)
        outcomes = record_events(db, project_id, events) if events else []
    return CallbackOutcome(events=outcomes, places=places, ignored=len(messages) - len(set(places)))


def _documents(message: Any, nodes: Nodes, path: str) -> list[dict[str, Any]]:
    try:
        return list(events_of(message, nodes))
    except ValueError as error:
        raise InvalidInput(
            _("Expected a time in milliseconds since 1970, between 2000 and tomorrow."), field=f"{path}.timestamp"
        ) from error


def _nodes(db: Database, project_id: int, task: str) -> Nodes:
    nodes = Nodes()
    with db.cursor() as cursor:
        cursor.execute(_STEPS, [project_id, pg_text.text(task)])
        for agent, external_id, step, is_call in cursor.fetchall():
            nodes.remember(agent, external_id, step, is_call=is_call)
    return nodes
