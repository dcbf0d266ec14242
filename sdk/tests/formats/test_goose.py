"""Sessions of Goose: exports, lines and streams, results for two audiences, tokens, and growth."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import goose
from tracesite_sdk.formats.registry import FORMATS, format_of
from tracesite_sdk.normalize.pricing import Tokens, tokens_of
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

NOON = 1772366400


def message(role: str, second: int, *blocks: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"msg_{second}",
        "role": role,
        "created": NOON + second,
        "content": list(blocks),
        "metadata": {"userVisible": True, "agentVisible": True, **fields},
    }


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def request(own: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "type": "toolRequest",
        "id": own,
        "toolCall": {"status": "success", "value": {"name": name, "arguments": arguments}},
    }


def response(own: str, value: Any) -> dict[str, Any]:
    return {"type": "toolResponse", "id": own, "toolResult": {"status": "success", "value": value}}


def block(text: str, *audience: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "annotations": {"audience": list(audience), "priority": 0.0}}


USAGE = {"inputTokens": 100, "outputTokens": 7, "cacheReadTokens": 60, "cost": 0.01, "costSource": "table"}
WHOLE = [
    message("user", 0, said("Is it warm?"), {"type": "image", "data": "AA==", "mimeType": "image/png"}),
    message("assistant", 1, {"type": "thinking", "thinking": "First the shell.", "signature": "s"}, said("I look."), request("c1", "developer__shell", command="ls"), request("c2", "weather__get", city="Rome"), inference={"resolvedModel": "m-2"}, usage=USAGE),
    message("user", 2, response("c1", {"content": [block("a.py (for you)", "user"), block("a.py", "assistant")], "structuredContent": {"exit_code": 0}, "isError": False}), {"type": "toolResponse", "id": "c2", "toolResult": {"status": "error", "error": "no station"}}),
    message("assistant", 3, {"type": "toolRequest", "id": "c3", "toolCall": {"status": "error", "error": "bad JSON"}}),
    message("user", 4, {"type": "toolResponse", "id": "c3", "toolResult": {"status": "error", "error": "bad JSON"}}),
    message("user", 5, said("The summary: nothing yet."), userVisible=False),
    message("assistant", 6, {"type": "systemNotification", "notificationType": "inlineMessage", "msg": "Compacted"}, said("No.")),
    message("user", 60, said("Thanks")),
    message("assistant", 61, request("c4", "developer__shell", command="false")),
    message("user", 62, response("c4", [block("nothing", "user", "assistant")])),
    message("assistant", 63, {"type": "frontendToolRequest", "id": "c5", "toolCall": {"status": "success", "value": {"name": "open", "arguments": {}}}}),
]  # fmt: skip
ROW = {
    "id": "20260301_1",
    "name": "Warmth",
    "working_dir": "/srv/shop",
    "session_type": "user",
    "created_at": "2026-03-01T11:59:59Z",
    "accumulated_total_tokens": 900,
    "model_config_json": json.dumps({"model_name": "m-1"}),
}


def export(count: int = len(WHOLE)) -> dict[str, Any]:
    return {**ROW, "conversation": WHOLE[:count]}


def test_full_export_gives_expected_records() -> None:
    session = only(goose, export())
    assert (session.external_id, session.title) == ("20260301_1", "Warmth")
    assert session.created_at == datetime(2026, 3, 1, 11, 59, 59, tzinfo=UTC)
    assert session.metadata is not None and (
        session.metadata["working_dir"],
        session.metadata["accumulated_total_tokens"],
    ) == ("/srv/shop", 900)
    question, answer, summary, thanks, last = session.messages or []
    assert question.content == [said("Is it warm?"), {"type": "image", "data": "AA==", "mimeType": "image/png"}]
    assert [message.role for message in (question, summary, answer, thanks, last)] == [
        "user",
        "system",
        "assistant",
        "user",
        "assistant",
    ]
    assert (answer.external_id, answer.content, answer.created_at) == (
        "msg_1",
        "No.",
        datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC),
    )
    first, second, third = steps(answer)
    assert (first.thought, first.reasoning_content, first.model, tokens_of(first.usage)) == (
        "I look.",
        "First the shell.",
        "m-2",
        Tokens(40, 60, 0, 7, 0),
    )
    assert [step.model for step in (second, third)] == ["m-1", "m-1"]
    shell, get, broken, again, front = calls(session)
    assert isinstance(shell.result, records.ToolResult)
    assert (shell.name, shell.args, shell.result.output, shell.result.data) == (
        "developer__shell",
        {"command": "ls"},
        "a.py",
        {"exit_code": 0},
    )
    assert [(call.id, call.name, has_failed(call)) for call in (get, broken, again)] == [
        ("c2", "weather__get", True),
        ("c3", "unknown", True),
        ("c4", "developer__shell", False),
    ]
    assert (front.name, front.status) == ("open", "pending")


def test_sample_matches_counts_made_by_hand() -> None:
    counts = figures([only(goose, export())])
    assert (counts["user"], counts["tool_calls_by_name"]) == (
        2,
        {"developer__shell": 2, "weather__get": 1, "unknown": 1, "open": 1},
    )
    assert (counts["tool_results"], counts["calls_without_result"], counts["errors_by_tool"]) == (
        4,
        1,
        {"weather__get": 1, "unknown": 1},
    )


HEADER = {"working_dir": "/srv/shop", "description": "Warmth", "message_count": 11, "total_tokens": 900}
WITHOUT_IDS = [
    {key: value for key, value in message.items() if key in ("role", "created", "content")} for message in WHOLE
]


@pytest.mark.parametrize(
    "document",
    [
        lines([HEADER, *WITHOUT_IDS]),
        lines(
            [*({"type": "message", "message": message} for message in WHOLE), {"type": "complete", "total_tokens": 9}]
        ),
        [export()],
        WHOLE,
    ],
)
def test_every_form_gives_the_same_calls(document: object) -> None:
    found, expected = only(goose, document), only(goose, export())
    assert [(call.id, call.name, call.status) for call in calls(found)] == [
        (call.id, call.name, call.status) for call in calls(expected)
    ]


def test_exit_code_is_a_failure() -> None:
    answered = message(
        "user",
        2,
        response("c1", {"content": [block("no", "assistant")], "structuredContent": {"exitCode": 1}, "isError": False}),
    )
    _question, answer = messages_of(
        goose, {**ROW, "conversation": [WHOLE[0], message("assistant", 1, request("c1", "developer__shell")), answered]}
    )
    assert [has_failed(call) for step in steps(answer) for call in step.tool_calls or ()] == [True]


def test_chat_without_calls_is_recognised_by_its_header() -> None:
    chat = lines([HEADER, {"role": "user", "created": NOON, "content": [said("Hi")]}])
    assert [message.content for message in only(goose, chat).messages or ()] == ["Hi"]


def database(path: Path, count: int = len(WHOLE)) -> Path:
    """Write a database with the session of `export`, in the order of its rows alone."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT, working_dir TEXT, session_type TEXT, created_at TIMESTAMP,"
            " accumulated_total_tokens INTEGER, model_config_json TEXT);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, message_id TEXT, session_id TEXT, role TEXT, content_json TEXT,"
            " created_timestamp INTEGER, metadata_json TEXT);"
        )
        connection.execute(
            "INSERT INTO sessions VALUES (:id, :name, :working_dir, :session_type, :created_at, :accumulated_total_tokens, :model_config_json)",
            ROW,
        )
        for message in WHOLE[:count]:
            values = [
                message["id"],
                ROW["id"],
                message["role"],
                json.dumps(message["content"]),
                message["created"],
                json.dumps(message["metadata"]),
            ]
            connection.execute("INSERT INTO messages VALUES (NULL, ?, ?, ?, ?, ?, ?)", values)
        connection.commit()
    return path


