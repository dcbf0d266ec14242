"""The pages of a session and of a message: messages in reading order, a page at a time, long texts folded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, F, QuerySet, Window
from django.db.models.functions import RowNumber
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.readable import ReadableRows
from messages_app.admin.row_pages import read_rows
from messages_app.interruptions import shown_error
from messages_app.models import Message, Reference, Session
from messages_app.safe_text import Excerpt, excerpt, first_characters, json_excerpt, pretty_json, size_of, size_of_json
from messages_app.sql.pagination import Cursor, PageRequest, QuerySetKeys
from messages_app.sql.periods import Period
from tracesite_sdk.records import ids

from .display_text import without_tool_json
from .telling_texts import plain, telling_line
from .workflow_plan import PlannedAgent, layers_of

PAGE_SIZE = 50
# A page of long messages stays below 2 MB; the page of a message shows more.
PAGE_CHARACTERS = 16_384
FULL_CHARACTERS = 65_536
REFERENCES = 100
REFERENCES_LISTED = 5
"""Beside an answer in the conversation; its own page has more."""
SESSION_DETAILS = ("workflow", "metadata", "redactions")
MESSAGE_DETAILS = ("usage", "metadata", "redactions")
PLAN_BYTES = 262_144
"""A larger workflow is shown as its JSON only."""


@dataclass(frozen=True, kw_only=True)
class Bubble:
    """One message of the conversation."""

    message: Any
    """A Message; Any because of its annotations."""
    content: Excerpt
    as_received: Excerpt
    """The stored content, if it is shown without the JSON of a tool; see display_text.py."""
    content_parts: Excerpt
    error: Excerpt
    references: Sequence[Any] = ()
    """The first references of an answer in a conversation, each with the `total` of its message."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A page of a session's messages, oldest first."""

    bubbles: Sequence[Bubble]
    earlier: str | None
    """The cursor of the page before this one; None on the first page."""
    later: str | None


@dataclass(frozen=True, kw_only=True)
class SessionPage:
    """The page of a session, without its messages."""

    session: Any
    """A Session; Any because of its annotations."""
    description: Excerpt
    details: Sequence[tuple[str, Excerpt]]
    """The JSON columns that are not empty: name of the column, text."""
    plan: Sequence[Sequence[PlannedAgent]]
    """The agents of its workflow, in layers."""
    duration_ms: int | None
    """From the start of its first message to the end of its last one; None if it is 0."""


def read_session(db: Database, session_id: UUID) -> SessionPage | None:
    """Return the page of a session, deleted or not; None if it does not exist. Three queries; five with a workflow."""
    sessions: QuerySet[Any] = (
        db.rows(Session.with_deleted)
        .select_related("project")
        .defer("description", *SESSION_DETAILS)
        .annotate(
            shown_description=first_characters("description", PAGE_CHARACTERS),
            description_bytes=size_of("description"),
            **_json_columns(SESSION_DETAILS),
        )
    )
    session = sessions.filter(pk=session_id).first()
    if session is None:
        return None
    return SessionPage(
        session=session,
        description=excerpt(session.shown_description, session.description_bytes),
        details=_filled(session, SESSION_DETAILS),
        plan=_plan(db, session) if 2 < (session.workflow_bytes or 0) <= PLAN_BYTES else (),
        duration_ms=_duration(db, session_id),
    )


def _duration(db: Database, session_id: UUID) -> int | None:
    alive = db.rows(Message.with_deleted).filter(session_id=session_id, deleted_at__isnull=True)
    columns = alive.values_list("created_at", "completed_at", "duration_ms")
    first, last = columns.order_by("pk").first(), columns.order_by("-pk").first()
    if first is None or last is None:
        return None
    begun, completed_at, duration_ms = last
    end = completed_at or begun + timedelta(milliseconds=duration_ms or 0)
    return round(max((end - first[0]).total_seconds(), 0) * 1000) or None


def _plan(db: Database, session: Session) -> list[list[PlannedAgent]]:
    """Return the plan of a session, with the states of the agents in its last run."""
    _id, workflow = db.rows(Session.with_deleted).values_list("pk", "workflow").get(pk=session.pk)
    runs = db.rows(Message.with_deleted).filter(session=session, role=Message.Role.ASSISTANT, deleted_at__isnull=True)
    _run, states = runs.order_by("-pk").values_list("pk", "metadata__agents").first() or (None, None)
    return layers_of(workflow, states if isinstance(states, dict) else {})


