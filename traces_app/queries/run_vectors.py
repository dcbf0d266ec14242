"""Vectors of runs: hashed n-grams of what was asked, of the tools that were called and of the errors.

A vector has a part for each of the three. A part counts n-grams, each in the place that a hash gives it, and has the length 1, or 0
without n-grams. So the similarity of two parts is their scalar product, from 0 to 1. Nothing is learned and no model is
needed; texts are alike if they have words, or parts of words, in common, in any language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from .search.grams import fold

MOST_CHARACTERS = 2_000
"""Of a question only the beginning counts."""
WIDTHS = {"question": 1024, "tools": 256, "errors": 512}
"""The places of each part of a vector."""
WEIGHTS = {"question": 0.5, "tools": 0.3, "errors": 0.2}
"""What each part is worth in the score."""
LEAST_LIKENESS = 0.3
"""Errors that are less alike have only common words in common, such as `the` and `#`."""
_GRAM = 3
# Knuth's multiplicative hash: the highest bits of the product depend on all bits of a gram.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Vectors = dict[str, NDArray[np.float32]]
"""The parts of vectors, a row for each run."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """What the vector of a run is made of."""

    question: str
    tools: Sequence[int]
    """The ids of the tools that were called, in order."""
    errors: Sequence[str]
    """Patterns of errors."""


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """How similar other runs are to one, a number for each of them."""

    score: NDArray[np.float64]
    """The cosine of the weighted vectors, 0 to 1."""
    parts: dict[str, NDArray[np.float64]]
    """The cosine of each part, 0 to 1; 0 if one of the two runs has nothing there."""


def vectors(runs: Sequence[Features]) -> Vectors:
    """Return the vectors of runs."""
    return {
        "question": np.stack([_of_text(run.question, WIDTHS["question"]) for run in runs]),
        "tools": np.stack([_of_words([str(tool) for tool in run.tools], WIDTHS["tools"]) for run in runs]),
        "errors": np.stack([_of_words(_words(run.errors), WIDTHS["errors"]) for run in runs]),
    }


def likeness(one: Vectors, others: Vectors) -> Likeness:
    """Compare a run, whose vectors have one row, with others."""
    parts = {name: _within(np.asarray(others[name] @ one[name][0], dtype=np.float64)) for name in WEIGHTS}
    weighted = sum((weight * parts[name] for name, weight in WEIGHTS.items()), np.zeros(len(others["question"])))
    lengths = np.sqrt(_weight_of(others) * _weight_of(one)[0])
    score = np.divide(weighted, lengths, out=np.zeros_like(weighted), where=lengths > 0)
    return Likeness(score=_within(score), parts=parts)


def likeness_of_errors(pattern: str, patterns: Sequence[str]) -> list[float]:
    """Return how similar patterns of errors are to one, 0 to 1."""
    one = _of_words(_words([pattern]), WIDTHS["errors"])
    others = [_of_words(_words([other]), WIDTHS["errors"]) for other in patterns]
    return [float(value) for value in _within(np.stack(others).astype(np.float64) @ one)] if others else []


def _weight_of(some: Vectors) -> NDArray[np.float64]:
    """Return the squared lengths of the weighted vectors."""
    none = np.zeros(len(some["question"]))
    return sum(
        (weight * np.asarray(some[name].any(axis=1), dtype=np.float64) for name, weight in WEIGHTS.items()), none
    )


def _within(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # Rounding of float32 gives 1.0000001, too.
    return np.clip(values, 0, 1).round(4)


def _of_text(text: str, width: int) -> NDArray[np.float32]:
    """Count the grams of three UTF-16 units of a text, also those across its ends and without its extra spaces."""
    folded = f" {' '.join(fold(text[:MOST_CHARACTERS]).split())} "
    units = np.frombuffer(folded.encode("utf-16-le", "surrogatepass"), dtype="<u2").astype(np.uint64)
    if len(units) < _GRAM:
        return np.zeros(width, dtype=np.float32)
    grams = units[:-2] << np.uint64(32) | units[1:-1] << np.uint64(16) | units[2:]
    bits = np.uint64(64 - (width - 1).bit_length())
    return _normalized(((grams * _FACTOR) >> bits).astype(np.int64), width)


def _of_words(words: Sequence[str], width: int) -> NDArray[np.float32]:
    """Count words and pairs of words that follow each other."""
    pairs = [f"{one}\0{other}" for one, other in zip(words, words[1:], strict=False)]
    return _normalized(np.array([crc32(term.encode()) % width for term in (*words, *pairs)], dtype=np.int64), width)


def _words(errors: Sequence[str]) -> list[str]:
    return [word for error in errors for word in fold(error).split()]


def _normalized(places: NDArray[np.int64], width: int) -> NDArray[np.float32]:
    # The logarithm keeps what is repeated from outweighing the rest.
    counts = np.log1p(np.bincount(places, minlength=width))
    length = np.sqrt((counts * counts).sum())
    return (counts / length if length else counts).astype(np.float32)
