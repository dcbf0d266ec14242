"""Requests are known by a key in one of two headers, or by a session of staff with its CSRF token."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator

from access_app.keys import create_key, revoke_key
from access_app.models import ApiKey, Project, Role
from access_app.roles import grant_role

pytestmark = pytest.mark.urls("tests.access_app.urls")

WHO = "/api/who/"


@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
@pytest.mark.parametrize("scheme", ["Bearer ", "bearer   "])
def test_a_key_opens_its_project_by_either_header(client: Client, token: str, header: str, scheme: str) -> None:
    value = scheme + token if header == "Authorization" else f" {token} "

    answer = client.get(WHO, headers={header: value})

    assert (answer.status_code, answer.json()) == (200, {"user": f"agent ({token[:8]}…)", "projects": ["owner"]})


def test_login_of_a_request_is_read_once(client: Client, staff: User, project: Project) -> None:
    grant_role(project, staff, Role.VIEWER)
    client.force_login(staff)
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(WHO)
    assert (answer.status_code, answer.json()) == (200, {"user": "bob", "projects": ["owner"]})
    assert sum('FROM "auth_user"' in query["sql"] for query in queries) == 1


def test_request_without_credentials_gets_401_naming_the_header(client: Client, db: None) -> None:
    answer = client.get(WHO)

    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.json() == {
        "error": {
            "code": "not_authenticated",
            "message": "An API key is required. Send it as “Authorization: Bearer ts_…” or “X-API-Key: ts_…”.",
            "field": None,
            "request_id": answer.headers["X-Request-ID"],
        }
    }


@pytest.mark.parametrize("value", ["Bearer", "Bearer ts_wrong", "Bearer ts_é", "Bearer a b", "Basic YTpi"])
def test_a_wrong_key_is_answered_401(client: Client, key: ApiKey, value: str) -> None:
    answer = client.get(WHO, headers={"Authorization": value})

    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == ("not_authenticated" if value == "Basic YTpi" else "invalid_api_key")


def test_revoked_and_expired_keys_are_answered_401(client: Client, project: Project, key: ApiKey, token: str) -> None:
    ends, expiring = create_key(project, "short", ["read"], expires_at=timezone.now() + timedelta(hours=1))
    ApiKey.objects.filter(pk=ends.pk).update(expires_at=timezone.now())
    revoke_key(key)

    codes = [client.get(WHO, headers={"X-API-Key": each}).json()["error"]["code"] for each in (token, expiring)]

    assert codes == ["invalid_api_key", "invalid_api_key"]


def test_a_wrong_key_is_refused_even_with_a_good_session(login: Callable[[User], Client], superuser: User) -> None:
    assert login(superuser).get(WHO, headers={"X-API-Key": "ts_wrong"}).status_code == 401


def test_a_superuser_sees_all_projects_and_other_staff_none(
    login: Callable[[User], Client], superuser: User, staff: User, project: Project, stranger: Project
) -> None:
    assert login(superuser).get(WHO).json() == {"user": "ada", "projects": ["owner", "stranger"]}
    assert login(staff).get(WHO).status_code == 403


def test_session_of_former_or_inactive_staff_is_refused(login: Callable[[User], Client], superuser: User) -> None:
    client = login(superuser)
    User.objects.filter(pk=superuser.pk).update(is_staff=False)
    assert client.get(WHO).status_code == 401

    User.objects.filter(pk=superuser.pk).update(is_staff=True, is_active=False)
    assert client.get(WHO).status_code == 401


def test_a_session_that_changes_something_needs_the_csrf_token(superuser: User, project: Project) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(superuser)

    refused = client.post(WHO, {}, content_type="application/json")
    client.get("/admin/password_change/")  # a page with a form, which sets the cookie
    csrf_token = client.cookies["csrftoken"].value
    accepted = client.post(WHO, {}, content_type="application/json", headers={"X-CSRFToken": csrf_token})

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "csrf_failed")
    assert "X-CSRFToken" in refused.json()["error"]["message"]
    assert (accepted.status_code, accepted.json()) == (200, {"project": "owner"})


def test_a_key_needs_no_csrf_token(token: str) -> None:
    client = Client(enforce_csrf_checks=True)

    assert client.post(WHO, {}, content_type="application/json", headers={"X-API-Key": token}).status_code == 200


def test_the_schema_shows_both_headers_and_the_session() -> None:
    schema = SchemaGenerator(urlconf="tests.access_app.urls").get_schema(request=None, public=True)

    assert schema["components"]["securitySchemes"] == {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "ts_…"},
        "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "staffSession": {"type": "apiKey", "in": "cookie", "name": "sessionid"},
    }
    assert schema["paths"]["/api/restore/"]["post"]["security"] == [
        {"bearer": []},
        {"apiKey": []},
        {"staffSession": []},
    ]
