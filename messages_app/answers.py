"""What lists answer, and which fields of a resource a client asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from django.http import HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from django.utils.translation import gettext as _

from access_app.errors import InvalidInput

from .pagination import Page
from .resources import Resource


def answer(data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Structs as JSON. Not DRF's Response: its way from data to bytes, by a template that there is none of, takes longer
    than writing a message."""
    return HttpResponse(msgspec.json.encode(data), status=status, headers=headers, content_type="application/json")


def no_content() -> HttpResponse:
    return HttpResponse(status=204)


def list_answer(page: Page, read: Callable[[list[str]], Sequence[Resource]]) -> HttpResponseBase:
    """`{"results": [...], "next": ..., "previous": ...}`; `read` gives the resources of ids.

    A page that holds more rows of one time than its limit is written while it is read, so that it never lies in memory.
    """
    ways_on = {"next": page.next, "previous": page.previous}
    if page.tie is None:
        return answer({"results": read([str(key) for key in page.ids]), **ways_on})
    resources = (resource for ids in page.chunks() for resource in read([str(key) for key in ids]))
    return stream_answer(b'{"results":', resources, b"," + msgspec.json.encode(ways_on)[1:])


def stream_answer(before: bytes, resources: Iterator[msgspec.Struct], after: bytes) -> StreamingHttpResponse:
    """A JSON list of `resources` between two pieces of JSON, written while it is read."""

    def pieces() -> Iterator[bytes]:
        yield before + b"["
        separator = b""
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
            _("Not among what can be chosen, which is: %(words)s.") % {"words": ", ".join(sorted(allowed))}, field=name
        )
    return chosen
