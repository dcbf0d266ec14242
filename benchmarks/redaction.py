"""Measure redaction: python -m benchmarks.redaction [--held-out] [--show] [--tree DIRECTORY] [--masking]

Prints the share of the corpus' secrets that are redacted (recall) and the number of innocent snippets that are changed, or
the time for the messages of the other benchmarks. See sdk/tests/redaction/corpus and docs/redaction.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import django
from django.conf import settings

from sdk.tests.redaction.corpus import Innocent, Trial, innocents, trials
from traces_app.ingest.decode import decode_ingest
from tracesite_sdk.normalize.records import normalise
from tracesite_sdk.normalize.redacted import redact as redact_session
from tracesite_sdk.redaction.engine import redact
from tracesite_sdk.redaction.presets import PRESETS

from . import workload

MESSAGES = 200
ROUNDS = 15

Rows = tuple[tuple[str, str, str], ...]
_PRESETS: Rows = tuple((name, "preset", name) for name in PRESETS)
_PATTERN = ("staff", "pattern", r"\bEMP-\d{6}\b")
_KEYS = (("id", "key", "national_id"), ("number", "key", "kundennummer"))
_PATHS = (("name", "path", "args.customer.name"), ("price", "path", "args.items[*].price"))
MASKING: dict[str, Rows] = {
    "no masking": (),
    **{f"preset {row[0]}": (row,) for row in _PRESETS},
    "pattern": (_PATTERN,),
    "key national_id": _KEYS[:1],
    "path args.customer.name": _PATHS[:1],
    "ten rules": (*_PRESETS, _PATTERN, *_KEYS, *_PATHS),
    "key customerId, 2.8 hits": (("customer", "key", "customerId"),),
}
"""Sets of masking rules. Without hits in the messages, but for the last."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="Measure the third that rules are not written against.")
    parser.add_argument("--show", action="store_true", help="Print each secret that is left and each innocent change.")
    parser.add_argument("--tree", type=Path, help="Also count the changed lines of the source files of a directory.")
    parser.add_argument(
        "--masking", action="store_true", help="Measure the time instead, with masking rules and without."
    )
    options = parser.parse_args()
    if options.masking:
        os.environ["DJANGO_SETTINGS_MODULE"] = "tracesite.settings"
        os.environ.setdefault("DATABASE_URL", "postgresql://unused")
        django.setup()
        for name, time_with in microseconds(MASKING).items():
            print(f"{name:24}{time_with:6.0f} us of CPU a message")
        return
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


def microseconds(rule_sets: Mapping[str, Rows]) -> dict[str, float]:
    """Return the time to redact a message of the ingest benchmark, as decoded and normalised, with each set of masking rules."""
    from access_app.masking import compiled

    work = workload.of_reading()
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    sessions = [normalise(session, now=noon) for session in decode_ingest(work.batch(range(MESSAGES)), ndjson=False)]
    times: dict[str, list[float]] = {name: [] for name in rule_sets}
    for _round in range(ROUNDS):
        for name, rows in rule_sets.items():
            rules = compiled(rows)
            begin = time.process_time()
            for session in sessions:
                redact_session(session, rules)
            times[name].append(time.process_time() - begin)
    return {name: min(rounds) / MESSAGES * 1e6 for name, rounds in times.items()}


if __name__ == "__main__":
    main()
