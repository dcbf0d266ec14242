"""The JSON that WeKnora's clients decode, built from the REST API's resources. Without Django.

The Go client rejects a whole response if one field has an unexpected type: durations are integers, arguments and `data` are
objects, the values in a reference's `metadata` are strings, `match_type` is a number, and times are RFC 3339 with a time
zone. Additional data of Tracesite has field names of its own, which the client ignores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

if TYPE_CHECKING:
    # Importing it at run time would import the models and Django.
    from traces_app.queries.schemas import calls as call_schemas
    from traces_app.queries.schemas import messages as message_schemas

STOPPED = "stopped"
"""Metadata field of a stopped answer: the user or key that stopped it, and the reason."""


class Shape(Struct, frozen=True, kw_only=True, gc=False):
    """Base of all response structs. UNSET fields are left out."""


class WeknoraToolResult(Shape, frozen=True, kw_only=True):
    """The result of a call. A failed result always has an `error`."""

    success: bool
    output: str
    data: Raw | UnsetType = UNSET
    error: str | UnsetType = UNSET
    images: list[str] | UnsetType = UNSET
    """Data URIs."""


class WeknoraToolCall(Shape, frozen=True, kw_only=True):
    """One call of a tool."""

    id: str
    name: str
    args: Raw
    result: WeknoraToolResult | None
    duration: int
    """Milliseconds; 0 if unknown."""
    reflection: str | UnsetType = UNSET
    metadata: Raw | UnsetType = UNSET


class WeknoraAgentStep(Shape, frozen=True, kw_only=True):
    """One think-act iteration."""

    iteration: int
    thought: str
    tool_calls: list[WeknoraToolCall]
    timestamp: str
    """The time of the step, else that of its message."""
    reasoning_content: str | UnsetType = UNSET
    metadata: Raw | UnsetType = UNSET


class SearchResult(Shape, frozen=True, kw_only=True):
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
    sub_chunk_id: list[str] | None
    metadata: dict[str, str]
    chunk_type: str
    parent_chunk_id: str
    image_info: str
    knowledge_filename: str
    knowledge_source: str
    knowledge_base_id: str | UnsetType = UNSET
    knowledge_channel: str | UnsetType = UNSET
    knowledge_description: str | UnsetType = UNSET
    matched_content: str | UnsetType = UNSET


_NEWER = ("knowledge_base_id", "knowledge_channel", "knowledge_description", "matched_content")
"""Fields of a reference in newer versions of WeKnora. Our rows have no columns for them and keep them in the metadata."""


class WeknoraMessage(Shape, frozen=True, kw_only=True):
    """One message of a session."""

    id: str
    session_id: str
    request_id: str
    content: str
    role: str
    knowledge_references: list[SearchResult]
    is_completed: bool
    created_at: str
    updated_at: str
    deleted_at: str | None
    agent_steps: list[WeknoraAgentStep] | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    metadata: Raw | UnsetType = UNSET


class WeknoraSession(Shape, frozen=True):
    """One conversation."""

    id: str
    title: str
    description: str
    tenant_id: int
    """The id of its project."""
    user_id: str
    is_pinned: bool
    pinned_at: str | None
    created_at: str
    updated_at: str
    deleted_at: str | None
    last_request_state: None = None


def message_of(found: message_schemas.Message) -> WeknoraMessage:
    """Convert a message that was read with its steps, calls and references."""
    metadata = _object(found.metadata)
    channel = metadata.get("channel")
    return WeknoraMessage(
        id=found.id,
        session_id=found.session_id,
        request_id=found.request_id,
        content=found.content,
        role=found.role,
        knowledge_references=[_reference_of(reference) for reference in found.knowledge_references],
        agent_steps=[_step_of(step, found.created_at) for step in found.agent_steps] or UNSET,
        is_completed=found.is_completed,
        created_at=found.created_at,
        updated_at=found.updated_at,
        deleted_at=found.deleted_at,
        channel=channel if isinstance(channel, str) and channel else UNSET,
        metadata=found.metadata if metadata else UNSET,
    )


def loaded_message_of(found: message_schemas.Message) -> dict[str, Any]:
    """Convert a message for `load`: with the text that people read, and steps with the fields that their client gave them, which we
    keep in the metadata."""
    message = message_of(found)
    loaded = _given(message)
    if found.display_content is not UNSET:
        loaded["content"] = found.display_content
    if message.agent_steps is not UNSET:
        loaded["agent_steps"] = [
            {**(_object(step.metadata) if step.metadata is not UNSET else {}), **_given(step)}
            for step in message.agent_steps
        ]
    return loaded


def was_stopped(found: message_schemas.Message) -> bool:
    return STOPPED in _object(found.metadata)


def call_of(
    id_: str,
    name: str,
    args: Any,
    result: WeknoraToolResult | None,
    duration: float | None,
    reflection: str | UnsetType | None = UNSET,
    metadata: Raw | UnsetType = UNSET,
) -> WeknoraToolCall:
    """Build a call; `args` is a value or encoded JSON."""
    return WeknoraToolCall(
        id=id_,
        name=name,
        args=_as_object(args, "_raw"),
        result=result,
        duration=round(duration or 0),
        reflection=reflection or UNSET,
        metadata=metadata,
    )


def result_of(
    status: str, output: str, data: Any, error: str | UnsetType | None, attachments: Any = UNSET
) -> WeknoraToolResult | None:
    """Build a result, None for a pending call; `data` and `attachments` are values or encoded JSON."""
    if status == "pending":
        return None
    is_success = status == "success"
    return WeknoraToolResult(
        success=is_success,
        output=output,
        data=UNSET if data is UNSET or data is None else _as_object(data, "value"),
        # Ingest gives every failed call an error; without one the client would show a success.
        error=error or (UNSET if is_success else "failed"),
        images=_images(attachments) or UNSET,
    )


# --- Resources ------------------------------------------------------------------------------------------------------


def _step_of(step: message_schemas.AgentStep, created_at: str) -> WeknoraAgentStep:
    return WeknoraAgentStep(
        iteration=step.iteration,
        thought=step.thought,
        tool_calls=[_call_of(call) for call in step.tool_calls],
        timestamp=step.timestamp or created_at,
        reasoning_content=step.reasoning_content,
        metadata=step.metadata,
    )


def _call_of(call: call_schemas.ToolCall) -> WeknoraToolCall:
    found = call.result
    result = (
        None if found is None else result_of(found.status, found.output, found.data, found.error, found.attachments)
    )
    return call_of(call.id, call.name, call.args, result, call.duration, call.reflection, call.metadata)


def _reference_of(found: message_schemas.Reference) -> SearchResult:
    metadata = _object(found.metadata)
    newer = {name: metadata.pop(name) for name in _NEWER if isinstance(metadata.get(name), str)}
    chunks = None if found.sub_chunk_id is None else msgspec.json.decode(found.sub_chunk_id)
    return SearchResult(
        id=found.id,
        content=found.content,
        knowledge_id=found.knowledge_id,
        chunk_index=found.chunk_index,
        knowledge_title=found.knowledge_title,
        start_at=found.start_at,
        end_at=found.end_at,
        seq=found.seq,
        score=found.score,
        match_type=found.match_type,
        sub_chunk_id=[_text(chunk) for chunk in chunks] if isinstance(chunks, list) else None,
        metadata={name: _text(value) for name, value in metadata.items()},
        chunk_type=found.chunk_type,
        parent_chunk_id=found.parent_chunk_id,
        image_info=found.image_info,
        knowledge_filename=found.knowledge_filename,
        knowledge_source=found.knowledge_source,
        **newer,
    )


# --- Values -----------------------------------------------------------------------------------------------------------


def _as_object(value: Any, name: str) -> Raw:
    """Return the JSON of an object. A list is wrapped in an object under `results`, any other value under `name`."""
    encoded = bytes(value) if isinstance(value, Raw) else msgspec.json.encode(value)
    match encoded[:1]:
        case b"{":
            return Raw(encoded)
        case b"[":
            return Raw(b'{"results":' + encoded + b"}")
    return Raw(b'{"' + name.encode() + b'":' + encoded + b"}")


def _given(shape: Shape) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(shape).items() if value is not UNSET}


def _object(raw: Raw) -> dict[str, Any]:
    found = msgspec.json.decode(raw)
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    """Return a string unchanged, None as "", any other value as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()


def _images(attachments: Any) -> list[str]:
    found = msgspec.json.decode(attachments) if isinstance(attachments, Raw) else attachments
    if not isinstance(found, list):
        return []
    return [
        f"data:{image.get('media_type') or 'image/png'};base64,{image['data']}"
        for image in found
        if isinstance(image, dict) and image.get("type") == "image" and isinstance(image.get("data"), str)
    ]
