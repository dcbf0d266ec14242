"""Pages over projects in several databases: one that is away is left out and named (docs/project_databases.md)."""

from __future__ import annotations

from collections.abc import Collection

from django.contrib import messages
from django.db import OperationalError
from django.http import HttpRequest
from django.utils.translation import gettext as _

from access_app.db import PRIMARY, alias_in_use, project_aliases, using
from access_app.db.reading import reading_connection
from access_app.places import scopes_by_database
from access_app.visibility import ProjectScope
from messages_app.sql.batch import was_stopped


def scopes_of_figures(request: HttpRequest, scope: ProjectScope, *, needs_all: bool = False) -> dict[str, ProjectScope]:
    """Return the projects of a page, by the aliases of the databases that answer. The page names those that do not.

    Raise OperationalError if none does, or for a file, which `needs_all`, if one does not.
    """
    if not project_aliases():
        return {alias_in_use(): scope}
    found: dict[str, ProjectScope] = {}
    away: OperationalError | None = None
    for alias, part in scopes_by_database(scope).items():
        with using(alias):
            try:
                with reading_connection().cursor() as cursor:
                    cursor.execute("SELECT 1")
            except OperationalError as error:
                if needs_all:
                    raise
                leave_out(request, alias, error)
                away = error
                continue
        found[alias] = part
    if away is not None and not found:
        raise away
    note_databases(request, found)
    return found


def is_some_away(scope: ProjectScope, shown: Collection[str]) -> bool:
    """Return whether projects of a page are in databases that it does not show."""
    return bool(project_aliases()) and not scopes_by_database(scope).keys() <= set(shown)


def leave_out(request: HttpRequest, alias: str, error: OperationalError) -> None:
    """Tell the reader that a database is not shown, because it does not respond. Raise the error if it says something else."""
    if alias == PRIMARY or was_stopped(error):
        raise error
    text = _("The database “%(alias)s” does not respond. Its projects are not shown.")
    messages.warning(request, text % {"alias": alias})


def note_databases(request: HttpRequest, aliases: Collection[str]) -> None:
    """Note which databases a page shows, so that it says which projects it does not show."""
    # Read only by databases_shown and by ProjectDatabaseMiddleware.
    request.databases_shown = frozenset(aliases)  # type: ignore[attr-defined]


def databases_shown(request: HttpRequest) -> list[str]:
    """Return the aliases of the databases that a page shows: those that it noted, or else the one in use."""
    return sorted(getattr(request, "databases_shown", None) or [alias_in_use()])
