"""Logfire and Pydantic AI: pending spans, and the attributes that Pydantic AI has beside the GenAI conventions.

Source: pydantic/logfire, _internal/tracer.py and _internal/constants.py; pydantic/pydantic-ai, models/instrumented.py.
"""

from __future__ import annotations

from collections.abc import Collection

from tracesite_sdk.spans.facts import Facts, first, first_text
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

SPAN_TYPE = "logfire.span_type"
PENDING_PARENT = "logfire.pending_parent_id"
_NO_PARENT = "0" * 16
_OF_OTHERS = ("gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.request.model")
"""Attributes that say what a span is, or that it is no agent."""


def recognises(_span: Span, families: Collection[str]) -> bool:
    return "logfire." in families or "pydantic_ai." in families


def facts(span: Span) -> Facts:
    attributes = span.attributes
    span_facts = Facts(
        # Before version 2 of Pydantic AI the span of an agent has no operation.
        kind="agent" if "agent_name" in attributes and not any(name in attributes for name in _OF_OTHERS) else None,
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
