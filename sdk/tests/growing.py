"""Merge of an earlier and a later state of a record, for tests that import a start and then the whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.records.health_flags import ORPHAN_RESULT


def merged(old: Any, new: Any) -> Any:
    """Return the stored record after a later state of it: empty values overwrite nothing."""
    if isinstance(new, records.Message):
        old = _without_answered(old, new)
    values = {n: getattr(new, n) or getattr(old, n) or getattr(new, n) for n in new.__struct_fields__}
    values["metadata"] = {**(old.metadata or {}), **(new.metadata or {})} or None
    if isinstance(new, records.Message):
        values["created_at"] = old.created_at
        values["health"] = sorted({*(old.health or ()), *(new.health or ())}) or None
        if old.agent_steps is not None:
            values["agent_steps"] = _merged_lists(old.agent_steps, new.agent_steps, _step_key)
    if isinstance(new, records.AgentStep):
        values["tool_calls"] = _merged_lists(old.tool_calls, new.tool_calls, _call_key)
    return type(new)(**values)


def _without_answered(old: records.Message, new: records.Message) -> records.Message:
    """Return a message without placeholders if a later state has the call of one of them, as traces_app/ingest/placeholders.py
    does."""
    before, after = _calls_of(old), _calls_of(new)
    called = {call.id for key, call in after.items() if key not in before and not _is_orphan(call)}
    if not any(_is_orphan(call) and call.id in called and key not in after for key, call in before.items()):
        return old
    there = {_step_key(0, step) for step in new.agent_steps or ()}
    steps = [
        replace(step, tool_calls=[call for call in step.tool_calls or () if not _is_orphan(call)])
        for step in old.agent_steps or ()
        if _step_key(0, step) in there
    ]
    return replace(old, agent_steps=steps, health=[flag for flag in old.health or () if flag != ORPHAN_RESULT])


def _calls_of(message: records.Message) -> dict[Any, records.ToolCall]:
    steps = message.agent_steps or ()
    return {(_step_key(0, step), call.uuid or call.id): call for step in steps for call in step.tool_calls or ()}


def orphans(messages: list[records.Message]) -> int:
    """Return the number of placeholders of results without a call."""
    steps = (step for message in messages for step in message.agent_steps or ())
    return sum(_is_orphan(call) for step in steps for call in step.tool_calls or ())


def _is_orphan(call: records.ToolCall) -> bool:
    return ORPHAN_RESULT in (call.metadata or {})


def _merged_lists(old: Any, new: Any, key: Any) -> list[Any]:
    """Return the existing items in their order, then the new ones; equal keys are matched by order."""
    there, found = _numbered(old, key), _numbered(new, key)
    assert there.keys() <= found.keys()
    return [merged(there[name], record) if name in there else record for name, record in found.items()]


def _numbered(items: Any, key: Any) -> dict[Any, Any]:
    counted: Counter[Any] = Counter()
    numbered = {}
    for place, item in enumerate(items):
        name = key(place, item)
        numbered[name, counted[name]] = item
        counted[name] += 1
    return numbered


def _step_key(_place: int, step: records.AgentStep) -> Any:
    return step.id or step.iteration


def _call_key(place: int, call: records.ToolCall) -> Any:
    return call.uuid or call.id or place
