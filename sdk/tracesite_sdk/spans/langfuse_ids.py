"""The ids of traces and spans for those of Langfuse, which may be any text."""

from __future__ import annotations

from hashlib import blake2b
from uuid import UUID


def trace_id_of(id_: str) -> str:
    """Return the trace id for an id of Langfuse, which may be any text: OpenTelemetry's own, a UUID, or a hash."""
    try:
        found = UUID(id_).hex
    except ValueError:
        found = blake2b(id_.encode(), digest_size=16).hexdigest()
    return found if found.strip("0") else blake2b(id_.encode(), digest_size=16).hexdigest()


def span_id_of(id_: str) -> str:
    """Return the span id for an id of Langfuse."""
    is_span_id = len(id_) == 16 and set(id_) <= set("0123456789abcdef") and id_.strip("0")
    return id_ if is_span_id else blake2b(id_.encode(), digest_size=8).hexdigest()
