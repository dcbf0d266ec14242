"""Creation, lookup and revocation of API keys. A token is shown once; only its digest is stored.

Each process caches the keys that it has found for MAX_AGE, because every request looks for one.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
import time
from collections.abc import Iterable
from typing import Any, Final

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from access_app.db import primary

from .audit.record import record_key
from .audit.trail import Actor, note_key
from .bounded_cache import BoundedCache
from .db.statements import read_prepared
from .errors import InvalidInput, NotPermitted
from .models import PREFIX_LENGTH, ApiKey, AuditAction, Project, Scope

TOKEN_START = "ts_"  # noqa: S105 - the prefix of every token, by which scanners recognise leaked ones
MAX_AGE: Final = 1
"""Seconds after which every process refuses a key that was revoked, and sees what was changed of it or its project."""
LAST_USED_PRECISION = dt.timedelta(minutes=1)
LONGEST_OVERLAP_HOURS = 24 * 90
"""For how long a key that was rotated may go on working."""

_KEY_COLUMNS = [field.attname for field in ApiKey._meta.concrete_fields]
# The other columns are deferred, because requests rarely need them.
_PROJECT_COLUMNS = ["id", "slug", "name", "created_at"]
# Raw SQL, because the ORM takes 1.0 ms to compile it.
_FIND = f"""
    SELECT {", ".join(f"key.{name}" for name in _KEY_COLUMNS)}, {", ".join(f"project.{name}" for name in _PROJECT_COLUMNS)}
    FROM access_app_apikey AS key JOIN access_app_project AS project ON project.id = key.project_id
    WHERE key.digest = %s
    """  # noqa: S608 - built of the columns of models
_CACHE: BoundedCache[str, tuple[Any, ...]] = BoundedCache(10_000, max_age=MAX_AGE)
"""Rows of _FIND by digest. It has no unknown tokens, because a key has to work once it is created, and guesses would fill it."""


@primary.atomic()
def create_key(
    project: Project,
    name: str,
    scopes: Iterable[str],
    expires_at: dt.datetime | None = None,
    created_by: User | None = None,
    allowed_networks: Iterable[str] = (),
    requests_per_minute: int | None = None,
    reads_masked: bool = False,
    *,
    actor: Actor | None = None,
) -> tuple[ApiKey, str]:
    """Create a key and return it with its token, which cannot be retrieved later.

    Raise InvalidInput for an empty name, missing or unknown scopes, scopes beside `read` if it reads masked values, an expiry
    in the past, and values that the fields of the model refuse.
    """
    name = name.strip()
    if not name:
        raise InvalidInput(_("A key needs a name, such as the program that uses it."), field="name")
    token = TOKEN_START + secrets.token_urlsafe(32)
    key = ApiKey(
        project=project,
        name=name,
        prefix=token[:PREFIX_LENGTH],
        digest=digest_of(token),
        scopes=_in_order(scopes),
        expires_at=expires_at,
        created_by=created_by,
        allowed_networks=list(allowed_networks),
        requests_per_minute=requests_per_minute,
        reads_masked=reads_masked,
    )
    if reads_masked and key.scopes != [Scope.READ]:
        raise InvalidInput(_("A key that reads masked values can have no other scope than read."), field="scopes")
    if key.status() == "expired":
        raise InvalidInput(_("The expiry must be in the future."), field="expires_at")
    try:
        key.clean_fields()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidInput(" ".join(messages), field=field) from error
    key.save(force_insert=True)
    record_key(AuditAction.KEY_CREATE, actor, key)
    return key, token


@primary.atomic()
def rotate_key(
    key: ApiKey, overlap: dt.timedelta, created_by: User | None = None, *, actor: Actor | None = None
) -> tuple[ApiKey, str]:
    """Create the successor of a key, and let the old one expire after `overlap`. Return the new key with its token.

    The successor has the name, scopes and limits of the old key, and no expiry. Raise InvalidInput if the old key is
    not active; one that expires earlier keeps its time.
    """
    now = timezone.now()
    old = ApiKey.objects.select_for_update(of=("self",)).select_related("project").get(pk=key.pk)
    if old.status(now) != "active":
        raise InvalidInput(
            _("The key %(prefix)s… is %(status)s. Only active keys can be rotated; create a new one instead.")
            % {"prefix": old.prefix, "status": old.status(now)}
        )
    successor, token = create_key(
        old.project,
        old.name,
        old.scopes,
        created_by=created_by,
        allowed_networks=old.allowed_networks,
        requests_per_minute=old.requests_per_minute,
        reads_masked=old.reads_masked,
        actor=actor,
    )
    ends = now + overlap
    old.expires_at = ends if old.expires_at is None else min(old.expires_at, ends)
    old.save(update_fields=["expires_at"])
    key.expires_at = old.expires_at
    record_key(AuditAction.KEY_ROTATE, actor, old)
    primary.on_commit(forget_api_keys)
    return successor, token


def bearer_in(authorization: str) -> str | None:
    """Return the token of a Bearer Authorization header; "" if it is missing, None for other schemes."""
    scheme, _space, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def find_key(
    token: str, now: dt.datetime | None = None, *, actor: Actor | None = None, uncached: bool = False
) -> ApiKey | None:
    """Return the active key of a token with its project, or None. Set `last_used_at`, once a minute.

    The key may be as old as MAX_AGE, unless it is read `uncached`.
    """
    now = now or timezone.now()
    key = _read_key(digest_of(token), uncached=uncached)
    if key is None:
        return None
    # Also one that is revoked: who goes on using it is recorded.
    note_key(actor, key)
    if key.status(now) != "active":
        return None
    if key.last_used_at is None or key.last_used_at <= now - LAST_USED_PRECISION:
        _note_use(key, now)
    return key


def admitted_key(token: str, address: str, *, actor: Actor | None = None, uncached: bool = False) -> ApiKey | None:
    """Return what find_key does. Raise NotPermitted for a foreign `address`."""
    key = find_key(token, actor=actor, uncached=uncached)
    if key is not None and not key.allows_address(address):
        raise NotPermitted(
            _("The key %(prefix)s… may not be used from the address %(address)s.")
            % {"prefix": key.prefix, "address": address},
            code="address_not_allowed",
        )
    return key


@primary.atomic()
def revoke_key(key: ApiKey, now: dt.datetime | None = None, *, actor: Actor | None = None) -> bool:
    """Revoke a key: here from the next request on, in other processes within MAX_AGE.

    Return False if it was revoked before; the first time is kept.
    """
    now = now or timezone.now()
    revoked = ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=now)
    key.refresh_from_db(fields=["revoked_at"])
    if revoked:
        record_key(AuditAction.KEY_REVOKE, actor, key)
        primary.on_commit(forget_api_keys)
    return bool(revoked)


def forget_api_keys() -> None:
    """Read keys and their projects again at the next request of this process, because some have changed."""
    _CACHE.clear()


def digest_of(token: str) -> str:
    # Header bytes that are not UTF-8 arrive as surrogates: such a token is unknown, not an error.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _in_order(scopes: Iterable[str]) -> list[str]:
    wanted = set(scopes)
    unknown = wanted - set(Scope.values)
    if unknown or not wanted:
        raise InvalidInput(
            _("Invalid scopes: %(found)s. Choose from: %(choices)s.")
            % {"found": ", ".join(sorted(unknown)) or _("none"), "choices": ", ".join(Scope.values)},
            field="scopes",
        )
    return [scope for scope in Scope.values if scope in wanted]


def _read_key(digest: str, *, uncached: bool) -> ApiKey | None:
    # What a transaction reads may never be committed.
    uncached = uncached or primary.connection.in_atomic_block
    row = None if uncached else _CACHE.get(digest)
    if row is None:
        began = time.monotonic()
        row = next(iter(read_prepared(_FIND, [digest], primary.connection)), None)
        if row is None:
            return None
        if not uncached:
            _CACHE.put(digest, row, began)
    # New objects for each request, which may load deferred columns and change them.
    key = ApiKey.from_db(primary.alias, _KEY_COLUMNS, row[: len(_KEY_COLUMNS)])
    key.project = Project.from_db(primary.alias, _PROJECT_COLUMNS, row[len(_KEY_COLUMNS) :])
    return key


def _note_use(key: ApiKey, now: dt.datetime) -> None:
    """Set `last_used_at` without waiting: of concurrent requests, one writes and the others skip."""
    with primary.cursor() as cursor:
        cursor.execute(
            "UPDATE access_app_apikey SET last_used_at = %s WHERE id IN"
            " (SELECT id FROM access_app_apikey WHERE id = %s AND (last_used_at IS NULL OR last_used_at <= %s)"
            " FOR UPDATE SKIP LOCKED)",
            [now, key.pk, now - LAST_USED_PRECISION],
        )
    key.last_used_at = now
    _CACHE.pop(key.digest)
