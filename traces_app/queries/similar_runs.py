"""Runs like a given one: the newest runs of its project, compared with it exactly.

The vectors are made when they are asked for, so nothing is stored that would have to be kept up with changes and deletions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Left
from msgspec import Struct

from messages_app import ids
from messages_app.models import Message
from messages_app.sql.compiled import CompiledRows
from messages_app.sql.pagination import IdRange
from messages_app.sql.snapshot import one_snapshot
from messages_app.timestamps import instant_text
from traces_app.models import Tool, ToolCall

from . import schemas
from .error_patterns import pattern_of
from .run_vectors import LEAST_LIKENESS, MOST_CHARACTERS, Features, likeness, vectors

MOST_COMPARED = 5_000
"""Runs that are compared, the newest ones of the range."""
TOOLS_READ = 100
ERRORS_READ = 5
"""Calls and errors of a run that count."""
_AT_A_TIME = 500
_SHOWN_CHARACTERS = 300


class _Run(Struct, frozen=True):
    id: UUID
    session_id: UUID
    call_count: int
    failure_count: int
    features: Features


class _Found(Struct, frozen=True):
    rank: tuple[float, float, UUID]
    score: float
    parts: dict[str, float]
    run: _Run


def similar_runs(
    message_id: UUID, rows: CompiledRows, limit: int, by: schemas.SimilarBy = "everything"
) -> schemas.SimilarRuns | None:
    """Return the runs among `rows` that are most like the run, the most similar ones first; None if there is no such run.

    The run itself is left out, and runs that have nothing in common with it; `by` errors those whose errors are less alike than
    LEAST_LIKENESS. Raise InvalidInput if finding the runs takes longer than LIST_MS.
    """
    with one_snapshot(read_only=True):
        given = list(_runs([message_id]))
        if not given:
            return None
        keys = rows.keys(newest_first=True, limit=MOST_COMPARED + 1)
        compared = [key for key in keys[:MOST_COMPARED] if key != message_id]
        found = nlargest(limit, _compared(given[0].features, compared, by), key=lambda one: one.rank)
        tools = Tool.objects.in_bulk({tool for one in found for tool in one.run.features.tools})
    names = {key: tool.name for key, tool in tools.items()}
    return schemas.SimilarRuns(
        results=[_schema(one, names) for one in found],
        compared_count=len(compared),
        searched_to=instant_text(ids.created_at_of(keys[MOST_COMPARED - 1])) if len(keys) > MOST_COMPARED else None,
    )


def _compared(one: Features, keys: Sequence[UUID], by: schemas.SimilarBy) -> Iterator[_Found]:
    vector = vectors([one])
    for first in range(0, len(keys), _AT_A_TIME):
        runs = list(_runs(keys[first : first + _AT_A_TIME]))
        if not runs:
            continue
        found = likeness(vector, vectors([run.features for run in runs]))
        for place, run in enumerate(runs):
            score = float(found.score[place])
            parts = {name: float(values[place]) for name, values in found.parts.items()}
            if score > 0 if by == "everything" else parts["errors"] >= LEAST_LIKENESS:
                rank = (0.0 if by == "everything" else parts["errors"], score, run.id)
                yield _Found(rank, score, parts, run)


def _runs(keys: Sequence[UUID]) -> Iterator[_Run]:
    """Yield the runs of some ids. One query."""
    months = IdRange(lower=min(keys), upper=UUID(int=max(keys).int + 1)).months_of
    questions = Message.with_deleted.filter(
        session_id=OuterRef("session_id"), pk__lt=OuterRef("pk"), role=Message.Role.USER, deleted_at__isnull=True
    )
    calls = ToolCall.with_deleted.filter(message_id=OuterRef("pk"), **months("pk"))
    in_order = calls.filter(**months("step__pk")).order_by("step__iteration", "step__ordinal", "position", "pk")
    rows: QuerySet[Any, Any] = (
        Message.with_deleted.order_by()
        .filter(pk__any=list(keys), role=Message.Role.ASSISTANT, **months("pk"))
        .annotate(
            question=Subquery(
                questions.order_by("-pk").annotate(text=Left("content", MOST_CHARACTERS)).values("text")[:1]
            ),
            tools=ArraySubquery(in_order.values("tool_id")[:TOOLS_READ]),
            errors=ArraySubquery(
                calls.filter(status=ToolCall.Status.ERROR)
                .order_by("pk")
                .annotate(pattern=pattern_of("result__error"))
                .values("pattern")[:ERRORS_READ]
            ),
            own_error=pattern_of("error"),
        )
    )
    columns = ("pk", "session_id", "call_count", "failure_count", "question", "tools", "errors", "own_error")
    for key, session_id, call_count, failure_count, question, tools, errors, own_error in rows.values_list(*columns):
        features = Features(question=question or "", tools=tools, errors=[*errors, own_error])
        yield _Run(key, session_id, call_count, failure_count, features)


def _schema(found: _Found, names: dict[int, str]) -> schemas.SimilarRun:
    run, parts = found.run, found.parts
    return schemas.SimilarRun(
        id=str(run.id),
        session_id=str(run.session_id),
        created_at=instant_text(ids.created_at_of(run.id)),
        score=found.score,
        question_score=parts["question"],
        tools_score=parts["tools"],
        errors_score=parts["errors"],
        question=run.features.question[:_SHOWN_CHARACTERS],
        tools=[names[tool] for tool in dict.fromkeys(run.features.tools)],
        call_count=run.call_count,
        failure_count=run.failure_count,
    )
