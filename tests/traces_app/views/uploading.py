"""What POST import/ with dry_run does with a file, and what it took: for processes of their own."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

from access_app.db import primary
from traces_app.imports.importer import import_source
from traces_app.views.importing import budget_of_upload
from tracesite_sdk.transcripts.documents import open_file_source


class Outcome(NamedTuple):
    reports: list[list[str]]
    """Status, path and reason of the first ones, cut."""
    count: int
    seconds: float
    """Of the processor."""
    megabytes: int
    """The peak of the process."""


def read(path: str) -> Outcome:
    with open(path, "rb") as file:
        started = time.process_time()
        reports = list(import_source(primary, open_file_source(file, "body"), None, budget=budget_of_upload()))
        seconds = time.process_time() - started
    said = [[one.status, one.path[:2000], one.reason[:2000]] for one in reports[:5]]
    # Of this program alone: what getrusage() gives begins with the peak of the process that started it.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak
    return Outcome(said, len(reports), seconds, int(peak[1]) // 1024)
