"""Response schemas: messages with everything below them."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from messages_app.http.schemas import (
    Amount,
    Count,
    Id,
    JsonArray,
    JsonObject,
    Milliseconds,
    NumberedPage,
    Redactions,
    Resource,
    Time,
)
from tracesite_sdk.records import Role

from .calls import ToolCall
from .contexts import ModelInput


class Reference(Resource, frozen=True):
    """One retrieved passage behind an answer."""

    id: str
    content: str
    knowledge_id: str
    chunk_index: int
    knowledge_title: str
    start_at: int
    end_at: int
    seq: int
    score: float
    match_type: int
    sub_chunk_id: JsonArray | None
    metadata: JsonObject
    chunk_type: str
    parent_chunk_id: str
    image_info: str
    knowledge_filename: str
    knowledge_source: str


class AgentStep(Resource, frozen=True):
    """One think-act iteration."""

    id: Id
    iteration: Annotated[int, Meta(description="The iteration as reported by the agent, from 0; may repeat.")]
    thought: str
    tool_calls: list[ToolCall]
    timestamp: Time | None
    duration: Milliseconds | UnsetType = UNSET
    agent_name: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    usage: JsonObject | UnsetType = UNSET
    cost: Annotated[
        Amount | UnsetType,
        Meta(description="USD; left out if the tokens or the price of the model are unknown."),
    ] = UNSET
    cost_is_explicit: Annotated[
        bool | UnsetType,
        Meta(description="true: its producer stated the cost; false: it follows from the tokens and a price."),
    ] = UNSET
    reasoning_content: str | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET
    time_to_first_token: Milliseconds | UnsetType = UNSET
    input_ref: Annotated[
        str | UnsetType, Meta(description="What the model was asked: `sessions/{id}/contexts/{input_ref}/` has it.")
    ] = UNSET
    input: Annotated[ModelInput | UnsetType, Meta(description="Only with `expand=inputs`.")] = UNSET


class Message(Resource, frozen=True):
    """One message of a conversation; an assistant message is one agent run."""

    id: Id
    session_id: Id
    external_id: str
    request_id: str
    """The request of the application that this message belongs to."""
    role: Role
    content: str
    knowledge_references: list[Reference]
    agent_steps: list[AgentStep]
    is_completed: bool
    """false until the answer is complete."""
    created_at: Time
    updated_at: Time
    completed_at: Time | None
    """null until the answer is complete."""
    deleted_at: Time | None
    """Not null if the message is in the trash."""
    version: Annotated[int, Meta(description="Increases with every change; also the ETag.")]
    usage: JsonObject | None
    error: str
    duration: Milliseconds | None
    """Milliseconds; null if unknown."""
    step_count: Count
    call_count: Count
    failure_count: Count
    model_error_count: Count
    """Steps whose model request failed, also if the agent recovered from it."""
    input_tokens: Count
    output_tokens: Count
    cost: Amount | None
    """USD, the sum over the steps whose cost is known; null if there are none."""
    unpriced_count: Count
    """Answers of models whose cost is unknown; unless it is 0, `cost` is a lower bound."""
    health: Annotated[list[str], Meta(description="Health flags: problems of the data as it arrived.")]
    redactions: Redactions
    metadata: JsonObject
    content_parts: JsonArray | UnsetType = UNSET
    display_content: Annotated[
        str | UnsetType,
        Meta(
            description="What people read in place of `content`: the text without the JSON of tools that a model repeated in it; "
            "left out where it is `content`."
        ),
    ] = UNSET


class MessagePage(NumberedPage[Message], frozen=True):
    """A page of messages. `next` and `previous` are cursors, or page numbers if the request gave one; null at either end."""
