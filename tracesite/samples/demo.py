"""What `serve --demo` finds missing in a database and makes: sample traces, an API key, somebody to log in as."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.db import transaction

from access_app.keys import create_key
from access_app.models import Project, Scope

from .loader import load_samples

ADMIN = "admin"
PROJECT = "demo"
KEY_NAME = "serve --demo"


@dataclass(frozen=True, kw_only=True)
class Made:
    """What is new since the last run. Secrets are in here and nowhere else: who asked has to show them."""

    sessions: int
    password: str | None
    """Of ADMIN; None if there was a superuser already, or the password is the one in the settings."""
    api_key: str | None


def prepare() -> Made:
    """Fills a database without projects with the samples, and makes a superuser where there is none.

    ADMIN's password is settings.ADMIN_PASSWORD whenever that is set. A run that was interrupted is completed by the
    next. Raises ValidationError if settings.ADMIN_PASSWORD is too weak.
    """
    sessions = 0
    demo = Project.objects.filter(slug=PROJECT).first()
    if demo is None and not Project.objects.exists():
        demo = Project.objects.create(slug=PROJECT, name="Demo")
    # The key comes last, so its row says that the samples are in, even when it has been revoked since.
    is_new = demo is not None and not demo.api_keys.filter(name=KEY_NAME).exists()
    if demo is not None and is_new:
        sessions = load_samples(demo)
    # Together: a password or a key that was made but not shown would be of no use to anybody.
    with transaction.atomic():
        password = _provide_admin()
        api_key = None
        if demo is not None and is_new:
            _, api_key = create_key(demo, name=KEY_NAME, scopes=list(Scope))
    return Made(sessions=sessions, password=password, api_key=api_key)


def superuser() -> str:
    """Who may log in: ADMIN, or in a database that was in use before, its first superuser."""
    users = get_user_model()._default_manager.filter(is_superuser=True).order_by("pk")
    names = [user.get_username() for user in users]
    return ADMIN if ADMIN in names or not names else names[0]


def project() -> str:
    """The project to make a key for: PROJECT, or in a database that was in use before, its first one."""
    slugs = list(Project.objects.order_by("pk").values_list("slug", flat=True))
    return PROJECT if PROJECT in slugs or not slugs else slugs[0]


def _provide_admin() -> str | None:
    users = get_user_model()._default_manager
    admin = users.filter(username=ADMIN).first()
    if settings.ADMIN_PASSWORD:
        if admin is None:
            validate_password(settings.ADMIN_PASSWORD)
            users.create_superuser(ADMIN, password=settings.ADMIN_PASSWORD)
        elif not admin.check_password(settings.ADMIN_PASSWORD):
            validate_password(settings.ADMIN_PASSWORD, admin)
            admin.set_password(settings.ADMIN_PASSWORD)
            admin.save(update_fields=["password"])
        return None
    if admin is not None or users.filter(is_superuser=True).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(ADMIN, password=password)
    return password
