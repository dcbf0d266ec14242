"""Response schemas: what became of sent sessions, messages and events."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from messages_app.http.schemas import Id, Resource

MessageOutcome = Literal["created", "updated", "unchanged", "refused"]
EventOutcome = Literal["stored", "duplicate", "refused"]
RefusalCode = Literal["session_deleted", "session_purged", "message_deleted", "message_purged", "message_completed"]


class SentMessage(Resource, frozen=True):
    """The outcome of one message."""

    id: Annotated[Id | None, Meta(description="null if the message was refused and never stored.")]
    external_id: str
    state: Annotated[
        MessageOutcome,
        Meta(description="`unchanged`: the same message was already stored."),
    ]


class Refusal(Resource, frozen=True):
    """Valid data that was not stored, because its target is deleted, purged or completed."""

    path: Annotated[str, Meta(description="Its path in the body, such as `sessions[0].messages[2]` or `events[3]`.")]
    code: RefusalCode
    message: str


class SentMessages(Resource, frozen=True):
    """The outcomes of a list of messages, in the order of the request."""

    results: list[SentMessage]
    refused: list[Refusal]


class SentSession(Resource, frozen=True):
    """The outcome of one session, and of its messages in order."""

    id: Annotated[Id | None, Meta(description="null if the session was purged.")]
    external_id: str
    created: Annotated[bool, Meta(description="false: the session already existed.")]
    messages: list[SentMessage]


class SentSessions(Resource, frozen=True):
    """The outcomes of a batch of sessions, in the order of the request."""

    sessions: list[SentSession]
    refused: list[Refusal]


class SentEvent(Resource, frozen=True):
    """The outcome of an event."""

    session_id: Id | None
    external_id: Annotated[str, Meta(description="The id given by the producer, or the derived id.")]
    state: EventOutcome
    seq: Annotated[int | None, Meta(description="The number in the session; null if the event was refused.")]


class SentEvents(Resource, frozen=True):
    """The outcomes of a batch of events, in the order of the request."""

    results: list[SentEvent]
    refused: list[Refusal]
