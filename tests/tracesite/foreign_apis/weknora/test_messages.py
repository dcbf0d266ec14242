"""Test loading, paging and deleting messages as WeKnora's clients do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from access_app.models import Project
from messages_app.models import Message as MessageRow
from messages_app.sql.pagination import MAX_LIMIT
from tests.traces_app.conftest import NOON, answer, counted_in, question, store
from tests.traces_app.views.test_query_counts import run

from .conftest import WeKnora, refused
from .strict import Message

BODY_404 = {
    "success": False,
    "code": 1003,
    "error": {"code": 1003, "message": "session not found", "details": {"code": "session_not_found", "field": None}},
}


def make_messages(count: int, *, start: datetime = NOON, name: str = "m", step: int = 1) -> list[dict[str, Any]]:
    """Return messages; every `step` of them share a time."""
    return [
        {
            "external_id": f"{name}{number}",
            "role": "user" if number % 2 == 0 else "assistant",
            "content": f"{name}{number}",
            "created_at": start + timedelta(seconds=number // step),
        }
        for number in range(count)
    ]


def front_end(load: Callable[[str | None], list[Message]], limit: int) -> Iterator[list[str]]:
    """Yield pages as WeKnora's front end reads them.

    The first message of a page is the next cursor. It stops at an empty or short page, or if the cursor did not move.
    """
    cursor: str | None = None
    while page := load(cursor):
        yield [message.content for message in page]
        if len(page) < limit or page[0].created_at == cursor:
            return
        cursor = page[0].created_at
    yield []


def test_load_returns_whole_trace_in_client_shape(weknora: WeKnora, project: Project) -> None:
    reference = {
        "id": "chunk-1", "content": "31 °C", "knowledge_id": "doc-1", "chunk_index": 3, "knowledge_title": "Weather",
        "start_at": 10, "end_at": 15, "seq": 1, "score": 1, "match_type": 4, "sub_chunk_id": ["chunk-2"],
        "metadata": {"page": 7, "lang": "zh", "none": None, "tags": ["a"], "final": True}, "chunk_type": "text",
        "parent_chunk_id": "chunk-0", "image_info": "[]", "knowledge_filename": "w.pdf", "knowledge_source": "upload",
    }  # fmt: skip
    session = store(project, question(request_id="req-1"), answer(knowledge_references=[reference]))
    asked, answered = weknora.load(session.id)
    assert (asked.role, asked.content, asked.agent_steps, asked.knowledge_references) == (
        "user", "What is the weather in Shanghai and in Atlantis?", None, [],
    )  # fmt: skip
    assert (answered.id, answered.session_id, answered.request_id, answered.is_completed, answered.created_at) == (
        str(session.messages[1].id), str(session.id), "req-1", True, "2026-03-01T12:00:00.000000Z",
    )  # fmt: skip
    (found,) = answered.knowledge_references or []
    assert vars(found) == {
        **reference, "score": 1.0,
        "metadata": {"page": "7", "lang": "zh", "none": "", "tags": '["a"]', "final": "true"},
    }  # fmt: skip
    steps = answered.agent_steps or []
    assert [(step.iteration, step.thought, step.timestamp) for step in steps] == [
        (0, "Ask for both cities at once.", "2026-03-01T12:00:00.000000Z"),
        (1, "Ask the researcher.", "2026-03-01T12:00:00.000000Z"),
    ]
    calls = [(call, call.result) for step in steps for call in step.tool_calls or []]
    assert [
        (call.id, call.name, call.args, call.duration, call.reflection, result and vars(result))
        for call, result in calls
    ] == [
        ("call_a", "get_weather", {"city": "上海"}, 40, "",
         {"success": True, "output": "31 °C", "data": {"temp_c": 31}, "error": "", "images": None}),
        ("call_b", "get_weather", {"city": "Atlantis"}, 12, "The city does not exist.",
         {"success": False, "output": "", "data": None, "error": "unknown city", "images": None}),
        ("call_c", "ask_researcher", {"q": "Atlantis"}, 90, "",
         {"success": True, "output": "a myth", "data": None, "error": "", "images": None}),
        ("call_d", "search", {"q": "Atlantis"}, 60, "",
         {"success": True, "output": "3 hits", "data": None, "error": "", "images": None}),
    ]  # fmt: skip


def test_load_omits_empty_fields_and_adds_own(weknora: WeKnora) -> None:
    call = {"name": "search", "metadata": {"trace": {"cost": 0.5}}, "retries": 2}
    steps = [{"thought": "t", "evaluation": {"score": 0.9}, "reasoning_content": "r", "tool_calls": [call]}]
    sent = {"external_id": "weather", "messages": [question(), answer(agent_steps=steps, channel="web")]}
    body = msgspec.json.encode({"sessions": [sent]})
    assert weknora.http.post("/api/v1/ingest/", body, content_type="application/json").status_code == 200
    assert weknora.load("weather")[1].channel == "web"
    _status, body = weknora.raw("get", "messages/weather/load")
    asked, answered = json.loads(body)["data"]
    assert list(asked) == [
        *("id", "session_id", "request_id", "content", "role", "knowledge_references", "is_completed"),
        *("created_at", "updated_at", "deleted_at"),
    ]
    (step,) = answered["agent_steps"]
    assert {name: step[name] for name in ("reasoning_content", "metadata", "evaluation")} == {
        "reasoning_content": "r",
        "metadata": {"evaluation": {"score": 0.9}},
        "evaluation": {"score": 0.9},
    }
    (called,) = step["tool_calls"]
    assert {name: value for name, value in called.items() if name != "id"} == {
        "name": "search", "args": {}, "result": None, "duration": 0, "metadata": {"trace": {"cost": 0.5}, "retries": 2},
    }  # fmt: skip


def test_load_leaves_out_json_of_tools(weknora: WeKnora, project: Project) -> None:
    asked = '{"needs_clarification": true, "questions": ["Which year?"]}'
    steps = [{"thought": "t", "metadata": {"thought": "mine"}}]
    store(project, question(content=asked), answer(content=f"Two are possible.\n{asked}", agent_steps=steps))
    loaded = weknora.load("weather")
    assert [message.content for message in loaded] == [asked, "Two are possible."]
    assert [step.thought for step in loaded[1].agent_steps] == ["t"]


def test_load_with_any_tool_data_is_decoded(weknora: WeKnora, project: Project) -> None:
    results: list[Any] = [
        {"output": "x", "data": [1, 2.5]},
        {"output": "x", "data": "text"},
        {"output": "x", "data": 12.0},
        {"output": {"nested": True}},
        {"success": False},
        {"status": "pending", "output": "half"},
        None,
    ]
    args: list[Any] = [["a", 1], "{broken", 7, None, '{"q": 1}', {}, {"deep": [[[]]]}]
    calls = [
        {"id": f"c{number}", "name": "t", "args": args[number], "result": result, "duration": 12.5}
        for number, result in enumerate(results)
    ]
    picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    calls.append({"id": "c7", "name": "t", "result": {"output": picture}})
    session = store(project, answer(agent_steps=[{"tool_calls": calls}]))
    ((message,),) = [weknora.load(session.id)]
    found = (message.agent_steps or [])[0].tool_calls or []
    assert [call.args for call in found[:7]] == [
        {"_raw": ["a", 1]}, {"_raw": "{broken"}, {"_raw": 7}, {}, {"q": 1}, {}, {"deep": [[[]]]},
    ]  # fmt: skip
    assert {call.duration for call in found[:7]} == {12}
    assert [call.result.data for call in found[:3] if call.result] == [
        {"results": [1, "2.5"]}, {"value": "text"}, {"value": "12.0"},
    ]  # fmt: skip
    assert found[4].result is not None and not found[4].result.success and found[4].result.error
    assert (found[5].result, found[6].result) == (None, None)
    assert found[7].result is not None and found[7].result.images == [picture]


@pytest.mark.parametrize("step", [1, 3, 45])
def test_paging_by_first_message_returns_each_once(weknora: WeKnora, project: Project, step: int) -> None:
    session = store(project, *make_messages(45, step=step))
    pages = list(front_end(lambda cursor: weknora.load(session.id, 20, cursor), 20))
    read = [content for page in reversed(pages) for content in page]
    assert sorted(read) == sorted(f"m{number}" for number in range(45))
    assert step > 1 or read == [f"m{number}" for number in range(45)]
    # The cursor excludes its own time, so messages with the same time are on one page, whatever its limit.
    assert [len(page) for page in pages] == {1: [20, 20, 5], 3: [21, 21, 3], 45: [45, 0]}[step]


def test_paging_during_changes_returns_each_once(weknora: WeKnora, project: Project) -> None:
    session = store(project, *make_messages(45, step=2))
    seen: list[str] = []
    for number, page in enumerate(front_end(lambda cursor: weknora.load(session.id, 10, cursor), 10)):
        seen = page + seen
        newer = make_messages(2, start=NOON + timedelta(hours=1, minutes=number), name=f"new{number}-")
        store(project, *newer)
        last = MessageRow.objects.get(content=page[-1])
        weknora.delete_message(session.id, last.pk)
    assert sorted(seen) == sorted(f"m{number}" for number in range(45))


def test_paging_by_last_message_repeats_newest_page(weknora: WeKnora, project: Project) -> None:
    """The same as with WeKnora itself: the cursor must be the first message, see docs/weknora.md."""
    session = store(project, *make_messages(45))
    page = weknora.load(session.id)
    assert [message.content for message in weknora.load(session.id, 20, page[-1].created_at)] == [
        f"m{number}" for number in range(24, 44)
    ]


@pytest.mark.parametrize(
    ("cursor", "last"),
    [
        ("2026-03-01T12:00:03Z", "m2"),
        ("2026-03-01T12:00:03.000000001Z", "m3"),
        ("2026-03-01T11:59:59.999999999Z", None),
        ("2026-03-01T20:00:03+08:00", "m2"),
        ("2026-03-01T20:00:03 08:00", "m2"),  # the plus was not percent-encoded
        ("  2026-03-01T12:00:03Z ", "m2"),
        ("", "m4"),
        ("0001-01-01T00:00:00Z", "m4"),  # Go's zero time
        ("0001-01-01T08:05:43+08:05", "m4"),
        ("0000-12-31T19:03:58-04:56", "m4"),
    ],
)
def test_before_time_is_compared_exactly(weknora: WeKnora, project: Project, cursor: str, last: str | None) -> None:
    session = store(project, *make_messages(5))
    found = [message.content for message in weknora.load(session.id, 1, cursor)]
    assert found == ([last] if last else [])


@pytest.mark.parametrize("cursor", ["yesterday", "2026-03-01", "2026-03-01T12:00:00", "2026-02-30T12:00:00Z", "\x00"])
def test_before_time_invalid_is_refused(weknora: WeKnora, project: Project, cursor: str) -> None:
    session = store(project, *make_messages(1))
    status, code, body = refused(lambda: weknora.load(session.id, 20, cursor))
    assert (status, code, body["success"], body["error"]["code"]) == (400, 1000, False, 1000)
    assert body["error"]["message"] == "Invalid time format, please use RFC3339 or RFC3339Nano format"


@pytest.mark.parametrize(
    ("limit", "count"),
    [("3", 3), ("+3", 3), ("", 20), ("abc", 20), ("1e3", 20), ("2.0", 20), (" 5", 20), ("٣", 20), ("9" * 30, 20),
     ("0", 0), ("-1", 30), ("100", 30), ("999999999", 30)],
)  # fmt: skip
def test_limit_invalid_falls_back_to_default(weknora: WeKnora, project: Project, limit: str, count: int) -> None:
    session = store(project, *make_messages(30))
    assert len(weknora.load(session.id, limit)) == count


def test_load_page_longer_than_read_chunk_is_complete(weknora: WeKnora, project: Project) -> None:
    session = store(project, *make_messages(MAX_LIMIT + 30, step=MAX_LIMIT + 5))
    names = [f"m{number}" for number in range(MAX_LIMIT + 30)]
    assert sorted(message.content for message in weknora.load(session.id, 1000)) == sorted(names)
    # The first message of the page shares its time with 204 others.
    assert len(weknora.load(session.id, 26)) == MAX_LIMIT + 30
    assert len(weknora.load(session.id, 25)) == 25


def test_resource_urls_unknown_is_refused(weknora: WeKnora, project: Project) -> None:
    session = store(project, *make_messages(1))
    assert len(weknora.load(session.id, resource_urls="public")) == len(weknora.load(session.id, anything="else")) == 1
    assert refused(lambda: weknora.load(session.id, resource_urls="both"))[:2] == (400, 1000)


def test_delete_message_of_other_session_or_twice_is_404(weknora: WeKnora, project: Project) -> None:
    session = store(project, *make_messages(2))
    other = store(project, *make_messages(1), external_id="other")
    message = session.messages[0].id
    assert refused(lambda: weknora.delete_message(other.id, message))[:2] == (404, 1003)
    assert weknora.delete_message("weather", message).message == "Message deleted successfully"
    status, code, body = refused(lambda: weknora.delete_message(session.id, message))
    assert (status, code, body["error"]["message"]) == (404, 1003, "message not found")
    assert [found.content for found in weknora.load(session.id)] == ["m1"]


@pytest.mark.parametrize("name", ["unknown", "550e8400-e29b-41d4-a716-446655440000", "%00", "a%0Ab"])
def test_load_unknown_session_is_404(weknora: WeKnora, db: None, name: str) -> None:
    for call in (lambda: weknora.load(name), lambda: weknora.load(name, 0), lambda: weknora.delete_message(name, "x")):
        assert refused(call) == (404, 1003, BODY_404)


def test_load_foreign_or_deleted_session_is_404(weknora: WeKnora, stranger_of: WeKnora, project: Project) -> None:
    session = store(project, *make_messages(2))
    assert refused(lambda: stranger_of.load(session.id)) == (404, 1003, BODY_404)
    assert refused(lambda: stranger_of.delete_message(session.id, session.messages[0].id)) == (404, 1003, BODY_404)
    weknora.delete(session.id)
    assert refused(lambda: weknora.load(session.id)) == (404, 1003, BODY_404)


def test_load_query_count_is_constant(weknora: WeKnora, project: Project) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert weknora.load(session.id, 100)
        return len(counted_in(captured))

    session = store(project, run(0, 1, 2), external_id="big")
    weknora.load(session.id)  # the first use of a key is stored
    few = queries()
    store(project, *(run(number, 10, 3) for number in range(1, 40)), external_id="big", source="import")
    # The key, the session, the ids of the page, and five tables.
    assert queries() == few <= 8


def test_load_returns_newer_fields_of_references(weknora: WeKnora) -> None:
    picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    newer = {
        "knowledge_base_id": "kb-1",
        "knowledge_channel": "web",
        "knowledge_description": "d",
        "matched_content": "31 °C",
    }
    reference = {"id": "chunk-1", "metadata": {"lang": "zh"}, **newer}
    result = {
        "success": True,
        "output": "A chart.",
        "data": {"display_type": "chart"},
        "error": "",
        "images": [picture],
    }
    calls = [{"id": "c1", "name": "draw", "args": {}, "result": result}]
    sent = answer(knowledge_references=[reference], agent_steps=[{"tool_calls": calls}])
    body = msgspec.json.encode({"sessions": [{"external_id": "weather", "messages": [sent]}]})
    assert weknora.http.post("/api/v1/ingest/", body, content_type="application/json").status_code == 200
    _status, raw = weknora.raw("get", "messages/weather/load")
    (found,) = json.loads(raw)["data"]
    (passage,) = found["knowledge_references"]
    assert {name: passage[name] for name in newer} == newer
    assert passage["metadata"] == {"lang": "zh"}
    (call,) = found["agent_steps"][0]["tool_calls"]
    assert call["result"] == {
        "success": True, "output": "A chart.", "data": {"display_type": "chart"}, "images": [picture],
    }  # fmt: skip
