"""A delivery stores spans only, and the job makes the messages that all of them together make."""

from __future__ import annotations

import threading
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from msgspec.structs import replace

from access_app.db import Database, primary
from access_app.models import Project
from messages_app.models import Change, Message, Session
from messages_app.session_counters import disagreements
from messages_app.writes import delete_message, delete_session, restore_session
from sdk.tests.spans.test_pairs import agent, chat, part, tool
from tests.traces_app.spans.test_projection import clear, snapshot
from traces_app.maintenance.purge.purging import purge_messages
from traces_app.maintenance.purge.reports import PurgeReport
from traces_app.models import DueTrace, ToolCall
from traces_app.models import Span as SpanRow
from traces_app.queries.due_traces import are_made, wait_for_traces, waiting
from traces_app.spans import due, projector
from traces_app.spans.deliveries import record_media, record_spans
from traces_app.spans.projection import Projection, make_messages
from traces_app.spans.projector import make_due_traces
from tracesite_sdk.spans.media import media_of
from tracesite_sdk.spans.span import Span

pytestmark = [pytest.mark.django_db, pytest.mark.due_traces]
ROOT = agent(1, until=90)
UNENDED = replace(ROOT, end=0)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def soon_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a trace of 4 deliveries be large."""
    monkeypatch.setattr(due, "MANY_SPANS", 4)


def turn(number: int) -> list[Span]:
    call = f"c{number}"
    return [
        chat(10 * number, 1, 10 * number, part({"seat": number}, call)),
        tool(10 * number + 1, 1, 10 * number + 1, f"booked {number}", {"seat": number}, call),
    ]


def send(project: Project, *spans: Span) -> None:
    outcome = record_spans(primary, project.pk, spans)
    assert (outcome.reasons, outcome.accepted) == ([], len(spans))


def later() -> DueTrace:
    """Let time pass until the trace is due, and nobody has it."""
    past = timezone.now() - HOUR
    DueTrace.objects.exclude(due_at=None).update(due_at=past)
    DueTrace.objects.exclude(rests_until=None).update(rests_until=past)
    DueTrace.objects.exclude(taken_until=None).update(taken_until=past)
    return DueTrace.objects.get()


def made() -> int:
    return make_due_traces(primary).traces


def test_messages_are_those_of_all_spans_however_they_came(project: Project) -> None:
    spans = [UNENDED, *(span for number in range(1, 4) for span in turn(number)), chat(50, 1, 80), ROOT]
    send(project, *spans)
    assert not Message.objects.exists()
    assert made() == 1
    expected = snapshot()
    clear()
    DueTrace.objects.all().delete()
    for span in spans:
        send(project, span)
        if span is spans[4]:
            later()
            assert made() == 1
    assert made() == 1
    assert snapshot() == expected
    assert Message.objects.get(role="assistant").is_completed
    assert made() == 0


def test_run_is_due_at_once_when_its_root_has_ended_and_soon_before(project: Project) -> None:
    send(project, UNENDED)
    assert DueTrace.objects.get().due_at > timezone.now()
    assert made() == 0
    send(project, *turn(1))
    assert made() == 0
    send(project, ROOT)
    assert made() == 1


def test_small_trace_that_is_made_needs_no_row(project: Project) -> None:
    send(project, ROOT)
    assert made() == 1
    assert not DueTrace.objects.exists()
    send(project, *turn(1))
    later()
    assert made() == 1
    assert ToolCall.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_delivery_reads_nothing_of_its_trace(project: Project) -> None:
    def statements(*spans: Span) -> list[str]:
        with CaptureQueriesContext(connection) as context:
            send(project, *spans)
        return [query["sql"] for query in context.captured_queries]

    statements(UNENDED, *turn(1))  # looks up which months there are, and remembers them
    few = statements(*turn(2))
    assert not any("traces_app_toolcall" in sql or "SELECT content" in sql for sql in few)
    later()
    assert made() == 1
    assert len(statements(*turn(3), *turn(4), *turn(5))) == len(few) <= 6


def test_large_trace_rests_after_its_messages_were_made_until_its_root_ends(project: Project) -> None:
    send(project, UNENDED, *turn(1), *turn(2))
    later()
    assert made() == 1
    row = DueTrace.objects.get()
    assert row.due_at is None
    assert row.rests_until is not None and row.rests_until > timezone.now()
    DueTrace.objects.update(rests_until=timezone.now() + HOUR)
    send(project, *turn(3))
    assert DueTrace.objects.get().due_at > timezone.now() + HOUR / 2
    send(project, ROOT)
    assert made() == 1
    assert ToolCall.objects.count() == 3


def test_repeated_delivery_makes_nothing_due(project: Project) -> None:
    send(project, ROOT, *turn(1))
    assert made() == 1
    send(project, *turn(1))
    assert not DueTrace.objects.exists()


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("is_over", [False, True])
def test_delivery_while_messages_are_made_is_not_missed(
    project: Project, monkeypatch: pytest.MonkeyPatch, is_over: bool, is_large: bool
) -> None:
    send(project, UNENDED, *turn(1), *(turn(2) if is_large else ()))
    later()
    replaced = "traces_app.spans.projection._replace_messages"
    during: list[Any] = [turn(4) + ([ROOT] if is_over else [])]

    def with_delivery(db: Database, *arguments: Any) -> Any:
        while during:
            send(project, *during.pop())
        return original(db, *arguments)

    from traces_app.spans.projection import _replace_messages as original

    monkeypatch.setattr(replaced, with_delivery)
    # A large one that goes on rests.
    assert made() == (1 if is_large and not is_over else 2)
    later() if is_large and not is_over else None
    made()
    assert ToolCall.objects.count() == (3 if is_large else 2)
    assert not DueTrace.objects.exclude(due_at=None).exists()


def versions(table: str) -> dict[Any, int]:
    """Return the transactions that wrote rows, by their keys."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, xmin::text::bigint FROM traces_app_{table}")
        return dict(cursor.fetchall())


