"""Replace messages that were made again of everything that is known of them: only rows that differ are written.

What differs is found by digests of the rows as they were stored, which whoever makes the messages keeps (traces_app.spans): reading
the rows would take longer than to write them, and the same text is encrypted differently each time. Merging a record into its
message (merging.py) would not do, because it clears and removes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

from django.conf import settings
from msgspec import msgpack

from access_app.db import Database
from access_app.db.statements import prepared_cursor
from messages_app.writes import Counts
from tracesite_sdk.records import pg_text

from .batch import Context, PendingMessage
from .made_rows import MadeRows, made_rows
from .sql import BY_ID, insert_rows, lock_messages
from .tables import CALLS, CONTEXTS, MESSAGES, REFERENCES, RESULTS, STEPS, Row, Table

_TABLES = (MESSAGES, REFERENCES, STEPS, CALLS, RESULTS, CONTEXTS)
"""Parents first."""
_DIGEST_BYTES = 8
_ENTRY_BYTES = 1 + 16 + _DIGEST_BYTES
_SAME = bytes(_DIGEST_BYTES)
"""The digest of what the models were asked, which the id is a digest of."""

Digests = dict[tuple[Table, str], bytes]
"""Digests of the rows of a message, by table and id."""


def digests_of(made: MadeRows) -> Digests:
    """Return the digests of rows. They are keyed, because rows of encrypted projects must not be guessed from them."""
    found = {(table, row.id): _digest(row) for table, row in _rows(made)}
    found |= {(CONTEXTS, row_id): _SAME for row_id, row in made.inputs.items() if row.message_id is not None}
    return found


def packed(digests: Digests) -> bytes:
    """Return digests as they are kept: for each row the number of its table, its id and its digest."""
    return b"".join(
        _TABLES.index(table).to_bytes(1) + bytes.fromhex(row_id) + digest for (table, row_id), digest in digests.items()
    )


def _unpacked(digests: bytes) -> Digests:
    entries = (digests[at : at + _ENTRY_BYTES] for at in range(0, len(digests), _ENTRY_BYTES))
    return {(_TABLES[entry[0]], entry[1:17].hex()): entry[17:] for entry in entries}


def overwrite(db: Database, context: Context, messages: Sequence[PendingMessage]) -> None:
    """Write what differs of messages that exist, and add the difference of their counts to those of their sessions."""
    if not messages:
        return
    stored = lock_messages(db, [message.id for message in messages if message.id is not None])
    new: dict[Table, list[Row]] = defaultdict(list)
    changed: dict[Table, list[Row]] = defaultdict(list)
    gone: dict[Table, list[str]] = defaultdict(list)
    for message in messages:
        assert message.id is not None
        row = stored.get(message.id)
        if row is None:
            message.refuse("message_purged")
            continue
        made = made_rows(db, context, message)
        context.inputs.update(made.inputs)
        before, after = _unpacked(context.digests[message.id]), digests_of(made)
        message.digests = packed(after)
        message.was_completed = row.is_completed
        message.state = "unchanged" if before == after else "updated"
        for table, line in _rows(made):
            was = before.get((table, line.id))
            if was is None:
                new[table].append(line)
            elif was != after[table, line.id]:
                changed[table].append(line)
        for table, row_id in before.keys() - after.keys():
            gone[table].append(row_id)
        if row.deleted_at is None and message.state == "updated":
            message.session.counts += made.counts + -Counts.of(row)
    _write(db, context, new, changed, gone)


def _write(
    db: Database,
    context: Context,
    new: dict[Table, list[Row]],
    changed: dict[Table, list[Row]],
    gone: dict[Table, list[str]],
) -> None:
    insert_rows(db, [(table, table.encrypted(new[table], context.data_key)) for table in _TABLES])
    with prepared_cursor(db.connection) as cursor:
        for table in _TABLES:
            if lines := table.encrypted(changed[table], context.data_key):
                columns = zip(*sorted(lines, key=BY_ID), strict=True)
                cursor.execute(table.overwrite, [*map(pg_text.array, columns)])
        for table in reversed(_TABLES):
            if row_ids := gone[table]:
                # The bounds prune periods.
                bounds: list[Any] = [row_ids, min(row_ids), max(row_ids)]
                delete = f"DELETE FROM {table.name} WHERE id = ANY(%s::uuid[]) AND id BETWEEN %s AND %s"  # noqa: S608 - a constant
                cursor.execute(delete, bounds)


def _rows(made: MadeRows) -> Iterator[tuple[Table, Row]]:
    yield MESSAGES, made.line
    below = made.below
    for table, rows in (
        (REFERENCES, below.references),
        (STEPS, below.steps),
        (CALLS, below.calls),
        (RESULTS, below.results),
    ):
        for row in rows:
            yield table, row


def _digest(row: Row) -> bytes:
    # The time of the write is no difference.
    values = [value for name, value in zip(row._fields, row, strict=True) if name not in ("updated_at", "version")]
    return blake2b(msgpack.encode(values), digest_size=_DIGEST_BYTES, key=_key()).digest()


@cache
def _key() -> bytes:
    return blake2b(settings.SECRET_KEY.encode(), digest_size=32, person=b"rows of messages").digest()
