"""Odd values over HTTP: a sample of what is decoded in process in sdk/tests/spans and tests/traces_app, to the rows and the answer."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import islice
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from access_app.keys import create_key
from access_app.models import Project
from messages_app.http.request_body import JSON
from sdk.tests.odd_values import as_body, with_odd_values
from sdk.tests.spans.wires import LANGFUSE_EVENTS, TIME
from sdk.tests.spans.wires import WIRES as SPAN_WIRES
from tests.traces_app.test_odd_values import KINDS_OF_CALLBACKS, WIRES
from traces_app.models import Score
from traces_app.models import Span as SpanRow

PATHS = {
    "OTLP traces": "/v1/traces",
    "OTLP logs": "/v1/logs",
    "OTLP metrics": "/v1/metrics",
    **{f"Langfuse {event['type']}": "/api/public/ingestion" for event in LANGFUSE_EVENTS},
    "Langfuse scores": "/api/public/scores",
    "LangSmith batch": "/runs/batch",
    "LangSmith run": "/runs",
    "LangSmith feedback": "/feedback",
    "OpenAI traces": "/v1/traces/ingest",
    "ingest": "/api/v1/ingest/",
    "session": "/api/v1/sessions/",
    "scores": "/api/v1/scores/",
    "events": "/api/v1/events/",
    "monitor messages": "/api/v1/events/",
    "callbacks of a run": "/api/v1/eko/callbacks/",
    **{f"callback {kind}": "/api/v1/eko/callbacks/" for kind in KINDS_OF_CALLBACKS},
}
TOKEN = {"api_key": "ts_no"}
SAMPLED = 67
"""One of so many bodies is sent. It is prime, so that all odd values have their turn."""


@pytest.fixture
def client(db: None) -> Client:
    token = create_key(Project.objects.create(slug="odd"), "agent", ["read", "write", "delete"])[1]
    return Client(headers={"Authorization": f"Bearer {token}"}, raise_request_exception=False)


@pytest.mark.parametrize("wire", PATHS)
def test_odd_value_is_answered_as_documented(wire: str, client: Client) -> None:
    document = json.loads(json.dumps((SPAN_WIRES | WIRES)[wire][1]))
    wrong = []
    for place, odd in islice(with_odd_values(document), None, None, SAMPLED):
        answer = client.post(PATHS[wire], as_body(odd), content_type=JSON)
        if answer.status_code not in (200, 201, 202, 207, 400, 404, 409):
            wrong.append((place, answer.status_code, answer.content[:200]))
    assert wrong == []


@pytest.mark.parametrize("document", [TOKEN, {"ids": ["a"], "delete_all": False}, {"title": "t", "description": "d"}])
def test_odd_value_of_a_small_request_is_answered(document: dict[str, Any], client: Client) -> None:
    requests = {"api_key": ("POST", "/v3/auth/token"), "ids": ("DELETE", "/weknora/api/v1/sessions/batch")}
    method, path = requests.get(next(iter(document)), ("POST", "/weknora/api/v1/sessions"))
    for place, odd in with_odd_values(dict(document)):
        answer = client.generic(method, path, as_body(odd), content_type=JSON)
        assert answer.status_code in (200, 201, 400, 401, 404, 413), (place, answer.content)


def test_score_of_an_odd_type_is_refused_alone(client: Client) -> None:
    score = {"traceId": "t1", "name": "q", "value": 1, "dataType": {}}
    answer = client.post("/api/public/scores", score, content_type=JSON)
    assert (answer.status_code, "body.dataType" in answer.json()["message"]) == (400, True)
    trace = {"id": "1", "type": "trace-create", "timestamp": TIME, "body": {"id": "t1", "name": "n"}}
    events = [trace, {"id": "2", "type": "score-create", "timestamp": TIME, "body": score}]
    answer = client.post("/api/public/ingestion", {"batch": events}, content_type=JSON)
    assert (answer.status_code, answer.json()["successes"]) == (207, [{"id": "1", "status": 201}])
    (error,) = answer.json()["errors"]
    assert (error["id"], error["status"], "body.dataType" in error["message"]) == ("2", 400, True)
    assert (SpanRow.objects.count(), Score.objects.count()) == (1, 0)


@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00"]
)
def test_score_of_an_impossible_time_is_kept(client: Client, time: str) -> None:
    score = {"id": "s1", "traceId": "t1", "name": "q", "value": 1, "timestamp": time}
    assert client.post("/api/public/scores", score, content_type=JSON).status_code == 200
    assert timezone.now() - Score.objects.get().created_at < timedelta(minutes=5)
    feedback = {"id": str(uuid4()), "run_id": str(uuid4()), "key": "k", "score": 1, "created_at": time}
    assert client.post("/feedback", feedback, content_type=JSON).status_code < 300


def test_odd_item_of_traces_is_refused_alone(client: Client) -> None:
    good = {"object": "trace", "id": "trace_1", "workflow_name": "w"}
    answer = client.post("/v1/traces/ingest", {"data": [[], good, None]}, content_type=JSON)
    assert (answer.status_code, answer.json()["accepted"], answer.json()["refused"]) == (200, 1, 2)
