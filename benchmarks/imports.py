"""Throughput of imports in MB/s, of a JSON document and of lines, relative to msgspec decoding the same bytes.

"Read" is a dry run: the file is decoded, recognised, mapped to messages, normalized and counted. "Stored" is the whole
import of a new file into PostgreSQL.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from . import transcript_samples
from .report import Line, Report

_slugs = (f"imports-{number}" for number in count(1))


def measure(report: Report, runs: int, size: int) -> None:
    """Measure a file of about `size` bytes in each format of the samples."""
    # Imported here, because they need Django to be set up.
    from access_app.models import Project

    with TemporaryDirectory(prefix="tracesite-") as folder:
        for name in transcript_samples.FORMATS:
            data = transcript_samples.document(name, size)
            path = Path(folder, name)
            path.write_bytes(data)
            is_lines = name in transcript_samples.LINES
            decoded, read, stored = [], [], []
            for _run in range(runs):
                decoded.append(_pace(data, partial(_decode, data, is_lines=is_lines)))
                read.append(_pace(data, partial(_import, path, name, None)))
                project = Project.objects.create(slug=next(_slugs))
                stored.append(_pace(data, partial(_import, path, name, project.pk)))
            for what, runs_of_it in (("read", read), ("stored", stored)):
                report.add(
                    Line(
                        name=f"import {name}, {what}",
                        unit="MB/s",
                        runs=runs_of_it,
                        floors={"msgspec": decoded},
                        better="more",
                    )
                )


def _pace(data: bytes, work: Callable[[], object]) -> float:
    gc.collect()
    started = time.perf_counter()
    work()
    return len(data) / 1e6 / (time.perf_counter() - started)


def _decode(data: bytes, *, is_lines: bool) -> object:
    decode = msgspec.json.Decoder().decode
    return [decode(line) for line in data.splitlines()] if is_lines else decode(data)


def _import(path: Path, format_name: str, project_id: int | None) -> None:
    from access_app.db import primary
    from traces_app.imports.importer import import_paths

    (report,) = import_paths(primary, [path], project_id)
    assert (report.status, report.format) == ("read", format_name), f"{report.format}: {report.reason}"
