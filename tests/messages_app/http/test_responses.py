"""Responses of lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from django.http import QueryDict

from access_app.errors import InvalidInput
from messages_app.http.responses import list_answer, stream_answer, words
from messages_app.http.schemas import Error, Resources
from messages_app.sql.pagination import Page


def used(number: int) -> Resources:
    return Resources(input_tokens=number, output_tokens=0, total_tokens=number, duration=0)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_streamed_list_is_one_json_document(count: int) -> None:
    answer = stream_answer(b'{"results":', (used(number) for number in range(count)), b',"next":null}')
    document = json.loads(b"".join(answer))  # type: ignore[call-overload]
    assert [each["input_tokens"] for each in document["results"]] == list(range(count))
    assert document["next"] is None


def test_streamed_list_fails_before_its_status_or_is_cut() -> None:
    def resources(most: int) -> Iterator[Error]:
        for number in range(most):
            yield Error(code=str(number), message="x" * 1_000_000, field=None, request_id=None)
        raise InvalidInput("unreadable")

    with pytest.raises(InvalidInput):
        stream_answer(b"", resources(2), b"")

    begun = stream_answer(b"", resources(5), b"")
    assert begun.streaming
    with pytest.raises(InvalidInput):
        b"".join(begun)  # type: ignore[call-overload]


@dataclass
class Reader:
    """Return resources of a given size, and record the number requested at a time."""

    size: int
    missing: frozenset[str] = frozenset()
    asked: list[int] = field(default_factory=list)

    def __call__(self, ids: list[str]) -> list[Error]:
        self.asked.append(len(ids))
        return [
            Error(code=key, message="x" * self.size, field=None, request_id=None)
            for key in ids
            if key not in self.missing
        ]


@pytest.mark.parametrize(
    ("rows", "size", "is_streamed", "asked"),
    [
        (0, 10, False, [0]),
        (20, 10, False, [20]),
        (50, 10, False, [20, 30]),
        (20, 1_000_000, False, [20]),
        (25, 1_000_000, True, [20, 2, 2, 1]),
        (23, 5_000_000, True, [20, 1, 1, 1]),
    ],
)
def test_list_of_large_rows_is_read_while_written(rows: int, size: int, is_streamed: bool, asked: list[int]) -> None:
    read = Reader(size)
    page = Page(ids=list(range(rows)), next="n", previous=None)

    answer = list_answer(page, read)
    assert answer.streaming is is_streamed
    document = json.loads(b"".join(answer))  # type: ignore[call-overload]

    assert [one["code"] for one in document["results"]] == [str(number) for number in range(rows)]
    assert (document["next"], document["previous"], read.asked) == ("n", None, asked)


@pytest.mark.parametrize("missing", [range(20), range(20, 30), range(30)])
def test_list_without_rows_purged_meanwhile_is_valid_json(missing: range) -> None:
    page = Page(ids=list(range(30)), next=None, previous=None)
    answer = list_answer(page, Reader(10, frozenset(map(str, missing))))
    assert len(json.loads(b"".join(answer))["results"]) == 30 - len(missing)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("query", "expected"), [("", None), ("fields=", None), ("fields=a", {"a"}), ("fields=b,%20a", {"a", "b"})]
)
def test_words_are_separated_by_commas(query: str, expected: set[str] | None) -> None:
    assert words(QueryDict(query), "fields", ["a", "b"]) == expected


@pytest.mark.parametrize("query", ["fields=c", "fields=a,", "fields=A"])
def test_unknown_word_is_refused_with_the_allowed_ones(query: str) -> None:
    with pytest.raises(InvalidInput, match="Allowed: a, b") as caught:
        words(QueryDict(query), "fields", ["a", "b"])
    assert caught.value.field == "fields"
