"""Langfuse's ingestion protocol of its SDKs before version 3: events that create and update, as pieces of spans.

Source: langfuse/langfuse, fern/apis/server/definition/ingestion.yml. Used by Dify, LiteLLM, Flowise and n8n, and by the
newer SDKs for scores. A trace becomes the root span; observations without a parent are below it. If there is only one, its
question and its answer are those of a trace that states none (nodes.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import fields, instant, text

from .langfuse_ids import span_id_of, trace_id_of
from .pieces import InvalidItem, decoded_json, nanoseconds, shown
from .span import Attributes, InvalidBody, LogRecord, Scope, Span, check_numbers
from .wire_scores import langfuse_score

OBSERVATIONS = frozenset(
    {"span", "generation", "event", "agent", "tool", "chain", "retriever", "evaluator", "embedding", "guardrail"}
)
TRACE = "trace"
"""The observation type of the span that a trace becomes."""
SCORE = "score-create"
LOGS = {"dataset-run-item-create": "langfuse.dataset_run_item"}
"""Events about a trace or an observation, and the names of the log records that they become."""
IGNORED = ("sdk-log",)
_AN_UPDATE = 2**62
"""Added to the revision of an update, because it overrides its create, which may be sent later."""

_OF_TRACE = {
    "sessionId": "session.id",
    "userId": "user.id",
    "name": "langfuse.trace.name",
    "tags": "langfuse.trace.tags",
    "input": "langfuse.trace.input",
    "output": "langfuse.trace.output",
    "public": "langfuse.trace.public",
}
_OF_OBSERVATION = {
    "input": "langfuse.observation.input",
    "output": "langfuse.observation.output",
    "model": "langfuse.observation.model.name",
    "modelParameters": "langfuse.observation.model.parameters",
    "level": "langfuse.observation.level",
    "statusMessage": "langfuse.observation.status_message",
    "completionStartTime": "langfuse.observation.completion_start_time",
    "promptName": "langfuse.observation.prompt.name",
    "promptVersion": "langfuse.observation.prompt.version",
}
_OF_BOTH = {"version": "langfuse.version", "release": "langfuse.release", "environment": "langfuse.environment"}
_TAKEN = frozenset(
    {"id", "traceId", "parentObservationId", "type", "timestamp", "startTime", "endTime", "metadata", "usage",
     "usageDetails", "costDetails"}
)  # fmt: skip
_TOKENS = {
    "input": "input",
    "output": "output",
    "total": "total",
    "promptTokens": "input",
    "completionTokens": "output",
    "totalTokens": "total",
    "prompt_tokens": "input",
    "completion_tokens": "output",
    "total_tokens": "total",
}
_UNIT = "TOKENS"
_COSTS = {"inputCost": "input", "outputCost": "output", "totalCost": "total"}


@dataclass(kw_only=True)
class Item:
    """One event of a request."""

    id: str
    delivery: Span | LogRecord | None = None
    """None for a score, and for an event that is not stored."""
    score: records.Score | None = None
    error: str | None = None
    """Why it was refused, for people."""


@dataclass
class _Event:
    type: str
    revision: int
    timestamp: int
    body: dict[str, Any] = field(default_factory=dict)
    scope: Scope = Scope(name="langfuse")

    @property
    def is_update(self) -> bool:
        return self.type.endswith("-update")


def decode_batch(body: bytes) -> list[Item]:
    """Return the events of `{"batch": [...]}`, each with what it becomes or why it is refused.

    Raise InvalidBody and TooManyItems.
    """
    request = decoded_json(body)
    if not isinstance(request, dict) or not isinstance(request.get("batch"), list):
        raise InvalidBody('expected {"batch": [event, ...]}')
    check_numbers(len(request["batch"]))
    about = fields(request.get("metadata"))
    version = text(about.get("sdk_version")) or text(about.get("sdkVersion")) or ""
    return [_item(event, Scope(name="langfuse", version=version)) for event in request["batch"]]


def decode_scores(body: bytes, now: datetime) -> tuple[list[Item], bool]:
    """Return the scores of a request of the newer SDKs, and whether it is a list. Raise InvalidBody and TooManyItems."""
    value = decoded_json(body)
    sent = value if isinstance(value, list) else [value]
    check_numbers(len(sent))
    items = []
    for each in sent:
        score = fields(each)
        item = Item(id=text(score.get("id")) or "")
        try:
            item.score = langfuse_score(score, now)
            item.id = item.id or item.score.external_id or ""
        except InvalidItem as error:
            item.error = str(error)
        items.append(item)
    return items, isinstance(value, list)


def _item(value: Any, scope: Scope) -> Item:
    item = Item(id=text(fields(value).get("id")) or "")
    try:
        event = _event(value, scope)
        if event is not None and event.type == SCORE:
            time = instant(value.get("timestamp"))
            item.score = langfuse_score(event.body, time)
        elif event is not None:
            item.delivery = _delivery(event, text(value.get("id")))
    except InvalidItem as error:
        item.error = str(error)
    return item


def _event(value: Any, scope: Scope) -> _Event | None:
    """Return an event; None for one that is not stored. Raise InvalidItem."""
    if not isinstance(value, dict):
        raise InvalidItem("expected an event: an object")
    type_, timestamp = value.get("type"), nanoseconds(value.get("timestamp"))
    if type_ in IGNORED:
        return None
    if not isinstance(type_, str) or not isinstance(value.get("body"), dict):
        raise InvalidItem("expected an event with id, type, timestamp and body")
    if not timestamp:
        raise InvalidItem(f"timestamp: {shown(value.get('timestamp'))}, expected ISO 8601")
    event = _Event(type=type_, revision=timestamp, timestamp=timestamp, body=value["body"], scope=scope)
    if event.is_update:
        event.revision += _AN_UPDATE
    return event


def _delivery(event: _Event, event_id: str | None) -> Span | LogRecord:
    if event.type == "trace-create":
        return _of_trace(event, event_id)
    if event.type in LOGS:
        return _log(event)
    return _of_observation(event, event_id)


def _of_trace(event: _Event, event_id: str | None) -> Span:
    body = event.body
    id_ = text(body.get("id")) or event_id
    if id_ is None:
        raise InvalidItem("body.id: expected the id of the trace")
    return Span(
        trace_id=trace_id_of(id_),
        span_id=span_id_of(id_),
        name=text(body.get("name")) or "",
        kind=1,
        start=nanoseconds(body.get("timestamp")) or event.timestamp,
        attributes=_attributes(body, _OF_TRACE, "langfuse.trace.metadata.")
        | {"langfuse.observation.type": TRACE, "langfuse.trace.id": id_},
        scope=event.scope,
        revision=event.revision,
    )


def _of_observation(event: _Event, event_id: str | None) -> Span:
    body = event.body
    kind, _separator, operation = event.type.rpartition("-")
    said = text(body.get("type")) if kind == "observation" else kind
    if operation not in ("create", "update") or (said is not None and said.lower() not in OBSERVATIONS):
        raise InvalidItem(f"type: {shown(event.type if kind != 'observation' else said)} is not known")
    id_ = text(body.get("id")) or (event_id if not event.is_update else None)
    if id_ is None:
        raise InvalidItem("body.id: expected the id of the observation")
    trace = text(body.get("traceId"))
    if trace is None and event.is_update:
        raise InvalidItem("body.traceId: expected the id of the trace, which is needed to find the observation")
    # An observation without a trace is a trace of its own.
    trace = trace or id_
    parent = text(body.get("parentObservationId")) or (trace if not event.is_update and trace != id_ else None)
    start = nanoseconds(body.get("startTime")) or (0 if event.is_update else event.timestamp)
    level = text(body.get("level"))
    attributes = _attributes(body, _OF_OBSERVATION, "langfuse.observation.metadata.") | _counts(body)
    if said is not None:
        attributes["langfuse.observation.type"] = said.lower()
    return Span(
        trace_id=trace_id_of(trace),
        span_id=span_id_of(id_),
        parent_id=span_id_of(parent) if parent is not None and parent != id_ else "",
        name=text(body.get("name")) or "",
        kind=1,
        start=start,
        end=nanoseconds(body.get("endTime")) or (start if said == "event" else 0),
        status="error" if level == "ERROR" else "",
        status_message=text(body.get("statusMessage")) or "",
        attributes=attributes | {"langfuse.observation.id": id_, "langfuse.trace.id": trace},
        scope=event.scope,
        revision=event.revision,
    )


def _log(event: _Event) -> LogRecord:
    """Return the log record of a run item: an event of its observation, or of the trace."""
    body = event.body
    trace = text(body.get("traceId"))
    if trace is None:
        raise InvalidItem("body.traceId: expected the id of a trace")
    return LogRecord(
        name=LOGS[event.type],
        trace_id=trace_id_of(trace),
        span_id=span_id_of(text(body.get("observationId")) or trace),
        time=event.timestamp,
        attributes={name: value for name, value in body.items() if value is not None},
        scope=event.scope,
    )


def _attributes(body: dict[str, Any], names: Mapping[str, str], metadata: str) -> Attributes:
    found: Attributes = {}
    for name, value in body.items():
        if name not in _TAKEN and value is not None:
            found[names.get(name) or _OF_BOTH.get(name) or f"langfuse.body.{name}"] = value
    own = body.get("metadata")
    if isinstance(own, dict):
        found |= {metadata + name: value for name, value in own.items()}
    elif own is not None:
        found[metadata + "metadata"] = own
    return found


def _counts(body: dict[str, Any]) -> Attributes:
    """Return tokens and costs, from the details or from the older `usage`."""
    usage = fields(body.get("usage"))
    tokens = fields(body.get("usageDetails")) or older_counts(usage)
    costs = fields(body.get("costDetails")) or {
        _COSTS[name]: cost for name, cost in usage.items() if name in _COSTS and cost is not None
    }
    found: Attributes = {}
    if tokens:
        found["langfuse.observation.usage_details"] = {_TOKENS.get(name, name): count for name, count in tokens.items()}
    if costs:
        found["langfuse.observation.cost_details"] = costs
    if unit := text(usage.get("unit")):
        found["langfuse.body.usage.unit"] = unit
    return found


def older_counts(usage: dict[str, Any]) -> dict[str, Any]:
    """Return the counts in an older `usage`. Those of characters, seconds and the like, which have no price of tokens, get the name of
    their unit."""
    counts = {
        _TOKENS.get(name, name): count
        for name, count in usage.items()
        if name not in (*_COSTS, "unit") and count is not None
    }
    unit = (text(usage.get("unit")) or _UNIT).lower()[:40]
    return counts if unit == _UNIT.lower() else {f"{name}_{unit}": count for name, count in counts.items()}
