"""The first difference of two runs that explains more than that they were asked different things."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from tracesite_sdk.records import pg_text

from .comparison import Pair
from .word_changes import words_of


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument that differs: the place of its pair, and its JSON on both sides without the quotes of a text."""

    place: int
    name: str
    left: str
    right: str


@dataclass(frozen=True, kw_only=True)
class FirstDifference:
    """The place of a pair, None if all are the same, and what was passed over before it."""

    place: int | None
    arguments: Sequence[Argument]
    """Arguments that follow from the question."""
    results: int
    """Calls with the same arguments and another result."""
    steps: int
    """Steps that differ only in their thought or model."""


def first_difference(pairs: Sequence[Pair], questions: tuple[str, str]) -> FirstDifference:
    """Return the first pair that explains why two runs went different ways: an error against a success, another tool or order
    of calls, other arguments, another result of the same call, or at last another answer.

    Passed over are

    1. a call each of whose different arguments has a word that only the question of its side has, or only the result of such a
       call: the price of the order that was asked for;
    2. another result of the same call, if what comes next is an error against a success;
    3. a step that both runs made, because a model words its thoughts anew in each run.

    If nothing else differs, it is the first pair that does.
    """
    known = [words_of(question) for question in questions]
    arguments: list[Argument] = []
    results = steps = 0
    with_other_result: FirstDifference | None = None
    for place, pair in enumerate(pairs):
        left, right = pair.left, pair.right
        here = FirstDifference(place=place, arguments=tuple(arguments), results=results, steps=steps)
        if pair.change == "same":
            continue
        if left is None or right is None or left.kind == "message":
            return with_other_result or here
        if left.kind == "step":
            steps += 1
        elif left.status != right.status:
            return here
        elif pair.is_asked_alike:
            with_other_result = with_other_result or here
            results += 1
        else:
            only = known[0] - known[1], known[1] - known[0]
            different = list(_different(place, left.text, right.text))
            words = [(words_of(argument.left), words_of(argument.right)) for argument in different]
            follow = all((one - other) & only[0] or (other - one) & only[1] for one, other in words)
            if not different or not follow:
                return with_other_result or here
            arguments += different
            known = [words | words_of(node.result) for words, node in zip(known, (left, right), strict=True)]
    first = next((place for place, pair in enumerate(pairs) if pair.change != "same"), None)
    return with_other_result or FirstDifference(place=first, arguments=arguments, results=results, steps=steps)


def _different(place: int, left: str, right: str) -> Iterator[Argument]:
    """Yield each argument that differs; all arguments together if their JSON was cut."""
    try:
        one, other = msgspec.json.decode(left, type=dict), msgspec.json.decode(right, type=dict)
    except msgspec.DecodeError:
        one, other = {"": left}, {"": right}
    for name in dict.fromkeys((*one, *other)):
        before, after = one.get(name), other.get(name)
        if before != after:
            texts = (value if isinstance(value, str) else pg_text.json(value) for value in (before, after))
            yield Argument(place=place, name=name, left=next(texts), right=next(texts))
