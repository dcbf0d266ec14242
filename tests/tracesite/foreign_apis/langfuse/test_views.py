"""Langfuse's ingestion: events in any order, a status for each, the check of a key, and bad bodies."""

from __future__ import annotations

import json
import random
import zlib
from base64 import b64encode
from typing import Any

import pytest
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.writes import delete_session
from traces_app.models import Score, ToolCall, ToolResult
from traces_app.models import Span as SpanRow
from traces_app.spans.deliveries import record_spans
from traces_app.spans.stored import spans_of
from tracesite_sdk.spans.langfuse_ids import span_id_of, trace_id_of
from tracesite_sdk.spans.span import LogRecord

QUESTION = [{"role": "system", "content": "You plan."}, {"role": "user", "content": "Plan a day."}]
REQUESTED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}},
        {"id": "c2", "type": "function", "function": {"name": "get_traffic", "arguments": "{}"}},
    ],
}


def event(number: int, type_: str, **body: Any) -> dict[str, Any]:
    return {"id": f"event-{number}", "type": type_, "timestamp": f"2026-11-20T10:00:{number:02}.000Z", "body": body}


def at(second: int) -> str:
    return f"2026-11-20T10:00:{second:02}.500Z"


EVENTS = [
    event(0, "trace-create", id="trace one", name="plan", sessionId="chat-1", userId="ada", tags=["a"], input="Plan a day."),
    event(1, "generation-create", id="g1", traceId="trace one", startTime=at(1), model="gpt-4o-mini", input=QUESTION),
    event(2, "generation-update", id="g1", traceId="trace one", endTime=at(2), output=REQUESTED,
          usage={"promptTokens": 7, "completionTokens": 3, "totalTokens": 10, "totalCost": 0.5}),
    event(3, "tool-create", id="t1", traceId="trace one", name="get_weather", startTime=at(3), endTime=at(4),
          input={"city": "Oslo"}, output="31 degrees"),
    event(4, "span-create", id="t2", traceId="trace one", name="get_traffic", startTime=at(4)),
    event(5, "span-update", id="t2", traceId="trace one", endTime=at(5), level="ERROR", statusMessage="no data"),
    event(6, "generation-create", id="g2", traceId="trace one", startTime=at(6), endTime=at(7), model="gpt-4o-mini",
          input=QUESTION, output={"role": "assistant", "content": "Sunny."}, usageDetails={"input": 20, "output": 2}),
    event(7, "event-create", id="e1", traceId="trace one", parentObservationId="g2", name="note", metadata={"k": "v"}),
    event(8, "score-create", id="s1", traceId="trace one", observationId="g2", name="helpful", value=1),
    event(9, "sdk-log", log={"error": "x"}),
    event(10, "trace-create", id="trace one", output="Sunny."),
]  # fmt: skip


@pytest.fixture
def key(db: None) -> str:
    return create_key(Project.objects.create(slug="wires", name="Wires"), "agent", ["write"])[1]


@pytest.fixture
def client(key: str) -> Client:
    return Client(headers={"Authorization": f"Basic {b64encode(f'pk-any:{key}'.encode()).decode()}"})


def send(client: Client, events: Any, **headers: str) -> tuple[int, Any]:
    body = events if isinstance(events, bytes) else json.dumps({"batch": events, "metadata": {"sdk_version": "2.0"}})
    response = client.post("/api/public/ingestion", body, content_type="application/json", headers=headers)
    return response.status_code, json.loads(response.content)


def assert_is_stored() -> None:
    session = Session.objects.get()
    assert (session.external_id, session.end_user, session.status) == ("chat-1", "ada", "completed")
    prompt, answer = Message.objects.order_by("pk")
    assert (prompt.role, prompt.content) == ("user", "Plan a day.")
    assert (answer.content, answer.is_completed, answer.input_tokens, answer.output_tokens) == ("Sunny.", True, 27, 5)
    calls = ToolCall.objects.select_related("tool", "result", "step").order_by("position")
    assert [(call.call_id, call.tool.name, call.status) for call in calls] == [
        ("c1", "get_weather", "success"),
        ("c2", "get_traffic", "error"),
    ]
    assert (calls[0].result.output, calls[1].result.error, calls[0].step.model) == (
        "31 degrees",
        "no data",
        "gpt-4o-mini",
    )


@pytest.mark.parametrize("seed", range(4))
def test_events_in_any_order_and_batches_are_stored(seed: int, client: Client) -> None:
    events = [*EVENTS, EVENTS[2]]
    if seed:
        random.Random(seed).shuffle(events)
    for batch in (events[:5], events[5:6], events[6:]):
        status, answer = send(client, batch)
        assert (status, answer["errors"]) == (207, [])
        assert answer["successes"] == [{"id": found["id"], "status": 201} for found in batch]
    assert_is_stored()


