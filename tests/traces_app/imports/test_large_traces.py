"""A large trace: a delivery stores spans only, and the job makes the messages that all of them together would have made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from msgspec.structs import replace

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.writes import delete_session, restore_session
from sdk.tests.spans.test_pairs import agent, chat, part, tool
from tests.traces_app.imports.test_span_store import clear, snapshot
from traces_app.imports import large_traces as job
from traces_app.imports.large_traces import make_large_traces
from traces_app.imports.span_store import record_media, record_spans
from traces_app.ingest import large_traces
from traces_app.ingest.removal import remove_messages
from traces_app.maintenance.purge.purging import purge_messages
from traces_app.maintenance.purge.reports import PurgeReport
from traces_app.models import LargeTrace, ToolCall
from traces_app.models import Span as SpanRow
from tracesite_sdk.spans.media import media_of
from tracesite_sdk.spans.span import Span

pytestmark = pytest.mark.django_db
TURNS = 4
ROOT = agent(1, until=90)
UNENDED = replace(ROOT, end=0)


@pytest.fixture(autouse=True)
def soon_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a trace of 4 deliveries be large, and known as such at once."""
    monkeypatch.setattr(large_traces, "MANY_SPANS", 4)
    monkeypatch.setattr(large_traces, "_known", large_traces.BoundedCache(1_000, max_age=0))


def turn(number: int) -> list[Span]:
    call = f"c{number}"
    return [
        chat(10 * number, 1, 10 * number, part({"seat": number}, call)),
        tool(10 * number + 1, 1, 10 * number + 1, f"booked {number}", {"seat": number}, call),
    ]


def send(project: Project, *spans: Span) -> Any:
    outcome = record_spans(primary, project.pk, spans)
    assert (outcome.reasons, outcome.accepted) == ([], len(spans))
    return outcome


def grown(project: Project) -> None:
    """Store a run that goes on, so that its trace is large."""
    for spans in ([UNENDED], turn(1), turn(2)):
        send(project, *spans)
    assert LargeTrace.objects.get().due_at is None


def due() -> LargeTrace:
    """Let time pass until the trace is due."""
    LargeTrace.objects.exclude(due_at=None).update(due_at=timezone.now())
    return LargeTrace.objects.get()


def test_messages_of_a_large_trace_are_those_of_all_its_spans(project: Project) -> None:
    spans = [UNENDED, *(span for number in range(1, TURNS) for span in turn(number)), chat(50, 1, 80), ROOT]
    send(project, *spans)
    expected = snapshot()
    clear()
    LargeTrace.objects.all().delete()
    grown(project)
    send(project, *turn(3))
    assert ToolCall.objects.count() == 2
    send(project, chat(50, 1, 80), ROOT)
    assert make_large_traces(primary).traces == 1
    assert snapshot() == expected
    assert Message.objects.get(role="assistant").is_completed
    assert make_large_traces(primary).traces == 0


@pytest.mark.django_db(transaction=True)
def test_delivery_to_a_large_trace_reads_nothing_of_it(project: Project) -> None:
    grown(project)

    def statements(*spans: Span) -> list[str]:
        with CaptureQueriesContext(connection) as context:
            send(project, *spans)
        return [query["sql"] for query in context.captured_queries]

    send(project, *turn(3))  # looks up which months there are, and remembers them
    few = statements(*turn(4))
    assert not any("FROM traces_app_span" in sql or "FROM traces_app_toolcall" in sql for sql in few)
    assert len(statements(*turn(5), *turn(6), *turn(7))) == len(few) <= 6


def test_trace_is_left_alone_after_its_messages_were_made_until_its_root_ends(project: Project) -> None:
    grown(project)
    LargeTrace.objects.update(rests_until=timezone.now() + timedelta(minutes=1))
    send(project, *turn(3))
    assert make_large_traces(primary).traces == 0
    assert due().version == 1
    assert make_large_traces(primary).traces == 1
    row = LargeTrace.objects.get()
    assert row.due_at is None
    assert row.rests_until > timezone.now()
    send(project, *turn(4))
    assert make_large_traces(primary).traces == 0
    send(project, ROOT)
    assert make_large_traces(primary).traces == 1
    assert ToolCall.objects.count() == 4


