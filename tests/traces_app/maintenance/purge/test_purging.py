"""Tests of the purge and of its command: whole months, batches, sessions, and interruptions."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from access_app.db import primary
from access_app.errors import NotFound
from access_app.keys import create_key
from access_app.models import Project, RetentionWay
from messages_app.models import Message, MessageKey, PurgedPeriod, Session, SessionTombstone
from messages_app.session_counters import disagreements
from messages_app.sql.partitions import PeriodInUse, periods_of
from messages_app.sql.periods import Period
from messages_app.writes import delete_message, delete_session, restore_session
from sdk.tests.paths import ROOT
from tests import forked
from tests.traces_app.conftest import answer, drop_all_periods, question, session_of, store
from traces_app.events.store import record_events
from traces_app.ingest.batch import SessionOutcome
from traces_app.ingest.partitions import forget
from traces_app.ingest.pipeline import ingest
from traces_app.ingest.scores import PlacedScore, ScoreTarget, store_scores
from traces_app.maintenance.derived import check_derived
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.reports import PurgeReport
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.maintenance.purge.surveys import survey
from traces_app.maintenance.retention import apply_retention
from traces_app.maintenance.search_index import index_changed
from traces_app.models import AgentStep, Context, Score, Span, Tool, ToolCall, ToolResult
from traces_app.queries.scores import find_place
from traces_app.spans.deliveries import record_spans
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_event, redact_score
from tracesite_sdk.records import ids
from tracesite_sdk.redaction.rules import DEFAULT_RULES
from tracesite_sdk.spans.span import Span as SentSpan

pytestmark = pytest.mark.django_db(transaction=True)

JANUARY, FEBRUARY, MARCH = (datetime(2024, month, 10, 12, tzinfo=UTC) for month in (1, 2, 3))
END_OF_JANUARY = datetime(2024, 2, 1, tzinfo=UTC)
MID_FEBRUARY = datetime(2024, 2, 15, tzinfo=UTC)
LATER = datetime(2026, 1, 1, tzinfo=UTC)
PLANTED = "planted-2b7e1516"


@pytest.fixture(autouse=True)
def only_our_months() -> None:
    """Drop the months of earlier tests, so that a test can name the months that it drops."""
    drop_all_periods()


def tell(project: Project, name: str, at: datetime, **fields: Any) -> SessionOutcome:
    """Store the standard session at a time, with its question and its answer."""
    return store(
        project,
        question(created_at=at, external_id=f"{name}-q"),
        answer(created_at=at, external_id=f"{name}-a"),
        external_id=name,
        created_at=fields.pop("begun", at),
        **fields,
    )


def add(project: Project, name: str, at: datetime, external_id: str = "late") -> SessionOutcome:
    return store(project, answer(created_at=at, external_id=external_id), external_id=name)


def many(project: Project, sessions: int, at: datetime, prefix: str = "many") -> None:
    """Store sessions of four messages: two questions, two answers with calls."""
    batch = []
    for number in range(sessions):
        begun = at + timedelta(seconds=number)
        messages = [
            make(created_at=begun + timedelta(milliseconds=turn), external_id=f"{turn}-{role}")
            for turn in range(2)
            for role, make in (("q", question), ("a", answer))
        ]
        batch.append(session_of(*messages, external_id=f"{prefix}-{number}", created_at=begun))
    for start in range(0, sessions, 100):
        ingest(primary, project.pk, batch[start : start + 100])


def counts() -> dict[str, int]:
    models = (Session, Message, AgentStep, ToolCall, ToolResult)
    return {model.__name__: model._base_manager.count() for model in models}


TWO_MESSAGES = {"Session": 1, "Message": 2, "AgentStep": 2, "ToolCall": 4, "ToolResult": 4}
NOTHING = dict.fromkeys(TWO_MESSAGES, 0)


NAMES = ["sessions", "messages", "references", "steps", "calls", "results", "events", "contexts", "spans", "scores"]
NAMES += ["search index", "vectors", "patterns of errors", "seals", "snapshots"]


def rows(**removed: int) -> dict[str, int]:
    """Return what a report says that removed these rows, and none of the other tables."""
    return dict.fromkeys(NAMES, 0) | removed


def rows_of(report: PurgeReport) -> dict[str, int]:
    return {name: table.rows for name, table in report.tables.items()}


def places_of(*needles: object) -> set[str]:
    """Return the tables with one of these texts anywhere in a row."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
        )
        tables = [name for (name,) in cursor.fetchall()]
        found = set()
        for table in tables:
            for needle in needles:
                cursor.execute(f'SELECT 1 FROM "{table}" AS t WHERE strpos(t::text, %s) > 0 LIMIT 1', [str(needle)])
                if cursor.fetchone():
                    found.add(table)
        return found


def wrong_counters() -> dict[UUID, Any]:
    return disagreements(primary, list(Session.with_deleted.values_list("pk", flat=True)))


@contextmanager
def other_connection() -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url()) as other:
        yield other
        other.rollback()


def database_url() -> str:
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    return run


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), "purge", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": database_url()}


# --- By age -------------------------------------------------------------------------------------------------------


