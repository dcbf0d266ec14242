"""Build JSON responses, of lists above all; parse parameters that are lists of words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from django.http import HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from access_app.errors import InvalidInput
from messages_app.sql.pagination import Page

from .schemas import Resource

READ_FIRST = 20
"""Rows of a page that are read at once whatever their size, so that a page of the default limit takes one round trip."""
LARGE_BYTES = 2 * 1024 * 1024
"""A page whose first rows are larger is streamed; pages of 50 messages with 8 calls each have 1.3 MB."""


def answer(data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return structs as JSON. Not by DRF's Response, whose rendering takes longer than storing a message."""
    return HttpResponse(msgspec.json.encode(data), status=status, headers=headers, content_type="application/json")


def no_content() -> HttpResponse:
    return HttpResponse(status=204)


def list_answer(page: Page, read: Callable[[list[str]], Sequence[Resource]]) -> HttpResponseBase:
    """Return `{"results": [...], "next": ..., "previous": ...}`; `read` returns the resources of ids.

    The size of a page is estimated from its first READ_FIRST rows. A page of large rows is streamed, LARGE_BYTES or a row at
    a time, and so is a page with more rows of one time than its limit, so that such a page is never held in memory.
    """
    after = b"," + msgspec.json.encode({"next": page.next, "previous": page.previous})[1:]
    if page.tie is not None:
        resources = (resource for ids in page.chunks() for resource in read([str(key) for key in ids]))
        return stream_answer(b'{"results":', resources, after)
    ids = [str(key) for key in page.ids]
    first, rest = msgspec.json.encode(read(ids[:READ_FIRST])), ids[READ_FIRST:]
    if not rest:
        return answer(msgspec.Raw(b'{"results":' + first + after))
    if len(first) > LARGE_BYTES:
        step = max(1, READ_FIRST * LARGE_BYTES // len(first))
        more = (resource for at in range(0, len(rest), step) for resource in read(rest[at : at + step]))
        return stream_answer(b'{"results":', more, after, first=first[1:-1])
    others = msgspec.json.encode(read(rest))
    between = b"," if len(first) > 2 and len(others) > 2 else b""
    return answer(msgspec.Raw(b'{"results":' + first[:-1] + between + others[1:] + after))


def stream_answer(
    before: bytes,
    resources: Iterator[msgspec.Struct | msgspec.Raw | dict[str, Any]],
    after: bytes,
    *,
    first: bytes = b"",
) -> HttpResponseBase:
    """Return a JSON list of `resources` between two pieces of JSON, streamed if it is large: see `streamed`.

    `first` holds the first items of the list as JSON, separated by commas.
    """

    def pieces() -> Iterator[bytes]:
        yield before + b"[" + first
        separator = b"," if first else b""
        for resource in resources:
            yield separator + msgspec.json.encode(resource)
            separator = b","
        yield b"]" + after

    return streamed(pieces(), content_type="application/json")


def streamed(
    pieces: Iterator[bytes], *, content_type: str, headers: Mapping[str, str] | None = None
) -> HttpResponseBase:
    """Return the pieces as a response, streamed if they have more than LARGE_BYTES.

    What fails within LARGE_BYTES, such as a value that cannot be decrypted, is an error response like any other. Later the
    server can only close the connection before the end of the response, which clients report as an incomplete one.
    """
    begun: list[bytes] = []
    size = 0
    for piece in pieces:
        begun.append(piece)
        size += len(piece)
        if size > LARGE_BYTES:
            return StreamingHttpResponse(chain(begun, pieces), content_type=content_type, headers=headers)
    return HttpResponse(b"".join(begun), content_type=content_type, headers=headers)


def words(parameters: QueryDict, name: str, allowed: Collection[str]) -> frozenset[str] | None:
    """Parse the words of a parameter such as `fields=id,role`; return None without it. Raise InvalidInput."""
    given = ",".join(parameters.getlist(name))
    if not given:
        return None
    chosen = frozenset(word.strip() for word in given.split(","))
    unknown = chosen.difference(allowed)
    if unknown:
        wrong = Truncator(", ".join(sorted(unknown))).chars(100)
        text = _("Unknown value: %(wrong)s. Allowed: %(words)s.")
        raise InvalidInput(text % {"wrong": wrong, "words": ", ".join(sorted(allowed))}, field=name)
    return chosen
