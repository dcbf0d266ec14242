"""The formats of numbers, dates and times on pages, in every language: 12,345.6, and times as in ISO 8601, with the zone.

Django takes these from FORMAT_MODULE_PATH for what it formats itself: the history of a row, lists of users and API keys.
"""

from __future__ import annotations

DATE_FORMAT = SHORT_DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
DATETIME_FORMAT = SHORT_DATETIME_FORMAT = "Y-m-d H:i:s e"
DATE_INPUT_FORMATS = ["%Y-%m-%d", "%Y/%m/%d"]
TIME_INPUT_FORMATS = ["%H:%M:%S", "%H:%M"]
DATETIME_INPUT_FORMATS = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"]
DECIMAL_SEPARATOR, THOUSAND_SEPARATOR, NUMBER_GROUPING = ".", ",", 3
