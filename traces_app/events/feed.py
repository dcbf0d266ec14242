"""The events of a session, read: the one place that says what an event looks like, stored, asked for or pushed.

`AFTER` is plain SQL, so that the live process can ask it on a connection of its own, and `event_of` makes of each of its
rows what every reader is given.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db import connection
from msgspec import UNSET, Raw

from messages_app.sql.json_rows import instant
from traces_app.queries import schemas

CHANNEL = "traces_app_events"
"""Told after each commit that brought events, "session first last" of each session, separated by ";": see `notices`."""

# The name of the session is read once for the statement, not once a row.
_NAME = "(SELECT coalesce(nullif(external_id, ''), id::text) FROM messages_app_session WHERE id = %s)"
_COLUMNS = (
    f"event.id::text, event.session_id::text, {_NAME}, event.message_id::text, event.seq, event.external_id, event.number, "
    f"event.type, event.level, event.category, {instant('event.timestamp').sql}, event.agent, event.data::text"
)
# One look into the index for each month, and of the messages only whether they are in the trash.
_FROM = (
    f"SELECT {_COLUMNS} FROM traces_app_event AS event WHERE event.session_id = %s AND event.seq > %s "  # noqa: S608 - constants
    "{filters}AND NOT EXISTS (SELECT 1 FROM messages_app_message AS message "
    "WHERE message.id = event.message_id AND message.deleted_at IS NOT NULL) ORDER BY event.seq LIMIT %s"
)
AFTER = _FROM.format(filters="")
"""The events of a session after a number, in order; `after` gives its parameters."""


def after(session_id: UUID, seq: int, limit: int) -> tuple[UUID, UUID, int, int]:
    """The parameters of `AFTER`: a session, the number to begin after, and how many events at most."""
    return session_id, session_id, seq, limit


def event_of(row: tuple[Any, ...]) -> schemas.Event:
    """The event of a row of `AFTER`."""
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
    return schemas.Event(
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
    session_id: UUID,
    seq: int,
    limit: int,
    *,
    types: Collection[str] = (),
    levels: Collection[str] = (),
    categories: Collection[str] = (),
) -> list[schemas.Event]:
    """The events of a session after number `seq`, in order, `limit` at most; of these types and so on only, if given.

    None of a message in the trash. Whether the session itself may be seen is for the caller to know.
    """
    wanted = {"type": types, "level": levels, "category": categories}
    filters = [(name, list(values)) for name, values in wanted.items() if values]
    statement = _FROM.format(filters="".join(f"AND event.{name} = ANY(%s) " for name, _values in filters))
    with connection.cursor() as cursor:
        cursor.execute(statement, [session_id, session_id, seq, *(values for _name, values in filters), limit])
        return [event_of(row) for row in cursor.fetchall()]
