"""Refuse encrypted values that are not of their row and column, without any key: an envelope names its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from access_app.encryption.columns import ENCRYPTED
from access_app.encryption.envelope import is_misplaced, row_bytes

from .datasets import Dataset, Row
from .folder import ArchiveError


def bound(dataset: Dataset, batches: Iterable[list[Row]]) -> Iterator[list[Row]]:
    """Yield the batches. Raise ArchiveError with the place of an encrypted value that was moved there from another one."""
    columns = ENCRYPTED.get(dataset.table, {})
    places = [(dataset.place_of(name), name, column) for name, column in columns.items()]
    key = dataset.place_of(dataset.key)
    for rows in batches:
        for row in rows:
            for index, name, column in places:
                if row[index] is not None and is_misplaced(row[index], column, row_bytes(row[key])):
                    raise ArchiveError(
                        f"{dataset.name} {row[key]}: {name} was encrypted for another row or column, so it was moved there "
                        "behind the back of Tracesite. verify_traces shows what else was changed. Correct or purge this row."
                    )
        yield rows
