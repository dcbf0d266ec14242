"""Storing of messages: once, complete, merged when sent again, refused after a purge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta, timezone
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.timezone import now

from access_app.db import primary
from access_app.errors import Conflict, NotFound, PreconditionFailed
from access_app.models import Project
from messages_app.models import Message, MessageKey, Reference, Session, SessionTombstone, session_key
from messages_app.writes import delete_message, delete_session, restore_message, restore_session
from sdk.tests.growth import grows_linearly
from tests.traces_app.conftest import NOON, answer, question, session_of, store
from traces_app.ingest import decode
from traces_app.ingest.batch import MessageOutcome, SessionOutcome
from traces_app.ingest.changes import change_message
from traces_app.ingest.pipeline import ingest
from traces_app.models import AgentStep, Tool, ToolCall, ToolResult
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise_patch
from tracesite_sdk.normalize.redacted import redact_message_patch
from tracesite_sdk.records import ids
from tracesite_sdk.redaction.rules import DEFAULT_RULES

pytestmark = pytest.mark.django_db


def patch(project: Project, message_id: UUID, body: str, **fields: int) -> Message:
    change = redact_message_patch(normalise_patch(decode.decode_message_patch(body.encode())), DEFAULT_RULES)
    return change_message(primary, [project.pk], message_id, change, **fields)


def test_whole_run_is_stored_as_rows(project: Project) -> None:
    outcome = store(project, question(), answer())

    assert outcome == SessionOutcome(
        id=outcome.id,
        external_id="weather",
        created=True,
        messages=[
            MessageOutcome(id=outcome.messages[0].id, external_id="q1", state="created"),
            MessageOutcome(id=outcome.messages[1].id, external_id="a1", state="created"),
        ],
    )
    message = Message.objects.get(pk=outcome.messages[1].id)
    assert (message.created_at, message.version, message.request_id) == (NOON, 1, "req-1")
    assert (message.step_count, message.call_count, message.failure_count) == (2, 4, 1)
    assert (message.input_tokens, message.output_tokens, message.duration_ms) == (120, 30, 142)
    assert list(AgentStep.objects.values_list("iteration", "thought")) == [
        (0, "Ask for both cities at once."),
        (1, "Ask the researcher."),
    ]
    calls = ToolCall.objects.order_by("step__iteration", "position")
    assert list(calls.values_list("call_id", "tool__name", "args", "status", "duration_ms", "result__output")) == [
        ("call_a", "get_weather", {"city": "上海"}, "success", 40, "31 °C"),
        ("call_b", "get_weather", {"city": "Atlantis"}, "error", 12, ""),
        ("call_c", "ask_researcher", {"q": "Atlantis"}, "success", 90, "a myth"),
        ("call_d", "search", {"q": "Atlantis"}, "success", 60, "3 hits"),
    ]
    assert calls[3].parent == calls[2]
    assert ToolResult.objects.get(call=calls[0]).data == {"temp_c": 31}
    session = Session.objects.get()
    assert (session.status, session.message_count, session.call_count, session.failure_count) == ("completed", 2, 4, 1)
    assert (session.input_tokens, session.output_tokens, session.duration_ms) == (120, 30, 142)


def test_ids_are_in_reading_order_the_user_first_on_equal_times(project: Project) -> None:
    store(project, answer(), question(), question(external_id="q2", content="And?"))
    assert list(Message.objects.order_by("id").values_list("external_id", flat=True)) == ["q1", "q2", "a1"]


def test_ids_below_a_message_have_its_time(project: Project) -> None:
    outcome = store(project, answer(knowledge_references=[{"id": "chunk-1", "content": "Atlantis is a myth."}]))
    message_id = outcome.messages[0].id
    assert message_id is not None
    below = [
        pk
        for model in (Reference, AgentStep, ToolCall, ToolResult)
        for pk in model._default_manager.values_list("pk", flat=True)
    ]
    assert len(below) == 1 + 2 + 4 + 4
    assert all(ids.created_at_of(pk) == NOON for pk in [message_id, *below])


def test_sending_same_data_again_changes_nothing(project: Project) -> None:
    first = store(project, question(), answer())
    before = [
        list(model._default_manager.order_by("pk").values())
        for model in (Session, Message, AgentStep, ToolCall, ToolResult)
    ]
    second = store(project, question(), answer())
    after = [
        list(model._default_manager.order_by("pk").values())
        for model in (Session, Message, AgentStep, ToolCall, ToolResult)
    ]

    assert after == before
    assert [message.state for message in second.messages] == ["unchanged", "unchanged"]
    assert (second.created, [m.id for m in second.messages]) == (False, [m.id for m in first.messages])


def test_message_without_identity_is_new_each_time(project: Project) -> None:
    for _ in range(2):
        store(project, question(external_id=None))
    assert Message.objects.count() == 2
    assert not MessageKey.objects.exists()


def test_created_at_never_changes(project: Project) -> None:
    first = store(project, question(created_at=None))
    second = store(project, question(created_at=NOON))
    assert second.messages[0].id == first.messages[0].id
    assert Message.objects.get().created_at != NOON


def test_messages_without_times_keep_their_order(project: Project) -> None:
    store(project, *(question(external_id=f"q{i}", created_at=None) for i in range(50)))
    assert list(Message.objects.order_by("id").values_list("external_id", flat=True)) == [f"q{i}" for i in range(50)]


def test_messages_without_times_get_distinct_times_in_a_batch(project: Project) -> None:
    untimed = [question(external_id=f"q{i}", created_at=None) for i in range(3)]
    ingest(primary, project.pk, [session_of(*untimed, external_id=f"s{n}") for n in range(4)])
    assert len(set(Message.objects.values_list("created_at", flat=True))) == 12


def test_completed_message_may_be_corrected(project: Project) -> None:
    store(project, answer())
    corrected = answer(content="Better.")
    corrected["agent_steps"][0]["tool_calls"][0]["result"] = {"success": False, "error": "wrong city"}
    assert store(project, corrected).messages[0].state == "updated"
    message = Message.objects.get()
    assert (message.content, message.failure_count, message.version) == ("Better.", 2, 2)
    assert ToolResult.objects.get(call__call_id="call_a").error == "wrong city"


def test_late_earlier_snapshot_removes_nothing(project: Project) -> None:
    store(project, answer())
    early = answer(content="Shang", is_completed=False, agent_steps=[{"iteration": 0, "thought": "Ask"}])
    assert store(project, early).messages[0].state == "unchanged"
    assert Message.objects.get().content == answer()["content"]


def test_messages_of_one_instant_keep_the_order_of_their_batch(project: Project) -> None:
    store(project, *(question(external_id=f"q{i}") for i in range(50)))
    assert list(Message.objects.order_by("id").values_list("external_id", flat=True)) == [f"q{i}" for i in range(50)]


def test_message_twice_in_one_batch_is_stored_once(project: Project) -> None:
    half = answer(content="", is_completed=False, agent_steps=answer()["agent_steps"][:1])
    outcome = store(project, half, question(), answer())
    assert [message.state for message in outcome.messages] == ["created", "created", "updated"]
    assert outcome.messages[0].id == outcome.messages[2].id
    message = Message.objects.get(external_id="a1")
    assert (message.is_completed, message.step_count, message.call_count, message.content) == (
        True, 2, 4, "Shanghai 31 °C; there is no Atlantis."
    )  # fmt: skip
    assert Session.objects.get().call_count == 4


def test_own_id_is_kept_and_other_id_becomes_external_id(project: Project) -> None:
    ours = ids.message_id(NOON, "user")
    other = ids.message_id(NOON, "assistant")
    outcome = store(
        project,
        question(external_id=None, id=str(ours)),
        question(external_id=None, id=str(other)),
        question(external_id=None, id="msg-7"),
    )
    assert outcome.messages[0].id == ours
    assert outcome.messages[1].id != other
    assert set(Message.objects.values_list("external_id", flat=True)) == {"", str(other), "msg-7"}
    again = store(project, question(external_id=None, id=str(ours)), question(external_id=None, id=str(other)))
    assert [message.state for message in again.messages] == ["unchanged", "unchanged"]


@pytest.mark.parametrize("others", [0, 150], ids=["written at once", "written step by step"])
def test_messages_of_one_batch_with_one_id_are_one(project: Project, others: int) -> None:
    """The same as for single messages; in another session the id is taken."""
    ours = ids.message_id(NOON, "user")
    batch = [
        session_of(
            question(external_id="q1", id=str(ours)),
            question(external_id="q2", id=str(ours), request_id="req-2"),
            *(question(external_id=f"other{number}") for number in range(others)),
        ),
        session_of(question(external_id="q1", id=str(ours)), external_id="elsewhere"),
    ]
    for states in (["created", "updated"], ["unchanged", "unchanged"]):
        here, there = ingest(primary, project.pk, batch)
        assert [(message.id, message.state) for message in here.messages[:2]] == [(ours, state) for state in states]
        assert there.messages[0].id != ours
    assert Message.objects.get(pk=ours).request_id == "req-2"
    assert dict(Session.objects.values_list("external_id", "message_count")) == {"weather": 1 + others, "elsewhere": 1}


@pytest.mark.parametrize("written", [str, lambda id_: str(id_).upper()], ids=["as we write it", "in capitals"])
def test_sessions_of_one_batch_with_one_id_are_one(project: Project, written: Callable[[UUID], str]) -> None:
    """The same as for single sessions."""
    ours = ids.session_id(NOON)
    batch = [
        session_of(question(external_id="q1"), id=written(ours), external_id="first", created_at=NOON),
        session_of(question(external_id="q2"), id=str(ours), external_id="second", created_at=NOON),
    ]
    for _attempt in range(2):
        assert [(outcome.id, outcome.external_id) for outcome in ingest(primary, project.pk, batch)] == [
            (ours, "first")
        ] * 2
    assert list(Session.objects.values_list("id", "message_count")) == [(ours, 2)]


@pytest.mark.parametrize("offset", [timedelta(hours=23, minutes=59), -timedelta(hours=16)], ids=str)
def test_times_in_zones_unknown_to_postgresql_are_stored(project: Project, offset: timedelta) -> None:
    noon = NOON.astimezone(timezone(offset)).isoformat()
    call = {"name": "t", "started_at": noon, "completed_at": noon}
    store(
        project,
        answer(created_at=noon, completed_at=noon, agent_steps=[{"timestamp": noon, "tool_calls": [call]}]),
        answer(external_id="a2", is_completed=False, agent_steps=[]),
        created_at=noon,
    )
    store(project, answer(external_id="a2", completed_at=noon, agent_steps=[]))
    open_one = store(project, answer(external_id="a3", is_completed=False, agent_steps=[])).messages[0].id
    assert open_one is not None
    patch(project, open_one, json.dumps({"completed_at": noon}))
    assert set(Message.objects.values_list("created_at", "completed_at")) == {(NOON, NOON)}
    assert set(AgentStep.objects.values_list("timestamp", flat=True)) == {NOON}
    assert set(ToolCall.objects.values_list("started_at", "completed_at")) == {(NOON, NOON)}


def test_duration_gives_the_completion_of_a_message(project: Project) -> None:
    store(project, question(duration=1500), question(external_id="q2", duration=1500, is_completed=False))
    first, second = Message.objects.order_by("id")
    assert (first.completed_at, first.duration_ms) == (NOON + timedelta(seconds=1.5), 1500)
    assert (second.completed_at, second.duration_ms) == (None, None)


def test_computed_duration_sent_back_changes_nothing(project: Project) -> None:
    store(project, answer())
    assert Message.objects.get().duration_ms == 142
    assert store(project, answer(duration=142)).messages[0].state == "unchanged"


def test_id_of_foreign_session_is_neither_used_nor_revealed(project: Project, stranger: Project) -> None:
    taken = store(project, question(), created_at=NOON).id
    outcome = store(stranger, question(), id=str(taken), created_at=NOON)
    assert outcome.created
    assert outcome.id != taken
    assert outcome.messages[0].state == "created"
    unnamed = store(stranger, question(), id=str(taken), external_id="", created_at=NOON)
    assert (unnamed.created, unnamed.external_id) == (True, str(taken))


def test_id_of_foreign_message_gives_no_access_to_it(project: Project, stranger: Project) -> None:
    victim = store(project, question()).messages[0].id
    outcome = store(stranger, question(external_id=None, id=str(victim), content="mine now"))
    assert outcome.messages[0].id != victim
    assert Message.objects.get(pk=victim).content == question()["content"]


def test_running_message_accepts_steps_and_completion(project: Project) -> None:
    start = answer(content="", is_completed=False, usage=None)
    first, second = start["agent_steps"]
    pending = {**first, "tool_calls": [{**call, "result": None} for call in first["tool_calls"]]}
    store(project, {**start, "agent_steps": [pending]})
    message = Message.objects.get()
    assert (message.is_completed, message.call_count, message.failure_count) == (False, 2, 0)
    assert set(ToolCall.objects.values_list("status", flat=True)) == {"pending"}

    store(project, {**start, "agent_steps": [first]})
    assert Counter(ToolCall.objects.values_list("status", flat=True)) == {"success": 1, "error": 1}
    store(project, {**start, "agent_steps": [second]})
    outcome = store(project, answer())

    assert outcome.messages[0].state == "updated"
    message = Message.objects.get()
    assert (message.is_completed, message.step_count, message.call_count, message.failure_count) == (True, 2, 4, 1)
    assert message.completed_at is not None
    session = Session.objects.get()
    assert (session.message_count, session.call_count, session.failure_count, session.input_tokens) == (1, 4, 1, 120)


def test_completed_message_takes_no_new_steps_but_late_results(project: Project) -> None:
    open_call = {"id": "late", "name": "slow", "args": {}}
    store(project, answer(agent_steps=[{"iteration": 0, "tool_calls": [open_call]}]))
    refused = store(project, answer(agent_steps=[{"iteration": 1, "thought": "One more."}]))
    assert refused.messages[0] == MessageOutcome(
        id=refused.messages[0].id, external_id="a1", state="refused", refused="message_completed"
    )
    done = {**open_call, "result": {"output": "done"}}
    late = store(project, answer(agent_steps=[{"iteration": 0, "tool_calls": [done]}]))
    assert late.messages[0].state == "updated"
    assert list(ToolCall.objects.values_list("status", "result__output")) == [("success", "done")]


def test_import_may_grow_a_completed_message(project: Project) -> None:
    store(project, answer(agent_steps=answer()["agent_steps"][:1], content=""), source="import")
    grown = store(project, answer(), source="import")
    at_once = store(project, answer(), source="import", external_id="at once")
    assert grown.messages[0].state == "updated"
    columns = ("step_count", "call_count", "failure_count", "content", "duration_ms", "input_tokens", "is_completed")
    rows = Message.objects.values(*columns)
    assert rows.get(pk=grown.messages[0].id) == rows.get(pk=at_once.messages[0].id)
    assert set(Session.objects.values_list("status", flat=True)) == {"completed"}


def test_call_id_that_repeats_stays_several_calls(project: Project) -> None:
    call = {"id": "same", "name": "roll", "args": {}, "result": {"output": "6"}}
    steps = [{"tool_calls": [call, call]}, {"tool_calls": [call]}]
    for _ in range(2):
        store(project, answer(agent_steps=steps))
    assert list(ToolCall.objects.values_list("call_id", flat=True)) == ["same"] * 3
    assert list(AgentStep.objects.values_list("iteration", flat=True)) == [0, 1]


def test_result_is_matched_to_its_call_at_any_position(project: Project) -> None:
    calls = [{"id": name, "name": "search", "args": {}} for name in ("one", "two")]
    store(project, answer(is_completed=False, agent_steps=[{"iteration": 0, "tool_calls": calls}]))
    result = {"id": "two", "name": "search", "result": {"output": "found"}}
    store(project, answer(is_completed=False, agent_steps=[{"iteration": 0, "tool_calls": [result]}]))
    assert set(ToolCall.objects.values_list("call_id", "status")) == {("one", "pending"), ("two", "success")}


@pytest.mark.parametrize("parent", ["nobody", "self", "same"])
def test_impossible_parent_is_flagged_and_kept_as_data(project: Project, parent: str) -> None:
    calls = [
        {"uuid": "self", "name": "search", "args": {}, "parent": parent},
        {"id": "same", "name": "search", "args": {}},
        {"id": "same", "name": "search", "args": {}},
    ]
    store(project, answer(agent_steps=[{"tool_calls": calls}]))
    call = ToolCall.objects.exclude(call_id="same").get()
    assert (call.parent_id, call.metadata) == (None, {"parent": parent})
    assert Message.objects.get().health == ["parent_unknown"]


def test_circle_of_parents_is_cut(project: Project) -> None:
    calls = [
        {"uuid": "a", "name": "search", "args": {}, "parent": "b"},
        {"uuid": "b", "name": "search", "args": {}, "parent": "a"},
    ]
    store(project, answer(agent_steps=[{"tool_calls": calls}]))
    assert ToolCall.objects.filter(parent__isnull=False).count() == 1


def test_failure_always_has_a_reason(project: Project) -> None:
    results = [{"success": False}, {"status": "error", "output": "exit 1"}, {"error": {"code": 7}}]
    calls = [{"id": str(i), "name": "t", "args": {}, "result": result} for i, result in enumerate(results)]
    store(project, answer(agent_steps=[{"tool_calls": calls}]))
    assert list(ToolResult.objects.order_by("call__position").values_list("error", flat=True)) == [
        "The tool reported a failure and gave no reason.", "exit 1", '{"code":7}'
    ]  # fmt: skip
    assert set(ToolCall.objects.values_list("status", flat=True)) == {"error"}


@pytest.mark.parametrize(
    ("args", "stored"),
    [
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        ('{"city": "上海"}', {"city": "上海"}),
        ('{"q": "broken', {"_raw": '{"q": "broken'}),
        ("", {}),
        (None, {}),
        ([1, 2], {"_raw": [1, 2]}),
        (7, {"_raw": 7}),
        ({"big": 2**80}, {"big": 2**80}),
    ],
)
def test_arguments_are_an_object_for_every_reader(project: Project, args: object, stored: object) -> None:
    store(project, answer(agent_steps=[{"tool_calls": [{"name": "t", "args": args}]}]))
    assert ToolCall.objects.get().args == stored


def test_characters_postgresql_cannot_store_are_escaped(project: Project) -> None:
    store(
        project,
        answer(
            content="a\x00b",
            agent_steps=[
                {"tool_calls": [{"name": "t\x00", "args": {"k\x00": ["v\x00", 1]}, "result": {"output": "\ud800"}}]}
            ],
        ),
    )
    assert Message.objects.get().content == "a\\u0000b"
    assert ToolCall.objects.get().args == {"k\\u0000": ["v\\u0000", 1]}
    assert (Tool.objects.get().name, ToolResult.objects.get().output) == ("t\\u0000", "\\ud800")


def test_big_values_and_long_runs_are_stored_whole(project: Project) -> None:
    big = "长" * 2_000_000
    steps = [{"tool_calls": [{"name": "t", "args": {"n": n}} for n in range(5)]} for _ in range(50)]
    store(project, answer(content=big, agent_steps=steps))
    message = Message.objects.get()
    assert (message.content, message.step_count, message.call_count) == (big, 50, 250)


def test_secrets_are_taken_out_with_a_receipt(project: Project) -> None:
    call = {
        "name": "login",
        "args": {"user": "ada", "password": "hunter2"},
        "result": {"output": "ok", "data": {"token": "t0p5ecr3tx8y7"}},
    }
    store(project, answer(agent_steps=[{"tool_calls": [call]}], metadata={"headers": {"Authorization": "Bearer x1"}}))
    stored = ToolCall.objects.get()
    assert stored.args == {"user": "ada", "password": "[redacted]"}
    assert stored.result.data == {"token": "[redacted]"}
    message = Message.objects.get()
    assert message.metadata == {"headers": {"Authorization": "[redacted]"}}
    assert [receipt["path"] for receipt in message.redactions] == [
        "metadata.headers.Authorization",
        "agent_steps[0].tool_calls[0].result.data.token",
        "agent_steps[0].tool_calls[0].args.password",
    ]


def test_result_is_a_row_of_its_own_and_rewrites_no_content(project: Project) -> None:
    call = {"id": "c1", "name": "search", "args": {}}
    said = {"is_completed": False, "content": "long " * 10_000}
    store(project, answer(**said, agent_steps=[{"iteration": 0, "tool_calls": [call]}]))
    with CaptureQueriesContext(connection) as captured:
        store(project, answer(**said, agent_steps=[{"iteration": 0, "tool_calls": [{**call, "result": "hit"}]}]))
    writes = [query["sql"] for query in captured if query["sql"].startswith(("UPDATE", "INSERT"))]
    assert any(sql.startswith("INSERT INTO traces_app_toolresult") for sql in writes)
    assert not [sql for sql in writes if "messages_app_message" in sql and '"content" =' in sql]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint "
            "WHERE contype = 'f' AND conrelid::regclass::text ~ '_y2026m03$' ORDER BY 1"
        )
        assert cursor.fetchall() == [
            ("messages_app_reference_y2026m03", "messages_app_message_y2026m03"),
            ("traces_app_agentstep_y2026m03", "messages_app_message_y2026m03"),
            ("traces_app_errorpattern_y2026m03", "messages_app_message_y2026m03"),
            ("traces_app_runvector_y2026m03", "messages_app_message_y2026m03"),
            ("traces_app_toolcall_y2026m03", "messages_app_message_y2026m03"),
            ("traces_app_toolresult_y2026m03", "traces_app_toolcall_y2026m03"),
        ]


# --- Deleted and purged -----------------------------------------------------------------------------------------------


def test_data_for_deleted_rows_is_refused_and_rest_stored(project: Project) -> None:
    outcome = store(project, question(), answer())
    assert outcome.id is not None and outcome.messages[0].id is not None
    delete_message(primary, outcome.messages[0].id, by="ada")
    again = store(project, question(), question(external_id="q2"))
    assert [(m.state, m.refused) for m in again.messages] == [("refused", "message_deleted"), ("created", None)]
    delete_session(primary, outcome.id, by="ada")
    gone = store(project, question(external_id="q3"))
    assert (gone.refused, gone.messages[0].refused) == ("session_deleted", "session_deleted")
    assert Message.with_deleted.filter(external_id="q3").count() == 0


def test_purged_session_is_not_revived(project: Project) -> None:
    SessionTombstone.objects.create(project=project, key=session_key(project.pk, "weather"), purged_at=now())
    assert store(project, question()).refused == "session_purged"
    assert not Session.with_deleted.exists()


def test_purged_message_is_not_revived(project: Project) -> None:
    store(project, question())
    Message.objects.all().delete()
    assert store(project, question()).messages[0].refused == "message_purged"
    assert not Message.objects.exists()


def test_delete_and_restore_keep_the_session_counters(project: Project) -> None:
    outcome = store(project, question(), answer())
    assert outcome.id is not None and outcome.messages[1].id is not None
    before = Session.objects.values().get()
    delete_message(primary, outcome.messages[1].id, by="ada")
    session = Session.objects.get()
    assert (session.message_count, session.call_count, session.failure_count, session.input_tokens) == (1, 0, 0, 0)
    assert not ToolCall.objects.exists()
    assert ToolCall.with_deleted.count() == 4
    row = Message.with_deleted.get(pk=outcome.messages[1].id)
    assert row.deleted_at is not None and row.deleted_by == "ada"
    with pytest.raises(NotFound):
        delete_message(primary, outcome.messages[1].id, by="ada")

    restore_message(primary, outcome.messages[1].id)
    delete_session(primary, outcome.id, by="ada")
    assert not Message.objects.exists()
    with pytest.raises(NotFound):
        restore_message(primary, outcome.messages[1].id)
    restore_session(primary, outcome.id)
    after = Session.objects.values().get()
    assert {**after, "updated_at": None} == {**before, "updated_at": None}
    assert Message.objects.count() == 2


def test_message_of_another_session_is_not_deleted(project: Project) -> None:
    here = store(project, question())
    there = store(project, question(), external_id="other")
    assert here.messages[0].id is not None
    with pytest.raises(NotFound):
        delete_message(primary, here.messages[0].id, by="ada", session_id=there.id)
    assert Message.objects.count() == 2


# --- Changing a message -----------------------------------------------------------------------------------------------


def test_two_writers_of_one_version_do_not_overwrite_each_other(project: Project) -> None:
    message_id = store(project, question()).messages[0].id
    assert message_id is not None
    assert patch(project, message_id, '{"content": "first"}', if_match=1).version == 2
    with pytest.raises(PreconditionFailed):
        patch(project, message_id, '{"content": "second"}', if_match=1)
    with pytest.raises(Conflict):
        patch(project, message_id, '{"content": "second", "version": 1}')
    assert Message.objects.get().content == "first"


def test_patch_may_empty_fields_and_moves_updated_at_only(project: Project) -> None:
    message_id = store(project, answer(error="boom", metadata={"a": 1})).messages[0].id
    assert message_id is not None
    before = Message.objects.get()
    patch(project, message_id, '{"error": null, "metadata": {}, "content": ""}', if_match=1)
    after = Message.objects.get()
    assert (after.error, after.metadata, after.content) == ("", {}, "")
    assert (after.created_at, after.call_count) == (before.created_at, 4)
    assert after.updated_at > before.updated_at


def test_patch_adds_steps_and_results_and_completes(project: Project) -> None:
    step = {"thought": "Think.", "tool_calls": [{"id": "c1", "name": "search", "args": {}}]}
    message_id = store(project, answer(is_completed=False, agent_steps=[step], usage=None)).messages[0].id
    assert message_id is not None
    patch(
        project,
        message_id,
        '{"agent_steps": [{"iteration": 0, "tool_calls": [{"id": "c1", "name": "search", "result": {"output": "hit"}}]}]}',
        if_match=1,
    )
    patch(project, message_id, '{"agent_steps": [{"thought": "Then this."}]}', if_match=2)
    message = patch(project, message_id, '{"is_completed": true, "content": "Done."}', if_match=3)
    assert list(AgentStep.objects.values_list("iteration", "thought")) == [(0, "Think."), (1, "Then this.")]
    assert list(ToolCall.objects.values_list("status", "result__output")) == [("success", "hit")]
    assert (message.version, message.is_completed, message.step_count) == (4, True, 2)
    assert message.completed_at is not None
    with pytest.raises(Conflict, match="accepts no new steps"):
        patch(project, message_id, '{"agent_steps": [{"thought": "Too late."}]}', if_match=4)
    assert AgentStep.objects.count() == 2


def test_another_projects_message_is_not_found(project: Project, stranger: Project) -> None:
    message_id = store(project, question()).messages[0].id
    assert message_id is not None
    with pytest.raises(NotFound):
        patch(stranger, message_id, '{"content": "mine"}', if_match=1)


def test_message_does_not_change_its_role(project: Project) -> None:
    store(project, question())
    with pytest.raises(Conflict, match="from user"):
        store(project, question(role="assistant"))


def test_missing_months_are_created(project: Project) -> None:
    months = [NOON - timedelta(days=31 * n) for n in range(5)]
    store(project, *(question(external_id=str(n), created_at=time) for n, time in enumerate(months)))
    assert sorted(Message.objects.values_list("created_at", flat=True)) == sorted(months)


def test_writes_are_logged_with_ids_and_without_content(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    outcome = store(project, question(content="a secret question"))
    message_id = outcome.messages[0].id
    assert outcome.id is not None and message_id is not None
    patch(project, message_id, '{"content": "another secret"}', if_match=1)
    delete_message(primary, message_id, by="ada")
    delete_session(primary, outcome.id, by="ada")
    restore_session(primary, outcome.id)

    assert [record.getMessage() for record in caplog.records] == [
        "stored a batch", "changed a message", "deleted a message", "deleted a session", "restored a session"
    ]  # fmt: skip
    stored = caplog.records[0].__dict__
    assert (stored["session_id"], stored["message_id"]) == (str(outcome.id), str(message_id))
    assert (stored["messages_created"], stored["ms"] > 0) == (1, True)
    assert caplog.records[2].__dict__["by"] == "ada"
    assert not [record for record in caplog.records if "secret" in str(record.__dict__)]


def named(size: int) -> list[records.Session]:
    """Return many items of one session: each with a key of its own in the metadata, and a secret in it."""
    return [
        records.Session(external_id=f"growing-{size}", metadata={f"password-{number}": f"hunter{number}"})
        for number in range(size)
    ]


def with_messages(size: int) -> list[records.Session]:
    return [records.Session(external_id=f"long-{size}", messages=[records.Message(role="user") for _ in range(size)])]


@pytest.mark.parametrize(("made", "size"), [(named, 4_000), (with_messages, 12_000)])
def test_items_of_one_session_take_linear_time(
    project: Project, made: Callable[[int], list[records.Session]], size: int
) -> None:
    assert grows_linearly(lambda sessions: ingest(primary, project.pk, sessions), made, size, spare=0.5)


def test_items_of_one_session_are_merged_in_order(project: Project) -> None:
    ingest(primary, project.pk, [records.Session(external_id="s", metadata={"a": 0, "password": "hunter2"})])
    items = [{"a": 1, "b": 1}, {"b": 2, "api_key": "hunter2"}, {"a": 1, "api_key": "hunter3"}]
    ingest(primary, project.pk, [records.Session(external_id="s", metadata=each) for each in items])
    stored = Session.objects.get(external_id="s")
    assert stored.metadata == {"a": 1, "b": 2, "password": "[redacted]", "api_key": "[redacted]"}
    assert [receipt["path"] for receipt in stored.redactions] == ["metadata.password", "metadata.api_key"]
