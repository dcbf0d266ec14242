"""Let the writers of one trace take turns: each makes rows of everything that the others have stored."""

from __future__ import annotations

from collections.abc import Collection

from access_app.db import Database
from access_app.db.statements import read_prepared
from tracesite_sdk.records import ids

TAKE_TURNS = "SELECT pg_advisory_xact_lock(key) FROM unnest(%s::bigint[]) AS key"


def take_turns(db: Database, project_id: int, trace_ids: Collection[str]) -> None:
    """Lock the traces, in one order, until the end of the transaction."""
    read_prepared(TAKE_TURNS, [keys_of(project_id, trace_ids)], db.connection)


def keys_of(project_id: int, trace_ids: Collection[str]) -> list[int]:
    """Return the locks of traces, for TAKE_TURNS."""
    return sorted(ids.key("trace", project_id, trace_id).int % 2**63 for trace_id in trace_ids)
