"""Attributes that many libraries use without a convention of their own, and the errors of every span."""

from __future__ import annotations

from collections.abc import Collection

from tracesite_sdk.spans.facts import Facts, first, first_text
from tracesite_sdk.spans.observations import NO_REASON
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded
from tracesite_sdk.transcripts.parsing.passages import passages_in


def recognises(_span: Span, _families: Collection[str]) -> bool:
    return True


def facts(span: Span) -> Facts:
    attributes = span.attributes
    return Facts(
        name=span.name,
        session_id=first_text(
            attributes,
            ("session.id", "session_id", "thread_id", "conversation.id"),
        ),
        end_user=first_text(attributes, ("user.id", "enduser.id")),
        input=decoded(first(attributes, ("input.value", "input"))),
        output=decoded(first(attributes, ("output.value", "output"))),
        passages=passages_in(attributes.get("db.query.retrieved_documents")) or None,
        error=_error(span),
    )


def _error(span: Span) -> str | None:
    if span.status != "error":
        return None
    for event in reversed(span.events):
        if event.name == "exception":
            kind = str(event.attributes.get("exception.type", "")).rpartition(".")[2]
            message = str(event.attributes.get("exception.message", ""))
            return f"{kind}: {message}" if kind and message else message or kind or span.status_message or span.name
    return (
        span.status_message or first_text(span.attributes, ("error.message", "error.type")) or f"{span.name}{NO_REASON}"
    )
