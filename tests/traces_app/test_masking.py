"""Masking rules apply to whatever way data comes in, before it is stored."""

from __future__ import annotations

import json
from io import StringIO

import msgspec
import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from access_app.keys import create_key
from access_app.masking import save_rule
from access_app.models import Project
from messages_app.models import Message

SECRET = "EMP-471193"
SESSION = {"id": "s", "title": f"about {SECRET}", "messages": [{"id": "m", "role": "user", "content": SECRET}]}
SPAN = {
    "traceId": "0af7651916cd43dd8448eb211c80319c",
    "spanId": "b7ad6b7169203331",
    "name": "chat",
    "kind": 1,
    "startTimeUnixNano": "1767225600000000000",
    "endTimeUnixNano": "1767225601000000000",
    "attributes": [{"key": "note", "value": {"stringValue": SECRET}}],
}
EVENT = {
    "session_id": "e",
    "message_id": "e1",
    "id": "1",
    "type": "tool_call_start",
    "data": {"call_id": "c", "name": "find", "args": {"who": SECRET}},
}


def dump() -> str:
    """Return the text of all rows of all tables of this project's apps, but the rules themselves and the audit log."""
    tables = [
        name
        for name in connection.introspection.table_names()
        if name.startswith(("access_app_", "messages_app_", "traces_app_"))
        and name not in ("access_app_maskingrule", "access_app_auditentry")
    ]
    with connection.cursor() as cursor:
        texts = []
        for table in tables:
            cursor.execute(f'SELECT string_agg("{table}"::text, chr(10)) FROM "{table}"')
            texts.append(cursor.fetchone()[0] or "")
    return "\n".join(texts)


def test_rule_applies_to_every_way_in(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    save_rule(project, "staff", "pattern", r"EMP-\d{6}")
    token = create_key(project, "agent", ["read", "write"])[1]
    client = Client(headers={"Authorization": f"Bearer {token}"})

    def send(method: str, path: str, body: object, **headers: str) -> None:
        data = msgspec.json.encode(body)
        response = client.generic(method, path, data, content_type="application/json", headers=headers)
        assert response.status_code < 300, (path, response.content)

    send("POST", "/api/v1/ingest/", {"sessions": [SESSION]})
    message = Message.objects.get(external_id="m")
    assert message.content == "[redacted]"
    assert message.redactions == [{"path": "content", "rule": "staff"}]
    send(
        "PATCH", f"/api/v1/messages/{message.pk}/", {"content": f"now {SECRET}"}, **{"If-Match": f'"{message.version}"'}
    )
    send("PATCH", f"/api/v1/sessions/{message.session_id}/", {"description": SECRET})
    send("POST", "/api/v1/events/", {"events": [EVENT]})
    send("POST", "/api/v1/scores/", {"message_id": str(message.pk), "name": "helpful", "value": 1, "comment": SECRET})
    send("POST", "/v1/traces", {"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]})
    send(
        "POST",
        "/runs",
        {
            "id": "0190f6a1-7c2b-7d3e-8f40-112233445566",
            "trace_id": "0190f6a1-7c2b-7d3e-8f40-112233445566",
            "dotted_order": "20260101T000000000000Z0190f6a1-7c2b-7d3e-8f40-112233445566",
            "name": "run",
            "run_type": "chain",
            "inputs": {"who": SECRET},
            "start_time": "2026-01-01T00:00:00Z",
        },
    )
    call_command("index_search", stdout=StringIO())

    stored = dump()
    assert "[redacted]" in stored
    assert SECRET not in stored
    assert SECRET not in caplog.text
    exported = client.get("/api/v1/messages/").content.decode()
    assert json.loads(exported)["results"]
    assert SECRET not in exported