def read_conversation(
    db: Database, session: Session, *, cursor: Cursor | None = None, newest: bool = False
) -> Conversation:
    """Return the messages of `session` at `cursor`, otherwise the first or the `newest` ones, without deleted messages.

    Two queries.
    """
    alive = _alive(db, session)
    # Pages go forwards from the first message; from the newest they go back.
    request = PageRequest(limit=PAGE_SIZE, order="asc", towards_newer=not newest, cursor=cursor)
    rows = with_bounded_texts(alive, PAGE_CHARACTERS)
    page = read_rows(ReadableRows(parts={db: QuerySetKeys(rows)}), request, lambda _db, keys: rows.in_bulk(keys))
    earlier, later = (page.next, page.previous) if newest else (page.previous, page.next)
    references = _references_of(db, [message.pk for message in page.rows])
    bubbles = [bubble(message, references.get(message.pk, ())) for message in page.rows]
    return Conversation(bubbles=bubbles, earlier=earlier, later=later)


def count_messages_in_trash(db: Database, session: Session) -> int:
    """Return the number of messages of a session that were deleted individually. One query."""
    return (
        db.rows(Message.with_deleted)
        .filter(project=session.project_id, session=session, deleted_at__isnull=False)
        .count()
    )


def message_numbered(db: Database, session: Session, number: int) -> UUID | None:
    """Return the id of the message with a number, counted from 1, without deleted messages; None if there is none."""
    return (
        _alive(db, session).order_by("pk").values_list("pk", flat=True)[number - 1 : number].first()
        if number > 0
        else None
    )


def place_in_conversation(session: Session, message: UUID) -> str:
    """Return what follows the address of a session's page to show `message`; a longer conversation begins with it."""
    before = Cursor(position=UUID(int=message.int - 1), newer=True)
    return f"{f'?cursor={before}' if session.message_count > PAGE_SIZE else ''}#message-{message}"


def _alive(db: Database, session: Session) -> QuerySet[Message]:
    # Not `objects`, because the page of a deleted session shows its messages, too.
    return db.rows(Message.with_deleted).filter(session=session, deleted_at__isnull=True)


def _references_of(db: Database, messages: Sequence[UUID]) -> dict[UUID, list[Any]]:
    if not messages:
        return {}
    of_message = F("message_id")
    references = (
        db.rows(Reference.objects)
        .filter(message_id__in=messages, **ids_below(messages))
        .annotate(
            place=Window(RowNumber(), partition_by=of_message, order_by=["position", "pk"]),
            total=Window(Count("*"), partition_by=of_message),
        )
        .filter(place__lte=REFERENCES_LISTED)
        .only("message_id", "reference_id", "knowledge_title", "knowledge_filename", "score")
        .order_by("message_id", "position", "pk")
    )
    found: dict[UUID, list[Any]] = {}
    for reference in references:
        found.setdefault(reference.message_id, []).append(reference)
    return found


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A retrieved passage behind an answer."""

    reference: Any
    """A Reference; Any because of its annotations."""
    content: Excerpt
    image_info: Excerpt
    metadata: Excerpt


@dataclass(frozen=True, kw_only=True)
class MessagePage:
    """The page of a message, with its question and the runs beside it."""

    bubble: Bubble
    details: Sequence[tuple[str, Excerpt]]
    """The JSON columns that are not empty: name of the column, text."""
    passages: Sequence[Passage]
    has_more_passages: bool
    question: Bubble | None
    """The user's message before an answer."""
    previous: UUID | None
    """The answer before the message in its session, and the one after it."""
    next: UUID | None


def read_message(db: Database, message_id: UUID) -> MessagePage | None:
    """Return the page of a message, deleted or not; None if it does not exist. Five queries."""
    messages = with_bounded_texts(db.rows(Message.with_deleted).select_related("session", "project"), FULL_CHARACTERS)
    messages = messages.defer(
        *MESSAGE_DETAILS,
        "content",
        "content_parts",
        "error",
        "session__description",
        "session__workflow",
        "session__metadata",
    ).annotate(**_json_columns(MESSAGE_DETAILS))
    message: Any = messages.filter(pk=message_id).first()
    if message is None:
        return None
    passages = _passages(db, message)
    alive = _alive(db, message.session)
    runs = alive.filter(role=Message.Role.ASSISTANT).values_list("pk", flat=True)
    question = None
    if message.role == Message.Role.ASSISTANT:
        earlier = with_bounded_texts(alive.filter(role=Message.Role.USER, pk__lt=message.pk), PAGE_CHARACTERS)
        question = earlier.order_by("-pk").first()
    return MessagePage(
        bubble=bubble(message),
        details=_filled(message, MESSAGE_DETAILS),
        passages=passages[:REFERENCES],
        has_more_passages=len(passages) > REFERENCES,
        question=bubble(question) if question else None,
        previous=runs.filter(pk__lt=message.pk).order_by("-pk").first(),
        next=runs.filter(pk__gt=message.pk).order_by("pk").first(),
    )


