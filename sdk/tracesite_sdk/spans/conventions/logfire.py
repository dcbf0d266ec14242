"""Logfire and Pydantic AI: pending spans, and the attributes that Pydantic AI has beside the GenAI conventions.

Source: pydantic/logfire, _internal/tracer.py and _internal/constants.py; pydantic/pydantic-ai, models/instrumented.py.
"""

from __future__ import annotations

from tracesite_sdk.spans.facts import Facts, first, first_text
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

SPAN_TYPE = "logfire.span_type"
PENDING_PARENT = "logfire.pending_parent_id"
_NO_PARENT = "0" * 16


def recognises(span: Span) -> bool:
    return any(name.startswith(("logfire.", "pydantic_ai.")) for name in span.attributes)


def facts(span: Span) -> Facts:
    attributes = span.attributes
    span_facts = Facts(
        agent_name=first_text(attributes, ("agent_name",)),
        input=decoded(first(attributes, ("pydantic_ai.all_messages", "all_messages_events", "prompt"))),
        output=decoded(first(attributes, ("final_result",))),
        tool_name=first_text(attributes, ("gen_ai.tool.name",)),
    )
    if "tool_arguments" in attributes:
        # Before version 3 of the instrumentation.
        span_facts.input = decoded(attributes["tool_arguments"])
        span_facts.output = attributes.get("tool_response")
    if attributes.get(SPAN_TYPE) == "pending_span":
        parent = attributes.get(PENDING_PARENT)
        span_facts.is_pending = True
        span_facts.parent_id = parent if isinstance(parent, str) and parent != _NO_PARENT else ""
    return span_facts
