"""Test the sizes of parts of a snapshot."""

from __future__ import annotations

import pytest

from sdk.tests.records.billion_laughs import laughs, ref
from tracesite_sdk.records.snapshot_parts import TooLargeContextError, measured, outline


def test_sizes_take_time_for_each_part_once() -> None:
    values = [*laughs(100), "end"]
    outlines = {ref(value): outline(value) for value in values}
    with pytest.raises(TooLargeContextError):
        measured(ref(values[0]), outlines)
    assert measured(ref(values[0]), outlines, most=10**200)[ref(values[0])].size > 10**100
