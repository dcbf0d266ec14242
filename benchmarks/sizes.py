"""Bytes per message on disk, by table and index."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from .report import Line, Report

PLAIN_TABLES = ["messages_app_session", "messages_app_messagekey"]

# Indexes of a month are reported under their parents, the indexes of the partitioned table.
_SIZES = """
    WITH leaves AS (
        SELECT leaf.oid, coalesce(parent.relname, leaf.relname) AS name FROM pg_class AS leaf
        LEFT JOIN pg_inherits ON inhrelid = leaf.oid LEFT JOIN pg_class AS parent ON parent.oid = inhparent
        WHERE leaf.relkind = 'r' AND (leaf.relname = ANY(%(tables)s) OR leaf.relname ~ %(months)s)
    )
    SELECT name, 'rows', sum(pg_relation_size(oid)) FROM leaves GROUP BY name
    UNION ALL
    SELECT name, 'TOAST, maps', sum(pg_table_size(oid) - pg_relation_size(oid)) FROM leaves GROUP BY name
    UNION ALL
    SELECT name, coalesce(parent.relname, index.relname), sum(pg_relation_size(index.oid))
    FROM leaves JOIN pg_index ON indrelid = leaves.oid JOIN pg_class AS index ON index.oid = indexrelid
    LEFT JOIN pg_inherits ON inhrelid = index.oid LEFT JOIN pg_class AS parent ON parent.oid = inhparent
    GROUP BY 1, 2
    ORDER BY 1, 3 DESC
    """


def measure(report: Report, database: psycopg.Connection, months: Sequence[str], messages: int, sent: int) -> None:
    """Measure partitions with the suffixes `months`, filled by `sent` bytes of requests."""
    values = {"tables": PLAIN_TABLES, "months": f"_({'|'.join(months)})$"}
    sizes: dict[str, dict[str, float]] = {}
    for table, part, size in database.execute(_SIZES, values).fetchall():
        sizes.setdefault(table, {})[part] = float(size) / messages
    total = sum(size for parts in sizes.values() for size in parts.values())
    report.add(Line(name="stored a message, of JSON", unit="bytes", runs=[total], floors={"JSON": [sent / messages]}))
    for table, parts in sorted(sizes.items(), key=lambda item: -sum(item[1].values())):
        if sum(parts.values()) >= 1:
            # Small indexes are left out to keep the line short.
            large = {name: size for name, size in parts.items() if size >= 10}
            report.add(Line(name=f"  {table}", unit="bytes", runs=[sum(parts.values())], beside=large))