def test_database_is_read_as_the_export_of_its_session_is(tmp_path: Path) -> None:
    with databases.opened(database(tmp_path / "sessions.db")) as tables:
        assert [format_.NAME for format_ in FORMATS if format_.recognises(tables)] == ["goose"]
        (session,), left_out = read(goose, tables)
    assert (session, left_out) == (only(goose, export()), [])


def test_row_without_blocks_is_reported(tmp_path: Path) -> None:
    path = database(tmp_path / "sessions.db", 2)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE messages SET content_json = '{' WHERE id = 2")
        connection.commit()
    with databases.opened(path) as tables:
        assert read(goose, tables)[1] == [("message 2", "not a message")]


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read(
        goose,
        [
            {**ROW, "conversation": [WHOLE[0], 3, {"role": "tool", "content": []}]},
            {**ROW, "conversation": []},
            {"a": 1},
        ],
    )
    assert left_out == [
        ("[0].conversation[1]", "not a message"),
        ("[0].conversation[2]", "not a message"),
        ("[1]", "no user or assistant message"),
        ("[2]", "not an export of Goose"),
    ]


@pytest.mark.parametrize("count", range(1, len(WHOLE)))
def test_grown_session_keeps_earlier_records(count: int) -> None:
    assert_grows(goose, export(count), export())


def test_values_of_any_type_are_read() -> None:
    assert_takes_any_type(goose, export(6))


@given(mangled([export(), [HEADER, *WITHOUT_IDS]]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, *(document if isinstance(document, list) else ())):
        if goose.recognises(form):
            read(goose, form)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"working_dir": "/", "name": "a"},
        [{"working_dir": "/", "name": "a"}],
        [{"role": "user", "created": 1, "content": [said("Hi")]}],
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not goose.recognises(document)
    assert format_of(document) is not goose


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(goose)
