"""A finished chain of calls, and the keys of its document."""

from __future__ import annotations

from itertools import count
from typing import Any

from tracesite_sdk.recorder.tracking.chains import ToolCallChain
from tracesite_sdk.recorder.tracking.tracker import ToolCallChainTracker

START = 1_767_225_600_000_000_000
CHAIN_KEYS = [
    "chain_id",
    "root_tool_id",
    "root_call_id",
    "created_at",
    "completed_at",
    "duration",
    "success",
    "error_message",
    "metadata",
    "type",
    "root_calls",
    "calls",
]


def ticking(**options: Any) -> ToolCallChainTracker:
    """A tracker whose clock advances by a second at each reading."""
    seconds = count(START, 1_000_000_000)
    return ToolCallChainTracker(clock=lambda: next(seconds), **options)


def finished(tracker: ToolCallChainTracker) -> ToolCallChain:
    chain = tracker.get_call_chain_by_id(tracker.end_tool_chain())
    assert chain is not None
    return chain
