"""Put the values that events refer to back into their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from access_app.db import Database
from traces_app.models import Context
from tracesite_sdk.events.contexts import refs_of, with_fields


def with_stored_values(db: Database, events: Sequence[tuple[UUID, Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the data of events, each given with its run, with referenced values put back."""
    places = {
        (message_id, ref): Context.id_of(message_id, ref)
        for message_id, data in events
        for ref in refs_of(data).values()
    }
    if not places:
        return [data for _message_id, data in events]
    with db.cursor() as cursor:
        cursor.execute(
            "SELECT id, message_id, ref, (content -> 'value')::text FROM traces_app_context "
            "WHERE id = ANY(%s::uuid[]) AND id BETWEEN %s AND %s AND kind = 'value'",
            [list(places.values()), min(places.values()), max(places.values())],
        )
        by_message: dict[UUID, dict[str, Any]] = {}
        for _id, message_id, ref, value in cursor.fetchall():
            by_message.setdefault(message_id, {})[ref] = msgspec.json.decode(value)
    return [
        with_fields(data, by_message[message_id]) if message_id in by_message else data for message_id, data in events
    ]
