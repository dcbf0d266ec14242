"""The OpenAI Agents SDK: the data of its spans, as openai_traces.py keeps them.

Source: openai/openai-agents-python, src/agents/tracing/span_data.py.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tracesite_sdk.normalize.json_values import fields, items, text
from tracesite_sdk.spans.facts import Facts
from tracesite_sdk.spans.observations import Kind
from tracesite_sdk.spans.span import Attributes, Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

PREFIX = "openai_agents."
KINDS: dict[str, Kind] = {"agent": "agent", "function": "tool", "generation": "generation", "response": "generation"}
"""All other types are spans without a meaning of their own: handoff, guardrail, custom (task, turn), mcp_tools, speech ..."""
_END_USER = ("user_id", "end_user")
_OF_FACTS = ("name", "input", "output", "usage", "model", "response_id", "model_config")
_OF_REQUEST = ("instructions", "tools")
_IDS = ("type", "span_id", "trace_id", "parent_id", "error")


def recognises(span: Span, _families: Collection[str]) -> bool:
    return f"{PREFIX}type" in span.attributes


def facts(span: Span) -> Facts:
    found = {name.removeprefix(PREFIX): value for name, value in span.attributes.items() if name.startswith(PREFIX)}
    said = found.get("type")
    if said == "trace":
        return _of_trace(span, found)
    kind = KINDS.get(said, "other") if isinstance(said, str) else "other"
    name = text(found.get("name"))
    usage = fields(found.get("usage"))
    return Facts(
        kind=kind,
        is_root_of_run=kind == "agent" or None,
        name=name,
        input=decoded(found.get("input")) if kind == "tool" else found.get("input"),
        output=found.get("output"),
        agent_name=name if kind == "agent" else text(found.get("agent_name")),
        tool_name=name if kind == "tool" else None,
        model=text(found.get("model")),
        response_id=text(found.get("response_id")),
        usage=usage if kind == "generation" and usage else None,
        system=found.get("instructions") if kind == "generation" else None,
        tools=items(found.get("tools")) or None if kind == "generation" else None,
        parameters=fields(found.get("model_config")) or None,
        error=_error(found.get("error")),
        metadata={
            key: value
            for key, value in found.items()
            if key not in (*_IDS, *_OF_FACTS) and not (kind == "generation" and key in _OF_REQUEST)
        },
    )


def _of_trace(span: Span, found: Attributes) -> Facts:
    metadata = fields(found.get("metadata"))
    return Facts(
        is_trace=True,
        session_id=text(found.get("group_id")),
        title=span.name or None,
        end_user=next((text(metadata[name]) for name in _END_USER if metadata.get(name)), None),
    )


def _error(error: Any) -> str | None:
    """Return the text of an error: its message, and the reason in its data."""
    if not isinstance(error, dict):
        return text(error)
    message, reason = text(error.get("message")), text(fields(error.get("data")).get("error"))
    return ": ".join(filter(None, (message, reason))) or None
