"""Measure the memory of importing a large file: python -m benchmarks.import_memory [--megabytes 500] [--store]

Two files of JSON lines, many small sessions and one huge one, are written to a temporary directory, imported by the
command in a separate process, and removed. Prints the peak memory (RSS) of that process and the throughput. Without
--store it is a dry run: everything is read, mapped, normalized and counted. With it PostgreSQL does most of the work.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from .server import database
from .transcript_samples import SHAPES, write

BAR = 300
"""Allowed peak in megabytes."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.import_memory", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    with database() as url, TemporaryDirectory(prefix="tracesite-") as folder:
        environment = {**os.environ, "DATABASE_URL": url}
        run = [sys.executable, "manage.py"]
        subprocess.run([*run, "create_project", "memory"], env=environment, check=True, stdout=subprocess.DEVNULL)
        for shape in options.shapes:
            path = Path(folder, f"{shape}.jsonl")
            size = write(path, shape, options.megabytes * 1_000_000)
            command = [*run, "import_transcripts", str(path), "--project", "memory"]
            started = time.perf_counter()
            process = subprocess.Popen(
                [*command, *([] if options.store else ["--dry-run"])],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            peak = _watched(process)
            seconds = time.perf_counter() - started
            path.unlink()
            verdict = "" if peak <= BAR else "  missed"
            print(f"{shape:16} {size / 1e6:6.0f} MB  {peak:5.0f} MB peak  {size / 1e6 / seconds:5.1f} MB/s{verdict}")


def _watched(process: subprocess.Popen[bytes]) -> float:
    """Wait for a process and return its peak memory in megabytes."""
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the import failed with exit status {process.returncode}")
    kilobyte = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * kilobyte / 1e6


if __name__ == "__main__":
    main()
