"""Merge of an earlier and a later state of a record, for tests that import a start and then the whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tracesite_sdk import records


def merged(old: Any, new: Any) -> Any:
    """Return the stored record after a later state of it: empty values overwrite nothing."""
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
