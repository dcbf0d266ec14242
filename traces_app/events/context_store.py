"""Store contexts with the events that refer to them, put them back into event data, and read them for the API.

The id of a context is derived from its run and its reference, so storing events needs no lookup. Contexts of messages in
the trash are not read. The caller must check that the session may be seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet, UUIDField
from msgspec import UNSET, Raw

from access_app.db.statements import prepared_cursor
from messages_app import ids
from messages_app.models import Message
from messages_app.sql.compiled import Bounds, CompiledRows, Param
from messages_app.sql.json_rows import Column, Source, instant
from traces_app.ingest import tables
from traces_app.ingest.sql import insert_rows
from traces_app.models import Context as ContextRow
from traces_app.queries import schemas
from traces_app.schema import pg_text

from .contexts import Context, refs_of, with_fields

_IN_SIGHT = (
    "NOT EXISTS (SELECT 1 FROM messages_app_message AS message "
    "WHERE message.id = context.message_id AND message.deleted_at IS NOT NULL)"
)
_FIND = (
    f"SELECT id, message_id::text, kind, length, size, {instant('created_at').sql} FROM traces_app_context AS context "  # noqa: S608 - constants
    f"WHERE session_id = %s AND ref = %s AND kind <> 'entry' AND {_IN_SIGHT} ORDER BY id LIMIT 1"
)
_MICROSECOND = timedelta(microseconds=1)
_ENTRIES = """
    SELECT entry.content -> 'value' FROM unnest((SELECT entries FROM traces_app_context WHERE id = %s)) WITH ORDINALITY
        AS wanted (id, place)
    JOIN traces_app_context AS entry ON entry.id = wanted.id AND entry.id >= %s AND entry.id < %s
    ORDER BY place
    """
_LAST_ENTRIES = _ENTRIES.replace(
    "(SELECT entries FROM", "(SELECT entries[greatest(cardinality(entries) - %s::bigint, 0)::int + 1:] FROM"
)


class FoundContext(NamedTuple):
    """A context found by its reference, without its content."""

    pk: UUID
    message_id: str
    kind: str
    length: int
    size: int
    created_at: str

    @property
    def has_conversation(self) -> bool:
        return self.kind in ("conversation", "context")

    @property
    def has_variables(self) -> bool:
        return self.kind in ("variables", "context")


# --- Writing ----------------------------------------------------------------------------------------------------------


def lines_of(session_id: UUID, message_id: UUID, context: Context, first_used_at: datetime) -> Iterable[tables.Row]:
    """Return the rows of a context of a run: its entries, then itself."""
    for entry in context.entries or ():
        yield from lines_of(session_id, message_id, entry, first_used_at)
    entries = None if context.entries is None else [_row_id(message_id, entry.ref) for entry in context.entries]
    yield tables.CONTEXTS.Row(
        id=_row_id(message_id, context.ref),
        session_id=session_id.hex,
        message_id=message_id.hex,
        ref=context.ref,
        kind=context.kind,
        length=str(context.length),
        size=str(context.size),
        content=context.content,
        entries=None if entries is None else pg_text.array(entries),
        created_at=first_used_at.isoformat(),
    )


def add(lines: Iterable[tables.Row]) -> None:
    """Insert the rows that do not exist yet. The caller has locked their sessions: see store.take_turns."""
    wanted = {line.id: line for line in lines}
    if not wanted:
        return
    with prepared_cursor() as cursor:
        cursor.execute(
            "SELECT id FROM traces_app_context WHERE id = ANY(%s::uuid[]) AND id BETWEEN %s AND %s",
            [list(wanted), min(wanted, key=str), max(wanted, key=str)],
        )
        for (known,) in cursor.fetchall():
            del wanted[known.hex]
    insert_rows([(tables.CONTEXTS, list(wanted.values()))])


def whole(events: Sequence[tuple[UUID, Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the data of events, each given with its run, with referenced values put back."""
    places = {
        (message_id, ref): _row_id(message_id, ref) for message_id, data in events for ref in refs_of(data).values()
    }
    if not places:
        return [data for _message_id, data in events]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT message_id, ref, (content -> 'value')::text FROM traces_app_context "
            "WHERE id = ANY(%s::uuid[]) AND id BETWEEN %s AND %s AND kind = 'value'",
            [list(places.values()), min(places.values()), max(places.values())],
        )
        found: dict[UUID, dict[str, Any]] = {}
        for message_id, ref, value in cursor.fetchall():
            found.setdefault(message_id, {})[ref] = msgspec.json.decode(value)
    return [with_fields(data, found[message_id]) if message_id in found else data for message_id, data in events]


