"""Prepare a database when `serve` first uses it: a project with an API key, a superuser, and for `--demo` sample traces, unless they exist."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password

from access_app.conf import conf
from access_app.db import Database
from access_app.keys import create_key
from access_app.models import Project, Scope
from traces_app.ingest.prices import forget_prices
from traces_app.models import ModelPrice

from .samples.loader import load_samples

ADMIN = "admin"
DEMO = "demo"
"""The slug of the project with the sample traces."""
OWN = "main"
"""The slug of the project that a database without samples begins with."""
KEY_NAME = "serve --demo"


@dataclass(frozen=True, kw_only=True)
class Made:
    """Everything that was created. The secrets are stored nowhere else, so the caller must show them."""

    sessions: int = 0
    password: str | None = None
    """The password of ADMIN; None if a superuser existed or the password comes from the settings."""
    api_key: str | None = None


def prepare_empty(db: Database) -> Made:
    """Create OWN, an API key and a superuser in a database without projects. Raises ValidationError if conf.ADMIN_PASSWORD is too weak."""
    with db.atomic():
        if Project.objects.exists():
            return Made()
        project = Project.objects.create(slug=OWN, name="Main")
        return Made(password=_provide_admin(), api_key=create_key(project, name="serve", scopes=list(Scope))[1])


def prepare_demo(db: Database) -> Made:
    """Load the samples into a database without projects and create a superuser if there is none.

    ADMIN's password is conf.ADMIN_PASSWORD if that is set. The next run completes an interrupted one. Raises
    ValidationError if conf.ADMIN_PASSWORD is too weak.
    """
    sessions = 0
    demo = Project.objects.filter(slug=DEMO).first()
    if demo is None and not Project.objects.exists():
        demo = Project.objects.create(slug=DEMO, name="Demo")
    # The key is created last, so its row shows that the samples were loaded, even after it was revoked.
    is_new = demo is not None and not demo.api_keys.filter(name=KEY_NAME).exists()
    if demo is not None and is_new:
        _price_models(demo)
        sessions = load_samples(db, demo)
    # In one transaction, because a password or key that is stored but never shown is useless.
    with db.atomic():
        password = _provide_admin()
        api_key = None
        if demo is not None and is_new:
            _, api_key = create_key(demo, name=KEY_NAME, scopes=list(Scope))
    return Made(sessions=sessions, password=password, api_key=api_key)


def _price_models(demo: Project) -> None:
    """Give the scripted models of the samples a price, so that their sessions show what costs look like."""
    ModelPrice.objects.get_or_create(
        project=demo,
        model="scripted-*",
        defaults={
            "input": Decimal("2"),
            "output": Decimal("8"),
            "as_of": date(2026, 11, 1),
            "source": "made up: the models of the samples are scripted",
        },
    )
    forget_prices()


def superuser() -> str | None:
    """Return the user to log in as: ADMIN, or the first superuser of a database that was in use before; None if there is none."""
    users = get_user_model()._default_manager.filter(is_superuser=True).order_by("pk")
    names = [user.get_username() for user in users]
    return ADMIN if ADMIN in names else next(iter(names), None)


def project() -> str:
    """Return the project to create a key for: DEMO, or the first project of a database that was in use before."""
    slugs = list(Project.objects.order_by("pk").values_list("slug", flat=True))
    return DEMO if DEMO in slugs or not slugs else slugs[0]


def _provide_admin() -> str | None:
    users = get_user_model()._default_manager
    admin = users.filter(username=ADMIN).first()
    if conf.ADMIN_PASSWORD:
        if admin is None:
            validate_password(conf.ADMIN_PASSWORD)
            users.create_superuser(ADMIN, password=conf.ADMIN_PASSWORD)
        elif not admin.check_password(conf.ADMIN_PASSWORD):
            validate_password(conf.ADMIN_PASSWORD, admin)
            admin.set_password(conf.ADMIN_PASSWORD)
            admin.save(update_fields=["password"])
        return None
    if admin is not None or users.filter(is_superuser=True).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(ADMIN, password=password)
    return password
