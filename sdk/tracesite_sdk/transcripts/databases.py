"""SQLite databases as documents: their tables, whose rows are read on demand.

Only a database on disk is read, because a part of it may be in the write-ahead log beside it. Its tables are read, never its views,
and nothing in it is executed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .documents import Tables, Unreadable

MAGIC = b"SQLite format 3\0"
"""The start of the file."""
_BUSY_SECONDS = 5


@contextmanager
def opened(path: Path) -> Iterator[Tables]:
    """Open a database for reading, as its last transaction left it. Raise Unreadable, also while rows are read."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
    except sqlite3.Error as error:
        raise Unreadable(str(error)) from error
    with closing(connection):
        connection.row_factory = sqlite3.Row
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        list(_rows(connection, "PRAGMA trusted_schema = OFF"))
        names = [row["name"] for row in _rows(connection, "SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {name: frozenset(row["name"] for row in _rows(connection, f"PRAGMA table_info({_quoted(name)})")) for name in names}  # fmt: skip
        yield Tables(columns, partial(_rows_of, connection))


def _rows_of(connection: sqlite3.Connection, table: str, order: str, **equal: Any) -> Iterator[dict[str, Any]]:
    condition = " AND ".join(f"{_quoted(column)} = ?" for column in equal) or "TRUE"
    statement = f"SELECT * FROM {_quoted(table)} WHERE {condition} ORDER BY {_quoted(order)}"  # noqa: S608 - names are quoted
    return _rows(connection, statement, *equal.values())


def _rows(connection: sqlite3.Connection, statement: str, *values: Any) -> Iterator[dict[str, Any]]:
    try:
        for row in connection.execute(statement, values):
            yield {name: None if isinstance(row[name], bytes) else row[name] for name in row.keys()}  # noqa: SIM118
    except sqlite3.Error as error:
        raise Unreadable(f"SQLite: {error}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
