"""Sessions of ADK in both spellings, code that the provider runs, late results, and evaluation sets."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import google_adk
from tracesite_sdk.formats.registry import FORMATS, format_of
from tracesite_sdk.transcripts import databases

from .reading import (
    assert_grows,
    assert_takes_any_type,
    assert_takes_no_other,
    calls,
    figures,
    has_failed,
    lines,
    mangled,
    messages_of,
    only,
    read,
    steps,
)

NOON = 1772366400.25
"""2026-03-01T12:00:00.25Z."""


def part(**fields: Any) -> dict[str, Any]:
    """Return a part as Python dumps it, with all keys."""
    nothing = dict.fromkeys(
        ("text", "thought", "function_call", "function_response", "inline_data", "thought_signature")
    )
    return {**nothing, **fields}


def event(
    own: str, author: str, *parts: Any, second: int = 0, role: str = "model", turn: str = "e-1", **fields: Any
) -> dict[str, Any]:
    content = {"role": role, "parts": list(parts)} if parts else None
    actions = {"state_delta": {}, "artifact_delta": {}, "requested_auth_configs": {}}
    return {
        "id": own,
        "invocation_id": turn,
        "author": author,
        "timestamp": NOON + second,
        "content": content,
        "partial": None,
        "actions": actions,
        **fields,
    }


def call(name: str, own: str | None, **args: Any) -> dict[str, Any]:
    return part(function_call={"id": own, "name": name, "args": args, "partial_args": None})


def response(name: str, own: str | None, **output: Any) -> dict[str, Any]:
    return part(function_response={"id": own, "name": name, "response": output})


USAGE = {
    "prompt_token_count": 100,
    "candidates_token_count": 7,
    "thoughts_token_count": 3,
    "cached_content_token_count": 60,
    "total_token_count": 110,
}
EVENTS = [
    event("e1", "user", part(text="Is it warm?"), part(inline_data={"mime_type": "image/png", "data": "AA=="}), role="user"),
    event("e2", "weather", part(text="I "), partial=True, second=1),
    event("e3", "weather", part(text="Two cities.", thought=True), part(text="I look."), call("get", "adk-1", city="Oslo"), call("get", "adk-2", city="Rome"), second=1, usage_metadata=USAGE, model_version="gemini-x"),
    event("e4", "weather", response("get", "adk-1", result="12 degrees"), response("get", "adk-2", error="no station"), role="user", second=2),
    event("e5", "weather", call("transfer_to_agent", "adk-3", agent_name="writer"), second=3, usage_metadata={"prompt_token_count": 120, "candidates_token_count": 5}),
    event("e6", "weather", response("transfer_to_agent", "adk-3", result=None), role="user", second=3, actions={"state_delta": {"city": "Oslo"}, "transfer_to_agent": "writer"}),
    event("e7", "writer", part(text="Oslo is."), second=4, branch="weather.writer", usage_metadata={"prompt_token_count": 130, "candidates_token_count": 4}),
    event("e8", "weather", second=5),
    event("e9", "user", part(text="Thanks"), role="user", second=60, turn="e-2"),
    event("e10", "weather", second=61, turn="e-2", error_code="SAFETY", error_message="blocked"),
]  # fmt: skip


def session(events: list[Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "s-1",
        "app_name": "weather",
        "user_id": "ada",
        "state": {"city": "Oslo"},
        "events": events,
        "last_update_time": NOON + 99,
        **fields,
    }


def camel(value: Any) -> Any:
    """Return a value as JavaScript and Java write it: names in camel case, without nulls. The names of arguments are kept."""
    if isinstance(value, dict):
        kept = ("args", "response", "state", "state_delta")
        return {
            re.sub(r"_([a-z])", lambda found: found[1].upper(), name): item if name in kept else camel(item)
            for name, item in value.items()
            if item is not None
        }
    return list(map(camel, value)) if isinstance(value, list) else value


def test_full_session_gives_expected_records() -> None:
    found = only(google_adk, session(EVENTS))
    assert (found.external_id, found.end_user, found.title) == ("s-1", "ada", "Is it warm?")
    assert found.metadata is not None and (found.metadata["app_name"], found.metadata["state"]) == (
        "weather",
        {"city": "Oslo"},
    )
    question, answer, thanks, failed = found.messages or []
    assert question.content == [
        {"type": "text", "text": "Is it warm?"},
        {"type": "inlineData", "inlineData": {"mime_type": "image/png", "data": "AA=="}},
    ]
    assert question.created_at == datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    assert (answer.external_id, answer.content, (answer.metadata or {})["agent_name"]) == ("e3", "Oslo is.", "writer")
    first, second, last = steps(answer)
    assert (first.thought, first.reasoning_content, first.agent_name, first.model) == (
        "I look.",
        "Two cities.",
        "weather",
        "gemini-x",
    )
    assert first.usage == {
        "promptTokenCount": 100,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 3,
        "cachedContentTokenCount": 60,
        "totalTokenCount": 110,
    }
    assert (second.usage, last.agent_name) == ({"promptTokenCount": 120, "candidatesTokenCount": 5}, "writer")
    oslo, rome, transfer = calls(found)
    assert (oslo.id, oslo.args, has_failed(oslo)) == ("adk-1", {"city": "Oslo"}, False)
    assert isinstance(oslo.result, records.ToolResult) and oslo.result.output == "12 degrees"
    assert (rome.id, has_failed(rome), transfer.args, transfer.status) == (
        "adk-2",
        True,
        {"agent_name": "writer"},
        None,
    )
    assert (thanks.content, failed.error) == ("Thanks", "blocked")


def test_sample_matches_counts_made_by_hand() -> None:
    counts = figures([only(google_adk, session(EVENTS))])
    assert (counts["user"], counts["tool_calls_by_name"], counts["tool_results"]) == (
        2,
        {"get": 2, "transfer_to_agent": 1},
        3,
    )
    assert (counts["errors_by_tool"], counts["calls_without_result"], counts["results_without_call"]) == (
        {"get": 1},
        0,
        0,
    )


@pytest.mark.parametrize("document", [camel(session(EVENTS)), [camel(session(EVENTS))], lines([session(EVENTS)])])
def test_every_spelling_and_container_gives_the_same(document: object) -> None:
    written, expected = only(google_adk, document), only(google_adk, session(EVENTS))
    assert [(call.name, call.args, call.id) for call in calls(written)] == [
        (call.name, call.args, call.id) for call in calls(expected)
    ]
    assert [[step.usage for step in steps(message)] for message in written.messages or ()] == [
        [step.usage for step in steps(message)] for message in expected.messages or ()
    ]
    assert written.external_id == "s-1"


@pytest.mark.parametrize("document", [EVENTS, camel(EVENTS), lines(EVENTS)])
def test_events_alone_are_a_session(document: object) -> None:
    found = only(google_adk, document)
    assert found.external_id is not None and found.external_id.startswith("transcript-")
    assert len(found.messages or ()) == 4


def test_code_that_the_provider_runs_is_a_call() -> None:
    parts = [
        part(text="I count."),
        {"executable_code": {"code": "1/0", "language": "PYTHON"}},
        {"code_execution_result": {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}},
        {"executableCode": {"code": "1", "language": "PYTHON"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
        part(text="One."),
    ]
    events = [EVENTS[0], event("e2", "coder", *parts, usage_metadata=USAGE, model_version="m")]
    _question, answer = messages_of(google_adk, session(events))
    assert (answer.content, [step.usage is not None for step in steps(answer)]) == ("One.", [True, False])
    made = [call for step in steps(answer) for call in step.tool_calls or ()]
    assert [(call.name, call.args["code"], has_failed(call)) for call in made] == [
        ("code_execution", "1/0", True),
        ("code_execution", "1", False),
    ]


def test_second_result_of_a_call_replaces_the_first() -> None:
    ticket, done = response("ask", "adk-1", status="pending"), response("ask", "adk-1", result="yes")
    events = [EVENTS[0], event("e2", "a", call("ask", "adk-1")), event("e3", "a", ticket, role="user"), event("e4", "user", done, role="user", turn="e-2"), event("e5", "a", part(text="Fine."), turn="e-2")]  # fmt: skip
    found = only(google_adk, session(events))
    (asked,) = calls(found)
    assert isinstance(asked.result, records.ToolResult)
    assert (asked.result.output, [message.role for message in found.messages or ()]) == ("yes", ["user", "assistant"])


def test_compaction_is_a_system_message() -> None:
    compaction = {"start_timestamp": 1, "compactedContent": {"role": "model", "parts": [{"text": "Before."}]}}
    events = [*EVENTS[:1], event("e2", "a", actions={"compaction": compaction}), event("e3", "a", part(text="Yes."))]
    assert [(message.role, message.content) for message in messages_of(google_adk, session(events))[1:]] == [
        ("system", "Before."),
        ("assistant", "Yes."),
    ]


# --- The database -------------------------------------------------------------------------------------------------------

SESSIONS = (
    "CREATE TABLE sessions (app_name TEXT, user_id TEXT, id TEXT, state TEXT, create_time TEXT, update_time TEXT);"
)
OF_EVENTS = "id TEXT, app_name TEXT, user_id TEXT, session_id TEXT, invocation_id TEXT, timestamp TEXT"
VERSIONS = {
    "events as JSON": f"CREATE TABLE events ({OF_EVENTS}, event_data TEXT);",
    "events in columns": f"CREATE TABLE events ({OF_EVENTS}, author TEXT, content TEXT, usage_metadata TEXT, partial INTEGER, error_code TEXT, error_message TEXT, model_version TEXT, actions BLOB);",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_database_is_read_as_its_session_is(version: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        connection.executescript(SESSIONS + VERSIONS[version])
        connection.execute(
            "INSERT INTO sessions VALUES ('weather', 'ada', 's-1', ?, '', '')", [json.dumps({"city": "Oslo"})]
        )
        for whole in reversed(EVENTS):
            row = {"app_name": "weather", "user_id": "ada", "session_id": "s-1", "timestamp": datetime.fromtimestamp(whole["timestamp"], UTC).strftime("%F %T.%f"), "id": whole["id"], "invocation_id": whole["invocation_id"]}  # fmt: skip
            if version == "events as JSON":
                row["event_data"] = json.dumps(whole)
            else:
                row |= {name: json.dumps(whole[name]) if isinstance(whole[name], dict) else whole[name] for name in ("author", "content", "usage_metadata", "partial", "error_code", "error_message", "model_version") if name in whole} | {"actions": b"\x80\x04"}  # fmt: skip
            connection.execute(
                f"INSERT INTO events ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values())
            )
        connection.commit()
    with databases.opened(tmp_path / "sessions.db") as tables:
        assert [format_.NAME for format_ in FORMATS if format_.recognises(tables)] == ["google_adk"]
        (stored,), left_out = read(google_adk, tables)
    expected = only(google_adk, session(EVENTS))
    assert ((stored.external_id, stored.end_user), left_out) == ((expected.external_id, expected.end_user), [])
    assert [(message.external_id, message.role, message.content, message.created_at) for message in stored.messages or ()] == [(message.external_id, message.role, message.content, message.created_at) for message in expected.messages or ()]  # fmt: skip
    assert [(call.id, call.name, call.args, call.status) for call in calls(stored)] == [(call.id, call.name, call.args, call.status) for call in calls(expected)]  # fmt: skip
    assert [step.usage for message in stored.messages or () for step in steps(message)] == [step.usage for message in expected.messages or () for step in steps(message)]  # fmt: skip


# --- Evaluation sets --------------------------------------------------------------------------------------------------

TURN = {
    "invocation_id": "i-1",
    "user_content": {"role": "user", "parts": [{"text": "Is it warm?"}]},
    "intermediate_data": {
        "tool_uses": [{"name": "get", "args": {"city": "Oslo"}}, {"name": "get", "args": {"city": "Rome"}}],
        "tool_responses": [{"name": "get", "response": {"result": "12"}}],
        "intermediate_responses": [["helper", [{"text": "One moment."}]]],
    },
    "final_response": {"role": "model", "parts": [{"text": "Yes."}]},
    "creation_timestamp": NOON,
}
WITH_EVENTS = {
    "user_content": {"role": "user", "parts": [{"text": "And now?"}]},
    "intermediate_data": {"invocation_events": [{"author": "a", "content": {"role": "model", "parts": [call("get", None)]}, "usage_metadata": USAGE}]},
    "final_response": {"role": "model", "parts": [{"text": "No."}]},
}  # fmt: skip
CASE = {
    "eval_id": "warm",
    "conversation": [TURN, WITH_EVENTS],
    "session_input": {"app_name": "weather", "user_id": "ada"},
    "creation_timestamp": NOON,
}
SET = {"eval_set_id": "all", "name": "All", "eval_cases": [CASE, {"eval_id": "none", "conversation": []}]}
QUERIES = [
    {"query": "Is it warm?", "expected_tool_use": [{"tool_name": "get", "tool_input": {"city": "Oslo"}}], "expected_intermediate_agent_responses": [{"author": "a", "text": "Hm."}], "reference": "Yes."},
    {"query": "Thanks", "expected_tool_use": [], "reference": "Welcome."},
]  # fmt: skip


@pytest.mark.parametrize("document", [SET, camel(SET)])
def test_evaluation_set_is_marked_as_expected(document: object) -> None:
    (found,), left_out = read(google_adk, document)
    assert (found.external_id, found.tags, found.end_user) == ("all/warm", ["expected"], "ada")
    assert left_out == [("eval_cases[1]", "no user or assistant message")]
    assert [message.content for message in found.messages or ()] == ["Is it warm?", "Yes.", "And now?", "No."]
    assert [(call.name, call.status, call.metadata) for call in calls(found)] == [
        ("get", None, {"guessed_result": True}),
        ("get", "pending", None),
        ("get", "pending", None),
    ]
    usages = [step.usage is not None for message in found.messages or () for step in steps(message)]
    assert usages == [False, False, True]


def test_evaluation_set_of_the_first_form_is_read() -> None:
    found = only(google_adk, QUERIES)
    assert [message.content for message in found.messages or ()] == ["Is it warm?", "Yes.", "Thanks", "Welcome."]
    assert [(call.name, call.args, call.status) for call in calls(found)] == [("get", {"city": "Oslo"}, "pending")]


# --- Broken and other documents -----------------------------------------------------------------------------------------


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read(google_adk, [session([*EVENTS[:1], 3]), session([], id="s-2"), {"a": 1}])
    assert left_out == [
        ("[0].events[1]", "not an object"),
        ("[1]", "no user or assistant message"),
        ("[2]", "neither a session nor an evaluation set"),
    ]


@pytest.mark.parametrize("count", range(1, len(EVENTS)))
def test_grown_session_keeps_earlier_records(count: int) -> None:
    assert_grows(google_adk, session(EVENTS[:count]), session(EVENTS))


@pytest.mark.parametrize("document", [session(EVENTS[:4]), SET])
def test_values_of_any_type_are_read(document: object) -> None:
    assert_takes_any_type(google_adk, document)


@given(mangled([session(EVENTS), camel(session(EVENTS)), SET, QUERIES]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, *(document if isinstance(document, list) else ())):
        if google_adk.recognises(form):
            read(google_adk, form)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"events": EVENTS},
        {"app_name": "a", "user_id": "b"},
        [{"author": "Ada", "content": "A blog"}],
        {"eval_cases": [{"name": "a"}]},
        [{"query": "select 1", "reference": "docs"}],
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not google_adk.recognises(document)
    assert format_of(document) is not google_adk


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(google_adk)
