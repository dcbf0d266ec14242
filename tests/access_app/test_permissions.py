"""Scopes say what a key may do, and its project where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project

pytestmark = pytest.mark.urls("tests.access_app.urls")

WHO, RESTORE = "/api/who/", "/api/restore/"


def request(client: Client, method: str, path: str, token: str) -> int:
    return client.generic(method, path, "{}", "application/json", headers={"X-API-Key": token}).status_code


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read", {"GET", "HEAD", "OPTIONS"}),
        ("write", {"POST", "PUT", "PATCH"}),
        ("delete", {"DELETE", "restore"}),
    ],
)
def test_each_method_needs_exactly_its_scope(client: Client, project: Project, scope: str, allowed: set[str]) -> None:
    _key, token = create_key(project, "agent", [scope])

    statuses = {
        method: request(client, method, WHO, token)
        for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
    }
    statuses["restore"] = request(client, "POST", RESTORE, token)

    assert {method for method, status in statuses.items() if status == 200} == allowed
    assert {status for method, status in statuses.items() if method not in allowed} == {403}


def test_the_refusal_names_the_scope_that_is_missing(client: Client, project: Project) -> None:
    key, token = create_key(project, "agent", ["read"])

    answer = client.post(WHO, {}, content_type="application/json", headers={"X-API-Key": token})

    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "missing_scope"
    assert answer.json()["error"]["message"] == f"The scope “write” is required. The key {key.prefix}… has: read."


def test_a_view_may_ask_for_more_than_the_method_does(client: Client, project: Project) -> None:
    _key, reader = create_key(project, "agent", ["read"])
    _key, deleter = create_key(project, "agent", ["read", "delete"])

    assert request(client, "GET", WHO + "?deleted=true", reader) == 403
    assert request(client, "GET", WHO + "?deleted=true", deleter) == 200


def write(client: Client, body: dict[str, Any], **headers: str) -> tuple[int, Any]:
    answer = client.post(WHO, body, content_type="application/json", headers=headers)
    return answer.status_code, answer.json().get("project") or (
        answer.json()["error"]["code"],
        answer.json()["error"]["field"],
    )


def test_a_key_writes_to_its_own_project_and_knows_no_other(client: Client, token: str, stranger: Project) -> None:
    key = {"X-API-Key": token}

    assert write(client, {}, **key) == (200, "owner")
    assert write(client, {"project": "owner"}, **key) == (200, "owner")
    assert write(client, {"project": "stranger"}, **key) == (404, ("not_found", "project"))
    assert write(client, {"project": "nowhere"}, **key) == (404, ("not_found", "project"))
    assert write(client, {"project": "\x00"}, **key) == (404, ("not_found", "project"))


def test_a_superuser_names_the_project_unless_there_is_only_one(
    login: Callable[[User], Client], superuser: User, db: None
) -> None:
    client = login(superuser)

    assert write(client, {}) == (400, ("invalid_input", "project"))
    Project.objects.create(slug="owner")
    assert write(client, {}) == (200, "owner")
    Project.objects.create(slug="stranger")
    assert write(client, {}) == (400, ("invalid_input", "project"))
    assert write(client, {"project": "stranger"}) == (200, "stranger")
    assert write(client, {"project": "nowhere"}) == (404, ("not_found", "project"))


def test_other_staff_write_nowhere(login: Callable[[User], Client], staff: User, project: Project) -> None:
    assert write(login(staff), {}) == (403, ("missing_role", None))
    assert write(login(staff), {"project": "owner"}) == (403, ("missing_role", None))
