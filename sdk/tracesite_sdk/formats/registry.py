"""The registry of transcript formats; the content of a document decides its format, never its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from tracesite_sdk import records
from tracesite_sdk.eko import transcripts as eko
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.documents import (
    BEGINNING_OF_A_TEXT,
    Document,
    Skip,
    Source,
    ValueBudget,
    beginning,
    read,
    read_text,
    text_in,
)
from tracesite_sdk.transcripts.entries import Transcript

from . import (
    ai_sdk,
    aider,
    amp,
    anthropic_messages,
    atif,
    autogen,
    autogen_history,
    bedrock_converse,
    chatgpt,
    claude_ai,
    claude_code,
    cline,
    codex,
    codex_exec,
    copilot_cli,
    cursor,
    gemini_cli,
    gemini_contents,
    google_adk,
    goose,
    inspect_ai,
    langchain,
    langfuse,
    langsmith,
    mini_swe_agent,
    openai_chat,
    openai_responses,
    openai_run_state,
    opencode,
    openhands,
    otlp,
    own_export,
    pi,
    pydantic_ai,
    qwen_code,
    sharegpt,
    specstory,
    sweagent,
    tau2_bench,
    toolbench,
)


class Format(Protocol):
    """The interface of a format module."""

    @property
    def NAME(self) -> str: ...

    def recognises(self, document: Document) -> bool: ...

    def transcripts(self, document: Document, skip: Skip) -> Iterator[Transcript | records.Session]:
        """Yield the transcripts of a document, or sessions from a document that holds records."""


@runtime_checkable
class SpanFormat(Format, Protocol):
    """The interface of a format of spans, which are stored as those that arrive over HTTP."""

    def spans(self, document: Document, skip: Skip) -> Iterator[Span]:
        """Yield the spans of a document that is recognised, those of a trace in any order."""


FORMATS: tuple[Format, ...] = (
    own_export,
    otlp,
    langsmith,
    toolbench,
    inspect_ai,
    sweagent,
    mini_swe_agent,
    tau2_bench,
    atif,
    eko,
    openhands,
    pi,
    codex,
    codex_exec,
    copilot_cli,
    gemini_cli,
    qwen_code,
    opencode,
    cline,
    goose,
    amp,
    aider,
    cursor,
    specstory,
    chatgpt,
    claude_ai,
    sharegpt,
    claude_code,
    langfuse,
    langchain,
    pydantic_ai,
    autogen,
    autogen_history,
    ai_sdk,
    google_adk,
    gemini_contents,
    openai_run_state,
    anthropic_messages,
    bedrock_converse,
    openai_chat,
    openai_responses,
)
"""The formats in the order in which they are tried."""


def format_of(document: Document) -> Format | None:
    """Return the format of a document by its beginning; None if no format recognises it."""
    start = beginning(document)
    format_ = next((candidate for candidate in FORMATS if candidate.recognises(start)), None)
    return anthropic_messages if format_ is None and anthropic_messages.may_hold(start) else format_


def is_of(document: Document, candidate: Format) -> bool:
    """Return whether a document is of a format, by its beginning."""
    start = beginning(document)
    return candidate.recognises(start) or (candidate is anthropic_messages and anthropic_messages.may_hold(start))


def is_text_transcript(head: bytes) -> bool:
    """Return whether the first BEGINNING_OF_A_TEXT bytes of a file are those of a transcript that is text, such as Markdown."""
    return format_of(text_in(head)) is not None


def document_of(source: Source, skip: Skip, values: ValueBudget | None = None) -> Document:
    """Return the document of a source: its text if a format of texts recognises it, otherwise its JSON, see `documents.read`.

    Raise OSError and Unreadable.
    """
    with source.open() as stream:
        head = stream.read(BEGINNING_OF_A_TEXT)
    return read_text(source, skip) if is_text_transcript(head) else read(source, skip, values)


def format_named(name: str) -> Format | None:
    return next((candidate for candidate in FORMATS if name == candidate.NAME), None)
