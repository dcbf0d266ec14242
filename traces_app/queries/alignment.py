"""The longest common subsequence of two sequences, exactly, of thousands of items in milliseconds.

One row of the usual table is one whole number with a bit for each item, so that a row costs a few operations on it (Hyyrö,
"Bit-parallel LCS-length computation revisited", 2004). difflib takes the square of the length in steps of Python: seconds for
runs of thousands of calls of a few tools.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence


def matches(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the places of the items that both have in common, in order."""
    begin = 0
    while begin < len(left) and begin < len(right) and left[begin] == right[begin]:
        begin += 1
    end = 0
    most = min(len(left), len(right)) - begin
    while end < most and left[-1 - end] == right[-1 - end]:
        end += 1
    # Items that the other side lacks are left out, because the table takes the product of both lengths.
    both = set(left[begin : len(left) - end]).intersection(right[begin : len(right) - end])
    lefts = [i for i in range(begin, len(left) - end) if left[i] in both]
    rights = [j for j in range(begin, len(right) - end) if right[j] in both]
    inner = _matches([left[i] for i in lefts], [right[j] for j in rights])
    return [
        *((index, index) for index in range(begin)),
        *((lefts[i], rights[j]) for i, j in inner),
        *((len(left) - distance, len(right) - distance) for distance in range(end, 0, -1)),
    ]


def gaps(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int, int, int]]:
    """Yield what lies before, between and after the items that both have in common: begin and end on the left, then on the right."""
    i = j = 0
    for m, n in [*matches(left, right), (len(left), len(right))]:
        yield i, m, j, n
        i, j = m + 1, n + 1


def _matches(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    places: dict[Hashable, int] = {}
    for i, item in enumerate(left):
        places[item] = places.get(item, 0) | 1 << i
    everything = (1 << len(left)) - 1
    row, rows = everything, []
    for item in right:
        common = row & places[item]
        row = ((row + common) | (row - common)) & everything
        rows.append(row)
    # A bit is 0 where one more item of the left is in common than without it.
    pairs = []
    i, j = len(left), len(right)
    while i and j:
        bit = 1 << (i - 1)
        if rows[j - 1] & bit:
            i -= 1
        elif j > 1 and not rows[j - 2] & bit:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]
