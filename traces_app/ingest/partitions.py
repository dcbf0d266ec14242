"""The tables that are partitioned by month, and making sure that the months of a write exist."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection, transaction

from messages_app.sql.partitions import Month, PartitionedTable, make_months

# Parents first. Foreign keys are leaf to leaf: one to a plain table would lock that table at attach and drop, and an
# unindexed one (calls to their step or parent call) would cost 140 ms a purged message.
TABLES = (
    PartitionedTable(name="messages_app_message", parents={}),
    PartitionedTable(name="messages_app_reference", parents={"message_id": "messages_app_message"}),
    PartitionedTable(name="traces_app_agentstep", parents={"message_id": "messages_app_message"}),
    PartitionedTable(name="traces_app_toolcall", parents={"message_id": "messages_app_message"}),
    PartitionedTable(name="traces_app_toolresult", parents={"id": "traces_app_toolcall"}),
    # No key to their message: that would need one more index on the tables that are written most.
    PartitionedTable(name="traces_app_event", parents={}),
    PartitionedTable(name="traces_app_context", parents={}),
)

# Months that this process has seen, per database. A month may be dropped behind our back: `forget` is for that.
_known: dict[str, set[Month]] = {}


def ensure_months(months: Iterable[Month]) -> None:
    """Makes the partitions of `months` that are missing. Call it before the transaction that writes to them."""
    known = _known.setdefault(connection.settings_dict["NAME"], set())
    missing = set(months) - known
    if missing:
        make_months(TABLES, missing)
        # Inside a transaction that may yet roll back, remembering them would be a lie.
        transaction.on_commit(lambda: known.update(missing))


def forget() -> None:
    """Forgets what this process knows of the partitions: one was found missing."""
    _known.clear()
