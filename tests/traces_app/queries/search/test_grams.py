"""The grams of texts, as keys and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces_app.queries.search.grams import fold, gram_ranges, grams_in, keys_of, keys_of_grams, unique, units_of
from traces_app.queries.search.segments import decode_page, encode_pages

texts = st.text(st.characters(exclude_characters="\0"), max_size=60)


@given(st.lists(texts, min_size=1, max_size=5), st.integers(0, 60_000), st.data())
def test_keys_have_the_grams_of_every_part_of_a_text(rows: list[str], first: int, data: st.DataObject) -> None:
    folded = [fold(row) for row in rows]
    keys = set(keys_of(folded, first).tolist())
    for number, text in enumerate(folded, start=first):
        if units_of(text) >= 2:
            begin = data.draw(st.integers(0, len(text) - 1))
            part = text[begin : data.draw(st.integers(begin + 1, len(text)))]
            if units_of(part) >= 2:
                for low, high in gram_ranges(part):
                    assert any(low <= key >> 16 <= high and key & 0xFFFF == number for key in keys)


@given(st.dictionaries(st.integers(0, 2**48 - 1), st.integers(1, 65_536), min_size=1, max_size=8))
@settings(max_examples=30, deadline=None)
def test_pages_have_the_rows_of_every_gram(counts: dict[int, int]) -> None:
    keys = unique(
        np.concatenate(
            [np.linspace(0, 65_535, count).astype(np.uint64) | np.uint64(gram << 16) for gram, count in counts.items()]
        )
    )
    pages = list(encode_pages(keys))
    found = [keys_of_grams(*decode_page(page)) for _first, page in pages]
    assert [first for first, _page in pages] == [int(grams_in(one)[0]) for one in found]
    assert np.array_equal(np.concatenate(found), keys)


@given(st.lists(texts, min_size=1, max_size=5))
def test_pages_of_texts_have_their_keys(rows: list[str]) -> None:
    keys = keys_of([fold(row) for row in rows], 0)
    found = [keys_of_grams(*decode_page(page)) for _first, page in encode_pages(keys)]
    assert np.array_equal(np.concatenate([*found, keys[:0]]), keys)


def test_term_of_one_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="two"):
        gram_ranges("a")
