"""Claude Code's own spans: a turn, its requests, and its tools, with attributes that have no prefix.

Source: Claude Code's documentation, "Monitoring" (traces, in beta). Texts are there only if the user asked for them. The text of an
answer is in the log event `assistant_response`, which newer versions stamp with the trace and the span.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tracesite_sdk.spans.facts import Facts, first, first_text, milliseconds, usage
from tracesite_sdk.spans.observations import EXECUTION, Kind
from tracesite_sdk.spans.span import Attributes, Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

_PREFIX = "claude_code."
_KINDS: dict[str, Kind] = {"interaction": "agent", "llm_request": "generation", "tool": "tool"}
_REDACTED = "<REDACTED>"
_TOKENS: dict[str, tuple[str, ...]] = {
    # By the names of Anthropic, which counts cached tokens beside the input.
    "input_tokens": ("input_tokens",),
    "output_tokens": ("output_tokens",),
    "cache_read_input_tokens": ("cache_read_tokens",),
    "cache_creation_input_tokens": ("cache_creation_tokens",),
}
_ARGUMENTS = {
    "full_command": "command",
    "file_path": "file_path",
    "skill_name": "skill",
    "subagent_type": "subagent_type",
}
"""Attributes with an argument of the tool, if it has no `tool_input`."""
_OF_REQUEST = ("query_source", "stop_reason", "speed", "attempt", "agent_id", "parent_agent_id", "request_id")


def recognises(span: Span, _families: Collection[str]) -> bool:
    return span.name.startswith(_PREFIX) and "span.type" in span.attributes


def facts(span: Span) -> Facts:
    attributes = span.attributes
    type_ = span.name.removeprefix(_PREFIX)
    kind = _KINDS.get(type_, "other")
    found = Facts(kind=kind, metadata={name: attributes[name] for name in _OF_REQUEST if name in attributes})
    if kind == "agent":
        found.agent_name = "claude-code"
        found.input = _shown(attributes.get("user_prompt"))
        found.output = _response(span)
    elif kind == "generation":
        found.model = first_text(attributes, ("model", "gen_ai.request.model"))
        found.response_id = first_text(attributes, ("gen_ai.response.id", "request_id"))
        found.usage = usage(attributes, _TOKENS)
        found.time_to_first_token = milliseconds(attributes.get("ttft_ms"))
        found.output = _response(span) or _shown(attributes.get("response.model_output"))
        found.error = _failure(attributes)
    elif kind == "tool":
        found.tool_name = first_text(attributes, ("tool_name",))
        found.call_id = first_text(attributes, ("tool_use_id", "gen_ai.tool.call.id"))
        found.input = decoded(first(attributes, ("tool_input",))) or {
            name: value for key, name in _ARGUMENTS.items() if (value := attributes.get(key)) is not None
        }
        found.output = _output(span)
    elif span.name == EXECUTION:
        found.error = _failure(attributes)
    elif type_ == "tool.blocked_on_user" and attributes.get("decision") == "reject":
        found.error = "rejected by the user"
    return found


def _shown(value: Any) -> Any:
    return None if value == _REDACTED else value


def _failure(attributes: Attributes) -> str | None:
    if str(attributes.get("success", "")).lower() != "false":
        return None
    return first_text(attributes, ("error", "status_code")) or "failed"


def _response(span: Span) -> Any:
    """Return the text of the last answer, from the log events of a span."""
    texts = [event.attributes.get("response") for event in span.events if event.name.endswith("assistant_response")]
    return _shown(texts[-1]) if texts else None


def _output(span: Span) -> Any:
    for event in span.events:
        if event.name == "tool.output":
            return first(event.attributes, ("output", "content")) or event.attributes
    return None
