"""The outline of a session for its path (tracesite/run.js): a page of its messages as rows, with the run of each answer before it.

A message of a person begins a chapter, and so does an answer that follows none; what belongs to a chapter is one level deeper. A
message of the system begins none, because nobody asked it: coding agents insert many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from uuid import UUID

import msgspec
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import Message, Session
from messages_app.queries import as_uuid, session_of_page
from messages_app.safe_text import duration, so_far
from messages_app.sql.pagination import Cursor
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.questions import near_good_run
from traces_app.queries.runs.addresses import url_in_run
from traces_app.queries.runs.deciding import EndedCall, deciding_failures
from traces_app.queries.runs.outcome import Outcome, outcome_of_run
from traces_app.queries.runs.outline import Chapter, Outline, RowWords, RunRows, outline_of, read_runs, read_words

from .conversation import Conversation, read_conversation, words_of_message
from .run_outline import read_detail
from .run_page import FIRST_ROWS

PENDING, SUCCESS, FAILED = 0, 1, 2
CALL, ANSWER, CHAPTER, NOTE = 1, 2, 3, 4
"""As `Outline` numbers them."""
MOST_INDENTS = 12


@dataclass(frozen=True, kw_only=True)
class PathRow:
    """A row of the path for readers without scripts."""

    url: str
    """Leads to a message of the conversation, or to a step or call in its run."""
    kind: int
    """As `Outline` numbers it."""
    number: str
    """Of a step, or of a call that stands for one."""
    who: str
    """The agent of a step where it changes, or what a message is that nobody asked."""
    tool: str
    """Of a call."""
    status: str
    """Of a call in words, unless it succeeded."""
    is_error: bool
    words: RowWords
    duration_ms: int | None
    chapter: Chapter | None
    """How the run of a question ended."""
    indents: range


def send_outline(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Send the whole outline of the page of a session that `?cursor=` or `?newest` names as JSON; 400 for an invalid cursor."""
    db, session = database(request), _session(model_admin, request, session_id)
    conversation = read_conversation(db, session, cursor=cursor_of(request), newest="newest" in request.GET)
    outline = read_session_outline(db, session, conversation, is_whole=True)
    return HttpResponse(msgspec.json.encode(outline), content_type="application/json")


def send_detail(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID, node_id: UUID) -> HttpResponse:
    """Send a step or call of a session with its payloads as JSON."""
    db, session = database(request), _session(model_admin, request, session_id)
    node = {"pk": node_id, "message__session_id": session.pk}
    calls = db.rows(ToolCall.with_deleted).filter(**node).values_list("message_id", flat=True)
    steps = db.rows(AgentStep.with_deleted).filter(**node).values_list("message_id", flat=True)
    message = calls.first() or steps.first()
    detail = read_detail(db, message, node_id) if message is not None else None
    if message is None or detail is None:
        raise Http404
    if detail.good and near_good_run(db, db.rows(Message.with_deleted).get(pk=message)) is None:
        detail = replace(detail, good="")
    return HttpResponse(msgspec.json.encode(detail), content_type="application/json")


