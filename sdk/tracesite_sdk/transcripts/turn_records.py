"""The records of a conversation: messages of prompts and turns, their steps, calls and results."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.records import ids
from tracesite_sdk.records.health_flags import ORPHAN_RESULT

from .entries import Prompt, Reply, Result, is_text
from .times import after
from .turns import Turn, TurnCall, TurnStep

MOST_NAME_CHARACTERS = 512
"""The length of records.Name."""


def prompt_message(entry: Prompt) -> records.Message:
    metadata = dict(entry.metadata)
    return records.Message(
        role=entry.role,
        external_id=_unique(entry.id, metadata),
        content=entry.content,
        created_at=entry.created_at,
        health=sorted(entry.health) or None,
        metadata=metadata or None,
    )


def turn_message(turn: Turn) -> records.Message:
    """Return the assistant message of a turn.

    The last plain reply is the content, earlier ones are steps. A merge never empties a field, and a snapshot may end at
    any entry: so whatever an earlier plain reply put into the message is set again or replaced.
    """
    own = [step for step in turn.steps if step.parent is None]
    plain = [(step, step.reply) for step in own if step.reply and not step.calls and step.reply.parent_call is None]
    with_text = [(step, reply) for step, reply in plain if text_of(reply.content) != ("", None)]
    answer: TurnStep | None = None
    content, metadata = None, {}
    if plain:
        answer, reply = (with_text or plain)[-1]
        earlier = [other for step, other in plain if step.iteration < answer.iteration]
        content, metadata = reply.content, dict.fromkeys(key for other in earlier for key in answer_metadata(other))
        metadata |= answer_metadata(reply)
        if not isinstance(content, list) and any(isinstance(other.content, list) for other in earlier):
            content = [{"type": "text", "text": content or ""}]
        if answer is not own[-1] or len(plain) > 1:
            metadata["answer_iteration"] = answer.iteration
    calls = [call.call for step in turn.steps for call in step.calls]
    health = turn.health | {ORPHAN_RESULT for call in calls if ORPHAN_RESULT in call.metadata}
    return records.Message(
        role="assistant",
        external_id=_unique(turn.id, metadata),
        content=content,
        # The iteration counts replies, the answer included, so that a step keeps its own when more replies follow.
        agent_steps=[
            _step(step, is_answer=step is answer)
            for step in sorted(turn.steps, key=attrgetter("iteration"))
            if step is not answer or (step.reply and is_request(step.reply))
        ],
        created_at=turn.began,
        completed_at=turn.ended,
        error=next((step.reply.error for step in reversed(own) if step.reply and step.reply.error), None),
        health=sorted(health) or None,
        metadata=metadata or None,
    )


def is_request(reply: Reply) -> bool:
    """Return whether a reply is known as a request to a model, which has a cost: its model or its tokens are stated."""
    return bool(reply.is_request or reply.model or reply.usage)


def answer_metadata(reply: Reply) -> dict[str, Any]:
    """Return the metadata of a message whose content is this reply."""
    named = (("reasoning_content", reply.reasoning), ("agent_name", reply.agent_name), ("model", reply.model))
    return {**reply.metadata, **{name: value for name, value in named if value}}


def step_of(reply: Reply, iteration: int | None) -> records.AgentStep:
    """Return the step of a reply that is not the answer, without its calls."""
    thought, parts = text_of(reply.content)
    metadata = dict(reply.metadata)
    if parts and not all(map(is_text, parts)):
        metadata["content_parts"] = parts
    if reply.error:
        metadata["error"] = reply.error
    if reply.parent_call:
        # Its calls have the parent too, but it may have no calls, or none yet.
        metadata["parent_call"] = reply.parent_call
    return records.AgentStep(
        id=_name(reply.step_id, "id", metadata),
        iteration=iteration,
        thought=thought or None,
        reasoning_content=reply.reasoning or None,
        agent_name=_name(reply.agent_name, "agent_name", metadata),
        model=_name(reply.model, "model", metadata),
        usage=reply.usage or None,
        timestamp=reply.created_at,
        duration=reply.duration,
        input=reply.input,
        time_to_first_token=reply.time_to_first_token,
        metadata=metadata or None,
    )


def result_of(result: Result) -> records.ToolResult:
    return records.ToolResult(
        status=None if result.failed is None else "error" if result.failed else "success",
        output=result.output,
        error=result.error,
        data=result.data,
        attachments=result.attachments,
        metadata=dict(result.metadata) or None,
    )


def _step(step: TurnStep, *, is_answer: bool) -> records.AgentStep:
    calls = [_call(call) for call in step.calls]
    if step.reply is None:
        return records.AgentStep(iteration=step.iteration, tool_calls=calls)
    record = replace(step_of(step.reply, step.iteration), tool_calls=calls)
    # The text is the content of the message.
    return replace(record, thought=None) if is_answer else record


def _call(turn_call: TurnCall) -> records.ToolCall:
    call, reply, parent, answered = turn_call.call, turn_call.step.reply, turn_call.step.parent, turn_call.result
    metadata = dict(call.metadata)
    result = result_of(answered) if answered is not None else None
    return records.ToolCall(
        id=_name(call.id, "id", metadata),
        uuid=_name(turn_call.uuid, "uuid", {}),
        name=_name(call.name, "name", metadata) or "",
        args=call.args,
        duration=answered.duration if answered is not None and call.duration is None else call.duration,
        started_at=call.started_at
        or (answered.started_at if answered is not None else None)
        # The model asks for a call at the end of its reply.
        or (after(reply.created_at, reply.duration) if reply is not None and reply.created_at is not None else None),
        completed_at=answered.created_at if answered is not None else None,
        result=result,
        status=result.status if result is not None else "pending",
        parent=_name(parent.uuid or parent.call.id, "parent", {}) if parent is not None else None,
        metadata=metadata or None,
    )


def _unique(value: str | None, metadata: dict[str, Any]) -> str | None:
    """Return the id of a message; in place of one that is too long a digest, with the whole one in the metadata."""
    if value is None or len(value) <= MOST_NAME_CHARACTERS:
        return value
    metadata["id"] = value
    return ids.key(value).hex


def _name(value: str | None, key: str, metadata: dict[str, Any]) -> str | None:
    """Return a name cut to the length of its column, because it is indexed; a longer one is kept whole in the metadata."""
    if not value:
        return None
    if len(value) > MOST_NAME_CHARACTERS:
        metadata[key] = value
    return value[:MOST_NAME_CHARACTERS]
