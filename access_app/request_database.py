"""The database that a request or a project has its traces in: what views and pages hand to everything that reads and writes."""

from __future__ import annotations

from django.http import HttpRequest
from rest_framework.request import Request

from .audit.trail import Actor, actor_of
from .db import PRIMARY, Database, project_aliases
from .models import ApiKey
from .places import alias_of, projects_in

__all__ = ["database", "database_at", "database_of", "is_only", "projects_in", "use_alias", "use_database_of"]


def database(request: HttpRequest | Request) -> Database:
    """Return the database that a request reads and writes: that of its key's project, or of the project that it is about."""
    alias = getattr(request, "database_alias", None)
    if alias is None:
        key = getattr(request, "auth", None)
        alias = alias_of(key.project_id) if isinstance(key, ApiKey) else PRIMARY
        request.database_alias = alias  # type: ignore[union-attr]  # read only here
    return database_at(request, alias)


def database_at(request: HttpRequest | Request, alias: str) -> Database:
    """Return the database with this alias as a request reads and writes it."""
    # Databases of projects have no replica here.
    reads_from_replica = alias == PRIMARY and getattr(request, "reads_from_replica", False)
    return Database(alias, reads_from_replica=reads_from_replica, actor=actor_of(request))


def database_of(project_id: int, actor: Actor | None = None) -> Database:
    """Return the database that has the traces of a project, for who acts there."""
    return Database(alias_of(project_id), actor=actor)


def use_database_of(request: HttpRequest | Request, project_id: int) -> None:
    """Let a request read and write in the database of this project from now on."""
    request.database_alias = alias_of(project_id)  # type: ignore[union-attr]  # read by `database`


def use_alias(request: HttpRequest | Request, alias: str) -> None:
    """Let a request read and write in this database from now on."""
    request.database_alias = alias  # type: ignore[union-attr]  # read by `database`


def is_only(db: Database) -> bool:
    """Return whether a database has the traces of all projects."""
    return db.is_primary and not project_aliases()
