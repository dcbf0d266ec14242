"""Find or create tools by name, and cache their ids so that the next batch or list need not query. A tool keeps its id forever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from access_app.bounded_cache import BoundedCache
from access_app.db import Database
from access_app.db.base import cache_key
from access_app.db.statements import prepared_cursor

_FIND = "SELECT name, id FROM traces_app_tool WHERE project_id = %s AND name = ANY(%s)"
_MAKE = (
    "INSERT INTO traces_app_tool (project_id, name, description, category) "
    "SELECT %s, name, '', '' FROM unnest(%s::text[]) AS name ON CONFLICT DO NOTHING"
)

_ids: BoundedCache[tuple[str, int, str], int] = BoundedCache(10_000)
"""Ids by database, project and name."""


def find_tools(db: Database, project_id: int, names: Sequence[str]) -> dict[str, int]:
    """Return the ids of the tools of these names that exist."""
    database = cache_key(db.read_connection)
    # One lookup a name, because another thread may drop the entry between two.
    cached = {name: id_ for name in names if (id_ := _ids.get((database, project_id, name))) is not None}
    missing = [name for name in names if name not in cached]
    if not missing:
        return cached
    with prepared_cursor(db.read_connection) as cursor:
        cursor.execute(_FIND, [project_id, missing])
        stored: dict[str, int] = dict(cursor.fetchall())
    database = cache_key(db.read_connection)  # may differ, if the connection was made for this statement
    if db.reads_from_replica:
        _cache(database, project_id, stored)
    else:
        # On commit, because the current transaction may have created them and still roll back.
        db.on_commit(lambda: _cache(database, project_id, stored))
    return cached | stored


def find_or_make_tools(db: Database, project_id: int, names: Sequence[str]) -> dict[str, int]:
    """Return the ids of all tools of these names; missing ones are created.

    Call it outside the transaction of a batch, because two batches that first use the same tool must not wait for each
    other.
    """
    known = find_tools(db, project_id, names)
    missing = sorted(set(names) - known.keys())
    if not missing:
        return known
    with db.cursor() as cursor:
        cursor.execute(_MAKE, [project_id, missing])
    return known | find_tools(db, project_id, missing)


def _cache(database: str, project_id: int, ids: Mapping[str, int]) -> None:
    for name, id_ in ids.items():
        _ids.put((database, project_id, name), id_)
