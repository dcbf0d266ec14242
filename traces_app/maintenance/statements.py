"""The rows that a statement of maintenance returns, of the database in use: never of a replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from access_app.db import Database


def fetch(db: Database, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
    with db.cursor() as cursor:
        cursor.execute(statement, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
