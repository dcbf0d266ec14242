"""Marks in front of values that are masked when they are read: of which column they are, and where they are cut afterwards.

A rule may ask for a place in the JSON of a column, and a value that is cut first is no longer the one that a rule fits. So
SQL that cuts a value, or gives a JSON column as an expression, sends more of it to a masked reader, with a mark that the row
factory takes off (access_app.masked_reading). The marks of a process begin with random digits, so no trace can hold one.
"""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

BEYOND = 8_192
"""Characters that are read beyond a cut, for what a rule hides there."""
MOST_OF_JSON = 2**18
"""Characters of JSON that are read of a value that is cut, because rules for places need all of it."""

_BEGIN = f"tsread{secrets.token_hex(8)}"
_MARK = re.compile(rf"{_BEGIN}(\d*)(p?)(j?):(\w*):", re.ASCII)


class ReadMark(NamedTuple):
    """The marks of a value that are needed to mask it for a reader."""

    column: str
    """The name of its column; "" if it is of several."""
    length: int | None = None
    """The characters that are shown; None for all."""
    pretty: bool = False
    """Whether it is JSON that is shown indented."""
    json: bool = False
    """Whether its column holds JSON."""

    def __str__(self) -> str:
        """Return the mark, which is safe inside of quotes in SQL."""
        length = "" if self.length is None else self.length
        return f"{_BEGIN}{length}{'p' * self.pretty}{'j' * self.json}:{self.column}:"

    @property
    def characters_read(self) -> int | None:
        """The characters that are read of the value; None for all."""
        if self.length is None:
            return None
        return max(self.length + BEYOND, MOST_OF_JSON if self.json else 0)


def split_mark(value: str) -> tuple[ReadMark, str] | None:
    """Return the mark and the value behind it; None if it has none."""
    match = _MARK.match(value) if value.startswith(_BEGIN) else None
    if match is None:
        return None
    length, pretty, json, column = match.groups()
    return ReadMark(column, int(length) if length else None, bool(pretty), bool(json)), value[match.end() :]
