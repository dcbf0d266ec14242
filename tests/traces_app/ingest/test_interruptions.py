"""Interrupted runs: closed with a reason, and continued when their sender is back."""

from __future__ import annotations

from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone, translation

from access_app.db import primary
from access_app.models import Project
from messages_app import interruptions, writes
from messages_app.interruptions import NO_NEWS, PROCESS_ENDED, TEXTS
from messages_app.models import Message, Session
from tests.admin_pages import text_of
from tests.traces_app.conftest import NOON, answer, question, store
from tests.traces_app.events.test_store import send
from tests.traces_app.views.conftest import Caller
from tests.traces_app.views.conftest import owner as owner
from traces_app.maintenance.integrity import Tally, check
from traces_app.models import Event, Score, ToolCall
from tracesite_sdk.records import health_flags


def event(kind: str, second: float, **data: Any) -> dict[str, Any]:
    """Of the run "r" in the session "s"."""
    at = (NOON + timedelta(seconds=second)).isoformat()
    return {"session_id": "s", "message_id": "r", "type": kind, "timestamp": at, "data": data}


def start(second: float = 0, **data: Any) -> dict[str, Any]:
    return event("workflow_execute_start", second, prompt="Go", **data)


def call_begins(second: float) -> dict[str, Any]:
    return event("tool_call_start", second, uuid=f"call {second}", name="search", args={"q": 1})


def died(second: float, **data: Any) -> dict[str, Any]:
    return event("workflow_execute_complete", second, **{"interrupted": PROCESS_ENDED, **data})


def run() -> Message:
    return Message.objects.get(role="assistant")


def state() -> tuple[bool, str, list[str], str]:
    """Of the run and its session: completed, error, flags, status."""
    found = run()
    assert list(check(primary, tally=Tally())) == [] or ToolCall.objects.filter(status="pending").exists()
    return found.is_completed, found.error, found.health, Session.objects.get().status


OPEN = (False, "", [], "running")
KILLED = (True, TEXTS[PROCESS_ENDED], ["interrupted"], "aborted")
SILENT = (True, TEXTS[NO_NEWS], ["interrupted"], "aborted")


def test_flag_is_the_same_everywhere() -> None:
    assert interruptions.FLAG == health_flags.INTERRUPTED


# --- A process that died ---------------------------------------------------------------------------------------------


def test_run_of_dead_process_is_closed_with_reason(project: Project) -> None:
    send(project, start(), call_begins(1))
    assert state() == OPEN
    send(project, died(2))
    assert state() == KILLED
    assert run().completed_at is None, "nobody knows when it would have ended"
    assert run().metadata["interrupted"] == {"reason": "process_ended", "at": "2026-03-01T12:00:02.000000Z"}
    assert (Session.objects.get().problem_count, Session.objects.get().open_count) == (1, 0)


@pytest.mark.parametrize("at_once", [True, False])
def test_interruption_that_arrives_again_changes_nothing(project: Project, at_once: bool) -> None:
    events = [start(), died(2)]
    send(project, *events) if at_once else [send(project, one) for one in events]
    version = run().version
    assert [one.state for one in send(project, *events)] == ["duplicate", "duplicate"]
    assert [one.state for one in send(project, {**died(3), "id": "by another recorder"})] == ["stored"]
    assert (state(), run().version) == (KILLED, version)


def test_late_event_from_before_death_does_not_reopen(project: Project) -> None:
    send(project, start(), died(5))
    send(project, call_begins(3))
    assert state() == KILLED
    assert ToolCall.objects.count() == 1


def test_run_that_continues_in_another_process_stays_open(project: Project) -> None:
    send(project, start(), call_begins(6))
    send(project, died(5))
    assert state() == OPEN


def test_event_from_after_death_reopens_run(project: Project) -> None:
    send(project, start(), died(5))
    send(project, call_begins(6))
    assert state() == OPEN
    send(project, event("workflow_execute_complete", 7, result="Done."))
    assert state() == (True, "", [], "completed")
    assert (run().content, "interrupted" in run().metadata) == ("Done.", False)


def test_end_wins_over_interruption_in_any_order(project: Project) -> None:
    send(project, start(), died(5))
    send(project, event("workflow_execute_complete", 4, result="Done."))
    assert state() == (True, "", [], "completed")
    send(project, {**died(6), "id": "again"})
    assert state() == (True, "", [], "completed")


