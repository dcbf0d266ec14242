"""The rows of a trace are the same whatever the order, the batches and the repetition of its spans."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, MessageKey, Session
from messages_app.sql.periods import Period
from sdk.tests.length import examples
from sdk.tests.paths import SHARED
from sdk.tests.spans import test_failures, test_pairs
from traces_app.ingest.partitions import TABLES
from traces_app.models import AgentStep, ToolCall, ToolResult
from traces_app.models import Span as SpanRow
from traces_app.spans import deliveries
from traces_app.spans.deliveries import record_spans
from tracesite_sdk.spans import otlp_json
from tracesite_sdk.spans.span import Span, TooManyItems

GENERATED = SHARED / "otlp" / "generated"
SCENARIOS = ("openinference-langgraph", "logfire-pydantic-ai", "native-strands", "vercel-ai-legacy")
needs_data = pytest.mark.skipif(not GENERATED.exists(), reason="needs ../shared/data")

# Random or of the time of arrival.
_VARYING = {"id", "session_id", "updated_at", "version", "created_at", "active_at", "last_run_id"}


def spans_of(scenario: str) -> list[Span]:
    files = sorted((GENERATED / scenario / "json").glob("*-traces.json"))
    return [span for file in files for span in otlp_json.decode_traces(file.read_bytes())]


def snapshot() -> dict[str, list[Any]]:
    """Return all rows, without what depends on the time of arrival."""
    session_names = dict(Session.objects.values_list("pk", "external_id"))
    messages = [
        {**row, "session": session_names[row["session_id"]], "id": row["id"], "created_at": row["created_at"]}
        for row in Message.objects.order_by("pk").values()
    ]
    return {
        "sessions": sorted(
            ({name: value for name, value in row.items() if name not in _VARYING} for row in Session.objects.values()),
            key=lambda row: row["external_id"],
        ),
        "messages": [
            {name: value for name, value in row.items() if name not in _VARYING - {"id", "created_at"}}
            for row in messages
        ],
        "steps": list(AgentStep.objects.order_by("pk").values()),
        "calls": list(ToolCall.objects.order_by("pk").values()),
        "results": list(ToolResult.objects.order_by("pk").values()),
        "keys": sorted(MessageKey.objects.values_list("message_id", flat=True)),
    }


def clear() -> None:
    for rows in (ToolResult, ToolCall.with_deleted, AgentStep.with_deleted, SpanRow, MessageKey):
        getattr(rows, "objects", rows).all().delete()
    Message.with_deleted.all().delete()
    Session.with_deleted.all().delete()


def batches(spans: Sequence[Span], seed: random.Random) -> list[list[Span]]:
    """Split spans into batches at random, some of them repeated."""
    shuffled = [*spans, *seed.sample(list(spans), seed.randint(0, len(spans)))]
    seed.shuffle(shuffled)
    found = []
    while shuffled:
        size = seed.randint(1, max(1, len(shuffled)))
        found.append(shuffled[:size])
        shuffled = shuffled[size:]
    return found


@needs_data
@pytest.mark.django_db
@pytest.mark.parametrize("scenario", SCENARIOS)
@settings(
    max_examples=examples(5),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.randoms(use_true_random=False))
def test_any_order_and_batches_give_the_same_rows(scenario: str, seed: random.Random) -> None:
    project, _created = Project.objects.get_or_create(slug="order")
    clear()
    spans = spans_of(scenario)
    record_spans(primary, project.pk, spans)
    expected = snapshot()
    clear()
    for batch in batches(spans, seed):
        outcome = record_spans(primary, project.pk, batch)
        assert (outcome.reasons, outcome.accepted) == ([], len(batch))
    # The ids of tools are those of the first run.
    assert snapshot() == expected


def pieces_of(span: Span, seed: random.Random) -> list[Span]:
    """Return a span as LangSmith and Langfuse would send it: what is known at its start, then later facts."""
    names = sorted(span.attributes)
    early = set(seed.sample(names, seed.randint(0, len(names))))
    first = replace(
        span,
        end=0,
        status="",
        status_message="",
        events=[],
        attributes={name: value for name, value in span.attributes.items() if name in early},
        revision=0,
    )
    outdated = {name: "outdated" for name in seed.sample(names, seed.randint(0, len(names))) if name not in early}
    between = Span(trace_id=span.trace_id, span_id=span.span_id, attributes=outdated, revision=1)
    later = {name: value for name, value in span.attributes.items() if name not in early or seed.random() < 0.5}
    last = replace(span, name="", start=0, parent_id="", attributes=later, revision=2)
    return [first, between, last]


@needs_data
@pytest.mark.django_db
@pytest.mark.parametrize("scenario", SCENARIOS[:2])
@settings(
    max_examples=examples(3),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.randoms(use_true_random=False))
def test_pieces_in_any_order_give_the_rows_of_whole_spans(scenario: str, seed: random.Random) -> None:
    project, _created = Project.objects.get_or_create(slug="pieces")
    clear()
    spans = spans_of(scenario)
    record_spans(primary, project.pk, spans)
    expected = snapshot()
    clear()
    for batch in batches([piece for span in spans for piece in pieces_of(span, seed)], seed):
        outcome = record_spans(primary, project.pk, batch)
        assert (outcome.reasons, outcome.accepted) == ([], len(batch))
    assert snapshot() == expected


@needs_data
@pytest.mark.django_db(transaction=True)
def test_concurrent_senders_give_the_rows_of_one_batch() -> None:
    project = Project.objects.create(slug="senders")
    spans = [span for scenario in SCENARIOS for span in spans_of(scenario)]
    record_spans(primary, project.pk, spans)
    expected = snapshot()
    for number in range(3):
        clear()
        parts = batches(spans, random.Random(number))

        def send(batch: list[Span]) -> int:
            try:
                return record_spans(primary, project.pk, batch).refused
            finally:
                connection.close()

        with ThreadPoolExecutor(4) as senders:
            assert set(senders.map(send, [part[at::3] for part in parts for at in range(3) if part[at::3]])) == {0}
        assert snapshot() == expected


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_whole", [True, False], ids=["all tables", "spans only"])
def test_month_dropped_by_another_process_is_made_again(is_whole: bool) -> None:
    project = Project.objects.create(slug="months")

    def span(number: int) -> Span:
        return Span(
            trace_id=f"{number:032x}",
            span_id=f"{number:016x}",
            name="chat",
            start=1_750_000_000 * 10**9,
            end=1_750_000_001 * 10**9,
            attributes={"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"},
        )

    record_spans(primary, project.pk, [span(1)])
    month = Period.month(2025, 6)
    tables = [table.name for table in TABLES] if is_whole else ["traces_app_span"]
    with connection.cursor() as cursor:
        # Parents last.
        cursor.execute(f"DROP TABLE {', '.join(month.leaf(table) for table in reversed(tables))}")
    outcome = record_spans(primary, project.pk, [span(2)])
    assert not outcome.reasons
    assert [row.trace_id.int for row in SpanRow.objects.all() if row.trace_id.int == 2] == [2]
    assert Message.objects.filter(request_id=f"{2:032x}").count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("is_reversed", [False, True])
def test_session_waits_until_a_later_run_goes_on(project: Project, is_reversed: bool) -> None:
    session = {"session__id": "refunds"}
    around = replace(
        test_pairs.agent(1, until=5), attributes=test_pairs.agent(1).attributes | {"session.id": "refunds"}
    )
    asking = test_pairs.chat(2, 1, 1, test_pairs.part({}, "c1"))
    paused = test_failures.failed(test_pairs.tool(3, 1, 2, None, {}, "c1"), type="GraphInterrupt")
    first = [around, asking, paused]
    later = [replace(test_pairs.chat(9, 0, 50, **session), trace_id="d" * 32)]
    for spans in (later, first) if is_reversed else (first, later):
        record_spans(primary, project.pk, spans)
        if spans is first and not is_reversed:
            assert Session.objects.get().status == "paused"
            assert list(Message.objects.filter(is_completed=False).values_list("role", flat=True)) == ["assistant"]
    assert Session.objects.get().status == "completed"
    waited, answered = Message.objects.filter(role="assistant").order_by("pk")
    assert waited.is_completed and answered.is_completed
    assert waited.completed_at == answered.created_at


def test_many_traces_are_stored_some_at_a_time(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trace is locked, and the table of locks of PostgreSQL is bounded."""
    locked: list[int] = []
    keys_of = deliveries.delivery_keys_of

    def counted(project_id: int, trace_ids: set[str]) -> list[int]:
        locked.append(len(trace_ids))
        return keys_of(project_id, trace_ids)

    monkeypatch.setattr(deliveries, "delivery_keys_of", counted)
    monkeypatch.setattr(deliveries, "TRACES_AT_ONCE", 2)
    spans = [Span(trace_id=f"{number:032x}", span_id=f"{number:016x}", name="a") for number in (1, 2, 3, 4, 5, 1)]
    outcome = record_spans(primary, project.pk, [*spans, replace(spans[1], span_id="f" * 16)])
    assert (outcome.accepted, outcome.refused, locked) == (7, 0, [2, 2, 1])
    assert SpanRow.objects.count() == 6