def test_original_ids_and_scores_are_exported(client: Client) -> None:
    send(client, EVENTS)
    spans = spans_of(primary, Project.objects.get().pk, trace_id_of("trace one"))
    found = {span.attributes.get("langfuse.observation.id"): span for span in spans}
    assert found.keys() == {None, "g1", "t1", "t2", "g2", "e1"}
    assert {span.attributes["langfuse.trace.id"] for span in spans} == {"trace one"}
    assert Score.objects.get().span_id == span_id_of("g2")
    assert found["g1"].attributes["langfuse.observation.cost_details"] == {"total": 0.5}


def test_score_of_newer_sdks_is_stored(client: Client) -> None:
    send(client, EVENTS[:8])
    score = {"id": "s2", "traceId": "trace one", "observationId": "g2", "name": "tone", "value": "kind"}
    for body, status in ((score, 200), ({"id": "s3", "name": "x", "value": 1}, 400), (7, 400)):
        response = client.post("/api/public/scores", json.dumps(body), content_type="application/json")
        assert (response.status_code, "body." in str(response.content)) == (status, status == 400)
    response = client.post("/api/public/scores", json.dumps([score]), content_type="application/json")
    assert (response.status_code, json.loads(response.content)) == (202, {"message": "Accepted"})
    response = client.post("/api/public/scores", json.dumps([{}]), content_type="application/json")
    counts = json.loads(response.content)
    assert (response.status_code, counts["accepted"], counts["rejected"]) == (207, 0, 1)
    stored = Score.objects.get(external_id="s2")
    answer = Message.objects.get(role="assistant")
    assert (stored.kind, stored.label, stored.message_id) == ("categorical", "kind", answer.pk)


def test_scores_of_each_kind_find_what_they_are_about(client: Client) -> None:
    score = {"name": "n", "traceId": "trace one"}
    bodies: list[dict[str, Any]] = [
        {**score, "value": 0.5, "comment": "So so.", "metadata": {"k": 1}, "configId": "c"},
        {**score, "value": 1, "dataType": "BOOLEAN", "observationId": "t1", "source": "ANNOTATION"},
        {**score, "value": "good", "dataType": "CATEGORICAL", "observationId": "g2", "source": "EVAL"},
        {"name": "n", "sessionId": "chat-1", "value": 3, "dataType": "NUMERIC"},
    ]
    for _time in range(2):  # they have neither an id nor a time
        response = client.post("/api/public/scores", json.dumps(bodies), content_type="application/json")
        assert response.status_code == 202
    assert Score.objects.filter(session=None).count() == 4
    status, answer = send(
        client, [*EVENTS, event(30, "score-create", sessionId="chat-1", name="late", value=1, id="s9")]
    )
    assert (status, answer["errors"]) == (207, [])
    message, call, session = (
        Message.objects.get(role="assistant"),
        ToolResult.objects.get(metadata__span_id=span_id_of("t1")),
        Session.objects.get(),
    )
    rows = Score.objects.order_by("external_id").values_list(
        "kind", "number", "label", "comment", "source", "session_id", "message_id", "call_id"
    )
    assert set(rows) == {
        ("numeric", 0.5, "", "So so.", "program", session.pk, message.pk, None),
        ("boolean", 1.0, "", "", "person", session.pk, message.pk, call.pk),
        ("categorical", None, "good", "", "evaluator", session.pk, message.pk, None),
        ("numeric", 3.0, "", "", "program", session.pk, None, None),
        ("numeric", 1.0, "", "", "program", session.pk, message.pk, None),
        ("numeric", 1.0, "", "", "program", session.pk, None, None),
    }
    assert Score.objects.get(comment="So so.").metadata == {"k": 1, "configId": "c"}


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        ({"traceId": "t", "name": "a"}, "body.value: a score needs a value or a comment"),
        ({"traceId": "t", "name": "a", "value": 2, "dataType": "BOOLEAN"}, "neither true nor false"),
        ({"traceId": "t", "name": "a", "value": "x", "dataType": "NUMERIC"}, "“x” is a text"),
        ({"traceId": "t", "name": "a", "value": 1, "dataType": "STARS"}, "body.dataType: “STARS”"),
        ({"traceId": "t", "name": "a", "value": [1]}, "body.value"),
        ({"traceId": "t", "name": "a", "value": 1, "comment": 7}, "comment: “7”, expected a text"),
        ({"traceId": "t", "name": "a", "value": 1, "comment": "x" * 20_001}, "comment: 20001 characters"),
        ({"traceId": "t", "name": "a" * 513, "value": 1}, "name"),
        ({"traceId": "t", "value": 1}, "body.name"),
        ({"name": "a", "value": 1}, "body.traceId"),
    ],
)
def test_bad_score_is_refused_with_a_reason(client: Client, score: dict[str, Any], reason: str) -> None:
    status, answer = send(client, [event(1, "score-create", **score)])
    assert (status, answer["successes"], reason in answer["errors"][0]["message"]) == (207, [], True), answer
    assert not Score.objects.exists()


