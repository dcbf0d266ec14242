"""Errors of OTLP: a google.rpc.Status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# google.rpc.Code: the codes of gRPC, which an OTLP error names.
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 413: 8, 429: 8, 503: 14}
_UNKNOWN = 2


def error_body(
    path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
) -> dict[str, Any]:
    """Return a google.rpc.Status as JSON."""
    return {"code": rpc_code(status), "message": f"{field}: {message}" if field else message}


def rpc_code(status: int) -> int:
    return _CODES.get(status, _UNKNOWN)
