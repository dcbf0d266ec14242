"""Two-factor login with real codes: set-up, login, recovery codes, resets, and what it takes to do without."""

from __future__ import annotations

import re
import time
from base64 import b32decode
from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django_otp.oath import TOTP
from django_otp.plugins.otp_static.models import StaticDevice, StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice

from access_app.models import AuditEntry, Project, Role
from access_app.roles import grant_role
from tracesite.live.admission import NotAuthenticated, viewer_of_login

LOGIN, CODE, PAGE = "/admin/login/", "/admin/login/code/", "/admin/two-factor/"
PASSWORD = "a right and long password"


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada", password=PASSWORD, is_staff=True)


def log_in(code: str = "", *, name: str = "ada", password: str = PASSWORD, **extra: Any) -> Client:
    client = Client()
    asked = client.post(LOGIN, {"username": name, "password": password}, **extra)
    if code and "Location" in asked.headers:
        client.post(asked.headers["Location"], {"code": code}, **extra)
    return client


def is_logged_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def text_of(response: Any) -> str:
    return str(response.content.decode())


def key_on(page: str) -> bytes:
    found = re.search(r'<pre id="key">([A-Z2-7 ]+)</pre>', page)
    assert found, page
    return b32decode(found[1].replace(" ", ""))


def code_of(key: bytes, steps_ahead: int = 0) -> str:
    """The code that an app with this key shows; each step has another one."""
    totp = TOTP(key)
    totp.time = time.time() + 30 * steps_ahead
    return f"{totp.token():06}"


def codes_on(page: str) -> list[str]:
    return page.partition('<pre id="codes">')[2].partition("</pre>")[0].split()


def forget_waits() -> None:
    """End the wait after a wrong code."""
    TOTPDevice.objects.update(throttling_failure_count=0, throttling_failure_timestamp=None)
    StaticDevice.objects.update(throttling_failure_count=0, throttling_failure_timestamp=None)


@pytest.fixture
def app(ada: User) -> tuple[bytes, list[str]]:
    """The key of ada's app, which is set up, and the recovery codes."""
    client = log_in()
    client.post(PAGE, {"action": "begin", "password": PASSWORD})
    key = key_on(text_of(client.get(PAGE)))
    codes = codes_on(text_of(client.post(PAGE, {"action": "confirm", "code": code_of(key)})))
    # The app shows no new code within the same 30 s.
    TOTPDevice.objects.update(last_t=-1)
    return key, codes


def test_set_up_asks_for_password_and_first_code(ada: User) -> None:
    client = log_in()
    assert "This is not your password." in text_of(client.post(PAGE, {"action": "begin", "password": "wrong"}))
    assert not TOTPDevice.objects.exists()
    client.post(PAGE, {"action": "begin", "password": PASSWORD})
    page = text_of(client.get(PAGE))
    assert 'src="data:image/svg+xml' in page and "http" not in re.findall(r'<img src="([^"]*)', page)[0][:20]
    # Until the app has shown a code, the login needs none.
    assert is_logged_in(log_in())
    wrong = f"{(int(code_of(key_on(page))) + 1) % 1_000_000:06}"
    assert "This code is not valid." in text_of(client.post(PAGE, {"action": "confirm", "code": wrong}))
    forget_waits()
    assert len(codes_on(text_of(client.post(PAGE, {"action": "confirm", "code": code_of(key_on(page))})))) == 10
    assert not is_logged_in(log_in())
    assert not re.search(r'id="key"', text_of(client.get(PAGE)))
    entry = AuditEntry.objects.get(action="change", detail__has_key="two_factor")
    assert (entry.actor_name, entry.object_name, entry.detail) == ("ada", "ada", {"two_factor": "on"})


