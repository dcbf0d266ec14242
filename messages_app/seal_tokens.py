"""Tokens in the log of changes that the application wrote a message, by which it is sealed (traces_app.maintenance.seals).

Every write to a completed message or to rows below it, and every removal, leaves a row with a token in the log
(change_log.py). Only a process with the seal key can make one: a change by SQL has none, and stays visible. A token holds for
one message and one time, because the seal that it leads to remembers it.
"""

from __future__ import annotations

import os
from hmac import compare_digest
from uuid import UUID

from access_app.seal_keys import seal_keys

NONCE_BYTES = 8
_MAC_BYTES = 16
_PURPOSE = b"mark"
"""Never changed, because rows of the log have tokens that were made with it."""


def new_token(message_id: UUID) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + seal_keys()[0].digest(_PURPOSE, message_id.bytes, nonce)[:_MAC_BYTES]


def nonce_of(message_id: UUID, token: bytes) -> bytes | None:
    """Return the nonce of a token for this message; None if the application did not make it."""
    nonce, mac = token[:NONCE_BYTES], token[NONCE_BYTES:]
    made = (key.digest(_PURPOSE, message_id.bytes, nonce)[:_MAC_BYTES] for key in seal_keys())
    return nonce if any(compare_digest(mac, expected) for expected in made) else None