@pytest.mark.django_db(transaction=True)
def test_only_rows_that_differ_are_written(project: Project) -> None:
    send(project, UNENDED, *turn(1))
    later()
    made()
    before = {table: versions(table) for table in ("agentstep", "toolcall", "toolresult", "context")}
    assert all(before.values())
    answer = Message.objects.get(role="assistant")
    send(project, *turn(2), replace(turn(1)[1], revision=3, attributes={"gen_ai.tool.call.result": "sold out"}))
    later()
    made()
    after = {table: versions(table) for table in before}
    same = {
        table: {key for key, xmin in rows.items() if after[table].get(key) == xmin} for table, rows in before.items()
    }
    assert {table: len(before[table]) - len(keys) for table, keys in same.items()} == {
        "agentstep": 0,
        "toolcall": 0,
        "toolresult": 1,
        "context": 0,
    }
    assert [len(after[table]) for table in ("agentstep", "toolcall", "toolresult")] == [2, 2, 2]
    again = Message.objects.get(role="assistant")
    assert (again.pk, again.version, again.call_count) == (answer.pk, answer.version + 1, 2)
    changes = Change.objects.count()
    send(project, replace(turn(1)[1], span_id="e" * 16, parent_id=turn(1)[1].span_id, name="GET", attributes={}))
    later()
    made()
    assert {table: versions(table) for table in before} == after
    assert Change.objects.count() == changes
    send(project, ROOT)
    made()
    assert {table: versions(table) for table in before} == after
    assert Message.objects.get(role="assistant").is_completed
    assert not disagreements(primary, list(Session.objects.values_list("pk", flat=True)))


@pytest.mark.django_db(transaction=True)
def test_row_that_is_made_no_more_is_removed(project: Project) -> None:
    send(project, UNENDED, *turn(1), *turn(2))
    later()
    made()
    assert ToolCall.objects.count() == 2
    # The second request was the first one, sent again with another call.
    gone = replace(turn(2)[1], revision=3, attributes={"gen_ai.operation.name": "embeddings"})
    send(project, replace(turn(2)[0], revision=3, attributes={"gen_ai.operation.name": "embeddings"}), gone)
    later()
    made()
    found = snapshot()
    assert not disagreements(primary, list(Session.objects.values_list("pk", flat=True)))
    DueTrace.objects.update(digests=b"")
    make_messages(primary, project.pk, [ROOT.trace_id])
    assert snapshot() == found
    assert ToolCall.objects.count() == 1