def test_expired_month_is_dropped_and_its_sessions_removed(project: Project) -> None:
    tell(project, "old", JANUARY)
    tell(project, "new", FEBRUARY)
    report = purge(primary, PurgeScope(created_before=END_OF_JANUARY))
    assert report.periods == ["2024-01"]
    assert rows_of(report) == rows(sessions=1, messages=2, steps=2, calls=4, results=4)
    assert report.bytes_freed > 0
    assert counts() == TWO_MESSAGES
    assert periods_of(primary, "messages_app_message") == [Period.month(2024, 2)]
    assert list(PurgedPeriod.objects.values_list("begin", "end")) == [Period.month(2024, 1)]
    assert Tool.objects.count() == 3


def test_expired_messages_of_a_kept_month_are_removed(project: Project) -> None:
    tell(project, "old", FEBRUARY)
    tell(project, "new", MID_FEBRUARY)
    report = purge(primary, PurgeScope(created_before=MID_FEBRUARY))
    assert report.periods == []
    assert rows_of(report) == rows(sessions=1, messages=2, steps=2, calls=4, results=4)
    assert (report.bytes_freed, report.bytes_reusable > 1000) == (0, True)
    assert counts() == TWO_MESSAGES
    assert not wrong_counters()


def prompts(project: Project, name: str, *times: datetime) -> None:
    """Store a session with a run at each of these times, with the same prompt and separate conversations."""
    for number, at in enumerate(times):
        said = {
            "prompt_build": {"text": PLANTED},
            "llm_request_start": {"messages": [PLANTED, f"{PLANTED} {name} {number}"], "variables": {"n": number}},
            "tool_call_complete": {"call_id": "c", "name": "read", "result": PLANTED * 10_000},
        }
        documents = [
            {"session_id": name, "id": f"{name} {number} {type_}", "type": type_, "timestamp": at, "data": data,
             "message_id": f"{name} {number}"}
            for type_, data in said.items()
        ]  # fmt: skip
        record_events(
            primary, project.pk, [redact_event(msgspec.convert(one, records.Event), DEFAULT_RULES) for one in documents]
        )


def contexts_left() -> list[tuple[str, int, str]]:
    """Return the sessions, months and kinds of the stored contexts."""
    found = Context.objects.values_list("session__external_id", "id", "kind")
    return sorted((name, ids.created_at_of(id_).month, kind) for name, id_, kind in found)


def of_run(name: str, month: int) -> list[tuple[str, int, str]]:
    return [(name, month, kind) for kind in ("context", "entry", "entry", "prompt", "value")]


def judge(project: Project, name: str, created_at: datetime = LATER, **fields: Any) -> None:
    """Store a score with this name, about the session or message of this external id."""
    record = records.Score(name=name, value=1, comment=PLANTED, created_at=created_at, **fields)
    place = find_place(primary, project.pk, record) if not record.trace_id else ScoreTarget(trace_id=record.trace_id)
    store_scores(primary, project.pk, [PlacedScore(redacted=redact_score(record, DEFAULT_RULES), place=place)])


def scores_left() -> list[str]:
    return sorted(Score.with_deleted.values_list("name", flat=True))


def test_scores_are_removed_with_month_message_or_session(project: Project) -> None:
    for name, at in (("january", JANUARY), ("february", FEBRUARY), ("trash", MARCH), ("kept", MARCH)):
        tell(project, name, at)
        judge(project, f"of {name}", session_id=name)
        judge(project, f"in {name}", message_id=f"{name}-a")
    add(project, "february", MARCH)
    judge(project, "pending", JANUARY, trace_id="0af7651916cd43dd8448eb211c80319c")
    judge(project, "waiting", MARCH, trace_id="0af7651916cd43dd8448eb211c80319c")
    expired = PurgeScope(created_before=END_OF_JANUARY)
    assert rows_of(survey(primary, expired))["scores"] == 3
    assert rows_of(purge(primary, expired))["scores"] == 3
    assert scores_left() == ["in february", "in kept", "in trash", "of february", "of kept", "of trash", "waiting"]
    # A month that stays, because another project has messages in it.
    tell(Project.objects.create(slug="other"), "other", FEBRUARY)
    expired = PurgeScope(created_before=MARCH, project_ids=(project.pk,))
    assert rows_of(survey(primary, expired))["scores"] == 1
    assert rows_of(purge(primary, expired))["scores"] == 1
    delete_session(primary, Session.objects.get(external_id="trash").pk, by="test")
    delete_message(primary, Message.objects.get(external_id="kept-a").pk, by="test")
    trash = PurgeScope(deleted_before=timezone.now() + timedelta(days=3650))
    assert rows_of(survey(primary, trash))["scores"] == 3
    assert rows_of(purge(primary, trash))["scores"] == 3
    assert scores_left() == ["of february", "of kept", "waiting"]


def test_contexts_are_removed_with_month_message_or_session(project: Project) -> None:
    prompts(project, "long", JANUARY, FEBRUARY, MARCH)
    prompts(project, "trash", MARCH)
    assert contexts_left() == [*of_run("long", 1), *of_run("long", 2), *of_run("long", 3), *of_run("trash", 3)]
    assert rows_of(survey(primary, PurgeScope(created_before=MID_FEBRUARY)))["contexts"] == 10
    report = purge(primary, PurgeScope(created_before=END_OF_JANUARY))
    assert (report.periods, rows_of(report)["contexts"]) == (["2024-01"], 5)
    assert contexts_left() == [*of_run("long", 2), *of_run("long", 3), *of_run("trash", 3)]
    # In a month that stays.
    add(project, "long", MARCH, "third")
    assert rows_of(purge(primary, PurgeScope(created_before=MID_FEBRUARY)))["contexts"] == 5
    assert contexts_left() == [*of_run("long", 3), *of_run("trash", 3)]
    # An existing run gets its own context when the content is sent again.
    delete_session(primary, Session.objects.get(external_id="trash").pk, by="test")
    assert rows_of(purge(primary, PurgeScope(deleted_before=LATER + timedelta(days=3650))))["contexts"] == 5
    assert contexts_left() == of_run("long", 3)
    delete_message(primary, Message.objects.get(external_id="long 2").pk, by="test")
    purge(primary, PurgeScope(deleted_before=LATER + timedelta(days=3650)))
    assert places_of(PLANTED) == set()


