"""Where the terms of a search are found, message by message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from access_app.db import Database
from access_app.readable import ReadableRows
from messages_app.models import Message
from messages_app.sql.pagination import Cursor, ListRows, PageRequest
from traces_app.queries.search.found import Hit
from traces_app.queries.search.pages import found_page
from traces_app.queries.search.query import SearchQuery

from .answer import Answer, Data, Hint, Line, Section, line


def search(
    rows: ReadableRows[ListRows], query: SearchQuery, page: PageRequest, parameters: Mapping[str, Any]
) -> Answer:
    """Return the messages of `rows` that have the terms. `parameters` are those that the next page takes, too."""
    found = found_page(rows, query, "message", page)
    read = rows.read(found.page.ids, _messages)
    lines = [one for message in read for one in _lines(message, found.hits[message.pk], parameters)]
    return Answer(
        title="Search",
        head=[
            line("messages: {message_count}", message_count=len(read)),
            line("searched back to {searched_to}, because it took long", searched_to=found.searched_to),
        ],
        sections=[
            Section(
                title="Messages, newest first",
                lines=lines,
                rest=Hint("search", {**parameters, "cursor": found.page.next}) if found.page.next else None,
            )
        ],
        found=len(read),
    )


def _messages(db: Database, ids: Sequence[UUID]) -> list[Message]:
    rows = db.rows(Message.with_deleted).only("session_id", "role", "created_at").in_bulk(ids)
    return [rows[key] for key in ids if key in rows]


def _lines(message: Message, hits: Sequence[Hit], parameters: Mapping[str, Any]) -> Iterator[Line]:
    is_run = message.role == Message.Role.ASSISTANT
    at = Cursor(position=UUID(int=message.pk.int + 1), newer=False)
    for hit in hits:
        kind = hit.kind.name.lower()
        yield line(
            *("{created_at}", "{role}", "{kind} {field}", "{text}", "{kind} {id}", "run {run}", "message {message}"),
            created_at=message.created_at,
            role=message.role,
            kind=kind,
            field=hit.field,
            text=Data(f"{hit.before}{hit.match}{hit.after}"),
            id=str(hit.row_id) if kind in ("step", "call") else None,
            run=str(message.pk) if is_run else None,
            message=None if is_run else str(message.pk),
            resume=Hint("search", {**parameters, "cursor": at}),
        )
