"""The metrics of ingest for `/metrics`, in a registry that tracesite.metrics.registry collects.

Plain Python, without Django. Every metric has labels, and its children are created at their first use, so that a forking
server can choose the storage of the values before (tracesite.metrics.registry). Counting a batch of 20 messages with 4
steps and 8 calls each takes 28 us, of the 10 ms and more for storing it.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import Redacted

if TYPE_CHECKING:  # batch.py imports models, and this module is imported before they are loaded
    from .batch import SessionOutcome, Source, State

# By name, because this module is imported before the models are loaded.
MESSAGES, REFERENCES = "messages_app_message", "messages_app_reference"
STEPS, CALLS, RESULTS = "traces_app_agentstep", "traces_app_toolcall", "traces_app_toolresult"
TABLES = (MESSAGES, REFERENCES, STEPS, CALLS, RESULTS)
Signal = Literal["traces", "logs", "metrics"]
SIGNALS: tuple[Signal, ...] = ("traces", "logs", "metrics")
STATES: tuple[State, ...] = ("created", "updated", "unchanged", "refused")

# Without the `_created` series, which scrapers of the text format do not use.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the package is typed in part

REGISTRY = CollectorRegistry()
ROWS = Counter("tracesite_ingest_rows_total", "Rows stored of new messages.", ["table"], registry=REGISTRY)
OUTCOMES = Counter("tracesite_ingest_messages_total", "Messages sent, by outcome.", ["state"], registry=REGISTRY)
SPANS = Counter(
    "tracesite_otlp_items_total",
    "Spans, log records and metrics received by OTLP.",
    ["signal", "state"],
    registry=REGISTRY,
)
BATCH_SECONDS = Histogram(
    "tracesite_ingest_batch_seconds",
    "Time to redact and store a batch.",
    ["source"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
    registry=REGISTRY,
)


def count_batch(
    batch: Sequence[Redacted], outcomes: Sequence[SessionOutcome], *, source: Source, seconds: float
) -> None:
    """Count a stored batch; `outcomes` are in its order."""
    states: dict[State, int] = {}
    rows: Tally[str] = Tally()
    for item, outcome in zip(batch, outcomes, strict=True):
        for message, result in zip(item.session.messages or (), outcome.messages, strict=True):
            states[result.state] = states.get(result.state, 0) + 1
            if result.state == "created":
                _count_rows(rows, message)
    for state, count in states.items():
        _outcomes(state).inc(count)
    for table, count in rows.items():
        _rows(table).inc(count)
    _batch_seconds(source).observe(seconds)


def count_otlp(signal: Signal, *, accepted: int, refused: int) -> None:
    """Count the items of one OTLP request."""
    SPANS.labels(signal, "accepted").inc(accepted)
    SPANS.labels(signal, "refused").inc(refused)


def begin_at_zero() -> None:
    """Create all series with the value 0, because a rate over a missing series loses its first increase."""
    for table in TABLES:
        _rows(table)
    for state in STATES:
        _outcomes(state)
    for signal in SIGNALS:
        count_otlp(signal, accepted=0, refused=0)


def forget() -> None:
    """Reset all metrics of this process."""
    for metric in (ROWS, OUTCOMES, SPANS, BATCH_SECONDS):
        metric.clear()
    for children in (_rows, _outcomes, _batch_seconds):
        children.cache_clear()


def _count_rows(rows: Tally[str], message: records.Message) -> None:
    rows[MESSAGES] += 1
    if message.knowledge_references:
        rows[REFERENCES] += len(message.knowledge_references)
    if not message.agent_steps:
        return
    calls = results = 0
    for step in message.agent_steps:
        for call in step.tool_calls or ():
            calls += 1
            results += call.result is not None
    rows[STEPS] += len(message.agent_steps)
    rows[CALLS] += calls
    rows[RESULTS] += results


@cache
def _rows(table: str) -> Counter:
    return ROWS.labels(table)


@cache
def _outcomes(state: State) -> Counter:
    return OUTCOMES.labels(state)


@cache
def _batch_seconds(source: Source) -> Histogram:
    return BATCH_SECONDS.labels(source)
