"""Values of a transcript's JSON, each of which may be of any type: taken as what they should be, or not at all.

For formats; nothing here raises. Pure Python, without Django.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from traces_app.schema.health_flags import NAIVE_TIME

from .tool_results import TOO_DEEP

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Seconds since 1970 have ten digits until the year 2286, milliseconds thirteen, microseconds sixteen.
_UNITS = ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0))


def instant(value: object) -> datetime | None:
    """An aware time: of ISO 8601 text, one without a zone being UTC, or of seconds, milliseconds or microseconds since 1970."""
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value.strip())
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    microseconds = next((scale for limit, scale in _UNITS if 0 < value < limit), None)
    return None if microseconds is None else _EPOCH + timedelta(microseconds=round(value * microseconds))


def time_flags(*values: object) -> list[str]:
    """The flags that an entry with these times has: NAIVE_TIME where one of them says no zone."""
    return [NAIVE_TIME] if any(isinstance(value, str) and _is_naive(value) for value in values) else []


def _is_naive(value: str) -> bool:
    try:
        return datetime.fromisoformat(value.strip()).tzinfo is None
    except ValueError:
        return False


def text(value: object) -> str | None:
    """Text that is not empty; anything else but null as its JSON."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else as_json(value)


def as_json(value: object) -> str:
    """JSON text, with non-ASCII characters kept."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return TOO_DEEP


def content(value: object) -> str | list[Any] | None:
    """The content of a message: text, a list of parts, or nothing; anything else as its JSON."""
    return value if value is None or isinstance(value, str | list) else as_json(value)


def items(value: object) -> list[Any]:
    """The items of a list; none of anything else."""
    return value if isinstance(value, list) else []


def fields(value: object) -> dict[str, Any]:
    """The fields of an object; none of anything else."""
    return value if isinstance(value, dict) else {}


def milliseconds(seconds: object) -> float | None:
    """A duration in milliseconds, of one in seconds: a number that is none below zero nor beyond 31 years."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        return None
    return seconds * 1000


def between(start: datetime | None, end: datetime | None) -> float | None:
    """The milliseconds from one time to a later one."""
    return (end - start) / timedelta(milliseconds=1) if start is not None and end is not None and end >= start else None


def rest(value: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """What is not taken over into a field of a record and is not empty."""
    taken = frozenset(taken)
    return {name: item for name, item in value.items() if name not in taken and item not in (None, "", [], {})}
