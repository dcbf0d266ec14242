"""The searched texts of a trace: those of each row, by field.

A field is declared in one place: `SEARCHED`. JSON is searched as its keys and values, one a line, without the escapes of JSON.
The title of a session is a text of each of its messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet, TextField
from django.db.models.functions import Cast
from msgspec import Struct

from access_app.db import Database
from access_app.encryption.keys import encrypting_projects
from messages_app.change_log import Reader, unread
from messages_app.models import ChangeReader, Message, Reference
from messages_app.sql.beginnings import Beginning
from messages_app.sql.pagination import ids_below
from traces_app.models import AgentStep, Event, ToolCall

MOST_CHARACTERS = 100_000
"""The beginning of each value that is searched."""
MOST_OF_JSON = 2 * MOST_CHARACTERS
"""Characters of a JSON text that are read, with what is not searched: brackets, quotation marks and escapes."""

_ROWS_AT_A_TIME = 100
_BETWEEN_STRINGS = re.compile(r"[\[\]{}]+(?:, )?|, ")
# The last one may be cut off.
_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\[^u]|\\(?:u[0-9a-fA-F]{0,3})?\Z")
# PostgreSQL stores no NUL.
_BACKSLASH = "\0b"
_QUOTATION_MARK = "\0q"


class Kind(IntEnum):
    """The kind of a row, as the index stores it."""

    MESSAGE = 0
    STEP = 1
    CALL = 2
    """A call with its result."""
    REFERENCE = 3
    EVENT = 4
    """An event of a run as a whole, or of nothing; those of steps and calls say what these rows say."""


class Mark(IntEnum):
    """A property of rows that the index knows besides their texts, for a filter that few rows pass. It changes only
    by writes that note its message in the log of changes."""

    FAILED = 1
    """A call that failed."""


class Source(Struct, frozen=True, kw_only=True):
    """The searched columns of a table, each with the name of its field in the grammar."""

    rows: QuerySet[Any, Any]
    """All rows, deleted ones too."""
    message: str = "message_id"
    """The path to the id of its message."""
    fields: Mapping[str, str]
    json: frozenset[str] = frozenset()
    """The columns that hold JSON."""
    marks: Mapping[Mark, Q] = {}
    """The conditions of marks."""
    by_session: bool = False
    """Whether its rows are found by the session, because they have no index by message."""


SEARCHED: Mapping[Kind, Source] = {
    Kind.MESSAGE: Source(
        rows=Message.with_deleted.all(),
        message="pk",
        fields={"content": "content", "error": "error", "session__title": "title"},
    ),
    Kind.STEP: Source(
        rows=AgentStep.with_deleted.all(),
        fields={"thought": "thought", "reasoning": "thought", "agent_name": "agent", "model": "model"},
    ),
    Kind.CALL: Source(
        rows=ToolCall.with_deleted.all(),
        fields={
            "tool__name": "tool",
            "call_id": "id",
            "args": "args",
            "reflection": "thought",
            "result__output": "output",
            "result__data": "output",
            "result__error": "error",
        },
        json=frozenset({"args", "result__data"}),
        marks={Mark.FAILED: Q(status=ToolCall.Status.ERROR)},
    ),
    Kind.REFERENCE: Source(
        rows=Reference.objects.all(),
        fields={"knowledge_title": "reference", "knowledge_filename": "reference", "content": "reference"},
    ),
    Kind.EVENT: Source(
        rows=Event.objects.filter(subject__in=["", "run"]),
        fields={"data": "event"},
        json=frozenset({"data"}),
        by_session=True,
    ),
}
FIELDS = sorted({field for source in SEARCHED.values() for field in source.fields.values()})
"""The names that a term may begin with."""


class RowTexts(Struct, frozen=True):
    """A row and what it says."""

    kind: Kind
    id: UUID
    message_id: UUID
    texts: tuple[tuple[str, str], ...]
    """Field and text, without empty ones."""
    marks: tuple[Mark, ...] = ()


def kinds_with(field: str | None) -> frozenset[Kind]:
    """Return the kinds of rows that have a field; all for None."""
    return frozenset(kind for kind, source in SEARCHED.items() if field is None or field in source.fields.values())


def texts_of_messages(db: Database, message_ids: Collection[UUID]) -> Iterator[RowTexts]:
    """Yield all rows of messages, kind by kind."""
    for kind in SEARCHED:
        yield from texts_of_kind(db, kind, message_ids)


def texts_of_kind(db: Database, kind: Kind, message_ids: Collection[UUID]) -> Iterator[RowTexts]:
    """Yield the rows of one kind of messages."""
    yield from _texts(db, kind, SEARCHED[kind], SEARCHED[kind].message, message_ids)


def texts_of_rows(db: Database, rows: Mapping[Kind, Collection[UUID]]) -> Iterator[RowTexts]:
    """Yield those of the rows that exist."""
    for kind, row_ids in rows.items():
        yield from _texts(db, kind, SEARCHED[kind], "pk", row_ids)


def sessions_of(db: Database, message_ids: Collection[UUID]) -> dict[UUID, UUID]:
    """Return the session of each of the messages that exist."""
    if not message_ids:
        return {}
    periods = ids_below(message_ids)
    messages = db.rows(Message.with_deleted).order_by().filter(pk__in=message_ids, **periods)
    return dict(messages.values_list("pk", "session_id"))


def unindexed(db: Database, message_ids: Collection[UUID] | None = None, within: Q = Q()) -> set[UUID]:  # noqa: B008 - it is never changed
    """Return the messages that the index does not have as they are: of these, of a range, or all."""
    changed = unread(db, Reader.SEARCH).filter(within)
    if message_ids is not None:
        changed = changed.filter(message_id__in=list(message_ids))
    found = set(changed.values_list("message_id", flat=True))
    # Afterwards: what the reader reads meanwhile waits, or is in the index.
    readers = db.rows(ChangeReader.objects).filter(pk=Reader.SEARCH)
    waiting = {UUID(key) for reader in readers for key in reader.state.get("waiting", ())}
    return found | (waiting if message_ids is None else waiting.intersection(message_ids))


def words_of_json(text: str) -> str:
    """Return the keys and values of a JSON text as PostgreSQL writes it, one a line, without the escapes of JSON.

    `{"city": "Xi'an", "tags": ["a\\nb"]}` becomes `city: Xi'an`, `tags: a` and `b`. Any depth. Only the beginning is read.
    """
    text = text[:MOST_OF_JSON].replace(r"\\", _BACKSLASH).replace(r"\"", _QUOTATION_MARK)
    # Every other part is a string. The others are read at once, because there may be thousands.
    parts = text.split('"')
    parts[::2] = _BETWEEN_STRINGS.sub("\n", '"'.join(parts[::2])).split('"')
    words = "".join(parts).replace(r"\n", "\n")
    if "\\" in words:
        words = _ESCAPES.sub(_unescaped, words)
    return words.replace(_QUOTATION_MARK, '"').replace(_BACKSLASH, "\\").strip("\n")


def _unescaped(match: re.Match[str]) -> str:
    escapes = match[0]
    is_cut_off = escapes.startswith(r"\u") and len(escapes) % 6 or escapes == "\\"
    return "" if is_cut_off else json.loads(f'"{escapes}"')


def _texts(db: Database, kind: Kind, source: Source, column: str, row_ids: Collection[UUID]) -> Iterator[RowTexts]:
    if not row_ids:
        return
    within: dict[str, Any] = ids_below(row_ids)
    if source.by_session and column == source.message:
        within["session_id__in"] = set(sessions_of(db, row_ids).values())
    # JSON comes as text, because it may be nested more deeply than Python decodes. A whole value may have 64 MB.
    columns: list[Any] = [
        Beginning(Cast(F(name), TextField()), MOST_OF_JSON) if name in source.json else Beginning(name, MOST_CHARACTERS)
        for name in source.fields
    ]
    columns += [ExpressionWrapper(condition, BooleanField()) for condition in source.marks.values()]
    # By which rules a row is masked depends on its project.
    columns.append("project_id")
    rows = db.rows_of(source.rows).order_by().filter(**{f"{column}__in": row_ids}, **within)
    if encrypted := encrypting_projects():
        # Neither the index nor a search may have their texts.
        rows = rows.exclude(project_id__in=encrypted)
    for row_id, message_id, *values in rows.values_list("pk", source.message, *columns).iterator(
        chunk_size=_ROWS_AT_A_TIME
    ):
        texts = []
        for (name, field), value in zip(source.fields.items(), values, strict=False):
            text = words_of_json(value) if value and name in source.json else value
            if text:
                texts.append((field, text[:MOST_CHARACTERS]))
        marked = zip(source.marks, values[len(source.fields) :], strict=False)
        yield RowTexts(kind, row_id, message_id, tuple(texts), tuple(mark for mark, has_mark in marked if has_mark))
