"""A value of its own in every searched field of every record, sent by every way in: a new field is planted as soon as it exists."""

from __future__ import annotations

import zlib
from base64 import b64encode
from contextlib import suppress
from hashlib import sha1, sha256
from typing import Any

import msgspec
from django.core.files.base import ContentFile
from django.db import connection
from django.test import Client
from django.test.client import encode_multipart
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from messages_app.models import Message, Session
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import searched_fields
from tracesite_sdk.records.snapshot_parts import ref_of
from tracesite_sdk.spans.media import media_id_of

WAYS = (
    records.Session,
    records.Message,
    records.Reference,
    records.AgentStep,
    records.ModelInput,
    records.ToolCall,
    records.ToolResult,
    records.Score,
    records.Event,
)
MONTH = "2026-01-01T00:00:00Z"
"""In a month that has ended, so that it can be archived."""
_OBJECTS = frozenset({"args", "data", "metadata", "parameters", "usage"})
_LISTS = frozenset({"attachments", "content_parts", "messages", "tools"})


_UNIQUE = 12
"""Characters at the end of a planted value that no other has."""


def _forms(text: str) -> list[str]:
    """Return a text, and what is of it in Base64 wherever it begins there."""
    encoded = [b64encode(b"_" * before + text.encode()).decode() for before in range(3)]
    # Without the characters that depend on what is around it.
    return [text, *(form[4 if before else 0 : -4] for before, form in enumerate(encoded))]


