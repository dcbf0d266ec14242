"""Cut folded text into grams: four UTF-16 code units in a row, as a number of 48 bits.

Two texts are compared in their folded form, so the case of letters does not matter in any script. A text of n units has n
grams: three units of padding follow it, so that its last units begin grams as well, and a term of two or three units is found
by the range of grams that begin with it.

The first two units are in a gram as they are, of the third and fourth eight bits each: all of an ASCII character, and of others
a hash, so that a row may have the gram of a text that it lacks. That leaves room for the number of a row in 64 bits, and four
units tell words apart that have the same parts of three. Every language that people write lies in one unit a character; an
emoji takes two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

UNITS = 4
FEWEST_UNITS = 2
"""The shortest term."""
MOST_ROWS = 1 << 16
"""Rows of a segment: their numbers have the 16 bits beside a gram."""
_PADDING = "\0" * (UNITS - 1)
_ROW_BITS = np.uint64(16)
_SHIFTS = (np.uint64(48), np.uint64(32), np.uint64(24), np.uint64(16))

Keys = NDArray[np.uint64]
"""Grams with the row in their last 16 bits, sorted, each once."""


def fold(text: str) -> str:
    """Return the form in which texts are compared: Unicode case folding, as `str.casefold` does it."""
    return text.casefold()


def units_of(folded: str) -> int:
    """Return the number of UTF-16 code units."""
    return len(folded) + sum(character > "\uffff" for character in folded)


def gram_ranges(folded: str) -> list[tuple[int, int]]:
    """Return the grams that a text with this term has: ranges, inclusive, in the order of the
    term, each once; a range of one gram unless the term has fewer units than a gram.

    Raise ValueError for a shorter term.
    """
    units = np.frombuffer(_encoded(folded), dtype="<u2").tolist()
    if len(units) < FEWEST_UNITS:
        raise ValueError("A term has at least two UTF-16 units.")
    if len(units) == FEWEST_UNITS:
        first = units[0] << 32 | units[1] << 16
        return [(first, first | 0xFFFF)]
    hashed = [(unit ^ unit >> 8) & 0xFF for unit in units]
    if len(units) < UNITS:
        first = units[0] << 32 | units[1] << 16 | hashed[2] << 8
        return [(first, first | 0xFF)]
    grams = [
        first << 32 | second << 16 | third << 8 | fourth
        for first, second, third, fourth in zip(units, units[1:], hashed[2:], hashed[3:], strict=False)
    ]
    return [(gram, gram) for gram in dict.fromkeys(grams)]


def keys_of(folded: Sequence[str], first_row: int) -> Keys:
    """Return the keys of the texts of consecutive rows. The texts have no NUL, which PostgreSQL does not store either."""
    encoded = [_encoded(text + _PADDING) for text in folded]
    units = np.frombuffer(b"".join(encoded), dtype="<u2").astype(np.uint64)
    rows = np.arange(first_row, first_row + len(folded), dtype=np.uint64)
    keys = units << _SHIFTS[0]
    keys[:-1] |= units[1:] << _SHIFTS[1]
    hashed = (units ^ units >> np.uint64(8)) & np.uint64(0xFF)
    keys[:-2] |= hashed[2:] << _SHIFTS[2]
    keys[:-3] |= hashed[3:] << _SHIFTS[3]
    keys |= np.repeat(rows, [len(text) // 2 for text in encoded])
    return unique(keys[units != 0])


def keys_of_mark(mark: int, rows: ArrayLike) -> Keys:
    """Return the keys of a mark of some rows: a gram below 65,536, which begins with NUL like that of no text."""
    keys: Keys = np.array(rows, dtype=np.uint64) | np.uint64(mark << 16)
    return keys


def unique(keys: Keys) -> Keys:
    """Return the keys in order, each once. Sorts in place."""
    keys.sort()
    is_first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    return keys[is_first]


def grams_in(keys: Keys) -> NDArray[np.int64]:
    return (keys >> _ROW_BITS).astype(np.int64)


def rows_in(keys: Keys) -> NDArray[np.uint16]:
    return keys.astype(np.uint16)


def with_rows(keys: Keys, rows: NDArray[np.uint16]) -> Keys:
    """Return the keys with other rows."""
    changed: Keys = keys >> _ROW_BITS << _ROW_BITS
    changed |= rows.astype(np.uint64)
    return changed


def keys_of_grams(grams: NDArray[np.int64], counts: NDArray[np.int64], rows: NDArray[np.uint16]) -> Keys:
    """Return the keys of grams, each with so many of the rows."""
    keys: Keys = np.repeat(grams.astype(np.uint64) << _ROW_BITS, counts)
    keys |= rows.astype(np.uint64)
    return keys


def _encoded(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")
