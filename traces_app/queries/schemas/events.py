"""Response schemas: events."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from messages_app.http.schemas import Id, JsonObject, Resource, Time
from tracesite_sdk.records.event_types import Category, EventType, Level


class Event(Resource, frozen=True):
    """An event. Its JSON is the same, byte for byte, in lists and on live connections."""

    id: Annotated[Id, Meta(description="The unique id of the event.")]
    session_id: Annotated[Id, Meta(description="The id of the session.")]
    session_name: Annotated[
        str, Meta(description="The external id of the session (task id); its id if it has none.")
    ] = field(name="sessionId")
    message_id: Annotated[Id, Meta(description="The run of the event.")]
    seq: Annotated[int, Meta(description="The number in the session, from 1 without gaps.", ge=1)]
    external_id: Annotated[str, Meta(description="The id given by the producer, or derived from the event.")]
    type: EventType
    level: Level
    category: Category
    timestamp: Time
    data: JsonObject
    number: Annotated[int | UnsetType, Meta(description="The number given by the producer.")] = UNSET
    agent: Annotated[str | UnsetType, Meta(description="The agent, or the node of the workflow.")] = UNSET


class EventPage(Resource, frozen=True):
    """Events of a session in the order of their numbers."""

    results: list[Event]
    next: Annotated[
        int | None,
        Meta(description="The `after` of the next page; null if there are no more matching events yet."),
    ]
