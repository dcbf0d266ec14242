"""LangSmith as Tracesite's settings name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracesite.http.foreign_apis import ForeignApi

PREFIXES = ("", "api/", "langsmith/")
"""Endings that LANGSMITH_ENDPOINT may have; a self-hosted LangSmith is at /api."""


def error_body(
    path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
) -> dict[str, Any]:
    """Return an error as the SDK shows it."""
    return {"detail": f"{field}: {message}" if field else message}


LANGSMITH = ForeignApi(
    base_paths=tuple(f"/{prefix}{name}" for prefix in PREFIXES for name in ("info", "runs", "feedback")),
    urls="tracesite.langsmith.urls",
    error_body=error_body,
)
