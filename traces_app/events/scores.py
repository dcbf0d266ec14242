"""Scores in events: the outcome of an event of type `score`, besides its own row, is a score of the call, message or session.

Its `data` has the fields of records.Score, and names the call by `uuid` or `call_id` as the events of the call do, or has
`about: "session"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec

from traces_app.ingest.decode import score_from
from traces_app.ingest.scores import PlacedScore, ScoreTarget, identity_of
from tracesite_sdk import records
from tracesite_sdk.events import projection
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.records import ids, losses
from tracesite_sdk.redaction.rules import DEFAULT_RULES

SCORE = "score"
_FIELDS = ("name", "value", "kind", "label", "comment", "source", "author", "external_id", "metadata")
_ABOUT, _SESSION = "about", "session"


def check_score(event: records.Event, path: str) -> None:
    """Raise InvalidInput, with the path below `data`, if an event of type `score` reports none."""
    score_from(_fields_of(event.data or {}), path)


def names_no_message(event: records.Event) -> bool:
    """Return whether an event is a score of the session, so that any of its runs may list it."""
    return event.type == SCORE and not event.message_id


def of_session(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a score that names no message."""
    return {_ABOUT: _SESSION, **data}


def placed_score(session_id: UUID, message_id: UUID, event: records.Event) -> PlacedScore:
    """Return the score of a redacted event with its place. Its id follows from that of the event, unless it has its own."""
    data = event.data or {}
    score = score_from(_fields_of(data), "data")
    receipts = [replace(receipt, path=receipt.path.removeprefix("data.")) for receipt in losses.receipts_of(data)]
    score = msgspec.structs.replace(
        score,
        created_at=event.timestamp,
        external_id=score.external_id or identity_of(session_id, event.id),
    )
    # Redacted already, with the event; this finds nothing more.
    redacted = redact_score(score, DEFAULT_RULES)
    redacted = replace(redacted, receipts=[*receipts, *redacted.receipts])
    call = projection.call_named(event.agent or "", data)
    if data.get(_ABOUT) == _SESSION:
        place = ScoreTarget(session_id=session_id)
    elif call:
        # The id of its row, whether it has arrived or not.
        call_id = UUID(ids.child_hex(message_id.int, "call", "uuid", call, 0))
        place = ScoreTarget(session_id=session_id, message_id=message_id, call_id=call_id)
    else:
        place = ScoreTarget(session_id=session_id, message_id=message_id)
    return PlacedScore(redacted=redacted, place=place)


def _fields_of(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in _FIELDS if data.get(name) is not None}
