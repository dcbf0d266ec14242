"""Find the steps and calls of one run that have the terms of a search.

A step or a call must have all terms itself. Calls come from the index, so that a run with 50,000 calls is not read; the texts of
steps are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from uuid import UUID

from msgspec import Struct

from access_app.db import Database
from messages_app.queries import refuse_encrypted_messages
from messages_app.sql.pagination import IdRange
from traces_app.models import ToolCall
from tracesite_sdk.records import ids

from .found import SECONDS, Hit, find, hits_of
from .query import SearchQuery
from .texts import Kind, texts_of_message

MOST_CALLS = 500


class FoundInRun(Struct, frozen=True, kw_only=True):
    hits: Mapping[UUID, Sequence[Hit]]
    """Hits by step or call: one place for each term, in the order of the search."""
    is_cut: bool
    """Whether there may be more, because there are very many or the search took too long."""


def find_in_run(db: Database, query: SearchQuery, message_id: UUID) -> FoundInRun:
    """Return the steps and calls of a message, deleted or not, that have all terms."""
    refuse_encrypted_messages(db, [message_id])
    hits: dict[UUID, Sequence[Hit]] = {}
    until = monotonic() + SECONDS
    is_late = False
    for row in texts_of_message(db, Kind.STEP, message_id):
        if (row_hits := hits_of(row, query)) is not None:
            hits[row.id] = row_hits
        if is_late := monotonic() > until:
            break

    def among(keys: list[UUID]) -> list[UUID]:
        calls = db.rows(ToolCall.with_deleted).filter(pk__in=keys, message_id=message_id)
        return list(calls.order_by().values_list("pk", flat=True))

    first, after = ids.range_below(message_id)
    calls = find(db, query, "call", among, IdRange(lower=first, upper=after), newest_first=False, limit=MOST_CALLS + 1)
    hits |= {call: calls.hits[call] for call in calls.ids[:MOST_CALLS]}
    return FoundInRun(hits=hits, is_cut=is_late or len(calls.ids) > MOST_CALLS or calls.reached is not None)
