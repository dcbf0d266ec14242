"""The data keys of projects: which one encrypts, and which one decrypts a value.

They are read from the database every MAX_AGE seconds, and stay unwrapped in the memory of the process. While the process has no
master key and the database no data key, nothing here is asked, so that encryption costs nothing where it is not used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.translation import gettext as _
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from access_app.audit.record import record, record_project_change
from access_app.audit.trail import Actor
from access_app.db import primary
from access_app.db.base import columns_by_number
from access_app.errors import Conflict
from access_app.models import AuditAction, Encryption, Project, ProjectKey

from .columns import ENCRYPTED
from .envelope import KEY_BYTES, DataKey
from .errors import Locked, NotWhileEncrypted
from .master import MasterKey, master_keys, unwrapped

_CAN_BE_ASKED: Final = (TransactionStatus.IDLE, TransactionStatus.INTRANS)
MAX_AGE: Final = 5
"""Seconds after which a new or destroyed key counts in every process."""
_TABLE: Final = ProjectKey._meta.db_table
_PROJECTS: Final = Project._meta.db_table
_READ = f"""
    SELECT data_key.project_id, key_id, master_id, wrapped, {{encryption}}
    FROM {_TABLE} AS data_key JOIN {_PROJECTS} AS project ON project.id = data_key.project_id ORDER BY project_id, version
    """  # noqa: S608 - constants


@dataclass(frozen=True)
class _Row:
    key_id: bytes
    master_id: str
    wrapped: bytes | None

    def key(self) -> DataKey | None:
        """Return the key, None if it was destroyed. Raise Locked."""
        return None if self.wrapped is None else _unwrapped(self.key_id, self.master_id, self.wrapped)


@dataclass(frozen=True)
class Keyring:
    """The keys in the database at `read_at`, in seconds of the monotonic clock."""

    read_at: float
    by_id: dict[bytes, _Row]
    newest: dict[int, _Row]
    """The newest key by project, of those that encrypt what they store."""
    encrypted: frozenset[int]
    """The projects that have encrypted values: those that encrypt, and those whose encryption is being turned off."""
    columns: dict[tuple[int, int], tuple[str, str]]
    """Table and name of the columns of tables with encrypted ones, by the numbers that PostgreSQL has for both."""


_keyring = Keyring(0, {}, {}, frozenset(), {})


def is_used() -> bool:
    """Return whether anything may be encrypted: the process has a master key, or the database has data keys."""
    primary.connection.ensure_connection()
    return primary.connection.decrypts


def key_of(project_id: int) -> DataKey | None:
    """Return the key that encrypts what is stored in a project; None if it is not encrypted.

    Raise Locked without the master key, and NotWhileEncrypted if the key was destroyed.
    """
    if not is_used():
        return None
    row = _current().newest.get(project_id)
    if row is None:
        return None
    key = row.key()
    if key is None:
        raise NotWhileEncrypted(_("The data key of this project was destroyed. It takes no more data."))
    return key


def is_encrypted(project_id: int) -> bool:
    """Return whether what a project stores from now on is encrypted."""
    return is_used() and project_id in _current().newest


def refuse_encrypted(*project_ids: int, field: str | None = None) -> None:
    """Raise NotWhileEncrypted if one of the projects is encrypted: for what PostgreSQL would have to read values for."""
    if is_used() and not encrypted_projects().isdisjoint(project_ids):
        raise NotWhileEncrypted(field=field)


def encrypted_projects() -> frozenset[int]:
    """Return the projects that have encrypted values."""
    return _current().encrypted if is_used() else frozenset()


def encrypting_projects() -> frozenset[int]:
    """Return the projects that encrypt what they store."""
    return frozenset(_current().newest) if is_used() else frozenset()


def known_keys() -> Keyring:
    """Return all keys, for what is read next.

    Those of before, if the connection cannot be asked at the moment: its transaction failed, or it is in the middle of a read.
    """
    known = primary.connection.connection
    if known is not None and (known.lock.locked() or known.info.transaction_status not in _CAN_BE_ASKED):
        return _keyring
    return _current()


def key_named(key_id: bytes, keys: Keyring) -> DataKey | bool:
    """Return the key with this id; False if it was destroyed, True if there is none. Raise Locked."""
    row = keys.by_id.get(key_id)
    if row is None:
        if primary.connection.connection is not None and primary.connection.connection.lock.locked():
            # A key that is newer than `keys`, in the middle of a read: the next one will know it.
            raise Locked
        row = _read().by_id.get(key_id)
    return True if row is None else row.key() or False


def forget_keys() -> None:
    """Read the keys again, because they have changed."""
    global _keyring
    _keyring = Keyring(0, {}, {}, frozenset(), {})
    _unwrapped.cache_clear()


def _current() -> Keyring:
    return _keyring if time.monotonic() - _keyring.read_at < MAX_AGE else _read()


def _read() -> Keyring:
    global _keyring
    primary.connection.ensure_connection()
    known_columns = columns_by_number(primary.connection, [*ENCRYPTED, _TABLE, _PROJECTS])
    # Before the migration of the table nothing is encrypted; before that of the column encryption could not be turned off.
    is_migrated = any(table == _TABLE for table, _column in known_columns.values())
    has_state = (_PROJECTS, "encryption") in known_columns.values()
    read = _READ.format(encryption="encryption" if has_state else f"'{Encryption.ON}'")
    # Not by a cursor of Django, because this is asked while one reads.
    with primary.connection.wrap_database_errors, primary.connection.connection.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(read).fetchall() if is_migrated else []
    columns = {number: named for number, named in known_columns.items() if named[0] in ENCRYPTED}
    by_id, newest, encrypted = {}, {}, set()
    for project_id, key_id, master_id, wrapped, encryption in rows:
        row = by_id[bytes.fromhex(key_id)] = _Row(
            bytes.fromhex(key_id), master_id, None if wrapped is None else bytes(wrapped)
        )
        if encryption == Encryption.ON:
            newest[project_id] = row
        if encryption != Encryption.OFF:
            encrypted.add(project_id)
    _keyring = Keyring(time.monotonic(), by_id, newest, frozenset(encrypted), columns)
    return _keyring


@lru_cache(maxsize=10_000)
def _unwrapped(key_id: bytes, master_id: str, wrapped: bytes) -> DataKey:
    try:
        return DataKey(key_id, unwrapped(master_id, key_id, wrapped))
    except ImproperlyConfigured as error:
        raise Locked from error


# --- What operators do ------------------------------------------------------------------------------------------------


def add_key(project: Project, *, actor: Actor | None = None) -> ProjectKey:
    """Make the next data key of a project, which from now on encrypts; this turns encryption on if it is not.

    Raise Locked without a master key, Conflict if the key of the project was destroyed.
    """
    masters = master_keys()
    if not masters:
        raise Locked(
            _(
                "There is no master key: set TRACESITE_MASTER_KEY, TRACESITE_MASTER_KEY_FILE or TRACESITE_MASTER_KEY_COMMAND."
            )
        )
    with primary.atomic():
        locked = Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        newest = project.data_keys.order_by("-version").first()
        if newest is not None and newest.destroyed_at is not None:
            raise Conflict(_("The data key of this project was destroyed. It takes no more data."))
        key_id = os.urandom(KEY_BYTES)
        key = ProjectKey.objects.create(
            project=project,
            version=1 if newest is None else newest.version + 1,
            key_id=key_id.hex(),
            wrapped=masters[0].wrap(key_id, os.urandom(32)),
            master_id=masters[0].id,
        )
        _record(AuditAction.KEY_CREATE if newest is None else AuditAction.KEY_ROTATE, actor, key)
        if locked.encryption != Encryption.ON:
            _turn(actor, locked, Encryption.ON)
    forget_keys()
    return key


def end_encryption(project: Project, *, actor: Actor | None = None) -> None:
    """Let a project encrypt nothing from now on; its values are to be decrypted then. Raise Conflict if they cannot be."""
    with primary.atomic():
        locked = Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        if not locked.data_keys.exists():
            raise Conflict(_("This project is not encrypted."))
        if locked.data_keys.exclude(destroyed_at=None).exists():
            raise Conflict(_("The data key of this project was destroyed, so that nothing can be decrypted."))
        if locked.encryption == Encryption.ON:
            _turn(actor, locked, Encryption.ENDING)
    forget_keys()


def note_decrypted(project: Project, *, actor: Actor | None = None) -> None:
    """Note that a project has no encrypted value any more, so that what looks into values works. Its keys stay, for archives."""
    with primary.atomic():
        locked = lock_encryption(project.pk, {Encryption.ENDING, Encryption.OFF})
        if locked.encryption == Encryption.ENDING:
            _turn(actor, locked, Encryption.OFF)
    forget_keys()


def lock_encryption(project_id: int, expected: Collection[Encryption]) -> Project:
    """Lock whether a project is encrypted until the end of the transaction. Raise Conflict if it is none of the expected."""
    project = Project.objects.select_for_update(no_key=True).get(pk=project_id)
    if project.encryption not in expected:
        raise Conflict(_("Meanwhile the encryption of this project was turned on or off."))
    return project


def _turn(actor: Actor | None, project: Project, encryption: Encryption) -> None:
    project.encryption = encryption
    project.save(update_fields=["encryption"])
    record_project_change(actor, project, {"encryption": encryption.value})


def rewrap_keys(*, actor: Actor | None = None) -> int:
    """Wrap all data keys with the first master key; return how many were wrapped with another one. Raise Locked."""
    masters = master_keys()
    if not masters:
        raise Locked
    changed = 0
    for key in ProjectKey.objects.exclude(wrapped=None).exclude(master_id=masters[0].id):
        with primary.atomic():
            _rewrap(actor, ProjectKey.objects.select_for_update().get(pk=key.pk), masters[0])
        changed += 1
    return changed


def _rewrap(actor: Actor | None, key: ProjectKey, master: MasterKey) -> None:
    if key.wrapped is None:
        return  # destroyed meanwhile
    key_id = bytes.fromhex(key.key_id)
    key.wrapped = master.wrap(key_id, unwrapped(key.master_id, key_id, bytes(key.wrapped)))
    key.master_id = master.id
    key.save(update_fields=["wrapped", "master_id"])
    _record(AuditAction.KEY_ROTATE, actor, key)


def destroy_keys(project: Project, *, actor: Actor | None = None) -> int:
    """Destroy the data keys of a project, so that nothing that they have encrypted can ever be read; return their number."""
    with primary.atomic():
        keys = list(project.data_keys.select_for_update().exclude(wrapped=None))
        for key in keys:
            key.wrapped, key.destroyed_at = None, timezone.now()
            key.save(update_fields=["wrapped", "destroyed_at"])
            _record(AuditAction.KEY_REVOKE, actor, key)
    forget_keys()
    return len(keys)


def unusable_keys() -> Iterator[ProjectKey]:
    """Yield the data keys that cannot be unwrapped. Raise ImproperlyConfigured if the master key cannot be read."""
    keys = ProjectKey.objects.exclude(wrapped=None).select_related("project")
    # No other columns: `migrate` asks before it has made those of a new version.
    for key in keys.only("key_id", "version", "master_id", "wrapped", "project__slug"):
        try:
            unwrapped(key.master_id, bytes.fromhex(key.key_id), bytes(key.wrapped or b""))
        except Locked:
            yield key


def _record(action: AuditAction, actor: Actor | None, key: ProjectKey) -> None:
    record(
        action,
        actor,
        project_id=key.project_id,
        object_type="data_key",
        object_id=key.pk,
        object_name=key.key_id,
        detail={"version": key.version, "master_key": key.master_id},
    )
