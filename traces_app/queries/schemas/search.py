"""Response schemas: the search."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from messages_app.http.schemas import Id, NumberedPage, Resource, Time

HIT_KINDS = ["message", "step", "call", "reference", "event"]


class SearchHit(Resource, frozen=True):
    """A place where a term of the search was found."""

    kind: Annotated[str, Meta(extra_json_schema={"enum": HIT_KINDS})]
    id: Annotated[Id, Meta(description="The id of the message, step, call, reference or event.")]
    message_id: Id
    url: Annotated[str, Meta(description="The call, or the message that has the rest, in this API.")]
    page: Annotated[str, Meta(description="The page of the admin that opens at this place.")]
    field: str
    before: Annotated[str, Meta(description="The text before it, at most 60 characters and an ellipsis.")]
    match: Annotated[str, Meta(description="The text itself, as it was stored.")]
    after: str


class SearchResult(Resource, frozen=True):
    """A message that has all terms of a search, itself or below it."""

    message_id: Id
    session_id: Id
    project: str
    role: str
    created_at: Time
    hits: Annotated[list[SearchHit], Meta(description="One for each term, in the order of `q`.")]


class SearchPage(NumberedPage[SearchResult], frozen=True):
    """A page of messages that were found, newest first, with the cursors of the next and previous pages."""

    searched_to: Annotated[
        Time | None,
        Meta(
            description="Where the search stopped after 2 seconds; `next` goes on from there. null if nothing was left out."
        ),
    ]
    indexed_until: Annotated[
        Time | None,
        Meta(
            description="Messages that were written after this time are searched without the index; null if there are none."
        ),
    ]
