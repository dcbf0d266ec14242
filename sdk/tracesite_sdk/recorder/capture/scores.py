"""Scores that an agent's code gives: their fields, checked by the server's rules before they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tracesite_sdk import records
from tracesite_sdk.normalize.scores import score_value

from .entries import thaw

_LONGEST_COMMENT = 20_000
_CONTENT = ("value", "label", "comment")
"""Fields that may hold secrets. A number has no content, and stays where contents are left out."""


def score_data(
    about: Mapping[str, Any], value: Any, label: str | None, comment: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data of an event of type `score`: the fields without content, and those with it. A long comment is cut.

    Raise ValueError if they are not a score: msgspec.ValidationError names the field.
    """
    plain = value if isinstance(value, bool | int | float | str) else thaw(value)
    if isinstance(comment, str) and len(comment) > _LONGEST_COMMENT:
        end = f"… [cut, of {len(comment)} characters]"
        comment = comment[: _LONGEST_COMMENT - len(end)] + end
    named = {**about, "value": plain, "label": label, "comment": comment}
    fields = {name: value for name, value in named.items() if value is not None}
    score = msgspec.convert({name: value for name, value in fields.items() if name != "uuid"}, records.Score)
    score_value(score.value, score.kind, comment=score.comment)
    content = {name: fields.pop(name) for name in _CONTENT if isinstance(fields.get(name), str)}
    return fields, content
