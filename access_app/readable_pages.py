"""Pages over projects in several databases: one that is away is left out and named (docs/scaling.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

from django.contrib import messages
from django.db import OperationalError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.db import Database, all_databases, project_aliases
from access_app.db.conflicts import was_stopped
from access_app.places import scopes_by_database
from access_app.readable import Parts, Readable
from access_app.request_database import database, database_at
from access_app.visibility import ProjectScope

Answer = TypeVar("Answer")


def readable(request: HttpRequest | Request, scope: ProjectScope) -> Readable:
    """Return the projects of a scope as a request reads them: each where it is. Raise Unavailable."""
    return Parts(scopes_by_database(scope, partial(database_at, request)))


def readable_on_page(request: HttpRequest, scope: ProjectScope, *, needs_all: bool = False) -> Readable:
    """Return the projects of a page, by the databases that answer. The page names those that do not.

    Raise OperationalError if none does, or for a file, which `needs_all`, if one does not.
    """
    if not project_aliases():
        return Parts({database(request): scope})
    found: dict[Database, ProjectScope] = {}
    away: OperationalError | None = None
    for db, part in readable(request, scope):
        try:
            with db.read_cursor() as cursor:
                cursor.execute("SELECT 1")
        except OperationalError as error:
            if needs_all:
                raise
            leave_out(request, db, error)
            away = error
            continue
        found[db] = part
    if away is not None and not found:
        raise away
    note_databases(request, found)
    return Parts(found)


def is_some_away(request: HttpRequest, scope: ProjectScope, shown: Readable) -> bool:
    """Return whether projects of a page are in databases that it does not show."""
    return bool(project_aliases()) and not readable(request, scope).by_db.keys() <= shown.by_db.keys()


def leave_out(request: HttpRequest, db: Database, error: OperationalError) -> None:
    """Tell the reader that a database is not shown, because it does not respond. Raise the error if it says something else."""
    if db.is_primary or was_stopped(error):
        raise error
    text = _("The database “%(alias)s” does not respond. Its projects are not shown.")
    messages.warning(request, text % {"alias": db.alias})


def note_databases(request: HttpRequest, shown: Collection[Database]) -> None:
    """Note which databases a page shows, so that it says which projects it does not show."""
    # Read only by databases_shown and by ProjectDatabaseMiddleware.
    request.databases_shown = frozenset(shown)  # type: ignore[attr-defined]


def shown_on_page(request: HttpRequest, scope: ProjectScope) -> Readable:
    """Return the projects of a scope, for each database that the page shows."""
    return Parts(dict.fromkeys(databases_shown(request), scope))


def each_that_answers(request: HttpRequest, ask: Callable[[Database], Answer]) -> dict[Database, Answer]:
    """Return what each database answers, whichever projects it has. The page names those that do not respond."""
    answers = {}
    for db in all_databases():
        try:
            answers[db] = ask(database_at(request, db.alias))
        except OperationalError as error:
            leave_out(request, db, error)
    note_databases(request, all_databases())
    return answers


def databases_shown(request: HttpRequest) -> list[Database]:
    """Return the databases that a page shows: those that it noted, or else that of the request."""
    return sorted(getattr(request, "databases_shown", None) or [database(request)], key=lambda db: db.alias)
