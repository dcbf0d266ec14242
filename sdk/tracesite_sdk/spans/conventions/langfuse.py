"""Langfuse's SDKs from version 3 on, which send OpenTelemetry spans; the events of older ones have the same names.

Source: langfuse/langfuse-python, langfuse/_client/attributes.py; `langfuse.session.id` and `langfuse.user.id` are older.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tracesite_sdk.normalize.json_values import fields, items
from tracesite_sdk.normalize.pricing import with_counts
from tracesite_sdk.spans.facts import Facts, below, between, cost, first, first_text
from tracesite_sdk.spans.observations import Kind
from tracesite_sdk.spans.pieces import nanoseconds
from tracesite_sdk.spans.span import Attributes, Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded
from tracesite_sdk.transcripts.parsing.passages import passages_in

NAMES: dict[str, tuple[str, ...]] = {
    "type": ("langfuse.observation.type", "langfuse.internal.observation.type"),
    "session": ("session.id", "langfuse.session.id"),
    "end_user": ("user.id", "langfuse.user.id"),
    "title": ("langfuse.trace.name",),
    "tags": ("langfuse.trace.tags", "langfuse.tags"),
    "input": ("langfuse.observation.input", "langfuse.trace.input"),
    "output": ("langfuse.observation.output", "langfuse.trace.output"),
    "model": ("langfuse.observation.model.name",),
    "parameters": ("langfuse.observation.model.parameters",),
    "usage": ("langfuse.observation.usage_details",),
    "cost": ("langfuse.observation.cost_details",),
    "level": ("langfuse.observation.level",),
    "status_message": ("langfuse.observation.status_message",),
    "completion_start": ("langfuse.observation.completion_start_time",),
    "version": ("langfuse.version",),
    "release": ("langfuse.release",),
    "environment": ("langfuse.environment", "deployment.environment.name", "deployment.environment"),
}
KINDS: dict[str, Kind] = {"generation": "generation", "tool": "tool", "agent": "agent"}
_TOKENS = {"input": "input_tokens", "output": "output_tokens", "total": "total_tokens"}


def recognises(_span: Span, families: Collection[str]) -> bool:
    return "langfuse." in families


def facts(span: Span) -> Facts:
    attributes = span.attributes
    said = (first_text(attributes, NAMES["type"]) or "").lower()
    kind: Kind | None = KINDS.get(said, "other" if said else None)
    found = Facts(
        kind=kind,
        is_embedding=said == "embedding" or None,
        session_id=first_text(attributes, NAMES["session"]),
        end_user=first_text(attributes, NAMES["end_user"]),
        title=first_text(attributes, NAMES["title"]),
        tags=[str(tag) for tag in items(decoded(first(attributes, NAMES["tags"])))],
        input=decoded(first(attributes, NAMES["input"])),
        output=decoded(first(attributes, NAMES["output"])),
        metadata=_metadata(attributes),
    )
    if said == "trace":
        found.is_root_of_run = found.has_no_end = True
    if kind != "tool":
        found.model = first_text(attributes, NAMES["model"])
        details = fields(decoded(first(attributes, NAMES["usage"])))
        found.usage = with_counts({_TOKENS.get(name, name): count for name, count in details.items()} or None)
        costs = fields(decoded(first(attributes, NAMES["cost"])))
        found.cost = cost(costs, ("total",), tuple(costs))
    if kind == "generation":
        found.parameters = fields(decoded(first(attributes, NAMES["parameters"]))) or None
        found.time_to_first_token = between(
            span.start, nanoseconds(decoded(first(attributes, NAMES["completion_start"])))
        )
    elif said == "retriever":
        found.passages = passages_in(found.output) or None
    elif kind == "tool":
        found.tool_name = span.name
    if first(attributes, NAMES["level"]) == "ERROR":
        found.error = first_text(attributes, NAMES["status_message"]) or f"{span.name}: level ERROR"
    return found


def _metadata(attributes: Attributes) -> dict[str, Any]:
    names = ("cost", "version", "release", "environment")
    found = {name: decoded(value) for name in names if (value := first(attributes, NAMES[name])) is not None}
    own = {
        name: decoded(value)
        for prefix in ("langfuse.trace.metadata.", "langfuse.observation.metadata.")
        for name, value in below(attributes, prefix).items()
    }
    return found | ({"metadata": own} if own else {})
