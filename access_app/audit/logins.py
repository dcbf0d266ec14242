"""Entries of logins, failed logins and logouts, by the signals that Django documents for them.

Every way in sends them: the page with its second factor, a proxy, and an OpenID provider.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.http import HttpRequest

from access_app.conf import conf
from access_app.logins import client_address, typed_name
from access_app.models import ActorKind, AuditAction, AuditResult
from access_app.users import user_named

from .record import origin_of, record
from .trail import Origin


def connect() -> None:
    if not conf.AUDIT_LOGINS:
        return
    user_logged_in.connect(_logged_in, dispatch_uid="tracesite audit")
    user_logged_out.connect(_logged_out, dispatch_uid="tracesite audit")
    user_login_failed.connect(_login_failed, dispatch_uid="tracesite audit")


def _logged_in(sender: Any, request: HttpRequest, user: User, **kwargs: Any) -> None:
    record(AuditAction.LOGIN, None, object_type="login", origin=origin_of(request, user=user))


def _logged_out(sender: Any, request: HttpRequest, user: User | None, **kwargs: Any) -> None:
    if user is not None:
        record(AuditAction.LOGOUT, None, object_type="login", origin=origin_of(request, user=user))


def _login_failed(sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **kwargs: Any) -> None:
    """Record a failed login of a user. Of names that nobody has, the entry holds none: people type passwords there."""
    if request is None or getattr(request, "axes_locked_out", False):
        return  # After the limit of attempts, of which there is an entry each, nobody may fill the log.
    user = user_named(typed_name(request, credentials).replace("\x00", ""))
    record(
        AuditAction.LOGIN,
        None,
        object_type="login",
        result=AuditResult.REFUSED,
        origin=Origin(
            kind=ActorKind.USER,
            name="unknown" if user is None else user.get_username(),
            id="" if user is None else str(user.pk),
            address=client_address(request),
            request_id=getattr(request, "request_id", ""),
        ),
    )
