"""Find sessions by their names, for the search of lists."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from access_app.db import Database
from access_app.models import Project
from messages_app.models import Session

TITLES_SEARCHED = 10_000
FOUND = 500


def sessions_named(db: Database, sessions: QuerySet[Any], term: str) -> list[UUID]:
    """Return the keys of `sessions` with the external id or of the end user `term`, and of the newest ones with `term` in their
    title."""
    # With the projects, because the indexes of external ids and end users begin with them.
    in_projects = sessions.filter(project__in=Project.objects.values_list("pk", flat=True))
    exact, of_user = in_projects.filter(external_id=term), in_projects.filter(end_user=term)
    newest = sessions.order_by("-pk").values_list("pk")[:TITLES_SEARCHED]
    titled = db.rows(Session.with_deleted).filter(pk__in=newest, title__icontains=term)
    return [*first_keys(exact), *first_keys(of_user), *first_keys(titled)]


def first_keys(rows: QuerySet[Any]) -> list[UUID]:
    """Return the newest keys of `rows`, at most FOUND."""
    return list(rows.order_by("-pk").values_list("pk", flat=True)[:FOUND])