def test_message_of_exactly_the_limit_stays(project: Project) -> None:
    tell(project, "just", MID_FEBRUARY - timedelta(microseconds=1))
    tell(project, "exact", MID_FEBRUARY)
    purge(primary, PurgeScope(created_before=MID_FEBRUARY))
    assert list(Session.objects.values_list("external_id", flat=True)) == ["exact"]
    assert Message.objects.count() == 2


def test_trashed_messages_and_sessions_expire_like_live_ones(project: Project) -> None:
    deleted = tell(project, "session in the trash", FEBRUARY)
    kept = tell(project, "message in the trash", FEBRUARY)
    assert deleted.id and kept.messages[0].id
    delete_session(primary, deleted.id, by="test")
    delete_message(primary, kept.messages[0].id, by="test")
    purge(primary, PurgeScope(created_before=MID_FEBRUARY))
    assert counts() == NOTHING


def test_session_with_newer_messages_stays_and_is_recounted(project: Project) -> None:
    began = tell(project, "long", JANUARY)
    add(project, "long", FEBRUARY, "second")
    add(project, "long", MARCH, "third")
    purge(primary, PurgeScope(created_before=MID_FEBRUARY))
    session = Session.objects.get(pk=began.id)
    left = (
        session.message_count,
        session.call_count,
        session.failure_count,
        session.input_tokens,
        session.output_tokens,
    )
    assert left == (1, 4, 1, 120, 30)
    assert not wrong_counters()
    purge(primary, PurgeScope(created_before=datetime(2024, 4, 1, tzinfo=UTC)))
    assert counts() == NOTHING


def test_session_younger_than_its_messages_is_recounted(project: Project) -> None:
    outcome = tell(project, "back-dated", JANUARY, begun=MARCH)
    assert purge(primary, PurgeScope(created_before=END_OF_JANUARY)).periods == ["2024-01"]
    session = Session.objects.get(pk=outcome.id)
    assert (session.message_count, session.call_count, session.output_tokens) == (0, 0, 0)


def test_old_session_without_messages_is_removed(project: Project) -> None:
    store(project, external_id="empty", created_at=JANUARY)
    store(project, external_id="new and empty", created_at=MARCH)
    assert rows_of(purge(primary, PurgeScope(created_before=MID_FEBRUARY)))["sessions"] == 1
    assert list(Session.objects.values_list("external_id", flat=True)) == ["new and empty"]


def test_days_are_dropped_beside_a_month_that_existed(project: Project, settings: Any) -> None:
    tell(project, "january 10", JANUARY)
    settings.TRACESITE_PARTITIONS = "DAY"
    forget()
    tell(project, "january 20", JANUARY.replace(day=20))
    for day in (10, 11, 12):
        tell(project, f"february {day}", FEBRUARY.replace(day=day))
    days = ["2024-02-10", "2024-02-11", "2024-02-12"]
    assert [str(period) for period in periods_of(primary, "messages_app_message")] == ["2024-01", *days]
    index_changed(primary, patience=timedelta(0))
    assert list(check_derived(primary)) == []
    project.retention_days = (timezone.now() - datetime(2024, 2, 12, tzinfo=UTC)).days
    project.retention_way = RetentionWay.WHOLE
    project.save()
    assert apply_retention(primary).periods == ["2024-01", *days[:2]]
    assert [session.external_id for session in Session.with_deleted.all()] == ["february 12"]
    assert list(check_derived(primary)) == []
    # A late sender of a dropped day is refused until the tombstones go, those of the month with its whole range.
    assert tell(project, "february 10", FEBRUARY).refused
    assert PurgedPeriod.objects.earliest("begin").period == Period.month(2024, 1)


def test_month_is_emptied_not_dropped_inside_a_transaction(project: Project) -> None:
    tell(project, "old", JANUARY)
    tell(project, "new", FEBRUARY)
    scope = PurgeScope(created_before=END_OF_JANUARY)
    with transaction.atomic():
        counted = survey(primary, scope)
        assert purge(primary, scope) == counted
    assert (counted.periods, rows_of(counted)["messages"]) == ([], 2)
    assert counts() == TWO_MESSAGES
    assert periods_of(primary, "messages_app_message") == [Period.month(2024, 1), Period.month(2024, 2)]


# --- By time in the trash -----------------------------------------------------------------------------------------


