"""The JSON that the API answers with, as types: what a client may rely on, and what the OpenAPI document says.

Made from rows, never from a client's data, so nothing here is validated. JSON columns pass through as the text that
PostgreSQL holds. A field that holds UNSET is left out: those typed so where there is nothing to say, and any field that
the client did not ask for (`fields`, `expand`).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct

from messages_app.models import Session as SessionRow

JsonObject = Annotated[Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": True})]
JsonArray = Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": {}})]
Json = Raw
Redactions = Annotated[
    Raw,
    Meta(
        description="What was taken out before storing.",
        extra_json_schema={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "rule": {"type": "string"}, "count": {"type": "integer"}},
                "required": ["path", "rule"],
            },
        },
    ),
]
Id = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
Time = Annotated[str, Meta(description="UTC, with microseconds.", extra_json_schema={"format": "date-time"})]
Milliseconds = Annotated[int, Meta(description="Milliseconds.", ge=0)]
Seconds = Annotated[float, Meta(description="Seconds.", ge=0)]
Count = Annotated[int, Meta(ge=0)]


class Resource(Struct, frozen=True, gc=False):
    """The base of all answers."""


class Resources(Resource, frozen=True):
    """What a session has used, added up over its messages."""

    input_tokens: Count
    output_tokens: Count
    total_tokens: Count
    duration: Milliseconds
    """Milliseconds, of all its messages."""


class Session(Resource, frozen=True):
    """One conversation or task. The counters count what is not deleted."""

    id: Id
    project: Annotated[str, Meta(description="The slug of its project.")]
    external_id: str
    """The producer's id, unique in the project; "" where there is none."""
    title: str
    description: str
    end_user: str
    """Who talks to the agent, as the producer names them."""
    status: Annotated[str, Meta(extra_json_schema={"enum": SessionRow.Status.values})]
    status_is_explicit: bool
    """true: its producer stated the status; false: it follows from the messages."""
    current_phase: str
    """What the agent is at, in its own words."""
    workflow: Json | None
    """The plan of the task: any JSON."""
    tags: list[str]
    metadata: JsonObject
    redactions: Redactions
    message_count: Count
    call_count: Count
    failure_count: Count
    """Of its calls, those that failed."""
    problem_count: Count
    """Failed calls, model errors, and runs with an error."""
    resources: Resources
    last_event: Annotated[int, Meta(description="The number of its last event, from 1 without gaps; 0: none.", ge=0)]
    created_at: Time
    updated_at: Time
    active_at: Time
    """When something last happened in it, by the times of its messages and events; to a second."""
    deleted_at: Time | None
    """Not null: it is in the trash."""


class SessionPage(Resource, frozen=True):
    """Sessions, and the cursors of the pages around them; null where there is none."""

    results: list[Session]
    next: str | None
    previous: str | None


class Error(Resource, frozen=True):
    """What went wrong."""

    code: Annotated[str, Meta(description="For programs: stable.")]
    message: Annotated[str, Meta(description="For people, in the language that was asked for.")]
    field: Annotated[str | None, Meta(description="The JSON path, parameter or header at fault.")]
    request_id: Annotated[str | None, Meta(description="Also in the header X-Request-ID and in the log.")]


class ErrorAnswer(Resource, frozen=True):
    """The one shape of every error."""

    error: Error
