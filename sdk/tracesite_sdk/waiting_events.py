"""The commands for waiting events: `tracesite status` lists them, and `tracesite drain` sends them now.

The exit status is 0 if no event waits, 1 if some do, 2 for invalid arguments or an unreadable spool.
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

from .recorder.delivery.http_sink import HttpSink
from .recorder.delivery.spool import Spool, Waiting, spool_name, spool_roots, survey


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
    parser = argparse.ArgumentParser(prog="tracesite", description="List or send the events that wait on the disk.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="status|drain")
    status = commands.add_parser("status", help="list waiting events by server and key")
    drain = commands.add_parser("drain", help="send the events that wait for a server and key")
    for command in (status, drain):
        command.add_argument(
            "--spool", metavar="DIR", help="the directory; by default $TRACESITE_SPOOL, or the standard directories"
        )
    drain.add_argument("--url", default=os.environ.get("TRACESITE_URL"), help="the server; by default $TRACESITE_URL")
    drain.add_argument(
        "--key",
        default=os.environ.get("TRACESITE_KEY"),
        help="an API key with write permission; by default $TRACESITE_KEY, which other users of the machine cannot read",
    )
    drain.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="timeout (60)")
    drain.add_argument(
        "--other-keys",
        action="store_true",
        help="send also the events of other keys of this server, with this key, to the project of this key",
    )
    drain.add_argument(
        "--other-urls",
        action="store_true",
        help="send also the events for other addresses with this key, to this server: after the server has moved, or the "
        "address was mistyped; together with --other-keys, all waiting events",
    )
    return parser


def _status(roots: Sequence[Path]) -> int:
    spools = [spool for root in roots for spool in survey(root)]
    waiting = [spool for spool in spools if spool.events]
    for spool in waiting:
        _print(_sentence(spool))
    for spool in spools:
        if spool.refused:
            _print(f"The server refused {_events(spool.refused)}: see {spool.directory / 'refused.ndjson'}.")
    if not waiting:
        places = f" in {' or '.join(map(str, roots))}" if roots else ""
        _print(f"No events wait{places}.")
    return 1 if waiting else 0


def _drain(options: argparse.Namespace, roots: Sequence[Path]) -> int:
    if not options.url or not options.key:
        raise ValueError(
            "The server and the key are missing: give --url and --key, or set TRACESITE_URL and TRACESITE_KEY."
        )
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    deadline = time.monotonic() + options.timeout
    url, key = options.url.strip().rstrip("/"), options.key.strip()
    own = Spool(roots, url, key, limit=1)
    spools = [own]
    others = [_Other.of(spool, url, key) for root in roots for spool in survey(root) if spool.events]
    for other in others:
        if (options.other_keys or other.has_key) and (options.other_urls or other.has_url):
            spools += [Spool.at(other.waiting.directory)] if other.waiting.directory.name != own.name else []
    delivered = lost = 0
    for spool in spools:
        sink = HttpSink(url, key, spool=spool)
        sink.drain(deadline)
        sink.close(deadline)
        report = sink.report()
        delivered += report.delivered + report.duplicates
        lost += report.lost
    names = {spool.name for spool in spools}
    rest = [spool for root in roots for spool in survey(root) if spool.directory.name in names]
    left = sum(spool.events for spool in rest)
    if delivered or left or lost or any(other.waiting.directory.name in names for other in others):
        were = "was" if delivered == 1 else "were"
        gone = f", {lost:,} {'was' if lost == 1 else 'were'} lost" if lost else ""
        _print(f"{_events(delivered)} {were} delivered, {left:,} wait{'s' if left == 1 else ''}{gone}.")
    else:
        _print(f"No events of this key wait for {url}.{' See status for others that wait.' if others else ''}")
    if any(spool.running for spool in rest if spool.events):
        _print("The events of a running process are sent by that process.")
    _print_others([other for other in others if other.waiting.directory.name not in names])
    return 1 if left else 0


def _print_others(others: Sequence[_Other]) -> None:
    """Print how many events wait for other keys or addresses, and the options that deliver them."""
    for which, flag, waiting in (
        ("other keys of this server", "--other-keys", [it for it in others if it.has_url and not it.has_key]),
        ("other addresses with this key", "--other-urls", [it for it in others if it.has_key and not it.has_url]),
    ):
        count = sum(other.waiting.events for other in waiting)
        if count:
            to = "to the project of this key" if flag == "--other-keys" else "to this server"
            _print(
                f"{_events(count)} wait{'s' if count == 1 else ''} for {which}. With {flag} "
                f"{'it goes' if count == 1 else 'they go'} {to}."
            )


@dataclass(frozen=True)
class _Other:
    """The waiting events of a spool, and whether its address or key is the given one."""

    waiting: Waiting
    has_url: bool
    has_key: bool

    @classmethod
    def of(cls, waiting: Waiting, url: str, key: str) -> _Other:
        destination = waiting.destination
        if destination is None:
            return cls(waiting, has_url=False, has_key=False)
        # The directory name is a digest of both, so it is equal only for the same key.
        has_key = spool_name(destination.url, key) == waiting.directory.name
        return cls(waiting, destination.url == url, has_key)


def _sentence(waiting: Waiting) -> str:
    to = f"{waiting.destination.url}, key {waiting.destination.key}..." if waiting.destination else "An unknown server"
    since = datetime.fromtimestamp(waiting.oldest or 0, UTC)
    writers = f" Written to by {', '.join(map(str, waiting.running))}." if waiting.running else ""
    return (
        f"{to}: {_events(waiting.events)} wait{'s' if waiting.events == 1 else ''}, {waiting.bytes:,} bytes in "
        f"{waiting.files:,} file{'' if waiting.files == 1 else 's'}, of processes that began at {since:%Y-%m-%d %H:%M:%S} UTC or later."
        f"{writers}"
    )


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