def test_trash_is_purged_only_after_its_retention(project: Project) -> None:
    old, new, live = (tell(project, name, FEBRUARY) for name in ("old", "new", "live"))
    assert old.id and new.id and live.messages[1].id
    for session_id in (old.id, new.id):
        delete_session(primary, session_id, by="test")
    delete_message(primary, live.messages[1].id, by="test")
    Session.with_deleted.filter(pk=old.id).update(deleted_at=MARCH)
    Message.with_deleted.filter(pk=live.messages[1].id).update(deleted_at=MARCH)
    report = purge(primary, PurgeScope(deleted_before=MARCH + timedelta(microseconds=1)))
    assert rows_of(report) == rows(sessions=1, messages=3, steps=4, calls=8, results=8)
    assert set(Session.with_deleted.values_list("external_id", flat=True)) == {"new", "live"}
    assert Message.with_deleted.count() == 3
    assert not wrong_counters()
    purge(primary, PurgeScope(deleted_before=MARCH))
    assert Message.with_deleted.count() == 3


def test_trashed_session_is_purged_with_newer_messages(project: Project) -> None:
    outcome = tell(project, "long", JANUARY)
    add(project, "long", MARCH)
    assert outcome.id
    delete_session(primary, outcome.id, by="test")
    purge(primary, PurgeScope(deleted_before=LATER + timedelta(days=3650)))
    assert counts() == NOTHING


# --- Of whom ------------------------------------------------------------------------------------------------------


def test_purge_of_project_removes_only_its_messages(project: Project, stranger: Project) -> None:
    tell(project, "ours", JANUARY)
    tell(stranger, "theirs", JANUARY)
    report = purge(primary, PurgeScope(created_before=MARCH, project_ids=(project.pk,)))
    assert report.periods == []
    assert rows_of(report)["messages"] == 2
    assert list(Session.objects.values_list("external_id", flat=True)) == ["theirs"]
    assert counts() == TWO_MESSAGES


def test_month_of_purged_projects_only_is_dropped(project: Project, stranger: Project) -> None:
    between = Project.objects.create(slug="between")
    third = Project.objects.create(slug="third")
    for name, owner, at in (("a", project, JANUARY), ("b", third, JANUARY), ("c", third, FEBRUARY), ("d", between, FEBRUARY)):  # fmt: skip
        tell(owner, name, at)
    tell(stranger, "later", MARCH)
    report = purge(primary, PurgeScope(created_before=MARCH, project_ids=(project.pk, third.pk)))
    assert report.periods == ["2024-01"]
    assert set(Session.objects.values_list("external_id", flat=True)) == {"d", "later"}


def test_month_with_late_foreign_message_is_kept(project: Project, stranger: Project) -> None:
    tell(project, "ours", JANUARY)
    with ThreadPoolExecutor(1) as threads, other_connection() as other:
        # A drop of the month waits for this lock, after it first checked whose rows are in it.
        other.execute("SELECT pg_advisory_lock(%s)", [0x7472_6163])
        purging = threads.submit(
            in_thread(lambda: purge(primary, PurgeScope(created_before=MARCH, project_ids=(project.pk,))))
        )
        wait_until(lambda: is_polling(other))
        tell(stranger, "theirs", JANUARY)
        other.execute("SELECT pg_advisory_unlock(%s)", [0x7472_6163])
        report = purging.result()
    assert report.periods == []
    assert list(Session.objects.values_list("external_id", flat=True)) == ["theirs"]
    assert counts() == TWO_MESSAGES


def is_polling(other: psycopg.Connection) -> bool:
    other.rollback()
    found = other.execute("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_try_advisory_lock%%'").fetchall()
    return bool(found)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited a minute"
        time.sleep(0.005)


def test_purge_of_session_removes_only_its_messages(project: Project) -> None:
    outcome = tell(project, "this", JANUARY)
    tell(project, "other", JANUARY)
    purge(primary, PurgeScope(created_before=MARCH, session_id=outcome.id))
    assert list(Session.objects.values_list("external_id", flat=True)) == ["other"]
    assert counts() == TWO_MESSAGES


# --- Leftovers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["month", "batches", "trashed session", "trashed message"])
def test_purged_message_leaves_no_rows(project: Project, way: str) -> None:
    secret_answer = answer(
        external_id=f"{PLANTED}-a",
        created_at=FEBRUARY,
        content=PLANTED,
        request_id=PLANTED,
        metadata={"note": PLANTED},
        knowledge_references=[{"id": PLANTED, "content": PLANTED}],
        agent_steps=[
            {
                "thought": PLANTED,
                "reasoning_content": PLANTED,
                "tool_calls": [
                    {"id": PLANTED, "name": "search", "args": {"q": PLANTED}, "result": {"output": PLANTED, "data": [PLANTED]}}
                ],
            }
        ],
    )  # fmt: skip
    outcome = store(project, secret_answer, external_id=f"{PLANTED}-session", title=PLANTED, created_at=FEBRUARY)
    message = Message.objects.get(pk=outcome.messages[0].id)
    below = [*message.steps.values_list("pk", flat=True), *message.calls.values_list("pk", flat=True)]
    assert len(below) == 2
    assert places_of(PLANTED) >= {"messages_app_message", "messages_app_session", "traces_app_toolresult"}
    scope = {
        "month": PurgeScope(created_before=MARCH),
        "batches": PurgeScope(created_before=MARCH, session_id=message.session_id),
        "trashed session": PurgeScope(deleted_before=LATER),
        "trashed message": PurgeScope(deleted_before=LATER),
    }[way]
    if way == "trashed session":
        delete_session(primary, message.session_id, by="test")
        Session.with_deleted.update(deleted_at=MARCH)
    if way == "trashed message":
        delete_message(primary, message.pk, by="test")
        Message.with_deleted.update(deleted_at=MARCH)
        Session.objects.update(title="", external_id="stays")
    purge(primary, scope)
    assert places_of(PLANTED, *below) == set()
    # The documented exceptions: a key is a digest and an id, a token and a seal are an id and an HMAC, until the month is purged.
    keys = set() if way == "trashed session" else {"messages_app_messagekey"}
    assert places_of(message.pk) == keys | {"messages_app_change"}
    assert places_of(message.session_id) == ({"messages_app_session"} if way == "trashed message" else set())
    assert list(Tool.objects.values_list("name", flat=True)) == ["search"]


