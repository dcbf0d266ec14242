"""What waits in the spool, for people: `python -m tracesite.recorder status`, and `drain` to send it now.

The exit status is 0 when nothing waits, 1 when something does, 2 when the question was wrong.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .http_sink import HttpSink
from .spool import Spool, Waiting, spool_name, spool_roots, survey


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    roots = [root for root in spool_roots(options.spool) if root.is_dir()]
    try:
        if options.command == "drain":
            return _drain(options, roots)
        return _status(roots)
    except (OSError, ValueError) as failure:
        sys.stderr.write(f"{failure}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tracesite.recorder", description="What the recorder could not deliver yet."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="status|drain")
    status = commands.add_parser("status", help="says what waits, by server and key")
    drain = commands.add_parser("drain", help="sends what waits for a server, with a key")
    for command in (status, drain):
        command.add_argument("--spool", metavar="DIR", help="the directory; else $TRACESITE_SPOOL, else the usual ones")
    drain.add_argument("--url", default=os.environ.get("TRACESITE_URL"), help="the server; else $TRACESITE_URL")
    drain.add_argument(
        "--key",
        default=os.environ.get("TRACESITE_KEY"),
        help="an API key that may write; else $TRACESITE_KEY, which other users of the machine cannot read",
    )
    drain.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to try (60)")
    drain.add_argument(
        "--other-keys",
        action="store_true",
        help="send also what waits for other keys of this server, with this one: it goes to the project of this key",
    )
    drain.add_argument(
        "--other-urls",
        action="store_true",
        help="send also what waits for other addresses with this key, to this one: after the server has moved, or the "
        "address was mistyped; together with --other-keys, all that waits",
    )
    return parser


def _status(roots: Sequence[Path]) -> int:
    found = [one for root in roots for one in survey(root)]
    waiting = [one for one in found if one.events]
    for one in waiting:
        _say(_sentence(one))
    for one in found:
        if one.refused:
            _say(f"The server did not take {_events(one.refused)}: see {one.directory / 'refused.ndjson'}.")
    if not waiting:
        _say(f"Nothing waits{_in(roots)}.")
    return 1 if waiting else 0


def _drain(options: argparse.Namespace, roots: Sequence[Path]) -> int:
    if not options.url or not options.key:
        raise ValueError("Say which server and which key: --url and --key, or TRACESITE_URL and TRACESITE_KEY.")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    deadline = time.monotonic() + options.timeout
    url, key = options.url.strip().rstrip("/"), options.key.strip()
    own = Spool(roots, url, key, limit=1)
    spools = [own]
    others = [_Other.of(one, url, key) for root in roots for one in survey(root) if one.events]
    for other in others:
        if (options.other_keys or other.has_key) and (options.other_urls or other.has_url):
            spools += [Spool.at(other.waiting.directory)] if other.waiting.directory.name != own.name else []
    delivered = 0
    for spool in spools:
        sink = HttpSink(url, key, spool=spool)
        sink.drain(deadline)
        sink.close(deadline)
        report = sink.report()
        delivered += report.delivered + report.duplicates
    names = {spool.name for spool in spools}
    rest = [one for root in roots for one in survey(root) if one.directory.name in names]
    left = sum(one.events for one in rest)
    _say(
        f"{_events(delivered)} {'was' if delivered == 1 else 'were'} delivered, {left:,} wait{'s' if left == 1 else ''}."
    )
    if any(one.running for one in rest if one.events):
        _say("What a running process wrote is sent by that process.")
    for what, flag, waiting in (
        ("other keys of this server", "--other-keys", [one for one in others if one.has_url and not one.has_key]),
        ("other addresses with this key", "--other-urls", [one for one in others if one.has_key and not one.has_url]),
    ):
        count = sum(one.waiting.events for one in waiting if one.waiting.directory.name not in names)
        if count:
            to = "to the project of this key" if flag == "--other-keys" else "to this server"
            _say(
                f"{_events(count)} wait{'s' if count == 1 else ''} for {what}. With {flag} "
                f"{'it goes' if count == 1 else 'they go'} {to}."
            )
    return 1 if left else 0


@dataclass(frozen=True)
class _Other:
    """What waits in a spool, and whether it is for the same address or key."""

    waiting: Waiting
    has_url: bool
    has_key: bool

    @classmethod
    def of(cls, waiting: Waiting, url: str, key: str) -> _Other:
        destination = waiting.destination
        if destination is None:
            return cls(waiting, has_url=False, has_key=False)
        # The name of the directory is a digest of both, so it tells whether the key is the same one.
        has_key = spool_name(destination.url, key) == waiting.directory.name
        return cls(waiting, destination.url == url, has_key)


def _sentence(one: Waiting) -> str:
    to = f"{one.destination.url}, key {one.destination.key}..." if one.destination else "An unknown server"
    since = datetime.fromtimestamp(one.oldest or 0, UTC)
    writers = f" Written to by {', '.join(map(str, one.running))}." if one.running else ""
    return (
        f"{to}: {_events(one.events)} wait{'s' if one.events == 1 else ''}, {one.bytes:,} bytes in "
        f"{one.files:,} file{'' if one.files == 1 else 's'}, of processes that began at {since:%Y-%m-%d %H:%M:%S} UTC or later."
        f"{writers}"
    )


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"


def _in(roots: Sequence[Path]) -> str:
    return f" in {' or '.join(map(str, roots))}" if roots else ""


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
