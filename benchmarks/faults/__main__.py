"""Kill parts of a running Tracesite and report the effects: python -m benchmarks.faults --kind server --kills 20

Starts a separate embedded PostgreSQL and a server with two workers, in a directory that is removed at the end. The exit
status is 0 if all acknowledged data was found complete, once, and consistent with the counters.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import closing
from types import FrameType

from .kills import KINDS, Campaign
from .site import running


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=("all", *KINDS), default="all", help="What is killed (default: each).")
    parser.add_argument("--kills", type=int, default=20, help="Of each kind (default: %(default)s).")
    parser.add_argument(
        "--seed", type=int, default=1, help="Of the moments and of what is sent (default: %(default)s)."
    )
    parser.add_argument("--workers", type=int, default=2, help="Of the server (default: %(default)s).")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    kinds = KINDS if options.kind == "all" else (options.kind,)
    with running(workers=options.workers) as site, closing(Campaign(site, options.seed)) as campaign:
        for kind in kinds:
            started = time.monotonic()
            for number in range(options.kills):
                problems = campaign.round(kind)
                if problems:
                    return _report(f"After kill {number + 1} of {kind}:", problems)
            print(f"{kind}: {options.kills} kills in {time.monotonic() - started:.0f} s, all whole", flush=True)
        problems = campaign.finish()
        if problems:
            return _report("At the end:", problems)
    ledger = campaign.ledger
    print(
        f"{len(ledger.entries)} messages and {len(ledger.span_runs)} runs of spans acknowledged and found whole, once; {len(ledger.expendable)} more given to "
        f"{campaign.purges} purges; {len(ledger.tokens)} changes of one message by all; {campaign.restarts} restarts of "
        f"the server; slowest recovery {campaign.slowest_recovery:.1f} s"
    )
    print("answers:", ", ".join(f"{name} {count}" for name, count in sorted(ledger.answers.items())))
    return 0


def _report(when: str, problems: list[str]) -> int:
    print(when, *problems[:20], sep="\n- ")
    if len(problems) > 20:
        print(f"and {len(problems) - 20} more")
    return 1


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # runs the cleanup


if __name__ == "__main__":
    sys.exit(main())
