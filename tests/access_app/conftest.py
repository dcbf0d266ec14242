"""The cast of the access tests: two projects, a key of the first, a superuser and a member of staff without rights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access_app.keys import create_key
from access_app.models import ApiKey, Project


@pytest.fixture
def token(project: Project) -> str:
    """The token of a key of `project` that may do everything."""
    return create_key(project, "agent", ["read", "write", "delete"])[1]


@pytest.fixture
def key(token: str) -> ApiKey:
    return ApiKey.objects.select_related("project").get(prefix=token[:8])


@pytest.fixture
def superuser(db: None) -> User:
    return User.objects.create_superuser("ada", password="x")


@pytest.fixture
def staff(db: None) -> User:
    return User.objects.create_user("bob", password="x", is_staff=True)


@pytest.fixture
def login() -> Callable[[User], Client]:
    def login(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return login
