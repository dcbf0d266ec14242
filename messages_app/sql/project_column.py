"""The migration operation that gives the rows of a table the project that they belong to.

The column is added without a value, which takes a moment. Then its rows are filled, one partition after the other and some
pages at a time, each in a transaction of its own, so that readers and writers hardly wait. At last each partition is locked
while it is read twice: for rows that were written meanwhile, and by PostgreSQL before it refuses NULL.

Every row is written once, so that a table takes twice its space until the next VACUUM. Measured with two cores, shared, and a
durable PostgreSQL: 18 s for 680,000 rows. A migration with this operation is not atomic, so that no transaction locks two
tables; one that was interrupted goes on when it is run again.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from access_app.db import Database

_PAGES_AT_ONCE = 1_000
_UNKNOWN = 0
"""The project of rows that no project is known of."""


def add_project(
    model: str, table: str, project: str, field: models.ForeignKey[Any, Any]
) -> migrations.SeparateDatabaseAndState:
    """Return the operation that adds `project_id` to a table, partitioned or not.

    `project` is SQL of the project of the row `row_`. Where it is NULL, a column that cannot be NULL gets 0.
    """
    value = f"({project})" if field.null else f"coalesce(({project}), {_UNKNOWN})"
    fill = f"SET project_id = {value} WHERE project_id IS NULL"

    def forwards(_apps: Any, schema_editor: Any) -> None:
        db = Database(schema_editor.connection.alias)
        _execute(db, f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS project_id bigint")
        for partition in _partitions(db, table):
            for first in range(0, _pages(db, partition), _PAGES_AT_ONCE):
                pages = f"ctid >= '({first},0)' AND ctid < '({first + _PAGES_AT_ONCE},0)'"
                _execute(db, f"UPDATE {partition} AS row_ {fill} AND {pages}")
            with db.atomic():
                _execute(db, f"LOCK TABLE {partition} IN ACCESS EXCLUSIVE MODE")
                _execute(db, f"UPDATE {partition} AS row_ {fill}")
                if not field.null:
                    _execute(db, f"ALTER TABLE {partition} ALTER COLUMN project_id SET NOT NULL")
        if not field.null:
            # Without looking at the rows of partitions that refuse NULL. New partitions are made like the table.
            _execute(db, f"ALTER TABLE {table} ALTER COLUMN project_id SET NOT NULL")

    def backwards(_apps: Any, schema_editor: Any) -> None:
        _execute(Database(schema_editor.connection.alias), f"ALTER TABLE {table} DROP COLUMN IF EXISTS project_id")

    return migrations.SeparateDatabaseAndState(
        database_operations=[migrations.RunPython(forwards, backwards)],
        state_operations=[migrations.AddField(model, "project", field)],
    )


def _partitions(db: Database, table: str) -> list[str]:
    """Return the partitions of a table, or the table if it has none."""
    with db.cursor() as cursor:
        cursor.execute("SELECT relid::regclass::text FROM pg_partition_tree(%s) WHERE isleaf ORDER BY 1", [table])
        return [name for (name,) in cursor.fetchall()] or [table]


def _pages(db: Database, table: str) -> int:
    with db.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size(%s) / current_setting('block_size')::int", [table])
        return int(cursor.fetchone()[0])


def _execute(db: Database, statement: str) -> None:
    with db.cursor() as cursor:
        cursor.execute(statement)
