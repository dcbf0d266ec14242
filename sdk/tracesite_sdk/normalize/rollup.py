"""The totals of a message: counts, tokens and duration, computed from its steps and calls.

Ingest, events and the integrity check all use these functions, so that stored and recomputed totals agree.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from tracesite_sdk import records

from .pricing import tokens

T = TypeVar("T", bound=Hashable)


class Rollup(NamedTuple):
    """The totals of the steps and calls of a message."""

    step_count: int
    call_count: int
    failure_count: int
    model_error_count: int
    input_tokens: int
    output_tokens: int
    duration_ms: int | None
    cost: Decimal | None
    unpriced_count: int


def rollup(
    message_usage: dict[str, Any] | None,
    steps: Iterable[tuple[T, float | None, dict[str, Any] | None, Any, str | None, Decimal | None]],
    calls: Iterable[tuple[T, T | None, str, float | None]],
    *,
    is_answer: bool,
) -> Rollup:
    """Add up (id, duration, usage, error, model, cost) of steps and (step id, parent id, status, duration) of calls.

    Tokens are those of the message if it has any, else the sum over its steps. A step without a duration counts as the sum
    of its calls that have no parent. The duration and the cost are None where none is known.

    `unpriced_count` is the number of requests to a model that have no cost. The request of an answer (`is_answer`: a completed
    message of the assistant that has not failed) is one of them if no step is a request.
    """
    steps, calls = list(steps), list(calls)
    inside: dict[T, float] = {}
    for step_id, parent_id, _status, duration in calls:
        if parent_id is None and duration is not None:
            inside[step_id] = inside.get(step_id, 0) + duration
    durations = [
        duration if duration is not None else inside[step_id]
        for step_id, duration, *_others in steps
        if duration is not None or step_id in inside
    ]
    input_tokens, output_tokens = tokens(message_usage)
    if not (input_tokens or output_tokens):
        counted = [tokens(usage) for _id, _duration, usage, *_others in steps]
        input_tokens, output_tokens = sum(count[0] for count in counted), sum(count[1] for count in counted)
    costs = [cost for *_others, cost in steps if cost is not None]
    unpriced = sum(costs_something(model, usage, error) for *_, usage, error, model, cost in steps if cost is None)
    is_known = bool(costs) or any(model or usage for *_, usage, _error, model, _cost in steps)
    return Rollup(
        step_count=len(steps),
        call_count=len(calls),
        failure_count=sum(status == "error" for _step, _parent, status, _duration in calls),
        model_error_count=sum(bool(error) for _id, _duration, _usage, error, _model, _cost in steps),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        duration_ms=round(sum(durations)) if durations else None,
        cost=sum(costs, Decimal(0)) if costs else None,
        unpriced_count=unpriced + (is_answer and not is_known),
    )


def costs_something(model: str | None, usage: dict[str, Any] | None, error: Any) -> bool:
    """Return whether a step is a request to a model that costs something: a failed one without tokens costs nothing."""
    return bool(usage or model) and not (error and tokens(usage) == (0, 0))


def duration_between(created_at: datetime, completed_at: datetime | None, rolled_up: int | None) -> int | None:
    """Return the milliseconds from start to completion; for an open message, the total of its steps."""
    if completed_at is None:
        return rolled_up
    return max(0, round((completed_at - created_at).total_seconds() * 1000))


def completion(message: records.Message, created_at: datetime) -> datetime | None:
    """Return when a message was completed, from its `completed_at` or its `duration`; None if it has neither."""
    if message.completed_at is None and message.duration is not None and message.is_completed:
        return created_at + timedelta(milliseconds=message.duration)
    return message.completed_at
