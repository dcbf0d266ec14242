"""Arguments of the commands that archive: folders, periods, times, and the extra that they need."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError

from messages_app.sql.periods import Period

NEEDED = ("pyarrow", "fsspec", "duckdb")


def require_extra() -> None:
    """Raise CommandError if the packages of the extra are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"Archives need {' and '.join(missing)}, which this installation lacks: pip install {' '.join(missing)}"
        )


def check_period(period: str | None) -> str | None:
    """Return the name of a period such as 2026-01. Raise CommandError with exit status 2."""
    if period is None:
        return None
    try:
        return str(Period.parse(period))
    except ValueError:
        message = f"--period {period}: use a month such as 2026-01, a day such as 2026-01-31, or a week such as 2026-01-08-week."
        raise CommandError(message, returncode=2) from None


@contextmanager
def archive_errors(argument: str = "") -> Iterator[None]:
    """Turn the errors of archives and their stores into CommandError, which says the argument that named the folder.

    Its exit status is 2 if that cannot be the folder that was meant, and 1 if the folder could not be read or written.
    """
    from traces_app.maintenance.archive.folder import (
        ArchiveError,
        NotAnArchive,
    )  # only once the extra is known to be there

    try:
        yield
    except NotAnArchive as error:
        raise CommandError(str(error), returncode=2) from error
    except ArchiveError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{argument}: {error}" if argument else str(error)) from error
