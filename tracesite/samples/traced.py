"""A run that came as the spans of OpenTelemetry, so that it has a tree of spans: an agent of the billing desk, written down by hand
after the conventions of generative AI, whose tool asks a database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from access_app.db import Database
from access_app.models import Project
from traces_app.spans.deliveries import record_spans
from traces_app.spans.projection import make_messages
from tracesite_sdk.spans.otlp_json import decode_traces

SESSION = "sample-overdue-invoices"
_TRACE = "5a1d7c0e93b24f86a7e0c4d2b9f61835"
_MODEL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-5-mini",
    "gen_ai.response.model": "gpt-5-mini-2025-08-07",
}
_ASKED = {"role": "user", "parts": [{"type": "text", "content": "Which invoices of Harbour Ltd are overdue?"}]}
_CALL = {
    "role": "assistant",
    "parts": [
        {"type": "tool_call", "id": "call_inv", "name": "list_invoices", "arguments": {"customer": "Harbour Ltd"}}
    ],
}
_INVOICES = [
    {"invoice": "INV-311", "due": "2026-03-02", "total": 640},
    {"invoice": "INV-327", "due": "2026-03-19", "total": 88},
]
_RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_inv", "response": _INVOICES}]}
_ANSWER = "Two invoices are overdue: INV-311 (640 €, since 2 March) and INV-327 (88 €, since 19 March)."
_TOLD = {"role": "assistant", "parts": [{"type": "text", "content": _ANSWER}], "finish_reason": "stop"}


def load_traced(db: Database, project: Project, start: datetime) -> None:
    """Store the trace as an exporter of OpenTelemetry sends it. It begins at `start`."""
    outcome = record_spans(db, project.pk, decode_traces(msgspec.json.encode(_request(start))), is_made_by_caller=True)
    make_messages(db, project.pk, outcome.changed)


def _request(start: datetime) -> dict[str, Any]:
    def time(after: int) -> str:
        return str(int((start + timedelta(milliseconds=after)).timestamp() * 1_000) * 1_000_000)

    def span(
        number: int, parent: int, name: str, kind: int, begin: int, end: int, attributes: Mapping[str, Any], **more: Any
    ) -> dict[str, Any]:
        return {
            "traceId": _TRACE,
            "spanId": f"{0x7C3E << 32 | number:016x}",
            "parentSpanId": f"{0x7C3E << 32 | parent:016x}" if parent else "",
            "name": name,
            "kind": kind,
            "startTimeUnixNano": time(begin),
            "endTimeUnixNano": time(end),
            "attributes": _pairs(attributes),
            **more,
        }

    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "billing", "gen_ai.conversation.id": SESSION}
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "list_invoices",
        "gen_ai.tool.call.id": "call_inv",
        "gen_ai.tool.call.arguments": _json({"customer": "Harbour Ltd"}),
        "gen_ai.tool.call.result": _json(_INVOICES),
    }
    query = {
        "db.system.name": "postgresql",
        "db.namespace": "billing",
        "db.operation.name": "SELECT",
        "db.query.text": "SELECT number, due, total FROM invoice WHERE customer = $1 AND paid IS NULL ORDER BY due",
        "server.address": "db.billing.internal",
        "server.port": 5432,
    }
    lost = {"exception.type": "OperationalError", "exception.message": "server closed the connection unexpectedly"}
    events = [{"name": "exception", "timeUnixNano": time(1_140), "attributes": _pairs(lost)}]
    links = [
        {
            "traceId": "c2f04b7d1e5a4c39b8d6e07f31a2954c",
            "spanId": "91be6a04d7f3c258",
            "attributes": _pairs({"link.reason": "job that loaded the invoices"}),
        }
    ]
    first = {
        "gen_ai.input.messages": _json([_ASKED]),
        "gen_ai.output.messages": _json([_CALL]),
        "gen_ai.usage.input_tokens": 212,
        "gen_ai.usage.output_tokens": 31,
    }
    last = {
        "gen_ai.input.messages": _json([_ASKED, _CALL, _RESULT]),
        "gen_ai.output.messages": _json([_TOLD]),
        "gen_ai.usage.input_tokens": 318,
        "gen_ai.usage.output_tokens": 44,
    }
    spans = [
        span(1, 0, "invoke_agent billing", 1, 0, 2_630, agent),
        span(2, 1, "chat gpt-5-mini", 3, 12, 918, _MODEL | first),
        span(3, 1, "execute_tool list_invoices", 1, 925, 1_540, tool, links=links),
        span(
            4,
            3,
            "SELECT billing.invoice",
            3,
            941,
            1_142,
            query,
            events=events,
            status={"code": 2, "message": lost["exception.message"]},
        ),
        span(5, 3, "SELECT billing.invoice", 3, 1_150, 1_531, query | {"db.response.returned_rows": 2}),
        span(6, 1, "chat gpt-5-mini", 3, 1_548, 2_611, _MODEL | last),
    ]
    resource = {
        "service.name": "billing-desk",
        "service.version": "4.2.0",
        "deployment.environment.name": "production",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.language": "python",
    }
    scope = {"name": "opentelemetry.instrumentation.openai_v2", "version": "2.3b0"}
    return {
        "resourceSpans": [
            {"resource": {"attributes": _pairs(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
        ]
    }


def _pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for name, value in attributes.items()
    ]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
