"""What retrievers found becomes the references of the answer, by every convention that has them."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest

from tracesite_sdk import records
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.parsing.passages import MOST, passages_in

START = 1_780_000_000 * 10**9
DOCUMENT = {"page_content": "Oslo is in Norway.", "metadata": {"source": "oslo.txt", "title": "Oslo"}, "id": "d1"}
REFERENCE = records.Reference(
    id="d1",
    content="Oslo is in Norway.",
    knowledge_title="Oslo",
    knowledge_source="oslo.txt",
    metadata={"source": "oslo.txt", "title": "Oslo"},
    seq=0,
)


def span(number: int, parent: int = 0, *, start: int = 0, **attributes: Any) -> Span:
    return Span(
        trace_id="a" * 32,
        span_id=f"{number:016x}",
        parent_id=f"{parent:016x}" if parent else "",
        name=f"span {number}",
        start=START + (start or number) * 10**6,
        end=START + 10**9,
        attributes={name.replace("__", "."): value for name, value in attributes.items()},
    )


def answered(*retrievals: Span) -> list[Span]:
    messages = '[{"role": "user", "parts": [{"type": "text", "content": "Where is Oslo?"}]}]'
    reply = '[{"role": "assistant", "parts": [{"type": "text", "content": "In Norway."}]}]'
    chat = {"gen_ai__operation__name": "chat", "gen_ai__input__messages": messages, "gen_ai__output__messages": reply}
    return [span(1, gen_ai__operation__name="invoke_agent"), *retrievals, span(90, 1, **chat)]


def references(*spans: Span) -> list[records.Reference]:
    (answer,) = (message for message in session_of_trace(spans).messages or () if message.role == "assistant")
    return answer.knowledge_references or []


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "openinference.span.kind": "RETRIEVER",
            "retrieval.documents.0.document.id": "d1",
            "retrieval.documents.0.document.content": "Oslo is in Norway.",
            "retrieval.documents.0.document.metadata": '{"source": "oslo.txt", "title": "Oslo"}',
        },
        {"openinference.span.kind": "RETRIEVER", "output.value": as_json({"documents": [DOCUMENT]})},
        {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": as_json([DOCUMENT])},
        {"langfuse.observation.type": "retriever", "langfuse.observation.output": as_json([DOCUMENT])},
        {
            "langsmith.span.kind": "retriever",
            "langsmith.run.id": "r",
            "langsmith.run.outputs": {"documents": [{"lc": 1, "type": "constructor", "kwargs": DOCUMENT}]},
        },
        {"mlflow.spanType": '"RETRIEVER"', "mlflow.spanOutputs": as_json([DOCUMENT])},
    ],
)
def test_retrieved_documents_are_references_of_the_answer(attributes: dict[str, Any]) -> None:
    assert references(*answered(span(2, 1, **attributes))) == [REFERENCE]


def test_retrievals_are_in_the_order_of_time_in_whatever_order_they_come() -> None:
    def search(number: int, text: str, start: int) -> Span:
        output = as_json([{"text": text, "score": 0.5}])
        return span(number, 1, start=start, mlflow__spanType="RETRIEVER", mlflow__spanOutputs=output)

    spans = answered(search(2, "second", 9), search(3, "first", 4))
    for order in permutations(spans):
        assert [(one.content, one.score, one.seq) for one in references(*order)] == [
            ("first", 0.5, 0),
            ("second", 0.5, 1),
        ]


def test_database_below_retriever_is_the_same_search() -> None:
    documents = as_json([{"document.id": "d1", "document.score": 0.25, "document.content": "Oslo is in Norway."}])
    outer = span(2, 1, openinference__span__kind="RETRIEVER", output__value=as_json([{"text": "Oslo is in Norway."}]))
    found = references(*answered(outer, span(3, 2, **{"db.query.retrieved_documents": documents})))
    assert [(one.id, one.score, one.content) for one in found] == [("d1", 0.25, "Oslo is in Norway.")]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (["a", "", "b"], ["a", "b"]),
        ({"results": [{"body": "a"}]}, ["a"]),
        ({"nodes": [{"node": {"text": "a", "id_": "n"}, "score": float("nan")}]}, ["a"]),
        ({"matches": [{"id": 7}]}, [None]),
        ([1, None, {}, {"id": True}, []], []),
        ("no list", []),
        ({"documents": {"documents": {"documents": {"documents": {"documents": {"documents": ["deep"]}}}}}}, []),
        (["x"] * (MOST + 1), ["x"] * MOST),
    ],
)
def test_documents_of_any_shape_are_read_or_left_out(output: Any, expected: list[str | None]) -> None:
    assert [one.content for one in passages_in(output)] == expected
    assert all(one.score is None for one in passages_in(output))
