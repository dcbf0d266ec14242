"""Response schemas: calls of tools and their results."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from messages_app.http.schemas import Id, Json, JsonArray, JsonObject, Milliseconds, Page, Resource, Time
from tracesite_sdk.records import CallStatus

ModelCallId = Annotated[
    str, Meta(description="The call id given by the model; may repeat. Derived from `uuid` if the model gave none.")
]
ParentCall = Annotated[Id, Meta(description="The `uuid` of the call that started this one.")]


class ToolResult(Resource, frozen=True):
    """The outcome of a call. `success` is `status == "success"`; a failed call always has an `error`."""

    status: CallStatus
    success: bool
    output: Annotated[str, Meta(description="For people.")]
    data: Annotated[Json | UnsetType, Meta(description="For machines: any JSON.")] = UNSET
    error: str | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET
    attachments: JsonArray | UnsetType = UNSET
    raw: Annotated[str | UnsetType, Meta(description="The text as received, if it differs from `output`.")] = UNSET


class CallFields(Resource, frozen=True):
    """The fields of a call, wherever it is returned."""

    id: ModelCallId
    uuid: Annotated[Id, Meta(description="The unique id of the call.")]
    name: Annotated[str, Meta(description="The name of the tool.")]
    args: JsonObject
    result: Annotated[ToolResult | None, Meta(description="null while the call is open.")]
    duration: Milliseconds | None
    """Milliseconds; null if unknown."""
    status: CallStatus
    started_at: Time | None
    completed_at: Time | None


class ToolCall(CallFields, frozen=True):
    """One call of a tool."""

    reflection: str | UnsetType = UNSET
    parent: ParentCall | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET


class Call(CallFields, frozen=True):
    """One call of a tool by itself, with the ids of its message and step."""

    session_id: Id
    message_id: Annotated[Id, Meta(description="Also the id of the chain.")]
    step_id: Id
    created_at: Annotated[Time, Meta(description="The time of its message, by which lists are ordered.")]
    iteration: Annotated[int, Meta(description="The iteration of its step.")]
    position: Annotated[int, Meta(description="The position in its step, from 0.")]
    reflection: str | UnsetType = UNSET
    parent: ParentCall | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET


class CallPage(Page[Call], frozen=True):
    """A page of calls, with the cursors of the next and previous pages; null at either end."""
