"""Check whether a message is sealed as it is now; see docs/audit.md."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from access_app.db import Database
from access_app.db.statements import read_prepared

_SEALED_AT = """
    SELECT batch.sealed_at FROM traces_app_messageseal AS seal JOIN traces_app_sealbatch AS batch ON batch.id = seal.batch
    WHERE seal.id = %s AND seal.state = 's'
        AND NOT EXISTS (
            SELECT 1 FROM messages_app_change AS change
            LEFT JOIN messages_app_changereader AS reader ON reader.name = 'seals'
            WHERE change.message_id = seal.id AND change.token <> '' AND (
                reader.name IS NULL
                OR (change.transaction, change.position) > (reader.transaction, reader.position)
            )
        )
        AND NOT EXISTS (SELECT 1 FROM traces_app_messageseal AS newer WHERE newer.id = seal.id AND newer.batch > seal.batch)
    """


def read_sealed_at(db: Database, message_id: UUID) -> datetime | None:
    """Return when a message was sealed; None if it is open, or was written since. Whether it is intact, verify_traces says."""
    return next((sealed_at for (sealed_at,) in read_prepared(_SEALED_AT, [message_id], db.read_connection)), None)
