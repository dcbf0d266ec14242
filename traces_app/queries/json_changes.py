"""Find the differences between two JSON values: paths with the value on each side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .alignment import gaps

MISSING = object()
"""Stands for a value that a side does not have."""


class Changed(NamedTuple):
    """A place where the values differ."""

    path: str
    left: Any
    right: Any


def changes(left: Any, right: Any, path: str = "") -> Iterator[Changed]:
    """Yield the places where two values differ, from outside in. Items of lists are paired by what they hold."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys((*left, *right)):
            below = f"{path}.{key}" if path else key
            yield from _both(left.get(key, MISSING), right.get(key, MISSING), below)
    elif isinstance(left, list) and isinstance(right, list):
        yield from _of_lists(left, right, path)
    elif left != right or type(left) is not type(right):
        # true is not 1.
        yield Changed(path, left, right)


def _both(left: Any, right: Any, path: str) -> Iterator[Changed]:
    if left is MISSING or right is MISSING:
        yield Changed(path, left, right)
    else:
        yield from changes(left, right, path)


def _of_lists(left: Sequence[Any], right: Sequence[Any], path: str) -> Iterator[Changed]:
    texts = ([json.dumps(item, sort_keys=True) for item in side] for side in (left, right))
    for i, m, j, n in gaps(*texts):
        for step in range(max(m - i, n - j)):
            item = left[i + step] if i + step < m else MISSING
            other = right[j + step] if j + step < n else MISSING
            # By the place on the side that has it.
            index = j + step if other is not MISSING else i + step
            yield from _both(item, other, f"{path}[{index}]")
