"""Response schemas: the types of the API's JSON, from which the OpenAPI document is generated.

Resources are built from rows, never from a client's data, so nothing is validated here. JSON columns pass through as
PostgreSQL's text. A field with the value UNSET is left out: an optional field without a value, or a field that the client
did not request (`fields`, `expand`).
"""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from access_app.models import ActorKind, AuditAction, AuditResult
from messages_app.interruptions import TEXTS
from messages_app.models import Session as SessionRow

T = TypeVar("T")
JsonObject = Annotated[Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": True})]
JsonArray = Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": {}})]
Json = Raw
Amount = Annotated[Raw, Meta(extra_json_schema={"type": "number"})]
"""The exact number of a decimal column."""
Id = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
INSTANT_OR_DATE = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}]}
"""The schema of a parameter that limits a list by time."""
A_DATE_IS_MIDNIGHT = "A date means 00:00 UTC; a time needs a zone (Z or an offset)."

Time = Annotated[str, Meta(description="UTC, with microseconds.", extra_json_schema={"format": "date-time"})]
Milliseconds = Annotated[int, Meta(description="Milliseconds.", ge=0)]
Seconds = Annotated[float, Meta(description="Seconds.", ge=0)]
Count = Annotated[int, Meta(ge=0)]


OUTCOMES = ("failed", "waiting", "running", "done", "stopped")
"""The values of traces_app.queries.runs.outcome.Outcome, which this package does not import."""


class Resource(Struct, frozen=True, gc=False):
    """The base of all response schemas."""


class Redaction(Resource, frozen=True):
    """Secrets that were redacted in one place."""

    path: str
    rule: Annotated[str, Meta(description="The name of the rule that found them.")]
    count: int | UnsetType = UNSET


Redactions = Annotated[list[Redaction], Meta(description="Secrets that were redacted before the row was stored.")]


class Page(Resource, Generic[T], frozen=True):
    """A page of a list, with the cursors of the next and previous pages; null at either end."""

    results: list[T]
    next: str | None
    previous: str | None


class NumberedPage(Resource, Generic[T], frozen=True):
    """A page of a list. `next` and `previous` are cursors, or page numbers if the request gave one; null at either end."""

    results: list[T]
    next: str | int | None
    previous: str | int | None


class Resources(Resource, frozen=True):
    """The resources that a session has used: the sums over its messages."""

    input_tokens: Count
    output_tokens: Count
    total_tokens: Count
    duration: Milliseconds
    """Milliseconds, the sum over its messages."""


class Session(Resource, frozen=True):
    """One conversation or task. Its counters exclude deleted messages."""

    id: Id
    project: Annotated[str, Meta(description="The slug of its project.")]
    external_id: str
    """The producer's id, unique in the project; "" without one."""
    title: str
    description: str
    end_user: str
    """The user of the agent, as named by the producer."""
    status: Annotated[str, Meta(extra_json_schema={"enum": SessionRow.Status.values})]
    status_is_explicit: bool
    """true: its producer stated the status; false: it follows from the messages."""
    status_reason: Annotated[str, Meta(extra_json_schema={"enum": [*TEXTS]})] | None
    """Why it is `aborted`, unless its producer said so: the process of the agent ended, or nothing was heard for a long time."""
    outcome: Annotated[str, Meta(extra_json_schema={"enum": [*OUTCOMES]})]
    """How its newest run ended, as its page says: `failed` only if no later call made the failure good. Without a run it follows from
    `status`."""
    current_phase: str
    """The present activity, as described by the agent."""
    workflow: Json | None
    """The plan of the task: any JSON."""
    tags: list[str]
    metadata: JsonObject
    redactions: Redactions
    message_count: Count
    call_count: Count
    failure_count: Count
    """Failed calls."""
    problem_count: Count
    """Failed calls, model errors, and runs with an error."""
    resources: Resources
    cost: Amount | None
    """USD, the sum over its messages whose cost is known; null if there are none."""
    unpriced_count: Count
    """Answers of models whose cost is unknown; unless it is 0, `cost` is a lower bound."""
    last_event: Annotated[
        int,
        Meta(
            description=("The number of its last event; 0 if it has none. Events are numbered from 1 without gaps."),
            ge=0,
        ),
    ]
    created_at: Time
    updated_at: Time
    active_at: Time
    """The time of the last activity, by the times of its messages and events; exact to a second."""
    deleted_at: Time | None
    """Not null if the session is in the trash."""


class Error(Resource, frozen=True):
    """The reason of an error."""

    code: Annotated[str, Meta(description="A stable code for programs.", examples=["invalid_input"])]
    message: Annotated[
        str,
        Meta(
            description="For people, in the language of Accept-Language.",
            examples=["Expected a string or null, not a number."],
        ),
    ]
    field: Annotated[
        str | None, Meta(description="The invalid JSON path, parameter or header.", examples=["sessions[0].title"])
    ]
    request_id: Annotated[
        str | None,
        Meta(
            description="Also in the header X-Request-ID and in the log.", examples=["47633e19f195cdf81d1ca5ac07866942"]
        ),
    ]


class ErrorAnswer(Resource, frozen=True):
    """The response to every request that failed."""

    error: Error


class AuditEntry(Resource, frozen=True):
    """A line of the audit log: who did or read what, when, from where, and with which result."""

    id: int
    time: Time
    actor_kind: Annotated[str, Meta(extra_json_schema={"enum": list(ActorKind.values)})]
    actor_name: str
    actor_id: str
    action: Annotated[str, Meta(extra_json_schema={"enum": list(AuditAction.values)})]
    object_type: str
    object_id: str
    object_name: str
    project: Annotated[
        str | None, Meta(description="The slug of its project; null for what belongs to none or to several.")
    ]
    address: str
    request_id: str
    result: Annotated[str, Meta(extra_json_schema={"enum": list(AuditResult.values)})]
    detail: JsonObject
    sequence: Annotated[
        int | None, Meta(description="Its number in the chain of its project; null until it is chained.")
    ]
    previous_hash: str
    hash: str


class AuditPage(Page[AuditEntry], frozen=True):
    """A page of the audit log, with the cursors of the next and previous pages; null at either end."""
