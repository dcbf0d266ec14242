"""A value of its own in every searched field of every record, sent by every way in: a new field is planted as soon as it exists."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import msgspec
from django.db import connection
from django.test import Client

from traces_app.normalize.redaction import searched_fields
from traces_app.schema import records

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
_OBJECTS = frozenset({"args", "data", "metadata", "parameters", "usage"})
_LISTS = frozenset({"attachments", "content_parts", "messages", "tools"})


class Garden:
    """Makes planted values; `form` makes one of twelve hexadecimal digits."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.planted: dict[str, str] = {}

    def value(self, place: str) -> str:
        value = self.form.format(sha1(place.encode(), usedforsecurity=False).hexdigest()[:12])
        self.planted[value] = place
        return value

    def record(self, type_: type[records.Record], **fields: Any) -> dict[str, Any]:
        """Return the JSON of a record with a planted value in each searched field."""
        grown: dict[str, Any] = {}
        for name in searched_fields([type_])[type_]:
            value = self.value(f"{type_.__name__}.{name}")
            if name in _OBJECTS:
                grown[name] = {"deep": [{"note": f"about {value}."}], "text": f'{{"inner": "{value}"}}'}
            elif name in _LISTS:
                grown[name] = [{"type": "text", "role": "user", "text": f"about {value}.", "content": f"of {value}"}]
            elif name == "tags":
                grown[name] = [value]
            elif name == "workflow":
                grown[name] = {"nodes": [{"id": "n", "label": f"about {value}."}]}
            else:
                grown[name] = f"about {value}."
        return grown | fields

    def left_in(self, text: str) -> list[str]:
        """Return the places whose values are in a text."""
        return sorted(place for value, place in self.planted.items() if value in text)


def plant(garden: Garden, client: Client) -> None:
    """Send everything; the client has a key with read and write."""
    result = garden.record(records.ToolResult, success=False)
    call = garden.record(records.ToolCall, id="c1", name="find", result=result)
    step = garden.record(records.AgentStep, iteration=0, tool_calls=[call], input=garden.record(records.ModelInput))
    message = garden.record(
        records.Message,
        external_id="m1",
        role="assistant",
        agent_steps=[step],
        knowledge_references=[garden.record(records.Reference)],
    )
    _send(
        client, "/api/v1/ingest/", {"sessions": [garden.record(records.Session, external_id="s1", messages=[message])]}
    )
    event = garden.record(records.Event, id="e1", session_id="s2", message_id="m2", type="prompt_build")
    call_events = [
        {"id": "e2", "session_id": "s2", "message_id": "m2", "type": "tool_call_start"},
        {"id": "e3", "session_id": "s2", "message_id": "m2", "type": "tool_call_complete"},
        {"id": "e4", "session_id": "s2", "type": "agent_start"},
    ]
    for one in call_events:
        args = {"note": garden.value(f"{one['type']}.args")}
        one["data"] = {"call_id": "c2", "name": "look", "args": args}
        if one["type"] == "tool_call_complete":
            one["data"]["output"] = garden.value("tool_call_complete.output")
    _send(client, "/api/v1/events/", {"events": [event, *call_events]})
    score = garden.record(
        records.Score, session_id="s1", message_id="m1", name="tone", value=garden.value("Score.value")
    )
    # The value says it.
    del score["label"], garden.planted[garden.value("Score.label")]
    _send(client, "/api/v1/scores/", score)
    span = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "name": "chat",
        "kind": 1,
        "startTimeUnixNano": "1767225600000000000",
        "endTimeUnixNano": "1767225601000000000",
        "attributes": [_attribute("note", garden.value("Span.attributes"))],
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
            cursor.execute(f'SELECT string_agg("{table}"::text, chr(10)) FROM "{table}"')
            texts.append(cursor.fetchone()[0] or "")
    return "\n".join(texts)


def _attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": f"about {value}."}}


def _send(client: Client, path: str, body: object) -> None:
    response = client.post(path, msgspec.json.encode(body), content_type="application/json")
    assert response.status_code < 300, (path, response.content)
