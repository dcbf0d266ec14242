"""The question that a run answers, as pages that show several runs name it, and the last run that answered it well."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from access_app.db import Database
from messages_app.models import HAS_ERRORS, Message
from messages_app.sql.batch import LIST_MS, limited
from messages_app.sql.beginnings import Beginning

MESSAGES_SEARCHED = 100_000
"""The newest messages of the project, among which the same question is looked for."""
QUESTIONS_COMPARED = 100
"""The newest messages with the same question, whose runs are looked at."""


def question_before(db: Database, session_id: UUID | OuterRef, run: UUID | OuterRef, characters: int) -> QuerySet[Any]:
    """Return the beginning of what the user said last before a run: one text, or none."""
    return _said_before(db, session_id, run).values_list(Beginning("content", characters), flat=True)[:1]


def last_good_run(db: Database, run: Message) -> UUID | None:
    """Return the newest run of the project that answered the same question and ended without an error; None if there is none.

    Questions are the same if their texts are equal. A run without calls is no good one for a run with calls. At most four queries.
    Raise InvalidInput if one takes longer than LIST_MS.
    """
    with limited(db, LIST_MS):
        _id, question = _said_before(db, run.session_id, run.pk).values_list("pk", "content").first() or (None, "")
        if not question:
            return None
        in_project = (
            db.rows(Message.with_deleted).filter(project_id=run.project_id).order_by("-pk").values_list("pk", flat=True)
        )
        oldest = in_project[MESSAGES_SEARCHED : MESSAGES_SEARCHED + 1].first() or UUID(int=0)
        # No index has texts of messages. Texts of another length are told apart without being read.
        asked = db.rows(Message.objects).filter(
            project_id=run.project_id, pk__gte=oldest, role=Message.Role.USER, content=question
        )
        same = dict(asked.order_by("-pk").values_list("pk", "session_id")[:QUESTIONS_COMPARED])
        if not same:
            return None
        good = (
            db.rows(Message.objects)
            .exclude(HAS_ERRORS)
            .filter(role=Message.Role.ASSISTANT, is_completed=True, session_id__in=same.values(), pk__gte=min(same))
        )
        answered = Subquery(_said_before(db, OuterRef("session_id"), OuterRef("pk")).values("pk")[:1])
        if run.call_count:
            good = good.filter(call_count__gt=0)
        runs = good.exclude(pk=run.pk).annotate(answered=answered).filter(answered__in=list(same))
        return runs.order_by("-pk").values_list("pk", flat=True).first()


def _said_before(db: Database, session_id: UUID | OuterRef, run: UUID | OuterRef) -> QuerySet[Message]:
    """Return what the user said in a session before a run, the newest first; also in a session that is deleted."""
    said = db.rows(Message.with_deleted).filter(session_id=session_id, role=Message.Role.USER, pk__lt=run)
    return said.filter(deleted_at__isnull=True).order_by("-pk")
