"""Runs like a given one, among the newest runs of its project.

The stored vectors of all of them say which CANDIDATES are most like it. These, and runs whose vectors are not stored yet, are
read and compared exactly, so the answer follows from what the runs say now. Only an embedded question is not made again: if
the stored one is that of another question it does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import nlargest
from typing import Any
from uuid import UUID

import numpy as np
from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from msgspec import Struct
from numpy.typing import NDArray

from access_app.db import Database
from access_app.encryption.keys import refuse_encrypted
from messages_app.change_log import Reader, unread
from messages_app.models import Message
from messages_app.sql.batch import LIST_MS, Query, copied
from messages_app.sql.beginnings import Beginning
from messages_app.sql.pagination import IdRange, ListRows
from messages_app.sql.snapshot import one_snapshot
from messages_app.timestamps import instant_text
from traces_app.models import EmbedderInUse, RunVector, Tool, ToolCall
from tracesite_sdk.records import ids

from .embedders import configured
from .error_patterns import pattern_of, with_patterns
from .run_vectors import (
    HASHED,
    LEAST_LIKENESS,
    MOST_CHARACTERS,
    Features,
    Vectors,
    digest_of,
    folded,
    likeness,
    nearly,
    stored_type,
    unpacked,
    vectors,
)
from .schemas.similar_runs import SimilarBy, SimilarRun, SimilarRuns

MOST_COMPARED = 50_000
"""Runs that are compared by their stored vectors, the newest ones of the range."""
MOST_READ = 5_000
"""Runs that are compared if no vectors are stored."""
MOST_WAITING = 1_000
"""Messages whose vectors are not stored yet that are compared nevertheless, the newest ones."""
CANDIDATES = 200
"""Runs beyond the wanted ones that are compared exactly."""
TOOLS_READ = 100
ERRORS_READ = 5
"""Calls and errors of a run that count."""
_AT_A_TIME = 500
_SHOWN_CHARACTERS = 300


class Run(Struct, frozen=True):
    """A run and what it is compared by."""

    id: UUID
    project_id: int
    session_id: UUID
    call_count: int
    failure_count: int
    features: Features


class _Found(Struct, frozen=True):
    rank: tuple[float, float, UUID]
    score: float
    parts: dict[str, float]
    run: Run


def similar_runs(
    db: Database,
    message_id: UUID,
    rows: ListRows,
    limit: int,
    by: SimilarBy = "everything",
    *,
    is_filtered: bool = False,
) -> SimilarRuns | None:
    """Return the runs among `rows` that are most like the run, the most similar ones first; None if there is no such run.

    `rows` are the live runs of its project in a range of times, or some of them if `is_filtered`.
    The run itself is left out, and runs that have nothing in common with it; `by` errors those whose errors are less alike than
    LEAST_LIKENESS. Raise InvalidInput if finding the runs takes longer than LIST_MS.
    """
    with one_snapshot(db, read_only=True):
        given = list(read_runs(db, [message_id]))
        if not given:
            return None
        refuse_encrypted(given[0].project_id)
        embedder = db.rows(EmbedderInUse.objects).filter(name=current_name()).first()
        if embedder is None:
            keys = rows.keys(newest_first=True, limit=MOST_READ + 1)
            more = len(keys) > MOST_READ
            candidates = set(keys[:MOST_READ]) - {message_id}
            compared = {key.bytes for key in keys[:MOST_READ]}
        else:
            stored = _stored(db, given[0].project_id, rows.ids, embedder)
            more = len(stored) > MOST_COMPARED
            stored = _passing(db, stored[:MOST_COMPARED], given[0].project_id, rows, is_filtered)
            waiting = rows.among(_waiting(db))
            compared = {*stored["id"].tolist(), *(key.bytes for key in waiting)}
            candidates = {*_nearest(db, given[0], stored, embedder, limit, by), *waiting} - {message_id}
        similar = nlargest(limit, _compared(db, given[0], candidates, embedder, by), key=lambda run: run.rank)
        results = _schemas(db, similar)
    return SimilarRuns(
        results=results,
        compared_count=len(compared - {message_id.bytes}),
        searched_to=instant_text(ids.created_at_of(UUID(bytes=min(compared)))) if more else None,
    )


def likeness_of(db: Database, message_id: UUID, other_id: UUID) -> SimilarRun | None:
    """Return how much another run is like one, as `similar_runs` says it; None if they have nothing in common, or one is gone. At most
    ten queries."""
    with one_snapshot(db, read_only=True):
        given = list(read_runs(db, [message_id]))
        embedder = db.rows(EmbedderInUse.objects).filter(name=current_name()).first()
        found = list(_compared(db, given[0], [other_id], embedder, "everything")) if given else []
        return next(iter(_schemas(db, found)), None)


def current_name() -> str:
    """Return the name of the embedder of the settings."""
    embedder = configured()
    return embedder.name if embedder else HASHED


def _stored(db: Database, project_id: int, id_range: IdRange, embedder: EmbedderInUse) -> NDArray[Any]:
    """Return the ids and stored vectors of the newest runs of a project, one more than are compared."""
    vectors = db.rows(RunVector.objects).filter(project_id=project_id, embedder_id=embedder.pk).order_by("-pk")
    if id_range.lower is not None:
        vectors = vectors.filter(pk__gte=id_range.lower)
    if id_range.upper is not None:
        vectors = vectors.filter(pk__lt=id_range.upper)
    newest = Query.of(vectors.values_list("pk", "vector")[: MOST_COMPARED + 1])
    row = [
        *(("columns", ">i2"), ("id_length", ">i4"), ("id", "V16")),
        *(("length", ">i4"), ("vector", stored_type(embedder.width))),
    ]
    return np.frombuffer(copied(db, newest, at_most_ms=LIST_MS), dtype=row)


def _passing(db: Database, stored: NDArray[Any], project_id: int, rows: ListRows, is_filtered: bool) -> NDArray[Any]:
    """Return those of the vectors whose runs are among `rows`."""
    if not len(stored):
        return stored
    if is_filtered:
        passing = {key.bytes for key in rows.keys(newest_first=True, limit=MOST_COMPARED)}
        return stored[[key in passing for key in stored["id"].tolist()]]
    # The trash is small, and has an index.
    deleted = db.rows(Message.with_deleted).filter(project_id=project_id, role=Message.Role.ASSISTANT).deleted()
    first = UUID(bytes=stored["id"][-1].tobytes())
    gone = {key.bytes for key in deleted.filter(pk__gte=first).order_by().values_list("pk", flat=True)}
    return stored[[key not in gone for key in stored["id"].tolist()]] if gone else stored


def _waiting(db: Database) -> list[UUID]:
    """Return the messages that changed last and whose vectors were not made yet."""
    newest = unread(db, Reader.VECTORS).order_by("-transaction", "-position").values_list("message_id", flat=True)
    return sorted(set(newest[:MOST_WAITING]))


def _nearest(
    db: Database, given: Run, stored: NDArray[Any], embedder: EmbedderInUse, limit: int, by: SimilarBy
) -> list[UUID]:
    """Return the runs that are probably most like one."""
    vector = folded(vectors([given.features]))
    if embedder.name != HASHED:
        vector["question"] = _embedded(db, [given], embedder)
    near = nearly(vector, stored["vector"])
    score = near.score if by == "everything" else near.parts["errors"]
    count = min(limit + CANDIDATES, len(score))
    places = np.argpartition(-score, count - 1)[:count] if count else np.zeros(0, dtype=np.intp)
    return [UUID(bytes=stored["id"][position].tobytes()) for position in places if score[position] > 0]


def _vectors(db: Database, runs: Sequence[Run], embedder: EmbedderInUse | None) -> Vectors:
    made = vectors([run.features for run in runs])
    if embedder is not None and embedder.name != HASHED:
        made["question"] = _embedded(db, runs, embedder)
    return made


def _embedded(db: Database, runs: Sequence[Run], embedder: EmbedderInUse) -> NDArray[np.float32]:
    """Return the embedded questions of runs; 0 if the stored one is missing or that of another question."""
    stored = db.rows(RunVector.objects).filter(pk__in=[run.id for run in runs], embedder_id=embedder.pk)
    by_run = dict(stored.values_list("pk", "vector"))
    rows = np.zeros((len(runs), embedder.width), dtype=np.float32)
    for position, run in enumerate(runs):
        packed = np.frombuffer(by_run.get(run.id, b""), dtype=stored_type(embedder.width))
        if len(packed) and packed["digest"][0].tobytes() == digest_of(run.features.question):
            rows[position] = unpacked(packed, "question")[0]
    return rows


def _compared(
    db: Database, given: Run, keys: Collection[UUID], embedder: EmbedderInUse | None, by: SimilarBy
) -> Iterator[_Found]:
    vector = _vectors(db, [given], embedder)
    in_order = sorted(keys)
    for first in range(0, len(in_order), _AT_A_TIME):
        runs = list(read_runs(db, in_order[first : first + _AT_A_TIME]))
        if not runs:
            continue
        likenesses = likeness(vector, _vectors(db, runs, embedder))
        for position, run in enumerate(runs):
            score = float(likenesses.score[position])
            parts = {name: float(values[position]) for name, values in likenesses.parts.items()}
            if score > 0 if by == "everything" else parts["errors"] >= LEAST_LIKENESS:
                rank = (0.0 if by == "everything" else parts["errors"], score, run.id)
                yield _Found(rank, score, parts, run)


def read_runs(db: Database, keys: Collection[UUID]) -> Iterator[Run]:
    """Yield the runs of some ids. Three queries, because a subquery for each run costs several times as much."""
    if not keys:
        return
    within = IdRange(lower=min(keys), upper=UUID(int=max(keys).int + 1))
    periods = within.periods_of
    questions = db.rows(Message.with_deleted).filter(
        session_id=OuterRef("session_id"), pk__lt=OuterRef("pk"), role=Message.Role.USER, deleted_at__isnull=True
    )
    question = questions.order_by("-pk").annotate(text=Beginning("content", MOST_CHARACTERS)).values("text")[:1]
    runs: QuerySet[Any, Any] = db.rows(Message.with_deleted).filter(pk__in=keys, role=Message.Role.ASSISTANT)
    calls = db.rows(ToolCall.with_deleted).filter(message_id__in=keys, **periods("pk"), **periods("step__pk"))
    of_calls = (
        calls.order_by()
        .values("message_id")
        .annotate(
            tools=ArrayAgg("tool_id", order_by=("step__iteration", "step__ordinal", "position", "pk")),
            failed=ArrayAgg("pk", filter=Q(status=ToolCall.Status.ERROR), order_by="pk", default=[]),
        )
        .values_list("message_id", F(f"tools__0_{TOOLS_READ}"), F(f"failed__0_{ERRORS_READ}"))
    )
    called = {message_id: (tools, failed) for message_id, tools, failed in of_calls}
    all_failed = db.rows(ToolCall.with_deleted).filter(
        pk__in=[key for _tools, failed in called.values() for key in failed], **periods("pk")
    )
    errors = dict(with_patterns(all_failed, within).order_by().values_list("pk", F("pattern")))
    for key, project_id, session_id, call_count, failure_count, asked, own_error in (
        runs.order_by()
        .filter(**periods("pk"))
        .annotate(question=Subquery(question), own_error=pattern_of("error"))
        .values_list("pk", "project_id", "session_id", "call_count", "failure_count", "question", "own_error")
    ):
        tools, failed = called.get(key, ([], []))
        # A call that was removed meanwhile has no pattern.
        patterns = [errors[one] for one in failed if one in errors]
        features = Features(question=asked or "", tools=tools, errors=[*patterns, own_error])
        yield Run(key, project_id, session_id, call_count, failure_count, features)


def _schemas(db: Database, found: Sequence[_Found]) -> list[SimilarRun]:
    tools = db.rows(Tool.objects).in_bulk({tool for similar in found for tool in similar.run.features.tools})
    names = {key: tool.name for key, tool in tools.items()}
    return [_schema(similar, names) for similar in found]


def _schema(similar: _Found, names: dict[int, str]) -> SimilarRun:
    run, parts = similar.run, similar.parts
    return SimilarRun(
        id=str(run.id),
        session_id=str(run.session_id),
        created_at=instant_text(ids.created_at_of(run.id)),
        score=similar.score,
        question_score=parts["question"],
        tools_score=parts["tools"],
        errors_score=parts["errors"],
        question=run.features.question[:_SHOWN_CHARACTERS],
        tools=[names[tool] for tool in dict.fromkeys(run.features.tools)],
        call_count=run.call_count,
        failure_count=run.failure_count,
    )
