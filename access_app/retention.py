"""The rules of a project for how long its data is kept, as texts that people write; traces_app.maintenance.retention applies them.

A project has days for live data and days in the trash, and exceptions: sessions with a tag, a status or a score, and pinned
ones, are kept whatever their age.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

MOST_DAYS = 36_500
MOST_EXCEPTIONS = 50
"""Tags or scores of a project."""

DAYS_FIELDS = ("retention_days", "retention_way", "trash_days")
"""The fields of a project that say how long its data is kept."""
EXCEPTION_FIELDS = ("keep_tags", "keep_statuses", "keep_scores", "keep_pinned")
"""The fields of a project that name the sessions which are kept."""

_SCORE = re.compile(r"(?P<name>[^<>=]*[^<>=\s])\s*((?P<sign>>=|<=)\s*(?P<number>[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)))?")


@dataclass(frozen=True, kw_only=True)
class KeptScore:
    """Scores that keep their session: those of a name, and only with a number within the limits, inclusive, if there are any."""

    name: str
    low: float | None = None
    high: float | None = None


def kept_score(text: str) -> KeptScore:
    """Parse `name`, `name>=number` or `name<=number`. Raise ValidationError."""
    match = _SCORE.fullmatch(text.strip())
    if match is None:
        raise ValidationError(
            _("“%(value)s” is not a score. Write its name, also with a limit: helpful, rating>=4 or quality<=0.3."),
            params={"value": text},
        )
    number = float(match["number"]) if match["number"] else None
    return KeptScore(
        name=match["name"],
        low=number if match["sign"] == ">=" else None,
        high=number if match["sign"] == "<=" else None,
    )


def check_kept_score(text: str) -> None:
    """Raise ValidationError unless the text is a score as `kept_score` parses it."""
    kept_score(text)
