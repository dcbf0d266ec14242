"""Objects in Python's notation, as some producers write them in place of JSON: `{'role': 'assistant', 'done': True}`.

For formats; nothing here raises. Pure Python. Python's own parser is not used, because it takes 0.1 to 0.24 s for
100,000 characters.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tracesite_sdk.normalize.mended_json import decode_json

_PYTHON = re.compile(r"""\\.|'((?:[^'\\]|\\.)*)'|"(?:[^"\\]|\\.)*"|\b(?:None|True|False)\b""", re.DOTALL)
"""Differences between a Python dictionary and JSON. An escape outside of a string is skipped, so that it begins none."""
_LONGEST = 1_000_000
"""Characters of a Python dictionary. A match of _PYTHON remembers each character of a string, in 130 bytes."""
_ESCAPE = re.compile(r"""\\(.)|\"""", re.DOTALL)
_CONSTANTS = {"None": "null", "True": "true", "False": "false"}


def json_or_python(written: str) -> Any:
    """Decode a text that is a JSON value or a Python dictionary; return None if it is neither, or a longer dictionary than _LONGEST."""
    stripped = written.strip()
    if not stripped.startswith(("{", "[")):
        return None
    try:
        return decode_json(stripped)
    except (msgspec.DecodeError, RecursionError):
        pass
    if len(stripped) > _LONGEST:
        return None
    try:
        return msgspec.json.decode(_PYTHON.sub(_as_json, stripped))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _as_json(match: re.Match[str]) -> str:
    """Return a constant or a string of Python as JSON has it."""
    if match[1] is not None:
        return f'"{_ESCAPE.sub(_escaped, match[1])}"'
    return _CONSTANTS.get(match[0], match[0])


def _escaped(match: re.Match[str]) -> str:
    """Return an escape within a string of Python, or a quotation mark, as JSON has it."""
    escape = match[1]
    if escape is None:
        return '\\"'
    if escape == "'":
        return "'"
    return match[0] if escape in 'nrtbfu"\\/' else f"\\\\{escape}"
