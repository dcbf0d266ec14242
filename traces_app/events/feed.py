"""Read the events of a session: the one definition of the JSON of an event, in lists and in live streams.

`AFTER` is plain SQL, so that the live process can run it on its own connection; `event_of` converts its rows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from msgspec import UNSET, Raw

from access_app.db import Database
from access_app.encryption.reading import ROW_ID
from messages_app.sql.json_rows import as_column, instant
from traces_app.queries.schemas.events import Event

CHANNEL = "traces_app_events"
"""The channel that is notified after each commit of events, with "session first last" of each session, joined by ";"."""

# A subquery, so that the name of the session is read once for the statement instead of once for each row.
_NAME = "(SELECT coalesce(nullif(external_id, ''), id::text) FROM messages_app_session WHERE id = %s)"
_COLUMNS = (
    f"event.id::text AS {ROW_ID}, {as_column('event.session_id::text', 'traces_app_event.session_id')}, {_NAME}, "
    f"{as_column('event.message_id::text', 'traces_app_event.message_id')}, event.seq, event.external_id, event.number, "
    f"event.type, event.level, event.category, {instant('event.timestamp').sql}, event.agent, event.data::text"
)
# One index scan for each month; of the messages only whether they are in the trash.
_FROM = (
    f"SELECT {_COLUMNS} FROM traces_app_event AS event WHERE event.session_id = %s AND event.seq > %s "  # noqa: S608 - constants
    "{filters}AND NOT EXISTS (SELECT 1 FROM messages_app_message AS message "
    "WHERE message.id = event.message_id AND message.deleted_at IS NOT NULL) ORDER BY event.seq LIMIT %s"
)
AFTER = _FROM.format(filters="")
"""The events of a session after a number, in order; `after` returns its parameters."""


def after(session_id: UUID, seq: int, limit: int) -> tuple[UUID, UUID, int, int]:
    """Return the parameters of `AFTER`: a session, the number to start after, and the limit."""
    return session_id, session_id, seq, limit


def event_of(row: tuple[Any, ...]) -> Event:
    """Return the event of a row of `AFTER`."""
    (
        id_,
        session_id,
        session_name,
        message_id,
        seq,
        external_id,
        number,
        type_,
        level,
        category,
        timestamp,
        agent,
        data,
    ) = row
    return Event(
        id=id_,
        session_id=session_id,
        session_name=session_name,
        message_id=message_id,
        seq=seq,
        external_id=external_id,
        number=UNSET if number is None else number,
        type=type_,
        level=level,
        category=category,
        timestamp=timestamp,
        agent=agent or UNSET,
        data=Raw(data),
    )


def events_after(
    db: Database,
    session_id: UUID,
    seq: int,
    limit: int,
    *,
    types: Collection[str] = (),
    levels: Collection[str] = (),
    categories: Collection[str] = (),
) -> list[Event]:
    """Return the events of a session after number `seq`, in order, at most `limit`; filtered by type and so on, if given.

    Events of messages in the trash are left out. The caller must check that the session may be seen.
    """
    wanted = {"type": types, "level": levels, "category": categories}
    filters = [(name, list(values)) for name, values in wanted.items() if values]
    statement = _FROM.format(filters="".join(f"AND event.{name} = ANY(%s) " for name, _values in filters))
    with db.read_cursor() as cursor:
        cursor.execute(statement, [session_id, session_id, seq, *(values for _name, values in filters), limit])
        return [event_of(row) for row in cursor.fetchall()]
