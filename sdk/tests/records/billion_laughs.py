"""Parts of a snapshot that stand for much more than they are."""

from __future__ import annotations

from typing import Any

import msgspec

from tracesite_sdk.records.snapshot_parts import ref_of


def ref(value: Any) -> str:
    return ref_of(msgspec.json.encode(value))


def laughs(levels: int, form: str = "list") -> list[Any]:
    """Return values of parts, the outermost first, of which each stands for ten times the next."""
    values: list[Any] = [["ha"] * 10]
    for _level in range(levels):
        inner = ref(values[-1])
        match form:
            case "list":
                value: Any = [{"$part": inner}] * 10
            case "dict":
                value = {f"key {number}": {"$part": inner} for number in range(10)}
            case "type":
                value = {"$type": "tuple", "value": [{"$part": inner}] * 10}
            case _:
                # The piece before it is named by the pieces that it names.
                value = [None, [{"$list": inner, "tail": []}] * 10]
                values[0] = [None, ["ha"] * 10]
                inner = ref(values[-1])
                value = [None, [{"$list": inner, "tail": []}] * 10]
        values.append(value)
    return [{"$list": ref(values[-1]), "tail": []}, *reversed(values)] if form == "piece" else values[::-1]
