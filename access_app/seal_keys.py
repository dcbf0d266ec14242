"""The keys of seals: they come from the environment, so that nobody who can only write to the database can make a seal.

TRACESITE_SEAL_KEYS has them, the newest first; without it, one is derived from the secret key of the site. The newest key
makes seals, all of them verify. A key has an id, so that a seal of a key that is missing is told from one that is wrong.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings

from access_app.conf import conf


@dataclass(frozen=True)
class SealKey:
    id: str
    secret: bytes

    def digest(self, purpose: bytes, *parts: bytes) -> bytes:
        """Return the HMAC-SHA256 of `parts`, which no other division into parts has."""
        text = b"".join(b"%d:%b" % (len(part), part) for part in (purpose, *parts))
        return hmac.digest(self.secret, text, "sha256")


def seal_keys() -> tuple[SealKey, ...]:
    """Return the known keys, that of new seals first."""
    return _derived(tuple(conf.SEAL_KEYS) or (settings.SECRET_KEY,))


def seal_key(id_: str) -> SealKey | None:
    """Return the key with this id; None if it is not configured."""
    return next((key for key in seal_keys() if key.id == id_), None)


@lru_cache(maxsize=4)
def _derived(given: tuple[str, ...]) -> tuple[SealKey, ...]:
    secrets = [hmac.digest(text.encode(), b"tracesite seals", "sha256") for text in given]
    return tuple(SealKey(id=hmac.digest(secret, b"id", "sha256").hex()[:8], secret=secret) for secret in secrets)
