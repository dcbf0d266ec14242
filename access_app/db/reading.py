"""Choose the database that answers reads: the primary, or within `reading_from_replica` its replica. See docs/replicas.md.

Statements that pages, lists and exports read with take `reading_connection()`; QuerySets are routed by `ReadingRouter`. Everything
else uses `access_app.db.connection`, which is the primary: writes, locks, keys, roles, logins, the audit log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from . import PEOPLE_ARE_HERE, PRIMARY, REPLICA, alias_in_use, all_aliases

_OF_TRACES = frozenset({"messages_app", "traces_app"})
OURS = frozenset({"access_app", *_OF_TRACES})
_IN_PRIMARY = frozenset({"savedview", "listcolumns", "modelprice", "maskingrun"})
"""Tables of these apps that belong to people or to the whole site: always those of the primary."""
_alias: ContextVar[str] = ContextVar("reading_alias", default=PRIMARY)


def reading_alias() -> str:
    """Return the alias of the database that answers reads at the moment. Databases of projects have no replica here."""
    in_use = alias_in_use()
    return _alias.get() if in_use == PRIMARY else in_use


def reading_connection() -> BaseDatabaseWrapper:
    """Return this thread's connection for reads. It may be read-only."""
    return connections[reading_alias()]


@contextmanager
def reading_from_replica() -> Iterator[None]:
    """Let the replica answer the reads of the block."""
    token = _alias.set(REPLICA)
    try:
        yield
    finally:
        _alias.reset(token)


class ReadingRouter:
    """Route the reads of traces; who may see them is always read from the primary, so that a right that was taken away is gone.

    Where the database of Tracesite is not the project's own (TRACESITE_DATABASE), also keep other tables out of it.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        if is_of_traces(model):
            return reading_alias()
        return PRIMARY if _app_of(model) in OURS else _of_people(hints)

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        # Not where the object was read from, which is what Django takes otherwise.
        if is_of_traces(model):
            return alias_in_use()
        return PRIMARY if _app_of(model) in OURS else _of_people(hints)

    def allow_relation(self, *objects: Model, **hints: Any) -> bool | None:
        # Primary and replica are one database, and a database of projects has copies of their rows. Users may be in another, see access_app.people.
        return True if any(_app_of(type(each)) in OURS for each in objects) else None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        if db == REPLICA:
            return False
        if PEOPLE_ARE_HERE:
            # In a database of projects, too, so that each has the tables that the others refer to.
            return None
        is_ours = db in all_aliases()
        return is_ours if app_label in OURS else False if is_ours else None


def is_of_traces(model: type[Model]) -> bool:
    """Return whether the rows of a model are where the traces of their project are."""
    return _app_of(model) in _OF_TRACES and model._meta.model_name not in _IN_PRIMARY


def _app_of(model: type[Model]) -> str:
    """Return the app that has the table."""
    return (model._meta.concrete_model or model)._meta.app_label


def _of_people(hints: dict[str, Any]) -> str | None:
    """Return where a row of ours finds its user: Django would look in the database of the row."""
    instance = hints.get("instance")
    return DEFAULT_DB_ALIAS if instance is not None and _app_of(type(instance)) in OURS else None