def test_score_of_an_earlier_version_becomes_a_row(client: Client) -> None:
    send(client, EVENTS[:8])
    body = {"id": "old", "traceId": "trace one", "observationId": "t1", "name": "helpful", "value": 1}
    log = LogRecord(
        name="langfuse.score", trace_id=trace_id_of("trace one"), span_id=span_id_of("t1"), time=10**18, attributes=body
    )
    record_spans(primary, Project.objects.get().pk, (), [log])
    assert Score.objects.get().call_id == ToolResult.objects.get(metadata__span_id=span_id_of("t1")).pk
    Score.objects.update(comment="changed here")
    send(client, EVENTS[9:])
    assert Score.objects.get().comment == "changed here"


def test_run_is_open_until_it_is_answered(client: Client) -> None:
    send(client, EVENTS[:4])
    assert (Message.objects.order_by("pk").last().is_completed, Session.objects.get().status) == (False, "running")  # type: ignore[union-attr]
    send(client, EVENTS[4:])
    assert Message.objects.order_by("pk").last().is_completed  # type: ignore[union-attr]


def test_each_bad_event_gets_its_own_error(client: Client) -> None:
    bad = [
        7,
        {"id": "no-body", "type": "span-create", "timestamp": at(1)},
        {**EVENTS[0], "id": "no-time", "timestamp": "noon"},
        event(50, "what-create", id="x", traceId="t"),
        event(51, "observation-create", id="x", traceId="t", type="WHAT"),
        event(52, "span-update", id="x"),
        event(53, "span-update", traceId="t"),
        event(54, "score-create", name="a", value=1),
    ]
    status, answer = send(client, [*bad, EVENTS[0]])
    assert (status, answer["successes"]) == (207, [{"id": "event-0", "status": 201}])
    assert [(error["id"], error["status"]) for error in answer["errors"]] == [
        *[("", 400), ("no-body", 400), ("no-time", 400)],
        *[(f"event-{number}", 400) for number in range(50, 55)],
    ]
    assert "timestamp: “noon”" in answer["errors"][2]["message"]
    assert SpanRow.objects.count() == 1


def test_events_of_a_deleted_session_are_refused(client: Client) -> None:
    send(client, EVENTS[:3])
    delete_session(primary, Session.objects.get().pk, by="ada")
    status, answer = send(client, [EVENTS[6], event(20, "trace-create", id="other", output="x")])
    assert (status, answer["successes"]) == (207, [{"id": "event-20", "status": 201}])
    assert [(error["id"], error["status"]) for error in answer["errors"]] == [("event-6", 409)]


def test_secrets_do_not_reach_a_table(client: Client) -> None:
    send(client, [event(0, "trace-create", id="t", input={"password": "hunter2-hunter2"})])
    assert "hunter2" not in SpanRow.objects.get().content


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b'{"batch": {}}', {}, 400),
        (b'{"batch": [\xff]}', {}, 400),
        (b"[" * 200_000, {}, 400),
        (b"no gzip", {"Content-Encoding": "gzip"}, 400),
        (zlib.compress(b"{}")[:-3], {"Content-Encoding": "deflate"}, 400),
        (b"{}", {"Content-Encoding": "br"}, 415),
    ],
)  # fmt: skip
def test_bad_body_is_refused(body: bytes, headers: dict[str, str], status: int, client: Client) -> None:
    found, answer = send(client, body, **headers)
    assert (found, bool(answer["message"])) == (status, True)
    assert not SpanRow.objects.exists()


def test_auth_check_names_the_project_of_the_key(client: Client) -> None:
    [project] = json.loads(client.get("/api/public/projects").content)["data"]
    assert (project["id"], project["name"]) == ("wires", "Wires")
    wrong = Client(headers={"Authorization": "Basic " + b64encode(b"pk:sk-wrong").decode()})
    assert wrong.get("/api/public/projects").status_code == 401
    assert send(wrong, EVENTS)[0] == 401
    assert json.loads(Client().get("/api/public/health").content)["status"] == "OK"
