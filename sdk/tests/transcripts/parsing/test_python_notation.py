"""Objects in Python's notation, and those that are too long for it."""

from __future__ import annotations

import tracemalloc

from tracesite_sdk.transcripts.parsing.python_notation import json_or_python


def test_python_dictionary_is_read_like_json() -> None:
    value = {"role": "assistant", "done": True, "text": 'It\'s "here"\n'}
    assert json_or_python(str(value)) == value


def test_long_dictionary_is_neither_and_takes_no_memory() -> None:
    written = str({"a": "b" * 5_000_000})
    tracemalloc.start()
    assert json_or_python(written) is None
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000
    assert json_or_python(written.replace("'", '"')) == {"a": "b" * 5_000_000}
