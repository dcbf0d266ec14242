"""Response schemas: chains of calls."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from messages_app.http.schemas import Count, Id, JsonObject, Page, Resource, Seconds, Time
from tracesite_sdk.records import CallStatus

from .calls import ModelCallId, ToolResult


class ChainSummary(Resource, frozen=True):
    """A call chain without its calls: an assistant message with at least one call, read as a tree."""

    chain_id: Annotated[Id, Meta(description="The id of the message.")]
    external_id: str
    session_id: Id
    root_tool_id: Annotated[
        str | None,
        Meta(
            description=(
                "The root as named by a tracker, otherwise the tool of the root call, which is "
                "the first call without a parent."
            )
        ),
    ]
    root_call_id: Id | None
    created_at: Time
    completed_at: Time | None
    duration: Seconds | None
    """Seconds, unlike other durations, which are in milliseconds; null if unknown."""
    success: Annotated[
        bool,
        Meta(
            description=(
                "true if no call failed, the message has no error, and no call of a completed message is open."
            )
        ),
    ]
    error_message: Annotated[str | None, Meta(description="The first error.")]
    call_count: Count
    failure_count: Count
    metadata: JsonObject
    type: Literal["tool_call_chain"]


class ChainCall(Resource, frozen=True):
    """A call as a node of its chain."""

    call_id: Id
    id: ModelCallId
    tool_id: Annotated[str, Meta(description="The name of the tool.")]
    parent_id: Id | None
    child_calls: Annotated[list[Id], Meta(description="The calls started by this call, in order.")]
    iteration: Annotated[int, Meta(description="The iteration of its step.")]
    parameters: JsonObject
    result: ToolResult | None
    status: CallStatus
    success: bool
    error_message: str | None
    duration: Seconds | None
    """Seconds, unlike other durations, which are in milliseconds; null if unknown."""
    started_at: Time | None
    completed_at: Time | None
    metadata: JsonObject


class Chain(ChainSummary, frozen=True):
    """A call chain with all its calls."""

    root_calls: Annotated[list[Id], Meta(description="The calls without a parent, in order.")]
    calls: Annotated[dict[str, ChainCall], Meta(description="All calls by `call_id`, in reading order.")]


class ChainPage(Page[ChainSummary], frozen=True):
    """A page of chains, with the cursors of the next and previous pages; null at either end."""
