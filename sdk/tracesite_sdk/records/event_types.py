"""The registry of event types: the one place where a type is declared.

To add a type, add its name to `EventType` and a line to `EVENT_TYPES`; a name without a line, or a line with a part
missing, fails at import. A fold that no code handles is an error for mypy (`assert_never` in projection.py).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

EventType = Literal[
    "workflow_plan_start",
    "workflow_plan_complete",
    "workflow_execute_start",
    "workflow_execute_complete",
    "agent_start",
    "agent_complete",
    "agent_error",
    "prompt_build",
    "llm_request_start",
    "llm_request_complete",
    "tool_call_start",
    "tool_call_complete",
    "tool_call_error",
    "score",
]
Level = Literal["trace", "debug", "info", "warn", "error"]
Stage = Literal["start", "end", "error", "note"]
Category = Literal["execution", "prompt", "tool", "performance", "system"]


class EventSpec(NamedTuple):
    """The declaration of one event type."""

    subject: Literal["run", "step", "call", "nothing"]
    """The row that it contributes to; `nothing` is only listed."""
    stage: Stage
    """Its place in the life of its subject; an `error` ends it, a `note` neither starts nor ends it."""
    fold: Literal["plan", "run", "agent"] | None
    """For events about the run as a whole, the rule of projection.run_state that folds them into it."""
    category: Category
    """Used where the event has none; likewise `level`."""
    level: Level


EVENT_TYPES: dict[EventType, EventSpec] = {
    "workflow_plan_start": EventSpec("run", "start", "plan", "execution", "info"),
    "workflow_plan_complete": EventSpec("run", "end", "plan", "execution", "info"),
    "workflow_execute_start": EventSpec("run", "start", "run", "execution", "info"),
    "workflow_execute_complete": EventSpec("run", "end", "run", "execution", "info"),
    "agent_start": EventSpec("run", "start", "agent", "execution", "info"),
    "agent_complete": EventSpec("run", "end", "agent", "execution", "info"),
    "agent_error": EventSpec("run", "error", "agent", "execution", "error"),
    "prompt_build": EventSpec("nothing", "note", None, "prompt", "info"),
    "llm_request_start": EventSpec("step", "start", None, "prompt", "info"),
    "llm_request_complete": EventSpec("step", "end", None, "prompt", "info"),
    "tool_call_start": EventSpec("call", "start", None, "tool", "info"),
    "tool_call_complete": EventSpec("call", "end", None, "tool", "info"),
    "tool_call_error": EventSpec("call", "error", None, "tool", "error"),
    "score": EventSpec("nothing", "note", None, "performance", "info"),
}


def check(names: tuple[str, ...], specs: dict[EventType, EventSpec]) -> None:
    """Raise TypeError if a type has a name but no declaration or the reverse, or is about the run and has no fold."""
    if specs.keys() != set(names):
        raise TypeError(f"EventType and EVENT_TYPES differ in {sorted(set(names).symmetric_difference(specs))}.")
    if half := [name for name, spec in specs.items() if (spec.subject == "run") is (spec.fold is None)]:
        raise TypeError(f"An event type has a fold if and only if it is about the run: {half}.")


check(get_args(EventType), EVENT_TYPES)
