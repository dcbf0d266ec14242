"""/scores/ over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from access_app.models import Project
from messages_app.models import Message
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.batch import SessionOutcome
from traces_app.models import Score, ToolCall

from .conftest import Caller

pytestmark = pytest.mark.django_db
TRACE = "0af7651916cd43dd8448eb211c80319c"


def names(results: list[dict[str, Any]]) -> list[str]:
    return sorted(result["name"] for result in results)


def test_score_of_a_call_names_call_message_and_session(owner: Caller, weather: SessionOutcome) -> None:
    body = {"name": "correct", "value": False, "comment": "Wrong city.", "call_id": "call_b", "session_id": "weather"}
    sent = owner.post("scores/", {**body, "external_id": "s-1", "metadata": {"run": 7}})
    assert sent.status == 201, sent.body
    call = ToolCall.objects.get(call_id="call_b")
    stored = sent.json
    assert stored == {
        "id": stored["id"],
        "project": "owner",
        "session_id": str(weather.id),
        "message_id": str(weather.messages[1].id),
        "call_id": str(call.pk),
        "trace_id": None,
        "span_id": "",
        "name": "correct",
        "kind": "boolean",
        "value": False,
        "label": "",
        "comment": "Wrong city.",
        "source": "program",
        "author": "key agent",
        "external_id": "s-1",
        "metadata": {"run": 7},
        "redactions": [],
        "created_at": stored["created_at"],
        "updated_at": stored["updated_at"],
    }
    assert sent.headers["Location"].endswith(f"/api/v1/scores/{stored['id']}/")
    assert owner.get(f"scores/{stored['id']}/").json == stored
    again = owner.post("scores/", {**body, "external_id": "s-1", "value": True, "comment": None})
    assert (again.json["id"], again.json["value"], again.json["comment"]) == (stored["id"], True, "")
    assert Score.objects.count() == 1


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["faithful", "helpful", "later", "tone"]),
        ({"name": "tone"}, ["tone"]),
        ({"kind": "boolean"}, ["helpful"]),
        ({"value": "true"}, ["helpful"]),
        ({"value": "false"}, []),
        ({"source": "evaluator"}, ["faithful"]),
        ({"author": "ada"}, ["helpful"]),
        ({"label": "kind"}, ["tone"]),
        ({"min_value": "-0.5"}, ["faithful", "helpful"]),
        ({"max_value": "-0.1"}, ["faithful"]),
        ({"session": "weather"}, ["faithful", "helpful", "tone"]),
        ({"message": "answer"}, ["faithful", "helpful"]),
        ({"call": "call"}, ["helpful"]),
        ({"trace_id": TRACE}, ["later"]),
        ({"external_id": "x-1"}, ["tone"]),
        ({"created_after": "2026-03-01T00:00:00Z"}, ["faithful", "helpful", "later", "tone"]),
        ({"created_before": "2026-03-01T00:00:00Z"}, []),
    ],
)
def test_filters_of_scores(
    owner: Caller, weather: SessionOutcome, parameters: dict[str, str], expected: list[str]
) -> None:
    message, call = str(weather.messages[1].id), str(ToolCall.objects.get(call_id="call_a").pk)
    sent = owner.post(
        "scores/",
        [
            {"name": "faithful", "value": -0.25, "message_id": "a1", "source": "evaluator"},
            {"name": "helpful", "value": 1, "kind": "boolean", "call_id": call, "author": "ada"},
            {"name": "tone", "value": "kind", "session_id": "weather", "external_id": "x-1"},
            {"name": "later", "value": "x", "trace_id": TRACE},
        ],
    )
    assert (sent.status, len(sent.json["results"])) == (201, 4)
    parameters = {name: {"answer": message, "call": call}.get(value, value) for name, value in parameters.items()}
    assert names(owner.get("scores/", **parameters).results) == expected


def test_pages_of_scores_have_each_score_once(owner: Caller, weather: SessionOutcome) -> None:
    owner.post("scores/", [{"name": f"n{number}", "value": number, "session_id": "weather"} for number in range(5)])
    found, cursor = [], ""
    while True:
        page = owner.get("scores/", limit="2", **({"cursor": cursor} if cursor else {}))
        found += names(page.results)
        cursor = page.json["next"]
        if not cursor:
            break
    assert sorted(found) == ["n0", "n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"value": 1, "session_id": "weather"}, (400, "invalid_input", "name")),
        ({"name": "", "value": 1, "session_id": "weather"}, (400, "invalid_input", "name")),
        ({"name": "a", "session_id": "weather"}, (400, "invalid_input", "value")),
        ({"name": "a", "value": 1}, (400, "invalid_input", "session_id")),
        ({"name": "a", "value": [], "session_id": "weather"}, (400, "invalid_input", "value")),
        ({"name": "a", "value": 2, "kind": "boolean", "session_id": "weather"}, (400, "invalid_input", "value")),
        ({"name": "a", "value": "x", "kind": "numeric", "session_id": "weather"}, (400, "invalid_input", "value")),
        ({"name": "a", "value": 1, "kind": "categorical", "session_id": "weather"}, (400, "invalid_input", "value")),
        ({"name": "a", "value": "", "session_id": "weather"}, (400, "invalid_input", "value")),
        ({"name": "a", "value": 1, "kind": "stars", "session_id": "weather"}, (400, "invalid_input", "kind")),
        ({"name": "a", "value": 1, "source": "cat", "session_id": "weather"}, (400, "invalid_input", "source")),
        ({"name": "a", "value": 1, "session_id": "none"}, (404, "session_not_found", "session_id")),
        ({"name": "a", "value": 1, "message_id": "none"}, (404, "message_not_found", "message_id")),
        ({"name": "a", "value": 1, "message_id": "a\x00"}, (404, "message_not_found", "message_id")),
        ({"name": "a", "value": 1, "call_id": "none"}, (404, "call_not_found", "call_id")),
        ({"name": "a", "value": 1, "trace_id": "7"}, (400, "invalid_input", "trace_id")),
        ({"name": "a", "value": 1, "span_id": "00f067aa0ba902b7"}, (400, "invalid_input", "trace_id")),
        ({"name": "a", "value": 1, "message_id": "a1", "comment": "x" * 20_001}, (400, "invalid_input", "comment")),
        ({"name": "a", "value": 1, "message_id": "same"}, (409, "ambiguous_message", "message_id")),
        ({"name": "a", "value": 1, "call_id": "twice"}, (409, "ambiguous_call", "call_id")),
        ([{"name": "a", "value": 1, "message_id": "a1"}, {"name": "b"}], (400, "invalid_input", "[1].value")),
        ([{"name": "a", "value": 1, "call_id": "none"}], (404, "call_not_found", "[0].call_id")),
        ([{}] * 1_001, (400, "invalid_input", None)),
        (b"{", (400, "invalid_json", None)),
        (7, (400, "invalid_input", None)),
    ],
)
def test_bad_score_is_refused_with_its_field(
    owner: Caller, project: Project, weather: SessionOutcome, body: Any, error: tuple[int, str, str | None]
) -> None:
    for name in ("one", "two"):
        calls = [{"id": "twice", "name": "get_weather"}]
        store(
            project,
            {"role": "assistant", "external_id": "same", "agent_steps": [{"tool_calls": calls}]},
            external_id=name,
        )
    assert owner.post("scores/", body).error == error
    assert not Score.objects.exists()


def test_keys_without_scopes_and_other_projects_see_no_score(
    owner: Caller, viewer: Caller, outsider: Caller, weather: SessionOutcome
) -> None:
    body = {"name": "a", "value": 1, "message_id": "a1"}
    path = f"scores/{owner.post('scores/', body).json['id']}/"
    assert viewer.post("scores/", body).error[:2] == (403, "missing_scope")
    assert viewer.delete(path).error[:2] == (403, "missing_scope")
    assert viewer.get(path).status == 200
    assert outsider.post("scores/", body).error[:2] == (404, "message_not_found")
    for answer_ in (outsider.get(path), outsider.patch(path, {"comment": "x"}), outsider.delete(path)):
        assert answer_.error == (404, "score_not_found", None)
    assert outsider.get("scores/").results == []
    assert Caller().get("scores/").status == 401


def test_score_is_changed_and_deleted(owner: Caller, weather: SessionOutcome) -> None:
    score = owner.post("scores/", {"name": "a", "value": 1, "message_id": "a1", "comment": "x"}).json
    path = f"scores/{score['id']}/"
    changed = owner.patch(path, {"value": "good", "comment": None, "metadata": {"k": 1}})
    assert changed.json == {
        **score,
        "kind": "categorical",
        "value": "good",
        "label": "good",
        "comment": "",
        "metadata": {"k": 1},
        "updated_at": changed.json["updated_at"],
    }
    assert owner.patch(path, {"name": "b"}).error == (400, "invalid_input", "name")
    assert owner.delete(path).status == 204
    assert owner.get(path).error == (404, "score_not_found", None)
    assert not Score.with_deleted.exists()


def test_score_follows_its_message_to_the_trash_and_back(owner: Caller, weather: SessionOutcome) -> None:
    message = f"messages/{weather.messages[1].id}/"
    owner.post(
        "scores/", [{"name": "a", "value": 1, "message_id": "a1"}, {"name": "b", "value": 1, "session_id": "weather"}]
    )
    owner.delete(message)
    assert names(owner.get("scores/").results) == ["b"]
    owner.post(f"{message}restore/")
    owner.delete("sessions/weather/")
    assert owner.get("scores/").results == []
    owner.post("sessions/weather/restore/")
    assert names(owner.get("scores/").results) == ["a", "b"]


def test_secrets_in_scores_reach_no_table(owner: Caller, weather: SessionOutcome) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz123456"
    body = {"name": "a", "value": f"used {secret}", "comment": secret, "metadata": {"key": secret}, "message_id": "a1"}
    score = owner.post("scores/", body)
    assert score.status == 201
    owner.patch(f"scores/{score.json['id']}/", {"comment": f"again {secret}"})
    row = Score.objects.values().get()
    assert secret not in str(row)
    assert {receipt["path"] for receipt in score.json["redactions"]} == {"value", "comment", "metadata.key"}


def test_export_of_a_session_brings_its_scores_back(owner: Caller, outsider: Caller, weather: SessionOutcome) -> None:
    bodies = [
        {"name": "a", "value": 0.5, "label": "fair", "message_id": "a1", "comment": "So so."},
        {"name": "b", "value": True, "call_id": "call_b", "source": "person", "author": "ada"},
        {"name": "c", "value": "long", "session_id": "weather", "external_id": "x"},
    ]
    owner.post("scores/", bodies)
    document = owner.get("sessions/weather/export/").json
    assert names(document["scores"]) == ["a", "b", "c"]
    assert owner.post("sessions/", document).status == 200
    assert Score.objects.count() == 3
    assert outsider.post("sessions/", document).status == 201
    assert outsider.post("sessions/", document).status == 200
    copies = {score["name"]: score for score in outsider.get("scores/", session="weather").results}
    answer_ = Message.objects.get(project__slug=copies["a"]["project"], role="assistant")
    assert {copy["message_id"] for copy in copies.values()} == {str(answer_.pk), None}
    assert ToolCall.objects.get(pk=copies["b"]["call_id"]).message == answer_
    varying = {"id", "project", "session_id", "message_id", "call_id", "updated_at", "external_id"}
    for score in document["scores"]:
        copy = copies[score["name"]]
        assert {k: v for k, v in copy.items() if k not in varying} == {
            k: v for k, v in score.items() if k not in varying
        }


def test_scores_are_ingested_with_their_session(owner: Caller) -> None:
    scores = [
        {"name": "a", "value": 1, "message_id": "a1"},
        {"name": "b", "value": 1, "message_id": "a1", "call_id": "call_a"},
        {"name": "c", "value": 1},
        {"name": "d", "value": 1, "message_id": "unknown"},
    ]
    messages = [{**message, "created_at": None} for message in (question(), answer())]
    body = {"sessions": [{"external_id": "s", "messages": messages, "scores": scores}]}
    for _time in range(2):
        assert owner.post("ingest/", body).status == 200
    found = {score["name"]: score for score in owner.get("scores/").results}
    call = ToolCall.objects.get(call_id="call_a")
    assert [(found[name]["message_id"], found[name]["call_id"]) for name in "abcd"] == [
        (str(call.message_id), None),
        (str(call.message_id), str(call.pk)),
        (None, None),
        (None, None),
    ]
    assert Score.objects.count() == 4
    bad = {"sessions": [{"external_id": "s", "scores": [{"name": "a", "value": 1, "kind": "categorical"}]}]}
    assert owner.post("ingest/", bad).error == (400, "invalid_input", "sessions[0].scores[0].value")
