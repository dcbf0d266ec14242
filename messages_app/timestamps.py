"""Parse times of RFC 3339, with up to nanoseconds and any offset; format them in UTC with microseconds and Z."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone

from django.utils.translation import gettext as _

from tracesite_sdk.records import ids

_RFC_3339 = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[Tt ](?P<time>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?"
    # A plus sign that was not percent-encoded arrives as a space.
    r"(?P<zone>[Zz]|[+\- ]\d\d:\d\d)?",
    re.ASCII,
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LATEST = datetime.max.replace(microsecond=0, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def parse_instant(text: str) -> datetime:
    """Return the time in `text`, in UTC, rounded up to microseconds.

    Rounding up makes comparisons with stored microseconds exact: for every stored time s, `s < parse_instant(text)` if and
    only if s is before the time in `text`, whatever its digits. Times outside 1970 to 9999 become the nearest of these.
    Raise ValueError, with a text for the user, for a text that is not an RFC 3339 time or has no zone.
    """
    match = _RFC_3339.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            _("Invalid time. Expected a time such as 2026-01-31T09:30:00Z or 2026-01-31T17:30:00.123456789+08:00.")
        )
    if match["zone"] is None:
        raise ValueError(_("The time has no time zone. End it with Z for UTC, or with an offset such as +08:00."))
    try:
        local = datetime.fromisoformat(f"{match['date']}T{match['time']}").replace(tzinfo=_zone(match["zone"]))
    except ValueError as error:
        raise ValueError(_("This date or time does not exist.")) from error
    nanoseconds = int((match["fraction"] or "").ljust(9, "0"))
    try:
        instant = local.astimezone(UTC) + -(-nanoseconds // 1000) * _MICROSECOND
    except OverflowError:  # the first hours of year 1 east of Greenwich, the last ones of 9999 west of it
        instant = ids.EPOCH if local.year == 1 else _LATEST
    return min(max(instant, ids.EPOCH), _LATEST)


def parse_limit(text: str) -> datetime:
    """Return the time in `text`, or the start of the day in UTC if it is a date. Raise ValueError as `parse_instant` does."""
    if not _DATE.fullmatch(text.strip()):
        return parse_instant(text)
    try:
        day = date.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(_("This date or time does not exist.")) from error
    return max(datetime.combine(day, time(), UTC), ids.EPOCH)


def instant_text(instant: datetime) -> str:
    """Format an aware time as `2026-01-31T09:30:00.000000Z`: always six digits, so that texts sort like times."""
    return f"{instant.astimezone(UTC).isoformat(timespec='microseconds')[:26]}Z"


def _zone(text: str) -> timezone:
    if text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:])
    if hours > 23 or minutes > 59:
        raise ValueError("offset out of range")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)
