"""Runs of LangSmith: pieces in any order, and arbitrary ones."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.spans.langsmith_wire import MODEL_ID, PATCHES, POSTS, ROOT_ID, TOOL_ID, order, part
from tracesite_sdk.spans import langsmith_runs
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.langsmith_runs import MOST_PARTS, span_of
from tracesite_sdk.spans.span import InvalidBody, TooManyItems


def test_order_of_pieces_does_not_matter() -> None:
    pieces = [span_of("post", run) for run in POSTS] + [span_of("patch", run) for run in PATCHES]
    expected = session_of_trace(pieces)
    for shuffled in itertools.permutations(pieces):
        assert session_of_trace([*shuffled, shuffled[0]]) == expected


@given(body=st.binary(max_size=200), boundary=st.text(max_size=8))
def test_multipart_decoder_takes_any_bytes(body: bytes, boundary: str) -> None:
    mark = b"--" + boundary.encode("latin-1", "replace")
    for given_body in (
        body,
        mark + b"\r\n" + body + b"\r\n" + mark + b"--",
        mark + b'\r\nContent-Disposition: form-data; name="post.1"\r\n\r\n' + body + b"\r\n" + mark + b"--",
    ):
        with contextlib.suppress(InvalidBody):
            langsmith_runs.decode_multipart(given_body, boundary)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
IDS = st.sampled_from([ROOT_ID, MODEL_ID, TOOL_ID]) | JSON
RUNS = st.fixed_dictionaries(
    {"id": IDS},
    optional={
        "trace_id": IDS,
        "parent_run_id": IDS,
        "dotted_order": st.sampled_from([order(ROOT_ID), order(ROOT_ID, MODEL_ID), "20269999T999999999999Zx"]) | JSON,
        "name": JSON,
        "run_type": st.sampled_from(["llm", "tool", "chain"]) | JSON,
        "start_time": st.sampled_from(["2026-11-20T10:00:00Z", "0001-01-01", "9999-12-31T23:59:59-12:00"]) | JSON,
        "end_time": st.sampled_from([1, 1.8e18]) | JSON,
        "inputs": JSON,
        "outputs": st.fixed_dictionaries({"generations": JSON}) | JSON,
        "extra": st.fixed_dictionaries({}, optional={"metadata": JSON, "invocation_params": JSON}) | JSON,
        "events": st.lists(JSON | st.fixed_dictionaries({"name": JSON, "time": JSON}), max_size=2) | JSON,
        "error": JSON,
        "tags": JSON,
        "serialized": JSON,
    },
)


@given(runs=st.lists(RUNS, max_size=4))
def test_any_run_is_decoded_and_read(runs: list[dict[str, Any]]) -> None:
    found = langsmith_runs.decode_batch(json.dumps({"post": runs[::2], "patch": runs[1::2]}).encode())
    assert len(found.spans) + len(found.errors) == len(runs)
    for trace_id in {span.trace_id for span in found.spans}:
        session_of_trace([span for span in found.spans if span.trace_id == trace_id])


def test_long_boundary_of_a_multipart_body_is_refused() -> None:
    with pytest.raises(InvalidBody, match="70 characters"):
        list(langsmith_runs.parts(b"", "b" * 71))
    with pytest.raises(TooManyItems):
        list(langsmith_runs.parts(part(b"a") * (MOST_PARTS + 1) + b"--b--\r\n", "b"))


def test_broken_part_of_a_multipart_body_costs_that_part() -> None:
    root = POSTS[0]
    cut = json.dumps({**root, "inputs": {"q": "half \ud83d"}}).encode()
    body = part(b"post." + ROOT_ID.encode(), cut)
    body += part(b"post." + ROOT_ID.encode() + b".outputs", b'{"a": "caf\xe9"}')
    body += part(b"post." + ROOT_ID.encode() + b".error", b"{") + part(b"post." + MODEL_ID.encode(), b"NaN")
    found = langsmith_runs.decode_multipart(body + b"--b--\r\n", "b")
    [span] = found.spans
    assert span.attributes["langsmith.run.inputs"] == {"q": r"half \ud83d"}
    assert span.attributes["langsmith.run.outputs"] == {"a": "caf\ufffd"}
    assert [error.partition(": ")[0] for error in found.errors] == [
        f"part post.{ROOT_ID}.error",
        f"part post.{MODEL_ID}",
    ]
