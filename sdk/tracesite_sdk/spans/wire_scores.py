"""Scores as other systems send them, as our records: Langfuse's scores, LangSmith's feedback, and the evaluation events of
OpenTelemetry's conventions for GenAI. Plain Python.

A score without an id gets a digest of its content as one, so that a second delivery is the same score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import as_json, fields, instant, text
from tracesite_sdk.normalize.scores import score_value

from . import langfuse_ids, pieces
from .pieces import InvalidItem, shown, uuid_of
from .span import LogRecord, Span, decoded_number

EVALUATION = "gen_ai.evaluation.result"
LANGFUSE_SCORE = "langfuse.score"
LANGSMITH_FEEDBACK = "langsmith.feedback"
"""Names of the log records that scores were kept as before they had a table."""
_LONGEST_COMMENT, _LONGEST_LABEL, _LONGEST_NAME = 20_000, 1_000, 512
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: Mapping[str, records.ScoreKind] = {
    "NUMERIC": "numeric",
    "BOOLEAN": "boolean",
    "CATEGORICAL": "categorical",
    "TEXT": "categorical",
    "CORRECTION": "categorical",
}
_LANGFUSE_SOURCES: Mapping[str, records.ScoreSource] = {"ANNOTATION": "person", "EVAL": "evaluator"}
_LANGSMITH_SOURCES: Mapping[str, records.ScoreSource] = {"app": "person", "model": "evaluator"}
_OF_LANGFUSE = frozenset(
    {"id", "traceId", "sessionId", "observationId", "name", "value", "comment", "dataType", "timestamp", "metadata"}
)
_OF_LANGSMITH = frozenset(
    {"id", "run_id", "trace_id", "session_id", "key", "score", "comment", "created_at", "modified_at", "metadata"}
)


# --- Langfuse ---------------------------------------------------------------------------------------------------------


def langfuse_score(body: Mapping[str, Any], time: datetime | None = None) -> records.Score:
    """Return the record of the body of a score. Raise InvalidItem."""
    name, trace, session = text(body.get("name")), text(body.get("traceId")), text(body.get("sessionId"))
    if not name:
        raise InvalidItem(f"body.name: {shown(body.get('name'))}, expected the name of the score")
    if trace is None and session is None:
        raise InvalidItem("body.traceId: expected the id of a trace, or the sessionId of a session")
    data_type = body.get("dataType")
    if data_type is not None and (not isinstance(data_type, str) or data_type not in _KINDS):
        raise InvalidItem(f"body.dataType: {shown(data_type)}, expected one of {', '.join(_KINDS)}")
    observation = text(body.get("observationId"))
    more = {key: value for key, value in body.items() if key not in _OF_LANGFUSE and value is not None}
    return _score(
        "body.value",
        name=name,
        value=body.get("value"),
        kind=_KINDS.get(data_type) if isinstance(data_type, str) else None,
        comment=body.get("comment"),
        source=_LANGFUSE_SOURCES.get(str(body.get("source"))),
        external_id=text(body.get("id"))
        or _digest(name, trace, session, observation, body.get("value"), body.get("comment")),
        session_id=session if trace is None else None,
        trace_id=langfuse_ids.trace_id_of(trace) if trace is not None else None,
        span_id=langfuse_ids.span_id_of(observation) if trace is not None and observation is not None else None,
        metadata=_metadata(body.get("metadata")) | more,
        created_at=instant(body.get("timestamp")) or time,
    )


# --- LangSmith --------------------------------------------------------------------------------------------------------


def langsmith_feedback(body: Mapping[str, Any]) -> records.Score:
    """Return the record of a feedback. Raise InvalidItem."""
    key = text(body.get("key"))
    if not key:
        raise InvalidItem(f"key: {shown(body.get('key'))}, expected the name of the feedback")
    run_id = uuid_of(body.get("run_id") or body.get("trace_id"), "run_id")
    trace_id = uuid_of(body["trace_id"], "trace_id") if body.get("trace_id") else run_id
    value, label = _langsmith_value(body)
    source = fields(body.get("feedback_source"))
    more = {name: item for name, item in body.items() if name not in _OF_LANGSMITH and item is not None}
    if label is not None or value is more.get("value"):
        more.pop("value", None)
    author = text(source.get("user_name")) or text(source.get("user_id"))
    return _score(
        "score",
        name=key,
        value=value,
        label=label,
        comment=body.get("comment"),
        source=_LANGSMITH_SOURCES.get(str(source.get("type"))),
        author=author[:_LONGEST_NAME] if author else None,
        external_id=text(body.get("id"))
        or _digest(key, run_id, body.get("score"), body.get("value"), body.get("comment")),
        trace_id=trace_id.hex,
        span_id=pieces.span_id(run_id.hex),
        metadata=more,
        created_at=instant(body.get("created_at")),
    )


def langsmith_change(body: Mapping[str, Any]) -> records.ScorePatch:
    """Return the change of a feedback. Raise InvalidItem."""
    changes: dict[str, Any] = {}
    if body.get("score") is not None or body.get("value") is not None:
        changes["value"], label = _langsmith_value(body)
        if label is not None:
            changes["label"] = label
    if body.get("comment") is not None:
        changes["comment"] = body["comment"]
    if not changes:
        raise InvalidItem("expected a score, a value or a comment")
    try:
        return msgspec.convert(changes, records.ScorePatch)
    except msgspec.ValidationError as error:
        raise InvalidItem(str(error)) from error


def _langsmith_value(body: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return the value and a label: feedback has a number, a text, or a number with a text."""
    score, value = body.get("score"), body.get("value")
    if score is None:
        return (value if isinstance(value, bool | int | float | str) else None), None
    return score, value if isinstance(value, str) and value else None


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------


