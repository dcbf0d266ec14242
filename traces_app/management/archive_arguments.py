"""Arguments of the commands that archive: folders, months, times, and the extra that they need."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError

NEEDED = ("pyarrow", "fsspec", "duckdb")
_PERIOD = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


def require_extra() -> None:
    """Raise CommandError if the packages of the extra are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"Archives need {' and '.join(missing)}, which this installation lacks: pip install {' '.join(missing)}"
        )


def check_period(period: str | None) -> str | None:
    """Return a month such as 2026-01. Raise CommandError with exit status 2."""
    if period is not None and not _PERIOD.fullmatch(period):
        raise CommandError(f"--period {period}: use a month such as 2026-01.", returncode=2)
    return period


@contextmanager
def archive_errors() -> Iterator[None]:
    """Turn the errors of archives and their stores into CommandError."""
    from traces_app.maintenance.archive.folder import ArchiveError  # only once the extra is known to be there

    try:
        yield
    except (ArchiveError, OSError) as error:
        raise CommandError(str(error)) from error