def _row_id(message_id: UUID, ref: str) -> str:
    return ids.child_hex(message_id.int, "context", ref)


# --- Reading ----------------------------------------------------------------------------------------------------------


CONTEXTS = Source(
    resource=schemas.Context,
    model=ContextRow,
    table="traces_app_context",
    columns={"bytes": Column(sql="size")},
)


def contexts_of(session_id: UUID) -> CompiledRows:
    """Return the contexts of a session, each once for every run that refers to it."""
    return CompiledRows(build=_contexts, shape=(), values={"session": session_id})


def _contexts(_bounds: Bounds) -> QuerySet[ContextRow]:
    deleted = Message.with_deleted.filter(pk=OuterRef("message_id"), deleted_at__isnull=False)
    contexts = ContextRow.objects.filter(~Exists(deleted), session_id=Param("session", UUIDField()))
    return contexts.exclude(kind="entry")


def contexts(keys: Collection[str]) -> list[schemas.Context]:
    found = CONTEXTS.read(keys)
    by_id = dict(zip((row[0] for row in found), CONTEXTS.make(found), strict=True))
    return [by_id[key] for key in keys if key in by_id]


def newest_contexts(session_id: UUID, most: int) -> list[schemas.Context]:
    return contexts([str(key) for key in contexts_of(session_id).keys(newest_first=True, limit=most)])


def newest_refs(session_id: UUID, most: int) -> list[str]:
    """Return the references of a session, newest first, each once."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT ref FROM traces_app_context AS context WHERE session_id = %s AND kind <> 'entry' AND {_IN_SIGHT} "  # noqa: S608 - constants
            "ORDER BY id DESC LIMIT %s",
            [session_id, most],
        )
        return list(dict.fromkeys(ref for (ref,) in cursor.fetchall()))


def find_context(session_id: UUID, ref: str) -> FoundContext | None:
    """Return the context of a reference; if several runs have it, that of the first."""
    if "\x00" in ref:
        return None
    with connection.cursor() as cursor:
        cursor.execute(_FIND, [session_id, ref])
        row = cursor.fetchone()
    return None if row is None else FoundContext(*row)


def whole_context(found: FoundContext, ref: str) -> schemas.WholeContext:
    with prepared_cursor() as cursor:
        cursor.execute("SELECT content::text FROM traces_app_context WHERE id = %s", [found.pk])
        row = cursor.fetchone()
    content: Mapping[str, Raw] = {} if row is None else msgspec.json.decode(row[0], type=dict[str, Raw])
    return schemas.WholeContext(
        ref=ref,
        message_id=found.message_id,
        kind=found.kind,  # type: ignore[arg-type]  # one of its words, which mypy cannot see
        length=found.length,
        bytes=found.size,
        created_at=found.created_at,
        conversation=conversation(found) if found.has_conversation else UNSET,
        text=content.get("text", UNSET),
        variables=content.get("variables", UNSET),
        value=content.get("value", UNSET),
    )


def conversation(found: FoundContext, last: int | None = None) -> list[Raw]:
    """Return the entries of a conversation, in order; only the last ones if `last` is given. Others are not read."""
    # The ids of entries carry the time of their run, so these bounds limit the search to one month.
    time = ids.created_at_of(found.pk)
    below = [ids.first_id_at(time), ids.first_id_at(time + _MICROSECOND)]
    with connection.cursor() as cursor:
        if last is None:
            cursor.execute(_ENTRIES, [found.pk, *below])
        else:
            cursor.execute(_LAST_ENTRIES, [last, found.pk, *below])
        return [Raw(value) for (value,) in cursor.fetchall()]


def variables(found: FoundContext, keys: Collection[str] | None = None) -> Raw:
    """Return the variables: all, or those of these names that exist."""
    names = None if keys is None else [pg_text.text(key) for key in keys]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(jsonb_object_agg(key, value), '{}')::text FROM traces_app_context, "
            "jsonb_each(coalesce(content -> 'variables', '{}')) AS variable (key, value) "
            "WHERE id = %s AND (%s::text[] IS NULL OR key = ANY(%s))",
            [found.pk, names, names],
        )
        row = cursor.fetchone()
    return Raw(row[0] if row else "{}")
