"""LangSmith's attributes on OpenTelemetry spans.

Source: the LangSmith documentation, "Trace with OpenTelemetry".
"""

from __future__ import annotations

from traces_app.transcripts.observations import Kind
from traces_app.transcripts.parsing.message_shapes import decoded
from traces_app.transcripts.spans.facts import Facts, below, first_text
from traces_app.transcripts.spans.span import Span

KINDS: dict[str, Kind] = {"llm": "generation", "chat_model": "generation", "tool": "tool"}


def recognises(span: Span) -> bool:
    return any(name.startswith("langsmith.") for name in span.attributes)


def facts(span: Span) -> Facts:
    attributes = span.attributes
    said = str(attributes.get("langsmith.span.kind", "")).lower()
    kind: Kind | None = KINDS.get(said, "other" if said else None)
    metadata = below(attributes, "langsmith.metadata.")
    session = first_text(attributes, ("langsmith.trace.session_id", "langsmith.metadata.thread_id"))
    tags = attributes.get("langsmith.span.tags")
    return Facts(
        kind=kind,
        session_id=session or first_text(metadata, ("session_id", "conversation_id")),
        end_user=first_text(metadata, ("user_id",)),
        title=first_text(attributes, ("langsmith.trace.name",)),
        tool_name=span.name if kind == "tool" else None,
        input=decoded(attributes.get("gen_ai.prompt")),
        output=decoded(attributes.get("gen_ai.completion")),
        tags=[tag.strip() for tag in tags.split(",") if tag.strip()] if isinstance(tags, str) else [],
        metadata={"metadata": metadata} if metadata else {},
    )
