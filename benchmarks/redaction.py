"""Measure redaction: python -m benchmarks.redaction [--held-out] [--show] [--tree DIRECTORY]

Prints the share of the corpus' secrets that are redacted (recall), the number of innocent snippets that are changed, and
the time for the messages of the other benchmarks. See tests/access_app/redaction/corpus and docs/redaction.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from django.conf import settings

from access_app.redaction.engine import redact
from tests.access_app.redaction.corpus import Innocent, Trial, innocents, trials
from traces_app.ingest.decode import decode_ingest
from traces_app.normalize.records import normalise
from traces_app.normalize.redaction import redact as redact_session

from . import workload

MESSAGES = 200
ROUNDS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="Measure the third that rules are not written against.")
    parser.add_argument("--show", action="store_true", help="Print each secret that is left and each innocent change.")
    parser.add_argument("--tree", type=Path, help="Also count the changed lines of the source files of a directory.")
    options = parser.parse_args()
    settings.configure(USE_TZ=True)
    secrets = [trial for trial in trials() if trial.held_out == options.held_out]
    harmless = [one for one in innocents() if one.held_out == options.held_out]
    left = leaks(secrets)
    changed = changes(harmless)
    kinds = len({trial.kind for trial in secrets})
    print(f"secrets: {len({trial.secret for trial in secrets})} of {kinds} kinds, tried {len(secrets)} times")
    print(f"recall: {1 - len(left) / len(secrets):.4f} ({len(left)} left)")
    print(f"innocent snippets changed: {len(changed)} of {len(harmless)}")
    if options.show:
        show(left, changed)
    if options.tree:
        count_tree(options.tree, options.show)
    print(f"time: {microseconds():.0f} us of CPU a message (the median of {ROUNDS} rounds, {MESSAGES} messages)")


def leaks(secrets: Iterable[Trial]) -> list[Trial]:
    """Return the trials whose secret is left."""
    return [trial for trial in secrets if trial.leaks_in(written(redact(trial.value)[0]))]


def changes(harmless: Iterable[Innocent]) -> list[Innocent]:
    """Return the innocents that redaction changes."""
    return [one for one in harmless if redact(one.value)[0] != one.value]


def written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show(left: list[Trial], changed: list[Innocent]) -> None:
    print("left by kind:", dict(Counter(trial.kind for trial in left).most_common()))
    print("left by setting:", dict(Counter(trial.setting for trial in left).most_common()))
    for trial in left:
        print(f"  {trial.kind} / {trial.setting}: {written(trial.value)[:160]!r}")
    for one in changed:
        print(f"  {one.language}: {written(one.value)!r}\n    -> {written(redact(one.value)[0])!r}")


def count_tree(directory: Path, detailed: bool) -> None:
    lines = changed = 0
    for path in sorted(directory.rglob("*")):
        if path.suffix in (
            ".py",
            ".js",
            ".ts",
            ".go",
            ".c",
            ".h",
            ".md",
            ".rst",
            ".json",
            ".html",
            ".toml",
            ".sh",
            ".sql",
        ):
            for line in path.read_text(errors="replace").splitlines():
                lines += 1
                clean = redact(line)[0]
                if clean != line:
                    changed += 1
                    if detailed:
                        print(f"  {path.name}: {line.strip()[:150]}\n    -> {clean.strip()[:150]}")
    print(f"{directory}: {changed} of {lines} lines changed")


def microseconds() -> float:
    """Return the time to redact a message of the ingest benchmark, as decoded and normalised."""
    work = workload.of_reading()
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    sessions = [normalise(session, now=noon) for session in decode_ingest(work.batch(range(MESSAGES)), ndjson=False)]
    times = []
    for _round in range(ROUNDS):
        begin = time.process_time()
        for session in sessions:
            redact_session(session)
        times.append(time.process_time() - begin)
    return median(times) / MESSAGES * 1e6


if __name__ == "__main__":
    main()
