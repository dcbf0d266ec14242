"""Sessions of pi: messages, other content of the context, the tree of entries, and the counts of a real file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import pi
from tracesite_sdk.formats.registry import format_of

from .reading import (
    assert_grows,
    assert_takes_any_type,
    assert_takes_no_other,
    calls,
    counted,
    figures,
    lines,
    load,
    mangled,
    only,
    read,
    steps,
)

HEADER = {"type": "session", "version": 3, "id": "s-1", "timestamp": "2025-11-20T23:00:00.000Z", "cwd": "/srv/shop"}
START = 1763679600000
"""2025-11-20T23:00:00Z in milliseconds."""


def entry(id_: str, parent: str | None, kind: str = "message", second: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": id_, "parentId": parent, "timestamp": f"2025-11-20T23:00:{second:02}.500Z", **fields}


def message(role: str, second: int = 0, **fields: Any) -> dict[str, Any]:
    return {"role": role, "timestamp": START + second * 1000, **fields}


USER = entry("e1", None, second=1, message=message("user", 1, content=[{"type": "text", "text": "Go"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}]))  # fmt: skip
CALLS = entry(
    "e2",
    "e1",
    second=3,
    message=message(
        "assistant",
        2,
        content=[
            {"type": "thinking", "thinking": "Hm.", "thinkingSignature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}, "partialJson": "{"},
        ],
        api="anthropic-messages",
        provider="anthropic",
        model="m-1",
        usage={"input": 9, "output": 2, "cacheRead": 1, "cost": {"total": 0.1}},
        stopReason="toolUse",
    ),
)
RESULT = entry("e3", "e2", second=5, message=message("toolResult", 5, toolCallId="c1", toolName="bash", content=[{"type": "text", "text": "no"}, {"type": "image", "data": "AA=="}], details={"exit": 1}, isError=True))  # fmt: skip
DONE = entry("e4", "e3", second=7, message=message("assistant", 6, content=[{"type": "text", "text": "Done."}], model="m-1", stopReason="stop"))  # fmt: skip
WHOLE = [HEADER, USER, CALLS, RESULT, DONE]


def test_full_session_gives_expected_records() -> None:
    session = only(pi, lines(WHOLE))
    assert (session.external_id, (session.metadata or {})["cwd"]) == ("s-1", "/srv/shop")
    question, answer = session.messages or []
    assert question.content == USER["message"]["content"]
    assert question.created_at == datetime(2025, 11, 20, 23, 0, 1, tzinfo=UTC)
    assert (answer.external_id, answer.content, answer.error) == ("e2", [{"type": "text", "text": "Done."}], None)
    step, last = steps(answer)
    assert (step.thought, step.reasoning_content, step.model) == ("I look.", "Hm.", "m-1")
    assert step.usage == {"input_tokens": 9, "output_tokens": 2, "cacheRead": 1, "cost": {"total": 0.1}}
    assert (step.timestamp, step.duration) == (datetime(2025, 11, 20, 23, 0, 2, tzinfo=UTC), 1500.0)
    assert step.metadata == {
        "api": "anthropic-messages",
        "provider": "anthropic",
        "stopReason": "toolUse",
        "thinking": [{"thinkingSignature": "s"}],
    }
    (call,) = step.tool_calls or []
    assert (call.id, call.name, call.args, call.status) == ("c1", "bash", {"command": "ls"}, "error")
    assert call.started_at == datetime(2025, 11, 20, 23, 0, 3, 500000, tzinfo=UTC)
    assert call.metadata == {"partialJson": "{"}
    assert isinstance(call.result, records.ToolResult)
    assert (call.result.output, call.result.data) == ("no", {"exit": 1})
    assert call.result.attachments == [{"type": "image", "data": "AA=="}]
    assert (last.thought, last.model, last.usage, last.metadata) == (None, "m-1", None, {"stopReason": "stop"})
    assert (last.timestamp, last.duration) == (datetime(2025, 11, 20, 23, 0, 6, tzinfo=UTC), 1500.0)


@pytest.mark.parametrize(
    ("ended", "status", "error"),
    [
        ({"stopReason": "aborted", "errorMessage": "Request was aborted"}, "aborted", "Request was aborted"),
        ({"stopReason": "error"}, "error", "error"),
        ({"stopReason": "length"}, None, None),
    ],
)
def test_aborted_reply_has_failed(ended: dict[str, Any], status: str | None, error: str | None) -> None:
    broken = entry("e2", "e1", message=message("assistant", 2, content=[], **ended))
    (transcript,) = pi.transcripts(lines([HEADER, USER, broken]), lambda where, why: None)
    assert transcript.status == status
    session = only(pi, lines([HEADER, USER, broken]))
    assert (session.messages or [])[1].error == error


def test_other_context_is_a_system_message() -> None:
    entries = [
        entry("a", "e1", message=message("bashExecution", command="ls", output="a.py", exitCode=0, cancelled=False)),
        entry("b", "a", message=message("custom", customType="memo", content="Note", display=True)),
        entry(
            "c", "b", "custom_message", customType="memo", content=[{"type": "text", "text": "Note 2"}], display=False
        ),
        entry("d", "c", "compaction", summary="So far.", tokensBefore=99, firstKeptEntryId="e1"),
        entry("e", "d", "branch_summary", summary="There.", fromId="b"),
    ]
    session = only(pi, lines([HEADER, USER, *entries]))
    assert [(said.role, said.content, said.metadata) for said in (session.messages or [])[1:]] == [
        ("system", "$ ls\na.py", {"role": "bashExecution", "exitCode": 0, "cancelled": False}),
        ("system", "Note", {"role": "custom", "customType": "memo", "display": True}),
        (
            "system",
            [{"type": "text", "text": "Note 2"}],
            {"type": "custom_message", "customType": "memo", "display": False},
        ),
        ("system", "So far.", {"type": "compaction", "tokensBefore": 99, "firstKeptEntryId": "e1"}),
        ("system", "There.", {"type": "branch_summary", "fromId": "b"}),
    ]


def test_other_entries_are_metadata_last_name_is_title() -> None:
    entries = [
        entry("a", "e1", "model_change", provider="openai", modelId="gpt"),
        entry("b", "a", "session_info", name="My work"),
        entry("c", "b", "something_new", x=1),
    ]
    session = only(pi, lines([HEADER, USER, *entries]))
    assert (session.title, (session.metadata or {})["entries"]) == ("My work", entries)


@pytest.mark.parametrize("is_list", [True, False])
@pytest.mark.parametrize("args", ["", "the last week"])
def test_text_of_skill_is_system_message_beside_prompt(is_list: bool, args: str) -> None:
    block = '<skill name="report" location="/s/SKILL.md">\nReferences are relative to /s.\n\nWrite a report.\n</skill>'
    said = f"{block}\n\n{args}" if args else block
    content = [{"type": "text", "text": said}] if is_list else said
    session = only(pi, lines([HEADER, entry("e1", None, second=1, message=message("user", 1, content=content))]))
    prompt, skill = session.messages or []
    typed = f"/skill:report {args}".strip()
    assert (prompt.role, session.title) == ("user", typed)
    assert prompt.content == ([{"type": "text", "text": typed}] if is_list else typed)
    assert (skill.role, skill.external_id, skill.content, skill.metadata) == (
        "system",
        "e1#added",
        block,
        {"role": "user"},
    )


def test_branch_is_read_in_order_with_its_origin() -> None:
    again = entry("e5", "e1", second=9, message=message("user", 9, content="Again"))
    session = only(pi, lines([*WHOLE, again]))
    assert [(said.external_id, (said.metadata or {}).get("branched_from")) for said in session.messages or ()] == [
        ("e1", None),
        ("e2", None),
        ("e5", "e1"),
    ]


def test_first_version_without_ids_is_read() -> None:
    old = [{key: value for key, value in line.items() if key not in ("parentId", "version")} for line in WHOLE]
    for line in old[1:]:
        del line["id"]
    session = only(pi, lines(old))
    assert [message.external_id for message in session.messages or ()] == ["0", "1"]


def test_concatenated_files_are_several_sessions() -> None:
    sessions, left_out = read(pi, lines([*WHOLE, {**HEADER, "id": "s-2"}, USER, 3, {"id": "x"}]))
    assert [session.external_id for session in sessions] == ["s-1", "s-2"]
    assert left_out == [
        ("line 8", "not an object"),
        ("line 9", "not an entry: no type, or a message without a role"),
    ]


def test_long_session_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    document = lines([*WHOLE, {**HEADER, "id": "s-2"}, *WHOLE[1:], 3])
    expected = read(pi, document)
    monkeypatch.setattr(pi, "_MAX_HELD_ENTRIES", 2)
    assert read(pi, document) == expected


@given(st.integers(2, 7))
def test_grown_session_keeps_earlier_records(count: int) -> None:
    more = [
        entry("e5", "e1", second=9, message=message("user", 9, content="Again")),
        entry("e6", "e5", "compaction", second=10, summary="S"),
    ]
    assert_grows(pi, lines([*WHOLE, *more][:count]), lines([*WHOLE, *more]))


def test_value_of_any_type_is_read_in_any_place() -> None:
    assert_takes_any_type(pi, WHOLE)


@given(mangled([*WHOLE, entry("x", "e1", "compaction", summary="S")]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, lines(document) if isinstance(document, list) else None):
        if pi.recognises(form):
            for session in read(pi, form)[0]:
                assert session.external_id


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        [3],
        lines([]),
        lines([{"type": "session"}]),
        lines([HEADER, {"type": "user", "message": {"role": "user"}}]),
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not pi.recognises(document)


def test_real_file_matches_independent_counts() -> None:
    expected = counted("pi/large-session.jsonl")
    document = load(SHARED / "pi" / "large-session.jsonl")
    assert format_of(document) is pi
    sessions, left_out = read(pi, document)
    assert left_out == []
    assert figures(sessions) == expected
    assert len(calls(sessions[0])) == 391


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(pi, "pi")
