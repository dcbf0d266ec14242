"""LangSmith's endpoints: what is stored, in which order it may come, and the answers to bad bodies."""

from __future__ import annotations

import json
import zlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from langsmith import Client as LangSmith
from pytest_django.live_server_helper import LiveServer

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project, Scope
from messages_app.models import Message, Session
from sdk.tests.spans.langsmith_wire import MODEL_ID, PATCHES, POSTS, ROOT_ID, TOOL_ID
from traces_app.models import Score, ToolCall
from traces_app.models import Span as SpanRow
from traces_app.spans.stored import spans_of
from tracesite_sdk.spans.langsmith_runs import LARGEST_ATTACHMENT
from tracesite_sdk.spans.span import decoded_bytes

TRACE = UUID(ROOT_ID).hex
BOUNDARY = "b0undary"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"


def part(name: str, content: Any, content_type: str = "application/json") -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\nContent-Type: {content_type}\r\n\r\n'
    return head.encode() + body + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


@pytest.fixture
def client(db: None) -> Client:
    key = create_key(Project.objects.create(slug="wires"), "agent", ["read", "write"])[1]
    return Client(headers={"X-Api-Key": key})


def send(
    client: Client, path: str, body: Any, content_type: str = "application/json", **headers: str
) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    method = client.patch if path.startswith("/runs/0") else client.post
    response = method(path, content, content_type=content_type, headers=headers)
    return response.status_code, json.loads(response.content)


def assert_is_stored() -> None:
    session = Session.objects.get()
    assert (session.external_id, session.status) == ("thread-1", "completed")
    prompt, answer = Message.objects.order_by("pk")
    assert (prompt.role, prompt.content, answer.is_completed) == ("user", "Plan a day.", True)
    assert (answer.input_tokens, answer.output_tokens) == (7, 3)
    call = ToolCall.objects.select_related("tool", "step", "result").get()
    assert (call.call_id, call.tool.name, call.args, call.status) == (
        "c1",
        "get_weather",
        {"city": "Oslo"},
        "error",
    )
    assert (call.result.error, call.step.model) == ("ValueError('no data')", "gpt-4o-mini")


@pytest.mark.parametrize("prefix", ["", "/api", "/langsmith"])
def test_info_offers_multipart_and_zstd_to_anybody(prefix: str) -> None:
    info = json.loads(Client().get(f"{prefix}/info").content)
    assert info["batch_ingest_config"]["use_multipart_endpoint"] is True
    assert info["instance_flags"] == {"zstd_compression_enabled": True}


def test_batch_is_stored(client: Client) -> None:
    assert send(client, "/runs/batch", {"post": POSTS, "patch": PATCHES}) == (202, {"message": "Runs accepted"})
    assert_is_stored()


def test_patches_before_posts_are_stored_alike(client: Client) -> None:
    for run in PATCHES:
        assert send(client, f"/runs/{run['id']}", {name: run[name] for name in run if name != "id"})[0] == 202
    for run in reversed(POSTS):
        assert send(client, "/runs", run)[0] == 202
    assert_is_stored()


def test_multipart_fields_and_attachments_are_kept(client: Client) -> None:
    body = b""
    for operation, run in [*(("post", run) for run in POSTS), *(("patch", run) for run in PATCHES)]:
        beside = {name: run[name] for name in ("inputs", "outputs", "extra", "error") if name in run}
        body += part(f"{operation}.{run['id']}", {name: run[name] for name in run if name not in beside})
        body += b"".join(part(f"{operation}.{run['id']}.{name}", value) for name, value in beside.items())
    body += part(f"attachment.{TOOL_ID}.photo", b"\x00\r\n--x", "image/png")
    body += part(f"attachment.{TOOL_ID}.film", b"a" * (LARGEST_ATTACHMENT + 1), "video/mp4")
    body += part(
        "feedback.0190b3a4-7c1d-7e5f-8a2b-0000000000ff",
        {"key": "helpful", "score": 1, "run_id": TOOL_ID, "trace_id": ROOT_ID},
    )
    assert send(client, "/runs/multipart", body + END, MULTIPART) == (202, {"message": "Runs accepted"})
    assert_is_stored()
    [tool] = [span for span in spans_of(primary, Project.objects.get().pk, TRACE) if span.name == "get_weather"]
    attachments = tool.attributes["langsmith.run.attachments"]
    assert decoded_bytes(attachments["photo"]["data"]) == b"\x00\r\n--x"
    assert (attachments["film"]["size"], "data" in attachments["film"]) == (LARGEST_ATTACHMENT + 1, False)
    score = Score.objects.get()
    assert (score.name, score.number, score.call_id) == ("helpful", 1, ToolCall.objects.get().pk)


