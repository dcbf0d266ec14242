"""Store the vectors of runs, by which similar ones are found.

`store_vectors` takes messages from the log of changes (messages_app.change_log), makes the vectors of the runs and moves its
place in the log, in one transaction. A question stands for the runs that answer it, so a question that changes or comes late
changes their vectors. An embedder other than that of the stored vectors begins with all runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import numpy as np
from django.db.models import OuterRef, Subquery
from numpy.typing import NDArray

from access_app.db import Database
from access_app.db.transactions import in_transaction
from access_app.encryption.keys import is_encrypted
from messages_app.change_log import Kind, Reader, log_all, may_wait, move, next_changes, place_of, turn_of
from messages_app.models import Message
from messages_app.sql.partitions import make_periods, periods_of
from messages_app.sql.periods import period_at
from traces_app.ingest.partitions import TABLES
from traces_app.models import EmbedderInUse, RunVector
from traces_app.queries.embedders import Embedder, EmbedderError, configured
from traces_app.queries.run_vectors import HASHED, WIDTHS_STORED, digest_of, folded, pack, stored_type, vectors
from traces_app.queries.similar_runs import Run, read_runs
from tracesite_sdk.records import ids

CHANGES_AT_A_TIME = 1_000
PATIENCE = timedelta(seconds=5)
"""How long a change waits, so that the vector of a run that goes on is not made with each event; unless there are many."""

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class VectorReport:
    """The work of one run."""

    runs: int = 0
    embedded: int = 0
    """Questions that were sent to the embedder."""
    failures: int = 0


def store_vectors(
    db: Database, *, patience: timedelta = PATIENCE, is_stopped: Callable[[], bool] = lambda: False
) -> VectorReport:
    """Make the vectors of the runs that changed; end early if `is_stopped`, or if the embedder fails."""
    report = VectorReport()
    with turn_of(db, Reader.VECTORS) as is_mine:
        try:
            while is_mine and not is_stopped() and _store_next(db, configured(), patience, report):
                pass
        except EmbedderError as error:
            report.failures += 1
            logger.warning("vectors of runs could not be made and will be tried again: %s", error)
    return report


def _store_next(db: Database, embedder: Embedder | None, patience: timedelta, report: VectorReport) -> bool:
    """Make the vectors of the messages that changed next; return whether there may be more."""
    name = embedder.name if embedder else HASHED
    in_use = db.rows(EmbedderInUse.objects).filter(name=name).first() or _begin(db, name, WIDTHS_STORED["question"])
    place = place_of(db, Reader.VECTORS)
    changes = next_changes(db, place, CHANGES_AT_A_TIME)
    if may_wait(changes, patience):
        return False
    changed = {change.message_id for change in changes if change.kind in Reader.VECTORS.kinds}
    # A vector says what its run says.
    runs = [run for run in read_runs(db, _runs_of(db, changed)) if not is_encrypted(run.project_id)]
    packed: list[bytes] = []
    if runs:
        parts = folded(vectors([run.features for run in runs]))
        if embedder:
            parts["question"] = _questions(db, embedder, in_use, runs, report)
            width = parts["question"].shape[1]
            if width != in_use.width:
                if db.rows(RunVector.objects).filter(embedder_id=in_use.pk).exists():
                    # The model has changed under the same name.
                    _begin(db, name, width)
                    return True
                in_use.width = width
                in_use.save()
        packed = pack(parts, [run.features.question for run in runs])
    # A period without partition has been dropped with its messages.
    stored = periods_of(db, Message._meta.db_table)
    periods = {run.id: period_at(stored, ids.created_at_of(run.id)) for run in runs}
    make_periods(db, TABLES, filter(None, periods.values()))
    rows = [
        RunVector(message_id=run.id, project_id=run.project_id, embedder_id=in_use.pk, vector=vector)
        for run, vector in zip(runs, packed, strict=True)
        if periods[run.id]
    ]
    with db.atomic():
        db.rows(RunVector.objects).bulk_create(
            rows, update_conflicts=True, unique_fields=["message"], update_fields=["embedder_id", "vector"]
        )
        move(db, place, changes)
    report.runs += len(rows)
    return True


@in_transaction
def _begin(db: Database, name: str, width: int) -> EmbedderInUse:
    """Put an embedder in the place of the one in use, and have the vectors of all runs made again."""
    db.rows(EmbedderInUse.objects).all().delete()
    log_all(db, db.rows(Message.with_deleted).filter(role=Message.Role.ASSISTANT).order_by("pk"), Kind.VECTOR)
    return db.rows(EmbedderInUse.objects).create(name=name, width=width)


def _runs_of(db: Database, message_ids: Collection[UUID]) -> set[UUID]:
    """Return the runs among messages, and those that answer the questions among them."""
    messages = (
        db.rows(Message.with_deleted).filter(pk__in=message_ids).order_by().values_list("pk", "role", "session_id")
    )
    runs, asked, sessions = set(), set(), set()
    for key, role, session_id in messages:
        if role == Message.Role.ASSISTANT:
            runs.add(key)
        elif role == Message.Role.USER:
            asked.add(key)
            sessions.add(session_id)
    if asked:
        earlier = db.rows(Message.with_deleted).filter(
            session_id=OuterRef("session_id"), pk__lt=OuterRef("pk"), role=Message.Role.USER, deleted_at__isnull=True
        )
        answers = (
            db.rows(Message.with_deleted)
            .filter(session_id__in=sessions, pk__gt=min(asked), role=Message.Role.ASSISTANT)
            .annotate(question=Subquery(earlier.order_by("-pk").values("pk")[:1]))
        )
        runs |= set(answers.filter(question__in=asked).order_by().values_list("pk", flat=True))
    return runs


def _questions(
    db: Database, embedder: Embedder, in_use: EmbedderInUse, runs: Sequence[Run], report: VectorReport
) -> NDArray[np.float32]:
    """Return the embedded questions of runs, a row for each; of those that have not changed the stored ones."""
    known: dict[bytes, NDArray[np.float32]] = {}
    stored = db.rows(RunVector.objects).filter(pk__in=[run.id for run in runs], embedder_id=in_use.pk)
    for packed in stored.values_list("vector", flat=True):
        row = np.frombuffer(packed, dtype=stored_type(in_use.width))[0]
        known[row["digest"].tobytes()] = row["question"].astype(np.float32)
    digests = [digest_of(run.features.question) for run in runs]
    new = {
        digest: run.features.question
        for digest, run in zip(digests, runs, strict=True)
        if digest not in known and run.features.question.strip()
    }
    embedded = embedder.embed(list(new.values()))
    report.embedded += len(new)
    made = {digest: vector for digest, vector in zip(new, embedded, strict=True) if vector is not None}
    width = next((len(vector) for vector in made.values()), in_use.width)
    rows = np.zeros((len(runs), width), dtype=np.float32)
    for index, digest in enumerate(digests):
        vector = made.get(digest, known.get(digest))
        if vector is not None and len(vector) == width:
            rows[index] = vector
    return rows