@pytest.mark.parametrize("is_deleted", [False, True])
def test_message_in_the_trash_stays_there_and_is_kept_up_to_date(project: Project, is_deleted: bool) -> None:
    send(project, UNENDED, *turn(1))
    later()
    made()
    answer = Message.objects.get(role="assistant")
    if is_deleted:
        delete_message(primary, answer.pk, by="ada")
    send(project, *turn(2))
    later()
    made()
    again = Message.with_deleted.get(pk=answer.pk)
    assert (again.deleted_at is not None, again.deleted_by, again.call_count) == (is_deleted, "ada" * is_deleted, 2)
    assert not disagreements(primary, list(Session.objects.values_list("pk", flat=True)))


def test_trace_whose_process_was_killed_is_made_later_and_alone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [replace(ROOT, trace_id=f"{number:032x}") for number in (7, 8)]
    send(project, ROOT, *others)
    together: list[int] = []

    def killed(_db: Database, _project_id: int, trace_ids: Collection[str]) -> Projection:
        together.append(len(trace_ids))
        raise KeyboardInterrupt

    def counted(db: Database, project_id: int, trace_ids: Collection[str]) -> Projection:
        together.append(len(trace_ids))
        return make_messages(db, project_id, trace_ids)

    monkeypatch.setattr(projector, "make_messages", killed)
    with pytest.raises(KeyboardInterrupt):
        made()
    monkeypatch.setattr(projector, "make_messages", counted)
    assert made() == 0
    DueTrace.objects.update(taken_until=timezone.now() - HOUR)
    assert made() == 3
    assert together == [3, 1, 1, 1]


def test_lease_grows_with_each_attempt(project: Project) -> None:
    send(project, ROOT)
    leases = []
    for _attempt in range(12):
        (row,) = due.take(primary, 10)
        assert not due.take(primary, 10)
        row.refresh_from_db()
        assert row.taken_until is not None
        leases.append(round((row.taken_until - timezone.now()).total_seconds()))
        later()
    assert leases[:4] == [10, 20, 40, 80]
    assert leases[-1] == 3600


