"""The question that a run answers, as pages that show several runs name it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet
from django.db.models.functions import Left

from messages_app.models import Message


def question_before(session_id: UUID, run: UUID | OuterRef, characters: int) -> QuerySet[Any]:
    """Return the beginning of what the user said last before a run: one text, or none."""
    said = Message.objects.filter(session_id=session_id, role=Message.Role.USER, pk__lt=run)
    return said.order_by("-pk").values_list(Left("content", characters), flat=True)[:1]
