"""Databases for the traces of some projects, beside the one of the tests: copies of it, on the same server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections
from django.test import override_settings
from psycopg import sql

from access_app.db import primary
from access_app.db.direct import connection_parameters
from access_app.models import Project
from traces_app.maintenance.moving import prepare

MIDDLEWARE = "tracesite.http.project_database.ProjectDatabaseMiddleware"


@contextmanager
def copies(aliases: Sequence[str], *, of: str = "") -> Iterator[None]:
    """Have databases of these aliases, which are copies of the empty one of the tests, or `of` another one. For a module, before its tests."""
    ours = connection.settings_dict
    parameters: dict[str, Any] = connection_parameters(primary)
    connection.close()  # a template has no other users
    names = {alias: f"{ours['NAME']}_{alias}" for alias in aliases}
    with psycopg.connect(**{**parameters, "dbname": "postgres"}, autocommit=True) as server:
        for alias, name in names.items():
            server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
            server.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(of or ours["NAME"])
                )
            )
            connections.settings[alias] = {**ours, "NAME": name}
        try:
            with override_settings(
                MIDDLEWARE=[*settings.MIDDLEWARE, MIDDLEWARE],
                DATABASE_ROUTERS=["access_app.db.reading.ReadingRouter"],
            ):
                yield
        finally:
            for alias, name in names.items():
                connections[alias].close()
                del connections[alias], connections.settings[alias]
                _drop(server, name)


def small_and_big(settings: Any) -> list[Project]:
    """Create a project in the primary, and one in the database `tenant`."""
    prepare("tenant")
    settings.TRACESITE_PROJECT_DATABASES = {"big": "tenant"}
    for slug in ("small", "big"):
        call_command("create_project", slug, stdout=StringIO())
    return [Project.objects.get(slug=slug) for slug in ("small", "big")]


def _drop(server: psycopg.Connection[Any], name: str) -> None:
    for attempt in range(1, 31):
        try:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
            return
        except psycopg.errors.InsufficientPrivilege:
            # Autovacuum is there, which only a superuser may stop.
            if attempt == 30:
                raise
        time.sleep(1)
