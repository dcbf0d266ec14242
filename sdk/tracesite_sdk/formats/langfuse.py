"""Read exports of Langfuse: traces with their observations.

* Documents: `{"trace": {...}, "observations": [...]}` as downloaded from the web interface; a trace that contains its
  observations (GET /api/public/traces/{id}); traces or observations alone, in a list, in lines, or under `data` (the
  API) or `traces`. Field names are those of the API (startTime) or of the tables (start_time). Input, output and
  metadata are JSON, or JSON encoded as text once or twice.
* The traces with one `sessionId` are one session, ordered by time; a trace without it is a session of its own.
* GENERATION, TOOL and AGENT are what observations.py takes; a GENERATION has `usageDetails`, model and times. `level` ERROR
  is an error with the reason `statusMessage`.

All other observations are kept in the metadata; their input and output are omitted where another observation has the same
value. All ids are Langfuse's own. A document is held whole, because the rows of a trace may be anywhere in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import fields, instant, items, rest, text
from tracesite_sdk.normalize.pricing import is_amount
from tracesite_sdk.spans.langfuse_events import older_counts
from tracesite_sdk.spans.observations import EARLIEST, EMPTY, Kind, Observation, Reader, Trace, digest
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, numbered_values
from tracesite_sdk.transcripts.entries import Prompt, Transcript
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

NAME = "langfuse"

_TYPES = frozenset(
    {"GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"}
)
_TRACE_MARKS = frozenset(
    {"projectId", "project_id", "sessionId", "session_id", "htmlPath", "observations", "bookmarked", "latency"}
    | {"public"}
)
# Fields of an observation with a use of their own; all others are metadata.
_OBSERVATION_FIELDS = frozenset(
    {"id", "traceId", "trace_id", "type", "startTime", "start_time", "endTime", "end_time", "parentObservationId",
     "parent_observation_id", "input", "output", "model", "usage", "usageDetails", "usage_details", "metadata",
     "statusMessage", "status_message", "projectId", "project_id"}
)  # fmt: skip
_CALL_ID_ATTRIBUTES = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call_id", "tool_call.id")
_TOOL_NAME_ATTRIBUTES = ("gen_ai.tool.name", "ai.toolCall.name", "tool.name")
_AGENT_ATTRIBUTES = ("gen_ai.agent.name", "agent_name", "agent.name")
_KINDS: dict[str, Kind] = {"GENERATION": "generation", "TOOL": "tool", "AGENT": "agent"}


def recognises(document: Document) -> bool:
    """Return whether one of the first values is, or contains, a trace or an observation of Langfuse."""
    return any(map(_is_langfuse, first_values(document, 50)))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    traces: dict[str, _Trace] = {}
    for where, value in numbered_values(document):
        _add_value(value, where, traces, skip)
    sessions: dict[str, list[_Trace]] = defaultdict(list)
    for trace in traces.values():
        sessions[trace.session_id or trace.id].append(trace)
    for place, (id_, of_session) in enumerate(sessions.items()):
        read = sorted(((trace.as_trace(), trace) for trace in of_session), key=lambda pair: pair[0].began)
        reader = Reader()
        entries = [entry for trace, _rows in read for entry in reader.entries(trace)]
        first, rows = read[0]
        if not entries:
            skip(rows.where or "(all)", "a trace without messages")
            continue
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            external_id=id_ or None,
            has_own_ids=True,
            title=None if any(isinstance(entry, Prompt) for entry in entries) else text(rows.row.get("name")),
            end_user=next((user for _trace, rows in read if (user := text(_get(rows.row, "userId", "user_id")))), None),
            tags=list(dict.fromkeys(str(tag) for _trace, rows in read for tag in items(rows.row.get("tags")) if tag)),
            created_at=first.began if first.began > EARLIEST else None,
            metadata={"traces": [rows.metadata(trace) for trace, rows in read]},
        )


# --- Documents ----------------------------------------------------------------------------------------------------


@dataclass
class _Trace:
    id: str
    where: str
    row: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The observations by id, in the order in which they were first found."""

    @property
    def session_id(self) -> str | None:
        rows = (self.row, *self.rows.values())
        return next((id_ for row in rows if (id_ := text(_get(row, "sessionId", "session_id")))), None)

    def as_trace(self) -> Trace:
        observations = {id_: _observation(row, place) for place, (id_, row) in enumerate(self.rows.items())}
        starts = (observation.start for observation in observations.values() if observation.start)
        return Trace(
            id=self.id,
            has_session=self.session_id is not None,
            began=instant(self.row.get("timestamp")) or min(starts, default=EARLIEST),
            input=decoded(self.row.get("input")),
            output=decoded(self.row.get("output")),
            observations=observations,
        )

    def metadata(self, trace: Trace) -> dict[str, Any]:
        """Return the fields of the trace, and the observations that became no entries."""
        seen = {
            digest(value)
            for observation in trace.observations.values()
            if observation.used
            for value in (observation.input, observation.output)
        }
        metadata = rest(self.row, ("observations", "input", "output", "metadata"))
        for name in ("input", "output", "metadata"):
            value = decoded(self.row.get(name))
            if value not in EMPTY:
                metadata[name] = value
                seen.add(digest(value))
        others = []
        for observation in trace.observations.values():
            if observation.used:
                continue
            row = self.rows[observation.id]
            other = {
                name: row[name]
                for name in ("id", "type", "startTime", "start_time", "endTime", "end_time", "parentObservationId")
                if row.get(name)
            } | observation.metadata
            if observation.error:
                other["statusMessage"] = observation.error
            for name, value in (("input", observation.input), ("output", observation.output)):
                if value not in EMPTY and (known := digest(value)) not in seen:
                    seen.add(known)
                    other[name] = value
            others.append(other)
        return metadata | ({"observations": others} if others else {})


