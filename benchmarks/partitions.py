"""Measure reads and writes by the length of partitions: python -m benchmarks.partitions

For months, weeks and days in turn: a database with partitions of 36 months, 2 messages a day with a step, a call and a result.
Each request is sent in-process on a warm connection, and once on a new one, which reads the catalogue first: time, and CPU of this
process and of its connection, which depends less on what else the machine does. Then the locks that a query over all of a table
takes. The server does not wait for the disk. The data are dropped at the end.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from tracesite.serving import embedded_postgres

from .search import cpu_of_both

LENGTHS = ("MONTH", "WEEK", "DAY")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=36)
    parser.add_argument("--runs", type=int, default=15, help="requests of each kind, of which the median counts")
    parser.add_argument("--lengths", nargs="*", choices=LENGTHS, default=LENGTHS)
    options = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "tracesite.settings"
    os.environ["TRACESITE_LOG_LEVEL"] = "WARNING"
    embedded_postgres.ensure(durable=False)
    import django
    from django.conf import settings
    from django.db import connection

    settings.ALLOWED_HOSTS = ["*"]
    django.setup()
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    for length in options.lengths:
        settings.TRACESITE_PARTITIONS = length
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        try:
            measure(length, options.months, options.runs)
        finally:
            connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)


def measure(length: str, months: int, runs: int) -> None:
    from django.db import connection
    from django.test import Client

    from access_app.keys import create_key
    from access_app.models import Project, Scope
    from messages_app.sql.partitions import periods_of
    from messages_app.sql.periods import Period
    from traces_app.ingest.partitions import TABLES, ensure_periods, forget

    forget()
    project = Project.objects.create(slug="bench")
    key = create_key(project, name="benchmark", scopes=list(Scope))[1]
    client = Client(headers={"Authorization": f"Bearer {key}"})
    last = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)
    days = [last - timedelta(days=number) for number in range(365 * months // 12)]
    made = timed(lambda: ensure_periods({Period.of(day) for day in days}))
    count = len(periods_of(TABLES[0].name))
    for day in days:
        send(client, session(day, f"s-{day:%Y-%m-%d}"))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    print(
        f"\n{length}: {count} periods of {len(TABLES)} tables, made in {made.seconds:.1f} s, CPU {made.cpu:.1f} s",
        flush=True,
    )
    middle = days[len(days) // 2]
    some = client.get("/api/v1/messages/", {"created_after": middle.isoformat(), "limit": "1", "order": "asc"}).json()
    message = some["results"][0]["id"]
    ways: dict[str, Callable[[int], Any]] = {
        "ingest of a message": lambda run: send(client, session(last, f"new-{run}-{time.monotonic()}")),
        "page of 50 messages": lambda run: read(client, "/api/v1/messages/", limit="50"),
        "page of 50, of a tool": lambda run: read(client, "/api/v1/messages/", limit="50", tool="search"),
        "page of 50, of a day": lambda run: read(
            client, "/api/v1/messages/", created_after=middle.isoformat(), limit="50"
        ),
        "a message": lambda run: read(client, f"/api/v1/messages/{message}/"),
        "messages of a session": lambda run: read(client, "/api/v1/messages/", session=f"s-{middle:%Y-%m-%d}"),
        "list of sessions": lambda run: read(client, "/api/v1/sessions/", limit="50"),
        "list of calls": lambda run: read(client, "/api/v1/tool-calls/", limit="50"),
    }
    for name, way in ways.items():
        connection.close()
        try:
            cold = timed(partial(way, 0))
            warm = [timed(partial(way, run)) for run in range(1, runs + 1)]
        except Refused as refused:
            print(f"  {name:24} {refused}", flush=True)
            continue
        seconds, cpu = (statistics.median(values) for values in zip(*warm, strict=True))
        print(
            f"  {name:24} {1000 * seconds:7.1f} ms, CPU {1000 * cpu:7.1f} ms; on a new connection {1000 * cold.seconds:7.1f} ms, "
            f"CPU {1000 * cold.cpu:7.1f} ms",
            flush=True,
        )

    print(f"  locks: {', '.join(f'{count:,} of {table}' for table, count in locks().items())}", flush=True)


def locks() -> dict[str, int]:
    """Return how many locks a query over all periods of a table takes: of each partition and of each of its indexes."""
    from django.db import OperationalError, connection, transaction

    from traces_app.ingest.partitions import TABLES

    found = {}
    for table in TABLES:
        with transaction.atomic(), connection.cursor() as cursor:
            try:
                with transaction.atomic():
                    cursor.execute(f"EXPLAIN SELECT FROM {table.name}")
            except OperationalError as error:
                print(f"  {table.name}: {error}", flush=True)
                continue
            cursor.execute("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()")
            ((found[table.name],),) = cursor.fetchall()
    return found


class Refused(Exception):
    """A request had another answer than expected."""


class Cost(NamedTuple):
    seconds: float
    cpu: float


def timed(work: Callable[[], Any]) -> Cost:
    began, cpu = time.perf_counter(), cpu_of_both()
    work()
    return Cost(time.perf_counter() - began, cpu_of_both() - cpu)


def send(client: Any, body: Any) -> None:
    response = client.post("/api/v1/ingest/", body, content_type="application/json")
    if response.status_code != 200:
        raise Refused(f"{response.status_code}: {response.content[:300]!r}")


def read(client: Any, path: str, **parameters: str) -> None:
    response = client.get(path, parameters)
    if response.status_code != 200:
        raise Refused(f"{response.status_code}: {response.content[:300]!r}")


def session(at: datetime, name: str) -> dict[str, Any]:
    call = {"id": "c1", "name": "search", "args": {"q": "weather"}, "result": {"success": True, "output": "sunny"}}
    messages: Sequence[dict[str, Any]] = [
        {"external_id": "q", "role": "user", "content": "How is the weather?", "created_at": at.isoformat()},
        {
            "external_id": "a",
            "role": "assistant",
            "content": "It is sunny.",
            "created_at": at.isoformat(),
            "agent_steps": [{"iteration": 0, "thought": "Ask.", "timestamp": at.isoformat(), "tool_calls": [call]}],
        },
    ]
    return {"sessions": [{"external_id": name, "messages": messages}]}


if __name__ == "__main__":
    main()