def scores_in(spans: Iterable[Span], logs: Iterable[LogRecord]) -> list[records.Score]:
    """Return the scores that the spans and log records of a trace carry. Invalid ones stay with their span only."""
    scores: list[records.Score] = []
    for span in spans:
        for event in span.events:
            if event.name == EVALUATION:
                scores += _read(event.name, span.trace_id, span.span_id, event.time, event.attributes)
    for log in logs:
        name = log.name or str(log.attributes.get("event.name", ""))
        if name in (EVALUATION, LANGFUSE_SCORE, LANGSMITH_FEEDBACK):
            scores += _read(name, log.trace_id, log.span_id, log.time, log.attributes)
    return scores


def _read(
    name: str, trace_id: str, span_id: str, nanoseconds: int, attributes: Mapping[str, Any]
) -> Sequence[records.Score]:
    time = _EPOCH + timedelta(microseconds=nanoseconds // 1000) if 0 < nanoseconds < 2**62 else None
    try:
        if name == LANGFUSE_SCORE:
            return [langfuse_score(attributes, time)]
        if name == LANGSMITH_FEEDBACK:
            return [langsmith_feedback(attributes)]
        return [_evaluation(trace_id, span_id, time, attributes)]
    except InvalidItem:
        # A hostile or newer trace: what was sent is kept and shown with its span.
        return []


def _evaluation(trace_id: str, span_id: str, time: datetime | None, attributes: Mapping[str, Any]) -> records.Score:
    def of(name: str) -> Any:
        return attributes.get(f"gen_ai.evaluation.{name}")

    name, label = text(of("name")), text(of("score.label"))
    if not name:
        raise InvalidItem("gen_ai.evaluation.name is missing")
    value = of("score.value")
    if isinstance(value, dict):
        value = decoded_number(value)
    comment = of("explanation")
    return _score(
        "gen_ai.evaluation.score.value",
        name=name,
        value=label if value is None else value,
        label=label if value is not None else None,
        comment=comment if comment is None or isinstance(comment, str) else as_json(comment),
        source="evaluator",
        external_id=_digest(trace_id, span_id, name, value, label, comment, attributes.get("gen_ai.response.id")),
        trace_id=trace_id,
        span_id=span_id,
        metadata={
            key: item for key, item in attributes.items()
            if not key.startswith("gen_ai.evaluation.") and key != "event.name"
        },
        created_at=time,
    )  # fmt: skip


# --- All of them ------------------------------------------------------------------------------------------------------


def _score(where: str, **values: Any) -> records.Score:
    """Return a record of valid values. Raise InvalidItem; `where` is the name of the value in the request."""
    for name, longest in (("comment", _LONGEST_COMMENT), ("label", _LONGEST_LABEL)):
        value = values.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidItem(f"{name}: {shown(value)}, expected a text")
        if value is not None and len(value) > longest:
            raise InvalidItem(f"{name}: {len(value)} characters, at most {longest} are allowed")
    if len(values["external_id"]) > _LONGEST_NAME:
        values["external_id"] = _digest(values["external_id"])
    try:
        score = msgspec.convert({name: value for name, value in values.items() if value is not None}, records.Score)
        score_value(score.value, score.kind, score.label, comment=score.comment)
    except msgspec.ValidationError as error:
        raise InvalidItem(str(error).replace("`$.value`", where).replace("$.", "")) from error
    except ValueError as error:
        raise InvalidItem(f"{where}: {error}") from error
    return score


def _metadata(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    return dict(value) if isinstance(value, dict) else {"metadata": value}


def _digest(*parts: object) -> str:
    return "digest:" + blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
