"""Tests of tracesite/samples/demo.py."""

from __future__ import annotations

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from pytest_django import Settings

from access_app.models import ApiKey, Project, Scope
from messages_app.models import Session
from tracesite.samples import demo

pytestmark = pytest.mark.django_db
NOTHING_NEW = demo.Made(sessions=0, password=None, api_key=None)


def test_an_empty_database_gets_samples_a_login_and_a_key_whose_secrets_are_told_once() -> None:
    made = demo.prepare()

    project = Project.objects.get()
    assert (project.slug, made.sessions) == ("demo", Session.objects.filter(project=project).count())
    user = authenticate(HttpRequest(), username="admin", password=made.password)
    assert user is not None
    assert (user.is_staff, user.is_superuser) == (True, True)
    key = ApiKey.objects.get(project=project)
    assert made.api_key is not None
    assert made.api_key.startswith(key.prefix)
    assert set(key.scopes) == set(Scope)

    assert demo.prepare() == NOTHING_NEW
    assert (Session.objects.count(), ApiKey.objects.count()) == (made.sessions, 1)


def test_a_revoked_key_is_not_made_again() -> None:
    demo.prepare()
    ApiKey.objects.update(revoked_at="2026-01-01T00:00:00Z")
    assert demo.prepare() == NOTHING_NEW


def test_a_run_that_was_interrupted_is_completed_by_the_next() -> None:
    Project.objects.create(slug="demo")
    made = demo.prepare()
    assert None not in {made.password, made.api_key}
    assert made.sessions == Session.objects.count()


def test_a_database_in_use_gets_no_samples() -> None:
    Project.objects.create(slug="ours")
    made = demo.prepare()
    assert (made.sessions, made.api_key) == (0, None)
    assert [project.slug for project in Project.objects.all()] == ["ours"]


def test_where_there_is_a_superuser_no_other_is_made() -> None:
    get_user_model()._default_manager.create_superuser("root", password="something long 1")
    assert demo.prepare().password is None
    assert not get_user_model()._default_manager.filter(username="admin").exists()


def test_the_password_of_the_settings_is_set_at_any_run_and_not_told(settings: Settings) -> None:
    made = demo.prepare()
    settings.ADMIN_PASSWORD = "chosen by the operator"
    assert demo.prepare().password is None
    assert authenticate(HttpRequest(), username="admin", password=made.password) is None
    assert authenticate(HttpRequest(), username="admin", password="chosen by the operator") is not None


def test_a_password_of_the_settings_that_is_easily_guessed_is_refused(settings: Settings) -> None:
    settings.ADMIN_PASSWORD = "admin"
    with pytest.raises(ValidationError, match="too short"):
        demo.prepare()
    assert not get_user_model()._default_manager.exists()


@pytest.mark.django_db
def test_in_a_database_that_was_in_use_the_hints_name_what_is_there() -> None:
    assert (demo.superuser(), demo.project()) == (demo.ADMIN, demo.PROJECT)
    get_user_model()._default_manager.create_superuser("grace", password="a-long-password")
    Project.objects.create(slug="support")
    assert (demo.superuser(), demo.project()) == ("grace", "support")
