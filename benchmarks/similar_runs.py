"""Measure similar runs: python -m benchmarks.similar_runs --runs 5000 50000

In a separate database: questions of the English of our docs and the Chinese of our translations, a third of them asked again
in other words, each with a run of 4 calls. Measured are the making of the vectors, their size, answers, and the share of the 20
most similar runs (found by comparing all exactly) that an answer has.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import statistics
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from .scratch import scratch_database
from .search import TOOLS, Corpus, say

DAYS = 90
AT_A_TIME = 100
ANSWERS = 40
EXACT_ANSWERS = 8
LIMIT = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[5_000, 50_000], help="Measured at each, ascending.")
    parser.add_argument("--compared", type=int, help="Runs whose vectors an answer compares, if not as many as usual.")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    with scratch_database(durable=False):
        if options.compared:
            from traces_app.queries import similar_runs

            similar_runs.MOST_COMPARED = options.compared
        measure(options.runs)


def measure(sizes: list[int]) -> None:
    from django.db import connection

    from access_app.models import Project
    from traces_app.ingest.pipeline import ingest
    from traces_app.maintenance.run_vectors import queue_vectors, store_vectors
    from traces_app.models import RunVector, UnindexedMessage

    project = Project.objects.create(slug="benchmark")
    random_ = random.Random(1)
    sessions = runs(random_, sizes[-1])
    count = 0
    for size in sizes:
        began, before = time.perf_counter(), count
        while count < size:
            ingest(project.pk, [next(sessions)])
            count += AT_A_TIME
            print(f"\r{count / sizes[-1]:.0%}", end="", flush=True)
        took = time.perf_counter() - began
        say(f"stored runs up to {count:,}: {(count - before) / took:,.0f} a second")
        queue_vectors(list(UnindexedMessage.objects.values_list("message_id", flat=True)))
        UnindexedMessage.objects.all().delete()
        began = time.perf_counter()
        report = store_vectors()
        took = time.perf_counter() - began
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")
            cursor.execute(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname ~ '^traces_app_runvector_y'"
            )
            (total,) = cursor.fetchone()
        say(f"load {os.getloadavg()[0]:.1f}")
        say(f"made {report.runs:,} vectors: {report.runs / took:,.0f} a second; {total / count:,.0f} bytes a run")
        keys = random_.sample(list(RunVector.objects.values_list("message_id", flat=True)), ANSWERS)
        show(project.pk, keys)


def show(project_id: int, keys: list[UUID]) -> None:
    from traces_app.models import EmbedderInUse
    from traces_app.queries import similar_runs

    for by in ("everything", "errors"):
        answers = [timed(project_id, key, by) for key in keys]
        times = [took for took, _found in answers]
        compared = answers[0][1].compared_count
        say(f"{compared:,} compared by {by}: p50 {statistics.median(times):.0f} ms, p95 {p95(times):.0f} ms")
    stored = [found(project_id, key) for key in keys[:EXACT_ANSWERS]]
    in_use = EmbedderInUse.objects.get()
    EmbedderInUse.objects.all().delete()
    read, similar_runs.MOST_READ = similar_runs.MOST_READ, 10**9
    exact = [timed(project_id, key, "everything") for key in keys[:EXACT_ANSWERS]]
    similar_runs.MOST_READ = read
    in_use.save(force_insert=True)
    shares = []
    for answer, (_took, true) in zip(stored, exact, strict=True):
        least = true.results[-1].score
        shares.append(sum(one.score >= least for one in answer.results) / len(true.results))
    say(
        f"comparing all exactly: p50 {statistics.median(took for took, _found in exact):,.0f} ms; "
        f"of its {LIMIT} most similar runs found {statistics.mean(shares):.1%}, worst {min(shares):.0%}"
    )


def timed(project_id: int, key: UUID, by: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = found(project_id, key, by)
    return (time.perf_counter() - began) * 1000, answer


def p95(times: list[float]) -> float:
    return sorted(times)[int(0.95 * len(times))]


def found(project_id: int, key: UUID, by: Any = "everything") -> Any:
    from django.http import QueryDict

    from access_app.visibility import ProjectScope
    from traces_app.queries.filters import SimilarFilterSet
    from traces_app.queries.similar_runs import similar_runs

    rows = SimilarFilterSet(QueryDict()).found(ProjectScope(frozenset({project_id})))
    return similar_runs(key, rows, LIMIT, by)


def runs(random_: random.Random, count: int) -> Iterator[Any]:
    """Yield sessions of AT_A_TIME runs with their questions."""
    import msgspec

    from traces_app.schema import records

    corpus = Corpus(None)
    corpus.random = random_
    asked: list[str] = []
    begin = datetime.now().astimezone() - timedelta(days=DAYS)
    step = timedelta(days=DAYS) / count
    for first in range(0, count, AT_A_TIME):
        messages = []
        for at in range(first, first + AT_A_TIME):
            text = corpus.text(120)
            if asked and random_.random() < 1 / 3:
                words = random_.choice(asked).split(" ")
                del words[random_.randrange(len(words))]
                text = " ".join([*words, random_.choice(corpus.lines)[:30]])
            asked.append(text)
            messages.append({"role": "user", "content": text, "created_at": begin + at * step})
            messages.append(answer(random_, corpus, begin + at * step, at))
        yield msgspec.convert({"external_id": f"s{first}", "messages": messages}, records.Session)


def answer(random_: random.Random, corpus: Corpus, at: datetime, number: int) -> dict[str, Any]:
    def call() -> dict[str, Any]:
        failed = random_.random() < 0.05
        result = {"success": False, "error": corpus.error()} if failed else {"output": "fine"}
        return {"name": random_.choice(TOOLS), "result": result}

    steps = [{"iteration": one, "tool_calls": [call(), call()]} for one in range(2)]
    return {"external_id": f"m{number}", "role": "assistant", "created_at": at, "agent_steps": steps}


if __name__ == "__main__":
    main()
