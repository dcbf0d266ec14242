"""Response schemas: contexts, with the inputs of models."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from messages_app.http.schemas import Id, Json, JsonObject, Page, Resource, Time

ContextKind = Literal["prompt", "conversation", "variables", "context", "value", "input"]


class ModelInput(Resource, frozen=True):
    """The input of a model: what it was asked."""

    messages: Annotated[list[Json], Meta(description="The conversation as it was sent, in its order.")]
    system: Annotated[Json | UnsetType, Meta(description="The system prompt, if it is not one of the messages.")] = (
        UNSET
    )
    tools: Annotated[list[Json] | UnsetType, Meta(description="The schemas of the tools.")] = UNSET
    parameters: Annotated[JsonObject | UnsetType, Meta(description="The other parameters, such as temperature.")] = (
        UNSET
    )


class Context(Resource, frozen=True):
    """A context without its content. The same content has the same reference everywhere."""

    ref: Annotated[str, Meta(description="The `contextRef` of events.")]
    message_id: Annotated[Id, Meta(description="The run whose events or steps refer to the context.")]
    kind: Annotated[
        ContextKind,
        Meta(
            description=(
                "`context`: a conversation with variables or a prompt; `value`: a field that was "
                "too large for its event; `input`: what the model of a step was asked."
            )
        ),
    ]
    length: Annotated[
        int,
        Meta(
            description=(
                "Number of characters of a prompt, entries of a conversation, messages of an input, variables, or bytes "
                "of a value."
            ),
            ge=0,
        ),
    ]
    bytes: Annotated[int, Meta(description="Bytes as JSON.", ge=0)]
    created_at: Annotated[Time, Meta(description="The time of the first event with this context.")]


class WholeContext(Context, frozen=True):
    """A context with its content."""

    text: Annotated[Json | UnsetType, Meta(description="The text of a prompt.")] = UNSET
    conversation: Annotated[list[Json] | UnsetType, Meta(description="The entries as sent to the model, in order.")] = (
        UNSET
    )
    variables: JsonObject | UnsetType = UNSET
    value: Annotated[Json | UnsetType, Meta(description="The value of the event's field.")] = UNSET
    input: Annotated[ModelInput | UnsetType, Meta(description="What the model was asked.")] = UNSET


class ContextPage(Page[Context], frozen=True):
    """A page of contexts, with the cursors of the next and previous pages; null at either end."""


class Conversation(Resource, frozen=True):
    """A conversation, or its last entries."""

    ref: str
    length: Annotated[int, Meta(description="The total number of entries.", ge=0)]
    entries: Annotated[list[Json], Meta(description="The last entries, oldest first.")]


class Variables(Resource, frozen=True):
    """Variables: all of them, or those named in the request that exist."""

    ref: str
    variables: JsonObject
