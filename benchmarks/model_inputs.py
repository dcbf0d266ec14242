"""Measure what the inputs of models cost: python -m benchmarks.model_inputs

A conversation of 100 turns of 1 KB each, in which every request repeats all turns before it, is stored request by request:
as one run of 50 steps, as 50 runs of one step, and as the events of one run. Beside it the same inputs as a JSON column, and
the same runs without inputs. Printed are milliseconds a request and bytes on disk, with indexes and TOAST.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from .scratch import scratch_database

REQUESTS = 50
_AT = datetime(2026, 3, 1, tzinfo=UTC)


def main() -> None:
    with scratch_database():
        measure()


def measure() -> None:
    from access_app.models import Project

    project = Project.objects.create(slug="benchmark")
    for name, runs in (("one run", 1), ("fifty runs", REQUESTS)):
        for with_inputs in (False, True):
            store(project.pk, runs, with_inputs=with_inputs)  # fills the caches
            before, started = disk_bytes(), time.perf_counter()
            store(project.pk, runs, with_inputs=with_inputs)
            took = (time.perf_counter() - started) * 1000 / REQUESTS
            label = f"{name}, {'with' if with_inputs else 'without'} inputs"
            print(f"{label:<28} {took:6.1f} ms a request {(disk_bytes() - before) / 1024:8.0f} KB on disk")
    for with_inputs in (False, True):
        store_events(project.pk, with_inputs=with_inputs)
        before, started = disk_bytes(), time.perf_counter()
        store_events(project.pk, with_inputs=with_inputs)
        took = (time.perf_counter() - started) * 1000 / REQUESTS
        label = f"events, {'with' if with_inputs else 'without'} inputs"
        print(f"{label:<28} {took:6.1f} ms a request {(disk_bytes() - before) / 1024:8.0f} KB on disk")
    took, size = column()
    print(f"{'as a JSON column':<28} {took:6.1f} ms a request {size / 1024:8.0f} KB on disk")


def conversation(seed: int) -> list[dict[str, str]]:
    # Words, because random letters would not compress as text does.
    words = [f"{word:x}" for word in range(4096, 8192)]
    chosen = random.Random(seed)
    return [
        {"role": ("user", "assistant")[turn % 2], "content": " ".join(chosen.choices(words, k=200))}
        for turn in range(2 * REQUESTS)
    ]


def store(project_id: int, runs: int, *, with_inputs: bool) -> None:
    from traces_app.ingest.pipeline import ingest
    from traces_app.schema import records

    turns = conversation(time.perf_counter_ns())
    session = f"{time.perf_counter_ns()}"
    steps: list[dict[str, Any]] = []
    for number in range(REQUESTS):
        asked = {"messages": turns[: 2 * number + 1], "system": "Be kind.", "parameters": {"temperature": 0.2}}
        step = {"id": f"{session} {number}", "iteration": number, "thought": "Hm."} | (
            {"input": asked} if with_inputs else {}
        )
        steps = [step] if runs > 1 else [*steps[-1:], step]
        message = {
            "role": "assistant",
            "external_id": str(number) if runs > 1 else "run",
            "created_at": _AT + timedelta(seconds=number if runs > 1 else 0),
            "is_completed": runs > 1,
            "agent_steps": steps[-1:],
        }
        ingest(project_id, [msgspec.convert({"external_id": session, "messages": [message]}, records.Session)])


def store_events(project_id: int, *, with_inputs: bool) -> None:
    from access_app.redaction.rules import DEFAULT_RULES
    from traces_app.events.store import record_events
    from traces_app.normalize.redaction import redact_event
    from traces_app.schema import records

    turns = conversation(time.perf_counter_ns())
    session = f"{time.perf_counter_ns()}"
    for number in range(REQUESTS):
        asked = {"messages": turns[: 2 * number + 1], "system": "Be kind.", "temperature": 0.2}
        data = {"step": f"{number}", "thought": "Hm."} | ({"request": asked} if with_inputs else {})
        event = records.Event(
            session_id=session,
            type="llm_request_complete",
            number=number,
            timestamp=_AT + timedelta(seconds=number),
            data=data,
        )
        record_events(project_id, [redact_event(event, DEFAULT_RULES)])


def disk_bytes() -> int:
    return query(
        "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables "
        "WHERE relname LIKE 'traces_app_context_y%' OR relname LIKE 'traces_app_agentstep_y%' "
        "OR relname LIKE 'traces_app_event_y%'"
    )


def column() -> tuple[float, int]:
    """Return milliseconds a request and bytes of a plain table with the same inputs."""
    from django.db import connection

    turns = conversation(1)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE plain (id bigint PRIMARY KEY, input jsonb)")
        started = time.perf_counter()
        for number in range(REQUESTS):
            text = msgspec.json.encode({"messages": turns[: 2 * number + 1]}).decode()
            cursor.execute("INSERT INTO plain VALUES (%s, %s)", [number, text])
        took = (time.perf_counter() - started) * 1000 / REQUESTS
    size = query("SELECT pg_total_relation_size('plain')")
    return took, size


def query(statement: str) -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
    return int(row[0] or 0) if row else 0


if __name__ == "__main__":
    main()
