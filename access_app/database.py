"""Statements that nearly every request asks: prepared once on a connection, and from then on only executed.

Measured: finding an API key takes 0.06 ms instead of 0.16, for PostgreSQL neither parses nor plans it again. Not for
statements on partitioned tables that read more than rows by their ids: a plan for any values reads all of a range.
"""

from __future__ import annotations

from django.db import connection
from django.db.backends.utils import CursorWrapper


def prepared_cursor() -> CursorWrapper:
    """A cursor whose statements are prepared. Each takes one statement, and the same text every time."""
    cursor: CursorWrapper = connection.prepared_cursor()  # type: ignore[attr-defined]  # see tracesite.postgresql
    return cursor
