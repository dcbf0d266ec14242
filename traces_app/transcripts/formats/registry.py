"""The formats that transcripts come in, and which of them a document is: told by its content, never by its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from traces_app.schema import records
from traces_app.transcripts.entries import Transcript
from traces_app.transcripts.files.documents import Document, Skip, beginning

from . import (
    ai_sdk,
    anthropic_messages,
    atif,
    bedrock_converse,
    chatgpt,
    claude_ai,
    claude_code,
    codex,
    eko,
    gemini_cli,
    inspect_ai,
    langchain,
    langfuse,
    openai_chat,
    openai_responses,
    opencode,
    openhands,
    own_export,
    pi,
    pydantic_ai,
    qwen_code,
    sharegpt,
    sweagent,
    toolbench,
)


class Format(Protocol):
    """What a format module offers."""

    @property
    def NAME(self) -> str: ...

    def recognises(self, document: Document) -> bool: ...

    def transcripts(self, document: Document, skip: Skip) -> Iterator[Transcript | records.Session]:
        """What a document says, told to be mapped; or, of a document that says records, those."""


FORMATS: tuple[Format, ...] = (
    own_export,
    toolbench,
    inspect_ai,
    sweagent,
    atif,
    eko,
    openhands,
    pi,
    codex,
    gemini_cli,
    qwen_code,
    opencode,
    chatgpt,
    claude_ai,
    sharegpt,
    claude_code,
    langfuse,
    langchain,
    pydantic_ai,
    ai_sdk,
    anthropic_messages,
    bedrock_converse,
    openai_chat,
    openai_responses,
)
"""In the order in which they are asked."""


def format_of(document: Document) -> Format | None:
    """The format of a document, told by its beginning; None when no format knows it."""
    begun = beginning(document)
    found = next((candidate for candidate in FORMATS if candidate.recognises(begun)), None)
    return anthropic_messages if found is None and anthropic_messages.may_hold(begun) else found


def is_of(document: Document, candidate: Format) -> bool:
    """Whether a document is of a format, told by its beginning."""
    begun = beginning(document)
    return candidate.recognises(begun) or (candidate is anthropic_messages and anthropic_messages.may_hold(begun))


def format_named(name: str) -> Format | None:
    return next((candidate for candidate in FORMATS if name == candidate.NAME), None)
