"""Measure the time machine: python -m benchmarks.time_machine compare --steps 5000

compare: two runs of STEPS steps with a call each, most of them different, by GET /compare/ without a network, in a separate
database: the median of RUNS, and the CPU of Python in it.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import statistics
import time
from typing import Any

import msgspec

from tracesite.serving import embedded_postgres

TOOLS = ("search", "fetch", "write", "read")
SHAPES = ("of four tools", "of one tool", "of long results")
ALIKE = 0.3
"""The share of steps that are the same in both runs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("compare",))
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    compare(options.steps, options.runs)


# --- Comparisons ---------------------------------------------------------------------------------------------------------


def compare(steps: int, runs: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tracesite.settings"
    embedded_postgres.ensure(durable=False)
    import django
    from django.db import connection

    django.setup()
    logging.disable(logging.INFO)
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        _compare(steps, runs)
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)


def _compare(steps: int, runs: int) -> None:
    from django.db import connection
    from django.test import Client

    from access_app.keys import create_key
    from access_app.models import Project
    from traces_app.ingest.decode import decode_ingest
    from traces_app.ingest.pipeline import ingest

    project = Project.objects.create(slug="benchmark")
    for shape in SHAPES:
        sides = [_session(side, shape, steps) for side in ("left", "right")]
        ingest(project.pk, decode_ingest(msgspec.json.encode({"sessions": sides}), ndjson=False))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    client = Client(
        headers={"Host": "localhost", "Authorization": f"Bearer {create_key(project, 'benchmark', ['read'])[1]}"}
    )
    for shape in SHAPES:
        took, cpu = [], []
        # The first one is not counted: it imports the views.
        for _run in range(runs + 1):
            began, used = time.perf_counter(), time.process_time()
            found = client.get("/api/v1/compare/", {"left": f"left {shape}", "right": f"right {shape}"})
            took.append(time.perf_counter() - began)
            cpu.append(time.process_time() - used)
            assert found.status_code == 200, found.content
        counts = found.json()["counts"]
        print(f"{shape}: {statistics.median(took[1:]):.2f} s, {statistics.median(cpu[1:]):.2f} s of CPU; {counts}")
    print(f"load: {os.getloadavg()[0]:.1f}")


def _session(side: str, shape: str, steps: int) -> dict[str, Any]:
    random_ = random.Random(f"{side} {shape}")
    made = []
    for place in range(steps):
        of = "both" if random_.random() < ALIKE else side
        result = f"Result {place} of {of}. " + "word " * (400 if shape == "of long results" else 20)
        args = {"query": f"Number {place} of {of}", "limit": place, "filter": {"days": [1, 2, 3]}}
        tool = TOOLS[0] if shape == "of one tool" else random_.choice(TOOLS)
        thought = f"Step {place} of {of}: look at the page, and decide what to do next."
        call = {"name": tool, "args": args, "result": {"output": result}}
        made.append(
            {
                "iteration": place,
                "thought": thought,
                "model": "m1",
                "usage": {"input_tokens": place},
                "tool_calls": [call],
            }
        )
    message = {"role": "assistant", "content": f"Done: {side}.", "agent_steps": made}
    return {"external_id": f"{side} {shape}", "messages": [message]}


if __name__ == "__main__":
    main()
