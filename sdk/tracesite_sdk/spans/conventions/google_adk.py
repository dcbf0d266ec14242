"""Google's Agent Development Kit: requests, responses and values of tools below `gcp.vertex.agent.`, as JSON text.

Source: google/adk-python, src/google/adk/telemetry/tracing.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from tracesite_sdk.normalize.json_values import fields, items
from tracesite_sdk.normalize.pricing import with_counts
from tracesite_sdk.spans.facts import Facts, first_text
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

from . import genai

_PREFIX = "gcp.vertex.agent."
_AGENT = re.compile(r"agent_run \[(.+)\]")
"""The name of an agent's span before version 1.17, which has no attributes."""
_MERGED = "(merged"
"""Begins the name of the tool of a span that repeats the results of parallel calls."""
_UNKNOWN = "<not specified>"
_OF_REQUEST = ("system_instruction", "systemInstruction", "tools")
"""What is no parameter in the configuration of a request."""


def recognises(span: Span, families: Collection[str]) -> bool:
    return _AGENT.fullmatch(span.name) is not None or (
        "gcp." in families and any(name.startswith(_PREFIX) for name in span.attributes)
    )


def facts(span: Span) -> Facts:
    values = {name.removeprefix(_PREFIX): decoded(value) for name, value in span.attributes.items()}
    found = Facts(session_id=first_text(values, ("session_id",)))
    tool = first_text(values, ("gen_ai.tool.name",))
    if agent := _AGENT.fullmatch(span.name):
        found.kind, found.agent_name = "agent", agent[1]
    elif tool is not None and tool.startswith(_MERGED):
        found.kind = "other"
    elif tool is not None:
        found.kind = "tool"
        call_id = first_text(values, ("gen_ai.tool.call.id",))
        found.call_id = call_id if call_id != _UNKNOWN else None
        found.input, found.output = values.get("tool_call_args") or None, values.get("tool_response") or None
    elif span.name == "call_llm" or fields(values.get("llm_request")):
        request, response = fields(values.get("llm_request")), fields(values.get("llm_response"))
        config = fields(request.get("config"))
        found.kind = "generation"
        found.model = first_text(values, genai.NAMES["model"])
        found.input = {
            name: value
            for name, value in (
                ("system_instruction", config.get("system_instruction", config.get("systemInstruction"))),
                ("contents", request.get("contents")),
            )
            if value
        } or None
        found.output = response or None
        found.tools = items(config.get("tools")) or None
        found.parameters = {name: value for name, value in config.items() if name not in _OF_REQUEST and value} or None
        found.usage = _usage(fields(response.get("usage_metadata", response.get("usageMetadata"))))
    return found


def _usage(counts: dict[str, Any]) -> dict[str, Any] | None:
    """Return the counts by the names of OpenTelemetry, with the input and output of all versions: with the prompts of
    tools, and with the thoughts."""

    def count(*names: str) -> int | None:
        sent = (fields(with_counts({"input_tokens": counts.get(name)})).get("input_tokens") for name in names)
        found = [value for value in sent if isinstance(value, int)]
        return sum(found) if found else None

    usage = {
        "input_tokens": count(
            "prompt_token_count", "tool_use_prompt_token_count", "promptTokenCount", "toolUsePromptTokenCount"
        ),
        "output_tokens": count(
            "candidates_token_count", "thoughts_token_count", "candidatesTokenCount", "thoughtsTokenCount"
        ),
        "total_tokens": count("total_token_count", "totalTokenCount"),
        "cached_input_tokens": count("cached_content_token_count", "cachedContentTokenCount"),
        "reasoning_tokens": count("thoughts_token_count", "thoughtsTokenCount"),
    }
    return {name: value for name, value in usage.items() if value is not None} or None
