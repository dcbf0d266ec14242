"""Measure groups of errors where the errors are long: python -m benchmarks.long_errors

In a separate database: 10,000 failed calls of one day with errors of each kind in turn, and as many on the day before, among which
new errors are searched. Measured are the REST API and the page of the admin, and alternately with them a plain statement that
reads the same errors, because other work on the machine slows each differently. The fastest of the runs counts.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from .scratch import scratch_database
from .search import say

AT_A_TIME = 500
"""Calls in one message."""
WORDS = [
    "the",
    "server",
    "refused",
    "a",
    "connection",
    "because",
    "its",
    "list",
    "was",
    "too",
    "long",
    "or",
    "an",
    "index",
    "missing",
]
PLAIN = """SELECT sum(length(result.error)) FROM traces_app_toolresult AS result JOIN traces_app_toolcall AS call ON call.id = result.id
    WHERE call.project_id = %s AND call.id >= %s"""
LARGER = """UPDATE traces_app_toolresult AS result SET error = repeat(result.error, 100) FROM traces_app_toolcall AS call
    WHERE call.id = result.id AND call.project_id = %s"""
LARGE = "100 KB of words"
"""Made by PostgreSQL of the 1 KB that is sent."""


def words(random_: random.Random, characters: int) -> str:
    text = ""
    while len(text) < characters:
        text += f"{random_.choice(WORDS)} "
    return text[:characters]


def ids(random_: random.Random) -> str:
    text = ""
    while len(text) < 1_000:
        text += f"{random_.getrandbits(random_.choice([16, 32, 64])):x} "
    return text[:1_000]


def traceback(random_: random.Random) -> str:
    lines = ["Traceback (most recent call last):"]
    while sum(map(len, lines)) < 2_000:
        name, value = random_.choice(WORDS), random_.choice(WORDS)
        lines.append(f'  File "/srv/app/{name}.py", line {random_.randrange(999)}, in {value}')
        lines.append(f'    return self.{name}({value}, key="{value}")')
    return "\n".join([*lines, f"ValueError: no row {random_.random()} in '{random_.choice(WORDS)}'"])


def json(random_: random.Random) -> str:
    items = ", ".join(f'"{random_.getrandbits(40)}"' for _item in range(40))
    return f'{{"error": {{"code": {random_.randrange(999)}, "message": "{words(random_, 300)}", "items": [{items}]}}}}'


KINDS: dict[str, Callable[[random.Random], str]] = {
    "150 characters": lambda random_: f"{words(random_, 140)} {random_.randrange(10**6)}",
    "1 KB of words": lambda random_: words(random_, 1_000),
    "990 quotes": lambda _random: "'" * 990,
    "a.b-c+": lambda _random: "a.b-c+" * 165,
    "1 KB of ids": ids,
    "a list of numbers": lambda _random: "1, " * 333,
    "paths": lambda _random: "/a1" * 333,
    "「quoted」": lambda _random: "错误'请求「失败" * 110,
    "a-": lambda _random: "a-" * 500,
    "traceback of 2 KB": traceback,
    "JSON": json,
    LARGE: lambda random_: words(random_, 1_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    logging.disable(logging.INFO)
    with scratch_database(durable=False):
        for number, kind in enumerate(options.kinds):
            measure(f"kind-{number}", kind, options.calls, options.runs)


def measure(slug: str, kind: str, calls: int, runs: int) -> None:
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client

    from access_app.keys import create_key
    from access_app.models import Project
    from messages_app.ids import first_id_at

    project = Project.objects.create(slug=slug)
    now = datetime.now().astimezone()
    fill(project.pk, kind, calls, now)
    with connection.cursor() as cursor:
        if kind == LARGE:
            cursor.execute(LARGER, [project.pk])
        cursor.execute("VACUUM ANALYZE")
    api = Client(
        SERVER_NAME="localhost", headers={"Authorization": f"Bearer {create_key(project, 'benchmark', ['read'])[1]}"}
    )
    page = Client(SERVER_NAME="localhost")
    page.force_login(User.objects.create_superuser(slug))
    since = now - timedelta(hours=23)

    def plain() -> int:
        with connection.cursor() as cursor:
            cursor.execute(PLAIN, [project.pk, first_id_at(since)])
            return int(cursor.fetchone()[0])

    asked: dict[str, Callable[[], Any]] = {
        "plain": plain,
        "API": lambda: api.get("/api/v1/errors/", {"created_after": since.isoformat()}),
        "page": lambda: page.get("/admin/traces_app/toolcall/errors/", {"project": slug}),
    }
    best: dict[str, float] = {}
    found: dict[str, Any] = {}
    for _run in range(runs):
        for name, ask in asked.items():
            began = time.perf_counter()
            found[name] = ask()
            best[name] = min(best.get(name, 1e9), time.perf_counter() - began)
    answer = found["API"].json()
    assert (found["API"].status_code, found["page"].status_code) == (200, 200), answer
    says_since = b"failed calls are counted, since" in found["page"].content
    assert says_since == (answer["call_count"] < calls), kind
    times = ", ".join(f"{name} {1000 * seconds:,.0f} ms" for name, seconds in best.items())
    say(f"{kind}: {times}; {answer['call_count']:,} of {calls:,} grouped; load {os.getloadavg()[0]:.1f}")


def fill(project_id: int, kind: str, calls: int, now: datetime) -> None:
    from traces_app.ingest.decode import decode_ingest
    from traces_app.ingest.pipeline import ingest

    random_ = random.Random(1)
    for first in range(0, 2 * calls, AT_A_TIME):
        # Some hours apart, the second half on the day before.
        at = now - timedelta(hours=2 + first // calls * 28, seconds=first % calls)
        failed = [
            {"name": f"tool {number % 5}", "result": {"success": False, "error": KINDS[kind](random_)}}
            for number in range(AT_A_TIME)
        ]
        message = {
            "external_id": str(first),
            "role": "assistant",
            "created_at": at.isoformat(),
            "agent_steps": [{"tool_calls": failed}],
        }
        sessions = {"sessions": [{"external_id": "s", "messages": [message]}]}
        ingest(project_id, decode_ingest(msgspec.json.encode(sessions), ndjson=False))


if __name__ == "__main__":
    main()
