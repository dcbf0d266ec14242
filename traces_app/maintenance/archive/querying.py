"""Run SQL over an archive with DuckDB: a view for each dataset, of the files that the manifests name."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import msgspec

from .datasets import DATASETS, Dataset
from .folder import Folder, Manifest, nothing_archived
from .spark import ANALYTICS, REPEATED

MEMORY = "1GB"
"""The memory limit of DuckDB; larger sorts and joins use temporary files."""

_ROWS_AT_ONCE = 1_000


def analytics(name: str) -> str:
    """Return the SQL of a file in the folder `analytics`."""
    return (ANALYTICS / f"{name}.sql").read_text()


@contextmanager
def archive_views(
    folder: Folder, *, project: str | None = None, period: str | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in memory with the views of what is archived of a project and a period; None means all.

    A view has the columns of its dataset, `project` and `period`, and each row once. Raise NotAnArchive if nothing of it is archived.
    """
    manifests = folder.manifests(project, period)
    if not manifests:
        raise nothing_archived(folder, project=project, period=period)
    with TemporaryDirectory(prefix="tracesite-") as directory, duckdb.connect() as database:
        database.execute(f"SET memory_limit = '{MEMORY}'")
        database.execute(f"SET temp_directory = '{directory}'")
        database.execute("SET TimeZone = 'UTC'")
        if not folder.is_local:
            database.register_filesystem(folder.files)
        for dataset in DATASETS:
            _make_view(database, folder, dataset, manifests)
        yield database


def _make_view(
    database: duckdb.DuckDBPyConnection, folder: Folder, dataset: Dataset, manifests: list[Manifest]
) -> None:
    paths = [
        _readable(folder, manifest.tables[dataset.name].path)
        for manifest in manifests
        if dataset.name in manifest.tables
    ]
    if not paths:
        database.register(dataset.name, dataset.schema.empty_table())
        return
    rows = database.read_parquet(paths, hive_partitioning=True, union_by_name=True)
    if dataset.name not in REPEATED:
        rows.create_view(dataset.name)
        return
    key, by = REPEATED[dataset.name]
    every = f"{dataset.name}_of_periods"
    rows.create_view(every)
    database.execute(
        f"CREATE VIEW {dataset.name} AS SELECT * FROM {every} "  # noqa: S608 - names of this package
        f"QUALIFY row_number() OVER (PARTITION BY project, {key} ORDER BY {by} DESC, period DESC) = 1"
    )


def _readable(folder: Folder, path: str) -> str:
    return folder.path(path) if folder.is_local else folder.files.unstrip_protocol(folder.path(path))


def written_as(form: str, database: duckdb.DuckDBPyConnection, sql: str) -> Iterator[str]:
    """Yield the lines of a result: of a `table` all at once, of `csv` and `json` (an object a line) as they come."""
    if form == "table":
        shown = io.StringIO()
        with redirect_stdout(shown):
            result = database.sql(sql)
            if result is not None:  # a statement such as SET has none
                result.show(max_rows=10_000, max_width=200)
        yield shown.getvalue().rstrip("\n")
        return
    rows_of_query = database.execute(sql)
    names = [column[0] for column in rows_of_query.description or ()]
    if form == "csv":
        yield _csv_line(names)
    while rows := rows_of_query.fetchmany(_ROWS_AT_ONCE):
        for row in rows:
            if form == "csv":
                yield _csv_line(row)
            else:
                yield msgspec.json.encode(dict(zip(names, row, strict=True)), enc_hook=str).decode()


def _csv_line(values: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
