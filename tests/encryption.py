"""A master key for tests, and a project whose data is encrypted."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager

from django.test import override_settings

from access_app.db.base import DatabaseWrapper
from access_app.encryption.keys import forget_keys
from access_app.encryption.reading import switch_on

MASTER_KEY = b64encode(bytes(range(32))).decode()
OTHER_MASTER_KEY = b64encode(bytes(range(1, 33))).decode()


@contextmanager
def master_key(*keys: str) -> Iterator[None]:
    """Be a server with these master keys, the first one for new wrappings; without any, one that found data keys."""
    before = DatabaseWrapper.decrypts
    with override_settings(TRACESITE_MASTER_KEY=",".join(keys)):
        switch_on()
        forget_keys()
        try:
            yield
        finally:
            DatabaseWrapper.decrypts = before
            forget_keys()
