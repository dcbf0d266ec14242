"""Keep fields that a record does not have in its `metadata`, because newer producers may send them.

Derived fields of our own responses carry no information and are dropped. Pure Python.
"""

from __future__ import annotations

from typing import Any

from tracesite_sdk import records

from .tool_results import result_fields

# Derived fields of our responses: a client that sends a response back must not turn them into metadata.
DERIVED = frozenset(
    [
        "project",
        "resources",
        "message_count",
        "last_event",
        "context_refs",
        "snapshot_sums",
        "forked_from",
        "archived_parts",
        "input_ref",
        "step_count",
        "call_count",
        "failure_count",
        "problem_count",
        "model_error_count",
        "active_at",
        "status_is_explicit",
        "status_reason",
        "version",
        "display_content",
        "created_at",
        "updated_at",
        "deleted_at",
        "deleted_by",
        "session_id",
        "redactions",
        "has_errors",
        "success",
        "input_tokens",
        "output_tokens",
        "unpriced_count",
    ]
)
# More of them, of one session: other producers may use these names.
_DERIVED_OF_SESSION = ("started_at", "ended_at", "snapshots")
# The fields of records that hold records.
_BELOW: dict[type[records.Record], dict[str, type[records.Record]]] = {
    records.Session: {"messages": records.Message, "scores": records.Score},
    records.Message: {"agent_steps": records.AgentStep, "knowledge_references": records.Reference},
    records.MessagePatch: {"agent_steps": records.AgentStep, "knowledge_references": records.Reference},
    records.AgentStep: {"tool_calls": records.ToolCall, "input": records.ModelInput},
}
_TYPES: tuple[type[records.Record], ...] = (
    *_BELOW,
    records.ToolCall,
    records.ModelInput,
    records.Reference,
    records.SessionPatch,
    records.Score,
    records.ScorePatch,
)
FIELDS = {type_: frozenset(type_.__struct_fields__) for type_ in _TYPES}
"""The field names of each record."""


def move_extra_fields_to_metadata(document: Any, type_: type[records.Record]) -> None:
    """Move the fields that `type_` does not have into the `metadata` of a decoded object, at every level; those of the input of
    a model into its `parameters`. Changes `document`.

    The result of a call is parsed with `tool_results.result_fields`; anything that is not a result becomes the output of
    one. Empty values are dropped; existing keys of the metadata are not overwritten.
    """
    if not isinstance(document, dict):
        return
    if type_ is records.Session and "status_is_explicit" in document:
        # One of our responses sent back: what was computed will be computed again.
        for name in ("outcome",) if document["status_is_explicit"] else ("outcome", "status"):
            document.pop(name, None)
    if type_ is records.Session and "context_refs" in document:
        for name in _DERIVED_OF_SESSION:
            document.pop(name, None)
    if "unpriced_count" in document or (type_ is records.AgentStep and document.get("cost_is_explicit") is False):
        # So was the cost.
        document.pop("cost", None)
    fields = FIELDS[type_]
    unknown = document.keys() - fields
    if unknown:
        is_input = type_ is records.ModelInput
        target = "parameters" if is_input else "metadata"
        others = document.get(target)
        for name in sorted(unknown):
            value = document.pop(name)
            if (name in DERIVED and not is_input) or value is None or value == "" or value == [] or value == {}:
                continue
            if others is None and target in fields:
                others = document[target] = {}
            if isinstance(others, dict):
                others.setdefault(name, value)
    if type_ is records.ToolCall:
        result = document.get("result")
        if isinstance(result, dict):
            document["result"] = result_fields(result) or {"output": result}
        elif isinstance(result, int | float):
            document["result"] = {"output": result}
    for name, below in _BELOW.get(type_, {}).items():
        value = document.get(name)
        if isinstance(value, list):
            for item in value:
                move_extra_fields_to_metadata(item, below)
        else:
            move_extra_fields_to_metadata(value, below)
