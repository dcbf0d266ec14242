"""Single sign-on through an OpenID provider, by mozilla-django-oidc; part of the site if TRACESITE_OIDC_ISSUER is set."""

from __future__ import annotations

import logging
from typing import Any

import requests
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import SuspiciousOperation
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext as _
from jwt import PyJWTError
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from access_app.conf import conf

from .logins import LONGEST_NAME
from .single_sign_on import make_staff, set_groups

logger = logging.getLogger(__name__)


class OpenIdBackend(OIDCAuthenticationBackend):
    """Find or make the user whom the provider names, and keep its groups as the provider says."""

    def verify_token(self, token: str, **kwargs: Any) -> dict[str, Any]:
        """Return the claims of an ID token of our provider for us. Raises SuspiciousOperation, PyJWTError."""
        claims: dict[str, Any] = super().verify_token(token, **kwargs)
        audience = claims.get("aud")
        if claims.get("iss") != conf.OIDC_ISSUER:
            raise SuspiciousOperation("The ID token is of another issuer.")
        if settings.OIDC_RP_CLIENT_ID not in (audience if isinstance(audience, list) else [audience]):
            raise SuspiciousOperation("The ID token is for another client.")
        return claims

    def get_userinfo(self, access_token: str, id_token: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the claims of the ID token and of the provider's answer, which must be about the same user."""
        answer = super().get_userinfo(access_token, id_token, payload)
        if not payload.get("sub") or answer.get("sub") != payload["sub"]:
            raise SuspiciousOperation("The provider's answer is about another user.")
        return {**payload, **answer}

    def verify_claims(self, claims: dict[str, Any]) -> bool:
        """Return whether the claims have a name that a user can have."""
        name = claims.get(conf.OIDC_USERNAME_CLAIM)
        return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()

    def describe_user_by_claims(self, claims: dict[str, Any]) -> str:
        return f"name {claims.get(conf.OIDC_USERNAME_CLAIM)!r}"

    def filter_users_by_claims(self, claims: dict[str, Any]) -> QuerySet[User]:
        """Return the user of this name. Raises SuspiciousOperation for one with a password, whom nobody else may become."""
        users = User.objects.filter(username=claims[conf.OIDC_USERNAME_CLAIM])
        if any(user.has_usable_password() for user in users):
            raise SuspiciousOperation("A local user with a password has this name.")
        return users

    def create_user(self, claims: dict[str, Any]) -> User:
        user = User(username=claims[conf.OIDC_USERNAME_CLAIM])
        make_staff(user)
        return self.update_user(user, claims)

    def update_user(self, user: User, claims: dict[str, Any]) -> User:
        names = claims.get(conf.OIDC_GROUPS_CLAIM)
        names = [names] if isinstance(names, str) else names if isinstance(names, list) else []
        # What is no printable text is the name of no group, and may be none that PostgreSQL can store.
        set_groups(user, [name for name in names if isinstance(name, str) and name.isprintable()])
        return user


class CallbackView(OIDCAuthenticationCallbackView):
    """The page to which the provider sends the browser back."""

    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            response: HttpResponse = super().get(request)
        except (requests.RequestException, PyJWTError, KeyError) as error:
            # A KeyError is a field that an answer of the provider lacks. Without its text, which may hold a token.
            logger.error("login through the OpenID provider failed: %s", type(error).__name__)  # noqa: TRY400
            return self.login_failure()
        return response

    def login_failure(self) -> HttpResponse:
        messages.error(
            self.request, _("The login through single sign-on failed. Try again, or ask who runs this site.")
        )
        response: HttpResponse = super().login_failure()
        return response


urlpatterns = [
    path("authenticate/", OIDCAuthenticationRequestView.as_view(), name="oidc_authentication_init"),
    path("callback/", CallbackView.as_view(), name="oidc_authentication_callback"),
]