def test_trace_that_cannot_be_made_does_not_keep_others(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = [replace(span, trace_id="7" * 32) for span in (ROOT, *turn(1))]
    send(project, ROOT, *other)

    def fails(db: Database, project_id: int, trace_ids: Collection[str]) -> Projection:
        if ROOT.trace_id in trace_ids:
            raise ValueError("an error of the program")
        return make_messages(db, project_id, trace_ids)

    monkeypatch.setattr(projector, "make_messages", fails)
    report = make_due_traces(primary)
    assert (report.traces, report.failed) == (1, 1)
    assert "cannot be made" in caplog.text
    assert set(Message.objects.values_list("request_id", flat=True)) == {"7" * 32}
    monkeypatch.undo()
    later()
    assert made() == 1


def test_database_that_is_away_is_no_fault_of_a_trace(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    send(project, ROOT)

    def away(*_arguments: Any) -> Projection:
        raise OperationalError("gone")

    monkeypatch.setattr(projector, "make_messages", away)
    with pytest.raises(OperationalError):
        made()


def test_spans_of_deleted_and_purged_traces_are_refused(project: Project) -> None:
    send(project, ROOT, *turn(1))
    made()
    session = Session.objects.get()
    delete_session(primary, session.pk, by="ada")
    assert set(record_spans(primary, project.pk, turn(3)).refused_traces.values()) == {"session_deleted"}
    restore_session(primary, session.pk)
    send(project, *turn(3))
    answer = Message.objects.get(role="assistant").pk
    purge_messages(primary, [answer], PurgeReport())
    assert not DueTrace.objects.exists()
    assert set(record_spans(primary, project.pk, turn(4)).refused_traces.values()) == {"message_purged"}
    assert not SpanRow.objects.exists()
    assert not Message.objects.filter(role="assistant").exists()


def test_what_came_before_its_session_was_deleted_follows_when_it_is_restored(project: Project) -> None:
    send(project, ROOT, *turn(1))
    made()
    send(project, *turn(2))
    session = Session.objects.get()
    delete_session(primary, session.pk, by="ada")
    later()
    made()
    assert SpanRow.objects.count() == 5
    restore_session(primary, session.pk)
    later()
    assert made() == 1
    assert ToolCall.objects.count() == 2


def test_late_spans_of_a_trace_that_is_purged_whole_are_removed(project: Project) -> None:
    send(project, ROOT, *turn(1))
    made()
    purge_messages(primary, list(Message.objects.values_list("pk", flat=True)), PurgeReport())
    send(project, ROOT, *turn(2))
    made()
    assert not Message.objects.exists()
    assert not SpanRow.objects.exists()
    assert not DueTrace.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_purge_waits_for_a_delivery_that_has_not_committed(project: Project) -> None:
    send(project, ROOT, *turn(1))
    made()
    (answer,) = Message.objects.filter(role="assistant").values_list("pk", flat=True)
    purged = threading.Event()

    def purge() -> None:
        try:
            purge_messages(primary, [answer], PurgeReport())
            purged.set()
        finally:
            connection.close()

    with primary.atomic():
        send(project, *turn(2))
        thread = threading.Thread(target=purge)
        thread.start()
        assert not purged.wait(0.5)
    thread.join(30)
    assert purged.is_set()
    assert not SpanRow.objects.exists()
    assert not DueTrace.objects.exists()


def test_file_is_put_into_the_messages_of_its_trace(project: Project) -> None:
    file = media_of(ROOT.trace_id, "image/png", b"x", bytes(32))
    for _time in range(2):
        assert record_media(primary, project.pk, file) is None
    assert SpanRow.objects.count() == 1
    send(project, ROOT)
    assert made() == 1


def test_row_of_a_large_trace_goes_when_nothing_comes_for_long(project: Project) -> None:
    send(project, ROOT, *turn(1), *turn(2))
    made()
    due.forget_idle(primary)
    assert DueTrace.objects.exists()
    DueTrace.objects.update(used_at=timezone.now() - 2 * HOUR)
    due.forget_idle(primary)
    assert not DueTrace.objects.exists()
    send(project, *turn(3))
    later()
    assert made() == 1
    assert ToolCall.objects.count() == 3


def test_traces_are_made_within_the_size_of_a_transaction(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[list[str]] = []

    def counted(db: Database, project_id: int, trace_ids: Collection[str]) -> Projection:
        together.append(sorted(trace_ids))
        return make_messages(db, project_id, trace_ids)

    monkeypatch.setattr(projector, "make_messages", counted)
    monkeypatch.setattr(projector, "SPANS_AT_ONCE", 5)
    for number in (2, 3, 4, 5):
        send(project, *(replace(span, trace_id=f"{number:032x}") for span in [ROOT, *turn(1)[: number % 2]]))
    assert made() == 4
    assert [len(some) for some in together] == [3, 1]


@pytest.mark.django_db(transaction=True)
def test_reader_waits_until_the_job_has_made_what_was_sent(project: Project, stranger: Project) -> None:
    assert wait_for_traces(primary, None, 0)
    send(project, ROOT)
    send(stranger, replace(ROOT, trace_id="7" * 32))
    assert not wait_for_traces(primary, [project.pk], 0.1)
    is_made: list[bool] = []

    def wait() -> None:
        try:
            is_made.append(wait_for_traces(primary, [project.pk], 30))
        finally:
            connection.close()

    reader = threading.Thread(target=wait)
    reader.start()
    assert made() == 2
    reader.join(30)
    assert is_made == [True]
    # What comes later does not keep a reader.
    send(project, *turn(1))
    versions = waiting(primary, [project.pk])
    make_messages(primary, project.pk, [ROOT.trace_id])
    send(project, *turn(2))
    assert are_made(primary, versions)


def test_traces_of_projects_are_told_apart(project: Project, stranger: Project) -> None:
    for owner in (project, stranger):
        send(owner, ROOT, *turn(1))
    assert DueTrace.objects.count() == 2
    assert made() == 2
    assert sorted(Message.objects.filter(role="assistant").values_list("project_id", flat=True)) == sorted(
        [project.pk, stranger.pk]
    )
