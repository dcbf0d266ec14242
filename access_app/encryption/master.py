"""The master key, which wraps the data keys of projects. It is never in the database, and never in a log.

TRACESITE_MASTER_KEY has it, or TRACESITE_MASTER_KEY_FILE, or TRACESITE_MASTER_KEY_COMMAND prints it: 32 bytes as Base64. Several are
separated by commas or white space, that of new wrappings first: so a master key is replaced without downtime.
"""

from __future__ import annotations

import binascii
import hmac
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.core.exceptions import ImproperlyConfigured

from access_app.conf import conf

from .errors import Locked

COMMAND_SECONDS = 30


@dataclass(frozen=True, repr=False)
class MasterKey:
    id: str
    """Which master key wraps a data key: derived from it, and says nothing of it."""
    secret: bytes

    def wrap(self, key_id: bytes, secret: bytes) -> bytes:
        nonce = os.urandom(12)
        return nonce + AESGCM(self.secret).encrypt(nonce, secret, b"tracesite data key " + key_id)

    def unwrap(self, key_id: bytes, wrapped: bytes) -> bytes:
        """Return a data key. Raise Locked if this is not the master key that wrapped it, or the bytes were changed."""
        try:
            return AESGCM(self.secret).decrypt(wrapped[:12], wrapped[12:], b"tracesite data key " + key_id)
        except InvalidTag as error:
            raise Locked from error


def is_configured() -> bool:
    return bool(_sources())


def master_keys() -> tuple[MasterKey, ...]:
    """Return the master keys, that of new wrappings first; none if none is configured.

    Raise ImproperlyConfigured, for operators and without the value, if they cannot be read.
    """
    sources = _sources()
    if not sources:
        return ()
    if len(sources) > 1:
        raise ImproperlyConfigured(f"Set only one of {' and '.join(name for name, _value, _read in sources)}.")
    ((name, value, read),) = sources
    return _parsed(read(value), name)


def _sources() -> list[tuple[str, str, Callable[[str], str]]]:
    """Return the variables that are set: name, value, and what finds the text with the keys by the value."""
    sources: list[tuple[str, str, Callable[[str], str]]] = [
        ("TRACESITE_MASTER_KEY", conf.MASTER_KEY, str),
        ("TRACESITE_MASTER_KEY_FILE", conf.MASTER_KEY_FILE, _read),
        ("TRACESITE_MASTER_KEY_COMMAND", conf.MASTER_KEY_COMMAND, _printed),
    ]
    return [source for source in sources if source[1]]


def unwrapped(master_id: str, key_id: bytes, wrapped: bytes) -> bytes:
    """Return a data key. Raise Locked if its master key is not configured."""
    key = next((key for key in master_keys() if key.id == master_id), None)
    if key is None:
        raise Locked
    return key.unwrap(key_id, wrapped)


@lru_cache(maxsize=4)
def _parsed(text: str, source: str) -> tuple[MasterKey, ...]:
    keys = []
    for word in text.replace(",", " ").split():
        try:
            secret = binascii.a2b_base64(word, strict_mode=True)
        except binascii.Error:
            secret = b""
        if len(secret) != 32:
            raise ImproperlyConfigured(
                f"{source} has no valid master key: write 32 random bytes as Base64, such as `openssl rand -base64 32` prints."
            )
        keys.append(MasterKey(id=hmac.digest(secret, b"tracesite master key", "sha256").hex()[:8], secret=secret))
    if not keys:
        raise ImproperlyConfigured(f"{source} has no master key.")
    return tuple(keys)


@cache
def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text of ASCII"
        raise ImproperlyConfigured(f"TRACESITE_MASTER_KEY_FILE cannot be read: {reason}.") from error


@cache
def _printed(command: str) -> str:
    """Return what the command prints; it runs once in each process."""
    try:
        done = subprocess.run(  # noqa: S603 - the operator's command
            shlex.split(command), capture_output=True, check=True, timeout=COMMAND_SECONDS, encoding="ascii"
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # Neither the command nor what it prints is repeated: both may hold secrets.
        raise ImproperlyConfigured(
            f"TRACESITE_MASTER_KEY_COMMAND failed ({type(error).__name__}): it has to print the master key within "
            f"{COMMAND_SECONDS} seconds."
        ) from error
    return done.stdout
