"""Laminar: a type, an input and an output for each span, as JSON text.

Source: lmnr-ai/lmnr-python, src/lmnr/opentelemetry_lib/tracing/attributes.py; its plugins for Claude Code and Codex name calls.
"""

from __future__ import annotations

from collections.abc import Collection

from tracesite_sdk.normalize.json_values import items
from tracesite_sdk.spans.facts import Facts, below, first, first_text, usage
from tracesite_sdk.spans.observations import Kind
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

from . import genai

KINDS: dict[str, Kind] = {"LLM": "generation", "CACHED": "generation", "TOOL": "tool"}
_OF_TRACE = "lmnr.association.properties."
_CALL_IDS = ("gen_ai.tool.call.id", "claude_code.tool.id", "codex.tool.call_id")


def recognises(_span: Span, families: Collection[str]) -> bool:
    return "lmnr." in families


def facts(span: Span) -> Facts:
    attributes = span.attributes
    kind = KINDS.get(str(attributes.get("lmnr.span.type", "")))
    metadata = below(attributes, f"{_OF_TRACE}metadata.")
    return Facts(
        kind=kind,
        session_id=first_text(attributes, (f"{_OF_TRACE}session_id",)),
        end_user=first_text(attributes, (f"{_OF_TRACE}user_id",)),
        tags=[str(tag) for tag in items(decoded(first(attributes, (f"{_OF_TRACE}tags",))))],
        input=decoded(first(attributes, ("lmnr.span.input",))),
        output=decoded(first(attributes, ("lmnr.span.output",))),
        tool_name=span.name if kind == "tool" else None,
        model=first_text(attributes, genai.NAMES["model"]) if kind == "generation" else None,
        usage=usage(attributes, genai.TOKENS) if kind == "generation" else None,
        call_id=first_text(attributes, _CALL_IDS) if kind == "tool" else None,
        metadata={"metadata": metadata} if metadata else {},
    )
