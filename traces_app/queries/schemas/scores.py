"""Response schemas: scores."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from messages_app.http.schemas import Id, JsonObject, Page, Redactions, Resource, Time
from tracesite_sdk.records import ScoreKind, ScoreSource


class Score(Resource, frozen=True):
    """The judgement of a person, a program or an evaluator about a session, a message or a call."""

    id: Id
    project: Annotated[str, Meta(description="The slug of its project.")]
    session_id: Id | None
    """null while the trace or the session that it names has not arrived."""
    message_id: Id | None
    call_id: Annotated[Id | None, Meta(description="The `uuid` of the call.")]
    trace_id: Annotated[str | None, Meta(description="32 hexadecimal digits.")]
    span_id: str
    name: str
    kind: ScoreKind
    value: bool | float | str | None
    """A number, true or false, or the category, by `kind`; null for a note."""
    label: str
    """The category, or a word beside a number."""
    comment: str
    source: ScoreSource
    author: str
    external_id: Annotated[str | None, Meta(description="The producer's id, unique in the project.")]
    metadata: JsonObject
    redactions: Redactions
    created_at: Time
    updated_at: Time


class ScorePage(Page[Score], frozen=True):
    """A page of scores, with the cursors of the next and previous pages; null at either end."""


class StoredScores(Resource, frozen=True):
    """The scores of a list, as stored, in its order."""

    results: list[Score]
