"""Hears from PostgreSQL that there are new events, and that projects or keys have changed; on one connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

import psycopg

from access_app.db.statements import ACCESS_CHANGED
from traces_app.events.feed import CHANNEL

from .feeds import Hub
from .reading import connection_parameters

RETRY_SECONDS = 0.5

logger = logging.getLogger(__name__)


async def listen(hub: Hub, access_changed: Callable[[], None]) -> None:
    """Passes on what is heard for as long as it is not cancelled. After a pause everything may have changed."""
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(**connection_parameters(), autocommit=True) as connection:
                # The events last: by this statement the connection is known in pg_stat_activity.
                for channel in (ACCESS_CHANGED, CHANNEL):
                    await connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
                hub.look_at_all()
                access_changed()
                async for notification in connection.notifies():
                    if notification.channel == ACCESS_CHANGED:
                        access_changed()
                    else:
                        _hear(hub, notification.payload)
        except psycopg.OperationalError as error:
            logger.warning("Live: the connection that listens is gone, making another: %s", type(error).__name__)
            await asyncio.sleep(RETRY_SECONDS)


def _hear(hub: Hub, payload: str) -> None:
    """Only who has something new: the numbers are read where the events are."""
    for notice in payload.split(";"):
        try:
            hub.look_at(UUID(notice.split()[0]))
        except (ValueError, IndexError):
            logger.error("Live: a notice names no session.")  # noqa: TRY400 - whoever may connect may send anything
