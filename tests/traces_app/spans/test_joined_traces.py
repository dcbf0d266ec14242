"""A call that one trace requested and another one executed stands once, and the traces are found, kept and removed together."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from access_app.db import primary
from access_app.encryption.keys import add_key
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.session_counters import disagreements
from messages_app.writes import delete_message
from sdk.tests.spans import test_failures, test_pairs
from sdk.tests.spans.test_pairs import part, response
from tests.traces_app.conftest import drop_all_periods
from tests.traces_app.spans.test_projection import clear, snapshot
from traces_app.ingest.scores import PlacedScore, ScoreTarget, store_scores
from traces_app.maintenance.archive.archiving import archive
from traces_app.maintenance.archive.folder import open_folder
from traces_app.maintenance.archive.restoring import restore
from traces_app.maintenance.erasure import Subject, erase, find
from traces_app.maintenance.purge.purging import purge_messages
from traces_app.maintenance.purge.reports import PurgeReport
from traces_app.models import Score, ToolCall
from traces_app.models import Span as SpanRow
from traces_app.spans.deliveries import record_spans
from traces_app.spans.stored import spans_of, traces_of
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.redaction.rules import DEFAULT_RULES
from tracesite_sdk.spans.span import Span

FAR = datetime(2100, 1, 1, tzinfo=UTC)
AGENT, TOOL, OTHER_TOOL = "a" * 32, "b" * 32, "0" * 31 + "1"
"""The trace of the last tool sorts before that of its agent."""
SESSION: dict[str, Any] = {"session__id": "theatre"}
SEATS = {"seats": 2}


def in_trace(trace_id: str, *spans: Span) -> list[Span]:
    return [replace(span, trace_id=trace_id) for span in spans]


def agent_trace(*call_ids: str, trace_id: str = AGENT, args: Any = SEATS, **about: Any) -> list[Span]:
    """Return an agent whose first request calls tools, and whose second one answers."""
    run = test_pairs.agent(1)
    run = replace(run, attributes=run.attributes | {"session.id": "theatre"} | about)
    calls = [part(args, call_id) for call_id in call_ids]
    told = [response("Row 7", call_id) for call_id in call_ids]
    return in_trace(trace_id, run, test_pairs.chat(2, 1, 1, *calls), test_pairs.chat(3, 1, 9, told=told))


def tool_trace(call_id: str, trace_id: str = TOOL, args: Any = SEATS, at: float = 3, **fields: Any) -> list[Span]:
    """Return a tool span without a parent."""
    tool = test_pairs.tool(4, 0, at, "Row 7", args, call_id, **fields)
    tool = replace(tool, span_id=f"{trace_id[-8:]:0>16}", attributes=tool.attributes | {"session.id": "theatre"})
    return in_trace(trace_id, tool)


def rows() -> dict[str, Any]:
    """Return all rows, with where the spans are stored."""
    spans = SpanRow.objects.order_by("pk").values_list("pk", "trace_id", "kind", "content")
    return {**snapshot(), "spans": list(spans)}


def same_rows_in_any_order(project: Project, traces: Sequence[list[Span]]) -> None:
    """Store traces together, then in each order, each twice, and compare the rows."""
    clear()
    assert not record_spans(primary, project.pk, [span for trace in traces for span in trace]).reasons
    expected = rows()
    for order in permutations(traces):
        clear()
        for trace in order:
            for _time in range(2):
                outcome = record_spans(primary, project.pk, trace)
                assert (outcome.reasons, outcome.accepted) == ([], len(trace))
        assert rows() == expected
    assert counters_agree()


def counters_agree() -> bool:
    return not disagreements(primary, list(Session.objects.values_list("pk", flat=True)))


def calls() -> list[tuple[str, str, int | None]]:
    found = ToolCall.objects.order_by("call_id", "pk")
    return [(call.call_id, call.status, call.duration_ms) for call in found]


def roles() -> list[str]:
    return list(Message.objects.order_by("pk").values_list("role", flat=True))


@pytest.fixture
def joined(project: Project) -> Project:
    for trace in (agent_trace("k1"), tool_trace("k1")):
        record_spans(primary, project.pk, trace)
    return project


@pytest.mark.django_db
def test_call_and_tool_of_two_traces_are_one_call(project: Project) -> None:
    same_rows_in_any_order(project, [agent_trace("k1"), tool_trace("k1")])
    assert (roles(), calls()) == (["user", "assistant"], [("k1", "success", 100)])
    assert Session.objects.get().call_count == 1


@pytest.mark.django_db
def test_tools_in_traces_of_their_own_join_one_run(project: Project) -> None:
    same_rows_in_any_order(
        project, [agent_trace("k1", "k2"), tool_trace("k1"), tool_trace("k2", OTHER_TOOL, at=2, name="book")]
    )
    assert (roles(), calls()) == (["user", "assistant"], [("k1", "success", 100), ("k2", "success", 100)])


@pytest.mark.django_db
def test_paused_call_has_what_a_later_trace_executed(project: Project) -> None:
    run, asking, _answering = agent_trace("k1")
    paused = test_failures.failed(test_pairs.tool(5, 1, 2, None, SEATS, "k1"), type="GraphInterrupt")
    resumed = in_trace(
        TOOL,
        replace(run, start=run.start + 60 * 10**9, end=run.end + 60 * 10**9, span_id="e" * 16),
        replace(test_pairs.tool(6, 1, 61, "Row 7", SEATS, "k1"), parent_id="e" * 16),
        replace(
            test_pairs.chat(
                7, 1, 62, told=[{"role": "assistant", "parts": [part(SEATS, "k1")]}, response("Row 7", "k1")]
            ),
            parent_id="e" * 16,
        ),
    )
    same_rows_in_any_order(project, [[run, asking, *in_trace(AGENT, paused)], resumed])
    assert (roles(), calls()) == (["user", "assistant", "assistant"], [("k1", "success", 100)])
    session = Session.objects.get()
    assert (session.status, session.failure_count) == ("completed", 0)
    assert [message.request_id for message in Message.objects.order_by("pk")] == [AGENT, AGENT, TOOL]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("tool", "count"),
    [
        (tool_trace("k1", args={"seats": 3}), 2),
        (tool_trace("k1", name="cancel"), 2),
        (tool_trace("k1", at=0.5), 2),
        (tool_trace("k2"), 2),
        ([replace(tool_trace("k1")[0], attributes=tool_trace("k1")[0].attributes | {"session.id": "opera"})], 2),
        (tool_trace("k1") + tool_trace("k1", OTHER_TOOL), 3),
    ],
    ids=["arguments", "name", "time", "id", "session", "two tools"],
)
def test_what_does_not_fit_is_a_call_of_its_own(project: Project, tool: list[Span], count: int) -> None:
    traces = [[span for span in tool if span.trace_id == trace_id] for trace_id in {span.trace_id for span in tool}]
    same_rows_in_any_order(project, [agent_trace("k1"), *traces])
    assert len(calls()) == count
    assert not SpanRow.objects.filter(kind="joined").exists()


@pytest.mark.django_db
def test_id_used_again_in_an_executing_trace_joins(project: Project) -> None:
    again = in_trace(
        OTHER_TOOL,
        *(replace(span, start=span.start + 10**12, end=span.end + 10**12) for span in agent_trace("k1")),
        replace(test_pairs.tool(5, 1, 1003, "Row 8", SEATS, "k1")),
    )
    same_rows_in_any_order(project, [agent_trace("k1"), tool_trace("k1"), again])
    assert calls() == [("k1", "success", 100), ("k1", "success", 100)]


@pytest.mark.django_db
def test_later_span_of_either_trace_keeps_the_call_joined(joined: Project) -> None:
    inside = replace(tool_trace("k1")[0], span_id="f" * 16, parent_id=f"{TOOL[-8:]:0>16}", name="GET", attributes={})
    changed = replace(tool_trace("k1")[0], revision=3, attributes={"gen_ai.tool.call.result": "Row 8"})
    more = in_trace(AGENT, test_pairs.chat(8, 1, 20, asked="Anything else?"))
    for later in ([inside], [changed], more):
        assert not record_spans(primary, joined.pk, later).reasons
        assert [(call.call_id, call.status) for call in ToolCall.objects.all()] == [("k1", "success")]
    assert ToolCall.objects.get().result.output == "Row 8"
    assert {row.hex for row in SpanRow.objects.exclude(kind="joined").values_list("trace_id", flat=True)} == {AGENT}
    assert counters_agree()


@pytest.mark.django_db
@pytest.mark.parametrize("change", [{"gen_ai.tool.call.id": "k7"}, {"session.id": "opera"}], ids=["id", "session"])
def test_trace_that_stops_sharing_a_call_stands_alone(joined: Project, change: dict[str, str]) -> None:
    changed = [replace(tool_trace("k1")[0], revision=3, attributes=change)]
    record_spans(primary, joined.pk, changed)
    found = rows()
    clear()
    for trace in (agent_trace("k1"), tool_trace("k1") + changed):
        record_spans(primary, joined.pk, trace)
    assert rows() == found
    assert len(calls()) == 2


@pytest.mark.django_db(transaction=True)
def test_concurrent_senders_of_sharing_traces_join_the_call(project: Project) -> None:
    traces = [agent_trace("k1", "k2"), tool_trace("k1"), tool_trace("k2", OTHER_TOOL, at=2)]
    record_spans(primary, project.pk, [span for trace in traces for span in trace])
    expected = rows()

    def send(trace: list[Span]) -> int:
        try:
            return record_spans(primary, project.pk, trace).refused
        finally:
            connection.close()

    for _time in range(5):
        clear()
        with ThreadPoolExecutor(4) as senders:
            assert set(senders.map(send, [[span] for trace in traces for span in trace])) == {0}
        assert rows() == expected


@pytest.mark.django_db
def test_only_waiting_calls_of_a_named_session_are_looked_for(project: Project) -> None:
    executed = [*agent_trace("k1"), *in_trace(AGENT, test_pairs.tool(5, 1, 3, "Row 7", SEATS, "k1"))]
    alone = [replace(span, attributes={**span.attributes, "session.id": None}) for span in agent_trace("k1")]
    for spans, count in ((executed, 0), (alone, 0), (agent_trace("k1"), 1)):
        clear()
        with CaptureQueriesContext(connection) as queries:
            record_spans(primary, project.pk, spans)
        assert sum("FROM traces_app_toolcall WHERE call_id = ANY" in query["sql"] for query in queries) == count


@pytest.mark.django_db
def test_message_in_the_trash_stays_there(joined: Project) -> None:
    answer = Message.objects.get(role="assistant")
    delete_message(primary, answer.pk, by="test")
    later = [replace(tool_trace("k1")[0], revision=3, attributes={"gen_ai.tool.call.result": "Row 8"})]
    for spans in (later, in_trace(AGENT, test_pairs.chat(8, 1, 20))):
        record_spans(primary, joined.pk, spans)
        assert (roles(), calls()) == (["user"], [])
    assert counters_agree()


@pytest.mark.django_db
def test_deleted_tool_stays_deleted_when_its_run_arrives(project: Project) -> None:
    record_spans(primary, project.pk, tool_trace("k1"))
    delete_message(primary, Message.objects.get().pk, by="test")
    record_spans(primary, project.pk, agent_trace("k1"))
    (call,) = ToolCall.objects.all()
    # From the end of the reply until the next request, because no tool has it.
    assert (roles(), call.duration_ms) == (["user", "assistant"], 7900)
    assert Message.with_deleted.filter(deleted_at__isnull=False).count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_purged_message_takes_the_spans_of_all(joined: Project, role: str) -> None:
    report = PurgeReport()
    purge_messages(primary, [Message.objects.get(role=role).pk], report)
    assert report.tables["spans"].rows == 5
    assert not SpanRow.objects.exclude(kind="joined").exists()
    left = snapshot()
    for spans in (tool_trace("k1"), agent_trace("k1"), tool_trace("k1") + agent_trace("k1")):
        assert record_spans(primary, joined.pk, spans).refused == len(spans)
    assert (snapshot(), SpanRow.objects.exclude(kind="joined").count()) == (left, 0)


@pytest.mark.django_db
@pytest.mark.parametrize("trace_id", [AGENT, TOOL])
def test_erased_word_is_in_no_span_of_a_joined_trace(project: Project, trace_id: str) -> None:
    for trace in (agent_trace("k1"), tool_trace("k1")):
        more = {"note": "Rosalind"} if trace[0].trace_id == trace_id else {}
        record_spans(primary, project.pk, [replace(trace[0], attributes=trace[0].attributes | more), *trace[1:]])
    found = find(primary, Subject(kind="match", text="rosalind", projects=[project]))
    assert len(found.messages) == 2
    erase(primary, found)
    assert not SpanRow.objects.exclude(kind="joined").exists()
    assert not Message.with_deleted.exists()


@pytest.mark.django_db
def test_spans_of_a_session_are_those_of_all_its_traces(joined: Project) -> None:
    session = Session.objects.get()
    (trace_id,) = traces_of(primary, session.pk)
    assert {span.trace_id for span in spans_of(primary, joined.pk, trace_id)} == {AGENT, TOOL}


@pytest.mark.django_db
@pytest.mark.parametrize("is_last", [False, True])
def test_score_of_a_joined_trace_is_of_the_call(project: Project, is_last: bool) -> None:
    def judge() -> None:
        for name, span_id in (("span", f"{TOOL[-8:]:0>16}"), ("trace", "")):
            record = records.Score(name=name, value=1, external_id=name)
            place = ScoreTarget(trace_id=TOOL, span_id=span_id)
            redacted = redact_score(record, DEFAULT_RULES)
            store_scores(primary, project.pk, [PlacedScore(redacted=redacted, place=place)])

    if not is_last:
        judge()
    for trace in (tool_trace("k1"), agent_trace("k1")):
        record_spans(primary, project.pk, trace)
    if is_last:
        judge()
    answer, call = Message.objects.get(role="assistant"), ToolCall.objects.get()
    places = {score.name: (score.message_id, score.call_id) for score in Score.objects.all()}
    assert places == {"span": (answer.pk, call.pk), "trace": (answer.pk, None)}


@pytest.mark.django_db
def test_traces_of_an_encrypted_project_are_joined(keeper: None, project: Project) -> None:
    add_key(project)
    same_rows_in_any_order(project, [agent_trace("k1"), tool_trace("k1")])
    assert calls() == [("k1", "success", 100)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_whole", [True, False], ids=["all", "session"])
def test_archive_restores_joined_traces(project: Project, tmp_path: Path, is_whole: bool) -> None:
    drop_all_periods()
    record_spans(primary, project.pk, agent_trace("k1"))
    record_spans(primary, project.pk, tool_trace("k1"))
    expected = rows()
    folder = open_folder(str(tmp_path))
    archive(primary, folder, before=FAR, drop=True)
    assert not SpanRow.objects.exists()
    restore(primary, folder, session=None if is_whole else "theatre")
    assert rows() == expected
    later = [replace(tool_trace("k1")[0], revision=3, attributes={"gen_ai.tool.call.result": "Row 8"})]
    assert not record_spans(primary, project.pk, later).reasons
    assert ToolCall.objects.get().result.output == "Row 8"
