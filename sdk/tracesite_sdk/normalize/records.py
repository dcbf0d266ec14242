"""Normalise records: defaults, whole numbers, texts, arguments and results.

Pure functions from record to record. Nothing is rejected here: impossible values are corrected and
flagged in `Message.health`, or were rejected before (decode.py). Nothing is lost: values without a field go to metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import is_
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.records import ids
from tracesite_sdk.records.health_flags import (
    EMPTY_TOOL_NAME,
    INVALID_ARGUMENTS,
    REPAIRED_ID,
    REPAIRED_NAME,
    TIME_OUT_OF_RANGE,
)
from tracesite_sdk.records.shared_values import CONTEXT_REF

from .call_ids import HANDOFF_PREFIX, folded, folded_name, handoff_target, may_be_repeated
from .mended_json import decode_json
from .pricing import with_counts
from .tool_results import MOST_WRAPPINGS, normalize_result

HANDOFF_TO = "handoff_to"
"""Key in the metadata of a call that hands over to another agent: the name of that agent."""

MOST_PUT_IN_MESSAGE = 64 * 2**20
"""Bytes of JSON that the references in the inputs of one message may stand for."""
MOST_PUT_IN = 256 * 2**20
"""The same of one request, or of one session of a file."""

_MICROSECOND = timedelta(microseconds=1)


def normalise(session: records.Session, *, now: datetime) -> records.Session:
    """Return the session with every message in normal form; `now` (aware) replaces missing times."""
    external_id, metadata = _identity(session.id, session.external_id, session.metadata)
    # Without a time of its own, a session starts with its first message. Retention uses this time.
    began = min((message.created_at for message in session.messages or () if message.created_at), default=now)
    return replace(
        session,
        external_id=external_id,
        metadata=metadata,
        contexts=None,
        created_at=_in_range(session.created_at or began, now),
        messages=[
            # One microsecond apart, so that messages without times keep their order.
            _message(_with_contexts(message, session.contexts), now + index * _MICROSECOND)
            for index, message in enumerate(session.messages or ())
        ],
    )


@dataclass(frozen=True, kw_only=True)
class NormalPatch:
    """A change of a message with its steps in normal form, and their health flags."""

    patch: records.MessagePatch
    flags: frozenset[str]


def normalise_patch(patch: records.MessagePatch) -> NormalPatch:
    steps, flags = normalise_steps(patch.agent_steps)
    usage = patch.usage if patch.usage is UNSET else with_counts(patch.usage)
    return NormalPatch(patch=replace(patch, agent_steps=steps, usage=usage), flags=frozenset(flags))


def normalise_steps(steps: Sequence[records.AgentStep]) -> tuple[list[records.AgentStep], set[str]]:
    """Return the steps of one message in normal form, and their health flags."""
    flags: set[str] = set()
    names: set[str] = set()
    return [_step(step, flags, names) for step in steps], flags


def text_of(content: str | list[Any] | None) -> tuple[str, list[Any] | None]:
    """Return the text of a content, and the parts if it is a list of parts. Text parts are joined with a space."""
    if not isinstance(content, list):
        return content or "", None
    texts = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, (str, dict))]
    return " ".join(text for text in texts if isinstance(text, str)).strip(), content


def hyphenated_uuid(text: str | None) -> UUID | None:
    """Return the UUID in `text` if it is in the form with hyphens, else None."""
    if text is None or len(text) != 36:
        return None
    try:
        return UUID(text)
    except ValueError:
        return None


# --- One function a record ------------------------------------------------------------------------------------------


def _message(message: records.Message, default_time: datetime) -> records.Message:
    external_id, metadata = _identity(message.id, message.external_id, message.metadata)
    content, parts = text_of(message.content)
    steps, flags = normalise_steps(message.agent_steps or ())
    created_at = _in_range(message.created_at, default_time)
    if message.created_at is not None and created_at is default_time:
        flags.add(TIME_OUT_OF_RANGE)
    return replace(
        message,
        external_id=external_id,
        metadata=metadata,
        content=content,
        content_parts=message.content_parts or parts or None,
        agent_steps=steps,
        usage=with_counts(message.usage),
        knowledge_references=message.knowledge_references or [],
        created_at=created_at,
        is_completed=message.is_completed if message.is_completed is not None else True,
        health=[*(message.health or ()), *sorted(flags.difference(message.health or ()))],
    )


def bytes_put_in(session: records.Session) -> list[int]:
    """Return for each message how many bytes of JSON the references in its inputs stand for; [] for a session without contexts.

    A value counts for each of its references, because everything after this handles it that often.
    """
    if not session.contexts:
        return []
    size_of = {ref: len(msgspec.json.encode(value)) for ref, value in session.contexts.items()}

    def size(step: records.AgentStep) -> int:
        if step.input is None:
            return 0
        values = [step.input.system, *(step.input.messages or ()), *(step.input.tools or ())]
        return sum(size_of.get(ref, 0) for value in values if (ref := _reference_of(value)) is not None)

    return [sum(map(size, message.agent_steps or ())) for message in session.messages or ()]


def _reference_of(value: Any) -> str | None:
    is_reference = isinstance(value, dict) and value.keys() == {CONTEXT_REF} and isinstance(value[CONTEXT_REF], str)
    return value[CONTEXT_REF] if is_reference else None


def _with_contexts(message: records.Message, contexts: dict[str, Any] | None) -> records.Message:
    """Return the message with the values that the inputs of its steps name. A reference that is not there stays."""
    if not contexts or not any(step.input for step in message.agent_steps or ()):
        return message

    def value(item: Any) -> Any:
        ref = _reference_of(item)
        return item if ref is None else contexts.get(ref, item)

    def whole(step: records.AgentStep) -> records.AgentStep:
        if step.input is None:
            return step
        messages, tools = (
            [*map(value, items)] if items else items for items in (step.input.messages, step.input.tools)
        )
        return replace(step, input=replace(step.input, messages=messages, tools=tools, system=value(step.input.system)))

    return replace(message, agent_steps=[*map(whole, message.agent_steps or ())])


def _step(step: records.AgentStep, flags: set[str], names: set[str]) -> records.AgentStep:
    calls = [_call(call, flags, names) for call in step.tool_calls or ()]
    usage = with_counts(step.usage)
    duration, first = (
        round(given) if isinstance(given, float) else given for given in (step.duration, step.time_to_first_token)
    )
    # Most steps are in normal form already, and comparing is cheaper than copying.
    if (
        duration is step.duration
        and first is step.time_to_first_token
        and usage is step.usage
        and step.tool_calls is not None
        and all(map(is_, calls, step.tool_calls))
    ):
        return step
    return replace(step, duration=duration, time_to_first_token=first, usage=usage, tool_calls=calls)


def _call(call: records.ToolCall, flags: set[str], names: set[str]) -> records.ToolCall:
    """Return the call in normal form, the same object if nothing changes. `names` are the tools called before in this
    message."""
    result = normalize_result(call.result, call.status)
    status = (result.status if result is not None else call.status) or "pending"
    name, args, duration, completed_at = call.name or "", call.args, call.duration, call.completed_at
    if not name or name.isspace():
        name = ""
        flags.add(EMPTY_TOOL_NAME)
    elif result is None and status == "pending" and handoff_target(name) is not None:
        status = "success"
    if not isinstance(args, (dict, msgspec.Raw)):
        args = _args(args, flags)
    if isinstance(duration, float):
        duration = round(duration)
    if (duration is None or completed_at is None) and call.started_at is not None:
        if completed_at is None and duration is not None:
            completed_at = call.started_at + timedelta(milliseconds=duration)
        elif duration is None and completed_at is not None and completed_at >= call.started_at:
            duration = round((completed_at - call.started_at) / timedelta(milliseconds=1))
    made = call
    if not (
        result is call.result
        and status == call.status
        and name == call.name
        and args is call.args
        and duration is call.duration
        and completed_at is call.completed_at
    ):
        made = replace(
            call, name=name, args=args, result=result, status=status, duration=duration, completed_at=completed_at
        )
    if name[:12] == HANDOFF_PREFIX or may_be_repeated(call.id or "") or may_be_repeated(name) or call.parent:
        made = _repaired(made, flags, names)
        name = made.name or ""
    names.add(name)
    return made


def _repaired(call: records.ToolCall, flags: set[str], names: set[str]) -> records.ToolCall:
    """Return the call with its repeated id and name folded; the received ones are kept in the metadata."""
    metadata = call.metadata or {}
    id_, parent = call.id and folded(call.id), call.parent and folded(call.parent)
    times = len(call.id) // len(id_) if call.id and id_ else 1
    name = folded_name(call.name or "", known=names, times=times)
    if id_ != call.id:
        flags.add(REPAIRED_ID)
        metadata = {**metadata, REPAIRED_ID: call.id}
    if name != call.name:
        flags.add(REPAIRED_NAME)
        metadata = {**metadata, REPAIRED_NAME: call.name}
    target = handoff_target(name)
    if target and HANDOFF_TO not in metadata:
        metadata = {**metadata, HANDOFF_TO: target}
    return replace(call, id=id_, name=name, parent=parent, metadata=metadata or call.metadata)


def _args(args: Any, flags: set[str]) -> dict[str, Any]:
    """Return the arguments as an object: JSON text is parsed, null is none, anything else is kept as `_raw`."""
    if args is None or args == "":
        return {}
    decoded: Any = args
    for _wrapping in range(MOST_WRAPPINGS):
        if not isinstance(decoded, str):
            break
        try:
            decoded = decode_json(decoded)
        except (msgspec.DecodeError, RecursionError):
            flags.add(INVALID_ARGUMENTS)
            break
    if decoded is None:
        return {}
    return decoded if isinstance(decoded, dict) else {"_raw": args}


# --- Values ---------------------------------------------------------------------------------------------------------


def _identity(
    id_: str | None, external_id: str | None, metadata: dict[str, Any] | None
) -> tuple[str | None, dict[str, Any] | None]:
    """Make an id that is not a UUID the external id, or keep it in the metadata if there is one already."""
    if not id_ or hyphenated_uuid(id_) is not None:
        return external_id, metadata
    if not external_id:
        return id_, metadata
    return external_id, {"id": id_, **(metadata or {})}


def _in_range(instant: datetime | None, default: datetime) -> datetime:
    if instant is None or not ids.EARLIEST <= instant <= default + ids.LATEST_AHEAD:
        return default
    return instant.astimezone(UTC)
