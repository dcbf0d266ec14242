"""Read scores, and find what a new one is about."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.errors import Conflict, InvalidInput, NotFound
from access_app.visibility import ProjectScope
from messages_app.models import Message
from messages_app.queries import as_uuid, find_session
from messages_app.sql.json_rows import Column, Source
from traces_app.ingest.scores import ScoreTarget, place_of_call, place_of_message
from traces_app.models import Score, ToolCall
from tracesite_sdk import records

from .schemas import scores as schemas

Rows = TypeVar("Rows", bound=QuerySet[Any, Any])
SCORE_FIELDS = frozenset(schemas.Score.__struct_fields__)


def scores(db: Database, ids: Collection[str], fields: frozenset[str] = SCORE_FIELDS) -> list[schemas.Score]:
    """Return the scores of `ids`, in this order, with the requested fields. At most one query."""
    rows = SCORES.read(db, ids, fields)
    values = [_value(row[1], row[2], row[3]) for row in rows] if "value" in fields else []
    made = SCORES.make(rows, fields, value=values) if "value" in fields else SCORES.make(rows, fields)
    by_id = dict(zip((row[0] for row in rows), made, strict=True))
    return [by_id[score_id] for score_id in ids if score_id in by_id]


class FoundScore(NamedTuple):
    pk: UUID
    project_id: int


def find_score(db: Database, scope: ProjectScope, name: str) -> FoundScore:
    """Return a score that is not deleted. Raise NotFound."""
    score_id = as_uuid(name)
    key = (
        score_id
        and db.rows(Score.objects).visible_to(scope).filter(pk=score_id).values_list("pk", "project_id").first()
    )
    if not key:
        raise NotFound(_("There is no score with this id."), code="score_not_found")
    return FoundScore(*key)


def find_place(db: Database, project_id: int, score: records.Score, path: str = "") -> ScoreTarget:
    """Return what a score is about. Raise InvalidInput if it names nothing, NotFound and Conflict for its names.

    A trace need not exist.
    """
    scope = ProjectScope(frozenset({project_id}))
    if score.span_id and not score.trace_id:
        raise InvalidInput(_("A span is found by its trace: give trace_id, too."), field=f"{path}trace_id")
    if score.call_id:
        return place_of_call(db, _call(db, scope, score, path))
    if score.message_id:
        return place_of_message(_message(db, scope, score, path))
    if score.trace_id:
        return ScoreTarget(trace_id=score.trace_id.lower(), span_id=(score.span_id or "").lower())
    if score.session_id:
        session = find_session(db, scope, score.session_id, field=f"{path}session_id")
        return ScoreTarget(session_id=session.pk)
    raise InvalidInput(
        _("Name what the score is about: session_id, message_id, call_id or trace_id."), field=f"{path}session_id"
    )


def _message(db: Database, scope: ProjectScope, score: records.Score, path: str) -> Message:
    name = score.message_id or ""
    rows = _narrowed(db, db.rows(Message.objects).visible_to(scope), score, scope, "session_id", path)
    message_id = as_uuid(name)
    messages = list(rows.filter(pk=message_id)) if message_id is not None else []
    if not messages and "\x00" not in name:
        messages = list(rows.filter(external_id=name).order_by("pk")[:2])
    if len(messages) > 1:
        raise Conflict(
            _("Several messages have this external id. Give session_id, too, or use the id of the message."),
            field=f"{path}message_id",
            code="ambiguous_message",
        )
    if not messages:
        raise NotFound(_("There is no message with this id."), field=f"{path}message_id", code="message_not_found")
    return messages[0]


def _call(db: Database, scope: ProjectScope, score: records.Score, path: str) -> ToolCall:
    name = score.call_id or ""
    rows = db.rows(ToolCall.objects).visible_to(scope).select_related("message")
    if score.message_id:
        rows = rows.filter(message_id=_message(db, scope, score, path).pk)
    else:
        rows = _narrowed(db, rows, score, scope, "message__session_id", path)
    call_id = as_uuid(name)
    calls = list(rows.filter(pk=call_id)) if call_id is not None else []
    if not calls and "\x00" not in name:
        calls = list(rows.filter(call_id=name).order_by("pk")[:2])
    if len(calls) > 1:
        raise Conflict(
            _("Several calls have this id. Give message_id, too, or use the uuid of the call."),
            field=f"{path}call_id",
            code="ambiguous_call",
        )
    if not calls:
        raise NotFound(_("There is no call with this id."), field=f"{path}call_id", code="call_not_found")
    return calls[0]


def _narrowed(db: Database, rows: Rows, score: records.Score, scope: ProjectScope, column: str, path: str) -> Rows:
    if not score.session_id:
        return rows
    session = find_session(db, scope, score.session_id, field=f"{path}session_id")
    return rows.filter(**{column: session.pk})


def _value(kind: str, number: float | None, label: str) -> bool | float | str | None:
    if kind == Score.Kind.CATEGORICAL:
        return label or None
    return bool(number) if kind == Score.Kind.BOOLEAN and number is not None else number


SCORES = Source(
    resource=schemas.Score,
    model=Score,
    table="traces_app_score",
    key="id",
    partitioned=False,
    beside=("kind", "number", "label"),
    columns={
        "project": Column(
            sql="(SELECT slug FROM access_app_project WHERE access_app_project.id = project_id)",
            of="access_app_project.slug",
        ),
        "trace_id": Column(sql="replace(trace_id::text, '-', '')", of="traces_app_score.trace_id"),
    },
    made=("value",),
)
