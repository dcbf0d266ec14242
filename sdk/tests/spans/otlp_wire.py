"""Spans as OTLP sends them in JSON."""

from __future__ import annotations

from typing import Any

TRACE = "0af7651916cd43dd8448eb211c80319c"
START = 1_790_000_000_000_000_000
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather", "gen_ai.tool.call.result": "31"}


def request_of(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def wire_span(number: int = 1, parent: str = "") -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "parentSpanId": parent,
        "name": "execute_tool get_weather",
        "kind": 1,
        "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(START + 10**9),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in TOOL.items()],
        "status": {"code": 2, "message": "no"},
        "events": [{"name": "seen", "timeUnixNano": str(START + 1000)}],
    }


REQUEST: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "a"}}]},
            "scopeSpans": [
                {
                    "scope": {"name": "b", "attributes": [{"key": "c", "value": {"intValue": "1"}}]},
                    "spans": [
                        {
                            "traceId": TRACE,
                            "spanId": f"{1:016x}",
                            "name": "chat",
                            "kind": 3,
                            "startTimeUnixNano": str(START),
                            "endTimeUnixNano": str(START + 1),
                            "attributes": [
                                {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                                {
                                    "key": "gen_ai.input.messages",
                                    "value": {"arrayValue": {"values": [{"boolValue": True}]}},
                                },
                                {
                                    "key": "x",
                                    "value": {"kvlistValue": {"values": [{"key": "y", "value": {"doubleValue": 1.5}}]}},
                                },
                            ],
                            "events": [{"name": "e", "timeUnixNano": "5"}],
                            "links": [{"traceId": TRACE, "spanId": f"{2:016x}"}],
                            "status": {"code": 2, "message": "m"},
                        }
                    ],
                }
            ],
        }
    ]
}
