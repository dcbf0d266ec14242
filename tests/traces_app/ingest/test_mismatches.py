"""What is wrong with a document is found in words of ours wherever msgspec refuses it, and nowhere else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.utils import translation
from msgspec import inspect

from traces_app.ingest.mismatches import Mismatch, first_mismatch
from tracesite_sdk import records

TYPES = (
    *(records.Session, records.Message, records.Reference, records.AgentStep, records.ToolCall, records.ToolResult),
    *(records.ModelInput, records.Score, records.Event, records.SessionPatch, records.MessagePatch, records.ScorePatch),
    *(records.Snapshots, records.Snapshot, records.Fork),
)
NOON = "2026-01-31T12:00:00Z"
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 7, -7, 2.0, 1.5, 10**18, 10**30, 1e12, -1e308),
    *("", "a", "a" * 32, "x" * 600, "x" * 30_000, NOON, NOON[:-1], "error", "user", "score"),
    *([], [None], ["a"], ["a", 7], [{}], [{"role": "user", "x": 1}], {}, {"a": 1}, {"a": "b"}, {"role": 7}, {"name": []}),
)  # fmt: skip


def is_valid(document: Any, type_: Any) -> bool:
    try:
        if type_ is records.Snapshots:  # whose parts are not decoded
            msgspec.json.decode(msgspec.json.encode(document), type=type_)
        else:
            msgspec.convert(document, type_)
    except msgspec.ValidationError:
        return False
    return True


def smallest(type_: Any) -> dict[str, Any]:
    """Return a valid document with the fields that are required."""
    required = [field.encode_name for field in inspect.type_info(type_).fields if field.required]
    return {name: next(value for value in VALUES if not _wrong(value, type_, name)) for name in required}


def _wrong(value: Any, type_: Any, name: str) -> bool:
    """Return whether msgspec refuses this field, whatever else the document lacks."""
    try:
        msgspec.convert({name: value}, type_)
    except msgspec.ValidationError as error:
        return f"`$.{name}" in str(error)
    return False


@pytest.mark.parametrize("type_", TYPES)
def test_every_document_that_msgspec_refuses_is_explained(type_: Any) -> None:
    valid = smallest(type_)
    assert first_mismatch(valid, type_) is None
    fields = inspect.type_info(type_).fields
    for field in fields:
        name = field.encode_name
        for value in VALUES:
            document = {**valid, name: value}
            found = first_mismatch(document, type_)
            assert (found is None) == is_valid(document, type_), (name, value, found)
            assert found is None or (found.path.startswith(name) and found.text.endswith(".")), (name, value, found)
        without = {other: value for other, value in valid.items() if other != name}
        assert first_mismatch(without, type_) == (Mismatch(name, "This field is required.") if field.required else None)
    assert first_mismatch({**valid, "nothing": 1}, type_) == Mismatch("nothing", "There is no such field.")


def test_mismatches_are_in_the_language_of_the_reader() -> None:
    with translation.override("zh-hans"):
        found = first_mismatch({"role": "user", "content": 7}, records.Message)
    assert found == Mismatch("content", "应为字符串、数组或 null，而不是数字。")
