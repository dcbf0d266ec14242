"""Test the checks of settings of a project; those of its apps are tested in test_django_project.py."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from tracesite import project_checks
from tracesite.http.in_project import TracesiteMiddleware

IN_PROJECT = f"{TracesiteMiddleware.__module__}.{TracesiteMiddleware.__name__}"


def ids() -> list[str]:
    found = project_checks.check_project(None)
    assert all(message.hint for message in found)
    return [str(message.id).removeprefix("tracesite.") for message in found]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"MIDDLEWARE": [*project_checks.BEFORE_OURS, IN_PROJECT]}, []),
        ({"MIDDLEWARE": project_checks.BEFORE_OURS}, ["E018"]),
        ({"MIDDLEWARE": [IN_PROJECT, *project_checks.BEFORE_OURS]}, ["E019"] * 3),
        ({"MIDDLEWARE": [*project_checks.BEFORE_OURS[:2], IN_PROJECT]}, ["E019"]),
        ({"USE_TZ": False}, ["E022"]),
        ({"ROOT_URLCONF": "traces_app.urls"}, ["E023"]),
    ],
)
def test_checks_name_what_settings_lack(changed: dict[str, Any], expected: list[str]) -> None:
    with override_settings(**changed):
        assert ids() == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("ENGINE", "django.db.backends.postgresql", "E020"), ("ATOMIC_REQUESTS", True, "E021")],
)
def test_checks_name_what_the_database_lacks(
    name: str, value: object, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], name, value)
    assert ids() == [expected]


def test_checks_name_what_a_database_of_its_own_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_checks, "PEOPLE_ARE_HERE", False)
    assert ids() == ["E025"]
    with override_settings(DATABASE_ROUTERS=[project_checks.ROUTER]):
        assert ids() == []
    monkeypatch.setattr(project_checks, "PRIMARY", "traces")
    assert ids() == ["E024"]
