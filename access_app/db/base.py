"""The database backend of the settings: Django's own for PostgreSQL, with prepared statements and a quick health check.

Django asks PostgreSQL `SELECT 1` on a connection before it is used for the next request. Where the process behind it
sleeps, that takes 0.2 ms: a tenth of a small answer. A connection whose server has gone says so by itself, for then its
socket has something to read. The rest, a machine that vanished without a word, `SELECT 1` would wait for, too.

A connection of the server also hears when projects or keys change, and remembers until then what it has read of them.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from django.db.backends.postgresql import base, operations
from django.db.backends.utils import CursorWrapper
from psycopg import pq

from . import pipeline

PLANS_FOR_ANY_VALUES = "SET plan_cache_mode = force_generic_plan; SET jit = off"
"""PostgreSQL would plan most statements on partitioned tables anew each time, and keep the plan of few. And for many
partitions it expects so much work that it compiles what takes a millisecond."""
PLANS_FOR_ANY_SIZE = "SET enable_seqscan = off"
"""A plan that reads a table from end to end, because that was small or empty when it was analysed, would be kept until it is
analysed again, and so would those of PostgreSQL's own checks of foreign keys. Measured after an ANALYZE of an empty month:
21 ms of PostgreSQL's CPU a message instead of 1.6."""

T = TypeVar("T")

_READY = (pq.TransactionStatus.IDLE, pq.TransactionStatus.INTRANS)


class _PreparedCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **kwargs: Any) -> _PreparedCursor:
        super().execute(query, params, **{"prepare": True, **kwargs})
        return self


class DatabaseOperations(operations.DatabaseOperations):
    def last_executed_query(self, cursor: Any, sql: Any, params: Any) -> str:
        """What tests and Django's log of queries show: a prepared statement as it would be written out."""
        if isinstance(cursor, _PreparedCursor):
            return str(self.compose_sql(sql, params))
        return super().last_executed_query(cursor, sql, params)


class DatabaseWrapper(base.DatabaseWrapper):
    ops_class = DatabaseOperations
    longest_statement_ms: int | None = None
    """After how long PostgreSQL stops a statement of this process; None: what it is configured to do."""
    avoids_whole_tables = False
    """Whether connections of this process plan by PLANS_FOR_ANY_SIZE."""
    listens_to: str | None = None
    """The channel on which PostgreSQL says that what `memory` holds has changed; None: nothing is remembered."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._memory: dict[Any, Any] = {}
        self._prepared: dict[str, bytes] = {}
        """The names of the statements that `execute_at_once` has prepared on this connection."""
        self._reader: pipeline.Reader | None = None

    def is_usable(self) -> bool:
        # What failed in the last request is closed by now, and has no socket to look at.
        if self.connection is None or self.connection.closed:
            return False
        pgconn = self.connection.pgconn
        if pgconn.transaction_status not in _READY or _has_something_to_read(pgconn.socket):
            # A transaction that failed; the end of the connection, or news: PostgreSQL is asked.
            return bool(super().is_usable())
        return True

    def init_connection_state(self) -> None:
        super().init_connection_state()
        with self.connection.cursor() as cursor:
            cursor.execute(PLANS_FOR_ANY_VALUES)
            if self.avoids_whole_tables:
                cursor.execute(PLANS_FOR_ANY_SIZE)
            if self.longest_statement_ms is not None:
                cursor.execute("SET statement_timeout = %s", [self.longest_statement_ms])
        self._forget()
        self._prepared = {}
        self._reader = pipeline.Reader(self.connection)
        if self.listens_to is not None:
            # First the one and then the other: what is read from now on is heard of when it changes.
            self.connection.add_notify_handler(self._forget)
            with self.connection.cursor() as cursor:
                cursor.execute(f"LISTEN {self.listens_to}")

    def memory(self) -> dict[Any, Any]:
        """See access_app.db.statements.memory."""
        self.close_if_health_check_failed()
        self.ensure_connection()
        if self.listens_to is None:
            return {}
        # What came together with the answer to a statement has been received, but not been looked at.
        while self.connection.pgconn.notifies():
            self._forget()
        return self._memory

    def _forget(self, _notify: object = None) -> None:
        # Another one, not the same emptied: what was being read when the news came is put into the one that is gone.
        self._memory = {}

    def prepared_cursor(self) -> CursorWrapper:
        """See access_app.db.statements. Django's own cursors write the values into the text of a statement, which then is
        another one every time."""
        self.close_if_health_check_failed()
        self.ensure_connection()
        with self.wrap_database_errors:
            cursor: CursorWrapper = self._prepare_cursor(_PreparedCursor(self.connection))  # type: ignore[attr-defined]
            return cursor

    def read_prepared(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """See access_app.db.statements."""
        self.close_if_health_check_failed()
        if not self.get_autocommit():
            # psycopg begins a transaction with its first statement, and Django asks for the savepoints.
            with self.prepared_cursor() as cursor:
                cursor.execute(sql, values)
                return list(cursor.fetchall())
        reader = self._reader
        assert reader is not None, "connections have one"
        return self._asked(
            lambda: reader.read(sql, values), forget=reader.forget, said=lambda: self.ops.compose_sql(sql, values)
        )

    def execute_at_once(self, statements: Sequence[pipeline.Statement]) -> list[list[pipeline.Row]]:
        """See access_app.db.statements."""
        self.close_if_health_check_failed()
        assert self.get_autocommit(), "it is a transaction of its own"
        return self._asked(
            lambda: pipeline.execute(self.connection, self._prepared, statements),
            forget=self._prepared.clear,
            said=lambda: "; ".join(sql for sql, _values in statements),
        )

    def _asked(self, ask: Callable[[], T], *, forget: Callable[[], None], said: Callable[[], str]) -> T:
        """What PostgreSQL answers; asked again where it knows the prepared statements no more, which `forget` forgets."""
        began = time.monotonic()
        with self.wrap_database_errors:
            try:
                answer = ask()
            except psycopg.errors.InvalidSqlStatementName:
                # After a rollback, and after what changes tables, psycopg deallocates all statements of its connection,
                # ours too. Nothing was done.
                forget()
                answer = ask()
        if self.queries_logged:
            self.queries_log.append({"sql": said(), "time": f"{time.monotonic() - began:.3f}"})
        return answer


def _has_something_to_read(socket: int) -> bool:
    # poll, for select() knows no descriptors beyond 1,023.
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))
