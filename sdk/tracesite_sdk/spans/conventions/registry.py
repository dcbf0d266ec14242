"""All conventions, the most specific first. A span is often written by several at once: the first that knows a fact wins."""

from __future__ import annotations

from msgspec.structs import replace

from tracesite_sdk.spans.facts import Facts
from tracesite_sdk.spans.span import Span

from . import (
    agentops,
    claude_code,
    genai,
    generic,
    google_adk,
    laminar,
    langfuse,
    langsmith,
    logfire,
    mlflow,
    openai_agents,
    openinference,
    openllmetry,
    vercel,
)

CONVENTIONS = (
    agentops,
    claude_code,
    openai_agents,
    langfuse,
    langsmith,
    mlflow,
    openinference,
    vercel,
    openllmetry,
    logfire,
    google_adk,
    genai,
    laminar,
    generic,
)


def facts_of(span: Span) -> Facts:
    """Return what the span means by all conventions that recognise it."""
    known: Facts | None = None
    for convention in CONVENTIONS:
        if convention.recognises(span):
            facts = convention.facts(span)
            known = facts if known is None else known.filled_by(facts)
    if known is not None and known.is_embedding:
        return replace(known, input=None, output=None)
    return known or Facts()
