"""Tests of tracesite/first_start.py."""

from __future__ import annotations

from io import StringIO

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.http import HttpRequest
from pytest_django import Settings

from access_app.db import primary
from access_app.models import ApiKey, Project, Scope
from messages_app.models import Session
from tracesite import first_start

pytestmark = pytest.mark.django_db
NOTHING_NEW = first_start.Made()


def test_prepare_empty_database_returns_secrets_once() -> None:
    made = first_start.prepare_demo(primary)

    project = Project.objects.get()
    assert (project.slug, made.sessions) == ("demo", Session.objects.filter(project=project).count())
    user = authenticate(HttpRequest(), username="admin", password=made.password)
    assert user is not None
    assert (user.is_staff, user.is_superuser) == (True, True)
    key = ApiKey.objects.get(project=project)
    assert made.api_key is not None
    assert made.api_key.startswith(key.prefix)
    assert set(key.scopes) == set(Scope)

    assert first_start.prepare_demo(primary) == NOTHING_NEW
    assert (Session.objects.count(), ApiKey.objects.count()) == (made.sessions, 1)


def test_empty_database_gets_project_key_and_login_once() -> None:
    made = first_start.prepare_empty(primary)
    key = ApiKey.objects.get(project__slug="main")
    assert made.api_key is not None
    assert (made.sessions, made.api_key[: len(key.prefix)]) == (0, key.prefix)
    assert authenticate(HttpRequest(), username="admin", password=made.password) is not None
    assert not Session.objects.exists()
    assert first_start.prepare_empty(primary) == NOTHING_NEW


def test_database_in_use_gets_nothing_without_demo() -> None:
    Project.objects.create(slug="ours")
    assert first_start.prepare_empty(primary) == NOTHING_NEW
    assert not get_user_model()._default_manager.exists()


def test_samples_have_costs() -> None:
    first_start.prepare_demo(primary)
    assert Session.objects.filter(cost__gt=0, unpriced_count=0).count() > 10


def test_check_traces_finds_no_problems_in_the_samples() -> None:
    first_start.prepare_demo(primary)
    out = StringIO()
    call_command("check_traces", stdout=out)
    assert "no problems" in out.getvalue()


def test_prepare_does_not_replace_revoked_key() -> None:
    first_start.prepare_demo(primary)
    ApiKey.objects.update(revoked_at="2026-01-01T00:00:00Z")
    assert first_start.prepare_demo(primary) == NOTHING_NEW


def test_prepare_completes_interrupted_run() -> None:
    Project.objects.create(slug="demo")
    made = first_start.prepare_demo(primary)
    assert None not in {made.password, made.api_key}
    assert made.sessions == Session.objects.count()


def test_prepare_used_database_loads_no_samples() -> None:
    Project.objects.create(slug="ours")
    made = first_start.prepare_demo(primary)
    assert (made.sessions, made.api_key) == (0, None)
    assert [project.slug for project in Project.objects.all()] == ["ours"]


def test_prepare_with_superuser_creates_no_other() -> None:
    get_user_model()._default_manager.create_superuser("root", password="something long 1")
    assert first_start.prepare_demo(primary).password is None
    assert not get_user_model()._default_manager.filter(username="admin").exists()


def test_prepare_sets_password_of_settings_without_showing_it(settings: Settings) -> None:
    made = first_start.prepare_demo(primary)
    settings.TRACESITE_ADMIN_PASSWORD = "chosen by the operator"
    assert first_start.prepare_demo(primary).password is None
    assert authenticate(HttpRequest(), username="admin", password=made.password) is None
    assert authenticate(HttpRequest(), username="admin", password="chosen by the operator") is not None


def test_prepare_refuses_weak_password_of_settings(settings: Settings) -> None:
    settings.TRACESITE_ADMIN_PASSWORD = "admin"
    with pytest.raises(ValidationError, match="too short"):
        first_start.prepare_demo(primary)
    assert not get_user_model()._default_manager.exists()


@pytest.mark.django_db
def test_hints_name_existing_superuser_and_project() -> None:
    assert (first_start.superuser(), first_start.project()) == (None, first_start.DEMO)
    get_user_model()._default_manager.create_superuser("grace", password="a-long-password")
    Project.objects.create(slug="support")
    assert (first_start.superuser(), first_start.project()) == ("grace", "support")
