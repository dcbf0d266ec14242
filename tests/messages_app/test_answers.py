"""What lists answer."""

from __future__ import annotations

import json

import pytest
from django.http import QueryDict

from access_app.errors import InvalidInput
from messages_app.answers import stream_answer, words
from messages_app.resources import Resources


def used(number: int) -> Resources:
    return Resources(input_tokens=number, output_tokens=0, total_tokens=number, duration=0)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_streamed_list_is_one_json_document(count: int) -> None:
    answer = stream_answer(b'{"results":', (used(number) for number in range(count)), b',"next":null}')
    document = json.loads(b"".join(answer))
    assert [each["input_tokens"] for each in document["results"]] == list(range(count))
    assert document["next"] is None


def test_a_streamed_list_is_read_while_it_is_written() -> None:
    read: list[int] = []
    answer = stream_answer(b"", (used(read.append(number) or number) for number in range(3)), b"")
    pieces = iter(answer)
    assert (next(pieces), read) == (b"[", [])
    next(pieces)
    assert read == [0]


@pytest.mark.parametrize(
    ("query", "expected"), [("", None), ("fields=", None), ("fields=a", {"a"}), ("fields=b,%20a", {"a", "b"})]
)
def test_words_are_separated_by_commas(query: str, expected: set[str] | None) -> None:
    assert words(QueryDict(query), "fields", ["a", "b"]) == expected


@pytest.mark.parametrize("query", ["fields=c", "fields=a,", "fields=A"])
def test_a_word_that_is_not_allowed_is_refused_with_those_that_are(query: str) -> None:
    with pytest.raises(InvalidInput, match="which is: a, b") as caught:
        words(QueryDict(query), "fields", ["a", "b"])
    assert caught.value.field == "fields"
