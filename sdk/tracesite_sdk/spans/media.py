"""Media that an SDK uploads beside its spans: put back into the values in which it left references. Plain Python.

Source: langfuse/langfuse-python, langfuse/media.py. The SDK replaces base64 by
`@@@langfuseMedia:type=image/png|id=...|source=base64_data_uri@@@`.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tracesite_sdk.records import Message
from tracesite_sdk.records.health_flags import TRUNCATED

from .span import Attributes, Span

MOST_BASE64_PUT_IN = 32 * 2**20
"""Characters of Base64 that are put into the spans of a trace in place of references: a file counts for each of its references.
The messages of the trace are made in memory with all of them whenever it changes."""
_MARK = "@@@langfuseMedia:"
# Under `data`, as in messages of Anthropic and Gemini, stands base64 alone; everywhere else a data URL. A run of backslashes is
# tried at its beginning only, because a text may be nothing else.
_REFERENCE = re.compile(
    r'(?P<bare>(?<!\\)\\*"data\\*"\s*:\s*\\*")?@@@langfuseMedia:type=[^|@]{1,200}\|id=(?P<id>[^|@]{1,100})\|source=[^|@]{1,50}@@@'
)
_ID_IN_REFERENCE = re.compile(rb"\|id=([^|@]{1,100})\|")


class Media(Struct, frozen=True, kw_only=True):
    """A file of a trace."""

    trace_id: str
    """32 lower-case hexadecimal digits."""
    media_id: str
    """The id that references name it by: see media_id_of."""
    content_type: str
    data: str
    """Base64; empty of a file that is not read, because the trace has too many."""


def media_id_of(content_hash: bytes) -> str:
    """Return the id of media with this SHA-256, as Langfuse's SDKs derive it."""
    return b64encode(content_hash, b"-_").decode()[:22]


def media_of(trace_id: str, content_type: str, content: bytes, content_hash: bytes) -> Media:
    """Return a file of a trace as it is stored; the hash is that of the content as the SDK sent it."""
    return Media(
        trace_id=trace_id,
        media_id=media_id_of(content_hash),
        content_type=content_type,
        data=b64encode(content).decode(),
    )


def with_media(spans: Sequence[Span], media: Iterable[Media]) -> tuple[list[Span], set[str]]:
    """Return the spans with media in place of the references to them, up to MOST_BASE64_PUT_IN, and the ids of media that are left out.

    References to those, and to media that are not there, stay as they are.
    """
    by_id = {item.media_id: item for item in media}
    left = MOST_BASE64_PUT_IN
    left_out: set[str] = set()
    if not by_id:
        return list(spans), left_out

    def content_of(match: re.Match[str]) -> str:
        nonlocal left
        item = by_id.get(match["id"])
        if item is None:
            return match[0]
        if not item.data or len(item.data) > left:
            left_out.add(item.media_id)
            return match[0]
        left -= len(item.data)
        return f"{match['bare']}{item.data}" if match["bare"] else f"data:{item.content_type};base64,{item.data}"

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return _REFERENCE.sub(content_of, value) if _MARK in value else value
        if isinstance(value, list):
            return [filled(item) for item in value]
        if isinstance(value, dict):
            return {name: filled(item) for name, item in value.items()}
        return value

    def attributes_of(attributes: Attributes) -> Attributes:
        return {name: filled(value) for name, value in attributes.items()}

    return [replace(span, attributes=attributes_of(span.attributes)) for span in spans], left_out


def with_flag(messages: Sequence[Message], left_out: Collection[str]) -> list[Message]:
    """Return the messages, those with references to media that were left out flagged as truncated."""
    ids = {media_id.encode() for media_id in left_out}

    def is_cut(message: Message) -> bool:
        return not ids.isdisjoint(_ID_IN_REFERENCE.findall(msgspec.json.encode(message)))

    return [
        replace(message, health=[*(message.health or ()), TRUNCATED]) if is_cut(message) else message
        for message in messages
    ]
