"""Locks of traces until the end of a transaction, taken in one order.

Whoever makes the messages of a trace takes turns with others who do: each makes them of everything that is stored. Deliveries of a
trace do not wait for that nor for each other, but a purge waits for them and they for it: otherwise what came at the same time
would stay behind as a part of a trace.
"""

from __future__ import annotations

from collections.abc import Collection

from access_app.db import Database
from access_app.db.statements import read_prepared
from tracesite_sdk.records import ids

TAKE_TURNS = "SELECT pg_advisory_xact_lock(key) FROM unnest(%s::bigint[]) AS key"
DELIVER = "SELECT pg_advisory_xact_lock_shared(key) FROM unnest(%s::bigint[]) AS key"


def take_turns(db: Database, project_id: int, trace_ids: Collection[str]) -> None:
    """Lock the traces, in one order, until the end of the transaction."""
    read_prepared(TAKE_TURNS, [keys_of(project_id, trace_ids)], db.connection)


def hold_deliveries(db: Database, traces: Collection[tuple[int, str]]) -> None:
    """Let deliveries of these traces, given with their projects, wait until the end of the transaction."""
    keys = sorted(key for project_id, trace_id in traces for key in delivery_keys_of(project_id, [trace_id]))
    read_prepared(TAKE_TURNS, [keys], db.connection)


def keys_of(project_id: int, trace_ids: Collection[str]) -> list[int]:
    """Return the locks of traces, for TAKE_TURNS."""
    return sorted(ids.key("trace", project_id, trace_id).int % 2**63 for trace_id in trace_ids)


def delivery_keys_of(project_id: int, trace_ids: Collection[str]) -> list[int]:
    """Return the locks of deliveries to traces, for DELIVER or, by a single one at a time, TAKE_TURNS."""
    return sorted(ids.key("delivery", project_id, trace_id).int % 2**63 for trace_id in trace_ids)
