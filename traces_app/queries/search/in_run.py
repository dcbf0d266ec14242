"""Find the rows of runs that have the terms of a search: steps and calls, and what messages say.

Each must have all terms itself. Calls come from the index, so that a run with 50,000 calls is not read; other texts are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from time import monotonic
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from access_app.db import Database
from messages_app.queries import refuse_encrypted_messages
from messages_app.sql.pagination import IdRange
from traces_app.models import ToolCall
from tracesite_sdk.records import ids

from .found import SECONDS, Hit, find, hits_of
from .query import SearchQuery
from .texts import Kind, texts_of_kind

MOST_CALLS = 500
OF_RUN = (Kind.STEP,)
OF_SESSION = (Kind.MESSAGE, Kind.STEP, Kind.REFERENCE, Kind.EVENT)
"""The kinds of rows beside calls. What is found in a reference or event is a match of its message."""


class FoundRows(Struct, frozen=True, kw_only=True):
    hits: Mapping[UUID, Sequence[Hit]]
    """Hits by step, call or message: one place for each term, in the order of the search."""
    is_cut: bool
    """Whether there may be more, because there are very many or the search took too long."""


def find_in_runs(
    db: Database, query: SearchQuery, message_ids: Collection[UUID], kinds: Collection[Kind] = OF_RUN
) -> FoundRows:
    """Return the calls of messages, deleted or not, and their rows of `kinds`, that have all terms, whatever the title of a session says."""
    if not message_ids:
        return FoundRows(hits={}, is_cut=False)
    refuse_encrypted_messages(db, message_ids)
    hits: dict[UUID, Sequence[Hit]] = {}
    until = monotonic() + SECONDS
    is_late = False
    for row in (row for kind in kinds for row in texts_of_kind(db, kind, message_ids)):
        texts = tuple((field, text) for field, text in row.texts if field != "title")
        if (row_hits := hits_of(replace(row, texts=texts), query)) is not None:
            hits.setdefault(row.id if row.kind == Kind.STEP else row.message_id, row_hits)
        if is_late := monotonic() > until:
            break

    def among(keys: list[UUID]) -> list[UUID]:
        calls = db.rows(ToolCall.with_deleted).filter(pk__in=keys, message_id__in=message_ids)
        return list(calls.order_by().values_list("pk", flat=True))

    (first, _), (_, after) = ids.range_below(min(message_ids)), ids.range_below(max(message_ids))
    calls = find(db, query, "call", among, IdRange(lower=first, upper=after), newest_first=False, limit=MOST_CALLS + 1)
    hits |= {call: calls.hits[call] for call in calls.ids[:MOST_CALLS]}
    return FoundRows(hits=hits, is_cut=is_late or len(calls.ids) > MOST_CALLS or calls.reached is not None)