def _is_observation(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("type"), str)
        and value["type"] in _TYPES
        and _get(value, "traceId", "trace_id") is not None
        and _get(value, "startTime", "start_time") is not None
    )


def _is_trace(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("id"), str)
        and "timestamp" in value
        and "role" not in value
        and not {"input", "output", "observations"}.isdisjoint(value)
        and len(_TRACE_MARKS & value.keys()) >= 2
    )


def _is_bundle(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("observations"), list)
        and isinstance(value.get("trace"), dict)
        and isinstance(value["trace"].get("id"), str)
    )


def _is_langfuse(value: Any, depth: int = 0) -> bool:
    if _is_observation(value) or _is_trace(value) or _is_bundle(value):
        return True
    return (
        depth == 0
        and isinstance(value, dict)
        and any(
            _is_langfuse(item, 1) for key in ("data", "traces", "observations") for item in items(value.get(key))[:20]
        )
    )


def _add_value(value: Any, where: str, traces: dict[str, _Trace], skip: Skip) -> None:
    if _is_observation(value):
        trace_id = text(_get(value, "traceId", "trace_id")) or ""
        _add_observation(traces.setdefault(trace_id, _Trace(trace_id, where)), value, where, skip)
    elif _is_bundle(value):
        trace = _add_trace(value["trace"], _join(where, "trace"), traces, skip)
        for index, row in enumerate(value["observations"]):
            _add_observation(trace, row, _join(where, f"observations[{index}]"), skip)
    elif _is_trace(value):
        _add_trace(value, where, traces, skip)
    elif isinstance(value, dict) and _is_langfuse(value):
        for key in ("traces", "data", "observations"):
            for index, item in enumerate(items(value.get(key))):
                _add_value(item, _join(where, f"{key}[{index}]"), traces, skip)
    else:
        skip(where or "(all)", "neither a Langfuse trace nor an observation")


def _add_trace(row: dict[str, Any], where: str, traces: dict[str, _Trace], skip: Skip) -> _Trace:
    trace = traces.setdefault(row["id"], _Trace(row["id"], where))
    trace.row = trace.row | row
    for index, observation in enumerate(items(row.get("observations"))):
        # In a list of traces these are ids only.
        if not isinstance(observation, str):
            _add_observation(trace, observation, _join(where, f"observations[{index}]"), skip)
    return trace


def _add_observation(trace: _Trace, row: Any, where: str, skip: Skip) -> None:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        skip(where, "not an observation: no id")
        return
    trace.rows[row["id"]] = trace.rows.get(row["id"], {}) | row


def _observation(row: dict[str, Any], place: int) -> Observation:
    metadata = decoded(row.get("metadata"))
    others = rest(row, _OBSERVATION_FIELDS)
    if others.get("level") == "DEFAULT":
        del others["level"]
    name, type_ = text(row.get("name")) or "", text(row.get("type")) or ""
    error = None
    if row.get("level") == "ERROR":
        error = text(_get(row, "statusMessage", "status_message")) or f"{name or type_}: level ERROR"
    return Observation(
        id=row["id"],
        parent=text(_get(row, "parentObservationId", "parent_observation_id")),
        place=place,
        kind=_KINDS.get(type_, "other"),
        name=name,
        input=decoded(row.get("input")),
        output=decoded(row.get("output")),
        start=instant(_get(row, "startTime", "start_time")),
        end=instant(_get(row, "endTime", "end_time")),
        error=error,
        agent_name=_attribute(metadata, _AGENT_ATTRIBUTES),
        tool_name=_attribute(metadata, _TOOL_NAME_ATTRIBUTES),
        call_id=_attribute(metadata, _CALL_ID_ATTRIBUTES),
        is_embedding=type_ == "EMBEDDING",
        model=text(_get(row, "model", "provided_model_name")),
        usage=_usage(row),
        metadata=others | ({"metadata": metadata} if metadata not in EMPTY else {}),
    )


def _attribute(metadata: Any, names: tuple[str, ...]) -> str | None:
    """Return the first of these attributes in the metadata, or in the span attributes in it."""
    for attributes in (fields(metadata), fields(fields(metadata).get("attributes"))):
        for name in names:
            if isinstance(attributes.get(name), str) and attributes[name]:
                return str(attributes[name])
    return None


def _get(row: dict[str, Any], *names: str) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _usage(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the tokens under the names that `tokens` counts, and the cost that Langfuse knows."""
    details = fields(_get(row, "usageDetails", "usage_details")) or older_counts(fields(row.get("usage")))
    names = {"input": "input_tokens", "output": "output_tokens", "total": "total_tokens"}
    usage = {names.get(name, name): value for name, value in details.items() if value is not None}
    costs = fields(_get(row, "costDetails", "cost_details"))
    cost = _get(costs, "total") or _get(row, "calculatedTotalCost", "totalCost", "total_cost")
    if is_amount(cost) and cost:
        usage["cost"] = cost
    return usage if any(isinstance(value, int | float) and value for value in usage.values()) else None
