"""The runs of an agent as LangSmith's SDK sends them, in two pieces each, and parts of its bodies."""

from __future__ import annotations

from typing import Any

ROOT_ID = "0190b3a4-7c1d-7e5f-8a2b-000000000001"
MODEL_ID = "0190b3a4-7c1d-7e5f-8a2b-000000000002"
TOOL_ID = "0190b3a4-7c1d-7e5f-8a2b-000000000003"


def order(*ids: str) -> str:
    return ".".join(f"20261120T1000{place:02}000000Z{id_}" for place, id_ in enumerate(ids))


CALL = {"id": "c1", "name": "get_weather", "args": {"city": "Oslo"}, "type": "tool_call"}
POSTS: list[dict[str, Any]] = [
    {"id": ROOT_ID, "trace_id": ROOT_ID, "dotted_order": order(ROOT_ID), "name": "plan", "run_type": "chain",
     "inputs": {"messages": [{"type": "human", "content": "Plan a day."}]}, "session_name": "demo",
     "extra": {"metadata": {"thread_id": "thread-1"}}, "start_time": "2026-11-20T10:00:00+00:00"},
    {"id": MODEL_ID, "trace_id": ROOT_ID, "parent_run_id": ROOT_ID, "dotted_order": order(ROOT_ID, MODEL_ID),
     "name": "model", "run_type": "llm", "start_time": "2026-11-20T10:00:01+00:00",
     "inputs": {"messages": [[{"type": "human", "data": {"content": "Plan a day."}}]]},
     "extra": {"metadata": {"ls_model_name": "gpt-4o-mini"}, "invocation_params": {"temperature": 0}}},
    {"id": TOOL_ID, "trace_id": ROOT_ID, "parent_run_id": ROOT_ID, "dotted_order": order(ROOT_ID, TOOL_ID),
     "name": "get_weather", "run_type": "tool", "inputs": {"city": "Oslo"}, "start_time": "2026-11-20T10:00:02+00:00",
     "extra": {"tool_call_id": "c1"}},
]  # fmt: skip
USAGE = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
PATCHES: list[dict[str, Any]] = [
    {"id": MODEL_ID, "trace_id": ROOT_ID, "end_time": "2026-11-20T10:00:02+00:00",
     "outputs": {"generations": [[{"text": "", "message": {"type": "ai", "data": {"content": "", "tool_calls": [CALL]}}}]]},
     "extra": {"metadata": {"usage_metadata": USAGE}}},
    {"id": TOOL_ID, "trace_id": ROOT_ID, "end_time": "2026-11-20T10:00:03+00:00",
     "error": "ValueError('no data')Traceback (most recent call last):\n  File \"x.py\""},
    {"id": ROOT_ID, "trace_id": ROOT_ID, "end_time": "2026-11-20T10:00:04+00:00",
     "outputs": {"messages": [{"type": "ai", "content": "Stay at home."}]}},
]  # fmt: skip


def part(name: bytes, content: bytes = b"", *headers: bytes) -> bytes:
    """Return a part of a multipart body whose boundary is `b`."""
    lines = (b'Content-Disposition: form-data; name="%b"' % name, *headers)
    return b"--b\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" + content + b"\r\n"
