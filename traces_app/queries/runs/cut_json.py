"""Read JSON of which there may be only the beginning: the arguments and results of calls, as the rows of a run read them."""

from __future__ import annotations

import json
import re
from typing import Any

_SCALAR = re.compile(r'"(\w+)": ?(?:"((?:[^"\\]+|\\.)*)("?)|(-?\d[\d.eE+-]*)(?=[,}\]\s]))', re.DOTALL)
_CUT_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,3}\Z")


class Number(str):
    """A number of JSON, as it was written."""

    __slots__ = ()


def read_json(text: str) -> tuple[Any, bool]:
    """Return the value of a JSON text, and whether that is all.

    Of a text that was cut, or is nested thousands of levels deep, it is an object of its strings and numbers from any level, by
    name; a string that was cut ends in "…".
    """
    try:
        return json.loads(text, parse_int=Number, parse_float=Number, strict=False), True
    except (ValueError, RecursionError):
        found: dict[str, str] = {}
        for name, string, quote, number in _SCALAR.findall(text):
            found.setdefault(name, Number(number) if number else _decoded(string) + ("" if quote else "…"))
        return found, False


def _decoded(string: str) -> str:
    try:
        return str(json.loads(f'"{_CUT_ESCAPE.sub("", string)}"', strict=False))
    except ValueError:
        return string  # an escape that JSON does not know
