"""Where the terms of a search are found, message by message."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from access_app.db import Database
from access_app.readable import ReadableRows
from messages_app.models import Message
from messages_app.sql.pagination import Cursor, ListRows, PageRequest
from traces_app.models import ToolCall
from traces_app.queries.search.found import Hit
from traces_app.queries.search.pages import found_messages, found_page
from traces_app.queries.search.query import SearchQuery
from traces_app.queries.search.texts import Kind

from .answer import Answer, Data, Hint, Line, Section, line

NOTHING = "No message has all of these terms, in its text, steps, calls or results. Try fewer, or find_failures."


def search(
    rows: ReadableRows[ListRows], query: SearchQuery, page: PageRequest, parameters: Mapping[str, Any]
) -> Answer:
    """Return the messages of `rows` that have the terms. `parameters` are those that the next page takes, too."""
    found = found_page(rows, query, "message", page)
    read = rows.read(found.page.ids, found_messages)
    hits = {message.pk: list(_once(found.hits[message.pk])) for message in read}
    called = {hit.row_id for some in hits.values() for hit in some if hit.kind == Kind.CALL}
    calls = {key: call for part in rows.parts for key, call in _calls(part, called).items()}
    lines = [one for message in read for one in _lines(message, hits[message.pk], calls, parameters)]
    return Answer(
        title="Search",
        head=[
            line("messages: {message_count}", message_count=len(read)),
            line("{advice}", advice=None if read or page.cursor else NOTHING),
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


def _once(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Yield the first hit of each place, in which several terms may be."""
    seen = set()
    for hit in hits:
        if (place := (hit.row_id, hit.field)) not in seen:
            seen.add(place)
            yield hit


def _calls(db: Database, keys: Collection[UUID]) -> dict[UUID, tuple[str, str]]:
    """Return tool and status of calls. One query, or none."""
    if not keys:
        return {}
    rows = db.rows(ToolCall.with_deleted).filter(pk__in=keys, pk__gte=min(keys), pk__lte=max(keys))
    return {key: (tool, status) for key, tool, status in rows.values_list("pk", "tool__name", "status")}


def _lines(
    message: Message, hits: Sequence[Hit], calls: Mapping[UUID, tuple[str, str]], parameters: Mapping[str, Any]
) -> Iterator[Line]:
    is_run = message.role == Message.Role.ASSISTANT
    at = Cursor(position=UUID(int=message.pk.int + 1), newer=False)
    for hit in hits:
        kind = hit.kind.name.lower()
        tool, status = calls.get(hit.row_id, ("", ""))
        yield line(
            *(
                "{created_at}",
                "{role}",
                "{kind} {field}",
                "{text}",
                "{tool} {status}",
                "{kind} {id}",
                "run {run}",
                "message {message}",
            ),
            created_at=message.created_at,
            role=message.role,
            kind=kind,
            field=hit.field,
            text=Data(f"{hit.before}{hit.match}{hit.after}"),
            tool=Data(tool),
            status=status,
            id=str(hit.row_id) if kind in ("step", "call") else None,
            run=str(message.pk) if is_run else None,
            message=None if is_run else str(message.pk),
            resume=Hint("search", {**parameters, "cursor": at}),
        )