def with_bounded_texts(messages: QuerySet[Message], characters: int) -> QuerySet[Message]:
    """Annotate `messages` with the beginnings of their long columns as `shown_...`, and defer these columns."""
    return messages.defer("content", "content_parts", "error", "usage", "metadata", "redactions").annotate(
        shown_content=first_characters("content", characters),
        content_bytes=size_of("content"),
        shown_parts=pretty_json("content_parts", characters),
        parts_bytes=size_of_json("content_parts"),
        shown_error=first_characters("error", characters),
        error_bytes=size_of("error"),
    )


def bubble(message: Any, references: Sequence[Any] = ()) -> Bubble:
    """Return a message of `with_bounded_texts` for display."""
    stored, content = excerpt(message.shown_content, message.content_bytes), message.shown_content
    if message.role == Message.Role.ASSISTANT:
        content = without_tool_json(content)
    is_cleaned = content is not message.shown_content
    error = shown_error(message.shown_error)
    return Bubble(
        message=message,
        content=excerpt(content) if is_cleaned else stored,
        as_received=stored if is_cleaned else excerpt(""),
        content_parts=excerpt(message.shown_parts, message.parts_bytes),
        # A translated error is complete, whatever the size of the stored text.
        error=excerpt(error, message.error_bytes) if error is message.shown_error else excerpt(error),
        references=references,
    )


def read_bubble(db: Database, message_id: UUID) -> Bubble | None:
    """Return one message for display; None if it does not exist or is in the trash. One query."""
    alive = db.rows(Message.with_deleted).filter(pk=message_id, deleted_at__isnull=True)
    message = with_bounded_texts(alive, PAGE_CHARACTERS).first()
    return None if message is None else bubble(message)


def words_of_message(said: Bubble) -> str:
    """Return the first words of a message, otherwise the line of its error that tells most; of one that goes on that it does."""
    words = plain(said.content.head) or telling_line(said.error.head)
    return words or ("" if said.message.is_completed else _("Not finished yet."))


def _json_columns(names: Sequence[str]) -> dict[str, Any]:
    return {f"shown_{name}": pretty_json(name, PAGE_CHARACTERS) for name in names} | {
        f"{name}_bytes": size_of_json(name) for name in names
    }


def _filled(row: Any, names: Sequence[str]) -> list[tuple[str, Excerpt]]:
    texts = ((name, json_excerpt(getattr(row, f"shown_{name}"), getattr(row, f"{name}_bytes"))) for name in names)
    return [(name, text) for name, text in texts if text]


def ids_below(messages: Collection[UUID]) -> dict[str, UUID]:
    """Return filter arguments for rows below `messages`: their periods, so that others are not read."""
    first, last = (Period.of(ids.created_at_of(end)) for end in (min(messages), max(messages)))
    return {"pk__gte": first.first_id, "pk__lt": last.after_id}


def _passages(db: Database, message: Message) -> list[Passage]:
    references: QuerySet[Any] = (
        db.rows(Reference.objects)
        .filter(message=message, **ids_below([message.pk]))
        .order_by("position")
        .defer("content", "image_info", "metadata")
        .annotate(
            shown_content=first_characters("content", PAGE_CHARACTERS),
            content_bytes=size_of("content"),
            shown_image=first_characters("image_info", 2_000),
            image_bytes=size_of("image_info"),
            shown_metadata=pretty_json("metadata", 2_000),
            metadata_bytes=size_of_json("metadata"),
        )
    )
    return [
        Passage(
            reference=reference,
            content=excerpt(reference.shown_content, reference.content_bytes),
            image_info=excerpt(reference.shown_image, reference.image_bytes),
            metadata=json_excerpt(reference.shown_metadata, reference.metadata_bytes),
        )
        for reference in references[: REFERENCES + 1]
    ]
