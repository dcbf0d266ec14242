"""Storing while others store, delete and purge: no deadlock, no partial write, no revival of purged rows."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, MessageKey, Session
from messages_app.sql.periods import Period
from messages_app.writes import delete_message, delete_session
from tests.traces_app.conftest import NOON, answer, question, session_of, store
from traces_app.ingest import id_cache
from traces_app.ingest import store as writes
from traces_app.ingest.pipeline import ingest
from traces_app.maintenance.integrity import Tally, check
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.models import AgentStep, Context, ToolCall, ToolResult
from tracesite_sdk.records import ids

TABLES = (Session, Message, AgentStep, ToolCall, ToolResult, MessageKey)

at_once_and_step_by_step = pytest.mark.parametrize("is_at_once", [True, False], ids=["at once", "step by step"])


def step_by_step(*_args: object) -> bool:
    """In place of writes._look_new."""
    return False


def in_threads(*actions: Callable[[], Any]) -> list[Any]:
    """Run the actions concurrently, each on its own connection."""
    barrier = Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:
        try:
            barrier.wait()
            return action()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


@pytest.mark.django_db(transaction=True)
def test_senders_of_the_same_batches_do_not_deadlock() -> None:
    project = Project.objects.create(slug="busy")
    sessions = [session_of(question(), answer(), external_id=f"s{n}") for n in range(10)]

    def send(seed: int) -> None:
        shuffled = list(sessions)
        random.Random(seed).shuffle(shuffled)
        for _ in range(5):
            ingest(primary, project.pk, shuffled)

    in_threads(*(lambda seed=seed: send(seed) for seed in range(4)))  # type: ignore[misc]

    assert (Session.objects.count(), Message.objects.count(), ToolCall.objects.count()) == (10, 20, 40)
    assert set(Session.objects.values_list("message_count", "call_count", "failure_count")) == {(2, 4, 1)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("table", ["messages_app_message", "traces_app_toolresult", "messages_app_session"])
@at_once_and_step_by_step
def test_failure_at_any_table_leaves_nothing(monkeypatch: pytest.MonkeyPatch, table: str, is_at_once: bool) -> None:
    if not is_at_once:
        monkeypatch.setattr(writes, "_look_new", step_by_step)
    project = Project.objects.create(slug="broken")
    store(project, question(), external_id="before")
    before = [model._base_manager.count() for model in TABLES]
    event = "INSERT OR UPDATE" if table == "messages_app_session" else "INSERT"
    with connection.cursor() as cursor:
        cursor.execute("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'disk on fire'; END$$")
        cursor.execute(f"CREATE TRIGGER fail BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION fail()")
    try:
        with pytest.raises(Exception, match="disk on fire"):
            store(project, question(), answer())
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION fail CASCADE")
    assert [model._base_manager.count() for model in TABLES] == before


@pytest.mark.django_db(transaction=True)
@at_once_and_step_by_step
def test_session_deleted_during_write_refuses_it(monkeypatch: pytest.MonkeyPatch, is_at_once: bool) -> None:
    if not is_at_once:
        monkeypatch.setattr(writes, "_look_new", step_by_step)
    project = Project.objects.create(slug="race")
    session = store(project, question()).id
    assert session is not None
    new_rows = writes._new_rows

    def rows_while_another_deletes(*args: Any) -> Any:
        if Session.objects.filter(pk=session).exists():
            in_threads(lambda: delete_session(primary, session, by="ada"))
        return new_rows(*args)

    monkeypatch.setattr(writes, "_new_rows", rows_while_another_deletes)
    outcome = store(project, *(answer(external_id=f"a{number}") for number in range(10)))
    assert (outcome.refused, {message.state for message in outcome.messages}) == ("session_deleted", {"refused"})
    assert Message.with_deleted.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("later", [timedelta(0), timedelta(seconds=5)], ids=["same time", "another time"])
def test_message_that_another_process_stored_is_merged(later: timedelta, caplog: pytest.LogCaptureFixture) -> None:
    """It looks new to this process and is written as such, but it exists: by its id, or only by its identity."""
    project = Project.objects.create(slug="merge")
    first = store(project, answer())
    id_cache._claimed.clear()
    again = store(project, answer(created_at=NOON + later, error="late"))
    assert [message.state for message in again.messages] == ["updated"]
    assert again.messages[0].id == first.messages[0].id
    stored = Message.objects.get()
    assert (stored.error, stored.call_count, stored.session.message_count) == ("late", 4, 1)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.django_db(transaction=True)
def test_cached_session_that_was_purged_is_looked_up_again() -> None:
    project = Project.objects.create(slug="gone")
    first = store(project, question(), external_id="s").id
    store(project, question(external_id="q2"), external_id="s")  # cached by now
    Message.with_deleted.all().delete()
    Session.with_deleted.filter(pk=first).delete()
    again = store(project, question(external_id="new"), external_id="s")
    assert again.created and again.id != first
    assert Session.objects.get().message_count == 1


@pytest.mark.django_db(transaction=True)
def test_month_dropped_by_another_process_is_created_again() -> None:
    project = Project.objects.create(slug="months")
    store(project, question())
    month = Period.of(NOON)
    leaves = [
        "traces_app_runvector",
        "traces_app_errorpattern",
        "traces_app_toolresult",
        "traces_app_toolcall",
        "traces_app_agentstep",
        "messages_app_reference",
        "messages_app_message",
    ]
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {', '.join(month.leaf(table) for table in leaves)}")
    assert store(project, answer(), external_id="after").messages[0].state == "created"
    assert store(project, question()).messages[0].refused == "message_purged"


@pytest.mark.django_db(transaction=True)
@at_once_and_step_by_step
def test_two_first_senders_of_a_session_share_one_row(monkeypatch: pytest.MonkeyPatch, is_at_once: bool) -> None:
    if not is_at_once:
        monkeypatch.setattr(writes, "_look_new", step_by_step)
    project = Project.objects.create(slug="first")
    outcomes = in_threads(*(lambda: store(project, question(), answer()) for _ in range(4)))
    assert len({outcome.id for outcome in outcomes}) == 1
    assert sum(outcome.created for outcome in outcomes) == 1
    assert (
        sorted(message.state for outcome in outcomes for message in outcome.messages)
        == ["created"] * 2 + ["unchanged"] * 6
    )


@pytest.mark.django_db(transaction=True)
@at_once_and_step_by_step
def test_one_id_sent_to_two_sessions_goes_to_one(monkeypatch: pytest.MonkeyPatch, is_at_once: bool) -> None:
    if not is_at_once:
        monkeypatch.setattr(writes, "_look_new", step_by_step)
    project = Project.objects.create(slug="ours")
    ours = ids.message_id(NOON, "user")
    # Too many rows for INSERT, so that COPY is used.
    batch = [question(id=str(ours)), *(question(external_id=f"other{number}") for number in range(110))]
    outcomes = in_threads(*(lambda name=name: store(project, *batch, external_id=name) for name in "abc"))  # type: ignore[misc]
    assert [message.state for outcome in outcomes for message in outcome.messages] == ["created"] * 3 * len(batch)
    assert [outcome.messages[0].id for outcome in outcomes].count(ours) == 1
    assert set(Session.objects.values_list("message_count", flat=True)) == {len(batch)}


@pytest.mark.django_db
def test_number_of_queries_does_not_grow_with_the_batch(project: Project) -> None:
    store(project, question(), answer(), external_id="warm")
    counts = []
    for size in (30, 60):  # too many rows for INSERT
        batch = [session_of(question(), answer(), external_id=f"{size}-{n}") for n in range(size)]
        with CaptureQueriesContext(connection) as captured:
            ingest(primary, project.pk, batch)
        counts.append(len(captured))
    assert counts[0] == counts[1]


@pytest.mark.django_db(transaction=True)
def test_purge_beside_senders_leaves_no_input_without_its_entries() -> None:
    project = Project.objects.create(slug="inputs")
    for first in range(3):
        store(project, question(external_id=f"first {first}"), external_id="busy")

    def asked(number: int) -> dict[str, Any]:
        # Every run refers to entries of other runs, and has one of its own.
        return {
            "messages": [*({"role": "user", "content": n} for n in range(number % 5)), {"content": f"own {number}"}]
        }

    def send(sender: int) -> None:
        for number in range(30):
            step = {"iteration": 0, "input": asked(number * 3 + sender)}
            store(project, answer(external_id=f"{sender} {number}", agent_steps=[step]), external_id="busy")
            message = Message.objects.get(external_id=f"{sender} {number}")
            if number % 3:
                delete_message(primary, message.pk, by="test")

    def remove() -> None:
        for _time in range(30):
            purge(primary, PurgeScope(deleted_before=timezone.now() + timedelta(days=1)))

    in_threads(lambda: send(0), lambda: send(1), remove)

    assert list(check(primary, tally=Tally())) == []
    purge(primary, PurgeScope(deleted_before=timezone.now() + timedelta(days=1)))
    left = Context.objects.filter(kind="input")
    assert left.count() == 20
    used = {entry for context in left for entry in context.entries}
    assert set(Context.objects.filter(kind="entry").values_list("pk", flat=True)) == used
