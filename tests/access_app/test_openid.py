"""Logins through a real OpenID provider that runs beside the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.test.utils import override_script_prefix
from django.urls import include, path

from access_app.models import Project, Role
from access_app.roles import grant_role
from sdk.tests.ports import free_port
from tracesite import site_urls

CALLBACK = "/oidc/callback/"


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of a provider."""
    port = free_port()
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while True:
            try:
                httpx.get(f"{address}/.well-known/openid-configuration").raise_for_status()
                break
            except httpx.TransportError:
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def site(provider: str, settings: Any, db: None) -> Client:
    """A browser of a site whose users this provider checks."""
    known = httpx.get(f"{provider}/.well-known/openid-configuration").json()
    settings.TRACESITE_OIDC_ISSUER = known["issuer"]
    settings.OIDC_OP_AUTHORIZATION_ENDPOINT = known["authorization_endpoint"]
    settings.OIDC_OP_TOKEN_ENDPOINT = known["token_endpoint"]
    settings.OIDC_OP_USER_ENDPOINT = known["userinfo_endpoint"]
    settings.OIDC_OP_JWKS_ENDPOINT = known["jwks_uri"]
    settings.OIDC_VERIFY_KID = False  # this provider has one key, without a name
    settings.OIDC_RP_CLIENT_ID, settings.OIDC_RP_CLIENT_SECRET = "tracesite", "secret"
    settings.AUTHENTICATION_BACKENDS = [*settings.AUTHENTICATION_BACKENDS, "access_app.openid.OpenIdBackend"]
    with_openid = ModuleType("urls_with_openid")
    with_openid.urlpatterns = [*site_urls.urlpatterns, path("oidc/", include("access_app.openid"))]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = with_openid
    return Client()


def to_callback(site: Client, provider: str, subject: str, after: str = "", **claims: Any) -> str:
    """Log in at the provider. Return the path to which it sends the browser back."""
    httpx.put(f"{provider}/users/{subject}", json=claims).raise_for_status()
    asked = site.get("/oidc/authenticate/", {"next": after})
    answer = httpx.post(asked.headers["Location"], data={"sub": subject})
    assert answer.status_code in (302, 303), answer.text
    return answer.headers["Location"].removeprefix("http://testserver")


def log_in(site: Client, provider: str, subject: str, after: str = "", **claims: Any) -> Any:
    return site.get(to_callback(site, provider, subject, after, **claims))


def user_of(client: Client) -> User | None:
    return User.objects.filter(pk=client.session.get("_auth_user_id")).first()


@pytest.mark.system
def test_groups_of_the_provider_give_and_take_roles(site: Client, provider: str, project: Project) -> None:
    grant_role(project, Group.objects.create(name="on-call"), Role.ANALYST)
    assert 'href="/oidc/authenticate/' in site.get("/admin/login/").content.decode()
    answer = log_in(site, provider, "1", "/admin/password_change/", preferred_username="eve", groups=["x", "on-call"])
    assert answer.headers["Location"] == "/admin/password_change/"
    eve = User.objects.get(username="eve")
    assert (eve.is_staff, eve.is_superuser, eve.has_usable_password()) == (True, False, False)
    assert site.get("/api/v1/sessions/").status_code == 200

    # The next login takes the role away, in all sessions.
    other = Client()
    log_in(other, provider, "1", preferred_username="eve", groups="another")
    assert user_of(other) == eve
    assert other.get("/api/v1/sessions/").status_code == site.get("/api/v1/sessions/").status_code == 403
    # What is no list of names gives no role.
    for odd in ({"on-call": 1}, [{"name": "on-call"}, 7, "\x00on-call"], 7, None):
        log_in(other, provider, "1", preferred_username="eve", groups=odd)
        assert user_of(other) == eve and not eve.groups.exists()
    log_in(other, provider, "1", preferred_username="eve")
    assert not eve.groups.exists()


@pytest.mark.system
def test_local_user_and_unusable_names_are_refused(site: Client, provider: str) -> None:
    User.objects.create_superuser("root", password="a right and long password")
    inactive = User(username="gone", is_active=False)
    inactive.set_unusable_password()
    inactive.save()
    for claims in (
        {"preferred_username": "root"},
        {"preferred_username": "gone"},
        {},
        {"preferred_username": "a" * 151},
    ):
        refused = log_in(site, provider, "2", **claims)
        assert refused.headers["Location"] == "/admin/login/"
        assert user_of(site) is None
    assert "The login through single sign-on failed." in site.get("/admin/login/").content.decode()
    assert {user.username for user in User.objects.all()} == {"root", "gone"}


@pytest.mark.system
def test_answer_counts_once_and_for_its_browser(site: Client, provider: str) -> None:
    callback = to_callback(site, provider, "3", preferred_username="eve")
    stranger = Client(raise_request_exception=False)
    with override_script_prefix("/below/"):  # where a server may put the whole site
        assert stranger.get(callback).headers["Location"] == "/below/admin/login/"
    assert user_of(stranger) is None
    site.get(callback)
    assert user_of(site) is not None
    site.logout()
    site.get("/oidc/authenticate/")
    assert site.get(callback).status_code == 400
    assert user_of(site) is None


@pytest.mark.system
@pytest.mark.parametrize("after", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_login_does_not_redirect_elsewhere(site: Client, provider: str, after: str) -> None:
    assert log_in(site, provider, "4", after, preferred_username="eve").headers["Location"] == "/admin/"


@pytest.mark.system
def test_tokens_of_another_issuer_or_for_another_client_are_refused(site: Client, provider: str, settings: Any) -> None:
    for name, value in (("TRACESITE_OIDC_ISSUER", "https://other.example"), ("OIDC_RP_CLIENT_ID", "another")):
        callback = to_callback(site, provider, "5", preferred_username="eve")
        right = getattr(settings, name)
        setattr(settings, name, value)
        site.get(callback)
        setattr(settings, name, right)
        assert user_of(site) is None, name


@pytest.mark.system
def test_provider_that_fails_is_no_failure_of_the_site(site: Client, provider: str, settings: Any) -> None:
    callback = to_callback(site, provider, "6", preferred_username="eve")
    settings.OIDC_VERIFY_KID = True
    assert site.get(callback).headers["Location"] == "/admin/login/"
    callback = to_callback(site, provider, "6", preferred_username="eve")
    settings.OIDC_OP_TOKEN_ENDPOINT = "http://127.0.0.1:1/token"
    assert site.get(callback).headers["Location"] == "/admin/login/"
    User.objects.create_user("ada", password="p", is_staff=True)
    assert site.post("/admin/login/", {"username": "ada", "password": "p"}).status_code == 302


@pytest.mark.system
@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (
            {"ISSUER": "https://login.example"},
            "TRACESITE_OIDC_ISSUER also needs TRACESITE_OIDC_AUTHORIZATION_ENDPOINT,",
        ),
        ({"ISSUER": "http://login.example"}, "use an address such as https://"),
    ],
)
def test_settings_are_complete_and_encrypted(variables: dict[str, str], text: str) -> None:
    environment = {**os.environ, **{f"TRACESITE_OIDC_{name}": value for name, value in variables.items()}}
    ran = subprocess.run(
        [sys.executable, "-c", "import tracesite.settings"], env=environment, capture_output=True, text=True
    )
    assert text in ran.stderr, json.dumps(variables)
