"""Measure seals: python -m benchmarks.sealing --messages 10000

In a separate database, with the messages of the workload: ingest without marks, with them, and with the sealing beside it, in
turns; then the rates of sealing and of verification, and the bytes of a seal.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from unittest.mock import patch

from .search import rates, say
from .server import database
from .workload import Workload

ROUNDS = 7
SHAPES = {1: 200, 20: 1_000}
"""Messages of a turn, by messages of a request."""
_FOLLOW = """
import os, time
os.environ["DJANGO_SETTINGS_MODULE"] = "tracesite.settings"
import django
django.setup()
from datetime import timedelta
from traces_app.maintenance.seals.sealing import seal_marked
while True:
    seal_marked(patience=timedelta(0))
    time.sleep(0.2)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000, help="sealed and verified (default: %(default)s)")
    parser.add_argument("--without-ingest", action="store_true", help="measure sealing and verification only")
    options = parser.parse_args()
    os.environ["TRACESITE_LOG_LEVEL"] = "WARNING"
    with database():
        import django

        django.setup()
        logging.disable(logging.INFO)
        say(f"load {os.getloadavg()[0]:.1f}")
        if not options.without_ingest:
            for batch, messages in SHAPES.items():
                ingest_in_turns(batch, messages)
        seal_and_verify(options.messages)
        say(f"load {os.getloadavg()[0]:.1f}")


def ingest_in_turns(batch: int, messages: int) -> None:
    """Measure ingest without marks, with them, and with the job that seals them beside it."""
    found: dict[str, list[float]] = {"without": [], "with marks": [], "with sealing": []}
    bodies = requests(batch)
    for _round in range(ROUNDS):
        for way, figures in found.items():
            process = subprocess.Popen([sys.executable, "-c", _FOLLOW]) if way == "with sealing" else None
            if process is not None:
                time.sleep(3)  # until it works
            began = time.perf_counter()
            if way == "without":
                with patch("traces_app.ingest.store._completed", return_value=[]):
                    store(bodies, messages // batch)
            else:
                store(bodies, messages // batch)
            figures.append(messages / (time.perf_counter() - began))
            if process is not None:
                process.terminate()
                process.wait()
    alone = statistics.median(found["without"])
    for way, figures in found.items():
        say(
            f"ingest 1 x {batch} {way}: {rates(figures)} messages a second, ratio {statistics.median(figures) / alone:.2f}"
        )


def requests(batch: int) -> Iterator[bytes]:
    """Yield bodies of requests, without end."""
    begin = datetime(2025, 6, 1, tzinfo=UTC) + timedelta(days=batch)
    workload = Workload(name=f"sealing-{batch}", begin=begin, messages_a_session=20, sessions_at_once=1)
    for first in count(0, batch):
        yield workload.batch(range(first, first + batch))


def store(bodies: Iterator[bytes], times: int) -> int:
    from access_app.models import Project
    from traces_app.ingest.decode import decode_ingest
    from traces_app.ingest.pipeline import ingest

    project, _is_new = Project.objects.get_or_create(slug="benchmark")
    for _time in range(times):
        ingest(project.pk, decode_ingest(next(bodies), ndjson=False))
    return times


def seal_and_verify(messages: int) -> None:
    from django.db import connection

    from traces_app.maintenance.seals.chain import faults
    from traces_app.maintenance.seals.sealing import seal_marked
    from traces_app.maintenance.seals.verifying import Scope, Tally, verify

    seal_marked(patience=timedelta(0))
    store(requests(100), messages // 100)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    began = time.perf_counter()
    report = seal_marked(patience=timedelta(0))
    say(f"sealed {report.sealed:,} messages: {report.sealed / (time.perf_counter() - began):,.0f} a second")
    began, tally = time.perf_counter(), Tally()
    assert [*faults(), *verify(Scope(), tally)] == []
    took = time.perf_counter() - began
    say(f"verified {tally.intact:,} messages in {took:.1f} s: {tally.intact / took:,.0f} a second")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
            "WHERE relkind = 'r' AND relname ~ '^traces_app_(messageseal|sealbatch)'"
        )
        say(f"{int(cursor.fetchone()[0]) / tally.intact:,.0f} bytes a seal")


if __name__ == "__main__":
    main()
