"""Mark the messages that the application writes, so that they are sealed (traces_app.maintenance.seals).

Every write to a completed message or to rows below it marks it in the same transaction, and so does every removal. A mark
carries a token that only a process with the seal key can make: a change by SQL has none, and stays visible. A token holds for
one message and one time, because the seal that it leads to remembers it.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from hmac import compare_digest
from uuid import UUID

from access_app.db import Database
from access_app.seal_keys import seal_keys

NONCE_BYTES = 8
_MAC_BYTES = 16
_INSERT = """
    INSERT INTO messages_app_sealmark (message_id, token) SELECT * FROM unnest(%s::uuid[], %s::bytea[])
    """


def mark(db: Database, message_ids: Collection[UUID]) -> None:
    """Mark these messages. Call it in the transaction that changes or removes them, or rows below them."""
    if message_ids:
        # As texts of arrays, because psycopg takes longer to quote lists than all the rest takes.
        marked = ",".join([message_id.hex for message_id in message_ids])
        tokens = ",".join([rf'"\\x{new_token(message_id).hex()}"' for message_id in message_ids])
        with db.cursor() as cursor:
            cursor.execute(_INSERT, [f"{{{marked}}}", f"{{{tokens}}}"])


def new_token(message_id: UUID) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + seal_keys()[0].digest(b"mark", message_id.bytes, nonce)[:_MAC_BYTES]


def nonce_of(message_id: UUID, token: bytes) -> bytes | None:
    """Return the nonce of a token for this message; None if the application did not make it."""
    nonce, mac = token[:NONCE_BYTES], token[NONCE_BYTES:]
    made = (key.digest(b"mark", message_id.bytes, nonce)[:_MAC_BYTES] for key in seal_keys())
    return nonce if any(compare_digest(mac, expected) for expected in made) else None
