"""Databases for the traces of some projects: see docs/project_databases.md."""

from __future__ import annotations

from typing import Final

from django.db import connections

from access_app.db import PRIMARY, transaction
from access_app.models import Project, ProjectDatabase
from traces_app.models import ArchivedSession, SnapshotPart, Tool

IDS_OF_A_DATABASE: Final = 2**40
"""How many ids of a table a database gives, so that a row keeps its id when its project moves. JavaScript takes 2**53 exactly."""


class NotEmpty(Exception):
    """A database that is to be prepared has traces of another site."""


def prepare(alias: str) -> None:
    """Note a migrated database in the primary, and let it give ids that no other one gives. Raise NotEmpty."""
    if ProjectDatabase.objects.filter(alias=alias).exists():
        return
    if Project.objects.using(alias).exists():
        raise NotEmpty(f"The database {alias} has projects, but is not one of this site. Use an empty one.")
    with transaction.atomic(using=PRIMARY):
        database = ProjectDatabase.objects.create(alias=alias)
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            for model in (Tool, SnapshotPart, ArchivedSession):  # of what moves; other ids are UUIDs
                cursor.execute(
                    "SELECT setval(pg_get_serial_sequence(%s, 'id'), %s, false)",
                    [model._meta.db_table, database.pk * IDS_OF_A_DATABASE],
                )
