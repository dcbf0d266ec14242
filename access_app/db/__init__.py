"""The databases of Tracesite: Django's own backend for PostgreSQL, made quicker, and which aliases of the settings they are.

Our modules take `connection` and `transaction` from here, where others take them from django.db: those are of the alias `default`,
which in a project of others may be another database (docs/django_project.md). And traces of some projects may be in databases of
their own (docs/project_databases.md): `connection` is that of the database that is in use, `primary` always that of the primary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, cast

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from access_app.conf import conf

PRIMARY: str = conf.DATABASE
"""The alias of the database of Tracesite. Read once: Django's connections do not change their meaning in a process either."""
REPLICA: Final = "replica"
"""The alias of the primary's replica in the settings, if there is one."""
BACKEND: Final = "access_app.db"

PEOPLE_ARE_HERE = PRIMARY == DEFAULT_DB_ALIAS
"""Whether users and groups are in the same database, so that keys to them are checked and queries join them."""

_in_use: ContextVar[str] = ContextVar("database_in_use", default=PRIMARY)


def project_aliases() -> tuple[str, ...]:
    """Return the aliases of the databases that have traces of projects beside the primary."""
    return tuple(
        alias
        for alias, options in connections.settings.items()
        if options["ENGINE"] == BACKEND and alias not in (PRIMARY, REPLICA)
    )


def all_aliases() -> tuple[str, ...]:
    """Return the aliases of all databases that have traces, the primary first."""
    return (PRIMARY, *project_aliases())


def alias_in_use() -> str:
    """Return the alias of the database in which this thread or task reads and writes traces."""
    return _in_use.get()


def use(alias: str) -> None:
    """Read and write traces in this database for the rest of the `using` block around."""
    _in_use.set(alias)


@contextmanager
def using(alias: str) -> Iterator[None]:
    """Read and write traces in this database within the block."""
    token = _in_use.set(alias)
    try:
        yield
    finally:
        _in_use.reset(token)


class _InUse:
    """Django's connections, of which it gives the one that is in use, whatever it is asked for."""

    def __getitem__(self, alias: str) -> Any:
        return connections[_in_use.get()]

    def __delitem__(self, alias: str) -> None:
        del connections[_in_use.get()]


connection = cast(BaseDatabaseWrapper, ConnectionProxy(cast(Any, _InUse()), PRIMARY))
"""This thread's connection to the database in use: the primary, unless `using` says another."""
primary = cast(BaseDatabaseWrapper, ConnectionProxy(connections, PRIMARY))
"""This thread's connection to the primary, which has projects, keys, roles and the audit log."""
