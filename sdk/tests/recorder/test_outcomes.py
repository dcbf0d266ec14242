"""What the recorder makes of results of tools in every known shape is what the server makes of them."""

from __future__ import annotations

import pytest

from sdk.tests.normalize.result_shapes import SHAPES, text
from tracesite_sdk import records, results
from tracesite_sdk.normalize.tool_results import normalize_result, received
from tracesite_sdk.recorder.capture.entries import Entry, Kind, freeze, result_says_error


@pytest.mark.parametrize("name", SHAPES)
def test_recorder_reads_a_result_as_the_server_does(name: str) -> None:
    value, expected = SHAPES[name]
    for said in (value, text(value)) if not isinstance(value, str) else (value,):
        entry = Entry(Kind.CALL_END, 0, None, "e", {}, {"result": freeze(said)}, 0)  # type: ignore[arg-type]  # no scope is asked
        assert result_says_error(entry) is (expected.status == "error")
        assert results.read(said).status == expected.status


@pytest.mark.parametrize("name", SHAPES)
def test_result_read_again_is_the_same(name: str) -> None:
    value, _row = SHAPES[name]
    once = normalize_result(received(value), None)
    assert isinstance(once, records.ToolResult)
    assert normalize_result(once, None) == once