def test_run_with_other_open_attempt_stays_open(project: Project) -> None:
    send(project, start(0, attempt="a"), start(1, attempt="b"))
    send(project, died(5, attempt="a"))
    assert state() == OPEN
    send(project, {**died(6, attempt="b"), "id": "both"})
    assert state() == KILLED


def test_run_of_paused_session_stays_open(project: Project) -> None:
    send(project, start(), event("workflow_execute_start", 1, status="paused"))
    send(project, died(5))
    assert state() == (False, "", [], "paused")


def test_planning_of_dead_process_does_not_stay(project: Project) -> None:
    send(project, event("workflow_plan_start", 0, prompt="Go"))
    assert state()[3] == "planning"
    send(project, died(5))
    assert state() == KILLED


def test_own_error_of_run_is_kept(project: Project) -> None:
    store(
        project,
        {"external_id": "r", "role": "assistant", "is_completed": False, "error": "Out of disk."},
        external_id="s",
    )
    send(project, died(5))
    assert state() == (True, "Out of disk.", ["interrupted"], "aborted")
    assert Session.objects.get().problem_count == 1


# --- Silence ---------------------------------------------------------------------------------------------------------


def close(*arguments: str) -> str:
    out = StringIO()
    call_command("close_stale_runs", *arguments, stdout=out)
    return out.getvalue().strip()


def grow_old(hours: float = 25) -> None:
    """Set the time of the last change back."""
    then: datetime = timezone.now() - timedelta(hours=hours)
    Message.objects.update(updated_at=then)
    Event.objects.update(timestamp=then)


def test_stale_run_is_closed_and_young_one_is_not(project: Project) -> None:
    send(project, start())
    grow_old(23)
    assert close() == "Closed 0 runs without data for 24 hours."
    grow_old(25)
    assert close("--dry-run") == "Would close 1 run without data for 24 hours."
    assert state() == OPEN
    assert close() == "Closed 1 run without data for 24 hours."
    assert state() == SILENT
    assert close() == "Closed 0 runs without data for 24 hours."
    assert Event.objects.filter(level="warn", data__interrupted="no_news").count() == 1


def test_event_without_row_is_news(project: Project) -> None:
    send(project, start())
    grow_old()
    Event.objects.update(timestamp=timezone.now())
    assert close() == "Closed 0 runs without data for 24 hours."


def test_age_and_project_are_options(project: Project, stranger: Project) -> None:
    send(project, start())
    send(stranger, start())
    grow_old(3)
    assert close("--older-than", "4") == "Closed 0 runs without data for 4 hours."
    assert close("--older-than", "2.5", "--project", "stranger") == "Closed 1 run without data for 2.5 hours."
    assert list(Session.objects.order_by("project__slug").values_list("status", flat=True)) == ["running", "aborted"]
    for wrong in ("0", "soon", "-1", "nan"):
        with pytest.raises(CommandError, match="use a number of hours above 0"):
            close("--older-than", wrong)


def test_run_of_ingest_is_closed_and_completed_by_its_sender(project: Project) -> None:
    store(project, question(), answer(is_completed=False))
    grow_old()
    close()
    assert state() == SILENT
    more = [{"tool_calls": [{"name": "search", "args": {}, "result": {"output": "3 hits"}}]}]
    outcome = store(project, answer(agent_steps=[*answer()["agent_steps"], *more]))
    assert [message.refused for message in outcome.messages] == [None]
    assert state() == (True, "", [], "completed")
    assert run().call_count == 5


def test_open_snapshot_of_ingest_reopens_run(project: Project) -> None:
    store(project, question(), answer(is_completed=False))
    grow_old()
    close()
    store(project, answer(is_completed=False))
    assert state() == OPEN


def test_patch_with_steps_reopens_run(project: Project, owner: Caller) -> None:
    outcome = store(project, answer(is_completed=False))
    grow_old()
    close()
    url = f"sessions/{outcome.id}/messages/{outcome.messages[0].id}/"
    assert owner.patch(url, {"metadata": {"note": "odd"}}, if_match=f'"{run().version}"').status == 200
    assert state()[0], "a note says nothing of the run"
    steps = [{"tool_calls": [{"name": "search", "args": {}}]}]
    assert owner.patch(url, {"agent_steps": steps}, if_match=f'"{run().version}"').status == 200
    assert state() == OPEN
    assert owner.patch(url, {"is_completed": True}, if_match=f'"{run().version}"').status == 200
    assert state() == (True, "", [], "completed")


