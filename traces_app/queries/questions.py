"""The question that a run answers, as pages that show several runs name it, and the last run that answered it well."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from access_app.db import Database
from messages_app.models import HAS_ERRORS, Message, Session
from messages_app.sql.batch import LIST_MS, limited
from messages_app.sql.beginnings import Beginning

MESSAGES_SEARCHED = 100_000
"""The newest messages of the project, among which the same question is looked for."""
MESSAGES_NEAR = 2_000
"""Those among which the page of each failed run looks for it."""


def question_before(db: Database, session_id: UUID | OuterRef, run: UUID | OuterRef, characters: int) -> QuerySet[Any]:
    """Return the beginning of what the user said last before a run: one text, or none."""
    return _said_before(db, session_id, run).values_list(Beginning("content", characters), flat=True)[:1]


def first_question(db: Database, session_id: UUID | OuterRef, characters: int) -> QuerySet[Any]:
    """Return the beginning of what the user said first in a session: one text, or none."""
    said = db.rows(Message.with_deleted).filter(session_id=session_id, role=Message.Role.USER, deleted_at__isnull=True)
    return said.order_by("pk").values_list(Beginning("content", characters), flat=True)[:1]


def first_questions(db: Database, session_ids: Collection[UUID], characters: int) -> dict[UUID, str]:
    """Return the same of several sessions, by their ids. One query."""
    asked = Subquery(first_question(db, OuterRef("pk"), characters))
    rows = db.rows(Session.with_deleted).filter(pk__in=session_ids).order_by().values_list("pk", asked)
    return {key: question or "" for key, question in rows}


def last_good_run(db: Database, run: Message) -> UUID | None:
    """Return the run that answered the same question last without an error, among MESSAGES_SEARCHED; None if there is none. One query.

    Raise InvalidInput if it takes longer than LIST_MS.
    """
    with limited(db, LIST_MS):
        return _good_runs(db, run, MESSAGES_SEARCHED).first()


def near_good_run(db: Database, run: Message) -> UUID | None:
    """Return the same of MESSAGES_NEAR. One query, of 12 ms at a project of 120,000 messages: the page of each failed run asks."""
    return _good_runs(db, run, MESSAGES_NEAR).first()


def _good_runs(db: Database, run: Message, searched: int) -> QuerySet[Any, UUID]:
    """Return the good runs of the question of a run among the newest messages of its project, one a question, the newest first.

    Questions are the same if their texts are equal. A run without calls is no good one for a run with calls.
    """
    of_project = db.rows(Message.with_deleted).filter(project_id=run.project_id).order_by("-pk").values("pk")
    good = (
        db.rows(Message.objects)
        .exclude(HAS_ERRORS)
        .exclude(pk=run.pk)
        .filter(
            role=Message.Role.ASSISTANT, is_completed=True, session_id=OuterRef("session_id"), pk__gt=OuterRef("pk")
        )
    )
    if run.call_count:
        good = good.filter(call_count__gt=0)
    answered = Subquery(_said_before(db, OuterRef("session_id"), OuterRef("pk")).values("pk")[:1])
    good = good.annotate(answered=answered).filter(answered=OuterRef("pk")).order_by("-pk")
    # No index has texts of messages. Texts of another length are told apart without being read.
    asked = db.rows(Message.objects).filter(
        project_id=run.project_id,
        pk__gte=Coalesce(Subquery(of_project[searched : searched + 1]), UUID(int=0)),
        role=Message.Role.USER,
        content=Subquery(_said_before(db, run.session_id, run.pk).values("content")[:1]),
    )
    answers = asked.exclude(content="").annotate(good=Subquery(good.values("pk")[:1])).filter(good__isnull=False)
    return answers.order_by("-pk").values_list("good", flat=True)


def _said_before(db: Database, session_id: UUID | OuterRef, run: UUID | OuterRef) -> QuerySet[Message]:
    """Return what the user said in a session before a run, the newest first; also in a session that is deleted."""
    said = db.rows(Message.with_deleted).filter(session_id=session_id, role=Message.Role.USER, pk__lt=run)
    return said.filter(deleted_at__isnull=True).order_by("-pk")
