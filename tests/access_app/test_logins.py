"""Failed logins are counted by name and address, refused after ten, and logged with both."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.http import HttpResponseBase
from django.test import Client

LOGIN = "/admin/login/"


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_superuser("ada", password="a right and long password")


def log_in(client: Client, password: str, *, name: str = "ada", **extra: Any) -> HttpResponseBase:
    return client.post(LOGIN, {"username": name, "password": password}, **extra)


def test_login_after_ten_failures_is_refused_even_if_right(client: Client, ada: User) -> None:
    statuses = [log_in(client, "wrong").status_code for _ in range(10)]
    refused = log_in(client, "a right and long password")

    assert statuses == [200] * 9 + [429]
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "300"
    assert "Try again in 5 minutes." in refused.content.decode()  # type: ignore[attr-defined]
    assert "sessionid" not in client.cookies


def test_lockout_spares_other_names_and_addresses(client: Client, ada: User) -> None:
    User.objects.create_superuser("grace", password="another long password")
    for _ in range(10):
        log_in(client, "wrong")

    assert log_in(Client(), "another long password", name="grace").status_code == 302
    assert log_in(Client(), "a right and long password", REMOTE_ADDR="10.0.0.2").status_code == 302


def test_lockout_counts_ipv6_addresses_of_one_network_together(client: Client, ada: User) -> None:
    for number in range(10):
        log_in(client, "wrong", REMOTE_ADDR=f"2001:db8::{number}")
        log_in(client, "wrong", REMOTE_ADDR=f"::ffff:10.0.0.{number}")

    right = "a right and long password"
    assert log_in(Client(), right, REMOTE_ADDR="2001:db8::ffff:1:2:3").status_code == 429
    assert log_in(Client(), right, REMOTE_ADDR="2001:db8:0:1::1").status_code == 302
    assert log_in(Client(), right, REMOTE_ADDR="::ffff:10.0.0.1").status_code == 302


def test_lockout_ends_after_the_cool_off(client: Client, ada: User) -> None:
    for _ in range(10):
        log_in(client, "wrong")
    for attempt in AccessAttempt.objects.all():
        AccessAttempt.objects.filter(pk=attempt.pk).update(attempt_time=attempt.attempt_time - timedelta(minutes=6))

    assert log_in(client, "a right and long password").status_code == 302


def test_login_success_resets_earlier_failures(client: Client, ada: User) -> None:
    for _ in range(9):
        log_in(client, "wrong")
    log_in(client, "a right and long password")

    assert log_in(Client(), "wrong").status_code == 200
    assert AccessAttempt.objects.get().failures_since_start == 1


def test_proxy_address_counts_only_behind_a_proxy(client: Client, ada: User, settings: Any) -> None:
    log_in(client, "wrong", headers={"X-Forwarded-For": "6.6.6.6"})
    settings.TRACESITE_HTTPS = True
    log_in(client, "wrong", headers={"X-Forwarded-For": "6.6.6.6, 192.0.2.7"})

    assert set(AccessAttempt.objects.values_list("ip_address", flat=True)) == {"127.0.0.1", "192.0.2.7"}


def test_failed_login_is_logged_with_name_and_address(
    client: Client, ada: User, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log_in(client, "wrong", name="ada\x1b[31m")

    messages = [record.getMessage() for record in caplog.records if record.name.startswith("axes")]
    assert any("failure by 'ada\\x1b[31m' at 127.0.0.1" in message for message in messages), messages
    assert "wrong" not in json.dumps(messages)


@pytest.mark.parametrize(
    "fields",
    [
        {"username": "ada\x00", "password": "p"},
        {"username": "ada", "password": "p\x00", "more": "\x00"},
        {"username": "x" * 100_000, "password": "p"},
        {"username": "", "password": ""},
        {},
    ],
)
def test_login_malformed_form_gets_a_response(client: Client, ada: User, fields: dict[str, str]) -> None:
    assert client.post(f"{LOGIN}?next=%00", fields, headers={"User-Agent": "a" * 10_000}).status_code == 200


def test_changed_password_ends_other_sessions_as_its_page_says(client: Client, ada: User) -> None:
    other = Client()
    for browser in (client, other):
        log_in(browser, "a right and long password")
    page = client.get("/admin/password_change/").content.decode()
    assert "All your other sessions end" in page and '<a href="/admin/">Cancel</a>' in page
    new = "another long password"
    form = {"old_password": "a right and long password", "new_password1": new, "new_password2": new}
    assert client.post("/admin/password_change/", form).status_code == 302
    assert [browser.get("/admin/settings/").status_code for browser in (client, other)] == [200, 302]


def test_failed_login_says_why_in_both_languages(client: Client, ada: User) -> None:
    assert b"The user name or the password is wrong" in log_in(client, "wrong").content  # type: ignore[attr-defined]
    chinese = log_in(client, "wrong", headers={"accept-language": "zh-hans"}).content.decode()  # type: ignore[attr-defined]
    assert "用户名或密码错误，或者该账户无权在此登录。" in chinese
