"""Measure the full-text search: python -m benchmarks.search --messages 20000

In a separate database: messages with 4 steps of 2 calls, one every 39 s, so that 200,000 of them are 90 days. Their texts are
drawn from the English of our docs and code, or of the transcripts below `--texts`, and the Chinese of our and Django's
translations. Measured are the indexing (messages a second, CPU, bytes) and searches of several kinds, each with 20 terms, the
second time that each is asked. `--keep` keeps the database, so that a later run with more messages adds the missing ones.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from .processes import cpu_seconds
from .scratch import scratch_database

ROOT = Path(__file__).resolve().parent.parent
BEGIN = datetime.fromisoformat("2026-08-01T00:00:00+00:00")
STEP = timedelta(days=90) / 200_000
AT_A_TIME = 100
CATALOG = "locale/zh_Hans/LC_MESSAGES/django.po"
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
    parser.add_argument("--texts", type=Path, help="a directory of transcripts, *.json and *.jsonl")
    parser.add_argument("--keep", action="store_true", help="keep the database, and add what it lacks")
    parser.add_argument("--without-searches", action="store_true")
    options = parser.parse_args()
    with scratch_database(durable=False, keep=options.keep):
        measure(options)


def measure(options: argparse.Namespace) -> None:
    import logging

    from access_app.models import Project
    from messages_app.models import Message

    logging.disable(logging.INFO)
    say(f"load {os.getloadavg()[0]:.1f}")
    project, _is_new = Project.objects.get_or_create(slug="benchmark")
    corpus = Corpus(options.texts)
    stored = Message.objects.count()
    fill(project.pk, corpus, stored, options.messages)
    sizes(max(options.messages, stored))
    if not options.without_searches:
        search(project.pk, corpus)
    say(f"load {os.getloadavg()[0]:.1f}")


def fill(project_id: int, corpus: Corpus, first: int, after: int) -> None:
    """Store messages and index them."""
    from django.db import connection

    from access_app.db import primary
    from traces_app.maintenance.search_index import index_changed

    if after > first:
        began, cpu = time.perf_counter(), cpu_of_both()
        characters = store(project_id, corpus, first, after)
        took, cpu = time.perf_counter() - began, cpu_of_both() - cpu
        say(
            f"stored {after - first:,} messages with {characters / (after - first):,.0f} characters each: "
            f"{(after - first) / took:,.0f} a second, {cpu * 1000 / (after - first):.1f} ms of CPU each"
        )
    began, cpu = time.perf_counter(), cpu_of_both()
    report = index_changed(primary, patience=timedelta(0))
    took, cpu = time.perf_counter() - began, cpu_of_both() - cpu
    if report.messages:
        say(
            f"indexed {report.messages:,} messages, {report.rows:,} rows: {report.messages / took:,.0f} a second, "
            f"{cpu * 1000 / report.messages:.1f} ms of CPU each; merged {report.merged} segments"
        )
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")


def store(project_id: int, corpus: Corpus, first: int, after: int) -> int:
    """Store messages; return their characters."""
    from access_app.db import primary
    from traces_app.ingest.pipeline import ingest

    before = corpus.characters
    for number in range(first, after, AT_A_TIME):
        ingest(primary, project_id, [session(corpus, number)])
        print(f"\r{number:,}", end="", flush=True)
    return corpus.characters - before


def cpu_of_both() -> float:
    """Return the CPU time of this process and of its PostgreSQL connection, in seconds."""
    from django.db import connection

    connection.ensure_connection()
    return time.process_time() + cpu_seconds([connection.connection.info.backend_pid])


def sizes(messages: int) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
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


class Corpus:
    """Lines of prose, code and Chinese."""

    def __init__(self, directory: Path | None) -> None:
        self.random = random.Random(1)
        if directory is None:
            files = [*ROOT.glob("docs/*.md"), *ROOT.glob("t*/**/*.py")]
            lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
        else:
            lines = sorted({line for file in directory.rglob("*.json*") for line in lines_of(file)})
        self.lines = [line.strip() for line in lines if 20 < len(line) <= 400]
        self.chinese = []
        for catalog in (ROOT / CATALOG, *(Path(sys.prefix).glob(f"lib/python3*/site-packages/django/**/{CATALOG}"))):
            texts = re.findall(r'^msgstr "(.+)"$', catalog.read_text("utf-8"), re.M)
            self.chinese += [text for text in texts if len(text) > 8]
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


def lines_of(file: Path) -> Iterator[str]:
    """Yield the lines of all strings of a file of JSON, or of JSON lines."""
    text = file.read_text("utf-8", errors="replace")
    try:
        values = [json.loads(text)]
    except ValueError:
        values = []
        for line in text.splitlines():
            with contextlib.suppress(ValueError):  # of what is no JSON on purpose
                values.append(json.loads(line))
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield from (line.replace("\0", "") for line in value.splitlines())
        elif isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value


def session(corpus: Corpus, first: int) -> Any:
    import msgspec

    from tracesite_sdk import records

    corpus.random.seed(first)
    answers = [answer(corpus, number) for number in range(first, first + AT_A_TIME)]
    return msgspec.convert({"external_id": f"s{first}", "messages": answers}, records.Session)


def answer(corpus: Corpus, number: int) -> dict[str, Any]:
    random_ = corpus.random

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
        "created_at": BEGIN + number * STEP,
        "agent_steps": steps,
    }


def search(project_id: int, corpus: Corpus) -> None:
    from messages_app.models import Message
    from traces_app.models import ToolCall

    random_ = random.Random(2)
    newest = Message.objects.order_by("-pk").values_list("pk", flat=True)
    count = newest.count()

    def some(of_status: str) -> list[Any]:
        """Return the ids and errors of calls, over the whole time."""
        found: list[Any] = []
        while len(found) < SEARCHES_OF_A_KIND:
            calls = ToolCall.objects.filter(message_id=newest[random_.randrange(count)], status=of_status)
            found += list(calls.order_by().values_list("args__id", "result__error")[:1])
        return found

    calls, failed = some("success"), some("error")
    words = [word for line in random_.sample(corpus.lines, 2_000) for word in re.findall(r"[a-z]{9,}", line)]
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
        "4 Chinese": chinese_of(4),
        "6 Chinese": chinese_of(6),
    }
    filters: dict[str, dict[str, str]] = {
        "": {},
        "of a day": {"created_after": (BEGIN + (count - 1) * STEP - timedelta(days=1)).isoformat()},
        "of a tool": {"tool": "run_sql"},
        "failed calls": {"status": "error"},
    }
    everything: dict[str, list[float]] = {name: [] for name in filters}
    for kind, queries in kinds.items():
        for name, parameters in filters.items():
            times = []
            hits = 0
            for query in queries:
                run(project_id, query, parameters)
                began = time.perf_counter()
                hits += run(project_id, query, parameters)
                times.append((time.perf_counter() - began) * 1000)
            everything[name] += times
            say(f"{kind} | {name} | {summary(times)} | {hits / len(queries):.0f} found")
    for name, times in everything.items():
        say(f"all | {name} | {summary(times)}")
    say(f"all | | {summary([time for times in everything.values() for time in times])}")


def run(project_id: int, text: str, parameters: dict[str, str]) -> int:
    """Search as /search/ does, calls as /tool-calls/?q= does; return the number of rows of the first page."""
    from django.http import QueryDict

    from access_app.db import primary
    from access_app.readable import Parts
    from access_app.visibility import ProjectScope
    from messages_app.sql.pagination import page_request
    from traces_app.queries.filters import CallFilterSet, MessageFilterSet
    from traces_app.queries.search.pages import found_page, mark_of_status
    from traces_app.queries.search.query import parse

    scope = ProjectScope(frozenset({project_id}))
    of_calls = "status" in parameters
    filters = (CallFilterSet if of_calls else MessageFilterSet)(query_dict(parameters))
    found = found_page(
        Parts({primary: scope}).rows(lambda db, scope: filters.found(db, scope, None)),
        parse(text),
        "call" if of_calls else "message",
        page_request(QueryDict("limit=20")),
        mark=mark_of_status(filters.given.get("status")),
    )
    return len(found.page.ids)


def query_dict(parameters: dict[str, str]) -> Any:
    from django.http import QueryDict

    found = QueryDict(mutable=True)
    found.update(parameters)
    return found


def summary(times: list[float]) -> str:
    ordered = sorted(times)
    return f"p50 {statistics.median(times):.0f} ms | p95 {ordered[int(0.95 * len(times))]:.0f} ms | max {ordered[-1]:.0f} ms"


def say(line: str) -> None:
    print(f"\r{line}", flush=True)


if __name__ == "__main__":
    main()
