"""Odd values in every place of a valid body: each wire takes or refuses them, and a bad item does not refuse the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sdk.tests.odd_values import as_body, assert_taken_or_refused, with_odd_values
from sdk.tests.spans.otlp_wire import request_of
from sdk.tests.spans.wires import LANGFUSE_EVENTS, LANGFUSE_SCORE, LOG, NOW, OPENAI_SPAN, OTLP_SPAN, RUN_BODY, WIRES
from tracesite_sdk.spans import langfuse_events, langsmith_runs, openai_traces, otlp_json
from tracesite_sdk.spans.pieces import InvalidItem
from tracesite_sdk.spans.span import InvalidBody


@pytest.mark.parametrize("wire", WIRES)
def test_odd_value_is_taken_or_refused(wire: str) -> None:
    assert_taken_or_refused(*WIRES[wire], InvalidBody, InvalidItem, msgspec.DecodeError)


BATCHES: dict[str, tuple[Callable[[list[Any]], list[Any]], list[Any]]] = {
    "Langfuse": (
        lambda events: [
            item.delivery for item in langfuse_events.decode_batch(as_body({"batch": events})) if item.delivery
        ],
        LANGFUSE_EVENTS,
    ),
    "Langfuse scores": (
        lambda sent: [item.score for item in langfuse_events.decode_scores(as_body(sent), NOW)[0] if item.score],
        [LANGFUSE_SCORE, LANGFUSE_SCORE],
    ),
    "LangSmith": (lambda runs: langsmith_runs.decode_batch(as_body({"post": runs})).spans, [RUN_BODY, RUN_BODY]),
    "OTLP": (
        lambda spans: otlp_json.decode_traces(as_body(request_of(*spans)), lambda _reason, _items: None),
        [OTLP_SPAN, OTLP_SPAN],
    ),
    "OTLP logs": (
        lambda logs: otlp_json.decode_logs(
            as_body({"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}), lambda _reason, _items: None
        ),
        [LOG, LOG],
    ),
    "OpenAI": (lambda items: openai_traces.decode_items(as_body({"data": items}))[0], [OPENAI_SPAN, OPENAI_SPAN]),
}


@pytest.mark.parametrize("wire", BATCHES)
def test_odd_item_of_a_batch_is_refused_by_itself(wire: str) -> None:
    taken, (good, *others) = BATCHES[wire]
    (expected,) = taken([good])
    for place, odd in with_odd_values(json.loads(json.dumps(others))):
        # No list is no batch.
        if isinstance(odd, list):
            assert taken([good, *odd])[0] == expected, place


@pytest.mark.parametrize(
    ("nulls", "meaning"),
    [
        (dict.fromkeys(("parentSpanId", "kind", "status", "attributes", "events", "links", "flags")), {}),
        ({"attributes": [{"key": "a", "value": {"stringValue": None, "kvlistValue": {"values": None}}}]},
         {"attributes": [{"key": "a", "value": {"kvlistValue": {}}}]}),
        ({"events": [{"name": None, "timeUnixNano": "5"}]}, {"events": [{"timeUnixNano": "5"}]}),
    ],
    ids=["members", "value", "event"],
)  # fmt: skip
def test_null_in_otlp_is_the_default(nulls: dict[str, Any], meaning: dict[str, Any]) -> None:
    bare = {name: value for name, value in OTLP_SPAN.items() if name not in nulls}
    (span,) = otlp_json.decode_traces(as_body(request_of({**bare, **nulls})))
    assert [span] == otlp_json.decode_traces(as_body(request_of({**bare, **meaning})))
    # Null among the items of a list has no meaning.
    with pytest.raises(InvalidBody):
        otlp_json.decode_traces(as_body(request_of({**bare, "links": [None]})))


def test_null_in_resource_and_scope_of_otlp_is_the_default() -> None:
    request = request_of(OTLP_SPAN)
    (of_resource,) = request["resourceSpans"]
    of_resource["resource"] = {"attributes": None}
    of_resource["scopeSpans"][0]["scope"] = {"name": "library", "version": None, "attributes": None}
    refused: list[Any] = []
    (span,) = otlp_json.decode_traces(as_body(request), lambda *about: refused.append(about))
    assert (span.scope.name, span.scope.version, refused) == ("library", "", [])
