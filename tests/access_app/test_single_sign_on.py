"""A proxy names the user and its groups in headers."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from access_app.models import Project, Role
from access_app.roles import grant_role
from access_app.visibility import ALL_PROJECTS
from tracesite.live.admission import NotAuthenticated, no_longer_admitted, viewer_of_login

HOME = "/admin/"


@pytest.fixture
def proxied(settings: Any, db: None) -> Client:
    """A client whose headers are those of a proxy."""
    settings.TRACESITE_REMOTE_USER_HEADER, settings.TRACESITE_REMOTE_GROUPS_HEADER = (
        "X-Forwarded-User",
        "X-Forwarded-Groups",
    )
    # Where the settings put it: what follows asks who is logged in.
    place = settings.MIDDLEWARE.index("django.contrib.auth.middleware.AuthenticationMiddleware") + 1
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE[:place],
        "access_app.single_sign_on.ProxyUserMiddleware",
        *settings.MIDDLEWARE[place:],
    ]
    settings.AUTHENTICATION_BACKENDS = [
        "axes.backends.AxesStandaloneBackend",
        "access_app.single_sign_on.ProxyUserBackend",
        "django.contrib.auth.backends.ModelBackend",
    ]
    return Client()


def test_user_of_the_header_is_made_and_sees_what_its_groups_may(proxied: Client, project: Project) -> None:
    grant_role(project, Group.objects.create(name="on-call"), Role.ANALYST)
    headers = {"X-Forwarded-User": "eve@example.org", "X-Forwarded-Groups": "unknown, on-call"}

    assert proxied.get(HOME, headers=headers).status_code == 200
    eve = User.objects.get(username="eve@example.org")
    assert (eve.is_staff, eve.is_superuser, eve.has_usable_password()) == (True, False, False)
    assert proxied.get("/api/v1/sessions/", headers=headers).status_code == 200
    # Later requests of the login keep its groups; the next login takes those of its header.
    without = {**headers, "X-Forwarded-Groups": ""}
    assert proxied.get("/api/v1/sessions/", headers=without).status_code == 200
    assert Client().get("/api/v1/sessions/", headers=without).status_code == 403


def test_login_ends_with_the_header(proxied: Client) -> None:
    assert proxied.get(HOME, headers={"X-Forwarded-User": "eve"}).status_code == 200
    assert proxied.get(HOME).status_code == 302
    proxied.get(HOME, headers={"X-Forwarded-User": "eve"})
    proxied.get(HOME, headers={"X-Forwarded-User": "bob"})
    assert User.objects.get(pk=proxied.session["_auth_user_id"]).username == "bob"


def test_stream_ends_with_the_header_like_a_page(transactional_db: None, proxied: Client) -> None:
    proxied.get(HOME, headers={"X-Forwarded-User": "eve"})
    cookie = proxied.session.session_key or ""
    viewer = viewer_of_login(cookie, proxy_user="eve")
    assert viewer.proxy_user == "eve"
    assert no_longer_admitted([viewer]) == set()
    for name in ("", "bob"):
        with pytest.raises(NotAuthenticated):
            viewer_of_login(cookie, proxy_user=name)
    # A login by password needs no header, but ends with one of somebody else.
    boss = Client()
    boss.force_login(User.objects.create_superuser("boss"), "django.contrib.auth.backends.ModelBackend")
    assert viewer_of_login(boss.session.session_key or "").projects == ALL_PROJECTS
    with pytest.raises(NotAuthenticated):
        viewer_of_login(boss.session.session_key or "", proxy_user="eve")


def test_name_that_cannot_be_stored_is_not_logged_in(proxied: Client) -> None:
    headers = {"X-Forwarded-User": "a" * 151}
    assert proxied.get(HOME, headers=headers).status_code == 302
    assert proxied.get("/api/v1/sessions/", headers=headers).status_code == 401
    assert not User.objects.exists()


def test_inactive_user_is_not_logged_in(proxied: Client) -> None:
    User.objects.create_user("eve", is_staff=True, is_active=False)
    assert proxied.get(HOME, headers={"X-Forwarded-User": "eve"}).status_code == 302


def test_header_is_ignored_unless_it_is_set(client: Client, db: None) -> None:
    assert client.get(HOME, headers={"X-Forwarded-User": "eve"}).status_code == 302
    assert not User.objects.exists()


@pytest.mark.system
@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"TRACESITE_REMOTE_USER_HEADER": "X-User"}, "set TRACESITE_HTTPS=true if you have one"),
        (
            {"TRACESITE_REMOTE_USER_HEADER": "X User", "TRACESITE_HTTPS": "true"},
            "use the name of a header, such as X-Remote-User",
        ),
        ({"TRACESITE_REMOTE_USER_HEADER": "X-User", "TRACESITE_HTTPS": "true"}, ""),
    ],
)
def test_header_needs_a_proxy(variables: dict[str, str], text: str) -> None:
    code = "import django; django.setup(); from django.conf import settings; print(settings.MIDDLEWARE)"
    ran = subprocess.run([sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True)
    if text:
        assert text in ran.stderr
    else:
        assert "ProxyUserMiddleware" in ran.stdout
