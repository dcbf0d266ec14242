"""Measure the full-text search: python -m benchmarks.search --messages 20000

In a separate database: messages with 4 steps of 2 calls, whose texts are drawn from the English of our docs and the Chinese
of our translations, 90 days up to now. Measured are the indexing (messages a second, CPU, bytes) and searches of several
kinds, each 20 times with other terms.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tracesite.serving import embedded_postgres

ROOT = Path(__file__).resolve().parent.parent
DAYS = 90
AT_A_TIME = 100
TOOLS = ("search_orders", "get_weather", "run_sql", "read_file", "ask_researcher", "send_mail", "browse", "calculator")
ERRORS = (
    "OperationalError: connection to server at {host} failed: timeout expired after {number} ms",
    "KeyError: 'customer_{number}' is not in the index of {host}",
    "HTTP 503 from https://{host}/api/v2/orders/{number}: upstream connect error or disconnect",
    "超时:服务 {host} 在 {number} 毫秒内没有响应,请稍后重试",
)
SEARCHES_OF_A_KIND = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    options = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "tracesite.settings"
    embedded_postgres.ensure(durable=False)
    import django
    from django.db import connection

    django.setup()
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        measure(options.messages)
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)


def measure(messages: int) -> None:
    import logging

    from django.db import connection

    from access_app.models import Project
    from traces_app.ingest.pipeline import ingest
    from traces_app.maintenance.search_index import index_queued

    logging.disable(logging.INFO)
    project = Project.objects.create(slug="benchmark")
    random_ = random.Random(1)
    corpus = Corpus(random_)
    characters = 0
    began = time.perf_counter()
    for number, session in enumerate(sessions(random_, corpus, messages)):
        ingest(project.pk, [session])
        print(f"\r{number * AT_A_TIME / messages:.0%}", end="", flush=True)
    took = time.perf_counter() - began
    characters = corpus.characters
    say(
        f"stored {messages:,} messages with {characters / messages:,.0f} characters each: {messages / took:,.0f} a second"
    )
    began, cpu = time.perf_counter(), time.process_time()
    report = index_queued(patience=timedelta(0))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    say(
        f"indexed {report.messages:,} messages, {report.rows:,} rows in {took:.1f} s ({cpu:.1f} s of our CPU): "
        f"{report.messages / took:,.0f} a second, {characters / took / 1e6:.1f} million characters; merged {report.merged}"
    )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute(
            "SELECT sum(pg_total_relation_size(oid)) FILTER (WHERE relname ~ '^traces_app_search'), "
            "sum(pg_total_relation_size(oid)) FILTER (WHERE relname !~ '^traces_app_search') "
            "FROM pg_class WHERE relkind = 'r' AND relname ~ '_y[0-9]{4}m[0-9]{2}$'"
        )
        index, tables = cursor.fetchone()
        cursor.execute("SELECT count(*), sum(rows) FROM traces_app_searchsegment")
        segments, rows = cursor.fetchone()
    say(
        f"index {index / messages:,.0f} bytes a message beside {tables / messages:,.0f}; {segments} segments of {rows:,} rows"
    )
    search(project.pk, random_, corpus)


class Corpus:
    """Lines of prose, code and Chinese."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        files = [*ROOT.glob("docs/*.md"), *ROOT.glob("t*/**/*.py")]
        self.lines = [line for file in files for line in file.read_text("utf-8").splitlines() if len(line) > 20]
        catalog = (ROOT / "locale/zh_Hans/LC_MESSAGES/django.po").read_text("utf-8")
        self.chinese = [text for text in re.findall(r'^msgstr "(.+)"$', catalog, re.M) if len(text) > 8]
        self.characters = 0

    def text(self, median: int) -> str:
        wanted = min(int(self.random.lognormvariate(0, 1) * median), 60_000)
        lines = self.chinese if self.random.random() < 0.15 else self.lines
        found = ""
        while len(found) < wanted:
            words = self.random.choice(lines).split(" ")
            if self.random.random() < 0.5:
                self.random.shuffle(words)
            found += " ".join(words) + "\n"
        self.characters += len(found)
        return found

    def error(self) -> str:
        host = f"node-{self.random.getrandbits(24):x}.example.com"
        return self.random.choice(ERRORS).format(host=host, number=self.random.randint(1, 10**6))


def sessions(random_: random.Random, corpus: Corpus, messages: int) -> Iterator[Any]:
    import msgspec

    from traces_app.schema import records

    begin = datetime.now().astimezone() - timedelta(days=DAYS)
    step = timedelta(days=DAYS) / messages
    for first in range(0, messages, AT_A_TIME):
        answers = [
            answer(random_, corpus, begin + at * step, at) for at in range(first, min(first + AT_A_TIME, messages))
        ]
        yield msgspec.convert({"external_id": f"s{first}", "messages": answers}, records.Session)


def answer(random_: random.Random, corpus: Corpus, at: datetime, number: int) -> dict[str, Any]:
    def call() -> dict[str, Any]:
        failed = random_.random() < 0.05
        result = {"success": not failed, "output": "" if failed else corpus.text(400)}
        if failed:
            result["error"] = corpus.error()
        args = {"query": corpus.text(30), "id": f"{random_.getrandbits(64):016x}"}
        return {"name": random_.choice(TOOLS), "args": args, "result": result}

    steps = [{"iteration": one, "thought": corpus.text(60), "tool_calls": [call(), call()]} for one in range(4)]
    return {
        "external_id": f"m{number}",
        "role": "assistant",
        "content": corpus.text(300),
        "created_at": at,
        "agent_steps": steps,
    }


def search(project_id: int, random_: random.Random, corpus: Corpus) -> None:
    from traces_app.models import ToolCall, ToolResult

    def some(count: int, **of: Any) -> list[Any]:
        rows = ToolCall.with_deleted.filter(**of).order_by("?")
        return list(rows.values_list("args__id", "result__error", "result__output")[:count])

    calls = some(SEARCHES_OF_A_KIND)
    failed = some(SEARCHES_OF_A_KIND, status="error")
    words = [word for line in corpus.lines[:2_000] for word in re.findall(r"[a-z]{9,}", line)]
    chinese = [text for text in corpus.chinese if re.search("[\u4e00-\u9fff]{6}", text)]

    def chinese_of(length: int) -> list[str]:
        found = []
        for _number in range(SEARCHES_OF_A_KIND):
            run = random_.choice(re.findall("[\u4e00-\u9fff]{6,}", random_.choice(chinese)))
            begin = random_.randint(0, len(run) - length)
            found.append(run[begin : begin + length])
        return found

    kinds = {
        "an id": [one[0] for one in calls],
        "40 characters of an error": [f'"{one[1][8:48]}"' for one in failed],
        "a part of an id, 8 characters": [one[0][3:11] for one in calls],
        "the inside of a word": [random_.choice(words)[2:8] for _ in calls],
        "a common word": ["error", "message", "return", "the", "table"] * 4,
        "two words": [f"{random_.choice(words)} {random_.choice(words)}" for _ in calls],
        "three words and a tool": [f"{' '.join(random_.choices(words, k=3))} tool:run_sql" for _ in calls],
        "an absent word": [f"{word}zq" for word in random_.sample(words, SEARCHES_OF_A_KIND)],
        "absent characters": ["zqxjkvw", "qqqzzz", "龘龘龘", "xqzkw"] * 5,
        "2 letters": ["ab", "zq", "xw", "th"] * 5,
        "2 Chinese": chinese_of(2),
        "3 Chinese": chinese_of(3),
        "6 Chinese": chinese_of(6),
    }
    everything = []
    for name, queries in kinds.items():
        for filters, of in (("", {}), (" of a day", {"day": True}), (" of failed calls", {"status": "error"})):
            times = []
            hits = 0
            for query in queries:
                began = time.perf_counter()
                hits += run(project_id, query, **of)
                times.append((time.perf_counter() - began) * 1000)
            everything += times
            say(
                f"{name}{filters}: p50 {statistics.median(times):.0f} ms, p95 {p95(times):.0f} ms, {hits / len(queries):.0f} found"
            )
    say(f"all: p50 {statistics.median(everything):.0f} ms, p95 {p95(everything):.0f} ms")
    assert ToolResult.objects.exists()


def run(project_id: int, text: str, *, day: bool = False, status: str = "") -> int:
    """Search as /search/ and /tool-calls/?q= do; return the number of rows of the first page."""
    from django.http import QueryDict

    from access_app.visibility import ProjectScope
    from messages_app.sql.pagination import page_request
    from traces_app.queries.filters import CallFilterSet, MessageFilterSet
    from traces_app.queries.search.pages import found_page
    from traces_app.queries.search.query import parse

    scope = ProjectScope(frozenset({project_id}))
    parameters = QueryDict(mutable=True)
    if day:
        parameters["created_after"] = (datetime.now().astimezone() - timedelta(days=1)).isoformat()
    if status:
        parameters["status"] = status
    filters = CallFilterSet(parameters) if status else MessageFilterSet(parameters)
    found = found_page(
        filters.found(scope, None), parse(text), "call" if status else "message", page_request(QueryDict("limit=20"))
    )
    return len(found.page.ids)


def p95(times: list[float]) -> float:
    return sorted(times)[int(0.95 * len(times))]


def say(line: str) -> None:
    print(f"\r{line}", flush=True)


if __name__ == "__main__":
    main()
