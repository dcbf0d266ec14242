"""The formats of all languages; see tracesite.formats."""

from __future__ import annotations

from tracesite.formats import (
    DATE_FORMAT,
    DATE_INPUT_FORMATS,
    DATETIME_FORMAT,
    DATETIME_INPUT_FORMATS,
    SHORT_DATE_FORMAT,
    SHORT_DATETIME_FORMAT,
    TIME_FORMAT,
    TIME_INPUT_FORMATS,
)

__all__ = [
    "DATETIME_FORMAT",
    "DATETIME_INPUT_FORMATS",
    "DATE_FORMAT",
    "DATE_INPUT_FORMATS",
    "SHORT_DATETIME_FORMAT",
    "SHORT_DATE_FORMAT",
    "TIME_FORMAT",
    "TIME_INPUT_FORMATS",
]
