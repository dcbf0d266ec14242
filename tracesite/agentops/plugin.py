"""AgentOps as Tracesite's settings name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracesite.http.foreign_apis import ForeignApi


def error_body(
    path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
) -> dict[str, Any]:
    """Return an error as the SDK reads it."""
    return {"error": f"{field}: {message}" if field else message}


AGENTOPS = ForeignApi(base_paths=("/v3/auth/", "/v4/"), urls="tracesite.agentops.urls", error_body=error_body)
