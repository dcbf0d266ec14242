"""Filters that are typed into the search of a list: `refund outcome:failed agent:"order desk" cost:>0.01`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from .filters import CreatedFilter, RangeListFilter, parameters_of

_TYPED = re.compile(r'(?<!\S)([a-z_]+):(?:"([^"]*)"|(\S+))')
_BOUND = re.compile(r"(>=?|<=?)?(.+)")
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|m|h)")
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def typed_filters(text: str, filters: Iterable[Any], kept: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return what remains of the text of a search, and the parameters of the filters that it names.

    A filter is named by its parameter, such as `agent`, a range without `min_`: `cost:>0.01`, `duration:<500`. The names in `kept` are
    those of the search itself, and any other name is text. A duration may have a unit: `duration:>1.5s`.
    """
    single: set[str] = set()
    ranges: set[str] = set()
    for one in filters:
        names = parameters_of(one)
        if issubclass(one, RangeListFilter):
            ranges |= {name.removeprefix("min_") for name in names if name.startswith("min_")}
        elif len(names) == 1 or issubclass(one, CreatedFilter):
            single.add(names[0])
    found: dict[str, str] = {}

    def take(match: re.Match[str]) -> str:
        name, value = match[1], match[2] or match[3]
        if not value or name in kept:
            return match[0]
        if name in single:
            found[name] = value
        elif name in ranges and (bound := _BOUND.fullmatch(value)):
            sides = ("min", "max") if bound[1] is None else ("max",) if bound[1][0] == "<" else ("min",)
            value = _in_milliseconds(bound[2]) if name == "duration" else bound[2]
            found.update({f"{side}_{name}": value for side in sides})
        else:
            return match[0]
        return ""

    rest = _TYPED.sub(take, text)
    return " ".join(rest.split()) if found else text, found


def _in_milliseconds(text: str) -> str:
    match = _TIME.fullmatch(text)
    return str(round(float(match[1]) * _MILLISECONDS[match[2]])) if match else text