class Garden:
    """Makes planted values; `form` makes one of twelve hexadecimal digits."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.planted: dict[str, str] = {}

    def value(self, place: str) -> str:
        value = self.form.format(sha1(place.encode(), usedforsecurity=False).hexdigest()[:12])
        self.planted[value] = place
        return value

    def forget(self, place: str) -> None:
        """Take back what was planted in a place that is not sent."""
        self.planted = {value: known for value, known in self.planted.items() if not known.endswith(place)}

    def free(self, place: str) -> dict[str, Any]:
        """Return free JSON with a planted value."""
        return {"note": f"about {self.value(place)}."}

    def record(self, type_: type[records.Record], **fields: Any) -> dict[str, Any]:
        """Return the JSON of a record with a planted value in each searched field."""
        grown: dict[str, Any] = {}
        for name in searched_fields([type_])[type_]:
            place = f"{type_.__name__}.{name}"
            value = self.value(place)
            if name in _OBJECTS:
                inside = msgspec.json.encode({"inner": self.free(place)}).decode()
                grown[name] = {"deep": [self.free(place)], "text": inside}
            elif name in _LISTS:
                item = {"type": "text", "role": "user", "text": f"about {value}.", "content": f"of {value}"}
                grown[name] = [{**item, "more": self.free(place)}]
            elif name == "tags":
                grown[name] = [value]
            elif name == "workflow":
                grown[name] = {"nodes": [{"id": "n", "label": f"about {value}.", "more": self.free(place)}]}
            else:
                grown[name] = f"about {value}."
        return grown | fields

    def left_in(self, text: str) -> list[str]:
        """Return the places whose values, or the ends of them, are in a text: as they are, or in Base64."""
        return sorted(
            place for value, place in self.planted.items() if any(form in text for form in _forms(value[-_UNIQUE:]))
        )


def plant(garden: Garden, client: Client) -> None:
    """Send everything; the client has a key with read and write."""
    result = garden.record(records.ToolResult, success=False)
    call = garden.record(records.ToolCall, id="c1", name="find", result=result)
    step = garden.record(records.AgentStep, iteration=0, tool_calls=[call], input=garden.record(records.ModelInput))
    message = garden.record(
        records.Message,
        external_id="m1",
        role="assistant",
        created_at=MONTH,
        agent_steps=[step],
        knowledge_references=[garden.record(records.Reference)],
    )
    _send(
        client, "/api/v1/ingest/", {"sessions": [garden.record(records.Session, external_id="s1", messages=[message])]}
    )
    event = garden.record(
        records.Event, id="e1", session_id="s2", message_id="m2", type="prompt_build", timestamp=MONTH
    )
    call_events = [
        {"id": "e2", "session_id": "s2", "message_id": "m2", "type": "tool_call_start"},
        {"id": "e3", "session_id": "s2", "message_id": "m2", "type": "tool_call_complete"},
        {"id": "e4", "session_id": "s2", "type": "agent_start"},
    ]
    for one in call_events:
        one["timestamp"] = MONTH
        place = f"{one['type']}.args"
        # So large that it is stored beside the event.
        filler = {"filler": "lorem ipsum " * 2_000} if one["type"] == "tool_call_complete" else {}
        args = garden.free(place) | filler
        one["data"] = {"call_id": "c2", "name": "look", "args": args, **garden.free(f"{one['type']}.data")}
        if one["type"] == "tool_call_complete":
            one["data"]["output"] = garden.value("tool_call_complete.output")
    asked = {
        "messages": [{"role": "user", "content": garden.value("Context.messages"), **garden.free("Context.messages")}]
    }
    asked |= {"variables": garden.free("Context.variables")}  # type: ignore[dict-item]
    begun = {"id": "e5", "session_id": "s2", "message_id": "m2", "type": "llm_request_start", "timestamp": MONTH}
    call_events.append({**begun, "data": asked})
    _send(client, "/api/v1/events/", {"events": [event, *call_events]})
    score = garden.record(
        records.Score, session_id="s1", message_id="m1", name="tone", value=garden.value("Score.value")
    )
    # The value says it.
    del score["label"]
    garden.forget("Score.label")
    _send(client, "/api/v1/scores/", score)
    span = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "name": "chat",
        "kind": 1,
        "startTimeUnixNano": "1767225600000000000",
        "endTimeUnixNano": "1767225601000000000",
        "attributes": [
            _attribute("note", garden.value("Span.attributes")),
            _json_attribute("json", garden.free("Span.json")),
            {"key": "bytes", "value": {"bytesValue": b64encode(_text(garden, "Span.bytes").encode()).decode()}},
        ],
        "events": [
            {
                "name": "e",
                "timeUnixNano": "1767225600000000000",
                "attributes": [_attribute("n", garden.value("Span.events"))],
            }
        ],
        "status": {"code": 2, "message": garden.value("Span.status")},
    }
    resource = {"attributes": [_attribute("note", garden.value("Span.resource"))]}
    _send(client, "/v1/traces", {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]})


def stored() -> str:
    """Return the text of all rows of all tables of Tracesite, but the masking rules and the audit log."""
    tables = [
        name
        for name in connection.introspection.table_names()
        if name.startswith(("access_app_", "messages_app_", "traces_app_"))
        and name not in ("access_app_maskingrule", "access_app_auditentry")
    ]
    texts = []
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f'SELECT * FROM "{table}"')
            texts += [_as_text(value) for row in cursor.fetchall() for value in row]
    return "\n".join(texts)


def _as_text(value: Any) -> str:
    """Return a value of a column as text; bytes as they are, and what they are if they are compressed."""
    if not isinstance(value, bytes | memoryview):
        return str(value)
    content = bytes(value)
    with suppress(zlib.error):
        content += zlib.decompress(content)
    return content.decode("latin-1")


def _attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": f"about {value}."}}


def _json_attribute(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": msgspec.json.encode(value).decode()}}


def _send(client: Client, path: str, body: object, *, method: str = "POST", etag: str = "") -> None:
    headers = {"If-Match": etag} if etag else {}
    response = client.generic(method, path, msgspec.json.encode(body), "application/json", headers=headers)
    assert response.status_code < 300, (path, response.content)


def plant_elsewhere(garden: Garden, client: Client) -> None:
    """Send to the doors of other systems, and those that change what is stored; `plant` comes before."""
    _send(client, "/v1/logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [_log(garden)]}]}]})
    _send(client, "/api/public/ingestion", {"batch": _langfuse(garden)})
    for item in (_langsmith(garden), _feedback(garden)):
        _send(client, "/runs" if "run_type" in item else "/feedback", item)
    _send(client, "/v1/traces/ingest", {"data": _openai_traces(garden)})
    _send(client, "/api/v1/eko/callbacks/", {"messages": _callbacks(garden)})
    context = {**garden.free("Snapshot.parts"), "$parts": [_text(garden, "Snapshot.list")]}
    part = msgspec.json.encode(context)
    _upload(garden, client)
    snapshot = {"id": "p1", "ts": 1_767_225_600 * 10**9, "node_ids": ["plan"], "context_ref": ref_of(part)}
    snapshot["notes"] = [{"path": "x", "reason": _text(garden, "Snapshot.notes")}]
    _send(
        client,
        "/api/v1/snapshots/",
        {"session_id": "s1", "snapshot": snapshot, "parts": {ref_of(part): msgspec.Raw(part)}},
    )
    talk = [{"role": "user", "content": _text(garden, "Import.content")}]
    called = {"id": "c1", "function": {"name": "look", "arguments": f'{{"q": "{_text(garden, "Import.arguments")}"}}'}}
    talk += [{"role": "assistant", "tool_calls": [called]}]  # type: ignore[dict-item]
    talk += [{"role": "tool", "tool_call_id": "c1", "content": _text(garden, "Import.result")}]
    file = encode_multipart("limit", {"file": ContentFile(msgspec.json.encode(talk), "talk.json")})
    answer = client.post("/api/v1/import/", file, "multipart/form-data; boundary=limit")
    assert answer.status_code < 300, answer.content
    for path, body, kind in (
        ("/v1/traces", _protobuf(garden), "application/x-protobuf"),
        ("/runs/multipart", _multipart(garden), "multipart/form-data; boundary=limit"),
    ):
        answer = client.post(path, body, kind)
        assert answer.status_code < 300, (path, answer.content)
    for name in ("logs", "objects"):
        # Answered, and not kept.
        _send(client, f"/v4/{name}/upload/", {"body": garden.value(f"AgentOps.{name}")})
    _send(
        client,
        "/weknora/api/v1/sessions",
        {"title": _text(garden, "WeKnora.title"), "description": _text(garden, "WeKnora.description")},
    )
    session, message = Session.objects.get(external_id="s1"), Message.objects.get(external_id="m1")
    changed = {name: _text(garden, f"SessionPatch.{name}") for name in ("title", "description", "current_phase")}
    _send(client, f"/api/v1/sessions/{session.pk}/", changed, method="PATCH")
    content = {"content": _text(garden, "MessagePatch.content"), "error": _text(garden, "MessagePatch.error")}
    _send(client, f"/api/v1/messages/{message.pk}/", content, method="PATCH", etag=f'"{message.version}"')


def _protobuf(garden: Garden) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="note").value.string_value = _text(garden, "Protobuf.resource")
    span = resource.scope_spans.add().spans.add(
        trace_id=bytes(range(1, 17)),
        span_id=bytes(range(1, 9)),
        name="chat",
        start_time_unix_nano=1_767_225_600 * 10**9,
    )
    span.attributes.add(key="note").value.string_value = _text(garden, "Protobuf.attributes")
    listed = span.attributes.add(key="list").value.kvlist_value.values.add(key="deep")
    listed.value.array_value.values.add(string_value=_text(garden, "Protobuf.list"))
    span.attributes.add(key="bytes").value.bytes_value = _text(garden, "Protobuf.bytes").encode()
    span.events.add(name="e").attributes.add(key="n").value.string_value = _text(garden, "Protobuf.event")
    span.status.message = _text(garden, "Protobuf.status")
    return request.SerializeToString()


def _multipart(garden: Garden) -> bytes:
    run = "0190f6a1-7c2b-7d3e-8f40-112233445588"
    begun = "2026-01-01T00:00:00Z"
    about = {"id": run, "trace_id": run, "dotted_order": f"20260101T000000000000Z{run}", "name": "run"}
    parts: list[tuple[str, Any]] = [
        (f"post.{run}", {**about, "run_type": "tool", "start_time": begun, "end_time": begun})
    ]
    for name in ("inputs", "outputs", "extra", "serialized", "events", "error"):
        note: Any = _text(garden, f"Multipart.{name}")
        fields = {"error": note, "events": [{"name": "e", "time": begun, "message": note}]}
        parts.append((f"post.{run}.{name}", fields[name] if name in fields else garden.free(f"Multipart.{name}")))
    lines = b""
    for name, value in parts:
        head = f'--limit\r\nContent-Disposition: form-data; name="{name}"\r\nContent-Type: application/json\r\n\r\n'
        lines += head.encode() + msgspec.json.encode(value) + b"\r\n"
    head = (
        f'--limit\r\nContent-Disposition: form-data; name="attachment.{run}.note"\r\nContent-Type: text/plain\r\n\r\n'
    )
    lines += f"{head}{_text(garden, 'Multipart.attachment')}\r\n".encode()
    return lines + b"--limit--\r\n"


def refused(garden: Garden, client: Client) -> list[str]:
    """Send what is refused, with values where an error could repeat them; return what the answers do."""
    secret = garden.value
    bodies: list[tuple[str, Any]] = [
        ("/api/v1/ingest/", {"sessions": [{"external_id": "r", "messages": [{"role": secret("refused.role")}]}]}),
        ("/api/v1/ingest/", {"sessions": [{"external_id": "r", "created_at": secret("refused.time")}]}),
        ("/api/v1/ingest/", {"sessions": [{"external_id": "r", "status": secret("refused.status")}]}),
        ("/api/v1/ingest/", {"sessions": secret("refused.sessions")}),
        ("/api/v1/ingest/", {secret("refused.key"): 1}),
        ("/api/v1/events/", {"events": [{"session_id": "r", "type": secret("refused.type"), "ts": "x"}]}),
        ("/api/v1/scores/", {"message_id": "m1", "name": "n", "value": {"x": secret("refused.value")}}),
        ("/api/v1/snapshots/", {"session_id": "r", "parts": {secret("refused.part"): 1}}),
        ("/api/public/ingestion", {"batch": [{"id": "1", "type": secret("refused.langfuse"), "body": {}}]}),
        ("/runs", {"id": secret("refused.run"), "name": "n", "run_type": "chain"}),
        ("/v1/traces", {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": secret("refused.trace")}]}]}]}),
        ("/v1/traces/ingest", {"data": [{"object": secret("refused.object")}]}),
        ("/api/v1/eko/callbacks/", {"messages": [{"type": secret("refused.callback"), "taskId": 7}]}),
        ("/weknora/api/v1/sessions", {"title": 7, "description": secret("refused.description")}),
    ]
    answers = []
    for path, body in bodies:
        answers.append(client.post(path, msgspec.json.encode(body), "application/json").content.decode())
        answers.append(client.post(path, secret(f"refused.text {path}").encode(), "application/json").content.decode())
    answers += [
        client.get("/api/v1/messages/", {name: secret(f"refused.{name}")}).content.decode()
        for name in ("q", "cursor", "created_after", "status", "tool", "expand")
    ]
    answers.append(client.get(f"/api/v1/sessions/{secret('refused.path')}/").content.decode())
    answers.append(
        Client(headers={"Authorization": f"Bearer {secret('refused.token')}"}).get("/api/v1/messages/").content.decode()
    )
    return answers


def _text(garden: Garden, place: str) -> str:
    return f"about {garden.value(place)}."


def _upload(garden: Garden, client: Client) -> None:
    content = _text(garden, "Langfuse.media").encode()
    announced = {"traceId": "lf", "contentType": "text/plain", "contentLength": len(content)}
    announced["sha256Hash"] = b64encode(sha256(content).digest()).decode()
    asked = client.post("/api/public/media", msgspec.json.encode(announced), "application/json")
    assert Client().put(asked.json()["uploadUrl"], content, "text/plain").status_code == 200


def _log(garden: Garden) -> dict[str, Any]:
    return {
        "timeUnixNano": "1767225600500000000",
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "body": {"stringValue": _text(garden, "Log.body")},
        "attributes": [_attribute("n", garden.value("Log.attributes"))],
    }


def _langfuse(garden: Garden) -> list[dict[str, Any]]:
    def event(number: int, type_: str, **body: Any) -> dict[str, Any]:
        return {"id": f"l{number}", "type": type_, "timestamp": f"2026-01-01T10:00:{number:02}.000Z", "body": body}

    def fields(kind: str, *names: str) -> dict[str, str]:
        return {name: _text(garden, f"Langfuse.{kind}.{name}") for name in names}

    begun = {"startTime": "2026-01-01T10:00:01.000Z", "endTime": "2026-01-01T10:00:02.000Z", "traceId": "lf"}
    described = fields("generation", "input", "output", "statusMessage")
    media_id = media_id_of(sha256(_text(garden, "Langfuse.media").encode()).digest())
    described["input"] += f" @@@langfuseMedia:type=text/plain|id={media_id}|source=bytes@@@"
    described |= {"metadata": garden.free("Langfuse.generation.metadata")}  # type: ignore[dict-item]
    described |= {"modelParameters": garden.free("Langfuse.generation.parameters")}  # type: ignore[dict-item]
    return [
        event(0, "trace-create", id="lf", name="plan", sessionId="lf-1", metadata=garden.free("Langfuse.trace.metadata"),
              tags=[garden.value("Langfuse.trace.tags")], **fields("trace", "input", "output")),
        event(1, "generation-create", id="lg", **begun, **described),
        event(2, "span-create", id="ls", name="look", level="ERROR", **begun, **fields("span", "input", "output", "statusMessage")),
        event(3, "event-create", id="le", name="note", metadata=garden.free("Langfuse.event.metadata"), **begun),
        event(4, "score-create", id="lc", traceId="lf", name="tone", value=1, **fields("score", "comment")),
        event(5, "sdk-log", log=fields("log", "error")),
    ]  # fmt: skip


def _langsmith(garden: Garden) -> dict[str, Any]:
    run = "0190f6a1-7c2b-7d3e-8f40-112233445566"
    return {
        "id": run,
        "trace_id": run,
        "dotted_order": f"20260101T000000000000Z{run}",
        "name": "run",
        "run_type": "chain",
        "start_time": "2026-01-01T00:00:00Z",
        "end_time": "2026-01-01T00:00:01Z",
        "error": _text(garden, "LangSmith.error"),
        "tags": [garden.value("LangSmith.tags")],
        "events": [{"name": "e", "time": "2026-01-01T00:00:00Z", "message": _text(garden, "LangSmith.events")}],
        **{name: garden.free(f"LangSmith.{name}") for name in ("inputs", "outputs", "extra", "serialized")},
    }


def _feedback(garden: Garden) -> dict[str, Any]:
    run = "0190f6a1-7c2b-7d3e-8f40-112233445566"
    texts = {name: _text(garden, f"Feedback.{name}") for name in ("comment", "correction")}
    source = {"type": "api", "metadata": garden.free("Feedback.source")}
    about = {"id": "0190f6a1-7c2b-7d3e-8f40-112233445577", "run_id": run, "trace_id": run, "key": "tone", "score": 1}
    return {**about, **texts, "feedback_source": source}


def _openai_traces(garden: Garden) -> list[dict[str, Any]]:
    trace = "trace_0123456789abcdef0123456789abcdef"
    times = {"started_at": "2026-01-01T10:00:01+00:00", "ended_at": "2026-01-01T10:00:02+00:00"}

    def span(number: int, error: Any = None, **data: Any) -> dict[str, Any]:
        about = {"object": "trace.span", "id": f"span_{number}", "trace_id": trace, "parent_id": None}
        return {**about, **times, "span_data": data, "error": error}

    failure = {"message": _text(garden, "OpenAI.error"), "data": garden.free("OpenAI.error.data")}
    asked = [{"role": "user", "content": _text(garden, "OpenAI.input")}]
    answered = [{"role": "assistant", "content": _text(garden, "OpenAI.output")}]
    return [
        {"object": "trace", "id": trace, "workflow_name": "Trips", "metadata": garden.free("OpenAI.metadata")},
        span(1, type="generation", model="m", input=asked, output=answered),
        span(2, failure, type="function", name="look", input=_text(garden, "OpenAI.call"), output=_text(garden, "OpenAI.result")),
        span(3, type="custom", name="turn", data=garden.free("OpenAI.custom")),
    ]  # fmt: skip


def _callbacks(garden: Garden) -> list[dict[str, Any]]:
    about = {"streamType": "agent", "chatId": "chat", "taskId": "eko-p", "agentName": "Planer", "nodeId": "n0"}
    workflow = {"taskId": "eko-p", "name": _text(garden, "Eko.name"), "thought": _text(garden, "Eko.thought")}
    workflow |= {"agents": [], "xml": f"<root><name>{_text(garden, 'Eko.xml')}</name></root>"}  # type: ignore[dict-item]
    call = {"toolName": "look", "toolCallId": "ec1"}
    return [
        about | {"type": "workflow", "streamDone": True, "workflow": workflow},
        about | {"type": "text", "streamDone": True, "streamId": "t1", "text": _text(garden, "Eko.text")},
        about | {"type": "tool_use", **call, "params": {"q": _text(garden, "Eko.params")}},
        about | {"type": "tool_result", **call, "params": {"q": _text(garden, "Eko.params")},
                 "toolResult": {"content": [{"type": "text", "text": _text(garden, "Eko.result")}], "isError": False}},
        about | {"type": "error", "error": _text(garden, "Eko.error")},
    ]  # fmt: skip
