"""Response schemas: answers for agents."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from messages_app.http.schemas import Count, Resource


class ReadSection(Resource, frozen=True):
    """A part of an answer: lines, or one long text."""

    title: str
    lines: Annotated[
        list[dict[str, Any]] | UnsetType, Meta(description="Each with its fields, and texts of traces in `data`.")
    ] = UNSET
    data: Annotated[
        dict[str, str] | UnsetType, Meta(description="`text`, and of a text whose middle is left out its `end`.")
    ] = UNSET
    left_out: Annotated[int | UnsetType, Meta(description="Lines, or bytes of the text, that did not fit.")] = UNSET
    more: Annotated[str | UnsetType, Meta(description="What to read for that, in the form that `hints` chose.")] = UNSET


class ReadAnswer(Resource, frozen=True):
    """An answer: what it is about, and sections. Texts of traces are only in `data`, here, in lines and in sections."""

    title: str
    found: Annotated[Count, Meta(description="How many things were found.")]
    facts: dict[str, Any]
    sections: list[ReadSection]
    data: dict[str, str] | UnsetType = UNSET
    page: Annotated[str | UnsetType, Meta(description="The page that shows the same to people.")] = UNSET
