"""The statements of a purge: their conditions, and how what they remove is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Model

from messages_app.models import Message, Session
from traces_app.models import Score
from tracesite_sdk.records import ids
from tracesite_sdk.records.pg_text import array

MESSAGES = Message._meta.db_table
SESSIONS = Session._meta.db_table
SCORES = Score._meta.db_table
# Whether a message was made of spans.
OF_TRACE = "metadata ->> 'trace_id' ~ '^[0-9a-f]{32}$'"


@dataclass(frozen=True)
class Condition:
    """A condition in SQL with its values. All its texts are in this package."""

    sql: str
    values: list[Any] = field(default_factory=list)

    def __and__(self, other: Condition) -> Condition:
        return Condition(f"{self.sql} AND {other.sql}", [*self.values, *other.values])

    def __or__(self, other: Condition) -> Condition:
        return Condition(f"({self.sql} OR {other.sql})", [*self.values, *other.values])


ALL = Condition("true")
LAST_ID = UUID(int=2**128 - 1)


def array_of(row_ids: Sequence[UUID]) -> str:
    """Return ids as the text of an array: psycopg takes several times as long to make one of a list."""
    return array(row_id.hex for row_id in row_ids)


def range_of(message_ids: Sequence[UUID]) -> Condition:
    """Return the range of ids of these messages and their children, which limits the partitions that are searched."""
    first = ids.first_id_at(ids.created_at_of(min(message_ids)))
    after = ids.first_id_at(ids.created_at_of(max(message_ids)) + timedelta(microseconds=1))
    return Condition("id >= %s AND id < %s", [first, after])


def size_of(model: type[Model], alias: str = "") -> str:
    """Return SQL for the stored size of a row: 24 bytes of header, and the values as stored, compressed or not."""
    prefix = f"{alias}." if alias else ""
    columns = [field.column for field in model._meta.concrete_fields]
    return "24 + " + " + ".join(f'coalesce(pg_column_size({prefix}"{column}"), 0)' for column in columns)
