"""Two-factor login of local users: one-time passwords of an app (TOTP), and recovery codes, both by django-otp.

Neither a key of an app nor a recovery code is stored: the database has random values from which TRACESITE_SECRET_KEY makes
the key, and keyed digests of the codes. A copy of the database is no second factor.
"""

from __future__ import annotations

import base64
import re
import secrets
import time
from datetime import timedelta
from typing import Any

import segno
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare, salted_hmac

from access_app.conf import conf
from access_app.db import primary

from .audit.record import record
from .audit.trail import Actor
from .models import AuditAction, AuthenticatorApp, RecoveryCodes

BACKEND = "access_app.two_factor.TwoFactorBackend"
CODES = 10
"""Number of recovery codes; each works once."""
CODE_WITHIN = timedelta(minutes=5)
"""Time for the code after the password."""
LONGEST_CODE = 32
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_CODE_LENGTH = 12  # 59 bits
_PASSED = "password_passed"


class TwoFactorBackend(ModelBackend):
    """Check the password, and the second factor of users who have one."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """Return the user; None for a wrong password, or for a wrong `code` of the user `passed`, whose password was right before.

        Raise CodeRequired, which is no failed login, for the right password of a user who has a second factor.
        """
        passed: User | None = kwargs.get("passed")
        if passed is not None:
            return passed if verify(passed, str(kwargs["code"])) else None
        user = super().authenticate(request, username=username, password=password)
        if user is None:
            return None
        assert isinstance(user, get_user_model()), "the backend is that of the project's users"
        if has_second_factor(user):
            raise CodeRequired(user)
        return user


class CodeRequired(Exception):
    """The password of `user` is right, and the login needs a code."""

    def __init__(self, user: User) -> None:
        super().__init__("the login needs a code")
        self.user = user


def note_passed(session: SessionBase, user: User) -> None:
    """Note in a session that nobody is logged in with that the password of this user was right."""
    session.cycle_key()
    session[_PASSED] = [user.pk, user.get_session_auth_hash(), time.time()]


def passed_in(session: SessionBase) -> User | None:
    """Return the user whose password was right in this session; None after CODE_WITHIN, or if the password was changed."""
    key, password, at = session.get(_PASSED, (None, "", 0))
    if time.time() - at >= CODE_WITHIN.total_seconds():
        return None
    user = User.objects.filter(pk=key, is_active=True).first()
    return user if user is not None and constant_time_compare(password, user.get_session_auth_hash()) else None


def is_offered() -> bool:
    """Return whether logins of this project pass our backend, the only one that asks for a second factor."""
    return BACKEND in settings.AUTHENTICATION_BACKENDS


def has_second_factor(user: User) -> bool:
    return bool(AuthenticatorApp.objects.filter(user=user, confirmed=True).exists())


def must_set_up(user: User | AnonymousUser, session: SessionBase) -> bool:
    """Return whether this login may do nothing but set up its second factor, because TRACESITE_TWO_FACTOR demands one.

    Logins that a proxy or an OpenID provider has checked are theirs to secure.
    """
    if conf.TWO_FACTOR == "OPTIONAL" or not user.is_authenticated or session.get(BACKEND_SESSION_KEY) != BACKEND:
        return False
    return (conf.TWO_FACTOR == "STAFF" or user.is_superuser) and not has_second_factor(user)


@primary.atomic()
def begin(user: User) -> AuthenticatorApp:
    """Make a key for an app, which counts from `confirm` on. A key that was not confirmed is replaced."""
    AuthenticatorApp.objects.filter(user=user, confirmed=False).delete()
    app: AuthenticatorApp = AuthenticatorApp.objects.create(user=user, name="app", confirmed=False)
    return app


def cancel(user: User) -> None:
    """Forget the key that waits for its first code."""
    AuthenticatorApp.objects.filter(user=user, confirmed=False).delete()


def begun(user: User) -> AuthenticatorApp | None:
    """Return the key that waits for its first code."""
    app: AuthenticatorApp | None = AuthenticatorApp.objects.filter(user=user, confirmed=False).first()
    return app


@primary.atomic()
def confirm(user: User, code: str, *, actor: Actor | None = None) -> list[str] | None:
    """Turn two-factor login on if the app shows the right code. Return the recovery codes, None for a wrong code."""
    app = AuthenticatorApp.objects.select_for_update().filter(user=user, confirmed=False).first()
    if app is None or not app.verify_token(_digits(code)):
        return None
    AuthenticatorApp.objects.filter(user=user, confirmed=True).delete()
    app.confirmed = True
    app.save(update_fields=["confirmed"])
    _record(actor, user, "on")
    return make_recovery_codes(user)


@primary.atomic()
def make_recovery_codes(user: User) -> list[str]:
    """Replace the recovery codes of a user. Return the new ones, which cannot be read again."""
    RecoveryCodes.objects.filter(user=user).delete()
    device = RecoveryCodes.objects.create(user=user, name="recovery codes")
    codes = ["".join(secrets.choice(_ALPHABET) for _ in range(_CODE_LENGTH)) for _ in range(CODES)]
    for code in codes:
        device.token_set.create(token=_digest(code))
    return [f"{code[:4]}-{code[4:8]}-{code[8:]}" for code in codes]


def recovery_codes_left(user: User) -> int:
    return int(RecoveryCodes.objects.filter(user=user, token_set__isnull=False).count())


@primary.atomic()
def verify(user: User, code: str) -> bool:
    """Return whether this is a code of the app or a recovery code, and use it up.

    After a wrong code django-otp refuses all codes of that kind for 1 s, then 2 s, 4 s and so on until the next right one.
    """
    digits = _digits(code)
    if digits:
        app = AuthenticatorApp.objects.select_for_update().filter(user=user, confirmed=True).first()
        return app is not None and app.verify_token(digits)
    codes = RecoveryCodes.objects.select_for_update().filter(user=user).first()
    return bool(code) and codes is not None and codes.verify_token(_digest(code))


@primary.atomic()
def remove(user: User, *, actor: Actor | None = None) -> bool:
    """Turn two-factor login off. Return False if it was not on."""
    was_on = has_second_factor(user)
    AuthenticatorApp.objects.filter(user=user).delete()
    RecoveryCodes.objects.filter(user=user).delete()
    if was_on:
        _record(actor, user, "off")
    return was_on


def key_text(app: AuthenticatorApp) -> str:
    """Return the key as apps take it when it is typed: base32 in groups of four."""
    text = base64.b32encode(app.bin_key).decode()
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def qr_code(app: AuthenticatorApp) -> str:
    """Return the address of an image with the key: a data URI with SVG, so that nobody else is asked for it."""
    code: str = segno.make(app.config_url).svg_data_uri(scale=5, dark="#000", light="#fff")
    return code


def _digits(code: str) -> str:
    """Return the six digits of a code of an app; "" if it is not one."""
    digits = re.sub(r"\s", "", code)
    return digits if re.fullmatch(r"[0-9]{6}", digits) else ""


def _digest(code: str) -> str:
    """Return what is stored of a recovery code: 80 bits, which fit the column of django-otp."""
    letters = re.sub(r"[\s-]", "", code[:LONGEST_CODE]).lower()
    digest = salted_hmac("access_app.two_factor.recovery", letters, algorithm="sha256").digest()
    return base64.b32encode(digest[:10]).decode()


def _record(actor: Actor | None, user: User, state: str) -> None:
    record(
        AuditAction.CHANGE,
        actor,
        object_type="user",
        object_id=user.pk,
        object_name=user.get_username(),
        detail={"two_factor": state},
    )
