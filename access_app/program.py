"""Spell commands in texts for people: `manage.py purge` in a clone, `tracesite purge` where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path


def program() -> str:
    """The program that this process was started with: `manage.py`, `tracesite` or `python -m tracesite`."""
    path = Path(sys.argv[0])
    if path.parts[-2:] == ("tracesite", "__main__.py"):
        return "python -m tracesite"
    return "tracesite" if path.name == "tracesite" else "manage.py"