@pytest.mark.parametrize("scope", [PurgeScope(created_before=MARCH), PurgeScope(created_before=MID_FEBRUARY)])
def test_request_for_purged_data_is_not_found(project: Project, scope: PurgeScope) -> None:
    outcome = tell(project, "gone", FEBRUARY)
    tell(project, "stays", MARCH)
    message_id = outcome.messages[1].id
    call_id = ToolCall.objects.filter(message=message_id, parent__isnull=False).get().pk
    _key, token = create_key(project, "test", ["read", "write", "delete"])
    client = Client(headers={"Authorization": f"Bearer {token}"})
    named = [
        f"chains/{message_id}/",
        f"messages/{message_id}/",
        f"tool-calls/{call_id}/",
        f"sessions/{outcome.id}/",
        f"sessions/{outcome.id}/messages/",
    ]
    assert [client.get(f"/api/v1/{path}").status_code for path in named] == [200] * 5
    purge(primary, scope)
    assert [client.get(f"/api/v1/{path}").status_code for path in named] == [404] * 5
    assert client.patch(f"/api/v1/messages/{message_id}/", {"version": 1}, "application/json").status_code == 404
    assert client.delete(f"/api/v1/messages/{message_id}/").status_code == 404
    for path, rows in (("chains/", 1), ("messages/", 2), ("tool-calls/", 4), ("sessions/", 1), ("tools/", 3)):
        assert len(client.get(f"/api/v1/{path}").json()["results"]) == rows
    assert Tool.objects.get(name="get_weather").calls.count() == 2


@pytest.mark.parametrize("until", [MARCH, MID_FEBRUARY])
def test_purged_data_cannot_return_for_thirty_days(project: Project, until: datetime) -> None:
    def send() -> list[tuple[str | None, list[str | None]]]:
        outcomes = [tell(project, "gone", FEBRUARY), tell(project, "goes on", FEBRUARY)]
        return [(outcome.refused, [message.refused for message in outcome.messages]) for outcome in outcomes]

    send()
    add(project, "goes on", MARCH)
    purge(primary, PurgeScope(created_before=until), now=LATER)
    refused = [
        ("session_purged", ["session_purged", "session_purged"]),
        (None, ["message_purged", "message_purged"]),
    ]
    assert send() == refused
    report = purge(primary, PurgeScope(created_before=until), now=LATER + timedelta(days=30))
    assert (report.tombstones_forgotten, send()) == (0, refused)
    report = purge(primary, PurgeScope(created_before=until), now=LATER + timedelta(days=30, microseconds=1))
    # The four keys; the session by its id and by its external id.
    assert report.tombstones_forgotten == 6
    assert (PurgedPeriod.objects.count(), SessionTombstone.objects.count()) == (0, 0)
    assert MessageKey.objects.count() == 1
    assert send() == [(None, [None, None]), (None, [None, None])]


def test_keys_of_later_messages_of_purged_month_are_kept(project: Project) -> None:
    tell(project, "old", JANUARY)
    purge(primary, PurgeScope(created_before=END_OF_JANUARY), now=LATER)
    tell(project, "late", JANUARY)
    later = purge(primary, PurgeScope(created_before=datetime(2023, 1, 1, tzinfo=UTC)), now=LATER + timedelta(days=31))
    assert later.tombstones_forgotten == 4
    assert sorted(MessageKey.objects.values_list("message_id", flat=True)) == sorted(
        Message.objects.values_list("pk", flat=True)
    )


def test_session_that_is_being_purged_cannot_be_restored(project: Project) -> None:
    outcome = tell(project, "half", FEBRUARY)
    assert outcome.id
    delete_session(primary, outcome.id, by="test")
    with ThreadPoolExecutor(1) as threads, other_connection() as other:
        # A lock on its messages makes the purge wait between the tombstone and the first batch.
        other.execute("SELECT 1 FROM messages_app_message FOR UPDATE")
        purging = threads.submit(
            in_thread(lambda: purge(primary, PurgeScope(deleted_before=LATER + timedelta(days=3650))))
        )
        wait_until(lambda: SessionTombstone.objects.count() == 2)
        with pytest.raises(NotFound):
            restore_session(primary, outcome.id)
        other.rollback()
        purging.result()
    assert counts() == NOTHING


# --- In batches, and beside others --------------------------------------------------------------------------------


def test_messages_are_purged_a_thousand_at_a_time(project: Project) -> None:
    many(project, 300, FEBRUARY)
    told: list[int] = []
    with CaptureQueriesContext(
        connection,
    ) as queries:
        purge(primary, PurgeScope(created_before=MID_FEBRUARY), progress=told.append)
    assert told == [1000, 200]
    deletes = [query for query in queries.captured_queries if "DELETE FROM messages_app_message " in query["sql"]]
    assert len(deletes) == 2
    assert counts() == NOTHING


