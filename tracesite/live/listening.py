"""Listen on one connection for notifications about new events and about changed projects and keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

import psycopg

from access_app.db import primary
from access_app.db.direct import connection_parameters
from access_app.db.statements import ACCESS_CHANGED
from traces_app.events.feed import CHANNEL

from .feeds import Hub

RETRY_SECONDS = 0.5

logger = logging.getLogger(__name__)


async def listen(hub: Hub, access_changed: Callable[[], None]) -> None:
    """Forward notifications until cancelled. After each reconnect, all sessions and keys are checked again."""
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(
                **connection_parameters(primary), autocommit=True
            ) as connection:
                # The channel of events comes last, so that pg_stat_activity shows it for this connection.
                for channel in (ACCESS_CHANGED, CHANNEL):
                    await connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
                hub.look_at_all()
                access_changed()
                async for notification in connection.notifies():
                    if notification.channel == ACCESS_CHANGED:
                        access_changed()
                    else:
                        _look_at_sessions(hub, notification.payload)
        except psycopg.OperationalError as error:
            logger.warning("Live: lost the listening connection, reconnecting: %s", type(error).__name__)
            await asyncio.sleep(RETRY_SECONDS)


def _look_at_sessions(hub: Hub, payload: str) -> None:
    """Mark the sessions of a notification as changed; the event numbers in it are not needed."""
    for notice in payload.split(";"):
        try:
            hub.look_at(UUID(notice.split()[0]))
        except (ValueError, IndexError):
            logger.error("Live: ignored a notification without a session.")  # noqa: TRY400 - any database client can send any payload