def test_login_needs_a_code_that_works_once(app: tuple[bytes, list[str]]) -> None:
    key, codes = app
    for refused in ("", "123", "abcd-efgh-jkmn", "x" * 1000, "\x00", "１２３４５６"):
        assert not is_logged_in(log_in(refused)), refused
    forget_waits()
    assert not is_logged_in(log_in(code_of(key), password="wrong"))
    code = code_of(key)
    assert is_logged_in(log_in(f" {code[:3]} {code[3:]}"))
    assert not is_logged_in(log_in(code))
    forget_waits()
    assert is_logged_in(log_in(codes[0].upper().replace("-", " ")))
    assert not is_logged_in(log_in(codes[0]))
    # A code of one user is none of another's.
    User.objects.create_user("eve", password=PASSWORD, is_staff=True)
    assert is_logged_in(log_in(name="eve"))


def test_only_the_right_password_leads_to_the_code(app: tuple[bytes, list[str]]) -> None:
    def answer(name: str) -> str:
        page = text_of(Client().post(LOGIN, {"username": name, "password": "wrong"}))
        return re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", page).replace(name, "")

    User.objects.create_user("eve", password=PASSWORD, is_staff=True)
    assert answer("ada") == answer("eve") == answer("nobody")
    assert Client().get(CODE).headers["Location"] == LOGIN
    assert Client().post(CODE, {"code": code_of(app[0])}).headers["Location"] == LOGIN
    AccessAttempt.objects.all().delete()
    client = Client()
    asked = client.post(LOGIN, {"username": "ada", "password": PASSWORD, "next": "/admin/settings/"})
    assert asked.headers["Location"] == f"{CODE}?next=%2Fadmin%2Fsettings%2F"
    assert not is_logged_in(client) and not AccessAttempt.objects.exists(), "it is no failed login"
    page = text_of(client.get(asked.headers["Location"]))
    assert 'name="code"' in page and 'name="password"' not in page
    assert "Log in as <bdi>ada</bdi>." in page and f'href="{LOGIN}?next=/admin/settings/"' in page.replace("%2F", "/")
    assert "This code is not valid." in text_of(client.post(CODE, {"code": "000000"}))
    assert AccessAttempt.objects.get().failures_since_start == 1
    forget_waits()
    answered = client.post(asked.headers["Location"], {"code": code_of(app[0]), "next": "/admin/settings/"})
    assert answered.headers["Location"] == "/admin/settings/" and is_logged_in(client)
    assert not AccessAttempt.objects.exists()


def test_code_is_too_late_or_of_nobody(
    app: tuple[bytes, list[str]], ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = log_in()
    assert client.get(CODE).status_code == 200
    with monkeypatch.context() as patched:
        patched.setattr("access_app.two_factor.CODE_WITHIN", timedelta(0))
        assert client.get(CODE).headers["Location"] == LOGIN
    ada.is_staff = False
    ada.save()
    assert "the account may not log in here" in text_of(client.post(CODE, {"code": code_of(app[0])}))
    ada.set_password("another long password")
    ada.save()
    assert client.post(CODE, {"code": app[1][0]}).headers["Location"] == LOGIN
    assert not is_logged_in(client)


def test_wrong_codes_lock_the_login_and_make_the_app_wait(app: tuple[bytes, list[str]]) -> None:
    key, codes = app
    wrong = f"{(int(code_of(key)) + 1) % 1_000_000:06}"
    log_in(wrong)
    assert not is_logged_in(log_in(code_of(key))), "the app has to wait, also from other addresses"
    assert is_logged_in(log_in(codes[0])), "recovery codes do not wait for the app"
    waiting = log_in()
    for _ in range(10):
        log_in(wrong)
    forget_waits()
    refused = Client().post(LOGIN, {"username": "ada", "password": PASSWORD})
    assert refused.status_code == 429
    assert waiting.post(CODE, {"code": code_of(key)}).status_code == 429
    assert is_logged_in(log_in(codes[1], REMOTE_ADDR="10.0.0.2"))


def test_database_holds_neither_key_nor_codes(app: tuple[bytes, list[str]]) -> None:
    key, codes = app
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT t::text FROM otp_totp_totpdevice t UNION ALL SELECT s::text FROM otp_static_statictoken s"
        )
        dump = "\n".join(row for (row,) in cursor.fetchall())
    assert key.hex() not in dump
    assert not [code for code in codes if code.replace("-", "") in dump.lower()]
    assert StaticToken.objects.count() == 10


