"""The endpoint of the OpenAI Agents SDK as Tracesite's settings name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracesite.http.foreign_apis import ForeignApi


def error_body(
    path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
) -> dict[str, Any]:
    """Return an error as OpenAI's API does. The SDK logs it."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": field, "code": code}}


OPENAI_AGENTS = ForeignApi(
    base_paths=("/v1/traces/ingest",), urls="tracesite.openai_agents.urls", error_body=error_body
)