def test_dry_run_counts_what_a_run_removes_and_changes_nothing(project: Project, stranger: Project) -> None:
    for name, owner, at in (("a", project, JANUARY), ("b", stranger, FEBRUARY), ("c", project, MARCH)):
        tell(owner, name, at)
    add(project, "a", MARCH)
    trashed = tell(project, "trashed", MARCH)
    assert trashed.id
    delete_session(primary, trashed.id, by="test")
    delete_message(primary, Message.objects.filter(session__external_id="c").latest("pk").pk, by="test")
    for scope in (
        PurgeScope(created_before=MID_FEBRUARY, project_ids=(project.pk,)),
        PurgeScope(deleted_before=LATER + timedelta(days=3650), session_id=trashed.id),
        PurgeScope(created_before=MID_FEBRUARY, deleted_before=LATER + timedelta(days=3650)),
    ):
        before = counts()
        counted = survey(primary, scope)
        assert counts() == before
        assert purge(primary, scope) == counted
    assert counts() == {"Session": 2, "Message": 2, "AgentStep": 2, "ToolCall": 4, "ToolResult": 4}
    assert not wrong_counters()


def test_two_concurrent_purges_end_like_one(project: Project) -> None:
    many(project, 200, JANUARY)
    many(project, 300, FEBRUARY, "next")
    tell(project, "stays", MARCH)
    with ThreadPoolExecutor(2) as threads:
        purging = [
            threads.submit(in_thread(lambda: purge(primary, PurgeScope(created_before=MID_FEBRUARY)))) for _ in range(2)
        ]
        reports = [future.result() for future in purging]
    assert sum(rows_of(report)["sessions"] for report in reports) == 500
    assert sum(rows_of(report)["messages"] for report in reports) == 2000
    assert sorted(month for report in reports for month in report.periods) == ["2024-01"]
    assert counts() == TWO_MESSAGES


def test_ingest_continues_during_a_purge(project: Project) -> None:
    many(project, 300, JANUARY)
    many(project, 400, FEBRUARY, "next")
    done = False

    def send() -> int:
        number = 0
        while not done or number < 20:
            number += 1
            # Also into months that are being dropped: acknowledged data stays or is refused.
            outcome = tell(project, f"live-{number}", MARCH)
            assert [message.state for message in outcome.messages] == ["created", "created"]
        return number

    with ThreadPoolExecutor(2) as threads:
        sending = [threads.submit(in_thread(send))]
        try:
            purge(primary, PurgeScope(created_before=MID_FEBRUARY))
        finally:
            done = True
        sent = sending[0].result()
    assert counts() == {"Session": sent, "Message": 2 * sent, "AgentStep": 2 * sent, "ToolCall": 4 * sent, "ToolResult": 4 * sent}  # fmt: skip
    assert not wrong_counters()


def test_write_during_drop_creates_the_month_again(project: Project) -> None:
    with ThreadPoolExecutor(1) as threads:
        for number in range(5):
            tell(project, f"old-{number}", JANUARY)
            purging = threads.submit(in_thread(lambda: purge(primary, PurgeScope(created_before=END_OF_JANUARY))))
            outcome = tell(project, f"at once-{number}", JANUARY, begun=MARCH)
            purging.result()
            assert [message.state for message in outcome.messages] == ["created", "created"]
            assert not wrong_counters()
    purge(primary, PurgeScope(created_before=END_OF_JANUARY))
    assert not wrong_counters()
    assert {name: counts()[name] for name in ("Message", "ToolCall")} == {"Message": 0, "ToolCall": 0}


# --- Being cut off ------------------------------------------------------------------------------------------------


def test_killed_purge_is_completed_by_the_next(project: Project) -> None:
    many(project, 300, FEBRUARY)
    trashed = tell(project, "trashed", MARCH)
    assert trashed.id
    delete_session(primary, trashed.id, by="test")
    Session.with_deleted.filter(pk=trashed.id).update(deleted_at=MARCH)
    began = tell(project, "goes on", FEBRUARY)
    add(project, "goes on", MARCH)
    arguments = ("--older-than", "2024-02-15", "--deleted-longer-than", "2024-04-01", "--yes")
    with other_connection() as other:
        # The third batch waits for this row, so that the kill comes between two batches.
        last = Message.objects.filter(created_at__lt=MID_FEBRUARY).latest("pk")
        other.execute("SELECT 1 FROM messages_app_message WHERE id = %s FOR UPDATE", [last.pk])
        process = forked.command("purge", *arguments)
        wait_until(lambda: Message.with_deleted.count() <= 203 or not process.is_alive())
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    assert Message.with_deleted.count() == 203
    assert not wrong_counters()
    call_command("purge", *arguments, stdout=StringIO())
    assert counts() == {"Session": 1, "Message": 1, "AgentStep": 2, "ToolCall": 4, "ToolResult": 4}
    assert not wrong_counters()
    assert Session.objects.get().pk == began.id
    # 300 sessions of four messages, and two of the session that continues; trashed messages are removed with their keys.
    assert MessageKey.objects.filter(purged_at__isnull=False).count() == 1202
    assert SessionTombstone.objects.count() == 2 * 301


