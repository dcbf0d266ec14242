"""/ingest/ over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.db import connection

from messages_app.models import Message, Session
from tests.traces_app.conftest import answer, question
from traces_app.ingest.batch import SessionOutcome

from .conftest import Caller


def batch(*sessions: dict[str, Any]) -> dict[str, Any]:
    return {"sessions": list(sessions)}


def lines(*sessions: dict[str, Any]) -> bytes:
    return b"\n".join(msgspec.json.encode(session) for session in sessions)


def test_sessions_with_messages_and_traces_are_stored_at_once(owner: Caller) -> None:
    sent = owner.post(
        "ingest/", batch({"external_id": "one", "messages": [question(), answer()]}, {"external_id": "two"})
    )
    one, two = (Session.objects.get(external_id=name) for name in ("one", "two"))
    q1, a1 = (Message.objects.get(external_id=name) for name in ("q1", "a1"))
    assert (sent.status, sent.json["refused"]) == (200, [])
    assert sent.json["sessions"] == [
        {
            "id": str(one.pk),
            "external_id": "one",
            "created": True,
            "messages": [
                {"id": str(q1.pk), "external_id": "q1", "state": "created"},
                {"id": str(a1.pk), "external_id": "a1", "state": "created"},
            ],
        },
        {"id": str(two.pk), "external_id": "two", "created": True, "messages": []},
    ]
    again = owner.post("ingest/", batch({"external_id": "one", "messages": [question(), answer()]}))
    assert [session["created"] for session in again.json["sessions"]] == [False]
    assert [each["state"] for each in again.json["sessions"][0]["messages"]] == ["unchanged", "unchanged"]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\n"])
def test_sessions_as_ndjson_are_stored_alike(owner: Caller, end: bytes) -> None:
    body = lines({"external_id": "one", "messages": [question()]}, {"external_id": "two"}) + end
    sent = owner.post("ingest/", body, content_type="application/x-ndjson; charset=UTF-8")
    assert [session["external_id"] for session in sent.json["sessions"]] == ["one", "two"]
    assert Message.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "media_type", "error"),
    [
        (batch({"external_id": "a"}, {"external_id": "b", "status": "x"}), "application/json", "sessions[1].status"),
        (batch({"external_id": "a", "messages": [{"role": "x"}]}), "application/json", "sessions[0].messages[0].role"),
        (batch({"title": "nameless"}), "application/json", "sessions[0].external_id"),
        ({"session": []}, "application/json", "sessions"),
        ([], "application/json", "sessions"),
        (lines({"external_id": "a"}, {"external_id": "b", "tags": "x"}), "application/x-ndjson", "sessions[1].tags"),
    ],
)
def test_invalid_batch_is_refused_with_its_path_and_not_stored(
    owner: Caller, body: Any, media_type: str, error: str
) -> None:
    assert (400, "invalid_input", error) == owner.post("ingest/", body, content_type=media_type).error
    assert not Session.with_deleted.exists()


def test_line_other_than_json_is_refused_with_its_number(owner: Caller) -> None:
    refused = owner.post("ingest/", b'{"external_id": "a"}\n{"external', content_type="application/x-ndjson")
    assert refused.error == (400, "invalid_json", "sessions[1]")


def test_deleted_or_completed_targets_are_refused_others_stored(owner: Caller, weather: SessionOutcome) -> None:
    owner.post("ingest/", batch({"external_id": "gone", "messages": [question()]}))
    owner.delete("sessions/gone/")
    late = answer(agent_steps=[{"iteration": 9, "tool_calls": [{"name": "late"}]}])
    new = {"role": "user", "external_id": "new"}
    sent = owner.post(
        "ingest/",
        batch({"external_id": "gone", "messages": [new]}, {"external_id": "weather", "messages": [late, new]}),
    )
    assert sent.status == 200
    assert [(each["path"], each["code"]) for each in sent.json["refused"]] == [
        ("sessions[0]", "session_deleted"),
        ("sessions[1].messages[0]", "message_completed"),
    ]
    states = [[each["state"] for each in session["messages"]] for session in sent.json["sessions"]]
    assert states == [["refused"], ["refused", "created"]]


def test_other_media_types_are_refused_with_both_that_are_right(owner: Caller) -> None:
    refused = owner.post("ingest/", b"{}", content_type="application/xml")
    assert refused.error == (415, "unsupported_media_type", "Content-Type")
    assert refused.json["error"]["message"].endswith(": application/json or application/x-ndjson.")


def test_empty_batch_is_accepted(owner: Caller) -> None:
    assert owner.post("ingest/", batch()).json == {"sessions": [], "refused": []}


def test_secrets_are_redacted_at_the_door(owner: Caller) -> None:
    call = {"name": "login", "args": {"user": "ada", "password": "hunter2"}, "result": {"output": "ok"}}
    message = {"role": "assistant", "agent_steps": [{"tool_calls": [call]}]}
    owner.post("ingest/", batch({"external_id": "one", "messages": [message]}))
    stored = owner.get("sessions/one/messages/")
    assert b"hunter2" not in stored.body
    assert stored.results[0]["redactions"][0]["path"] == "agent_steps[0].tool_calls[0].args.password"


@pytest.mark.parametrize("path", ["ingest/", "events/"])
@pytest.mark.parametrize("count", [1, 20])
def test_value_that_its_column_refuses_is_a_bad_request(
    owner: Caller, path: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    # Any column would do: the limits of all record fields fit the columns that they fill, so one is made narrower.
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE traces_app_toolcall ALTER COLUMN duration_ms TYPE smallint")
    call = {"id": "c1", "name": "search", "duration": 10**6}
    at = "2026-03-01T12:00:00Z"
    if path == "ingest/":
        messages = [answer(external_id=f"a{number}", agent_steps=[{"tool_calls": [call]}]) for number in range(count)]
        body: Any = batch({"external_id": "one", "messages": messages})
    else:
        data = {"call_id": "c1", "name": "search", "result": "", "duration": 10**6}
        body = [
            {"session_id": f"s{number}", "type": "tool_call_complete", "timestamp": at, "data": data}
            for number in range(count)
        ]
    sent = owner.post(path, body)
    assert (sent.status, sent.json["error"]["code"]) == (400, "unstorable_value")
    assert sent.json["error"]["message"] == (
        'The database cannot store a value of this request: value "1000000" is out of range for type smallint. '
        "Nothing was stored."
    )
    assert not Session.objects.exists()
    assert not Message.objects.exists()
    (logged,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "the database refused a value" in logged.getMessage()


@pytest.mark.django_db(transaction=True)
def test_refused_value_leaves_nothing_without_outer_transaction(owner: Caller) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE traces_app_agentstep ALTER COLUMN duration_ms TYPE smallint")
    try:
        message = answer(agent_steps=[{"thought": "t", "duration": 10**6}])
        sent = owner.post("ingest/", batch({"external_id": "one", "messages": [message]}))
        assert (sent.status, sent.json["error"]["code"]) == (400, "unstorable_value")
        assert not Session.objects.exists()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE traces_app_agentstep ALTER COLUMN duration_ms TYPE bigint")
        # Its prepared statements have the type of the narrow column.
        connection.close()
    stored = owner.post("ingest/", batch({"external_id": "one", "messages": [message]}))
    assert (stored.status, Session.objects.count()) == (200, 1)
