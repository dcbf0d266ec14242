"""Scores find what they are about, whatever the order in which spans and scores arrive."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import pytest
from django.db import connection, connections
from msgspec.structs import replace

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.writes import delete_message
from traces_app.ingest.scores import PlacedScore, ScoreTarget, delete_score, store_scores
from traces_app.models import Score, ToolCall
from traces_app.queries.scores import find_place
from traces_app.spans.deliveries import record_spans
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.redaction.rules import DEFAULT_RULES
from tracesite_sdk.spans.span import Attributes, LogRecord, Span, SpanEvent

pytestmark = pytest.mark.django_db
TRACE = "0af7651916cd43dd8448eb211c80319c"
ROOT, MODEL, TOOL, INSIDE, OTHER = (f"{number:016x}" for number in range(1, 6))
_START = 1_780_000_000_000_000_000


def span(id_: str, parent: str, start: int, end: int, name: str, **attributes: object) -> Span:
    found: Attributes = {key.replace("__", "."): value for key, value in attributes.items()}
    times = (_START + second * 10**9 for second in (start, end))
    return Span(
        trace_id=TRACE, span_id=id_, parent_id=parent, name=name, start=next(times), end=next(times), attributes=found
    )


SPANS = [
    span(ROOT, "", 0, 9, "run", openinference__span__kind="AGENT", session__id="chat", input__value="How warm?",
         output__value="31 °C"),
    span(MODEL, ROOT, 1, 2, "gpt", openinference__span__kind="LLM", output__value="Ask."),
    span(TOOL, ROOT, 3, 5, "get_weather", openinference__span__kind="TOOL", input__value="{}", output__value="31"),
    span(INSIDE, TOOL, 4, 5, "GET /weather"),
]  # fmt: skip


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="scored")


def judge(project: Project, name: str, place: ScoreTarget, value: float = 1, **fields: str) -> None:
    record = records.Score(name=name, value=value, external_id=fields.pop("id", name), **fields)  # type: ignore[arg-type]
    store_scores(primary, project.pk, [PlacedScore(redacted=redact_score(record, DEFAULT_RULES), place=place)])


def judge_all(project: Project) -> None:
    for name, span_id in (
        ("root", ROOT),
        ("model", MODEL),
        ("tool", TOOL),
        ("inside", INSIDE),
        ("no span", ""),
        ("lost", OTHER),
    ):
        judge(project, name, ScoreTarget(trace_id=TRACE, span_id=span_id))
    judge(project, "session", ScoreTarget(session_name="chat"))


def assert_attached(project: Project) -> None:
    answer, call = Message.objects.get(role="assistant"), ToolCall.objects.get()
    assert {score.name: (score.session_id, score.message_id, score.call_id) for score in Score.objects.all()} == {
        **dict.fromkeys(("root", "model", "inside", "no span", "lost"), (answer.session_id, answer.pk, None)),
        "tool": (answer.session_id, answer.pk, call.pk),
        "session": (answer.session_id, None, None),
    }


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_scores_are_attached_in_any_order(project: Project, order: tuple[int, ...]) -> None:
    works: list[Callable[[], object]] = [
        lambda: record_spans(primary, project.pk, SPANS[2:]),
        lambda: judge_all(project),
        lambda: record_spans(primary, project.pk, SPANS[:2]),
    ]
    for place in order:
        works[place]()
    assert_attached(project)
    judge_all(project)
    record_spans(primary, project.pk, SPANS)
    assert_attached(project)


def test_pending_scores_are_visible_and_belong_to_nothing(project: Project) -> None:
    judge_all(project)
    assert set(Score.objects.values_list("session", "message", "call")) == {(None, None, None)}
    record_spans(
        primary,
        project.pk,
        [span("f" * 16, "", 0, 1, "x", openinference__span__kind="AGENT", input__value="a", output__value="b")],
    )
    # The session of the trace is not the one that its root will name.
    assert Score.objects.filter(name="session", session=None).count() == 1
    assert Score.objects.filter(name="root", message__isnull=False).count() == 1


def test_score_of_a_row_follows_it_when_its_trace_is_made_anew(project: Project) -> None:
    record_spans(primary, project.pk, SPANS[1:])
    call, answer = ToolCall.objects.get(), Message.objects.get(role="assistant")
    for name, record in (
        ("call", records.Score(name="a", value=1, call_id=str(call.pk))),
        ("message", records.Score(name="a", value=1, message_id=str(answer.pk))),
        ("session", records.Score(name="a", value=1, session_id=str(answer.session_id))),
    ):
        judge(project, name, find_place(primary, project.pk, record))
    record_spans(primary, project.pk, SPANS[:1])
    new_call, new_answer = ToolCall.objects.get(), Message.objects.get(role="assistant")
    assert new_answer.pk != answer.pk
    scores = {score.name: score for score in Score.objects.all()}
    assert (scores["call"].call_id, scores["call"].message_id) == (new_call.pk, new_answer.pk)
    assert (scores["message"].message_id, scores["message"].call_id) == (new_answer.pk, None)
    assert Session.objects.get().pk in {scores[name].session_id for name in ("call", "message")}


def test_scores_of_a_deleted_message_stay_hidden(project: Project) -> None:
    record_spans(primary, project.pk, SPANS)
    judge_all(project)
    delete_message(primary, Message.objects.get(role="assistant").pk, by="ada")
    judge(project, "later", ScoreTarget(trace_id=TRACE))
    record_spans(
        primary, project.pk, [span(OTHER, ROOT, 6, 7, "more", openinference__span__kind="TOOL", input__value="{}")]
    )
    assert list(Score.objects.values_list("name", flat=True)) == ["session"]
    assert Score.with_deleted.filter(message__isnull=False).count() == 7


def test_deleted_score_of_a_trace_stays_deleted_without_content(project: Project) -> None:
    record_spans(primary, project.pk, SPANS)
    judge(project, "tool", ScoreTarget(trace_id=TRACE, span_id=TOOL), comment="secret thoughts")
    delete_score(primary, Score.objects.get().pk)
    record = records.Score(name="tool", value=1, external_id="tool", comment="secret thoughts")
    placed = PlacedScore(redacted=redact_score(record, DEFAULT_RULES), place=ScoreTarget(trace_id=TRACE, span_id=TOOL))
    store_scores(primary, project.pk, [placed], keep_existing=True)
    row = Score.with_deleted.get()
    assert (Score.objects.count(), row.comment, row.number) == (0, "", None)


@pytest.mark.django_db(transaction=True)
def test_scores_and_spans_sent_at_once_find_each_other() -> None:
    project = Project.objects.create(slug="at-once")

    def in_thread(work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            connections.close_all()

    works: list[Callable[[], object]] = [
        *(lambda one=one: record_spans(primary, project.pk, [one]) for one in SPANS),  # type: ignore[misc]
        *(lambda: judge_all(project) for _time in range(3)),
    ]
    with ThreadPoolExecutor(len(works)) as threads:
        for done in [threads.submit(in_thread, work) for work in works]:
            done.result()
    assert_attached(project)
    connection.close()


@pytest.mark.parametrize("in_log", [True, False])
def test_evaluation_events_of_spans_become_scores(project: Project, in_log: bool) -> None:
    about: Attributes = {
        "gen_ai.evaluation.name": "relevance",
        "gen_ai.evaluation.score.value": 0.75,
        "gen_ai.evaluation.score.label": "relevant",
        "gen_ai.evaluation.explanation": "It names the city.",
    }
    bad: Attributes = {"gen_ai.evaluation.name": "empty"}
    if in_log:
        logs = [
            LogRecord(name="gen_ai.evaluation.result", trace_id=TRACE, span_id=TOOL, time=_START, attributes=one)
            for one in (about, bad)
        ]
        record_spans(primary, project.pk, SPANS[:2], logs)
        record_spans(primary, project.pk, SPANS[2:], logs)
    else:
        events = [SpanEvent(name="gen_ai.evaluation.result", time=_START, attributes=one) for one in (about, bad)]
        for _time in range(2):
            record_spans(
                primary, project.pk, [replace(one, events=events) if one.span_id == TOOL else one for one in SPANS]
            )
    score, call = Score.objects.get(), ToolCall.objects.get()
    assert (score.name, score.value, score.label, score.comment) == (
        "relevance",
        0.75,
        "relevant",
        "It names the city.",
    )
    assert (score.source, score.call_id, score.message_id) == ("evaluator", call.pk, call.message_id)
    delete_score(primary, score.pk)
    record_spans(primary, project.pk, [span(OTHER, ROOT, 6, 7, "more")])
    assert not Score.objects.exists()
