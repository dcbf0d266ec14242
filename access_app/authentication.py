"""Authentication of requests: an API key in a header, or the admin session of a staff member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.translation import gettext as _
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from .audit.trail import actor_of
from .errors import NotAuthenticated, NotPermitted
from .keys import admitted_key, bearer_in
from .logins import client_address
from .masked_reading import mask_for, masked_key
from .models import ApiKey

if TYPE_CHECKING:
    from drf_spectacular.openapi import AutoSchema


@dataclass(frozen=True)
class KeyUser:
    """`request.user` of a request with an API key; `request.auth` is the key."""

    key_id: int
    name: str
    is_authenticated: bool = True
    is_active: bool = True
    is_staff: bool = False
    is_superuser: bool = False

    def __str__(self) -> str:
        return self.name


class ApiKeyAuthentication(BaseAuthentication):
    """Authenticate by `Authorization: Bearer ts_...` or `X-API-Key: ts_...`; ignore other Authorization schemes."""

    def authenticate(self, request: Request) -> tuple[KeyUser, ApiKey] | None:
        token = self.token_of(request)
        if token is None:
            return None
        key = admitted_key(token, client_address(request), actor=actor_of(request))
        if key is None:
            raise NotAuthenticated(
                _(
                    "Invalid API key: unknown, expired or revoked. Send a valid key as “Authorization: "
                    "Bearer ts_…” or “X-API-Key: ts_…”."
                ),
                code="invalid_api_key",
            )
        if (reader := masked_key(key)) is not None:
            mask_for(reader)
        return KeyUser(key_id=key.pk, name=str(key)), key

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"

    def token_of(self, request: Request) -> str | None:
        """Return the token of the request; "" for a header without one, None without a header."""
        bearer = bearer_in(request.META.get("HTTP_AUTHORIZATION", ""))
        if bearer is not None:
            return bearer
        header: str | None = request.META.get("HTTP_X_API_KEY")
        return header if header is None else header.strip()


class StaffSessionAuthentication(SessionAuthentication):
    """Authenticate staff by their admin session; writes need Django's CSRF token."""

    def authenticate(self, request: Request) -> Any:
        # Of the session, whoever `request.user` is by now.
        user = request.login  # type: ignore[attr-defined] # of access_app.masked_reading
        if not (user.is_active and user.is_staff):
            return None
        self.enforce_csrf(request)
        return user, None

    def enforce_csrf(self, request: Request) -> None:
        try:
            super().enforce_csrf(request)
        except PermissionDenied as error:
            raise NotPermitted(
                _("%(reason)s. Send the value of the cookie “%(cookie)s” in the header X-CSRFToken.")
                % {"reason": str(error).rstrip("."), "cookie": settings.CSRF_COOKIE_NAME},
                code="csrf_failed",
            ) from error


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """OpenAPI security scheme of API keys."""

    target_class = ApiKeyAuthentication
    name = ["bearer", "apiKey"]

    def get_security_requirement(self, auto_schema: AutoSchema) -> list[dict[str, list[Any]]]:
        return [{"bearer": []}, {"apiKey": []}]

    def get_security_definition(self, auto_schema: AutoSchema) -> list[dict[str, Any]]:
        return [
            {"type": "http", "scheme": "bearer", "bearerFormat": "ts_…"},
            {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        ]


class StaffSessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """OpenAPI security scheme of the admin session."""

    target_class = StaffSessionAuthentication
    name = "staffSession"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
