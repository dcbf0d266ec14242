"""Read values of a transcript's JSON that may be of any type: return them in the expected type, or nothing.

For the readers of formats; nothing but `moment` raises. Pure Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

import msgspec

from tracesite_sdk.records.health_flags import NAIVE_TIME

from .tool_results import TOO_DEEP

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Seconds since 1970 have ten digits until the year 2286, milliseconds thirteen, microseconds sixteen.
_UNITS = ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0))
_MILLISECOND = timedelta(milliseconds=1)
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_LETTER = re.compile(r"_([a-z])")
_EMPTY: tuple[Any, ...] = (None, "", [], {})


def instant(value: object) -> datetime | None:
    """Return an aware time from ISO 8601 text (UTC without a zone), or from seconds, milliseconds or microseconds since 1970."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    microseconds = next((scale for limit, scale in _UNITS if 0 < value < limit), None)
    return None if microseconds is None else _EPOCH + timedelta(microseconds=round(value * microseconds))


def moment(milliseconds: object) -> datetime | None:
    """Return the time of milliseconds since 1970. Raise ValueError for any other value."""
    if milliseconds is None:
        return None
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not isfinite(milliseconds):
        raise ValueError("no number")
    if not 0 <= milliseconds < 10**14:
        raise ValueError("out of range")
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def time_flags(*values: object) -> list[str]:
    """Return the health flags of an entry with these times: NAIVE_TIME if one has no zone."""
    return [NAIVE_TIME] if any(isinstance(value, str) and _is_naive(value) for value in values) else []


def _is_naive(value: str) -> bool:
    try:
        return datetime.fromisoformat(value.strip()).tzinfo is None
    except ValueError:
        return False


def text(value: object) -> str | None:
    """Return text unchanged, anything else but null as JSON, and None if empty."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else as_json(value)


def as_json(value: object) -> str:
    """Return JSON text, with non-ASCII characters kept."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return TOO_DEEP


def content(value: object) -> str | list[Any] | None:
    """Return the content of a message: text, a list of parts, or None; anything else as JSON."""
    return value if value is None or isinstance(value, str | list) else as_json(value)


def items(value: object) -> list[Any]:
    """Return the items of a list, and none of any other value."""
    return value if isinstance(value, list) else []


def fields(value: object) -> dict[str, Any]:
    """Return the fields of an object, and none of any other value."""
    return value if isinstance(value, dict) else {}


def snake_cased(value: object) -> dict[str, Any]:
    """Return the fields of an object that are not null, with their names in snake case: appName is app_name."""
    return {_CAPITAL.sub(r"_\1", name).lower(): item for name, item in fields(value).items() if item is not None}


def camel_case(name: str) -> str:
    """Return a name in camel case: app_name is appName."""
    return _LETTER.sub(lambda found: found[1].upper(), name)


def camel_cased(value: object) -> dict[str, Any]:
    """Return the fields of an object that are not null, with their names in camel case."""
    return {camel_case(name): item for name, item in fields(value).items() if item is not None}


def duration(milliseconds: object) -> float | None:
    """Return milliseconds; None if it is not a number between 0 and 31 years."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not 0 <= milliseconds < 1e12:
        return None
    return milliseconds


def milliseconds(seconds: object) -> float | None:
    """Convert seconds to milliseconds; None if it is not a number between 0 and 31 years."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        return None
    return seconds * 1000


def between(start: datetime | None, end: datetime | None) -> float | None:
    """Return the milliseconds from one time to a later one."""
    return (end - start) / _MILLISECOND if start is not None and end is not None and end >= start else None


def rest(value: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """Return the non-empty fields that no field of a record takes."""
    taken = frozenset(taken)
    return {name: item for name, item in value.items() if name not in taken and item not in _EMPTY}