def test_purge_killed_during_drop_is_completed_by_next(project: Project) -> None:
    tell(project, "old", JANUARY)
    tell(project, "stays", MARCH)
    with other_connection() as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM messages_app_message")
        process = forked.command("purge", "--older-than", "2024-02-01", "--yes")
        wait_until(lambda: Message.objects.count() == 2)
        process.kill()
        process.join()
        assert reader.execute("SELECT count(*) FROM messages_app_message").fetchone() == (4,)
    assert counts()["Session"] == 2
    assert purge(primary, PurgeScope(created_before=END_OF_JANUARY)).periods == ["2024-01"]
    assert counts() == TWO_MESSAGES
    assert not wrong_counters()


def test_rows_hidden_by_killed_purge_return_with_another(project: Project) -> None:
    tell(project, "old", JANUARY)
    with other_connection() as reader:
        reader.execute("SELECT count(*) FROM messages_app_message")
        with pytest.raises(PeriodInUse):
            purge(primary, PurgeScope(created_before=END_OF_JANUARY), patience=0)
        assert Message.objects.count() == 0
    purge(primary, PurgeScope(created_before=datetime(2024, 1, 1, tzinfo=UTC)))
    assert counts() == TWO_MESSAGES


# --- The command --------------------------------------------------------------------------------------------------


def run_command(*arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command("purge", *arguments, stdout=out, **options)
    return out.getvalue()


def test_unknown_project_names_at_most_ten_projects(db: None) -> None:
    with pytest.raises(
        CommandError, match="There is no project 'nobody'. There are no projects yet; create one with: "
    ):
        run_command("--older-than", "1", "--project", "nobody")
    Project.objects.bulk_create(Project(slug=f"project-{number:02}") for number in range(11))
    with pytest.raises(CommandError) as refused:
        run_command("--older-than", "1", "--project", "nobody")
    named = ", ".join(f"project-{number:02}" for number in range(10))
    assert str(refused.value) == f"There is no project 'nobody'. Existing projects: {named}, ..."


def test_purge_command_removes_and_reports(project: Project) -> None:
    tell(project, "old", JANUARY)
    tell(project, "newer", FEBRUARY)
    assert run_command("--older-than", "2024-02-15T00:00:00+08:00", "--project", "owner", "--yes").splitlines()[:7] == [
        "Removed what was made before 2024-02-14T16:00:00Z in project owner:",
        "  whole periods: 2024-01",
        "  sessions   2",
        "  messages   4",
        "  steps      4",
        "  calls      8",
        "  results    8",
    ]
    assert run_command(older_than="2024-02-15", project="owner", yes=True).splitlines()[1:] == ["  nothing"]


def test_json_report_is_one_object(project: Project) -> None:
    tell(project, "old", JANUARY)
    outcome = tell(project, "newer", FEBRUARY)
    report = json.loads(run_command("--older-than", "2024-02-15", "--json", "--dry-run"))
    assert counts()["Message"] == 4
    assert json.loads(run_command("--older-than", "2024-02-15", "--json", "--yes")) == {**report, "dry_run": False}
    freed, reusable = report.pop("bytes_freed"), report.pop("bytes_reusable")
    tables = report.pop("tables")
    assert report == {
        "dry_run": True,
        "is_complete": True,
        "policy": False,
        "older_than": "2024-02-15T00:00:00.000000Z",
        "deleted_longer_than": None,
        "projects": None,
        "session": None,
        "periods": ["2024-01"],
        "tombstones_forgotten": 0,
    }
    assert {name: (table["rows"], table["is_estimate"]) for name, table in tables.items()} == {
        "sessions": (2, False),
        "messages": (4, False),
        "references": (0, False),
        "steps": (4, False),
        "calls": (8, False),
        "results": (8, False),
        "events": (0, False),
        "contexts": (0, False),
        "spans": (0, False),
        "scores": (0, False),
        "search index": (0, False),
        "vectors": (0, False),
        "patterns of errors": (0, False),
        "seals": (0, False),
        "snapshots": (0, False),
    }
    assert (freed, reusable) == tuple(sum(table[name] for table in tables.values()) for name in ("bytes_freed", "bytes_reusable"))  # fmt: skip
    answer_ = json.loads(run_command("--older-than", "0", "--session", "newer", "--json", "--yes", "--project", "owner") or "null")  # fmt: skip
    assert answer_ is None, f"{outcome.id} is already purged"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Choose what to purge: --policy"),
        (("--session", "weather"), "Choose what to purge: --policy"),
        (("--older-than", "yesterday"), "--older-than yesterday: use a number of days, a date such as 2026-01-31"),
        (("--older-than", "2024-02-30"), "--older-than 2024-02-30: use a number of days"),
        (("--older-than", "2024-02-03T10:00:00"), "--older-than 2024-02-03T10:00:00: use a number of days"),
        (("--deleted-longer-than", "2999-01-01"), "--deleted-longer-than 2999-01-01 is in the future"),
        (("--trash", "--deleted-longer-than", "1"), "Use either --trash or --deleted-longer-than."),
        (("--older-than", "1", "--project", "nobody"), "There is no project 'nobody'. Existing projects: owner"),
        (("--older-than", "1", "--session", "nothing"), "There is no session 'nothing'"),
        (("--older-than", "1", "--session", ""), "There is no session ''"),
        (("--older-than", "1", "--session", "twice"), "Several sessions have the external id 'twice': "),
        (("--older-than", "1"), "Confirmation needs a terminal. Use --yes"),
    ],
)
def test_purge_command_with_wrong_arguments_removes_nothing(
    project: Project, stranger: Project, arguments: tuple[str, ...], said: str
) -> None:
    tell(project, "twice", JANUARY)
    tell(stranger, "twice", JANUARY)
    with pytest.raises(CommandError) as error:
        run_command(*arguments)
    assert str(error.value).startswith(said)
    assert error.value.returncode == 2
    assert counts()["Message"] == 4


