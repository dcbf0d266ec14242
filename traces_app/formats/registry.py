"""The formats that transcripts come in, and which of them a document is: told by its content, never by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from traces_app import records

from . import openai_chat


class Format(Protocol):
    """What a format module offers."""

    @property
    def NAME(self) -> str: ...

    def recognises(self, document: object) -> bool: ...

    def sessions(self, document: object, skip: Callable[[str, str], None]) -> Iterator[records.Session]: ...


FORMATS: tuple[Format, ...] = (openai_chat,)
"""In the order in which they are asked."""


def format_of(document: object) -> Format | None:
    """The format of a decoded document (for JSON lines: the list of its lines), None when no format knows it."""
    return next((candidate for candidate in FORMATS if candidate.recognises(document)), None)
