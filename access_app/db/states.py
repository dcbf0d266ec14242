"""Ask the databases beside the primary, which have the traces of some projects, whether they can be used: for `/readyz`, `/metrics` and the admin."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import psycopg
from django.db.migrations.recorder import MigrationRecorder
from msgspec import Struct

from access_app.db import Database, primary, project_aliases
from access_app.db.direct import connection_parameters
from access_app.db.earlier_migrations import EARLIER

ANSWER_SECONDS = 2
"""How long to wait for a connection, which is the least that libpq takes, and for its answer."""
_ASKED_AT_ONCE = 16
_APPLIED = "SELECT app, name FROM django_migrations"

Reason = Literal["", "away", "not_migrated"]


class DatabaseState(Struct, frozen=True, kw_only=True):
    alias: str
    reason: Reason
    """Why its projects cannot be read and written; "" if they can."""


def database_states() -> list[DatabaseState]:
    """Return the state of each database beside the primary, which has to be there. They are asked at once, with connections of their own."""
    aliases = project_aliases()
    if not aliases:
        return []
    parameters = [
        {
            **connection_parameters(Database(alias)),
            "connect_timeout": ANSWER_SECONDS,
            "tcp_user_timeout": 1000 * ANSWER_SECONDS,
            "application_name": "tracesite health",
        }
        for alias in aliases
    ]
    # A primary that was made by the earlier migrations has their names, and a database that was added since does not.
    wanted = MigrationRecorder(primary.connection).applied_migrations().keys() - EARLIER
    with ThreadPoolExecutor(min(len(aliases), _ASKED_AT_ONCE)) as threads:
        reasons = list(threads.map(lambda one: _reason(one, wanted), parameters))
    return [DatabaseState(alias=alias, reason=reason) for alias, reason in zip(aliases, reasons, strict=True)]


def _reason(parameters: dict[str, Any], wanted: set[tuple[str, str]]) -> Reason:
    try:
        with psycopg.connect(**parameters, autocommit=True) as connection:
            connection.execute(f"SET statement_timeout = {1000 * ANSWER_SECONDS}")
            applied = set(connection.execute(_APPLIED).fetchall())
    except psycopg.errors.UndefinedTable:
        return "not_migrated"
    except psycopg.Error:
        return "away"
    return "" if wanted <= applied else "not_migrated"
