"""The command `tracesite`, also `python -m tracesite_sdk`: the commands of the SDK, and those of the server where it is installed."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

from . import waiting_events
from .reading import commands as reading

_OWN = {**dict.fromkeys(("status", "drain"), waiting_events.main), **dict.fromkeys(reading.COMMANDS, reading.main)}
_HELP = (["help"], ["-h"], ["--help"])
_NAMES = f"Commands of the SDK, each with --help: {', '.join(_OWN)}"


def main() -> None:
    """Run the command in sys.argv."""
    command = sys.argv[1] if sys.argv[1:] else "help"
    if command in _OWN:
        sys.exit(_OWN[command](sys.argv[1:]))
    # An entry point of the server, because the SDK does not know it.
    for server in entry_points(group="tracesite.commands"):
        if sys.argv[1:] in _HELP:
            sys.stdout.write(f"{_NAMES}\n\n")
            sys.stdout.flush()
        server.load()()
        return
    if [command] in _HELP:
        sys.stdout.write(f"{_NAMES}\n")
        return
    sys.stderr.write(
        f"`{command}` is not a command of the SDK: {', '.join(_OWN)} are. "
        "The server, which has the others, is not installed. Install it with: pip install tracesite\n"
    )
    sys.exit(2)


if __name__ == "__main__":
    main()
