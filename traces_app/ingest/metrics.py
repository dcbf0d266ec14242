"""What is counted of ingest for `/metrics`, and the registry in which tracesite.metrics.registry finds it.

Plain Python, without Django. Every metric has labels, and their children are made when something is first counted, so
that a server that forks can choose before where the numbers are kept (tracesite.metrics.registry). A batch of 20 messages with
4 steps and 8 calls each costs 28 us, of the 10 ms and more that it takes to store it.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from traces_app.normalize.redaction import Redacted
from traces_app.schema import records

if TYPE_CHECKING:  # it knows the models, and this module is imported before there are any
    from .batch import SessionOutcome, Source, State

# By name, because this module is imported before the models are loaded.
MESSAGES, REFERENCES = "messages_app_message", "messages_app_reference"
STEPS, CALLS, RESULTS = "traces_app_agentstep", "traces_app_toolcall", "traces_app_toolresult"
TABLES = (MESSAGES, REFERENCES, STEPS, CALLS, RESULTS)
STATES: tuple[State, ...] = ("created", "updated", "unchanged", "refused")

# A series each that says when another series began: scrapers of the text format make nothing of it.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the package is typed in part

REGISTRY = CollectorRegistry()
ROWS = Counter("tracesite_ingest_rows_total", "Rows stored of new messages.", ["table"], registry=REGISTRY)
OUTCOMES = Counter("tracesite_ingest_messages_total", "Messages sent, by outcome.", ["state"], registry=REGISTRY)
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
    """Counts a batch that was stored; `outcomes` is what became of it, in its order."""
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


def begin_at_zero() -> None:
    """Shows what has not happened yet as 0: a rate over a series that is not there misses its first steps."""
    for table in TABLES:
        _rows(table)
    for state in STATES:
        _outcomes(state)


def forget() -> None:
    """Forgets all counts of this process."""
    for metric in (ROWS, OUTCOMES, BATCH_SECONDS):
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
