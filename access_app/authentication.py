"""Who is asking: an API key in a header, or a member of staff with a session of the admin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.translation import gettext as _
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, CSRFCheck
from rest_framework.request import Request

from .errors import NotAuthenticated, NotPermitted
from .keys import find_key
from .models import ApiKey

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser
    from drf_spectacular.openapi import AutoSchema


@dataclass(frozen=True)
class KeyUser:
    """`request.user` of a request that came with an API key; `request.auth` is the key itself."""

    key_id: int
    name: str
    is_authenticated: bool = True
    is_active: bool = True
    is_staff: bool = False
    is_superuser: bool = False

    def __str__(self) -> str:
        return self.name


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer ts_...` or `X-API-Key: ts_...`; other schemes of Authorization are left to others."""

    def authenticate(self, request: Request) -> tuple[KeyUser, ApiKey] | None:
        token = _token(request)
        if token is None:
            return None
        key = find_key(token)
        if key is None:
            raise NotAuthenticated(
                _(
                    "This API key is not known, has expired or was revoked. Send a valid one as "
                    "“Authorization: Bearer ts_…” or “X-API-Key: ts_…”."
                ),
                code="invalid_api_key",
            )
        return KeyUser(key_id=key.pk, name=str(key)), key

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class StaffSessionAuthentication(BaseAuthentication):
    """The session of the admin. What changes something must come with the CSRF token of Django."""

    def authenticate(self, request: Request) -> tuple[AbstractUser, None] | None:
        user = getattr(request._request, "user", None)
        if user is None or not user.is_active or not user.is_staff:
            return None
        _require_csrf_token(request)
        return user, None


def _token(request: Request) -> str | None:
    """The token that was sent; "" when the header was there without one."""
    scheme, _space, token = request.headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    header: str | None = request.headers.get("X-API-Key")
    return header if header is None else header.strip()


def _require_csrf_token(request: Request) -> None:
    # Django's own check is skipped for REST views, because keys need none.
    check = CSRFCheck(lambda _request: None)
    check.process_request(request._request)
    reason: Any = check.process_view(request._request, None, (), {})
    if reason:
        raise NotPermitted(
            _(
                "The CSRF token is missing or wrong (%(reason)s). Send the value of the cookie %(cookie)s as X-CSRFToken."
            )
            % {"reason": reason, "cookie": settings.CSRF_COOKIE_NAME},
            code="csrf_failed",
        )


class ApiKeyScheme(OpenApiAuthenticationExtension):
    """How the OpenAPI schema shows the keys."""

    target_class = ApiKeyAuthentication
    name = ["bearer", "apiKey"]

    def get_security_requirement(self, auto_schema: AutoSchema) -> list[dict[str, list[Any]]]:
        return [{"bearer": []}, {"apiKey": []}]

    def get_security_definition(self, auto_schema: AutoSchema) -> list[dict[str, Any]]:
        return [
            {"type": "http", "scheme": "bearer", "bearerFormat": "ts_…"},
            {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        ]


class StaffSessionScheme(OpenApiAuthenticationExtension):
    """How the OpenAPI schema shows the session of the admin."""

    target_class = StaffSessionAuthentication
    name = "staffSession"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
