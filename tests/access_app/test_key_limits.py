"""Keys may be limited to networks and to a number of requests a minute, and are rotated with an overlap."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from access_app.errors import InvalidInput
from access_app.keys import create_key, find_key, revoke_key, rotate_key
from access_app.models import ApiKey, KeyThrottle, Project
from access_app.throttling import take

WHO = "/api/who/"
KEYS = "/admin/access_app/apikey/"


def get(token: str, **environment: Any) -> Any:
    return Client().get(WHO, headers={"X-API-Key": token}, **environment)


# --- Networks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("networks", "address", "allowed"),
    [
        ([], "203.0.113.9", True),
        ([], "", True),
        (["203.0.113.9"], "203.0.113.9", True),
        (["203.0.113.9"], "203.0.113.8", False),
        (["10.0.0.0/8", "203.0.113.0/24"], "203.0.113.200", True),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", True),
        (["2001:db8::/32"], "2001:db8::1", True),
        (["2001:db8::/32"], "10.1.2.3", False),
        (["10.0.0.0/8"], "", False),
        (["10.0.0.0/8"], "unix:", False),
    ],
)
def test_address_outside_of_networks_is_not_allowed(networks: list[str], address: str, allowed: bool) -> None:
    assert ApiKey(allowed_networks=networks).allows_address(address) is allowed


@pytest.mark.urls("tests.access_app.urls")
def test_request_from_foreign_address_is_refused(project: Project, settings: Any) -> None:
    key, token = create_key(project, "agent", ["read"], allowed_networks=["10.0.0.0/8"])

    assert get(token, REMOTE_ADDR="10.2.3.4").status_code == 200
    answer = get(token, REMOTE_ADDR="203.0.113.9", HTTP_X_FORWARDED_FOR="10.2.3.4")
    assert answer.status_code == 403
    assert answer.json()["error"] | {"request_id": None} == {
        "code": "address_not_allowed",
        "message": f"The key {key.prefix}… may not be used from the address 203.0.113.9.",
        "field": None,
        "request_id": None,
    }
    settings.TRACESITE_HTTPS = True  # behind a proxy, which adds the last entry
    assert get(token, REMOTE_ADDR="127.0.0.1", HTTP_X_FORWARDED_FOR="203.0.113.9, 10.2.3.4").status_code == 200
    assert get(token, REMOTE_ADDR="127.0.0.1", HTTP_X_FORWARDED_FOR="10.2.3.4, 203.0.113.9").status_code == 403


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"allowed_networks": ["10.0.0.1/8"]}, "allowed_networks"),
        ({"allowed_networks": ["office"]}, "allowed_networks"),
        ({"requests_per_minute": 0}, "requests_per_minute"),
        ({"requests_per_minute": 1_000_001}, "requests_per_minute"),
    ],
)
def test_invalid_limit_is_refused_by_name(project: Project, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        create_key(project, "agent", ["read"], **fields)
    assert refused.value.field == field
    assert not ApiKey.objects.exists()


# --- Requests a minute --------------------------------------------------------------------------------------


@pytest.mark.urls("tests.access_app.urls")
def test_requests_beyond_the_limit_are_told_when_to_retry(project: Project) -> None:
    key, token = create_key(project, "agent", ["read"], requests_per_minute=3)
    other = create_key(project, "other", ["read"])[1]

    assert [get(token).status_code for _each in range(4)] == [200, 200, 200, 429]
    answer = get(token)
    assert 1 <= int(answer.headers["Retry-After"]) <= 20
    assert answer.json()["error"]["code"] == "too_many_requests"
    assert re.fullmatch(
        rf"The key {key.prefix}… may send 3 requests a minute. Try again in \d+ s.", answer.json()["error"]["message"]
    )
    assert get(other).status_code == 200
    # Refused requests do not count: after 20 seconds there is room for one.
    KeyThrottle.objects.filter(key=key).update(full_at=timezone.now() + timedelta(seconds=39))
    assert [get(token).status_code for _each in range(2)] == [200, 429]
    # Unused time is not saved up beyond a minute.
    KeyThrottle.objects.filter(key=key).update(full_at=timezone.now() - timedelta(days=1))
    assert [get(token).status_code for _each in range(4)] == [200, 200, 200, 429]


@pytest.mark.django_db(transaction=True)
def test_limit_is_exact_over_concurrent_connections(project: Project) -> None:
    key, _token = create_key(project, "agent", ["read"], requests_per_minute=10)
    taken: list[int] = []

    def send() -> None:
        try:
            taken.extend(take(key.pk, 10) for _each in range(10))
        finally:
            connection.close()

    began = time.monotonic()
    threads = [threading.Thread(target=send) for _each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # A slow machine gives time for one more each six seconds.
    assert 10 <= taken.count(0) <= 11 + (time.monotonic() - began) // 6
    assert len(taken) == 40


# --- Rotation -----------------------------------------------------------------------------------------------


def test_rotated_key_and_its_successor_both_work_for_a_time(project: Project) -> None:
    key, token = create_key(
        project, "agent", ["read", "write"], allowed_networks=["10.0.0.0/8"], requests_per_minute=60
    )
    now = timezone.now()
    successor, new_token = rotate_key(key, timedelta(hours=24))

    assert find_key(token) == key
    assert find_key(new_token) == successor
    assert find_key(token, now=now + timedelta(hours=25)) is None
    assert find_key(new_token, now=now + timedelta(days=999)) == successor
    same = ("project", "name", "scopes", "allowed_networks", "requests_per_minute")
    assert [getattr(successor, name) for name in same] == [getattr(key, name) for name in same]


def test_rotation_does_not_prolong_a_key(project: Project) -> None:
    soon = timezone.now() + timedelta(hours=1)
    key, token = create_key(project, "agent", ["read"], expires_at=soon)
    rotate_key(key, timedelta(hours=24))
    key.refresh_from_db()
    assert key.expires_at == soon
    rotate_key(key, timedelta(0))
    assert find_key(token) is None
    with pytest.raises(InvalidInput, match="is expired. Only active keys can be rotated"):
        rotate_key(key, timedelta(hours=1))
    other = create_key(project, "agent", ["read"])[0]
    revoke_key(other)
    with pytest.raises(InvalidInput, match="is revoked"):
        rotate_key(other, timedelta(hours=1))


def test_key_is_limited_and_rotated_by_command(project: Project) -> None:
    out = StringIO()
    call_command(
        *("create_api_key", "--project", "owner", "--name", "agent", "--allow", "10.0.0.0/8", "--allow", "::1"),
        *("--requests-per-minute", "600"),
        stdout=out,
        stderr=StringIO(),
    )
    key = ApiKey.objects.get()
    assert (key.allowed_networks, key.requests_per_minute) == (["10.0.0.0/8", "::1"], 600)

    out = StringIO()
    call_command("rotate_api_key", key.prefix, "--overlap-hours", "2", stdout=out, stderr=StringIO())
    successor = find_key(out.getvalue().strip())
    assert successor is not None
    assert successor.allowed_networks == ["10.0.0.0/8", "::1"]
    with pytest.raises(CommandError, match="--overlap-hours -1 is invalid. Use 0 to 2160."):
        call_command("rotate_api_key", key.prefix, "--overlap-hours", "-1")
    with pytest.raises(CommandError, match="not an IP address or network"):
        call_command("create_api_key", "--project", "owner", "--name", "agent", "--allow", "office")


def test_key_is_rotated_in_the_admin(login: Callable[[User], Client], superuser: User, project: Project) -> None:
    client = login(superuser)
    key, token = create_key(project, "agent", ["read"])
    other = create_key(project, "other", ["read"])[0]
    chosen = {"action": "rotate_selected", "_selected_action": [key.pk]}

    assert b"Both keys work until then" in client.post(KEYS, chosen).content
    assert b"less than or equal to 2160" in client.post(KEYS, {**chosen, "confirmed": "yes", "hours": 9999}).content
    page = client.post(KEYS, {**chosen, "confirmed": "yes", "hours": 0}).content.decode()
    (new_token,) = set(re.findall(r"ts_[\w-]{43}", page))
    assert find_key(new_token) is not None
    assert find_key(token) is None
    several = client.post(KEYS, {**chosen, "_selected_action": [key.pk, other.pk]}, follow=True).content.decode()
    assert "Rotate one key at a time" in several
    assert (
        "is expired. Only active keys"
        in client.post(KEYS, {**chosen, "confirmed": "yes", "hours": 0}, follow=True).content.decode()
    )


# --- Masked values ------------------------------------------------------------------------------------------


def test_masked_key_only_reads_and_so_does_its_successor(project: Project, superuser: User) -> None:
    client = Client()
    client.force_login(superuser)
    fields = {"project": project.pk, "name": "looks", "scopes": ["read", "write"], "reads_masked": "on"}
    assert b"no other scope than read" in client.post(f"{KEYS}add/", fields).content
    with pytest.raises(InvalidInput, match="no other scope"):
        create_key(project, "looks", ["write"], reads_masked=True)
    assert not ApiKey.objects.exists()
    client.post(f"{KEYS}add/", fields | {"scopes": ["read"]})
    key = ApiKey.objects.get()
    assert rotate_key(key, timedelta(hours=1))[0].reads_masked
