"""Traces that share calls: the spans of all are stored under the first of them, so they are found, purged and archived together.

Each of the others has a row of kind `joined` under itself and one under the first, both with the ids of both. The row under
itself stays if the spans are purged, so that a later delivery of the trace does not bring back a part of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

import msgspec
from msgspec import Struct

from access_app.db import Database
from traces_app.models import Span

JOINED = "joined"
"""The kind of a row that says under which trace another one is stored."""


class JoinedTrace(Struct, frozen=True, kw_only=True):
    """A trace whose spans are stored under another one."""

    trace_id: str
    home: str


decode_joined = msgspec.json.Decoder(JoinedTrace).decode


def homes_of(db: Database, project_id: int, trace_ids: Collection[str]) -> dict[str, str]:
    """Return the traces that are stored under another one, with that one: these, and those of their groups."""
    homes = _homes(db, project_id, trace_ids)
    if others := {*homes.values()}.difference(trace_ids):
        homes |= _homes(db, project_id, others)
    return homes


def _homes(db: Database, project_id: int, trace_ids: Collection[str]) -> dict[str, str]:
    rows = db.rows(Span.objects).filter(
        project_id=project_id, trace_id__in=[UUID(trace_id) for trace_id in trace_ids], kind=JOINED
    )
    found = (decode_joined(content) for _id, content in rows.order_by("pk").values_list("pk", "content"))
    return {joined.trace_id: joined.home for joined in found}


def group_of(homes: Mapping[str, str], trace_id: str) -> set[str]:
    """Return the traces that are stored together with a trace, with itself."""
    home = homes.get(trace_id, trace_id)
    return {trace_id, home, *(other for other, of in homes.items() if of == home)}
