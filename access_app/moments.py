"""Times for people: on the clock of the reader, or how long ago."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _


def moment(instant: datetime | None) -> SafeString:
    """Format an aware time to the second, in the reader's zone and the same in every language; "" if unknown.

    Its title has the time in UTC; times.js adds the age.
    """
    if instant is None:
        return SafeString("")
    return _time(instant, f"{timezone.localtime(instant):%Y-%m-%d %H:%M:%S}")


def ago(instant: datetime) -> SafeString:
    """Format how long ago an aware time was, in one unit: "9 hours ago". Its title has the time in UTC; times.js adds more."""
    minutes = max(int((timezone.now() - instant).total_seconds()), 0) // 60
    unit = next((unit for unit in (24 * 60, 60) if minutes >= unit), 1)
    return _time(instant, _ago(minutes - minutes % unit, get_language()))


@lru_cache(1_000)
def _ago(minutes: int, _language: str | None) -> str:
    """Return the words for a number of minutes: Django's take a tenth of the time of a list, and name months in Chinese as dates."""
    hours = minutes // 60
    days = hours // 24
    months = days // 30
    if months >= 12:
        years = days // 365 or 1
        return ngettext("%(number)s year ago", "%(number)s years ago", years) % {"number": years}
    if months:
        return ngettext("%(number)s month ago", "%(number)s months ago", months) % {"number": months}
    if days:
        return ngettext("%(number)s day ago", "%(number)s days ago", days) % {"number": days}
    if hours:
        return ngettext("%(number)s hour ago", "%(number)s hours ago", hours) % {"number": hours}
    if minutes:
        return ngettext("%(number)s minute ago", "%(number)s minutes ago", minutes) % {"number": minutes}
    return _("just now")


def _time(instant: datetime, shown: str) -> SafeString:
    utc = instant.astimezone(UTC)
    title = f"{utc:%Y-%m-%d %H:%M:%S}"
    return format_html('<time datetime="{}" title="{} UTC">{}</time>', utc.isoformat(), title, shown)
