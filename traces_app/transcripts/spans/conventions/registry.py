"""All conventions, the most specific first. A span is often written by several at once: the first that knows a fact wins."""

from __future__ import annotations

from traces_app.transcripts.spans.facts import Facts
from traces_app.transcripts.spans.span import Span

from . import agentops, genai, generic, langfuse, langsmith, logfire, mlflow, openinference, openllmetry, vercel

CONVENTIONS = (agentops, langfuse, langsmith, mlflow, openinference, vercel, openllmetry, logfire, genai, generic)


def facts_of(span: Span) -> Facts:
    """Return what the span means by all conventions that recognise it."""
    found = Facts()
    for convention in CONVENTIONS:
        if convention.recognises(span):
            found = found.filled_by(convention.facts(span))
    return found
