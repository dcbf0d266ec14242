"""Response schemas: sessions with what the traces add to them, and their exports."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from messages_app.http.schemas import Json, NumberedPage, Resource, Session, Time

from .messages import Message
from .outcomes import SentMessages
from .scores import Score
from .search import SearchHit
from .snapshots import ForkedFrom, ListedSnapshot, SnapshotSums


class ArchivedPart(Resource, frozen=True, kw_only=True):
    """A period (a day, week or month) of a session that was archived and dropped from the database; `restore_archive` brings it back."""

    period: Annotated[str, Meta(description="Such as 2026-01.")]
    url: Annotated[str | UnsetType, Meta(description="The folder of the archive; only for logins of owners.")] = UNSET


class SessionWithContexts(Session, frozen=True, kw_only=True):
    """A session with its start and end, and the references of its contexts and snapshots."""

    started_at: Annotated[
        Time, Meta(description="Its `created_at`, which is the time of its first message by default.")
    ]
    ended_at: Annotated[
        Time | None,
        Meta(
            description="The end of its newest run, or its last activity if that is unknown; null while it is going on."
        ),
    ]
    context_refs: Annotated[
        list[str], Meta(description="The newest references, newest first; `contexts/` lists all, with their kinds.")
    ]
    snapshots: Annotated[
        list[ListedSnapshot],
        Meta(description="The newest, newest first; `snapshots/` lists all, with more about each."),
    ]
    snapshot_sums: Annotated[SnapshotSums | UnsetType, Meta(description="Of its snapshots: see `snapshots/`.")] = UNSET
    forked_from: Annotated[ForkedFrom | UnsetType, Meta(description="Of a replay: what it has replayed.")] = UNSET
    archived_parts: Annotated[
        list[ArchivedPart] | UnsetType,
        Meta(description="Periods whose messages are in an archive, and no longer here."),
    ] = UNSET


class SessionWithSent(SessionWithContexts, frozen=True, kw_only=True):
    """A session, and the outcomes of the messages in the request."""

    sent: SentMessages


class SessionExport(Session, frozen=True):
    """A session with all its messages, oldest first, and its scores.

    In the inputs of steps, {"contextRef": ...} stands for a value in `contexts`, so that each is there once.
    """

    messages: list[Message]
    contexts: Annotated[dict[str, Json], Meta(description="Messages, tools and system prompts, by reference.")]
    scores: list[Score]


class SpanExport(Resource, frozen=True, rename="camel"):
    """The spans of a session as an OTLP request (ExportTraceServiceRequest in JSON)."""

    resource_spans: list[dict[str, Any]]


class FoundSession(Session, frozen=True):
    """A session; if it was searched for, with the places where its newest message with all terms has them."""

    hits: Annotated[list[SearchHit] | UnsetType, Meta(description="With `q`: one for each term, in its order.")] = UNSET


class FoundSessionPage(NumberedPage[FoundSession], frozen=True):
    """A page of sessions, with the cursors of the next and previous pages; null at either end."""

    searched_to: Annotated[
        Time | None | UnsetType, Meta(description="With `q`: see `/search/`, but the time of a session.")
    ] = UNSET
    indexed_until: Annotated[Time | None | UnsetType, Meta(description="With `q`: see `/search/`.")] = UNSET