def test_refused_trace_leaves_the_others_of_its_delivery(project: Project) -> None:
    prompt = {"gen_ai.operation.name": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "hi"}
    spans = [
        Span(
            trace_id=f"{number:032x}",
            span_id=f"{number:016x}",
            name="chat",
            start=10**18,
            end=10**18,
            attributes=prompt,
        )
        for number in (1, 2, 3)
    ]
    record_spans(primary, project.pk, [spans[0]])
    Session.objects.update(deleted_at=timezone.now())
    (stored,) = SpanRow.objects.values_list("pk", flat=True)
    outcome = record_spans(primary, project.pk, [replace(spans[0], span_id="f" * 16), *spans[1:]])

    assert (outcome.accepted, outcome.refused_traces) == (2, {spans[0].trace_id: "session_deleted"})
    traces = {row.hex for row in SpanRow.objects.exclude(pk=stored).values_list("trace_id", flat=True)}
    assert traces == {span.trace_id for span in spans[1:]}
    assert set(Message.objects.values_list("session__deleted_at", flat=True)) == {None}


@pytest.mark.django_db(transaction=True)
def test_delivery_of_a_new_trace_takes_one_savepoint(project: Project) -> None:
    spans = [test_pairs.agent(1), test_pairs.chat(2, 1, 1)]
    with CaptureQueriesContext(connection) as queries:
        record_spans(primary, project.pk, spans)
    commands = [query["sql"].split()[0] for query in queries]
    # That of the store, which tries again within the transaction.
    assert commands.count("SAVEPOINT") == 1


def test_spans_of_too_many_traces_are_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "MOST_TRACES", 2)
    spans = [Span(trace_id=f"{number:032x}", span_id=f"{number:016x}", name="a") for number in (1, 2, 3, 1)]
    with pytest.raises(TooManyItems, match="more than 2 traces"):
        record_spans(primary, project.pk, spans)
    assert SpanRow.objects.count() == 0
    assert record_spans(primary, project.pk, [*spans[:2], spans[3]]).accepted == 3