def send_words(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Send the words of the rows of a session that `?id=` names, at most FIRST_ROWS, as JSON by their ids."""
    db, session = database(request), _session(model_admin, request, session_id)
    ids = [key for key in map(as_uuid, request.GET.getlist("id")[:FIRST_ROWS]) if key is not None]
    words = read_words(db, ids, message__session_id=session.pk)
    return HttpResponse(msgspec.json.encode(words), content_type="application/json")


def cursor_of(request: HttpRequest) -> Cursor | None:
    """Return the cursor of a page of a session. Raise BadRequest."""
    try:
        return Cursor.parse(request.GET["cursor"]) if "cursor" in request.GET else None
    except InvalidInput as error:
        raise BadRequest(str(error)) from error


def _session(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID) -> Session:
    session = session_of_page(database(request), model_admin.scope(request), session_id, deleted_too=True)
    if session is None:
        raise Http404
    return session


def read_session_outline(
    db: Database, session: Session, conversation: Conversation, *, is_whole: bool = False
) -> Outline:
    """Return the outline of a page of a session. Without `is_whole` the runs are left out of a long one. At most seven queries."""
    messages = [bubble.message for bubble in conversation.bubbles]
    runs: Mapping[UUID, RunRows] = {}
    is_whole = is_whole or rows_of(messages) <= FIRST_ROWS
    if is_whole:
        runs = read_runs(db, [message.pk for message in messages if message.step_count or message.call_count])
    failed = failed_runs(db, runs)
    rows = RunRows()
    words: dict[str, RowWords] = {}
    chapters: dict[UUID, Chapter] = {}
    chapter = -1
    end = 0
    asked = False
    for bubble in conversation.bubbles:
        message = bubble.message
        is_answer = message.role == Message.Role.ASSISTANT
        said = words_of_message(bubble)
        is_error = is_answer and asked and bool(bubble.error) and not bubble.content
        if not said and is_answer:
            said = _("(empty)") if asked else _("(no question)")
        words[str(message.pk)] = RowWords(error=said) if is_error else RowWords(text=said)
        if bubble.note:
            _extend(rows, _row_of(message, NOTE, depth=int(chapter >= 0), name=bubble.note, digest=hash(bubble.note)))
            continue
        if not (is_answer and asked):
            chapter = len(rows.ids)
            _extend(rows, _row_of(message, CHAPTER, start=end))
        if message.pk in runs:
            run = _moved(runs[message.pk], end)
            _extend(rows, run)
            end = max(end, _end(run))
        if is_answer:
            if message.completed_at is not None and message.duration_ms:
                # The answer may end after the last row that has a time.
                end = max(end, (rows.starts[chapter] or 0) + message.duration_ms)
            if asked:
                _extend(rows, _row_of(message, ANSWER, depth=1))
            took = message.duration_ms if message.goes_on else message.took_ms
            rows.durations[chapter], rows.costs[chapter] = took, message.cost
            outcome = outcome_of_run(message, session, has_failed=bool(bubble.error) or message.pk in failed)
            chapters[rows.ids[chapter]] = Chapter(
                outcome=outcome.value,
                label=str(outcome.label),
                run=message.pk,
                so_far=so_far(duration(message.took_ms)) if message.goes_on else "",
                begun=int(message.created_at.timestamp() * 1000) if message.goes_on else 0,
            )
            if outcome == Outcome.FAILED and not message.failure_count:
                # A failure of its own, which the path leads to as to a failed call.
                rows.statuses[-1 if asked else chapter] = FAILED
        asked = not is_answer
    first = [key for key, kind in zip(rows.ids, rows.calls, strict=True) if kind <= CALL][:FIRST_ROWS]
    words |= read_words(db, first, message_id__in=list(runs))
    is_cut = any(run.is_cut for run in runs.values())
    outline = outline_of(replace(rows, is_cut=is_cut), words, is_whole=is_whole)
    # What decided how long the runs of a session took would be the longest of them.
    of_rows = {row: chapters[key] for row, key in enumerate(outline.ids) if key in chapters}
    return replace(outline, chapters=of_rows, critical=[0] * len(outline.ids), bottleneck=None, origin=None)


def rows_of(messages: Sequence[Message]) -> int:
    """Return how many rows the path of messages has."""
    return sum(1 + message.step_count + message.call_count for message in messages)


def path_rows(outline: Outline) -> list[PathRow]:
    """Return the rows of the outline of a session, for readers without scripts."""
    rows = []
    chapter = None
    for row, (key, kind) in enumerate(zip(outline.ids, outline.calls, strict=True)):
        chapter = outline.chapters.get(row) if kind == CHAPTER else chapter
        words = outline.words.get(str(key), RowWords())
        in_run = "" if chapter is None or kind > CALL else f"{url_in_run(chapter.run, key)}#selected"
        name, status = outline.names[outline.named[row]], outline.statuses[row]
        agent = outline.steps[row].agent if row in outline.steps else None
        who = "" if kind == CALL else name
        rows.append(
            PathRow(
                url=in_run or f"#message-{key}",
                kind=kind,
                number=outline.numbers[row],
                who=(_("Error") if words.error else _("Answer"))
                if kind == ANSWER
                else who
                if agent is None
                else outline.names[agent],
                tool=name if kind == CALL else "",
                status=str(list(ToolCall.Status)[status].label) if kind == CALL and status != SUCCESS else "",
                is_error=status == FAILED or (kind == ANSWER and words.error != ""),
                words=words,
                duration_ms=outline.took(row),
                chapter=outline.chapters.get(row),
                indents=range(min(outline.depths[row], MOST_INDENTS)),
            )
        )
    return rows


def _row_of(
    message: Message, kind: int, *, depth: int = 0, start: int | None = None, name: str = "", digest: int | None = None
) -> RunRows:
    return RunRows(
        ids=[message.pk],
        calls=[kind],
        depths=[depth],
        statuses=[SUCCESS],
        names=[name],
        numbers=[""],
        starts=[start],
        durations=[None],
        costs=[None],
        has_words=[True],
        digests=[digest],
    )


def _moved(run: RunRows, start: int) -> RunRows:
    """Return the rows of a run below a question, from `start` on, because the time between two runs tells nothing."""
    origin = min((one for one in run.starts if one is not None), default=0)
    starts = [None if one is None else start + one - origin for one in run.starts]
    return replace(run, depths=[depth + 1 for depth in run.depths], starts=starts)


def _end(run: RunRows) -> int:
    known = zip(run.starts, run.durations, strict=True)
    return max((start + (took or 0) for start, took in known if start is not None), default=0)


def _extend(rows: RunRows, more: RunRows) -> None:
    for column in fields(RunRows):
        if column.name != "is_cut":
            getattr(rows, column.name).extend(getattr(more, column.name))


def failed_runs(db: Database, runs: Mapping[UUID, RunRows]) -> Mapping[UUID, int]:
    """Return the runs with a failed call that no later one made good, each with the row of that call. One query."""
    calls = {
        key: [
            EndedCall(place, call, run.names[place], run.statuses[place] == FAILED, run.statuses[place] == PENDING)
            for place, call in enumerate(run.ids)
            if run.calls[place] == CALL
        ]
        for key, run in runs.items()
        if FAILED in run.statuses
    }
    return deciding_failures(db, calls)
