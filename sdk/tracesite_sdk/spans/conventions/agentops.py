"""AgentOps: entities with their input and output, and a span for each call that a reply requests.

Source: AgentOps-AI/agentops, agentops/semconv.
"""

from __future__ import annotations

from collections.abc import Collection

from tracesite_sdk.spans.facts import Facts, first_text
from tracesite_sdk.spans.observations import Kind
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

KIND = "agentops.span.kind"
KINDS: dict[str, Kind] = {"agent": "agent", "workflow": "agent", "tool": "tool", "llm": "generation"}
_REQUESTED = "tool_call."


def recognises(span: Span, families: Collection[str]) -> bool:
    return "agentops." in families or _is_requested_call(span)


def facts(span: Span) -> Facts:
    attributes = span.attributes
    if _is_requested_call(span):
        return Facts(
            kind="other",
            is_requested_call=True,
            tool_name=first_text(attributes, ("tool.name",)),
            call_id=first_text(attributes, ("tool.call.id",)),
            input=decoded(attributes.get("tool.parameters")),
        )
    kind = KINDS.get(str(attributes.get(KIND, "")))
    name = first_text(attributes, ("operation.name",))
    value = decoded(attributes.get("agentops.tool.input", attributes.get("agentops.entity.input")))
    if isinstance(value, dict) and value.keys() == {"args", "kwargs"} and not value["args"]:
        value = value["kwargs"]
    return Facts(
        kind=kind,
        input=value or None,
        output=decoded(attributes.get("agentops.tool.output", attributes.get("agentops.entity.output"))),
        agent_name=name if kind == "agent" else None,
        tool_name=name if kind == "tool" else None,
        title=name if attributes.get(KIND) == "session" else None,
        tags=[str(tag) for tag in attributes.get("agentops.tags", ()) if isinstance(tag, str)],
    )


def _is_requested_call(span: Span) -> bool:
    """Return whether the span is below a reply that requests a call, where the output of the reply may lack it."""
    return span.name.startswith(_REQUESTED) and "tool.call.id" in span.attributes
