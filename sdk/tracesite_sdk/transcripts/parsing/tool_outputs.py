"""The output of a tool as text and attachments. For formats."""

from __future__ import annotations

from typing import Any

from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.transcripts.entries import is_text


def text_and_attachments(content: str | list[Any] | None) -> tuple[str, list[Any] | None]:
    """Return the text of a content, and its other parts as attachments; None if it has no other parts."""
    text, parts = text_of(content)
    return text, [part for part in parts or () if not is_text(part)] or None