def test_turning_off_and_new_codes_need_a_code(app: tuple[bytes, list[str]]) -> None:
    key, codes = app
    client = log_in(code_of(key))
    for action in ("off", "codes", "begin"):
        client.post(PAGE, {"action": action, "code": "000000", "password": PASSWORD})
        forget_waits()
    assert TOTPDevice.objects.get().confirmed
    new = codes_on(text_of(client.post(PAGE, {"action": "codes", "code": codes[0]})))
    assert len(new) == 10
    assert not is_logged_in(log_in(codes[1]))
    forget_waits()
    client.post(PAGE, {"action": "off", "code": new[0]})
    assert not TOTPDevice.objects.exists() and not StaticDevice.objects.exists()
    assert is_logged_in(log_in())


def test_reset_by_superuser_and_command(app: tuple[bytes, list[str]], ada: User) -> None:
    root = Client()
    root.force_login(User.objects.create_superuser("root"))
    users = "/admin/auth/user/"
    action = {"action": "reset_two_factor", "_selected_action": [ada.pk]}
    foreign = Client()
    foreign.force_login(User.objects.create_user("bob", is_staff=True))
    assert foreign.post(users, action).status_code == 403
    assert not is_logged_in(log_in())
    assert "Two-factor login of 1 user was reset." in text_of(root.post(users, action, follow=True))
    assert is_logged_in(log_in())
    with pytest.raises(CommandError, match="ada has no two-factor login"):
        call_command("reset_two_factor", user="ada")


def test_keys_of_others_have_no_pages(client: Client, db: None) -> None:
    client.force_login(User.objects.create_superuser("root"))
    assert client.get("/admin/otp_totp/totpdevice/").status_code == 404
    assert client.get("/admin/otp_static/staticdevice/").status_code == 404


@pytest.mark.django_db(transaction=True)  # the live part takes a connection of its own
def test_required_second_factor_leaves_only_its_set_up(ada: User, project: Project, settings: Any) -> None:
    grant_role(project, ada, Role.OWNER)
    client = log_in()
    assert client.get("/api/v1/sessions/").status_code == 200
    settings.TRACESITE_TWO_FACTOR = "SUPERUSERS"
    assert client.get("/api/v1/sessions/").status_code == 200
    settings.TRACESITE_TWO_FACTOR = "STAFF"
    refused = client.get("/api/v1/sessions/")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_permitted")
    assert client.get("/admin/").headers["Location"] == PAGE
    assert client.get("/admin/messages_app/session/").headers["Location"] == PAGE
    with pytest.raises(NotAuthenticated):
        viewer_of_login(client.session.session_key or "")
    assert "Your account needs two-factor login." in text_of(client.get(PAGE))
    client.post(PAGE, {"action": "begin", "password": PASSWORD})
    key = key_on(text_of(client.get(PAGE)))
    client.post(PAGE, {"action": "confirm", "code": code_of(key)})
    assert client.get("/api/v1/sessions/").status_code == 200
    assert viewer_of_login(client.session.session_key or "")


def test_login_that_another_system_checked_needs_no_second_factor(client: Client, db: None, settings: Any) -> None:
    settings.TRACESITE_TWO_FACTOR = "STAFF"
    user = User.objects.create_user("eve", is_staff=True)
    settings.AUTHENTICATION_BACKENDS = ["access_app.single_sign_on.ProxyUserBackend"]
    client.force_login(user, "access_app.single_sign_on.ProxyUserBackend")
    assert client.get("/admin/").status_code == 200
    assert "checked by another system" in text_of(client.get(PAGE))
