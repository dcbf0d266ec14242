"""Read sessions and events for the feeds over a small connection pool, retrying while the database is unavailable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from asgiref.sync import sync_to_async
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from access_app.db import primary
from access_app.db.base import PLANS_FOR_ANY_SIZE, PLANS_FOR_ANY_VALUES
from access_app.db.direct import connection_parameters
from access_app.encryption.envelope import PREFIX, row_bytes
from access_app.encryption.keys import known_keys
from access_app.encryption.reading import Opener
from traces_app.events.feed import AFTER, after, event_of

from .feeds import LiveEvent, SessionState

CONNECTIONS = 3
"""One for new events, the others for the stored events of new subscriptions."""
RETRY_SECONDS = 0.5

_STATES = """
    SELECT id, status, current_phase, input_tokens, output_tokens, duration_ms, message_count, call_count, failure_count,
        last_event
    FROM messages_app_session WHERE id = ANY(%s) AND deleted_at IS NULL
    """
_RESOURCES = ("inputTokens", "outputTokens", "durationMs", "messages", "toolCalls", "failedCalls")
"""The names of the counters in _STATES."""
_NAMED = """
    SELECT wanted.project_id, wanted.name, session.id
    FROM unnest(%s::bigint[], %s::text[]) AS wanted (project_id, name)
    JOIN messages_app_session AS session ON session.project_id = wanted.project_id
        AND session.external_id = wanted.name AND session.external_id <> '' AND session.deleted_at IS NULL
    """
_RUN = """
    SELECT message.is_completed, message.version FROM messages_app_message AS message
    JOIN messages_app_session AS session ON session.id = message.session_id
    WHERE message.id = %s AND message.deleted_at IS NULL AND session.deleted_at IS NULL
    """
_EVENTS_OF = "SELECT min(seq), max(seq) FROM traces_app_event WHERE message_id = %s AND id >= %s AND id < %s"

logger = logging.getLogger(__name__)


class Tables:
    """The `Source` of the feeds."""

    def __init__(self) -> None:
        self._pool = AsyncConnectionPool(
            kwargs=connection_parameters(primary) | {"autocommit": True, "prepare_threshold": 0},
            min_size=1,
            max_size=CONNECTIONS,
            # The pool keeps connecting, and `_rows` retries after this timeout.
            timeout=30,
            open=False,
            configure=_configure,
        )

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def events(self, numbers: Mapping[UUID, int], limit: int) -> dict[UUID, list[LiveEvent]]:
        return _events(numbers, await self._rows(_after(numbers, limit)))

    async def states(self, sessions: Sequence[UUID]) -> dict[UUID, SessionState]:
        (rows,) = await self._rows([(_STATES, (list(sessions),))])
        return _states(rows)

    async def news(
        self, numbers: Mapping[UUID, int], limit: int
    ) -> tuple[dict[UUID, list[LiveEvent]], dict[UUID, SessionState]]:
        *events, states = await self._rows([*_after(numbers, limit), (_STATES, (list(numbers),))])
        return _events(numbers, events), _states(states)

    async def sessions_named(self, names: Iterable[tuple[int, str]]) -> dict[tuple[int, str], UUID]:
        """Return the sessions with these projects and external ids, by both."""
        wanted = list(names)
        (rows,) = await self._rows([(_NAMED, ([project for project, _ in wanted], [name for _, name in wanted]))])
        return {(project, name): session_id for project, name, session_id in rows}

    async def run(self, message_id: UUID) -> tuple[bool, int] | None:
        """Return whether a message is completed, and its version; None if the message or its session is gone."""
        (rows,) = await self._rows([(_RUN, (message_id,))])
        return rows[0] if rows else None

    async def events_of(self, message_id: UUID) -> tuple[int, int] | None:
        """Return the first and last event number of a message; None if it has no events."""
        # The ids of the events carry the time bits of the message's id, so the range bounds the search.
        lower, upper = message_id.int >> 64 << 64, (message_id.int >> 64) + 1 << 64
        (rows,) = await self._rows([(_EVENTS_OF, (message_id, UUID(int=lower), UUID(int=upper)))])
        return None if rows[0][0] is None else rows[0]

    async def _rows(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> list[list[Any]]:
        """Return the rows of each statement, sent in one pipeline."""
        while True:
            try:
                async with self._pool.connection() as connection, connection.pipeline():
                    cursors = [await connection.execute(sql, parameters) for sql, parameters in queries]
                    rows = [await cursor.fetchall() for cursor in cursors]
                # In a thread, because looking up a key is a query of Django.
                return await sync_to_async(_opened)(rows) if _is_some_encrypted(rows) else rows
            except (psycopg.OperationalError, PoolTimeout) as error:
                logger.warning("Live: the database does not respond, retrying: %s", type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)


def _is_some_encrypted(answers: Sequence[Sequence[Sequence[Any]]]) -> bool:
    return any(isinstance(value, str) and PREFIX in value for rows in answers for row in rows for value in row)


def _opened(answers: Sequence[Sequence[Sequence[Any]]]) -> list[list[Any]]:
    """Return rows with encrypted values decrypted. Rows of tables that have some begin with their id."""
    opener = Opener(known_keys())
    return [
        [
            tuple(
                opener.open(value, rows=[row_bytes(row[0])]) if isinstance(value, str) and PREFIX in value else value
                for value in row
            )
            for row in rows
        ]
        for rows in answers
    ]


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    # The same planner settings as connections of requests.
    for settings in (PLANS_FOR_ANY_VALUES, PLANS_FOR_ANY_SIZE):
        await connection.execute(settings, prepare=False)


def _after(numbers: Mapping[UUID, int], limit: int) -> list[tuple[str, Sequence[Any]]]:
    return [(AFTER, after(session_id, seq, limit)) for session_id, seq in numbers.items()]


def _events(sessions: Iterable[UUID], answers: Sequence[Sequence[Any]]) -> dict[UUID, list[LiveEvent]]:
    return {
        session_id: [LiveEvent(row.seq, msgspec.json.encode(row).decode()) for row in map(event_of, rows)]
        for session_id, rows in zip(sessions, answers, strict=True)
    }


def _states(rows: Sequence[Any]) -> dict[UUID, SessionState]:
    states: dict[UUID, SessionState] = {}
    for session_id, status, current_phase, *resources, last_seq in rows:
        payload = {"status": status, "currentPhase": current_phase}
        states[session_id] = SessionState(
            last_seq, payload | {"resources": dict(zip(_RESOURCES, resources, strict=True))}
        )
    return states
