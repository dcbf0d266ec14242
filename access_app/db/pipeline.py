"""Several statements, prepared if the connection prepares any, in one round trip, which is one transaction.

Statements that reach PostgreSQL between two Syncs, outside of a transaction, are a transaction: the Sync commits it, and an
error anywhere rolls all of it back. So a write is one round trip where BEGIN, its statements and COMMIT are three.

psycopg's own pipeline takes 60 us a statement, because its cursors look up the type of each value and each statement is a
system call. Here all values are texts. Measured, the 23 rows of a message in the same statements: 0.38 ms of CPU instead of
1.39, and 1.8 ms instead of 2.7 until they are durable; in fewer statements of several rows 0.30 and 1.6.

This is the only module that uses psycopg below its documented cursors and connections: `psycopg.generators` is not documented,
so pyproject.toml bounds the version.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import Connection, DataError, OperationalError
from psycopg.abc import PQGen
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

Statement = tuple[str, Sequence[str | None]]
"""A statement, with $1, $2 ... for its values, and these as PostgreSQL reads them."""
Row = tuple[str | None, ...]
"""The values as PostgreSQL writes them."""

_numbers = count()
_prepared: WeakKeyDictionary[Connection[Any], dict[str, bytes]] = WeakKeyDictionary()
"""The names of the statements that were prepared here, by connection and text."""


def execute(connection: Connection[Any], statements: Sequence[Statement]) -> list[list[Row]]:
    """Execute all statements in a transaction of their own and return the rows of each; they are committed then.

    Raises psycopg's errors; then nothing was written, unless the connection was lost: the lost message may be the confirmation.
    """
    if connection.prepare_threshold is None:
        return _execute(connection, None, statements)
    prepared = _prepared.setdefault(connection, {})
    try:
        return _execute(connection, prepared, statements)
    except InvalidSqlStatementName:
        # psycopg deallocates all statements of a connection after a rollback and after DDL. Nothing was written.
        prepared.clear()
        return _execute(connection, prepared, statements)


def _execute(
    connection: Connection[Any], prepared: dict[str, bytes] | None, statements: Sequence[Statement]
) -> list[list[Row]]:
    pgconn = connection.pgconn
    is_complete = False
    pgconn.enter_pipeline_mode()
    try:
        fresh, results = connection.wait(_exchange(pgconn, prepared, statements))
        pgconn.exit_pipeline_mode()
        is_complete = True
    finally:
        if not is_complete:
            connection.close()  # which result belongs to which later statement would be unknown
    for (sql, name), place in fresh.items():
        if prepared is not None and place < len(results) and results[place].status == ExecStatus.COMMAND_OK:
            prepared[sql] = name
    for result in results:
        # The first one; those after it were skipped, and report only that.
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise error_from_result(result)
    preparations = set(fresh.values())
    return [_rows(result) for place, result in enumerate(results) if place not in preparations]


def _exchange(
    pgconn: PGconn, prepared: dict[str, bytes] | None, statements: Sequence[Statement]
) -> PQGen[tuple[dict[tuple[str, bytes], int], list[PGresult]]]:
    """Send all statements and wait for all results: those of the statements, in their order, and an error of the commit.

    Also return the position of the result of each preparation.
    """
    names = dict(prepared or {})
    fresh: dict[tuple[str, bytes], int] = {}
    for number, (sql, values) in enumerate(statements):
        texts = [None if value is None else value.encode() for value in values]
        if b"\0" in b"".join(filter(None, texts)):
            # libpq reads a text up to its first NUL and would drop the rest silently.
            raise DataError("PostgreSQL holds no text with U+0000")
        if prepared is None:
            pgconn.send_query_params(sql.encode(), texts)
        else:
            name = names.get(sql)
            if name is None:
                name = names[sql] = b"tracesite_%d" % next(_numbers)
                fresh[sql, name] = number + len(fresh)
                pgconn.send_prepare(name, sql.encode())
            pgconn.send_query_prepared(name, texts)
        # One at a time: PostgreSQL works while the next is made, and libpq keeps no second copy of a large batch.
        yield from send(pgconn)
    pgconn.pipeline_sync()
    yield from send(pgconn)
    results: list[PGresult] = []
    while True:
        answer = yield from fetch_many(pgconn)
        if not answer:
            raise OperationalError("the connection was lost before PostgreSQL confirmed the commit")
        if answer[-1].status == ExecStatus.PIPELINE_SYNC:
            return fresh, results
        results += answer


def _rows(result: PGresult) -> list[Row]:
    columns = range(result.nfields)
    values = ([result.get_value(number, column) for column in columns] for number in range(result.ntuples))
    return [tuple([None if value is None else value.decode() for value in row]) for row in values]
