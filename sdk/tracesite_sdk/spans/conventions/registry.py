"""All conventions, the most specific first. A span is often written by several at once: the first that knows a fact wins.

Each has `recognises(span, families)` and `facts(span)`. `families` are the beginnings of the names of the attributes, such as
"gen_ai.": up to the first dot, and "" for a name without one.
"""

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
    # Found once, because to compare each name for each convention took about a tenth of the time of a trace.
    families = {name[: name.find(".") + 1] for name in span.attributes}
    for convention in CONVENTIONS:
        if convention.recognises(span, families):
            facts = convention.facts(span)
            known = facts if known is None else known.filled_by(facts)
    if known is not None and known.is_embedding:
        return replace(known, input=None, output=None)
    return known or Facts()
