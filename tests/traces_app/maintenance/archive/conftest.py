"""Traces of two projects with a row in every table, and what is compared of them."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection

from access_app.db import primary
from access_app.models import Project
from messages_app.models import MessageKey, Session
from messages_app.queries import FoundSession
from messages_app.writes import delete_message, delete_session
from tests.traces_app.conftest import answer, drop_all_periods, question, store
from traces_app.ingest.scores import PlacedScore, store_scores
from traces_app.maintenance.archive.datasets import DATASETS
from traces_app.models import Snapshot, SnapshotPart, SnapshotSums
from traces_app.queries.scores import find_place
from traces_app.spans.deliveries import record_spans
from traces_app.views.session_exports import EXPORTS
from tracesite.samples.loader import load_samples
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.records import ids
from tracesite_sdk.redaction.rules import DEFAULT_RULES
from tracesite_sdk.spans.span import Span as SentSpan

JANUARY, FEBRUARY, MARCH = (datetime(2024, month, 10, 12, tzinfo=UTC) for month in (1, 2, 3))
MID_MARCH = datetime(2024, 3, 15, tzinfo=UTC)
FAR = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def only_our_months(transactional_db: None) -> None:
    """Drop the months of earlier tests, so that only those of the test are archived."""
    drop_all_periods()


def run(*arguments: str) -> str:
    """Run a command; return what it writes to the standard output."""
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def tell(project: Project, name: str, *times: datetime) -> None:
    """Store a session with a question and an answer at each time."""
    for number, at in enumerate(times):
        outcome = store(
            project,
            question(created_at=at, external_id=f"{name}-q{number}"),
            answer(created_at=at, external_id=f"{name}-a{number}"),
            external_id=name,
            created_at=times[0],
            end_user=f"user of {name}",
        )
    assert outcome.id is not None
    add_snapshot(outcome.id, times[0])


def fill(project: Project, stranger: Project) -> None:
    """Store the samples, and sessions of January and February 2024 of both projects, with spans, scores and a trash."""
    load_samples(primary, project)
    for owner in (project, stranger):
        tell(owner, "january", JANUARY)
        tell(owner, "both", JANUARY, FEBRUARY)
        tell(owner, "long", JANUARY, MARCH)
        tell(owner, "deleted", FEBRUARY)
        tell(owner, "half", FEBRUARY, FEBRUARY.replace(day=11))
        store(owner, external_id="empty", created_at=FEBRUARY, title="nothing was said")
        start = int(FEBRUARY.timestamp() * 1_000_000_000)
        chat = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": '[{"role": "user", "content": "Hello"}]'}
        for trace, attributes in (("a" * 32, chat), ("b" * 32, {})):
            span = SentSpan(trace_id=trace, span_id="c" * 16, start=start, end=start + 1, attributes=attributes)
            record_spans(primary, owner.pk, [span])
        for record in (
            records.Score(session_id="january", name="quality", value=0.5),
            records.Score(session_id="both", message_id="both-a1", name="good", value=True),
        ):
            store_scores(
                primary,
                owner.pk,
                [
                    PlacedScore(
                        redacted=redact_score(record, DEFAULT_RULES), place=find_place(primary, owner.pk, record)
                    )
                ],
            )
    delete_session(primary, Session.objects.get(project=project, external_id="deleted").pk, by="test")
    half = Session.objects.get(project=project, external_id="half")
    delete_message(primary, half.messages.earliest("pk").pk, by="test")


def add_snapshot(session: UUID, at: datetime) -> None:
    """Add a snapshot of an agent's context, in one part."""
    of = {"project": Session.objects.get(pk=session).project, "session_id": session}
    Snapshot.objects.create(pk=ids.session_id(at), **of, external_id="s", ts=1, node_ids=["plan"], context_ref="r")
    SnapshotPart.objects.create(**of, ref="r", content=b'{"messages": ["Hello"]}', below=[])
    SnapshotSums.objects.create(**of, size=23, left_out={"too_large": 1})


def exports(beginning: str = "") -> dict[str, bytes]:
    """Return what every session is exported as, of those whose external id has this beginning."""
    found = {}
    for session in Session.objects.filter(external_id__startswith=beginning).select_related("project"):
        row = FoundSession(session.pk, session.project_id)
        for name in ("tracesite", "otlp"):
            found[f"{session.project.slug}/{session.external_id}.{name}"] = b"".join(EXPORTS[name].pieces(primary, row))
    return found


def rows() -> dict[str, list[str]]:
    """Return all rows of the archived tables, and the keys of messages, as they are stored."""
    found = {}
    with primary.connection.as_stored(), connection.cursor() as cursor:
        for table in (*(dataset.table for dataset in DATASETS), MessageKey._meta.db_table):
            # The parts of snapshots get other numbers.
            row = "to_jsonb(t) - 'id'" if table == SnapshotPart._meta.db_table else "to_jsonb(t)"
            cursor.execute(f"SELECT ({row})::text FROM {table} AS t ORDER BY 1")
            found[table] = [row for (row,) in cursor.fetchall()]
    return found
