"""The tables that are partitioned by period, and the creation of partitions before a write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from access_app.db import Database
from access_app.db.base import cache_key
from messages_app.sql.partitions import PartitionedTable, make_periods, periods_of
from messages_app.sql.periods import Length, Period, period_at

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
    PartitionedTable(name="traces_app_errorpattern", parents={"message_id": "messages_app_message"}),
    # Seals of removed messages stay until their period goes.
    PartitionedTable(name="traces_app_messageseal", parents={}),
)

# The periods that are covered by partitions, by database, and whether one partition covers them whole. Another process may drop
# one; the write that fails then calls `forget`.
_known: dict[str, dict[Period, bool]] = {}


def ensure_periods(db: Database, periods: Iterable[Period]) -> None:
    """Create missing partitions of `periods`. Call it before the transaction that writes to them."""
    known = _known.setdefault(cache_key(db.connection), {})
    missing = set(periods) - known.keys()
    if missing:
        make_periods(db, TABLES, missing)
        existing = periods_of(db, TABLES[0].name)
        covered = {period: _is_covered(period, existing) for period in missing}
        # On commit, because the current transaction may still roll back.
        db.on_commit(lambda: known.update(covered))


def _is_covered(period: Period, existing: Sequence[Period]) -> bool:
    partition = period_at(existing, period.begins_at)
    return partition is not None and partition.covers(period)


def period_in_one_partition(db: Database, instant: datetime) -> Period:
    """Return the period with this time, if one partition has all of it, or else the day, which always is in one partition."""
    period = Period.of(instant)
    if _known.get(cache_key(db.connection), {}).get(period):
        return period
    return Period.of(instant, Length.DAY)


def forget() -> None:
    """Clear the cache of partitions, because one was found missing."""
    _known.clear()
