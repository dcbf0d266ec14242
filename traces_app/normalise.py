"""One form for what producers say in many: defaults, whole numbers, texts, arguments and results.

Pure functions from record to record, without Django. Nothing here refuses anything: what cannot be is put right and
flagged in `Message.health`, or was refused before (decode.py). Nothing is lost: what has no place goes to metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from messages_app import ids

from . import records

TOO_DEEP = "[nested too deeply]"
NO_REASON = "The tool reported a failure and gave no reason."

_MICROSECOND = timedelta(microseconds=1)
# No run uses a trillion: beyond it the number is kept in the usage only, so that sums fit into their columns.
_MOST_TOKENS = 10**12
_TOKENS_IN = ("input_tokens", "prompt_tokens", "inputTokens", "promptTokens")
_TOKENS_OUT = ("output_tokens", "completion_tokens", "outputTokens", "completionTokens")


def normalise(session: records.Session, *, now: datetime) -> records.Session:
    """The same session with every message in its normal form; `now` (aware) is the time of what has none."""
    external_id, metadata = _identity(session.id, session.external_id, session.metadata)
    # A session that does not say when it began began with its first message: an age purge goes by this.
    began = min((message.created_at for message in session.messages or () if message.created_at), default=now)
    return replace(
        session,
        external_id=external_id,
        metadata=metadata,
        created_at=_in_range(session.created_at or began, now),
        messages=[
            # A microsecond each keeps messages without times in the order in which they were sent.
            _message(message, now + index * _MICROSECOND)
            for index, message in enumerate(session.messages or ())
        ],
    )


def normalise_steps(steps: Sequence[records.AgentStep]) -> list[records.AgentStep]:
    return [_step(step) for step in steps]


def text_of(content: str | list[Any] | None) -> tuple[str, list[Any] | None]:
    """The text of a content and, where it is a list of parts, the parts. Text parts are joined by one space."""
    if not isinstance(content, list):
        return content or "", None
    texts = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, (str, dict))]
    return " ".join(text for text in texts if isinstance(text, str)).strip(), content


def tokens(usage: dict[str, Any] | None) -> tuple[int, int]:
    """Input and output tokens of a usage, under the names that providers give them; 0 where they are not said."""
    if not usage:
        return 0, 0
    return _first_count(usage, _TOKENS_IN), _first_count(usage, _TOKENS_OUT)


def as_uuid(text: str | None) -> UUID | None:
    """`text` as a UUID in its usual form with hyphens, else None."""
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
    health = list(message.health or ())
    created_at = _in_range(message.created_at, default_time)
    if message.created_at is not None and created_at is default_time:
        health.append("time_out_of_range")
    return replace(
        message,
        external_id=external_id,
        metadata=metadata,
        content=content,
        content_parts=message.content_parts or parts,
        agent_steps=normalise_steps(message.agent_steps or ()),
        knowledge_references=message.knowledge_references or [],
        created_at=created_at,
        is_completed=message.is_completed if message.is_completed is not None else True,
        health=health,
    )


def _step(step: records.AgentStep) -> records.AgentStep:
    return replace(step, duration=_whole(step.duration), tool_calls=[_call(call) for call in step.tool_calls or ()])


def _call(call: records.ToolCall) -> records.ToolCall:
    result = _result(call.result, call.status)
    duration, completed_at = _whole(call.duration), call.completed_at
    if call.started_at is not None:
        if completed_at is None and duration is not None:
            completed_at = call.started_at + timedelta(milliseconds=duration)
        elif duration is None and completed_at is not None and completed_at >= call.started_at:
            duration = round((completed_at - call.started_at) / timedelta(milliseconds=1))
    return replace(
        call,
        name=call.name or "",
        args=_args(call.args),
        result=result,
        status=(result.status if result is not None else call.status) or "pending",
        duration=duration,
        completed_at=completed_at,
    )


def _args(args: Any) -> dict[str, Any]:
    """Arguments are an object for every reader: the JSON text of one is read, anything else is kept as `_raw`."""
    if isinstance(args, dict):
        return args
    if args is None or args == "":
        return {}
    if isinstance(args, str):
        try:
            decoded = msgspec.json.decode(args)
        except (msgspec.DecodeError, RecursionError):
            decoded = None
        if isinstance(decoded, dict):
            return decoded
    return {"_raw": args}


def _result(
    result: records.ToolResult | str | None, call_status: records.CallStatus | None
) -> records.ToolResult | None:
    if isinstance(result, str):
        result = records.ToolResult(output=result)
    if result is None:
        return records.ToolResult(status="error", error=NO_REASON) if call_status == "error" else None
    output, data, error = _text(result.output), result.data, _text(result.error)
    if data is None and not isinstance(result.output, (str, type(None))):
        data = result.output
    status = result.status
    if status is None and result.success is not None:
        status = "success" if result.success else "error"
    if status is None:
        # A call that was pending when its sender last looked has its result now.
        status = call_status if call_status in ("success", "error") else "error" if error else "success"
    if status == "error" and not error:
        error = output or NO_REASON
    return replace(result, status=status, success=status == "success", output=output, data=data, error=error)


# --- Values ---------------------------------------------------------------------------------------------------------


def _identity(
    id_: str | None, external_id: str | None, metadata: dict[str, Any] | None
) -> tuple[str | None, dict[str, Any] | None]:
    """An id that is no UUID is the external id; where there is one already it is kept in metadata."""
    if not id_ or as_uuid(id_) is not None:
        return external_id, metadata
    if not external_id:
        return id_, metadata
    return external_id, {"id": id_, **(metadata or {})}


def _in_range(instant: datetime | None, default: datetime) -> datetime:
    if instant is None or not ids.EARLIEST <= instant <= default + ids.LATEST_AHEAD:
        return default
    return instant.astimezone(UTC)


def _text(value: Any) -> str:
    """Text as it is; anything else as JSON, with non-ASCII characters kept."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return TOO_DEEP


def _whole(duration: float | None) -> int | None:
    return None if duration is None else round(duration)


def _first_count(usage: dict[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        count = usage.get(name)
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _MOST_TOKENS:
            return count
    return 0
