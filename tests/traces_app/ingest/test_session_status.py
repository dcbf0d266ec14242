"""Status and problems of a session: they follow its messages unless the producer states a status."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.models import Message, Session
from tests.traces_app.conftest import NOON, answer, question, store
from tests.traces_app.events.test_store import send
from tests.traces_app.views.conftest import Caller
from tests.traces_app.views.conftest import owner as owner
from traces_app.maintenance.integrity import Tally, check


def status() -> str:
    (found,) = Session.objects.values_list("status", flat=True)
    return found


def run(external_id: str, minute: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "external_id": external_id,
        "role": "assistant",
        "content": "Done.",
        "created_at": NOON + timedelta(minutes=minute),
        **fields,
    }


# --- Status ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["live", "import"])
def test_session_of_complete_messages_is_completed(project: Project, source: str) -> None:
    store(project, question(), answer(), source=source)
    assert status() == "completed"
    assert list(check(primary, tally=Tally())) == []


def test_open_message_makes_session_running_until_it_ends(project: Project) -> None:
    store(project, question(), run("a1", is_completed=False))
    assert status() == "running"
    store(project, run("a1"))
    assert status() == "completed"
    assert list(check(primary, tally=Tally())) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_at_once", [True, False])
def test_status_follows_last_run(project: Project, is_at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_at_once:
        monkeypatch.setattr("traces_app.ingest.store._look_new", lambda *_args: False)
    store(project, run("a2", 2, error="It broke."))
    assert status() == "error"
    store(project, run("a1", 1))
    assert status() == "error", "an earlier run that comes late is not the last one"
    store(project, run("a3", 3), question(external_id="q4", created_at=NOON + timedelta(minutes=4), error="Odd."))
    assert status() == "completed"
    store(project, run("a3", 3, error="Late news."))
    assert status() == "error"


def test_patch_that_completes_last_message_completes_session(project: Project, owner: Caller) -> None:
    outcome = store(project, question(), run("a1", is_completed=False))
    answer_ = owner.patch(
        f"sessions/{outcome.id}/messages/{outcome.messages[1].id}/", {"is_completed": True}, if_match='"1"'
    )
    assert (answer_.status, status()) == (200, "completed")


def test_post_of_message_changes_status(project: Project, owner: Caller) -> None:
    assert owner.post("sessions/", {"external_id": "s"}).json["status"] == "running"
    body = {"external_id": "m", "role": "assistant", "is_completed": False}
    assert owner.post("sessions/s/messages/", body).status == 201
    assert status() == "running"
    assert owner.post("sessions/s/messages/", {**body, "is_completed": True, "error": "No."}).status in (200, 201)
    assert status() == "error"


@pytest.mark.parametrize("word", ["running", "paused", "aborted", "planning", "error"])
def test_explicit_status_stays(project: Project, word: str) -> None:
    store(project, run("a1", is_completed=False), status=word)
    store(project, run("a1"))
    store(project, run("a2", 2))
    assert status() == word


def test_status_of_null_follows_messages_again(project: Project, owner: Caller) -> None:
    store(project, question(), answer(), status="aborted")
    changed = owner.patch("sessions/weather/", {"status": None}).json
    assert (changed["status"], changed["status_is_explicit"]) == ("completed", False)
    changed = owner.patch("sessions/weather/", {"status": "paused"}).json
    assert (changed["status"], changed["status_is_explicit"]) == ("paused", True)


def test_status_survives_delete_and_restore(project: Project) -> None:
    outcome = store(project, run("a1"), run("a2", 2, error="It broke."), run("a3", 3, is_completed=False))
    ids = [message.id for message in outcome.messages]
    seen = [status()]
    for change in (
        lambda: writes.delete_message(primary, ids[2], by="ada"),  # type: ignore[arg-type]
        lambda: writes.delete_message(primary, ids[1], by="ada"),  # type: ignore[arg-type]
        lambda: writes.restore_message(primary, ids[1]),  # type: ignore[arg-type]
        lambda: writes.clear_session(primary, outcome.id, by="ada"),  # type: ignore[arg-type]
    ):
        change()
        seen.append(status())
        assert list(check(primary, tally=Tally())) == []
    assert seen == ["running", "error", "completed", "error", "completed"]


def test_events_of_two_runs_leave_session_running_until_both_end(project: Project) -> None:
    def event(run_: str, kind: str, second: int, **data: Any) -> dict[str, Any]:
        at = (NOON + timedelta(seconds=second)).isoformat()
        return {"session_id": "s", "message_id": run_, "type": kind, "timestamp": at, "data": data}

    send(project, event("one", "workflow_execute_start", 0), event("two", "workflow_execute_start", 1))
    send(project, event("one", "workflow_execute_complete", 2))
    assert status() == "running"
    send(project, event("two", "workflow_execute_complete", 3, error="It broke."))
    assert status() == "error"
    send(project, event("three", "workflow_execute_start", 4, status="paused"))
    assert status() == "paused"
    send(project, event("three", "workflow_execute_start", 5, status="running"))
    assert status() == "running"
    send(project, event("three", "workflow_execute_complete", 6))
    assert status() == "completed"


# --- Problems --------------------------------------------------------------------------------------------------------

CAUGHT = {"agent_steps": [{"thought": "Again.", "metadata": {"error": "RateLimitError: slow down"}}, {"thought": "ok"}]}
CALLED = {"agent_steps": [{"tool_calls": [{"name": "search", "result": {"output": "3 hits"}}]}]}


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({}, 0),
        ({"error": "It broke."}, 1),
        (CAUGHT, 1),
        ({**CAUGHT, "error": "It broke."}, 2),
        ({"agent_steps": [{"metadata": {"error": None}}, {"metadata": {"error": ""}}]}, 0),
        ({"agent_steps": [{"tool_calls": [{"name": "search", "result": {"error": "down"}}]}]}, 1),
    ],
)
def test_problems_are_counted_and_found(project: Project, owner: Caller, fields: dict[str, Any], problems: int) -> None:
    store(project, question(), run("a1", **fields))
    (session,) = owner.get("sessions/").results
    assert session["problem_count"] == problems
    words = ("true", "false") if problems else ("false", "true")
    for path, only in (("sessions/", {}), ("messages/", {"role": "assistant"})):
        assert [len(owner.get(path, has_errors=word, **only).results) for word in words] == [1, 0], path
    assert list(check(primary, tally=Tally())) == []


def test_chain_with_caught_model_error_is_found_and_a_success(project: Project, owner: Caller) -> None:
    steps = [*CALLED["agent_steps"], *CAUGHT["agent_steps"]]
    store(project, run("a1", agent_steps=steps), run("a2", 2, **CALLED))
    (chain,) = owner.get("chains/", has_errors="true").results
    assert (chain["external_id"], chain["success"]) == ("a1", True)
    assert [one["external_id"] for one in owner.get("chains/", has_errors="false").results] == ["a2"]


def test_model_error_in_events_is_counted(project: Project) -> None:
    def event(kind: str, second: int, **data: Any) -> dict[str, Any]:
        at = (NOON + timedelta(seconds=second)).isoformat()
        return {"session_id": "s", "message_id": "r", "type": kind, "timestamp": at, "data": data}

    send(project, event("workflow_execute_start", 0), event("llm_request_complete", 1, step="one", error="Too long."))
    send(project, event("llm_request_complete", 2, step="two", thought="Shorter."))
    assert Message.objects.get(role="assistant").model_error_count == 1
    send(project, event("llm_request_complete", 3, step="two", error="No."), event("workflow_execute_complete", 4))
    session = Session.objects.get()
    assert (session.problem_count, session.status) == (2, "completed")
    assert list(check(primary, tally=Tally())) == []


# --- Last activity ---------------------------------------------------------------------------------------------------


def test_last_activity_is_that_of_newest_message(project: Project) -> None:
    store(project, question(), run("a1", 5), source="import")
    assert Session.objects.get().active_at == NOON + timedelta(minutes=5)
    before = timezone.now()
    store(project, {"role": "assistant", "error": "Just now."})
    assert Session.objects.get().active_at >= before - timedelta(seconds=1)


def test_last_activity_of_events_is_their_time(project: Project) -> None:
    for second in (0, 30, 10):
        at = (NOON + timedelta(seconds=second)).isoformat()
        send(project, {"session_id": "s", "type": "prompt_build", "timestamp": at, "data": {"text": str(second)}})
    assert Session.objects.get().active_at == NOON + timedelta(seconds=30)


def test_time_in_future_is_not_last_activity(project: Project) -> None:
    store(project, run("a1", completed_at=timezone.now() + timedelta(days=400)))
    assert Session.objects.get().active_at <= timezone.now()


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("WHERE project_id = {project} AND problem_count > 0 ORDER BY id DESC LIMIT 20", "session_problems"),
        ("WHERE project_id = {project} AND status = 'error' ORDER BY id DESC LIMIT 20", "session_not_completed"),
        ("ORDER BY active_at DESC, id DESC LIMIT 20", "session_active"),
    ],
)
def test_list_of_rare_sessions_uses_its_index(project: Project, query: str, index: str) -> None:
    # In a table without rows every index costs the planner the same.
    Session.objects.bulk_create(
        Session(
            id=uuid4(),
            project=project,
            created_at=NOON,
            updated_at=NOON,
            external_id=str(number),
            said_status="error" if number % 500 == 0 else "completed",
            problem_count=int(number % 500 == 0),
        )
        for number in range(2_000)
    )
    with connection.cursor() as cursor:
        # Rows of earlier tests, which were rolled back, leave the indexes much larger than what they hold.
        cursor.execute("REINDEX TABLE messages_app_session; ANALYZE messages_app_session")
        cursor.execute("EXPLAIN SELECT id FROM messages_app_session " + query.format(project=project.id))
        assert index in " ".join(row[0] for row in cursor.fetchall())
