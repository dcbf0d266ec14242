"""API keys in all headers in which clients of OTLP send one."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error

from rest_framework.request import Request

from access_app.authentication import ApiKeyAuthentication


class AnyHeaderAuthentication(ApiKeyAuthentication):
    """Accept Bearer, X-API-Key, `api_key` (Phoenix) and Basic with the key as password (Langfuse: public and secret key)."""

    def token_of(self, request: Request) -> str | None:
        token = super().token_of(request)
        if token is not None:
            return token
        header: str | None = request.META.get("HTTP_API_KEY")
        return header.strip() if header is not None else _password_in(request.META.get("HTTP_AUTHORIZATION", ""))


def _password_in(authorization: str) -> str | None:
    scheme, _separator, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, _separator, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (Error, ValueError):
        return ""
    return password or user
