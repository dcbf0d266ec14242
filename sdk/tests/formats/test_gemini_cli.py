"""Sessions of Gemini CLI in both forms: messages, calls with their results, updates, rewinds, and growth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import gemini_cli
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.transcripts.documents import file_source
from tracesite_sdk.transcripts.documents import read as read_document

from .reading import assert_grows, assert_takes_no_other, calls, figures, has_failed, lines, mangled, only, read, steps

HEADER = {"sessionId": "s-1", "projectHash": "abc", "startTime": "2026-03-01T10:00:00.000Z", "lastUpdated": "2026-03-01T10:00:00.000Z", "kind": "main"}  # fmt: skip


def message(own: str, kind: str, content: Any, second: int = 0, **fields: Any) -> dict[str, Any]:
    return {"id": own, "timestamp": f"2026-03-01T10:00:{second:02}.000Z", "type": kind, "content": content, **fields}


def call(own: str, name: str, status: str, response: Any = None, **fields: Any) -> dict[str, Any]:
    answered = {"functionResponse": {"id": own, "name": name, "response": response}}
    result = {"result": [answered]} if response is not None else {}
    return {"id": own, "name": name, "args": {"path": "a"}, "status": status, "timestamp": "2026-03-01T10:00:05.000Z", **result, **fields}  # fmt: skip


TOKENS = {"input": 100, "output": 10, "cached": 50, "thoughts": 5, "tool": 0, "total": 115}
USER = message("m1", "user", [{"text": "Look at "}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}], 1)
CALLS = message(
    "m2",
    "gemini",
    "I look.",
    5,
    model="gemini-3-pro",
    tokens=TOKENS,
    thoughts=[
        {"subject": "Planning", "description": " I plan. ", "timestamp": "2026-03-01T10:00:03Z"},
        {"description": "And more."},
    ],
    toolCalls=[
        call("c1", "read_file", "success", {"output": "text"}, resultDisplay={"fileDiff": "+a"}, displayName="ReadFile"),
        call("c2", "run_shell_command", "error", {"error": "no such command"}, resultDisplay="no such command"),
        call("c3", "write_file", "cancelled", {"error": "[Operation Cancelled]"}),
        call("c4", "codebase_investigator", "executing", agentId="sub-1"),
    ],
)  # fmt: skip
INFO = message("m3", "info", "Request cancelled.", 6)
ERROR = message("m4", "error", "[API Error: quota]", 7)
AGAIN = message("m5", "user", "Go on", 8)
DONE = message("m6", "gemini", [{"text": "Done."}], 9, tokens={"input": 7, "output": 3, "total": 10})
WHOLE = [USER, CALLS, INFO, ERROR, AGAIN, DONE]
RECORD = {**HEADER, "summary": "A look", "directories": ["/srv"], "messages": WHOLE}
LINES = [
    HEADER,
    USER,
    {"$set": {"lastUpdated": "2026-03-01T10:00:01.000Z"}},
    {**CALLS, "toolCalls": [], "tokens": None},
    {**CALLS, "toolCalls": CALLS["toolCalls"][:1]},
    CALLS,
    INFO,
    ERROR,
    AGAIN,
    DONE,
    {"$set": {"summary": "A look", "directories": ["/srv"]}},
]


FILE = [{"text": "--- Content from referenced files ---"}, {"text": "Content from @a.txt:\n"}, {"text": "LONG"}, {"text": "--- End of content ---"}]  # fmt: skip
AS_TEXT = "\n--- Content from referenced files ---\nLONG\n--- End of content ---"


TYPED = (
    "What does '--- Content from referenced files ---' mean?",
    "Explain:\n--- Content from referenced files ---\nThe file begins there.",
    "Explain:\n--- End of content ---\n--- Content from referenced files ---",
    "System: Please continue. Where does that come from?",
)


@pytest.mark.parametrize(
    ("content", "shown", "typed", "added"),
    [
        ([{"text": "Read @a.txt"}, *FILE], [{"text": "Read @a.txt"}], "Read @a.txt", [{"type": "text", **part} for part in FILE]),
        ("Look at the whole guide and follow it.", "/guide", "/guide", "Look at the whole guide and follow it."),
        ([{"text": "Read @a.txt"}], [{"text": "Read @a.txt"}], "Read @a.txt", None),
        ([{"text": "Read @a.txt"}, *FILE], None, "Read @a.txt", [{"type": "text", **part} for part in FILE]),
        (f"Read @a.txt{AS_TEXT}", None, "Read @a.txt", AS_TEXT.strip()),
        ([*FILE, {"text": "Read @a.txt"}], [], "Read @a.txt", [{"type": "text", **part} for part in FILE]),
        ("System: Please continue.", None, None, "System: Please continue."),
        (f"Read @a.txt{AS_TEXT}\nand shorten it", None, [{"type": "text", "text": "Read @a.txt"}, {"type": "text", "text": "and shorten it"}], AS_TEXT.strip()),
        *((said, None, said, None) for said in TYPED),
    ],
)  # fmt: skip
def test_only_what_was_typed_is_user_message(content: Any, shown: Any, typed: Any, added: Any) -> None:
    question = message("m1", "user", content, 1, **({} if shown is None else {"displayContent": shown}))
    session = only(gemini_cli, {**HEADER, "messages": [question, DONE]})
    *prompts, answer = session.messages or []
    if typed is None:
        assert [(m.role, m.content, m.external_id) for m in prompts] == [("system", added, "m1")]
        return
    if isinstance(typed, str):
        assert session.title == " ".join(typed.split())
    expected = [("user", typed, "m1", None), *([("system", added, "m1#added", {"type": "user"})] if added else [])]
    assert [(m.role, m.content, m.external_id, m.metadata) for m in prompts] == expected
    assert answer.content == "Done."


def as_one(form: str) -> Any:
    return RECORD if form == "json" else lines(LINES)


@pytest.mark.parametrize("form", ["json", "lines"])
def test_full_session_gives_expected_records(form: str) -> None:
    session = only(gemini_cli, as_one(form))
    assert (session.external_id, session.title, session.status) == ("s-1", "A look", "completed")
    assert session.created_at == datetime(2026, 3, 1, 10, tzinfo=UTC)
    metadata = session.metadata or {}
    assert (metadata["projectHash"], metadata["kind"], metadata["directories"]) == ("abc", "main", ["/srv"])
    question, answer, notice, again, done = session.messages or []
    assert [message.external_id for message in session.messages or ()] == ["m1", "m2", "m3", "m5", "m6"]
    assert question.content == [
        {"type": "text", "text": "Look at "},
        {"type": "inlineData", "inlineData": {"mimeType": "image/png", "data": "AA=="}},
    ]
    assert (notice.role, notice.content, notice.metadata) == ("system", "Request cancelled.", {"type": "info"})
    assert (again.content, done.content, done.usage) == ("Go on", "Done.", None)
    (last,) = steps(done)
    assert (last.thought, last.usage) == (None, {"input_tokens": 7, "output_tokens": 3, "total": 10})
    assert answer.error == "[API Error: quota]"
    step = steps(answer)[0]
    assert (step.thought, step.model, step.timestamp) == ("I look.", "gemini-3-pro", datetime(2026, 3, 1, 10, 0, 5, tzinfo=UTC))  # fmt: skip
    assert step.reasoning_content == "**Planning**\nI plan.\n\nAnd more."
    assert step.usage == {"input_tokens": 100, "output_tokens": 10, "cached": 50, "thoughts": 5, "tool": 0, "total": 115}  # fmt: skip
    requested = step.tool_calls or []
    assert [(call.id, call.name, call.status, has_failed(call)) for call in requested] == [
        ("c1", "read_file", "success", False),
        ("c2", "run_shell_command", "error", True),
        ("c3", "write_file", "error", True),
        ("c4", "codebase_investigator", "pending", False),
    ]
    assert [call.metadata for call in requested] == [
        {"displayName": "ReadFile"},
        None,
        {"status": "cancelled"},
        {"agentId": "sub-1", "status": "executing"},
    ]
    read_file, shell = requested[0].result, requested[1].result
    assert isinstance(read_file, records.ToolResult) and isinstance(shell, records.ToolResult)
    assert (read_file.output, read_file.data) == ("text", {"fileDiff": "+a"})
    assert (shell.output, shell.metadata) == ("no such command", None)


def test_rewound_messages_are_left_out_and_reported() -> None:
    values = [*LINES, {"$rewindTo": "m5"}, message("m7", "user", "Other", 20)]
    (session,), left_out = read(gemini_cli, lines(values))
    assert [entry.external_id for entry in session.messages or ()] == ["m1", "m2", "m3", "m7"]
    assert left_out == [
        ("line 9", "undone by the user (line 12)"),
        ("line 10", "undone by the user (line 12)"),
    ]


def test_rewind_to_unknown_message_removes_nothing() -> None:
    (session,), left_out = read(gemini_cli, lines([*LINES, {"$rewindTo": "gone"}]))
    assert len(session.messages or ()) == 5
    assert left_out == [("line 12", "rewinds to an unknown message")]


def test_set_messages_removes_no_message() -> None:
    masked = {**CALLS, "toolCalls": [call("c1", "read_file", "success", {"output": "[masked]"})]}
    history = [
        message("h1", "user", "<state_snapshot>So far.</state_snapshot>", 30),
        {**masked, "content": [{"text": "I look."}, {"functionCall": {"id": "c1", "name": "read_file", "args": {}}}]},
        message("h2", "user", [{"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": "[masked]"}}}], 31),
        message("h3", "gemini", "Understood.", 32),
    ]  # fmt: skip
    before = only(gemini_cli, lines(LINES))
    session = only(gemini_cli, lines([*LINES, {"$set": {"messages": history}}]))
    assert [call.result for call in calls(session)] == [call.result for call in calls(before)]
    assert (session.messages or [])[:4] == (before.messages or [])[:4]
    assert [(entry.role, entry.content) for entry in session.messages or ()][4:] == [
        ("assistant", "Understood."),
        ("system", "<state_snapshot>So far.</state_snapshot>"),
    ]


def test_calls_repeated_with_other_ids_count_once() -> None:
    reply = message(
        "m2",
        "gemini",
        [{"functionCall": {"id": "x1", "name": "ls", "args": {}}}, {"functionCall": {"id": "x2", "name": "cat", "args": {}}}],
        toolCalls=[call("c1", "ls", "success", {"output": "a"})],
    )  # fmt: skip
    answers = [{"functionResponse": {"id": own, "name": name, "response": {"output": "a"}}} for own, name in (("x1", "ls"), ("x2", "cat"))]  # fmt: skip
    session = only(gemini_cli, {**RECORD, "messages": [USER, reply, message("m3", "user", answers), DONE]})
    assert [(item.id, item.name, item.result is not None) for item in calls(session)] == [
        ("c1", "ls", True),
        ("x2", "cat", True),
    ]
    assert figures([session])["results_without_call"] == 0


def test_inserted_context_is_no_prompt() -> None:
    context = message("h0", "user", [{"text": "<session_context>\nThis is the Gemini CLI.\n</session_context>"}])
    session = only(gemini_cli, lines([HEADER, {"$set": {"messages": [context]}}, *LINES[1:]]))
    assert [entry.role for entry in session.messages or ()][:2] == ["system", "user"]
    assert (session.title, figures([session])["user"]) == ("A look", 2)


def test_set_messages_alone_is_a_session() -> None:
    history = [
        message("h1", "user", [{"text": "Hello"}]),
        message("h2", "gemini", [{"text": "Hm.", "thought": True}, {"functionCall": {"id": "c1", "name": "ls", "args": {"a": 1}}}]),
        message("h3", "user", [{"functionResponse": {"id": "c1", "name": "ls", "response": {"error": "no"}}}]),
        message("h4", "gemini", [{"text": "Sorry."}]),
    ]  # fmt: skip
    session = only(gemini_cli, lines([HEADER, {"$set": {"messages": history}}]))
    assert [entry.content for entry in session.messages or ()] == ["Hello", "Sorry."]
    (only_call,) = calls(session)
    assert (only_call.name, only_call.args, only_call.status) == ("ls", {"a": 1}, "error")
    assert steps((session.messages or [])[1])[0].reasoning_content == "Hm."


def test_concatenated_files_are_several_sessions() -> None:
    sessions, left_out = read(gemini_cli, lines([*LINES, {**HEADER, "sessionId": "s-2"}, message("x", "user", "Hi"), 3, {"a": 1}]))  # fmt: skip
    assert [(session.external_id, len(session.messages or ())) for session in sessions] == [("s-1", 5), ("s-2", 1)]
    assert left_out == [
        ("line 14", "not an object"),
        ("line 15", "neither a message nor a session update"),
    ]


def test_old_qwen_sessions_and_lists_are_read() -> None:
    document = [RECORD, {**HEADER, "sessionId": "s-2", "messages": [USER, {**DONE, "type": "qwen"}]}]
    sessions, left_out = read(gemini_cli, document)
    assert format_of(document) is gemini_cli
    assert ([session.external_id for session in sessions], left_out) == (["s-1", "s-2"], [])
    assert (sessions[1].messages or [])[1].content == "Done."


def test_message_of_unknown_type_is_reported() -> None:
    _, left_out = read(gemini_cli, {**RECORD, "messages": [*WHOLE, message("x", "new", "?"), 3]})
    assert left_out == [
        ("messages[7]", "not an object"),
        ("messages[6]", "the type is new; a type is one of user, gemini, qwen, model, assistant, info, warning, error"),
    ]


# Up to the fourth line the reply has no calls, so it is the answer.
@pytest.mark.parametrize("count", [2, 3, *range(5, len(LINES) + 1)])
def test_grown_session_keeps_earlier_records(count: int) -> None:
    assert_grows(gemini_cli, lines(LINES[:count]), lines(LINES))


@pytest.mark.parametrize("count", range(1, len(WHOLE) + 1))
def test_grown_older_form_keeps_earlier_records(count: int) -> None:
    assert_grows(gemini_cli, {**RECORD, "messages": WHOLE[:count]}, RECORD)


@given(mangled([*LINES, {"$rewindTo": "m5"}, {"$set": {"messages": WHOLE}}]))
def test_read_mangled_lines_never_raises(document: Any) -> None:
    for form in (document, lines(document)):
        if gemini_cli.recognises(form):
            read(gemini_cli, form)


@given(mangled(RECORD))
def test_read_mangled_object_never_raises(document: Any) -> None:
    if gemini_cli.recognises(document):
        read(gemini_cli, document)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        [3],
        {"sessionId": "a", "messages": []},
        {"sessionId": "a", "startTime": "", "messages": [{"role": "user", "content": "x"}]},
        lines([]),
        lines([{"sessionId": "a", "type": "user", "message": {"role": "user", "content": "x"}, "timestamp": ""}]),
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not gemini_cli.recognises(document)


def test_real_file_matches_counts_made_by_hand() -> None:
    path = SHARED / "not_claude_code" / "entire_gemini_cli_51-3fab7adf0b.jsonl"
    if not path.exists():
        pytest.skip("the shared data are not on this machine")
    document = read_document(file_source(path), lambda where, why: None)
    session = only(gemini_cli, document)
    assert figures([session]) == {
        "sessions": 1,
        "user": 1,
        "tool_calls_by_name": {"write_file": 1},
        "tool_results": 1,
        "errors_by_tool": {},
        "calls_without_result": 0,
        "results_without_call": 0,
    }
    usages = [[step.usage and step.usage["total"] for step in steps(message)] for message in session.messages or ()]
    assert usages == [[], [12151, 12178], []]


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(gemini_cli, "not_claude_code")
