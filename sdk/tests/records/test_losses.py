"""Loss reports of recorders, and the rows they belong to."""

from __future__ import annotations

from typing import Any

import pytest

from tracesite_sdk.records.losses import (
    About,
    Cut,
    LostField,
    Owner,
    added,
    counts_of,
    cuts_at,
    cuts_of,
    documents,
    flags_of,
    place_of,
    receipts_of,
)
from tracesite_sdk.redaction.engine import Receipt


@pytest.mark.parametrize("said", [None, "x", 7, [], {"dropped": -1}, {"dropped": True}, {"dropped": 1.5}, {"lost": 3}])
def test_values_that_are_not_counts_are_ignored(said: Any) -> None:
    assert counts_of({"recorder": said}) == {}


def test_counts_add_up_within_the_range_of_the_column() -> None:
    assert added({"dropped": 1}, {"dropped": 2, "redacted": 1}) == {"dropped": 3, "redacted": 1}
    assert added({"dropped": 10**15}, {"dropped": 10**15}) == {"dropped": 10**15}


@pytest.mark.parametrize(
    "said", [None, "x", {}, [1, {"path": 3, "bytes": 1}, {"path": "a"}, {"path": "a", "bytes": -1}]]
)
def test_malformed_lists_of_losses_are_ignored(said: Any) -> None:
    assert cuts_of({"truncated": said}) == []
    assert receipts_of({"redactions": said}) == []


def test_malformed_items_of_losses_are_left_out() -> None:
    assert receipts_of({"redactions": [{"path": "data.a", "rule": "key", "value": "x"}]}) == [Receipt("data.a", "key")]
    assert documents([*cuts_of({"truncated": [{"path": "a", "bytes": 9, "text": "x"}]}), Cut("a", 9)]) == [
        {"path": "a", "bytes": 9}
    ]


@pytest.mark.parametrize(
    ("counts", "cuts", "flags"),
    [
        ({}, [], set()),
        ({"redacted": 3}, [], set()),
        ({"dropped": 1}, [], {"events_dropped"}),
        ({"failed": 1, "sampled_out": 2}, [], {"events_dropped", "sampled"}),
        ({"truncated": 1}, [], {"truncated"}),
        ({}, [Cut("content", 9)], {"truncated"}),
    ],
)
def test_flags_follow_from_losses(counts: dict[str, int], cuts: list[Cut], flags: set[str]) -> None:
    assert flags_of(counts, cuts) == flags


@pytest.mark.parametrize(
    ("path", "about", "owner", "there"),
    [
        ("data.args.headers.Authorization", "call", "call", "args.headers.Authorization"),
        ("params[0]", "call", "call", "args[0]"),
        ("data.result.data.token", "call", "call", "result.data.token"),
        ("data.error", "call", "call", "result.error"),
        ("data.text", "step", "step", "thought"),
        ("data.metadata.a", "step", "step", "metadata.a"),
        ("data.prompt", "run", "question", "content"),
        ("data.prompt[1].text", "run", "question", "content_parts[1].text"),
        ("data.result", "run", "answer", "content"),
        ("data.references[0].content", "run", "answer", "knowledge_references[0].content"),
        ("data.session.metadata.a", "run", "session", "metadata.a"),
    ],
)
def test_path_of_event_maps_to_field_of_row(path: str, about: About, owner: Owner, there: str) -> None:
    assert place_of(path, about) == LostField(owner, there)


@pytest.mark.parametrize(("path", "about"), [("", "run"), ("data.odd", "run"), ("data.session", "run"), ("x", "call")])
def test_path_without_row_maps_to_nothing(path: str, about: About) -> None:
    assert place_of(path, about) is None


def test_truncation_of_unknown_field_belongs_to_event_subject() -> None:
    cuts = [{"path": "data.odd", "bytes": 1}, {"path": "data.session.title", "bytes": 2}]
    assert cuts_at({"truncated": cuts}, "run") == [("answer", Cut("odd", 1)), ("answer", Cut("session.title", 2))]
    assert cuts_at({"truncated": cuts[:1]}, "call") == [("call", Cut("odd", 1))]
