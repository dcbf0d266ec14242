"""The tables that are partitioned by month, and the creation of partitions before a write."""

from __future__ import annotations

from collections.abc import Iterable

from access_app.db import connection, transaction
from access_app.db.base import cache_key
from messages_app.sql.partitions import Month, PartitionedTable, make_months

# Parents first. Foreign keys are leaf to leaf, because one to a plain table would lock that table at attach and drop, and
# an unindexed one (calls to their step or parent call) would cost 140 ms for each purged message.
TABLES = (
    PartitionedTable(name="messages_app_message", parents={}),
    PartitionedTable(name="messages_app_reference", parents={"message_id": "messages_app_message"}),
    PartitionedTable(name="traces_app_agentstep", parents={"message_id": "messages_app_message"}),
    PartitionedTable(name="traces_app_toolcall", parents={"message_id": "messages_app_message"}),
    PartitionedTable(name="traces_app_toolresult", parents={"id": "traces_app_toolcall"}),
    # No foreign key to their message, because it would need one more index on the tables that are written most.
    PartitionedTable(name="traces_app_event", parents={}),
    PartitionedTable(name="traces_app_context", parents={}),
    # Arrive before their message, whose time they need not have.
    PartitionedTable(name="traces_app_span", parents={}),
    PartitionedTable(name="traces_app_searchsegment", parents={}),
    PartitionedTable(name="traces_app_searchrows", parents={}),
    PartitionedTable(name="traces_app_searchposting", parents={}),
    PartitionedTable(name="traces_app_runvector", parents={"id": "messages_app_message"}),
    # Seals of removed messages stay until their month goes.
    PartitionedTable(name="traces_app_messageseal", parents={}),
)

# The months that exist, by database. Another process may drop one; the write that fails then calls `forget`.
_known: dict[str, set[Month]] = {}


def ensure_months(months: Iterable[Month]) -> None:
    """Create missing partitions of `months`. Call it before the transaction that writes to them."""
    known = _known.setdefault(cache_key(connection), set())
    missing = set(months) - known
    if missing:
        make_months(TABLES, missing)
        # On commit, because the current transaction may still roll back.
        transaction.on_commit(lambda: known.update(missing))


def forget() -> None:
    """Clear the cache of partitions, because one was found missing."""
    _known.clear()
