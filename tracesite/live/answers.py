"""Error responses of the live part, in the shape of the API that serves the path."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from access_app.errors import ApiError
from tracesite.http.foreign_api import foreign_api_of

from .clients import headers_of


async def answer(send: Any, error: ApiError, scope: Mapping[str, Any], request_id: str = "") -> None:
    request_id = request_id or uuid.uuid4().hex
    if foreign := foreign_api_of(scope["path"]):
        content = foreign.error_body(
            scope["path"], headers_of(scope), error.status, error.code, error.message, error.field
        )
    else:
        about = {"code": error.code, "message": error.message, "field": error.field, "request_id": request_id}
        content = {"error": about}
    body = msgspec.json.encode(content)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-request-id", request_id.encode()),
    ]
    headers += [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
