"""Runs of LangSmith in files: answers of its API, bodies of requests, and their tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from sdk.tests.spans.langsmith_wire import MODEL_ID, PATCHES, POSTS, ROOT_ID, TOOL_ID, USAGE, order
from tracesite_sdk import records
from tracesite_sdk.formats import langsmith
from tracesite_sdk.formats.registry import format_of

from .reading import assert_takes_any_type, assert_takes_no_other, calls, has_failed, lines, mangled, read, steps

LAST_ID = "0190b3a4-7c1d-7e5f-8a2b-000000000004"


def run(own: str, kind: str, start: int, **fields: Any) -> dict[str, Any]:
    """Return a run as the API lists it; it takes a second, the root five."""
    above = {} if own == ROOT_ID else {"parent_run_id": ROOT_ID}
    end = start + (1 if above else 5)
    of_root = [ROOT_ID] if above else []
    return {
        "id": own, "trace_id": ROOT_ID, **above, "dotted_order": order(*of_root, own), "run_type": kind, "status": "success",
        "start_time": f"2026-11-20T10:00:{start:02}.000000", "end_time": f"2026-11-20T10:00:{end:02}.000000", "error": None,
        "session_id": "5f0c3d0e-0000-4000-8000-000000000009", "tags": [], "events": [], "extra": {"metadata": {"ls_model_name": "gpt-x"}},
        **fields,
    }  # fmt: skip


def dumped(kind: str, **fields: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": fields}


ASKED = dumped("HumanMessage", content="How warm is it?", type="human")
CALLED = dumped("AIMessage", content="", type="ai", tool_calls=[{"id": "c1", "name": "get_weather", "args": {"city": "Oslo"}, "type": "tool_call"}], usage_metadata={"input_tokens": 100, "output_tokens": 9, "total_tokens": 109, "input_token_details": {"cache_read": 60}})  # fmt: skip
FOUND = dumped("ToolMessage", content="31", type="tool", tool_call_id="c1", name="get_weather")
SAID = dumped("AIMessage", content="31 degrees.", type="ai")
# Newest first, and the sums of the requests in the root.
LISTED = [
    run(LAST_ID, "llm", 3, name="ChatOpenAI", inputs={"messages": [[ASKED, CALLED, FOUND]]}, outputs={"generations": [[{"text": "31 degrees.", "message": SAID}]]}, prompt_tokens=120, completion_tokens=5, total_tokens=125, total_cost="0.0012"),
    run(TOOL_ID, "tool", 2, name="get_weather", inputs={"input": "{'city': 'Oslo'}"}, outputs={"output": FOUND["kwargs"]}),
    run(MODEL_ID, "llm", 1, name="ChatOpenAI", inputs={"messages": [[ASKED]]}, outputs={"generations": [[{"text": "", "message": CALLED}]]}, prompt_tokens=100, completion_tokens=9, total_cost=0.002),
    run(ROOT_ID, "chain", 0, name="LangGraph", inputs={"messages": [{"type": "human", "content": "How warm is it?"}]}, outputs={"messages": [{"type": "ai", "content": "31 degrees."}]}, prompt_tokens=220, completion_tokens=14, total_cost="0.0032", extra={"metadata": {"thread_id": "th-1"}}),
]  # fmt: skip
BATCH = {"post": POSTS, "patch": PATCHES}


def only(document: Any) -> records.Session:
    assert format_of(document) is langsmith
    (session,), left_out = read(langsmith, document)
    assert left_out == []
    return session


@pytest.mark.parametrize(
    "document", [{"runs": LISTED, "cursors": {"next": None}}, LISTED, lines(LISTED), [{"runs": LISTED[:2]}, {"runs": LISTED[2:]}]]
)  # fmt: skip
def test_listed_runs_give_expected_records(document: Any) -> None:
    session = only(document)
    question, answer = session.messages or []
    assert (session.external_id, question.content, answer.content) == ("th-1", "How warm is it?", "31 degrees.")
    assert [(call.id, call.name, call.args, has_failed(call)) for call in calls(session)] == [
        ("c1", "get_weather", {"city": "Oslo"}, False)
    ]
    asked, replied = steps(answer)
    assert asked.usage == {"input_tokens": 100, "output_tokens": 9, "total_tokens": 109, "input_token_details": {"cache_read": 60}, "cost": 0.002}  # fmt: skip
    assert (replied.model, replied.usage) == ("gpt-x", {"input_tokens": 120, "output_tokens": 5, "cost": 0.0012})


def test_patches_complete_the_runs_of_a_body() -> None:
    session = only(BATCH)
    assert session.external_id == "thread-1"
    (call,) = calls(session)
    assert isinstance(call.result, records.ToolResult)
    assert (call.id, call.name, call.status, call.result.output) == ("c1", "get_weather", "error", "ValueError('no data')")  # fmt: skip
    assert [step.usage for step in steps((session.messages or [])[-1])] == [USAGE]


def test_patch_without_an_id_is_found_by_its_order() -> None:
    orders = [order(ROOT_ID, MODEL_ID), order(ROOT_ID, TOOL_ID), order(ROOT_ID)]
    patches = [
        {name: value for name, value in {**patch, "dotted_order": of}.items() if name != "id"}
        for patch, of in zip(PATCHES, orders, strict=True)
    ]
    session = only({"post": POSTS, "patch": patches})
    assert [(call.id, call.status) for call in calls(session)] == [("c1", "error")]
    assert [step.usage for step in steps((session.messages or [])[-1])] == [USAGE]


def test_run_without_a_patch_is_open() -> None:
    (call,) = calls(only({"post": POSTS, "patch": PATCHES[:1]}))
    assert (call.id, call.status) == ("c1", "pending")


def test_values_that_are_no_runs_are_left_out_with_their_place() -> None:
    document = [{"runs": [LISTED[-1], 3, {**LISTED[1], "id": "x"}]}, {"a": 1}, *LISTED[:3]]
    sessions, left_out = read(langsmith, document)
    assert [len(calls(session)) for session in sessions] == [1]
    assert left_out == [
        ("[0].runs[1]", "run: expected an object"),
        ("[0].runs[2]", "id: “x” is not a UUID"),
        ("[1]", "neither a run nor a list of runs"),
    ]


def test_value_of_any_type_is_read_in_any_place() -> None:
    assert_takes_any_type(langsmith, {"runs": LISTED})


@given(mangled([*LISTED, BATCH]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, lines(document) if isinstance(document, list) else None):
        if langsmith.recognises(form):
            read(langsmith, form)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"runs": []},
        # A dump of LangChain's first tracer, and a row of a data set.
        {"id": ROOT_ID, "run_type": "chain", "inputs": {}, "child_runs": []},
        {"inputs": {"question": "Hi"}, "outputs": {"answer": "Hi"}},
        lines([]),
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not langsmith.recognises(document)


def test_recognises_files_of_no_other_format() -> None:
    assert_takes_no_other(langsmith)
