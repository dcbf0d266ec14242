"""The number of values in a JSON text, counted without decoding it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.growth import grows_linearly
from tracesite_sdk.records.value_counts import count_values

MANY = 10**9


def values_in(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + (not value) + sum(map(values_in, value.values()))
    if isinstance(value, list):
        return 1 + (not value) + sum(map(values_in, value))
    return 1


JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a,[]{}"\\:\n '),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='a,[{"\\'), inner, max_size=4),
    max_leaves=30,
)


@given(JSON, st.booleans())
def test_count_without_strings_is_exact(value: Any, is_spaced: bool) -> None:
    plain = json.loads(
        json.dumps(value), object_pairs_hook=lambda pairs: {str(i): v for i, (_k, v) in enumerate(pairs)}
    )
    bare = _without_strings(plain)
    text = json.dumps(bare, indent=1 if is_spaced else None).encode()
    assert count_values(text, MANY) == values_in(bare)


@given(JSON)
def test_count_above_the_limit_ignores_most_of_strings(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False).encode()
    exact, naive = values_in(value), 1 + sum(map(text.count, (b",", b"[", b"{")))
    assert naive >= exact
    for most in {0, exact - 1, exact, naive}:
        wanted = naive if naive <= most else min(exact + (naive - exact) // 4, most + 1)
        assert count_values(text, most) == wanted


def _without_strings(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_strings(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_strings(item) for item in value]
    return 0 if isinstance(value, str) else value


@pytest.mark.parametrize(
    "unit",
    [b"[],", b'"",', b'"a":"",', b'"a, [b] {c}",', b'"\\\\",', b'"\\"', b'"', b"\\", b',"\\n', b'\\"', b',\\"'],
    ids=repr,
)
def test_count_takes_linear_time(unit: bytes) -> None:
    assert grows_linearly(
        lambda text: count_values(text, len(text) // 32),
        lambda size: (unit * (size // len(unit) + 1))[:size],
        4_000_000,
        0.1,
    )