def test_repeated_delivery_makes_nothing_due(project: Project) -> None:
    grown(project)
    send(project, *turn(2))
    assert LargeTrace.objects.get().due_at is None


@pytest.mark.parametrize("is_over", [False, True])
def test_delivery_while_messages_are_made_is_not_missed(
    project: Project, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    grown(project)
    send(project, *turn(3))
    due()
    make_again, made = job.make_again, []

    def with_delivery(*arguments: Any) -> bool:
        found = make_again(*arguments)
        if not made:
            made.append(True)
            send(project, *turn(4), *([ROOT] if is_over else []))
        return found

    monkeypatch.setattr(job, "make_again", with_delivery)
    assert make_large_traces(primary).traces == (2 if is_over else 1)
    if not is_over:
        assert ToolCall.objects.count() == 3
        due()
        assert make_large_traces(primary).traces == 1
    assert ToolCall.objects.count() == 4


def test_trace_whose_job_was_killed_is_made_later(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(project)
    send(project, ROOT)

    def killed(*_arguments: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(job, "make_again", killed)
        with pytest.raises(KeyboardInterrupt):
            make_large_traces(primary)
    assert make_large_traces(primary).traces == 0
    assert LargeTrace.objects.get().due_at is not None
    due()
    assert make_large_traces(primary).traces == 1
    assert Message.objects.get(role="assistant").is_completed


def test_spans_of_deleted_and_purged_traces_are_refused(project: Project) -> None:
    grown(project)
    session = Session.objects.get()
    delete_session(primary, session.pk, by="ada")
    assert set(record_spans(primary, project.pk, turn(3)).refused_traces.values()) == {"session_deleted"}
    restore_session(primary, session.pk)
    send(project, *turn(3))
    answer = Message.objects.get(role="assistant").pk
    purge_messages(primary, [answer], PurgeReport())
    assert not LargeTrace.objects.exists()
    assert set(record_spans(primary, project.pk, turn(4)).refused_traces.values()) == {"message_purged"}
    assert not SpanRow.objects.exists()
    assert not Message.objects.filter(role="assistant").exists()


def test_spans_that_came_when_their_month_was_dropped_are_removed(project: Project) -> None:
    grown(project)
    send(project, *turn(3))
    remove_messages(primary, list(Message.objects.values_list("pk", flat=True)))
    due()
    assert make_large_traces(primary).traces == 1
    assert not LargeTrace.objects.exists()
    assert not SpanRow.objects.exists()


def test_file_of_a_large_trace_is_put_into_its_messages(project: Project) -> None:
    grown(project)
    assert record_media(primary, project.pk, media_of(ROOT.trace_id, "image/png", b"x", bytes(32))) is None
    send(project, ROOT)
    assert make_large_traces(primary).traces == 1


def test_idle_trace_is_made_with_its_next_delivery_again(project: Project) -> None:
    grown(project)
    LargeTrace.objects.update(used_at=timezone.now() - timedelta(hours=2))
    make_large_traces(primary)
    assert not LargeTrace.objects.exists()
    send(project, *turn(3))
    assert ToolCall.objects.count() == 3
    assert LargeTrace.objects.exists()


def test_trace_that_is_large_no_more_is_made_with_the_delivery(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(project)
    monkeypatch.setattr("traces_app.imports.span_store.large_among", lambda *_: {ROOT.trace_id})
    LargeTrace.objects.all().delete()
    send(project, *turn(3))
    assert ToolCall.objects.count() == 3


def test_import_makes_messages_at_once(project: Project) -> None:
    grown(project)
    record_spans(primary, project.pk, turn(3), at_once=True)
    assert ToolCall.objects.count() == 3


def test_trace_of_another_project_is_not_large(project: Project, stranger: Project) -> None:
    grown(project)
    send(stranger, UNENDED, *turn(1))
    send(stranger, chat(50, 1, 80))
    assert LargeTrace.objects.filter(project=stranger).count() == 1
    assert {row.version for row in LargeTrace.objects.all()} == {0}


def test_plain_spans_without_messages_are_never_large(project: Project) -> None:
    plain = [
        Span(trace_id="d" * 32, span_id=f"{number:016x}", name="step", start=10**18, end=10**18 + 5)
        for number in range(1, 9)
    ]
    send(project, *plain)
    assert not LargeTrace.objects.exists()
