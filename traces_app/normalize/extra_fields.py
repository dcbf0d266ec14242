"""Fields that a record does not have are data that a newer producer sends: they are kept in its `metadata`.

Those that only our answers hold, because they are derived, say nothing new and are dropped. Pure Python, without Django.
"""

from __future__ import annotations

from typing import Any

from traces_app.schema import records

from .tool_results import result_fields

# Fields of our own answers that are derived: a client that sends back what it read does not make them metadata.
_DERIVED = frozenset(
    [
        "project",
        "resources",
        "message_count",
        "last_event",
        "context_refs",
        "step_count",
        "call_count",
        "failure_count",
        "problem_count",
        "model_error_count",
        "active_at",
        "status_is_explicit",
        "version",
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
    ]
)
# Where records of which type lie inside a record.
_BELOW: dict[type[records.Record], dict[str, type[records.Record]]] = {
    records.Session: {"messages": records.Message},
    records.Message: {"agent_steps": records.AgentStep, "knowledge_references": records.Reference},
    records.MessagePatch: {"agent_steps": records.AgentStep, "knowledge_references": records.Reference},
    records.AgentStep: {"tool_calls": records.ToolCall},
}
_TYPES: tuple[type[records.Record], ...] = (*_BELOW, records.ToolCall, records.Reference, records.SessionPatch)
FIELDS = {type_: frozenset(type_.__struct_fields__) for type_ in _TYPES}
"""The fields of each record."""


def keep_unknown(document: Any, type_: type[records.Record]) -> None:
    """Moves the fields that `type_` does not have into the `metadata` of a decoded object, at every level.

    What stands as the result of a call becomes one: see `results.result_fields`; what is none is its output, whole.
    Changes `document`. Empty values say nothing and are dropped; what metadata already holds is not overwritten.
    """
    if not isinstance(document, dict):
        return
    if type_ is records.Session and document.get("status_is_explicit") is False:
        # An answer of ours that comes back: the status was computed, and will be again.
        document.pop("status", None)
    fields = FIELDS[type_]
    unknown = document.keys() - fields
    if unknown:
        metadata = document.get("metadata")
        for name in sorted(unknown):
            value = document.pop(name)
            if name in _DERIVED or value is None or value == "" or value == [] or value == {}:
                continue
            if metadata is None and "metadata" in fields:
                metadata = document["metadata"] = {}
            if isinstance(metadata, dict):
                metadata.setdefault(name, value)
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
                keep_unknown(item, below)
        else:
            keep_unknown(value, below)
