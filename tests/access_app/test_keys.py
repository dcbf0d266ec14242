"""Keys are made with a token that is shown once, found by it while they are active, and revoked for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from pytest_django import DjangoAssertNumQueries

from access_app import keys
from access_app.bounded_cache import BoundedCache
from access_app.errors import InvalidInput
from access_app.keys import create_key, find_key, revoke_key, rotate_key
from access_app.models import ApiKey, Project
from access_app.projects import project_changed

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_a_token_is_random_and_stored_only_as_its_digest(project: Project, superuser: User) -> None:
    key, token = create_key(project, " agent ", ["write", "read", "read"], created_by=superuser)
    _other, other_token = create_key(project, "agent", ["read"])

    assert token.startswith("ts_")
    assert len(token) == 46
    assert token != other_token
    key.refresh_from_db()
    assert (key.name, key.scopes, key.created_by) == ("agent", ["read", "write"], superuser)
    assert (key.prefix, key.digest) == (token[:8], sha256(token.encode()).hexdigest())
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM access_app_apikey")
        assert token not in str(cursor.fetchall())


def test_find_key_reads_key_and_project_in_one_query(
    project: Project, token: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    find_key(token)
    with django_assert_num_queries(1):
        found = find_key(token)
        assert found is not None
        assert found.project == project


@pytest.mark.parametrize("unknown", ["", "ts_", "ts_unknown", "\x00", "ts_\udce9", "é" * 10_000])
def test_an_unknown_token_finds_nothing(key: ApiKey, unknown: str) -> None:
    assert find_key(unknown) is None
    assert find_key(key.digest) is None


def test_an_expired_key_opens_nothing_from_its_last_moment_on(project: Project) -> None:
    end = datetime.now(UTC) + timedelta(days=1)
    key, token = create_key(project, "agent", ["read"], expires_at=end)

    assert find_key(token, now=end - timedelta(microseconds=1)) == key
    assert find_key(token, now=end) is None
    assert (key.status(end - timedelta(seconds=1)), key.status(end)) == ("active", "expired")


def test_a_revoked_key_opens_nothing_and_keeps_its_first_time(key: ApiKey, token: str) -> None:
    assert revoke_key(key, now=NOON)
    assert not revoke_key(key, now=NOON + timedelta(days=1))

    assert key.revoked_at == NOON
    assert key.status() == "revoked"
    assert find_key(token) is None
    assert list(ApiKey.objects.active()) == []


@pytest.mark.parametrize(
    ("name", "scopes", "field"),
    [(" ", ["read"], "name"), ("agent", [], "scopes"), ("agent", ["read", "admin"], "scopes")],
)
def test_a_key_without_name_or_with_wrong_scopes_is_refused(
    project: Project, name: str, scopes: list[str], field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        create_key(project, name, scopes)

    assert caught.value.field == field
    assert not ApiKey.objects.exists()


def test_a_key_that_has_already_expired_is_refused(project: Project) -> None:
    with pytest.raises(InvalidInput) as caught:
        create_key(project, "agent", ["read"], expires_at=NOON - timedelta(days=4000))

    assert caught.value.field == "expires_at"


def test_the_last_use_is_noted_at_most_once_a_minute(
    key: ApiKey, token: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    def last_used(now: datetime) -> datetime | None:
        assert find_key(token, now=now) is not None
        return ApiKey.objects.get(pk=key.pk).last_used_at

    assert last_used(NOON) == NOON
    assert last_used(NOON + timedelta(seconds=59)) == NOON
    with django_assert_num_queries(1):
        find_key(token, now=NOON + timedelta(seconds=59))
    assert last_used(NOON + timedelta(seconds=60)) == NOON + timedelta(seconds=60)


@pytest.mark.django_db(transaction=True)
def test_noting_the_use_skips_a_locked_row(token: str) -> None:
    found: list[ApiKey | None] = []

    def find() -> None:
        found.append(find_key(token))
        connection.close()

    with transaction.atomic():
        ApiKey.objects.select_for_update().get(prefix=token[:8])
        thread = threading.Thread(target=find)
        thread.start()
        thread.join(timeout=60)
        was_found = [each is not None for each in found]
    thread.join()

    assert was_found == [True]
    assert ApiKey.objects.get(prefix=token[:8]).last_used_at is None


# --- Cached keys --------------------------------------------------------------------------------------------
# Only outside of transactions, because what one reads may never be committed.


@contextmanager
def another_process() -> Iterator[None]:
    """Do what is in the block without the cache of this process."""
    own, keys._CACHE = keys._CACHE, BoundedCache(10)
    try:
        yield
    finally:
        keys._CACHE = own


@pytest.fixture
def long_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let cached keys live as long as a test."""
    monkeypatch.setattr(keys, "_CACHE", BoundedCache(10))


@pytest.mark.django_db(transaction=True)
def test_cached_key_costs_no_query(
    long_second: None, project: Project, token: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    find_key(token)
    with django_assert_num_queries(1):
        first = find_key(token)  # once more after the use was noted
    with django_assert_num_queries(0):
        found = find_key(token)
        assert found is not None
        assert found.project == project
        assert (found, found.project.slug, found.last_used_at) == (first, "owner", found.last_used_at)
        assert found is not first
    with django_assert_num_queries(1):
        find_key(token, uncached=True)


@pytest.mark.django_db(transaction=True)
def test_key_revoked_elsewhere_is_refused_after_a_second(key: ApiKey, token: str) -> None:
    assert find_key(token)
    assert find_key(token)
    with another_process():
        revoke_key(key)
    time.sleep(keys.MAX_AGE)
    assert find_key(token) is None


@pytest.mark.django_db(transaction=True)
def test_changes_of_this_process_apply_to_the_next_request(long_second: None, key: ApiKey, token: str) -> None:
    for _each in range(2):
        assert find_key(token)
    key.project.slug = "renamed"
    key.project.save()
    project_changed(key.project)
    for _each in range(2):
        assert getattr(find_key(token), "project").slug == "renamed"  # noqa: B009 - it may be None
    rotate_key(key, timedelta(0))
    assert find_key(token) is None
    other, other_token = create_key(key.project, "other", ["read"])
    for _each in range(2):
        assert find_key(other_token)
    revoke_key(other)
    assert find_key(other_token) is None


@pytest.mark.django_db(transaction=True)
def test_key_is_found_as_soon_as_it_is_created(long_second: None, key: ApiKey, token: str) -> None:
    digest = key.digest
    ApiKey.objects.filter(pk=key.pk).update(digest="")
    assert find_key(token) is None
    ApiKey.objects.filter(pk=key.pk).update(digest=digest)
    assert find_key(token) == key


@pytest.mark.django_db(transaction=True)
def test_key_of_a_rolled_back_transaction_is_not_cached(long_second: None, project: Project) -> None:
    with transaction.atomic():
        token = create_key(project, "agent", ["read"])[1]
        assert find_key(token)
        transaction.set_rollback(True)
    assert find_key(token) is None


@pytest.mark.django_db(transaction=True)
def test_last_use_of_a_cached_key_is_noted_each_minute(
    long_second: None, key: ApiKey, token: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for seconds in (0, 1, 59):
        find_key(token, now=NOON + timedelta(seconds=seconds))
    key.refresh_from_db()
    assert key.last_used_at == NOON
    find_key(token, now=NOON + timedelta(seconds=60))
    key.refresh_from_db()
    assert key.last_used_at == NOON + timedelta(seconds=60)
    find_key(token, now=NOON + timedelta(seconds=61))
    with django_assert_num_queries(0):
        find_key(token, now=NOON + timedelta(seconds=62))
