"""Send mutated bodies to every route that takes one, and measure each: python -m benchmarks.mutated_bodies --bodies 20000

Starts a separate embedded PostgreSQL and a server with one worker, in a directory that is removed at the end. One client sends
one request at a time. A status of 5xx, no answer in 60 s, more than 10 s of CPU or more than 500 MB is a fault; each is listed,
and the exit status is then 1. The same seed makes the same bodies: --only 4711 sends one of them again, to an empty database.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.faults.site import Site, running

from .sending import Outcome, Request, Sender

if TYPE_CHECKING:
    from .seeds import Seed

MOST_SECONDS, MOST_MEGABYTES = 10, 500
CLIENT_SECONDS = "5"
"""How long the server waits for the rest of a body that is too short."""


@dataclass
class Line:
    """The sums of a route, and the most that a request took."""

    answers: Counter[str] = field(default_factory=Counter)
    cpu: float = 0
    database_cpu: float = 0
    megabytes: float = 0

    def add(self, outcome: Outcome) -> None:
        self.answers[f"{outcome.status // 100}xx" if outcome.status else "none"] += 1
        self.cpu = max(self.cpu, outcome.cpu)
        self.database_cpu = max(self.database_cpu, outcome.database_cpu)
        self.megabytes = max(self.megabytes, outcome.megabytes)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutated_bodies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bodies", type=int, default=20_000, help="(default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="Number of the first (default: %(default)s).")
    parser.add_argument("--only", type=int, help="Send the body with this number alone.")
    parser.add_argument("--seed", type=int, default=1, help="Of the mutations (default: %(default)s).")
    parser.add_argument(
        "--routes", default="", help="Send only to those whose method, path or media type contain this."
    )
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="Write bodies with a fault there, with the log.")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # runs the cleanup
    numbers = range(options.first, options.first + options.bodies)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    with _site() as site:
        # It needs Django, which reads its settings from the environment when it is imported.
        from . import seeds

        sender = Sender(site)
        found = seeds.all_seeds(site.key, _other_key())
        names = seeds.stored_names(sender, site.key)
        _check_valid(sender, found, names)
        found = [seed for seed in found if options.routes in f"{seed.method} {' '.join(seed.routes)} {seed.media_type}"]
        return _send_all(sender, found, names, numbers, options.seed, options.save)


def _send_all(
    sender: Sender, found: Sequence[Seed], names: dict[str, str], numbers: range, start: int, folder: Path | None
) -> int:
    """Send the bodies with these numbers, and print those with a fault and a table. Return the exit status."""
    from . import mutations

    table: dict[str, Line] = defaultdict(Line)
    faulty, began = 0, time.monotonic()
    for number in numbers:
        rng = random.Random(f"{start}:{number}")
        # Half by route, because some have many seeds.
        name = rng.choice(sorted({seed.name for seed in found}))
        seed = rng.choice([seed for seed in found if seed.name == name] if rng.random() < 0.5 else found)
        body, mutation = mutations.mutated(rng, seed, found)
        request, how = mutations.sent(rng, seed, seed.request(sender, rng.choice(seed.routes), body, names))
        outcome = sender.send(request)
        table[seed.name].add(outcome)
        faults = outcome.faults(request, seconds=MOST_SECONDS, megabytes=MOST_MEGABYTES)
        if faults:
            faulty += 1
            what = f"{request.method} {request.path}, {mutation}, {how}, {len(body):,} bytes"
            print(f"{number}: {what}: {', '.join(faults)}", flush=True)
            if folder is not None:
                _save(folder, number, request, outcome)
        if (number + 1) % 1000 == 0:
            print(f"{number + 1:,} sent in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    _print_table(table)
    print(f"{len(numbers):,} bodies of seed {start} in {time.monotonic() - began:.0f} s: {faulty} faults")
    return 1 if faulty else 0


@contextmanager
def _site() -> Iterator[Site]:
    """Run a site without its server, and set up Django with its settings and database."""
    os.environ["TRACESITE_CLIENT_SECONDS"] = CLIENT_SECONDS
    with running(workers=1, serve=False) as site:
        os.environ.update(site.environment, DATABASE_URL=site.url, TRACESITE_LOG_LEVEL="ERROR")
        import django

        django.setup()
        yield site


def _other_key() -> str:
    """Return a key of a project of its own, whose sessions are deleted."""
    from access_app.keys import create_key
    from access_app.models import Project, Scope

    return create_key(Project.objects.create(slug="deleted"), "fuzz", list(Scope))[1]


def _check_valid(sender: Sender, found: Sequence[Seed], names: dict[str, str]) -> None:
    """Send each seed as it is. Exit if one is refused, because mutations of it would not get far."""
    for seed in found:
        outcome = sender.send(seed.request(sender, seed.routes[0], seed.body, names))
        if outcome.status >= 400 and seed.body != b"{}" and not seed.is_refused:
            raise SystemExit(f"Not valid: {seed.name} {seed.media_type} {seed.body[:200]!r}: {outcome.answer!r}")


def _save(folder: Path, number: int, request: Request, outcome: Outcome) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}.request").write_bytes(b"".join(request.encoded()))
    (folder / f"{number}.answer").write_bytes(outcome.answer[:100_000])
    (folder / f"{number}.log").write_text(outcome.log)


def _print_table(table: dict[str, Line]) -> None:
    classes = ("1xx", "2xx", "3xx", "4xx", "5xx", "none")
    print(f"\n{'route':58}{'sent':>6}{''.join(f'{name:>6}' for name in classes)}{'CPU s':>8}{'SQL s':>8}{'MB':>6}")
    for name, line in sorted(table.items()):
        counts = "".join(f"{line.answers[of_class]:6}" for of_class in classes)
        sums = f"{line.cpu:8.2f}{line.database_cpu:8.2f}{line.megabytes:6.0f}"
        print(f"{name:58}{line.answers.total():6}{counts}{sums}")


if __name__ == "__main__":
    sys.exit(main())
