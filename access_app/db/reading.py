"""Route QuerySets to databases, for what nobody hands a `Database`: rows that are reached from others, and tables that are in the primary.

A row that belongs to a row of traces is where that one was read. Without one the primary is meant, as in tests and shells; our own
code says `db.rows(Message.objects)`, and a test keeps it so.
"""

from __future__ import annotations

from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.models import Model

from . import PEOPLE_ARE_HERE, PRIMARY, REPLICA, all_aliases

_OF_TRACES = frozenset({"messages_app", "traces_app"})
OURS = frozenset({"access_app", *_OF_TRACES})
_IN_PRIMARY = frozenset({"savedview", "listcolumns", "modelprice", "maskingrun", "errorgroupstate"})
"""Tables of these apps that belong to people or to the whole site: always those of the primary."""


class ReadingRouter:
    """Route the reads of traces; who may see them is always read from the primary, so that a right that was taken away is gone.

    Where the database of Tracesite is not the project's own (TRACESITE_DATABASE), also keep other tables out of it.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        if is_of_traces(model):
            return _alias_of(hints)
        return PRIMARY if _app_of(model) in OURS else _of_people(hints)

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        if is_of_traces(model):
            alias = _alias_of(hints)
            # Not where the object was read from, which is what Django takes otherwise.
            return PRIMARY if alias == REPLICA else alias
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


def _alias_of(hints: dict[str, Any]) -> str:
    """Return where the rows are that belong to the row of the hints: where it was read, if it is one of traces."""
    instance = hints.get("instance")
    if instance is None or not is_of_traces(type(instance)):
        return PRIMARY
    return instance._state.db or PRIMARY  # noqa: SLF001 - Django documents it
