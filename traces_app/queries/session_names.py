"""The names of sessions, and how they and rows are found by their names and the beginnings of their IDs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from access_app.db import Database
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.queries import as_uuid
from messages_app.safe_text import one_line
from messages_app.sql.batch import LIST_MS, limited
from messages_app.sql.pagination import IdRange

from .questions import first_questions

NAME_CHARACTERS = 80
TITLES_SEARCHED = 10_000
FOUND = 500
SHORTEST_BEGINNING = 6
"""Characters from which on a term is looked for as the beginning of an ID: fewer begin too many."""
_DIGITS = 32


def session_name(session: Any) -> str:
    """Return the display name of a session of a list that has read the beginnings of its title and first question: one of these,
    otherwise its external id, otherwise its id."""
    return _first_of(session.shown_title, session.shown_question, session.external_id, str(session.pk))


def read_session_names(sessions: Iterable[Any]) -> dict[UUID, str]:
    """Return the display names of sessions, as `session_name` does, by their ids. One query a database, none if all have a title."""
    titles: dict[UUID, str] = {}
    untitled: dict[Database, dict[UUID, str]] = defaultdict(dict)
    for session in sessions:
        title = one_line(session.shown_title if hasattr(session, "shown_title") else session.title, NAME_CHARACTERS)
        if title:
            titles[session.pk] = title
        else:
            untitled[Database.of_row(session)][session.pk] = session.external_id
    for db, external_ids in untitled.items():
        asked = first_questions(db, external_ids, 4 * NAME_CHARACTERS)
        titles |= {key: _first_of(asked.get(key), name, str(key)) for key, name in external_ids.items()}
    return titles


def read_session_name(session: Any) -> str:
    """Return the display name of one session: see `read_session_names`."""
    return read_session_names([session])[session.pk]


def read_names_around(db: Database, message_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Return the display names of the sessions of messages, by the ids of the messages; none for messages that are gone. At most
    two queries."""
    rows = db.rows(Message.with_deleted).select_related("session").only("session__title", "session__external_id")
    found = rows.in_bulk(list(message_ids))
    names = read_session_names(message.session for message in found.values())
    return {key: names[message.session_id] for key, message in found.items()}


def _first_of(*names: str | None) -> str:
    return next(filter(None, (one_line(name, NAME_CHARACTERS) for name in names)))


def sessions_named(db: Database, sessions: QuerySet[Any], term: str) -> list[UUID]:
    """Return the keys of `sessions` with the external id or of the end user `term`, and of the newest ones with `term` in their
    title."""
    in_projects = _in_projects(sessions)
    exact, of_user = in_projects.filter(external_id=term), in_projects.filter(end_user=term)
    newest = sessions.order_by("-pk").values_list("pk")[:TITLES_SEARCHED]
    titled = db.rows(Session.with_deleted).filter(pk__in=newest, title__icontains=term)
    return [*first_keys(exact), *first_keys(of_user), *first_keys(titled)]


def sessions_beginning(db: Database, sessions: QuerySet[Any], term: str) -> list[UUID]:
    """Return the keys of `sessions` whose id or external id begins with `term`, which has SHORTEST_BEGINNING characters at least.

    The index of external ids serves it in a database that sorts by code point, as the embedded one does; another reads all
    external ids of the projects. Raise InvalidInput if that takes longer than LIST_MS.
    """
    if len(term) < SHORTEST_BEGINNING:
        return []
    # The index has no empty external ids.
    named = _in_projects(sessions).exclude(external_id="").filter(external_id__startswith=term)
    with limited(db, LIST_MS):
        return [*first_keys(named), *keys_beginning(sessions, term)]


def keys_beginning(rows: QuerySet[Any], term: str) -> list[UUID]:
    """Return the newest keys of `rows` that begin with `term`, SHORTEST_BEGINNING digits at least, at most FOUND."""
    found = ids_beginning(term)
    return [] if found is None else first_keys(rows.filter(**found.of("pk")))


def ids_beginning(text: str) -> IdRange | None:
    """Return the range of the ids that begin with a text, with or without hyphens; None if no id does, or the text is short."""
    whole = as_uuid(text)
    digits = text.replace("-", "").lower() if whole is None else whole.hex
    lower = as_uuid(digits.ljust(_DIGITS, "0"))
    if lower is None or len(digits) < SHORTEST_BEGINNING:
        return None
    if whole is None and not any(one.startswith(text.lower()) for one in (str(lower), lower.hex)):
        return None
    after = lower.int + (1 << 4 * (_DIGITS - len(digits)))
    return IdRange(lower=lower, upper=None if after >> 4 * _DIGITS else UUID(int=after))


def first_keys(rows: QuerySet[Any]) -> list[UUID]:
    """Return the newest keys of `rows`, at most FOUND."""
    return list(rows.order_by("-pk").values_list("pk", flat=True)[:FOUND])


def _in_projects(sessions: QuerySet[Any]) -> QuerySet[Any]:
    """Return the sessions with their projects, because the indexes of external ids and end users begin with them."""
    return sessions.filter(project__in=Project.objects.values_list("pk", flat=True))
