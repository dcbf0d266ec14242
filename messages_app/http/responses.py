"""The responses of lists, and the fields of a resource that a client asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from django.http import HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from django.utils.translation import gettext as _

from access_app.errors import InvalidInput
from messages_app.sql.pagination import Page

from .schemas import Resource

READ_FIRST = 20
"""Rows of a page that are read at once whatever their size: a page of the default limit is one exchange."""
LARGE_BYTES = 2 * 1024 * 1024
"""A page whose first rows are larger is streamed; pages of 50 messages with 8 calls each have 1.3 MB."""


def answer(data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Structs as JSON. Not DRF's Response: its way from data to bytes, by a template that there is none of, takes longer
    than writing a message."""
    return HttpResponse(msgspec.json.encode(data), status=status, headers=headers, content_type="application/json")


def no_content() -> HttpResponse:
    return HttpResponse(status=204)


def list_answer(page: Page, read: Callable[[list[str]], Sequence[Resource]]) -> HttpResponseBase:
    """`{"results": [...], "next": ..., "previous": ...}`; `read` gives the resources of ids.

    The size of a page is estimated from the first READ_FIRST rows. One of large rows is written while it is read, LARGE_BYTES or a row at
    a time, and so is one that holds more rows of one time than its limit: such a page never lies in memory.
    """
    ways_on = {"next": page.next, "previous": page.previous}
    after = b"," + msgspec.json.encode(ways_on)[1:]
    if page.tie is not None:
        resources = (resource for ids in page.chunks() for resource in read([str(key) for key in ids]))
        return stream_answer(b'{"results":', resources, after)
    ids = [str(key) for key in page.ids]
    first, rest = msgspec.json.encode(read(ids[:READ_FIRST])), ids[READ_FIRST:]
    if not rest:
        return answer(msgspec.Raw(b'{"results":' + first + after))
    if len(first) > LARGE_BYTES:
        step = max(1, READ_FIRST * LARGE_BYTES // len(first))
        more = (one for at in range(0, len(rest), step) for one in read(rest[at : at + step]))
        return stream_answer(b'{"results":', more, after, first=first[1:-1])
    others = msgspec.json.encode(read(rest))
    between = b"," if len(first) > 2 and len(others) > 2 else b""
    return answer(msgspec.Raw(b'{"results":' + first[:-1] + between + others[1:] + after))


def stream_answer(
    before: bytes, resources: Iterator[msgspec.Struct], after: bytes, *, first: bytes = b""
) -> StreamingHttpResponse:
    """A JSON list of `resources` between two pieces of JSON, written while it is read.

    `first` are items of the list that are JSON already, with commas between them.
    """

    def pieces() -> Iterator[bytes]:
        yield before + b"[" + first
        separator = b"," if first else b""
        for resource in resources:
            yield separator + msgspec.json.encode(resource)
            separator = b","
        yield b"]" + after

    return StreamingHttpResponse(pieces(), content_type="application/json")


def words(parameters: QueryDict, name: str, allowed: Collection[str]) -> frozenset[str] | None:
    """The words of a parameter such as `fields=id,role`; None when it is not given. Raises InvalidInput."""
    given = parameters.get(name)
    if not given:
        return None
    chosen = frozenset(word.strip() for word in given.split(","))
    unknown = chosen.difference(allowed)
    if unknown:
        raise InvalidInput(
            _("Unknown value. Choose from: %(words)s.") % {"words": ", ".join(sorted(allowed))}, field=name
        )
    return chosen