def test_events_of_sender_that_was_away_reopen_run(project: Project) -> None:
    send(project, start())
    grow_old()
    close()
    # Spooled offline, before the run was closed.
    send(project, call_begins(1))
    assert state() == OPEN
    grow_old()
    close()
    assert state() == SILENT, "it fell silent again"
    send(project, event("workflow_execute_complete", 7, result="Done."))
    assert state() == (True, "", [], "completed")


def test_question_that_was_left_open_is_closed_without_error(project: Project) -> None:
    store(project, question(is_completed=False))
    grow_old()
    close()
    assert Session.objects.values_list("status", "problem_count").get() == ("completed", 0)


def test_stale_run_of_paused_session_stays_open(project: Project) -> None:
    store(project, answer(is_completed=False), status="paused")
    grow_old()
    assert close() == "Closed 0 runs without data for 24 hours."


@pytest.mark.parametrize("said", ["", "running", "planning"])
def test_session_without_open_run_is_aborted_until_its_sender_is_back(
    project: Project, owner: Caller, staff: Client, said: str
) -> None:
    url = f"sessions/{owner.post('sessions/', {'external_id': 's'}).json['id']}/"
    if said:
        owner.patch(url, {"status": said})
    store(project, question(), external_id="done")
    Session.objects.update(active_at=timezone.now() - timedelta(hours=25), updated_at=timezone.now())
    assert close() == "Closed 0 runs without data for 24 hours.", "it was written to"
    Session.objects.update(updated_at=timezone.now() - timedelta(hours=25))
    assert close("--dry-run").splitlines()[1] == "Would close 1 session without an open run."
    assert close().splitlines()[1] == "Closed 1 session without an open run."
    found = owner.get(url).json
    assert (found["status"], found["status_reason"], found["status_is_explicit"]) == ("aborted", "no_news", False)
    assert "so it counts as aborted" in text_of(staff.get(f"/admin/messages_app/session/{found['id']}/change/"))
    store(project, answer(is_completed=False), external_id="s")
    found = owner.get(url).json
    assert (found["status"], found["status_reason"]) == (said or "running", None)
    store(project, answer(), external_id="s")
    assert owner.get(url).json["status"] == (said or "completed")
    assert Session.objects.get(external_id="done").status == "completed"


@pytest.mark.parametrize("reason", [PROCESS_ENDED, NO_NEWS])
def test_aborted_session_says_why_and_ends_with_a_later_run(project: Project, owner: Caller, reason: str) -> None:
    store(project, answer(is_completed=False), external_id="s")
    message = Message.objects.get()
    send(project, {**died(99, interrupted=reason), "message_id": str(message.pk)})
    url = f"sessions/{message.session_id}/"
    found = owner.get(url, fields="status,status_reason,status_is_explicit").json
    assert found == {"status": "aborted", "status_reason": reason, "status_is_explicit": False}
    assert owner.get("sessions/", status="aborted").json["results"][0]["id"] == str(message.session_id)
    earlier = {"external_id": "earlier", "role": "assistant", "created_at": message.created_at - timedelta(minutes=1)}
    store(project, earlier, external_id="s")
    assert owner.get(url).json["status"] == "aborted"
    store(project, {**earlier, "external_id": "later", "created_at": timezone.now()}, external_id="s")
    assert owner.get(url).json["status"] == "completed"
    writes.delete_message(primary, Message.objects.get(external_id="later").pk, by="ada")
    assert owner.get(url).json["status_reason"] == reason


# --- For people ------------------------------------------------------------------------------------------------------


def test_reason_is_shown_in_language_of_reader(project: Project) -> None:
    for text in TEXTS.values():
        assert interruptions.shown_error(text) == text
        with translation.override("zh-hans"):
            assert "运行" in interruptions.shown_error(text)
    with translation.override("zh-hans"):
        assert interruptions.shown_error("running") == "running", "what a producer wrote is not translated"


def test_score_of_an_interrupted_run_does_not_open_it(owner: Caller) -> None:
    owner.post("events/", [start(), died(5)])
    owner.post("events/", event("score", 60, name="helpful", value=False))
    assert state() == KILLED
    assert Score.objects.get().message == run()
