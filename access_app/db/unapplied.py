"""Migrations that the database of Tracesite lacks."""

from __future__ import annotations

from typing import Any

from django.db.migrations.executor import MigrationExecutor

from . import PEOPLE_ARE_HERE, primary
from .reading import OURS


def unapplied_migrations() -> list[Any]:
    """Return the migrations to apply: all of the project, or of our apps if the database is ours alone."""
    executor = MigrationExecutor(primary.connection)
    leaves = executor.loader.graph.leaf_nodes()
    return executor.migration_plan([leaf for leaf in leaves if PEOPLE_ARE_HERE or leaf[0] in OURS])
