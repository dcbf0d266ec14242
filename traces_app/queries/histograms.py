"""Histograms of durations in logarithmic buckets, of which quantiles are read within 1 %.

Bucket number n holds the durations d with GROWTH**(n - 1) < d <= GROWTH**n, and ZERO those of 0 ms. The value of a bucket
differs from each duration in it by at most (GROWTH - 1) / (GROWTH + 1), which is 0.99 %. Histograms add up exactly, so the
quantiles of a year are as good as those of an hour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from django.db.models import Case, Expression, IntegerField, Value, When
from django.db.models.functions import Ceil, Ln
from django.db.models.lookups import GreaterThan

GROWTH = 1.02
ZERO = -1
# Below this, a bucket holds at most one whole number of milliseconds.
_WHOLE_BELOW = 50


def bucket_in_sql(milliseconds: str) -> str:
    """Return SQL for the bucket of a duration; NULL for NULL."""
    return (
        f"CASE WHEN {milliseconds} > 0 THEN ceil(ln({milliseconds}::float8) / ln({GROWTH}::float8))::int "
        f"WHEN {milliseconds} IS NOT NULL THEN {ZERO} END"
    )


def bucket_of(milliseconds: Expression) -> Case:
    """Return the same as an expression of a QuerySet, for whole milliseconds that are known."""
    number = Ceil(Ln(milliseconds) / Value(math.log(GROWTH)))
    return Case(When(GreaterThan(milliseconds, 0), then=number), default=Value(ZERO), output_field=IntegerField())


def value_of(bucket: int) -> float:
    """Return the duration in milliseconds that stands for a bucket."""
    if bucket == ZERO:
        return 0.0
    value = 2 * GROWTH**bucket / (GROWTH + 1)
    return float(round(value)) if value < _WHOLE_BELOW else value


def quantile(histogram: Mapping[int, int], share: float) -> float | None:
    """Return the smallest duration that at least `share` of the calls do not exceed, as percentile_disc; None without calls."""
    left = share * sum(histogram.values())
    for bucket in sorted(histogram):
        left -= histogram[bucket]
        if left <= 0:
            return value_of(bucket)
    return None
