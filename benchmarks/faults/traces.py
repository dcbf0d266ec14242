"""Messages to send, and their expected stored form."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

WORDS = [
    "the",
    "agent",
    "looked",
    "up",
    "an",
    "order",
    "订单",
    "and",
    "called",
    "a",
    "tool",
    "that",
    "was",
    "slow",
    "to",
    "answer",
    "because",
    "of",
    "the",
    "weather",
]


@dataclass(frozen=True)
class FoundCall:
    call_id: str
    name: str
    args: dict[str, Any]
    status: str
    output: str | None
    """None without a result."""


@dataclass(frozen=True)
class FoundStep:
    iteration: int
    thought: str
    calls: tuple[FoundCall, ...]


@dataclass(frozen=True)
class FoundMessage:
    """Message with its steps and calls, compared as one value."""

    external_id: str
    role: str
    content: str
    is_completed: bool
    is_deleted: bool
    metadata: dict[str, Any]
    steps: tuple[FoundStep, ...]


def message(
    dice: random.Random, external_id: str, *, created_at: datetime | None = None, steps: int | None = None
) -> dict[str, Any]:
    """Return a completed message; three of four are of an assistant with steps and calls."""
    if steps is None:
        steps = dice.choice((0, 1, 2, 4))
    made: dict[str, Any] = {
        "external_id": external_id,
        "role": "assistant" if steps else "user",
        "content": text(dice, 20),
        "is_completed": True,
        "metadata": {"sent_as": external_id},
    }
    if created_at is not None:
        made["created_at"] = created_at.isoformat()
    if steps:
        made["agent_steps"] = [step(dice, external_id, number) for number in range(steps)]
    return made


def step(dice: random.Random, external_id: str, number: int) -> dict[str, Any]:
    return {
        "id": f"{external_id}/{number}",
        "iteration": number,
        "thought": text(dice, 40),
        "tool_calls": [_call(dice, f"{external_id}/{number}/{place}") for place in range(dice.randint(0, 3))],
    }


def text(dice: random.Random, words: int) -> str:
    return " ".join(dice.choices(WORDS, k=dice.randint(1, words)))


def a_time_in(dice: random.Random, first_year: int, years: int) -> datetime:
    """Return a time in a month that most likely has no partition yet."""
    start = datetime(first_year, 1, 1, tzinfo=UTC)
    return start + timedelta(seconds=dice.randrange(years * 365 * 86400), microseconds=dice.randrange(1_000_000))


def expected(sent: dict[str, Any], *, is_deleted: bool = False) -> FoundMessage:
    """Return the expected stored form of a message."""
    return FoundMessage(
        external_id=sent["external_id"],
        role=sent["role"],
        content=sent["content"],
        is_completed=sent["is_completed"],
        is_deleted=is_deleted,
        metadata=sent["metadata"],
        steps=tuple(
            FoundStep(
                iteration=step["iteration"],
                thought=step["thought"],
                calls=tuple(
                    FoundCall(
                        call_id=call["id"],
                        name=call["name"],
                        args=call["args"],
                        status=call["result"]["status"],
                        output=call["result"]["output"],
                    )
                    for call in step["tool_calls"]
                ),
            )
            for step in sent.get("agent_steps", ())
        ),
    )


def _call(dice: random.Random, call_id: str) -> dict[str, Any]:
    failed = dice.random() < 0.2
    result = {"status": "error" if failed else "success", "output": text(dice, 200)}
    if failed:
        result["error"] = "the order is not there"
    return {
        "id": call_id,
        "uuid": f"u-{call_id}",
        "name": dice.choice(("lookup", "refund", "search", "weather")),
        "args": {"order": call_id, "depth": dice.randint(1, 9)},
        "result": result,
        "duration": dice.randint(1, 900),
    }
