"""The rows and columns that a seal covers, and their digests.

The columns are those of the models, so that a new one is covered as soon as it exists. What is left out is named here with
the reason. A new model that refers to messages or rows below them has to be listed in KINDS or NOT_SEALED; otherwise this
fails at import.

PostgreSQL computes the digests, so that large values are not sent: the SHA-256 of the texts of the rows, in the order of
their ids. The texts do not depend on the settings of the session, because `fix_text_form` sets those that they depend on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import models

from access_app.db import Database
from messages_app.models import Message, Reference
from messages_app.sql.periods import Period
from traces_app.ingest.tables import fields_of
from traces_app.models import AgentStep, Context, ErrorPattern, Event, RunVector, Score, ToolCall, ToolResult
from tracesite_sdk.records import ids

_OF_MONTHS = "row_.message_id = ANY(%(messages)s) AND row_.id >= %(first)s AND row_.id < %(after)s"
# The tables of events and contexts have no index on the message, so their rows are found by the time in their ids.
_OF_TIME = (
    "FROM unnest(%(messages)s, %(firsts)s::uuid[], %(afters)s::uuid[]) AS wanted (id, first, after) "
    "JOIN {table} AS row_ ON row_.id >= wanted.first AND row_.id < wanted.after AND row_.message_id = wanted.id"
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Rows of one table that belong to a message."""

    name: str
    model: type[models.Model]
    rows: str = "FROM {table} AS row_ WHERE " + _OF_MONTHS
    """SQL that finds them, as `row_`."""
    message: str = "row_.message_id"
    """SQL of their message."""
    also: Mapping[str, str] = field(default_factory=dict)
    """Values of other tables that a row is not complete without, by name."""
    without: Collection[str] = ()
    """Columns that are computed of what is sealed."""

    @property
    def columns(self) -> list[str]:
        return [*(name for name in fields_of(self.model) if name not in self.without), *self.also]

    def digests(self, columns: Collection[str]) -> str:
        """Return SQL that reads (message, digest) of the messages that have such rows."""
        values = ", ".join(self.also.get(column) or f'row_."{column}"' for column in columns)
        found = self.rows.format(table=self.model._meta.db_table)
        return (
            f"SELECT {self.message}, sha256(string_agg(sha256(convert_to(ROW({values})::text, 'UTF8')), '' ORDER BY row_.id)) "
            f"{found} GROUP BY 1"
        )


KINDS = (
    Kind(
        name="message",
        model=Message,
        rows="FROM {table} AS row_ WHERE row_.id = ANY(%(messages)s) AND row_.id >= %(first)s AND row_.id < %(after)s",
        message="row_.id",
        without={"decided_by"},
    ),
    Kind(name="references", model=Reference),
    Kind(name="steps", model=AgentStep),
    Kind(
        name="calls",
        model=ToolCall,
        # Otherwise another name of the tool would change what was called.
        also={"tool": "(SELECT tool.name FROM traces_app_tool AS tool WHERE tool.id = row_.tool_id)"},
    ),
    Kind(
        name="results",
        model=ToolResult,
        rows="FROM traces_app_toolcall AS call JOIN {table} AS row_ ON row_.id = call.id "
        "AND row_.id >= %(first)s AND row_.id < %(after)s WHERE call.message_id = ANY(%(messages)s) "
        "AND call.id >= %(first)s AND call.id < %(after)s",
        message="call.message_id",
    ),
    Kind(name="events", model=Event, rows=_OF_TIME, message="wanted.id"),
    Kind(name="contexts", model=Context, rows=_OF_TIME, message="wanted.id"),
    Kind(
        name="entries",
        model=Context,
        # Those of conversations, which all runs of a session share.
        rows="FROM (SELECT DISTINCT wanted.id AS message_id, unnest(row_.entries) AS id "
        + _OF_TIME.replace("{table}", Context._meta.db_table)
        + ") AS used JOIN {table} AS row_ ON row_.id = used.id AND row_.id >= %(first)s AND row_.id < %(after)s",
        message="used.message_id",
    ),
)
"""Everything that a seal covers."""
NOT_SEALED: Mapping[type[models.Model], str] = {
    Score: "what people and evaluators think of a message; they may change it at any time",
    RunVector: "computed of the message, and anew with another embedder",
    ErrorPattern: "computed of the result, and anew with another expression",
}
Layout = Sequence[tuple[str, list[str]]]
"""The kinds and columns that a seal covers."""
_FIXED = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
}


def layout() -> Layout:
    """Return what seals of this version cover."""
    return [(kind.name, kind.columns) for kind in KINDS]


def layout_digest(columns: Any) -> bytes:
    return hashlib.sha256(json.dumps(columns, separators=(",", ":")).encode()).digest()


def is_readable(columns: Any) -> bool:
    """Return whether this version has all columns of a layout."""
    known = {kind.name: set(kind.columns) for kind in KINDS}
    return all(set(names) <= known.get(kind, set()) for kind, names in columns)


def fix_text_form(db: Database) -> None:
    """Set what the texts of values depend on, until the end of the transaction."""
    with db.cursor() as cursor:
        settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _FIXED.items())
        cursor.execute(f"SELECT {settings}")


def digests(db: Database, message_ids: Collection[UUID], columns: Layout) -> dict[UUID, dict[str, bytes]]:
    """Return the digests of the rows of each message by kind; kinds without rows are left out.

    Call it in a transaction that reads one snapshot, after `fix_text_form`.
    """
    found: dict[UUID, dict[str, bytes]] = {message_id: {} for message_id in message_ids}
    if not found:
        return found
    values = _values(sorted(found))
    of_layout = dict(columns)
    with db.cursor() as cursor:
        for kind in KINDS:
            if kind.name in of_layout:
                cursor.execute(kind.digests(of_layout[kind.name]), values)
                for message_id, digest in cursor.fetchall():
                    found[message_id][kind.name] = bytes(digest)
    return found


def _values(message_ids: list[UUID]) -> dict[str, Any]:
    ranges = [ids.range_below(message_id) for message_id in message_ids]
    first, last = (Period.of(ids.created_at_of(one)) for one in (message_ids[0], message_ids[-1]))
    return {
        "messages": message_ids,
        "first": first.first_id,
        "after": last.after_id,
        "firsts": [first for first, _after in ranges],
        "afters": [after for _first, after in ranges],
    }


def _unlisted() -> Iterator[str]:
    """Yield the models that refer to sealed rows and are not listed."""
    sealed = {kind.model for kind in KINDS}
    for model in apps.get_models():
        targets = {column.related_model for column in model._meta.concrete_fields if column.is_relation}
        if targets & sealed and model not in sealed | NOT_SEALED.keys():
            yield model.__name__


if _missing := sorted(_unlisted()):
    raise TypeError(
        f"{', '.join(_missing)} refer to messages or rows below them: list them in KINDS or NOT_SEALED of "
        "traces_app/maintenance/seals/rows.py."
    )
