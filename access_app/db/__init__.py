"""The databases of Tracesite: Django's own backend for PostgreSQL, made quicker, and which aliases of the settings they are.

Traces of some projects may be in databases of their own, and reads may go to a replica
(docs/scaling.md). So whatever reads or writes traces is handed a `Database` as its first argument, by the view, command or job that
knows whose traces these are. Projects, keys, roles and the audit log are always in `primary`, which in a project of others may be
another database than `default` (docs/django_project.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Model, QuerySet
from django.db.models.manager import BaseManager

from access_app.conf import conf

if TYPE_CHECKING:
    from .base import DatabaseWrapper  # which Django loads after this

Rows = TypeVar("Rows", bound=BaseManager[Any])
QuerySetOfRows = TypeVar("QuerySetOfRows", bound=QuerySet[Any, Any])

PRIMARY: str = conf.DATABASE
"""The alias of the database of Tracesite. Read once: Django's connections do not change their meaning in a process either."""
REPLICA: Final = "replica"
"""The alias of the primary's replica in the settings, if there is one."""
BACKEND: Final = "access_app.db"

PEOPLE_ARE_HERE = PRIMARY == DEFAULT_DB_ALIAS
"""Whether users and groups are in the same database, so that keys to them are checked and queries join them."""


@dataclass(frozen=True)
class Database:
    """A database with traces, as the code that reads and writes there is handed it."""

    alias: str
    reads_from_replica: bool = False
    """Whether its replica answers what is only read: that of a GET request, say. See tracesite.http.replica_reading."""
    actor: Any = field(default=None, compare=False)
    """The one that reads and writes there, for the audit log: an access_app.audit.trail.Actor, which needs this module; None for the system."""

    @classmethod
    def of(cls, rows: QuerySet[Any]) -> Database:
        """Return the database that a QuerySet reads."""
        return cls._named(rows.db)

    @classmethod
    def of_row(cls, row: Model) -> Database:
        """Return the database that a row was read from."""
        return cls._named(row._state.db or PRIMARY)  # noqa: SLF001 - Django documents it

    @classmethod
    def _named(cls, alias: str) -> Database:
        return cls(PRIMARY, reads_from_replica=True) if alias == REPLICA else cls(alias)

    @property
    def is_primary(self) -> bool:
        """Whether it also has what is of the whole site."""
        return self.alias == PRIMARY

    @property
    def read_alias(self) -> str:
        """The alias of the database that answers what is only read."""
        return REPLICA if self.reads_from_replica else self.alias

    @property
    def connection(self) -> DatabaseWrapper:
        """This thread's connection."""
        return cast("DatabaseWrapper", connections[self.alias])

    @property
    def read_connection(self) -> DatabaseWrapper:
        """This thread's connection for what is only read; it may be read-only."""
        return cast("DatabaseWrapper", connections[self.read_alias])

    def cursor(self) -> CursorWrapper:
        """Return a cursor of Django for statements that write, lock, or read what was just written."""
        return self.connection.cursor()

    def read_cursor(self) -> CursorWrapper:
        """Return a cursor of Django for statements that only read."""
        return self.read_connection.cursor()

    def rows(self, manager: Rows) -> Rows:
        """Return a manager of a model of traces for the rows in this database: `db.rows(Message.objects).filter(...)`."""
        return manager.db_manager(self.read_alias)

    def rows_of(self, queryset: QuerySetOfRows) -> QuerySetOfRows:
        """Return a QuerySet for the rows in this database, whichever it was made for."""
        return queryset.using(self.read_alias)

    def read_transaction(self) -> transaction.Atomic:
        """Return a transaction for what is only read, as a context manager."""
        return transaction.atomic(using=self.read_alias)

    def atomic(self) -> transaction.Atomic:
        """Return a transaction of this database, as a context manager and a decorator: see django.db.transaction.atomic."""
        return transaction.atomic(using=self.alias)

    def on_commit(self, function: Callable[[], object]) -> None:
        """Call the function once the transaction of this database is committed, at once if there is none."""
        transaction.on_commit(function, using=self.alias)


primary: Final = Database(PRIMARY)
"""The database that has projects, keys, roles, the audit log, and the traces of projects without a database of their own."""


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


def all_databases() -> tuple[Database, ...]:
    """Return all databases that have traces, the primary first."""
    return tuple(map(Database, all_aliases()))