def test_feedback_becomes_a_score_and_is_changed(client: Client) -> None:
    feedback = {
        "id": "0190b3a4-7c1d-7e5f-8a2b-0000000000fe",
        "run_id": ROOT_ID,
        "key": "quality",
        "score": 0.5,
        "value": "fair",
        "comment": "So so.",
        "correction": {"answer": "32"},
        "feedback_source": {"type": "app", "user_name": "ada"},
        "created_at": "2026-11-20T10:00:00+00:00",
    }
    note = {"run_id": ROOT_ID, "key": "note", "comment": "Read it again."}
    for body in (feedback, note, note):
        assert send(client, "/feedback", body)[0] == 200
    for run in POSTS:
        send(client, "/runs", run)
    answer = Message.objects.get(role="assistant")
    score = Score.objects.get(name="quality")
    assert (score.kind, score.number, score.label, score.comment) == ("numeric", 0.5, "fair", "So so.")
    assert (score.source, score.author, score.message_id) == ("person", "ada", answer.pk)
    assert score.metadata["correction"] == {"answer": "32"}
    assert score.created_at == datetime(2026, 11, 20, 10, tzinfo=UTC)
    noted = Score.objects.get(name="note")
    assert (noted.value, noted.comment, noted.message_id) == (None, "Read it again.", answer.pk)
    path = f"/api/feedback/{feedback['id']}"
    for change, status in (
        ({"score": True, "comment": "Good."}, 200),
        ({}, 400),
        (7, 400),
        ({"score": "x" * 1001}, 400),
    ):
        response = client.patch(path, json.dumps(change), content_type="application/json")
        assert response.status_code == status, response.content
    score.refresh_from_db()
    assert (score.value, score.comment) == (True, "Good.")
    response = client.patch("/api/feedback/none", json.dumps({"score": 1}), content_type="application/json")
    assert response.status_code == 404


def test_secrets_do_not_reach_a_table(client: Client) -> None:
    run = {
        **POSTS[0],
        "inputs": {"password": "hunter2-hunter2"},
        "error": "token sk-proj-abcdefghijklmnopqrstuvwxyz123456",
    }
    assert send(client, "/runs", run)[0] == 202
    stored = SpanRow.objects.get().content
    assert "hunter2" not in stored
    assert "abcdefghijklmnop" not in stored