def test_trash_argument_purges_after_the_days_of_the_setting(project: Project, settings: Any) -> None:
    keys = [tell(project, name, JANUARY).id for name in ("old", "new", "alive")]
    for key, days in zip(keys, (31, 29), strict=False):
        assert key is not None
        delete_session(primary, key, by="test")
        Session.with_deleted.filter(pk=key).update(deleted_at=timezone.now() - timedelta(days=days))
    run_command("--trash", "--yes")
    assert Session.with_deleted.count() == 3
    settings.TRACESITE_TRASH_DAYS = 30
    run_command("--trash", "--yes")
    assert set(Session.with_deleted.values_list("pk", flat=True)) == set(keys[1:])


def test_session_argument_takes_external_id_project_or_id(project: Project, stranger: Project) -> None:
    mine, theirs = tell(project, "twice", JANUARY), tell(stranger, "twice", JANUARY)
    run_command("--older-than", "30", "--session", "twice", "--project", "owner", "--yes")
    assert Session.objects.get().pk == theirs.id
    run_command("--older-than", "30", "--session", str(theirs.id), "--yes")
    assert counts() == NOTHING
    assert run_command("--older-than", "30", "--session", str(mine.id), "--yes") == ""


def test_old_date_and_huge_number_of_days_purge_nothing(project: Project) -> None:
    tell(project, "old", datetime(2000, 1, 1, tzinfo=UTC))
    for age in ("1970-01-01", "999999999", "0001-01-01"):
        assert run_command("--older-than", age, "--yes").splitlines()[1:] == ["  nothing"]


@pytest.mark.system
def test_purge_command_on_terminal_asks_for_confirmation(project: Project) -> None:
    tell(project, "old", JANUARY)
    for reply, status in (("no\n", 1), ("yes\n", 0)):
        master, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, 100))
        with subprocess.Popen(
            command("--older-than", "2024-02-15"), env=environment(), stdin=terminal, stdout=subprocess.PIPE, stderr=terminal
        ) as process:  # fmt: skip
            os.close(terminal)
            shown = read_until(master, b"Type yes to continue: ", process)
            assert b"This will remove what was made before" in shown
            assert b"messages   2" in shown
            assert counts()["Message"] == 2
            os.write(master, reply.encode())
            out, _err = process.communicate(timeout=60)
            progress = drained(master)
        assert process.returncode == status
        assert (b"Nothing was removed." in progress) == (status == 1)
        # The progress bar, on the terminal only.
        assert (b"messages/s" in progress) == (status == 0)
        assert b"messages/s" not in out
    assert counts() == NOTHING


def read_until(master: int, end: bytes, process: subprocess.Popen[bytes]) -> bytes:
    shown = b""
    while end not in shown:
        if not select.select([master], [], [], 60)[0]:
            process.kill()
            pytest.fail(f"{end!r} is not in {shown!r}")
        shown += os.read(master, 1000)
    return shown


def drained(master: int) -> bytes:
    shown = b""
    try:
        while chunk := os.read(master, 1000):
            shown += chunk
    except OSError:  # Linux's error for a closed other end
        pass
    finally:
        os.close(master)
    return shown


@pytest.mark.system
def test_purge_command_without_terminal_has_no_progress_bar(project: Project) -> None:
    tell(project, "old", JANUARY)
    done = subprocess.run(
        command("--older-than", "2024-02-15", "--yes"), env=environment(), check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout.startswith("Removed what was made before 2024-02-15T00:00:00Z in all projects:")


def test_spans_are_removed_with_a_message_of_their_trace(project: Project) -> None:
    traces = ("a" * 32, "b" * 32)
    start = int(FEBRUARY.timestamp() * 1_000_000_000)
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": '[{"role": "user", "content": "Hello"}]'}
    for trace in traces:
        record_spans(
            primary,
            project.pk,
            [SentSpan(trace_id=trace, span_id="c" * 16, start=start, end=start + 1, attributes=attributes)],
        )
    first = Message.objects.filter(request_id=traces[0]).earliest("pk")
    delete_message(primary, first.pk, by="test")
    scope = PurgeScope(deleted_before=LATER + timedelta(days=3650))
    assert rows_of(survey(primary, scope))["spans"] == 1
    assert rows_of(purge(primary, scope))["spans"] == 1
    assert [span.trace_id.hex for span in Span.objects.all()] == [traces[1]]
    # Spans that arrive later bring nothing back.
    outcome = record_spans(
        primary, project.pk, [SentSpan(trace_id=traces[0], span_id="d" * 16, start=start, end=start + 1)]
    )
    assert (outcome.accepted, outcome.refused, Span.objects.count()) == (0, 1, 1)
    assert purge(primary, PurgeScope(created_before=LATER)).periods
    assert not Span.objects.exists()
