"""The database backend of the settings: Django's own for PostgreSQL, with settings for plans and a quick health check.

Django sends `SELECT 1` on a connection before it is used for the next request. Where the process behind it sleeps, that takes
0.2 ms: a tenth of a small response. A connection whose server has gone has something to read on its socket, so it is enough
to poll that. A machine that vanished without closing its connections is not found by `SELECT 1` either.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import psycopg
from django.db.backends.postgresql import base, operations
from psycopg import pq
from psycopg.rows import tuple_row

from access_app.conf import conf

PLANS_FOR_ANY_VALUES = (
    "SET plan_cache_mode = force_generic_plan; SET jit = off; SET max_parallel_workers_per_gather = 0"
)
"""PostgreSQL would plan most statements on partitioned tables anew each time. And for many partitions it estimates so high a
cost that it compiles statements that take a millisecond, or starts workers for them: measured with 179 weeks, one run took 48 ms,
of which 33 were spent on waiting for workers."""
PLANS_FOR_ANY_SIZE = "SET enable_seqscan = off"
"""A plan with a sequential scan, because the table was small or empty when it was analysed, would be kept until it is analysed
again, and so would those of PostgreSQL's own checks of foreign keys. Measured after an ANALYZE of an empty month: 21 ms of
PostgreSQL's CPU a message instead of 1.6."""

TIMELINE = "SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
"""The timeline of the server's log, which changes when a replica is promoted or a backup restored."""

CANNOT_CONNECT = "cannot connect to the database "
"""The beginning of the note of errors of a connection that could not be made; the alias of the database follows."""

_COLUMNS = (
    "SELECT attrelid::bigint, attnum, name, attname FROM unnest(%s::text[]) AS name "
    "JOIN pg_attribute ON attrelid = to_regclass(name) AND attnum > 0"
)
_READY = (pq.TransactionStatus.IDLE, pq.TransactionStatus.INTRANS)


class PreparedCursor(psycopg.Cursor[Any]):
    """A cursor that prepares its statements; see access_app.db.statements."""

    def execute(self, query: Any, params: Any = None, **kwargs: Any) -> PreparedCursor:
        super().execute(query, params, **{"prepare": True, **kwargs})
        return self


class DatabaseOperations(operations.DatabaseOperations):
    def last_executed_query(self, cursor: Any, sql: Any, params: Any) -> str:
        """Return the text for Django's log of queries; of a prepared statement Django has none."""
        if isinstance(cursor, PreparedCursor):
            return str(self.compose_sql(sql, params))
        return super().last_executed_query(cursor, sql, params)


class DatabaseWrapper(base.DatabaseWrapper):
    ops_class = DatabaseOperations
    longest_statement_ms: int | None = None
    """The statement_timeout of this process's connections; None leaves the configured one."""
    avoids_whole_tables = False
    """Whether connections of this process plan by PLANS_FOR_ANY_SIZE."""
    timeline = ""
    """TIMELINE when the connection was made."""
    mask: Any = None
    """The RowMask that hides what the reader of this thread's request may not see; None if it sees everything. Set by
    access_app.masked_reading, for the connections to all databases at once."""
    decrypts = False
    """Whether the connections of this process decrypt rows: if it has a master key, or if one of them found data keys. Without a master
    key what is encrypted is refused, rather than shown as it is stored. See access_app.encryption.reading."""
    _is_as_stored = False
    opened_rows: ClassVar[Callable[[Any], Any] | None] = None
    """The maker of the row factory that decrypts, around the one that masks. Set when the process starts, because it needs this module."""
    place: tuple[tuple[str, str], int] | None = None
    """The checked server of the replica: its host and port, of those in the settings, and the number of the check's
    connection."""

    def get_connection_params(self) -> dict[str, Any]:
        parameters: dict[str, Any] = super().get_connection_params()
        if self.place is not None:
            parameters["host"], parameters["port"] = self.place[0]
        return parameters

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        try:
            return super().get_new_connection(conn_params)
        except psycopg.OperationalError as error:
            error.add_note(f"{CANNOT_CONNECT}{self.alias}")
            raise

    def create_cursor(self, name: str | None = None) -> Any:
        return self.prepared_for_reader(super().create_cursor(name))

    def prepared_for_reader(self, cursor: Any) -> Any:
        """Return the cursor, which decrypts its rows if there are encrypted ones, and masks them if the reader reads masked values."""
        factory = None if self.mask is None else self.mask.row_factory(self)
        if self.decrypts and not self._is_as_stored:
            open_rows = type(self).opened_rows
            assert open_rows is not None, "it is set when the process starts"
            factory = open_rows(factory)
        if factory is not None:
            cursor.row_factory = factory
        return cursor

    @contextmanager
    def as_stored(self) -> Iterator[None]:
        """Let the cursors that are made in the block give encrypted values as they are stored."""
        before, self._is_as_stored = self._is_as_stored, True
        try:
            yield
        finally:
            self._is_as_stored = before

    def is_usable(self) -> bool:
        # A connection that failed in the last request is closed by now, and has no socket to look at.
        if self.connection is None or self.connection.closed:
            return False
        pgconn = self.connection.pgconn
        if pgconn.transaction_status not in _READY or _has_something_to_read(pgconn.socket):
            # A failed transaction; the end of the connection, or a notification: ask PostgreSQL.
            return bool(super().is_usable())
        return True

    def init_connection_state(self) -> None:
        super().init_connection_state()
        if not self.decrypts and self._has_data_keys():
            DatabaseWrapper.decrypts = True
        if conf.DIRECT_DATABASE:
            # Behind the pooler are connections that others use, too: what is set there is for the role (docs/scaling.md).
            return
        with self.connection.cursor() as cursor:
            cursor.execute(PLANS_FOR_ANY_VALUES)
            if self.avoids_whole_tables:
                cursor.execute(PLANS_FOR_ANY_SIZE)
            if self.longest_statement_ms is not None:
                cursor.execute("SET statement_timeout = %s", [self.longest_statement_ms])
            (self.timeline,) = cursor.execute(TIMELINE).fetchone()

    def _has_data_keys(self) -> bool:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass('access_app_projectkey') IS NOT NULL")
            (is_migrated,) = cursor.fetchone()
            if not is_migrated:
                return False
            cursor.execute("SELECT EXISTS (SELECT FROM access_app_projectkey)")
            (has_keys,) = cursor.fetchone()
            return bool(has_keys)


def columns_by_number(connection: DatabaseWrapper, tables: Iterable[str]) -> dict[tuple[int, int], tuple[str, str]]:
    """Return table and name of the columns of these tables, as far as they exist, by the numbers that PostgreSQL has for both.

    Read as it is stored, so that what masks and decrypts rows can ask while a cursor of Django is read.
    """
    with connection.wrap_database_errors, connection.connection.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(_COLUMNS, [list(tables)]).fetchall()
    return {(oid, number): (table, name) for oid, number, table, name in rows}


def cache_key(connection: Any) -> str:
    """Return the key under which caches keep ids of the database of a connection.

    A replica that was promoted may lack what was committed last, so ids of before are not used on another timeline.
    """
    return f"{connection.alias} {connection.settings_dict['NAME']} {connection.timeline}"


def _has_something_to_read(socket: int) -> bool:
    # poll, because select() cannot take descriptors beyond 1,023.
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))
