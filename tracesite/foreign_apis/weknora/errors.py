"""Error bodies for WeKnora's clients. Without Django.

WeKnora's server nests the code in `error`, but its Go client reads it from the top level, so it is in both places. Errors of
authentication and of `stop` are plain strings, as in WeKnora's server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BASE = "/weknora/"
"""Prefix of all routes."""

INTERNAL = 1007
_CODES = {
    400: 1000,
    401: 1001,
    403: 1002,
    404: 1003,
    405: 1004,
    409: 1005,
    412: 1005,
    429: 1006,
    500: INTERNAL,
    503: 1008,
}
# Texts that clients compare, so they are never translated.
_TEXTS = {"session_not_found": "session not found", "message_not_found": "message not found"}
_STREAM_ERRORS = {"message_not_found": "Incomplete message not found", "no_stream_events": "No stream events found"}


def error_body(
    path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
) -> dict[str, Any]:
    """Return the JSON of an error at `path` below BASE.

    `headers` are the request's, in any case; `code`, `message` and `field` are those of Tracesite's own error.
    """
    if "/continue-stream/" in path and code in _STREAM_ERRORS:
        return {"success": False, "error": _STREAM_ERRORS[code]}
    message = _TEXTS.get(code, message)
    if status == 401:
        return {"error": f"Unauthorized: {_unauthorized(code, headers)}"}
    if path.endswith("/stop"):
        return {"error": message[:1].upper() + message[1:]}
    number = _CODES.get(status, INTERNAL if status >= 500 else _CODES[400])
    details = {"code": code, "field": field}
    return {
        "success": False,
        "code": number,
        "error": {"code": number, "message": message, "details": details},
    }


def _unauthorized(code: str, headers: Mapping[str, str]) -> str:
    if code == "not_authenticated":
        return "missing authentication"
    return "invalid API key" if "x-api-key" in map(str.lower, headers) else "invalid or expired token"