@pytest.mark.parametrize(
    ("path", "body", "content_type", "headers", "status", "reason"),
    [
        ("/runs/batch", b"{", "application/json", {}, 400, "not JSON"),
        ("/runs/batch", b"[]", "application/json", {}, 400, 'expected {"post"'),
        ("/runs/batch", b'{"foo": 1}', "application/json", {}, 400, 'expected {"post"'),
        ("/runs/batch", b"[" * 200_000, "application/json", {}, 400, "nested too deeply"),
        ("/runs", b"\xff", "application/json", {}, 400, "not JSON"),
        ("/runs", b'{"id": "7"}', "application/json", {}, 400, "id: “7” is not a UUID"),
        ("/runs", b'{"id": 7}', "application/json", {}, 400, "is not a UUID"),
        ("/runs/0-no-id", b"{}", "application/json", {}, 400, "id: “0-no-id” is not a UUID"),
        ("/runs", b"{}", "text/plain", {}, 415, "Content-Type"),
        ("/feedback", b'{"run_id": "7", "key": "k"}', "application/json", {}, 400, "run_id: “7”"),
        ("/feedback", b"{}", "application/json", {}, 400, "key"),
        ("/runs/multipart", b"x", "multipart/form-data", {}, 400, "without its boundary"),
        ("/runs/multipart", b"nothing", MULTIPART, {}, 400, "without its boundary"),
        ("/runs/multipart", part("post.7", {}), MULTIPART, {}, 400, "before its closing boundary"),
        ("/runs/multipart", b"--b0undary\r\nno headers\r\n" + END, MULTIPART, {}, 400, "empty line"),
        ("/runs/multipart", b"--b0undary\r\nA: b\r\n\r\n\r\n" + END, MULTIPART, {}, 400, "without a name"),
        ("/runs/multipart", part("post.7", b"{") + END, MULTIPART, {}, 400, "part post.7: not JSON"),
        ("/runs/multipart", b"(\xb5/\xfd", MULTIPART, {"Content-Encoding": "zstd"}, 400, "zstd"),
        ("/runs/multipart", zlib.compress(b"x")[:-3], MULTIPART, {"Content-Encoding": "deflate"}, 400, "deflate"),
    ],
)  # fmt: skip
def test_bad_body_is_refused_with_a_reason(
    path: str, body: bytes, content_type: str, headers: dict[str, str], status: int, reason: str, client: Client
) -> None:
    found, answer = send(client, path, body, content_type, **headers)
    assert (found, reason in answer["detail"]) == (status, True), answer
    assert not SpanRow.objects.exists()


def test_bad_items_are_named_and_the_others_stored(client: Client) -> None:
    body = b"".join(
        [part(f"post.{ROOT_ID}", POSTS[0]), part("post.7", {}), part(f"patch.{TOOL_ID}.inputs", {}), part("what", {}),
         part(f"post.{MODEL_ID}", []), part(f"attachment.{MODEL_ID}.a", b"")]
    )  # fmt: skip
    status, answer = send(client, "/runs/multipart", body + END, MULTIPART)
    assert (status, len(answer["errors"]), SpanRow.objects.count()) == (202, 5, 1)
    assert "post.7.id: “7” is not a UUID" in answer["errors"]
    status, answer = send(client, "/runs/batch", {"post": [7, POSTS[1]]})
    assert (status, answer["errors"], SpanRow.objects.count()) == (202, ["post[0].run: expected an object"], 2)
    assert send(client, "/runs/batch", {"patch": []}) == (202, {"message": "Runs accepted"})


def test_request_without_a_key_is_refused(db: None) -> None:
    assert send(Client(), "/runs/batch", {"post": POSTS})[0] == 401
    assert not SpanRow.objects.exists()


@pytest.mark.system
@pytest.mark.django_db(transaction=True)
def test_manual_calls_of_the_sdk_are_stored(live_server: LiveServer) -> None:
    project = Project.objects.create(slug="manual")
    _, key = create_key(project, name="agent", scopes=list(Scope))
    sdk = LangSmith(api_url=f"{live_server.url}/api", api_key=key, auto_batch_tracing=False)
    sdk.create_run(
        "ask", {"question": "How warm?"}, "chain", id=ROOT_ID, start_time=datetime(2026, 11, 20, 10, tzinfo=UTC)
    )
    sdk.update_run(ROOT_ID, outputs={"answer": "31 degrees"}, end_time=datetime(2026, 11, 20, 10, 1, tzinfo=UTC))
    sdk.create_feedback(ROOT_ID, "helpful", score=1, comment="Thanks", session_id=MODEL_ID)
    sdk.close()
    assert [message.content for message in Message.objects.order_by("pk")] == ["How warm?", "31 degrees"]
    assert [score.comment for score in Score.objects.filter(message__role="assistant")] == ["Thanks"]
