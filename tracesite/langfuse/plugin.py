"""Langfuse as Tracesite's settings name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracesite.http.foreign_apis import ForeignApi


def error_body(
    path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
) -> dict[str, Any]:
    """Return an error as the SDK shows it."""
    return {"message": f"{field}: {message}" if field else message, "error": code}


LANGFUSE = ForeignApi(
    base_paths=tuple(f"/api/public/{name}" for name in ("ingestion", "scores", "projects", "health")),
    urls="tracesite.langfuse.urls",
    error_body=error_body,
)
