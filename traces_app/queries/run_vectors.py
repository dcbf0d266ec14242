"""Vectors of runs: hashed n-grams of what was asked, of the tools that were called and of the errors.

A vector has a part for each of the three. A part counts n-grams, each in the place that a hash gives it, and has the length 1, or 0
without n-grams. So the similarity of two parts is their scalar product, from 0 to 1. Nothing is learned and no model is
needed; texts are alike if they have words, or parts of words, in common, in any language.

Vectors are stored folded to fewer places, with random signs, and in whole numbers of one byte. Scalar products of these are
close to the exact ones, good enough to choose the runs that are then compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from .search.grams import fold

MOST_CHARACTERS = 2_000
"""The beginning of a question that counts."""
WIDTHS = {"question": 1024, "tools": 256, "errors": 512}
"""The places of each part of a vector."""
WEIGHTS = {"question": 0.5, "tools": 0.3, "errors": 0.2}
"""The weight of each part in the score."""
HASHED = "n-grams 2"
"""The name of the default embedder; another number makes all stored vectors again."""
WIDTHS_STORED = {"question": 256, "tools": 64, "errors": 64}
"""The places of each part of a stored vector; a question that is embedded has those of its embedder."""
LEAST_LIKENESS = 0.3
"""Errors that are less alike have only common words in common, such as `the` and `#`."""
_GRAM = 3
# Knuth's multiplicative hash: the highest bits of the product depend on all bits of a gram.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_ROWS_AT_A_TIME = 500
"""Rows that are converted to floats at once: they fit into the cache of a core."""

Vectors = dict[str, NDArray[np.float32]]
"""The parts of vectors, a row for each run."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """The features of which the vector of a run is made."""

    question: str
    tools: Sequence[int]
    """The ids of the tools that were called, in order."""
    errors: Sequence[str]
    """Patterns of errors."""


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """The similarity of other runs to one, a number for each of them."""

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


def likeness(vectors: Vectors, others: Vectors) -> Likeness:
    """Compare a run, whose vectors have one row, with others."""
    parts = {name: _within(np.asarray(others[name] @ vectors[name][0], dtype=np.float64)) for name in WEIGHTS}
    return Likeness(
        score=_score(parts, vectors, {name: np.any(others[name] != 0, axis=1) for name in WEIGHTS}), parts=parts
    )


def likeness_of_errors(pattern: str, patterns: Sequence[str]) -> list[float]:
    """Return how similar patterns of errors are to one, 0 to 1."""
    vector = _of_words(_words([pattern]), WIDTHS["errors"])
    others = [_of_words(_words([other]), WIDTHS["errors"]) for other in patterns]
    return [float(value) for value in _within(np.stack(others).astype(np.float64) @ vector)] if others else []


def _score(
    parts: Mapping[str, NDArray[np.float64]], vectors: Vectors, present: Mapping[str, NDArray[np.bool_]]
) -> NDArray[np.float64]:
    """Return the cosines of weighted vectors: the sum of the weighted parts by their lengths."""
    weighted = sum((weight * parts[name] for name, weight in WEIGHTS.items()), np.zeros(len(parts["question"])))
    length = sum(weight for name, weight in WEIGHTS.items() if vectors[name][0].any())
    squared = sum((weight * present[name] for name, weight in WEIGHTS.items()), np.zeros(len(weighted)))
    lengths = np.sqrt(squared * length)
    return _within(np.divide(weighted, lengths, out=np.zeros_like(weighted), where=lengths > 0))


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
    pairs = [f"{word}\0{other}" for word, other in zip(words, words[1:], strict=False)]
    return _normalized(np.array([crc32(term.encode()) % width for term in (*words, *pairs)], dtype=np.int64), width)


def _words(errors: Sequence[str]) -> list[str]:
    return [word for error in errors for word in fold(error).split()]


def _normalized(places: NDArray[np.int64], width: int) -> NDArray[np.float32]:
    # The logarithm keeps what is repeated from outweighing the rest.
    counts = np.log1p(np.bincount(places, minlength=width))
    length = np.sqrt((counts * counts).sum())
    return (counts / length if length else counts).astype(np.float32)


# --- Stored vectors ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def stored_type(question_width: int) -> np.dtype[Any]:
    """Return the type of a stored vector: the digest of the question, the inverse lengths of the parts, and the parts."""
    widths = WIDTHS_STORED | {"question": question_width}
    parts = [(name, "i1", (width,)) for name, width in widths.items()]
    return np.dtype([("digest", "V8"), ("inverse", "<f4", (len(widths),)), *parts])


def digest_of(question: str) -> bytes:
    """Return 8 bytes that tell whether a stored vector is that of a question."""
    return blake2b(question[:MOST_CHARACTERS].encode("utf-8", "surrogatepass"), digest_size=8).digest()


def folded(exact: Vectors) -> Vectors:
    """Return vectors of the stored widths."""
    return {name: part @ _fold(name) for name, part in exact.items()}


def pack(parts: Vectors, questions: Sequence[str]) -> list[bytes]:
    """Return vectors as they are stored, with the digests of their questions."""
    packed = np.zeros(len(questions), dtype=stored_type(parts["question"].shape[1]))
    packed["digest"] = [np.void(digest_of(question)) for question in questions]
    for column, name in enumerate(WIDTHS_STORED):
        largest = np.abs(parts[name]).max(axis=1, keepdims=True)
        whole = np.rint(127 * np.divide(parts[name], largest, out=np.zeros_like(parts[name]), where=largest > 0))
        lengths = np.linalg.norm(whole, axis=1)
        packed[name] = whole
        packed["inverse"][:, column] = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return [row.tobytes() for row in packed]


def unpacked(packed: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Return a part of stored vectors, of the length 1, or 0 without content."""
    inverse: NDArray[np.float32] = packed["inverse"][:, list(WIDTHS_STORED).index(name)]
    return packed[name].astype(np.float32) * inverse[:, None]


def nearly(vectors: Vectors, packed: NDArray[Any]) -> Likeness:
    """Compare a run, whose vectors have one row of the stored widths, with stored ones, nearly as `likeness` does."""
    parts = {}
    for column, name in enumerate(WIDTHS_STORED):
        products = np.empty(len(packed), dtype=np.float32)
        floats = np.empty((_ROWS_AT_A_TIME, packed.dtype[name].shape[0]), dtype=np.float32)
        for first in range(0, len(packed), _ROWS_AT_A_TIME):
            some = packed[name][first : first + _ROWS_AT_A_TIME]
            floats[: len(some)] = some
            products[first : first + len(some)] = floats[: len(some)] @ vectors[name][0]
        length = np.linalg.norm(vectors[name][0]) or 1
        parts[name] = _within((products * packed["inverse"][:, column] / length).astype(np.float64))
    present = {name: packed["inverse"][:, column] > 0 for column, name in enumerate(WIDTHS_STORED)}
    return Likeness(score=_score(parts, vectors, present), parts=parts)


@lru_cache
def _fold(name: str) -> NDArray[np.float32]:
    """Return the matrix that adds each place of a part, with a random sign, to a place of the stored part."""
    places = np.arange(WIDTHS[name], dtype=np.uint64)
    hashed = (places + np.uint64(1)) * _FACTOR >> np.uint64(32)
    fold = np.zeros((WIDTHS[name], WIDTHS_STORED[name]), dtype=np.float32)
    fold[places.astype(np.int64), (hashed % np.uint64(WIDTHS_STORED[name])).astype(np.int64)] = 1
    signs = np.where(hashed >> np.uint64(24) & np.uint64(1), 1, -1).astype(np.float32)
    return fold * signs[:, None]
