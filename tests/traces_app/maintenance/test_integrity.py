"""Tests of traces_app/maintenance/integrity.py and of the command: each kind of problem is planted once, and found."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F, Model
from django.test.utils import CaptureQueriesContext

from access_app.db import primary
from access_app.models import AuditAction, AuditEntry, Project
from messages_app.change_log import Reader, unread
from messages_app.models import Message, MessageKey, Reference, Session, message_key
from messages_app.sql.periods import Period
from messages_app.writes import delete_message, delete_session
from tests.traces_app.conftest import NOON, answer, question, store
from tests.traces_app.maintenance.seals.sealing import store_run
from traces_app.ingest.batch import SessionOutcome
from traces_app.ingest.partitions import TABLES
from traces_app.maintenance.derived import KINDS as KINDS_OF_DERIVED
from traces_app.maintenance.integrity import KINDS, Problem, Tally, check
from traces_app.maintenance.seals.sealing import seal_changed
from traces_app.maintenance.search_index import index_changed
from traces_app.models import (
    AgentStep,
    Context,
    Event,
    Score,
    SearchRows,
    SearchSegment,
    Tool,
    ToolCall,
    ToolResult,
)
from traces_app.queries.search.texts import unindexed
from tracesite_sdk.records import ids
from tracesite_sdk.transcripts.entries import Call, Prompt, Reply
from tracesite_sdk.transcripts.outline import session

pytestmark = pytest.mark.django_db


@pytest.fixture
def outcome(project: Project) -> SessionOutcome:
    return store(project, question(), answer())


def found(**scope: Any) -> list[tuple[str, str]]:
    """Return (kind, detail) of all problems."""
    return [(problem.kind, problem.detail) for problem in check(primary, tally=Tally(), **scope)]


def steps(project: Project, *said: dict[str, Any], **fields: Any) -> None:
    store(project, answer(external_id="a2", agent_steps=list(said), **fields))


def call(number: int) -> ToolCall:
    """Return one of the calls a to d of the standard answer."""
    return ToolCall.objects.get(call_id=f"call_{'abcd'[number]}")


def run_statement(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def leaf(table: str) -> str:
    return Period.of(NOON).leaf(table)


def test_stored_data_has_no_problems_deleted_or_not(project: Project, outcome: SessionOutcome) -> None:
    assert outcome.id and outcome.messages[1].id
    store(project, question(), answer(agent_steps=[]), external_id="no steps")
    store(
        project,
        answer(is_completed=False, agent_steps=[{"tool_calls": [{"name": "search", "args": {}}]}]),
        external_id="still running",
    )
    store(project, external_id="no messages")
    tally = Tally()
    assert list(check(primary, tally=tally)) == []
    assert tally == Tally(sessions=4, messages=5, steps=3, calls=5)
    delete_message(primary, outcome.messages[1].id, by="test")
    assert found() == []
    delete_session(primary, outcome.id, by="test")
    assert found() == []


@pytest.mark.parametrize(
    ("iterations", "problems"),
    [
        ([], []),
        ([0], []),
        ([0, 1, 2], []),
        ([1], [("iterations_missing", "iterations 0")]),
        ([0, 2], [("iterations_missing", "iterations 1")]),
        ([0, 4, 6], [("iterations_missing", "iterations 1-3, 5")]),
        ([0, 1, 1], [("iterations_repeated", "iterations 1")]),
        ([1, 1, 3], [("iterations_missing", "iterations 0, 2"), ("iterations_repeated", "iterations 1")]),
        ([0, 2**31 - 1], [("iterations_missing", "iterations 1-2147483646")]),
        (
            list(range(0, 50, 2)),
            [("iterations_missing", "iterations 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, and 14 more")],
        ),
    ],
)
def test_missing_and_repeated_iterations_are_reported(
    project: Project, iterations: list[int], problems: list[tuple[str, str]]
) -> None:
    steps(project, *({"id": f"s{place}", "iteration": number} for place, number in enumerate(iterations)))
    assert found() == problems


@pytest.mark.parametrize(
    ("agents", "problems"),
    [
        ([("main", 0), ("helper", 0), ("helper", 1), ("main", 1)], []),
        ([("main", 0), ("helper", 1), ("helper", 2), ("main", 3)], []),
        # A sub-agent within the iteration of the step that called it.
        ([("main", 0), ("main", 1), ("helper", 1), ("helper", 1), ("main", 2)], []),
        ([("main", 0), ("helper", 0), ("helper", 2)], [("iterations_missing", "iterations 1 of agent 2 of 2")]),
        ([("main", 0), ("main", 0), ("helper", 0)], [("iterations_repeated", "iterations 0 of agent 1 of 2")]),
    ],
)
def test_iterations_count_per_message_or_per_agent(
    project: Project, agents: list[tuple[str, int]], problems: list[tuple[str, str]]
) -> None:
    steps(project, *({"id": f"s{n}", "agent_name": name, "iteration": i} for n, (name, i) in enumerate(agents)))
    assert sorted(found()) == problems


def test_imported_answer_between_steps_is_no_gap(project: Project) -> None:
    steps(project, {"iteration": 0}, {"iteration": 2}, metadata={"answer_iteration": 1})
    assert found() == []
    Message.objects.update(metadata={"answer_iteration": "9" * 400})
    assert found() == [("iterations_missing", "iterations 1")]


def test_imported_turn_after_its_answer_has_no_gap() -> None:
    call = Call(id="c", name="search", args={})
    turn = [
        Prompt(id="0", role="user", content="?"),
        Reply(id="1", content=None, calls=[call]),
        Reply(id="2", content="So far."),
        Reply(id="3", content=None, calls=[call]),
    ]
    imported = session(turn, format_name="test", place=0)
    assert imported.messages is not None
    assert [step.iteration for step in imported.messages[1].agent_steps or ()] == [0, 2]
    assert imported.messages[1].metadata == {"answer_iteration": 1}


def test_calls_without_results_are_reported(outcome: SessionOutcome) -> None:
    ToolResult.objects.filter(call=call(0)).delete()
    assert found() == [("call_without_result", f"calls {call(0).pk}")]
    # A pending call has no result yet; on a completed message it will never have one.
    ToolCall.objects.filter(pk=call(0).pk).update(status="pending")
    assert found() == [("call_open", f"calls {call(0).pk}")]
    Message.objects.filter(role="assistant").update(is_completed=False, unpriced_count=0)
    Session.objects.update(open_count=1, unpriced_count=0)
    assert found() == []


def test_orphans_are_reported_only_by_a_full_check(project: Project, outcome: SessionOutcome) -> None:
    message_id = outcome.messages[1].id
    assert message_id
    result, below = ToolResult.objects.get(call__call_id="call_d"), ids.child_id(message_id, "elsewhere")
    run_statement(f"ALTER TABLE {leaf('traces_app_toolresult')} DROP CONSTRAINT {leaf('traces_app_toolresult')}_id_fk")
    run_statement("INSERT INTO traces_app_toolresult SELECT %s, output, data, error, metadata, attachments, raw, project_id "
                  "FROM traces_app_toolresult WHERE id = %s", below, result.pk)  # fmt: skip
    for table in ("traces_app_agentstep", "traces_app_toolcall"):
        run_statement(f"ALTER TABLE {leaf(table)} DROP CONSTRAINT {leaf(table)}_message_id_fk")
    lost = Message.objects.get(pk=message_id)
    Context.objects.create(
        id=ids.child_id(message_id, "context"), project=project, session_id=lost.session_id, message_id=message_id,
        ref="ctx_1", kind="prompt", length=1, size=1, content={}, created_at=NOON,
    )  # fmt: skip
    Score.objects.create(
        id=ids.session_id(NOON), project=project, session_id=lost.session_id, message=lost, name="helpful",
        kind="numeric", number=1, source="person", created_at=NOON, updated_at=NOON,
    )  # fmt: skip
    run_statement("DELETE FROM messages_app_message WHERE id = %s", lost.pk)
    assert found(project_id=project.pk) == [
        ("session_counts", "message_count 2, found 1; call_count 4, found 0; failure_count 1, found 0; "
         "problem_count 1, found 0; input_tokens 120, found 0; output_tokens 30, found 0; duration_ms 142, found 0; "
         "unpriced_count 1, found 0")
    ]  # fmt: skip
    kinds = [
        (problem.kind, problem.message_id) for problem in check(primary, tally=Tally()) if problem.session_id is None
    ]
    assert kinds == [("orphan_row", lost.pk)] * 7 + [("orphan_result", None), ("orphan_row", lost.pk)]
    store(project, answer(health=["orphan_result"]), external_id="flagged")
    assert ("orphan_result", "flagged on arrival") in found(project_id=project.pk)


def test_missing_steps_and_parents_of_calls_are_reported(project: Project, outcome: SessionOutcome) -> None:
    assert outcome.messages[1].id
    nowhere = ids.child_id(outcome.messages[1].id, "nowhere")
    ToolCall.objects.filter(pk=call(1).pk).update(step_id=nowhere)
    assert ("step_missing", f"calls {call(1).pk}") in found()
    ToolCall.objects.filter(pk=call(1).pk).update(step_id=call(0).step_id, parent_id=nowhere)
    assert ("parent_missing", f"calls {call(1).pk}") in found()
    ToolCall.objects.filter(pk=call(1).pk).update(parent_id=None)
    nested = {"name": "search", "args": {}, "parent": "nobody", "result": {"output": ""}}
    store(project, answer(agent_steps=[{"tool_calls": [nested]}]), external_id="unknown parent")
    assert found() == [("parent_missing", "flagged on arrival")]


def test_parent_cycles_are_reported(outcome: SessionOutcome) -> None:
    a, b, c, d = (call(number).pk for number in range(4))
    for child, parent in ((a, b), (b, a), (c, c), (d, a)):
        ToolCall.objects.filter(pk=child).update(parent_id=parent)
    circle = ", ".join(map(str, sorted([a, b, c])))
    assert ("parent_cycle", f"calls {circle}") in found()


def test_counts_that_disagree_are_reported(project: Project, outcome: SessionOutcome) -> None:
    Message.objects.filter(role="assistant").update(step_count=3, failure_count=0, duration_ms=None)
    Session.objects.update(message_count=F("message_count") + 1, output_tokens=0)
    problems = list(check(primary, tally=Tally(), session_id=outcome.id))
    assert problems == [
        Problem(
            kind="message_counts",
            session_id=outcome.id,
            message_id=outcome.messages[1].id,
            detail="step_count 3, found 2; failure_count 0, found 1; duration_ms None, found 142",
        ),
        Problem(
            kind="session_counts",
            session_id=outcome.id,
            message_id=None,
            detail="message_count 3, found 2; failure_count 1, found 0; problem_count 1, found 0; output_tokens 0, found 30; duration_ms 142, found 0",
        ),
    ]


def test_ids_with_another_time_are_reported(outcome: SessionOutcome) -> None:
    Message.objects.filter(role="assistant").update(created_at=NOON + timedelta(microseconds=1))
    Session.objects.update(created_at=NOON + timedelta(days=1))
    assert [problem for problem in found() if problem[0] == "time_differs"] == [
        ("time_differs", "the id of the message"),
        ("time_differs", "the id of the session"),
    ]
    Message.objects.filter(role="assistant").update(created_at=NOON)
    Message.objects.filter(role="user").update(role="assistant")
    elsewhere = ids.child_id(ids.message_id(NOON + timedelta(seconds=1), "assistant"), "step")
    AgentStep.objects.filter(iteration=1).update(id=elsewhere)
    ToolCall.objects.filter(call_id__in=["call_c", "call_d"]).update(step_id=elsewhere)
    assert [problem for problem in found() if problem[0] == "time_differs"] == [
        ("time_differs", "the id of the message"),
        ("time_differs", f"below the message: {elsewhere}"),
        ("time_differs", "the id of the session"),
    ]


def test_foreign_projects_and_lost_sessions_are_reported(
    project: Project, stranger: Project, outcome: SessionOutcome
) -> None:
    store(stranger, answer(), external_id="theirs")
    ToolCall.objects.filter(pk=ToolCall.objects.filter(project=project).earliest("pk").pk).update(
        tool=Tool.objects.filter(project=stranger).first()
    )
    assert [kind for kind, _detail in found()] == ["project_differs"]
    run_statement("DELETE FROM messages_app_session WHERE id = %s", outcome.id)
    assert {kind for kind, _detail in found(project_id=project.pk)} == {"session_missing", "project_differs"}
    assert found(project_id=stranger.pk) == []


@pytest.mark.parametrize("model", [Reference, AgentStep, ToolResult, Event, Context])
def test_rows_below_with_another_project_are_reported(model: type[Model], project: Project, stranger: Project) -> None:
    store_run(project)
    assert found() == []
    row = model._base_manager.filter(project=project).order_by("pk").last()
    assert row is not None
    model._base_manager.filter(pk=row.pk).update(project=stranger)
    word = {"AgentStep": "step", "ToolResult": "result"}.get(model.__name__, model.__name__.lower())
    assert found() == [("project_differs", f"{word} {row.pk}")]


def test_pages_are_read_in_a_bounded_number_of_queries(project: Project) -> None:
    for number in range(3):
        messages = [question(external_id=f"q{n}", created_at=NOON + timedelta(seconds=n)) for n in range(100)]
        store(project, *messages, external_id=f"s{number}")
    tally = Tally()
    with CaptureQueriesContext(connection) as queries:
        assert list(check(primary, tally=tally, project_id=project.pk)) == []
    assert tally == Tally(sessions=3, messages=300)
    reads = [query["sql"] for query in queries.captured_queries if "SAVEPOINT" not in query["sql"]]
    # A page of messages, their verdicts between two settings, and an empty page; a page of sessions with its counters, too.
    assert len(reads) == 1 + 3 + 1 + 2 + 1


# --- The command --------------------------------------------------------------------------------------------------


def run_command(*arguments: str) -> tuple[list[str], int]:
    """Run the command; return its lines and the exit status."""
    out = StringIO()
    try:
        call_command("check_traces", *arguments, stdout=out)
    except CommandError as error:
        return out.getvalue().splitlines(), error.returncode
    return out.getvalue().splitlines(), 0


def test_exit_status_depends_on_problems(outcome: SessionOutcome) -> None:
    whole = "Checked 1 session with 2 messages, 2 steps and 4 calls: no problems."
    assert run_command() == ([whole], 0)
    AgentStep.objects.filter(iteration=1).update(iteration=5)
    message_id = outcome.messages[1].id
    assert run_command() == (
        [
            f"iterations_missing: session {outcome.id} message {message_id} (iterations 1-4)",
            "Checked 1 session with 2 messages, 2 steps and 4 calls: 1 problem. iterations_missing: 1",
        ],
        1,
    )


def test_open_calls_are_notes_and_not_problems(outcome: SessionOutcome) -> None:
    ToolResult.objects.filter(call=call(0)).delete()
    ToolCall.objects.filter(pk=call(0).pk).update(status="pending")
    lines, status = run_command("--json")
    assert (json.loads(lines[0])["kind"], status) == ("call_open", 0)
    assert json.loads(lines[-1])["summary"]["notes"] == {"call_open": 1}
    assert run_command()[0][-1].endswith("4 calls: no problems. Notes: call_open: 1.")


def test_json_is_one_object_a_line_and_the_summary_last(outcome: SessionOutcome) -> None:
    AgentStep.objects.filter(iteration=1).update(iteration=0)
    lines, status = run_command("--json")
    assert status == 1
    assert [json.loads(line) for line in lines] == [
        {
            "kind": "iterations_repeated",
            "session_id": str(outcome.id),
            "message_id": str(outcome.messages[1].id),
            "detail": "iterations 0",
        },
        {
            "summary": {
                "sessions": 1,
                "messages": 2,
                "steps": 2,
                "calls": 4,
                "problems": 1,
                "kinds": {"iterations_repeated": 1},
                "notes": {},
                "mendable": 0,
                "mended": 0,
            }
        },
    ]


def test_only_the_named_project_or_session_is_checked(project: Project, stranger: Project) -> None:
    mine, theirs = (store(owner, question(), answer()) for owner in (project, stranger))
    AgentStep.objects.filter(message__project=stranger, iteration=1).update(iteration=5)
    assert run_command("--project", "owner")[1] == 0
    assert run_command("--project", "stranger")[1] == 1
    assert run_command("--session", str(mine.id))[1] == 0
    assert run_command("--session", str(theirs.id))[1] == 1
    assert run_command("--session", "weather", "--project", "stranger")[1] == 1
    for wrong in (["--session", "weather"], ["--session", "nothing"], ["--project", "nobody"]):
        assert run_command(*wrong) == ([], 2)


def test_report_holds_no_content(outcome: SessionOutcome) -> None:
    """All kinds at once; the output consists of ids, numbers and fixed texts."""
    AgentStep.objects.update(iteration=1, agent_name="\x1b[31mHOSTILE", thought="HOSTILE")
    ToolCall.objects.update(step_id=UUID(int=1), parent_id=UUID(int=2), call_id="HOSTILE", status="pending")
    Message.objects.update(step_count=99, external_id="HOSTILE", health=["HOSTILE", "orphan_result"])
    Session.objects.update(message_count=99, title="HOSTILE", external_id="HOSTILE")
    lines, _status = run_command()
    assert len(lines) > 6
    assert not [line for line in lines if "HOSTILE" in line or "\x1b" in line]


def test_help_names_every_kind_of_problem(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("check_traces", "--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert [kind for kind in (*KINDS, *KINDS_OF_DERIVED) if kind not in shown] == []
    assert "Exit status: 0 no problems, or all of them mended; 1 problems left" in shown


# --- What is derived from the rows ------------------------------------------------------------------------------------


def test_repair_mends_counters_keys_and_index(project: Project, outcome: SessionOutcome) -> None:
    empty = store(project, answer(external_id="no texts", content="", agent_steps=[]), external_id="other")
    index_changed(primary, patience=timedelta(0))
    asked, answered = (message.id for message in outcome.messages)
    assert run_command()[1] == 0, "a message without texts is not missing in the index"
    assert empty.messages[0].id
    SearchSegment.objects.all().delete()
    SearchRows.objects.all().delete()
    Message.objects.filter(pk=answered).update(call_count=7, input_tokens=1)
    Session.objects.filter(pk=outcome.id).update(message_count=5)
    MessageKey.objects.filter(message_id=asked).update(message_id=answered)
    stray = ids.message_id(NOON + timedelta(seconds=9), "user")
    MessageKey.objects.create(project=project, key=uuid4(), message_id=stray)
    seal_changed(primary, patience=timedelta(0))
    lines, status = run_command()
    said = f"session {outcome.id} message"
    assert (sorted(lines[:-2]), status) == (
        sorted(
            [
                f"key_missing: {said} {asked} (its key is that of message {answered})",
                f"key_stray: message {stray} (no such message)",
                f"message_counts: {said} {answered} (call_count 7, found 4; input_tokens 1, found 120)",
                f"not_indexed: {said} {asked} (has texts)",
                f"not_indexed: {said} {answered} (has texts)",
                f"session_counts: session {outcome.id} (message_count 5, found 2; call_count 4, found 7; input_tokens 120, found 1)",
            ]
        ),
        1,
    )
    assert lines[-1] == "--repair would mend 6 of them."
    MessageKey.objects.filter(message_id=answered, key=message_key(outcome.id, "q1")).delete()
    lines, status = run_command("--repair")
    assert (lines[1:], status) == (["Before that, 6 problems mended."], 0)
    assert store(project, question(), external_id="weather").messages[0].id == asked, "it is known by its key again"
    assert unindexed(primary) >= {asked, answered}
    written = unread(primary, Reader.SEALS).filter(message_id=answered).exclude(token=b"")
    assert written.exists(), "its row has changed"
    assert AuditEntry.objects.get(action=AuditAction.CHANGE, actor_name="check_traces").detail == {"mended": 6}


def test_repair_leaves_what_the_rows_do_not_answer(outcome: SessionOutcome) -> None:
    AgentStep.objects.filter(iteration=1).update(iteration=5)
    lines, status = run_command("--repair")
    assert (lines[0][:18], lines[-1], status) == ("iterations_missing", "Before that, 0 problems mended.", 1)


@pytest.mark.django_db(transaction=True)
def test_month_of_an_interrupted_drop_is_reported_and_settled(outcome: SessionOutcome) -> None:
    table = TABLES[0].name
    run_statement(f"ALTER TABLE {table} DETACH PARTITION {leaf(table)}")
    lines, status = run_command()
    assert ("month_hidden: (period 2026-03)" in lines, status) == (True, 1)
    lines, status = run_command("--repair")
    assert (lines[0], status) == ("Checked 1 session with 2 messages, 2 steps and 4 calls: no problems.", 0)


@pytest.mark.django_db(transaction=True)
def test_archive_that_lost_a_file_is_reported(outcome: SessionOutcome, tmp_path: Path) -> None:
    call_command("archive", "--older-than", "0", "--to", str(tmp_path), stdout=StringIO())
    assert run_command()[1] == 0
    (calls,) = (tmp_path / "calls").rglob("*.parquet")
    calls.unlink()
    (steps_,) = (tmp_path / "steps").rglob("*.parquet")
    steps_.write_bytes(b"short")
    place = f"archive_differs: ({tmp_path}, 2026-03 of owner: "
    lines, status = run_command()
    found = sorted(line for line in lines if line.startswith(place))
    assert [line.removeprefix(place) for line in found] == [
        f"calls/project=owner/period=2026-03/{calls.name} is missing)",
        f"steps/project=owner/period=2026-03/{steps_.name} has 5 bytes, not {steps_size(tmp_path)})",
    ]
    assert status == 1
    (tmp_path / "manifests" / "project=owner" / "period=2026-03.json").unlink()
    assert f"{place}no manifest)" in run_command()[0]


def steps_size(folder: Path) -> int:
    manifest = json.loads((folder / "manifests" / "project=owner" / "period=2026-03.json").read_text())
    size: int = manifest["tables"]["steps"]["bytes"]
    return size
