"""Measure the answers for reading agents: python -m benchmarks.reading [--steps 10000]

In a separate database with the sample data and a run of STEPS steps with a call each: the tokens of each answer beside those of the
JSON of its run (4 bytes of UTF-8 a token), and how long `manage.py serve` takes for it: the median of RUNS requests.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

from . import run_page, server

BYTES_OF_TOKEN = 4
RUNS = 9
SETTLE_SECONDS = 15
"""For the jobs, which index the data and note which calls decided."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    with server.database():
        long = str(run_page.fill(options.steps, 1))
        questions = list(fill(long))
        with server.serving(1) as site:
            time.sleep(SETTLE_SECONDS)
            for name, key, path, run in questions:
                answer, times = ask(site.port, key, f"/api/v1/read/{path}format=markdown&hints=tools")
                whole = "" if run is None else f"{tokens(ask(site.port, key, f'/api/v1/messages/{run}/', 1)[0]):>10,}"
                print(f"{name:<24} {tokens(answer):>6,} tokens {statistics.median(times):>6.0f} ms {whole}")
    print("load of the machine, 1 minute:", os.getloadavg()[0])


def fill(long: str) -> Iterator[tuple[str, str, str, str | None]]:
    """Load the sample data, and yield names of answers, each with a key, a path and the run that it is about."""
    from access_app.db import primary
    from access_app.keys import create_key
    from access_app.models import Project
    from messages_app.models import Message
    from traces_app.models import ToolCall
    from tracesite.samples.loader import load_samples

    demo = Project.objects.create(slug="demo")
    load_samples(primary, demo)
    key = create_key(demo, "reader", ["read"])[1]
    refund = Message.objects.filter(session__title__icontains="refund", failure_count__gt=0).order_by("pk")[0]
    coding = Message.objects.get(session__external_id="sample-coding-slugify", role="assistant")
    failed = ToolCall.objects.filter(message=refund, status="error").order_by("pk")[0]
    yield "find_failures", key, "failures/?", None
    yield "outline of 14 steps", key, f"outline/?run={coding.pk}&", str(coding.pk)
    yield "outline of 4 steps", key, f"outline/?run={refund.pk}&", str(refund.pk)
    yield "compare", key, f"compare/?run={refund.pk}&", str(refund.pk)
    yield "call", key, f"call/?call={failed.pk}&", str(refund.pk)
    yield "step", key, f"step/?step={failed.step_id}&", str(refund.pk)
    yield "error_group", key, f"error-group/?call={failed.pk}&", None
    yield "search", key, "search/?q=refund&", None
    yield "tools", key, "tools/?", None
    yield "cost", key, "cost/?", None
    of_long = create_key(Project.objects.get(slug="benchmark"), "reader", ["read"])[1]
    yield "outline of the long run", of_long, f"outline/?run={long}&", long


def ask(port: int, key: str, path: str, runs: int = RUNS) -> tuple[bytes, list[float]]:
    """Return the answer to a request, and the ms that it took each time."""
    times = []
    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        for _number in range(runs):
            begun = time.perf_counter()
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
            response = connection.getresponse()
            body = response.read()
            times.append(1000 * (time.perf_counter() - begun))
            assert response.status == 200, (path, body)
    return body, times


def tokens(body: bytes) -> int:
    return -(-len(body) // BYTES_OF_TOKEN)


if __name__ == "__main__":
    main()
