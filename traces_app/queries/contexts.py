"""Read contexts for the API and the pages. Those of messages in the trash are not read.

The caller must check that the session may be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db.models import Exists, OuterRef
from django.utils.translation import gettext as _
from msgspec import UNSET, Raw

from access_app.db import Database
from access_app.db.statements import prepared_cursor
from access_app.encryption.reading import ROW_ID
from access_app.errors import InvalidInput
from access_app.masked_reading import masked, masked_field
from access_app.visibility import ProjectScope, visible_to
from messages_app.models import Message
from messages_app.queries import FoundSession
from messages_app.sql.json_rows import Column, Source, as_column, instant
from messages_app.sql.pagination import ListRows
from messages_app.sql.periods import Length, Period
from traces_app.models import AgentStep
from traces_app.models import Context as ContextRow
from tracesite_sdk.records import ids, pg_text
from tracesite_sdk.records.request_parts import CONVERSATION
from tracesite_sdk.records.shared_values import CONTEXT_REF

from .schemas.contexts import Context, ModelInput, WholeContext

_IN_SIGHT = (
    "NOT EXISTS (SELECT 1 FROM messages_app_message AS message "
    "WHERE message.id = context.message_id AND message.deleted_at IS NOT NULL)"
)
NEWEST_REFS = (
    f"SELECT ref FROM traces_app_context AS context WHERE session_id = session.id AND kind <> 'entry' AND {_IN_SIGHT} "  # noqa: S608 - constants
    "ORDER BY id DESC LIMIT %s"
)
"""The newest references of a `session`, newest first; some may be repeated."""
_FIND = (
    f"SELECT id, {as_column('message_id::text', 'traces_app_context.message_id')}, kind, length, size, {instant('created_at').sql} FROM traces_app_context AS context "  # noqa: S608 - constants
    f"WHERE session_id = %s AND ref = %s AND kind <> 'entry' AND {_IN_SIGHT} ORDER BY id LIMIT 1"
)
_ENTRIES = f"""
    SELECT entry.content -> 'value', entry.id AS {ROW_ID}
    FROM unnest((SELECT entries FROM traces_app_context WHERE id = %s)) WITH ORDINALITY AS wanted (id, place)
    JOIN traces_app_context AS entry ON entry.id = wanted.id AND entry.id >= %s AND entry.id < %s
    ORDER BY place
    """  # noqa: S608 - constants
_LAST_ENTRIES = _ENTRIES.replace(
    "(SELECT entries FROM", "(SELECT entries[greatest(cardinality(entries) - %s::bigint, 0)::int + 1:] FROM"
)


_NAMES = """
    SELECT DISTINCT field.key FROM traces_app_event AS event, jsonb_each(
        CASE WHEN jsonb_typeof(event.data -> 'contextRefs') = 'object' THEN event.data -> 'contextRefs' ELSE '{}' END
    ) AS field (key, value) WHERE event.session_id = %s AND field.value ->> 'contextRef' = %s
    """
_BY_IDS = "FROM traces_app_context WHERE id = ANY(%s::uuid[]) AND id BETWEEN %s AND %s"
_INPUTS = (
    f"SELECT id::text AS {ROW_ID}, content, {as_column('entries::text[]', 'traces_app_context.entries')} {_BY_IDS}"
)
MOST_INPUT_BYTES = 64 * 2**20
"""Bytes of what models were asked that are read at once, each entry as often as it is referred to."""
_ENTRY_BYTES = 64
"""The bytes that an entry counts besides its content, because a list of many empty ones takes memory, too."""
_SIZES = f"SELECT id::text AS {ROW_ID}, size + {_ENTRY_BYTES}::bigint * cardinality(entries) {_BY_IDS}"
_REFS = f"SELECT id::text AS {ROW_ID}, ref {_BY_IDS}"
_VALUES = f"SELECT id::text AS {ROW_ID}, (content -> 'value')::text {_BY_IDS}"
InputKey = tuple[str, str]
"""The id of a message, and the `input_ref` of one of its steps."""


class InputsTooLarge(InvalidInput):
    default_code = "inputs_too_large"


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


CONTEXTS = Source(
    resource=Context,
    model=ContextRow,
    table="traces_app_context",
    columns={"bytes": Column(sql="size")},
)


def step_with_input(db: Database, scope: ProjectScope, message_id: UUID, step_id: UUID) -> AgentStep | None:
    """Return a step whose input is known, with its message and session, deleted or not, for its page; None if there is none in the scope."""
    steps = db.rows(AgentStep.with_deleted).select_related("message__session").filter(message_id=message_id)
    readable = visible_to(steps, scope)
    return readable.exclude(input_ref="").filter(pk=step_id).first()


def contexts_of(db: Database, session_id: UUID) -> ListRows:
    """Return the contexts of a session, each once for every run that refers to it."""
    deleted = db.rows(Message.with_deleted).filter(pk=OuterRef("message_id"), deleted_at__isnull=False)
    rows = db.rows(ContextRow.objects).filter(~Exists(deleted), session_id=session_id).exclude(kind="entry")
    return ListRows(db=db, find=lambda _ids: rows)


def contexts(db: Database, keys: Collection[str]) -> list[Context]:
    found = CONTEXTS.read(db, keys)
    by_id = dict(zip((row[0] for row in found), CONTEXTS.make(found), strict=True))
    return [by_id[key] for key in keys if key in by_id]


def newest_contexts(db: Database, session_id: UUID, most: int) -> list[Context]:
    return contexts(db, [str(key) for key in contexts_of(db, session_id).keys(newest_first=True, limit=most)])


def find_context(db: Database, session_id: UUID, ref: str) -> FoundContext | None:
    """Return the context of a reference; if several runs have it, that of the first."""
    if "\x00" in ref:
        return None
    with db.read_cursor() as cursor:
        cursor.execute(_FIND, [session_id, ref])
        row = cursor.fetchone()
    return None if row is None else FoundContext(*row)


def whole_context(db: Database, found: FoundContext, ref: str, session: FoundSession) -> WholeContext:
    with prepared_cursor(db.read_connection) as cursor:
        cursor.execute("SELECT content, id FROM traces_app_context WHERE id = %s", [found.pk])
        row = cursor.fetchone()
    content: dict[str, Raw] = {} if row is None else msgspec.json.decode(row[0], type=dict[str, Raw])
    mask = db.read_connection.mask
    if mask is not None and "value" in content:
        content["value"] = masked_field(
            mask, content["value"], _names_of_field(db, session.pk, ref), session.project_id
        )
    if "variables" in content:
        content["variables"] = masked_field(mask, content["variables"], ["variables"], session.project_id)
    return WholeContext(
        ref=ref,
        message_id=found.message_id,
        kind=found.kind,  # type: ignore[arg-type]  # one of its words, which mypy cannot see
        length=found.length,
        bytes=found.size,
        created_at=found.created_at,
        conversation=conversation(db, found, session) if found.has_conversation else UNSET,
        text=content.get("text", UNSET),
        variables=content.get("variables", UNSET),
        value=content.get("value", UNSET),
        input=inputs(db, [(found.message_id, ref)]).get((found.message_id, ref), UNSET)
        if found.kind == "input"
        else UNSET,
    )


def _names_of_field(db: Database, session_id: UUID, ref: str) -> list[str]:
    """Return the names under which events of a session have a field that is stored under this reference."""
    with masked(None), db.read_cursor() as cursor:
        cursor.execute(_NAMES, [session_id, ref])
        return [name for (name,) in cursor.fetchall()]


def inputs(db: Database, keys: Collection[InputKey]) -> dict[InputKey, ModelInput]:
    """Return what the models of steps were asked, whole. A key may be repeated, if its input is written repeatedly.

    Raise InputsTooLarge, before anything is read, for more than MOST_INPUT_BYTES.
    """
    times = Counter(str(ContextRow.id_of(UUID(message_id), ref)) for message_id, ref in keys)
    if sum(size * times[row_id] for row_id, size in _read(db, _SIZES, times)) > MOST_INPUT_BYTES:
        raise InputsTooLarge(
            _(
                "What the models were asked has more than %(most)d bytes in all. Read it step by step, as the context of each "
                "“input_ref”, or in an export of the session."
            )
            % {"most": MOST_INPUT_BYTES}
        )
    stored = _stored_inputs(db, keys)
    values = entry_values(db, {entry for _content, entries in stored.values() for entry in entries})
    return {
        key: _input(content, [values.get(entry, _reference(entry)) for entry in entries])
        for key, (content, entries) in stored.items()
    }


def inputs_by_reference(db: Database, keys: Collection[InputKey]) -> tuple[dict[InputKey, ModelInput], dict[str, str]]:
    """Return what the models of steps were asked, with {"contextRef": ...} for each message, tool and system prompt; and the ids
    of these contexts by reference."""
    stored = _stored_inputs(db, keys)
    entry_ids = {entry for _content, entries in stored.values() for entry in entries}
    refs = dict(_read(db, _REFS, entry_ids))
    # One for each entry, however often it is referred to.
    references = {entry: _reference(refs.get(entry, entry)) for entry in entry_ids}
    found = {
        key: _input(content, [references[entry] for entry in entries]) for key, (content, entries) in stored.items()
    }
    return found, {ref: entry for entry, ref in refs.items()}


def entry_values(db: Database, entry_ids: Collection[str]) -> dict[str, Raw]:
    """Return the values of entries by id."""
    return {entry: Raw(value) for entry, value in _read(db, _VALUES, entry_ids)}


def _stored_inputs(db: Database, keys: Collection[InputKey]) -> dict[InputKey, tuple[Mapping[str, Raw], list[str]]]:
    by_id = {str(ContextRow.id_of(UUID(message_id), ref)): (message_id, ref) for message_id, ref in keys}
    rows = _read(db, _INPUTS, by_id)
    return {
        by_id[row_id]: (msgspec.json.decode(content, type=dict[str, Raw]), entries) for row_id, content, entries in rows
    }


def _input(content: Mapping[str, Raw], entries: Sequence[Raw]) -> ModelInput:
    system, tools = (msgspec.json.decode(content[name], type=int) for name in ("system", "tools"))
    return ModelInput(
        messages=list(entries[system + tools :]),
        system=entries[0] if system else UNSET,
        tools=list(entries[system : system + tools]) if tools else UNSET,
        parameters=content.get("parameters", UNSET),
    )


def _reference(ref: str) -> Raw:
    return Raw(msgspec.json.encode({CONTEXT_REF: ref}))


def _read(db: Database, statement: str, row_ids: Collection[str]) -> list[tuple[Any, ...]]:
    if not row_ids:
        return []
    with prepared_cursor(db.read_connection) as cursor:
        cursor.execute(statement, [list(row_ids), min(row_ids), max(row_ids)])
        return list(cursor.fetchall())


def conversation(db: Database, found: FoundContext, session: FoundSession, last: int | None = None) -> list[Raw]:
    """Return the entries of a conversation, in order; only the last ones if `last` is given. Others are not read.

    One text instead of all entries, if the reader gets the whole conversation masked.
    """
    # Entries are in the period of their context, at its beginning: see traces_app.ingest.context_rows.
    month = Period.of(ids.created_at_of(found.pk), Length.MONTH)
    below = [month.first_id, month.after_id]
    with db.read_cursor() as cursor:
        if last is None:
            cursor.execute(_ENTRIES, [found.pk, *below])
        else:
            cursor.execute(_LAST_ENTRIES, [last, found.pk, *below])
        entries = [Raw(value) for value, _id in cursor.fetchall()]
    mask = db.read_connection.mask
    if mask is None:
        return entries
    clean = msgspec.json.decode(masked_field(mask, Raw(msgspec.json.encode(entries)), CONVERSATION, session.project_id))
    return [Raw(msgspec.json.encode(entry)) for entry in (clean if isinstance(clean, list) else [clean])]


def variables(db: Database, found: FoundContext, session: FoundSession, keys: Collection[str] | None = None) -> Raw:
    """Return the variables: all, or those of these names that exist."""
    return masked_field(db.read_connection.mask, _variables(db, found, keys), ["variables"], session.project_id)


def _variables(db: Database, found: FoundContext, keys: Collection[str] | None) -> Raw:
    names = None if keys is None else [pg_text.text(key) for key in keys]
    if db.read_connection.decrypts:
        return _variables_opened(db, found, names)
    with db.read_cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(jsonb_object_agg(key, value), '{}')::text FROM traces_app_context, "
            "jsonb_each(coalesce(content -> 'variables', '{}')) AS variable (key, value) "
            "WHERE id = %s AND (%s::text[] IS NULL OR key = ANY(%s))",
            [found.pk, names, names],
        )
        row = cursor.fetchone()
    return Raw(row[0] if row else "{}")


def _variables_opened(db: Database, found: FoundContext, names: Collection[str] | None) -> Raw:
    """Return `variables`, which may be encrypted, so that PostgreSQL cannot choose among them."""
    with db.read_cursor() as cursor:
        cursor.execute(
            f"SELECT (content -> 'variables')::text, id AS {ROW_ID} FROM traces_app_context WHERE id = %s",  # noqa: S608 - constants
            [found.pk],
        )
        row = cursor.fetchone()
    stored = msgspec.json.decode((row and row[0]) or "{}", type=dict[str, Raw])
    return Raw(msgspec.json.encode({key: value for key, value in stored.items() if names is None or key in names}))
