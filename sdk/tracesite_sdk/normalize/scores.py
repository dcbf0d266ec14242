"""One form for the values of scores: a kind, a number and a label."""

from __future__ import annotations

from typing import NamedTuple

from tracesite_sdk import records


class ScoreValue(NamedTuple):
    """The value of a score as it is stored."""

    kind: records.ScoreKind
    number: float | None
    label: str


def score_value(
    value: bool | float | str | None,
    kind: records.ScoreKind | None = None,
    label: str | None = None,
    *,
    comment: str | None = None,
) -> ScoreValue:
    """Return the stored form of a value. Raise ValueError, for people, if it is not of the kind.

    A comment without a value is a note: a category without a name.
    """
    if value is None:
        if not comment:
            raise ValueError("a score needs a value or a comment")
        return ScoreValue("categorical", None, "")
    if isinstance(value, str):
        if kind not in (None, "categorical"):
            raise ValueError(f"“{value[:40]}” is a text; a score of kind {kind} takes a number")
        if not value:
            raise ValueError("a category may not be empty")
        return ScoreValue("categorical", None, value)
    if kind == "categorical":
        raise ValueError(f"{value} is not a text; a score of kind categorical takes the name of a category")
    if isinstance(value, bool) and kind != "numeric" or kind == "boolean":
        if value not in (0, 1):
            raise ValueError(f"{value} is neither true nor false, 1 nor 0")
        return ScoreValue("boolean", float(value), label or "")
    return ScoreValue("numeric", float(value), label or "")
