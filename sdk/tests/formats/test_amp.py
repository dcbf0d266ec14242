"""Threads of Amp: results of every state, tokens, roles, and growth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import amp
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.normalize.pricing import Tokens, tokens_of

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

NOON = 1772366400000


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def user(number: int, *blocks: Any, **fields: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "messageId": number,
        "content": list(blocks),
        "meta": {"sentAt": NOON + number * 1000},
        **fields,
    }


def assistant(number: int, *blocks: Any, given: int = 50, state: str = "complete") -> dict[str, Any]:
    usage = {
        "model": "m-1",
        "inputTokens": given,
        "outputTokens": 7,
        "cacheCreationInputTokens": 20,
        "cacheReadInputTokens": 300,
        "totalInputTokens": given + 320,
        "maxInputTokens": 9999,
        "timestamp": f"2026-03-01T12:00:{number:02}Z",
        "credits": 0.5,
    }
    return {
        "role": "assistant",
        "messageId": number,
        "content": list(blocks),
        "state": {"type": state, "stopReason": "tool_use"},
        "usage": usage,
    }


def use(own: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": own, "name": name, "input": given, "complete": True}


def result(own: str, status: str = "done", **run: Any) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseID": own, "run": {"status": status, **run}}


WHOLE = [
    user(0, said("Is it warm?"), {"type": "image", "source": {"type": "base64", "data": "AA==", "mediaType": "image/png"}}, userState={"activeEditor": "a.py"}),
    assistant(1, {"type": "thinking", "thinking": "First the shell.", "signature": "s"}, said("I look."), use("c1", "Bash", cmd="ls"), use("c2", "Read", path="a"), use("c3", "Bash", cmd="rm"), use("c4", "Bash", cmd="false")),
    user(2, result("c1", result={"output": "a.py", "exitCode": 0}), result("c2", "error", error={"message": "no such file"}), result("c3", "rejected-by-user"), result("c4", result={"output": "no", "exitCode": 1})),
    assistant(3, use("c5", "Task", prompt="Look"), given=60),
    user(4, result("c5", "in-progress", progress=[{"text": "."}])),
    user(5, said("Never mind")),
    assistant(6, said("Fine."), given=70),
    {"role": "info", "messageId": 7, "content": "Switched to rush."},
]  # fmt: skip


def thread(count: int = len(WHOLE), **fields: Any) -> dict[str, Any]:
    whole = {
        "v": count,
        "id": "T-5f0c",
        "title": "Warmth",
        "created": NOON - 1000,
        "agentMode": "smart",
        "messages": WHOLE[:count],
        "usageLedger": {
            "events": [{"model": "m-1", "tokens": {"input": 50, "output": 7, "total": 57}, "credits": 0.5}]
        },
        "env": {"initial": {"trees": [{"displayName": "shop", "uri": "file:///srv/shop"}]}},
    }
    return {**whole, **fields}


def test_full_thread_gives_expected_records() -> None:
    session = only(amp, thread())
    assert (session.external_id, session.title) == ("T-5f0c", "Warmth")
    assert session.created_at == datetime(2026, 3, 1, 11, 59, 59, tzinfo=UTC)
    assert session.metadata is not None and (session.metadata["agentMode"], "usageLedger" in session.metadata) == (
        "smart",
        False,
    )
    question, answer, again, done, note = session.messages or []
    assert question.content == WHOLE[0]["content"]
    assert (question.created_at, (question.metadata or {})["userState"]) == (
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        {"activeEditor": "a.py"},
    )
    assert (again.content, done.content, note.role, note.content) == (
        "Never mind",
        "Fine.",
        "system",
        "Switched to rush.",
    )
    first, second = steps(answer)
    assert (first.thought, first.reasoning_content, first.model) == ("I look.", "First the shell.", "m-1")
    assert (first.timestamp, tokens_of(first.usage), tokens_of(second.usage)) == (
        datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC),
        Tokens(50, 300, 20, 7, 0),
        Tokens(60, 300, 20, 7, 0),
    )
    ls, read_, rm, false, task = calls(session)
    assert isinstance(ls.result, records.ToolResult) and isinstance(read_.result, records.ToolResult)
    assert (ls.args, ls.result.output, ls.result.data) == ({"cmd": "ls"}, "a.py", {"output": "a.py", "exitCode": 0})
    assert (read_.result.output, [has_failed(call) for call in (ls, read_, rm, false)]) == (
        "no such file",
        [False, True, False, True],
    )
    assert (task.name, task.status, rm.status) == ("Task", "pending", "success")


def test_sample_matches_counts_made_by_hand() -> None:
    counts = figures([only(amp, thread())])
    assert (counts["user"], counts["tool_calls_by_name"], counts["tool_results"]) == (
        2,
        {"Bash": 3, "Read": 1, "Task": 1},
        4,
    )
    assert (counts["calls_without_result"], counts["results_without_call"], counts["errors_by_tool"]) == (
        1,
        0,
        {"Read": 1, "Bash": 1},
    )


def test_reply_that_is_being_written_is_reported() -> None:
    (session,), left_out = read(amp, thread(messages=[*WHOLE[:1], assistant(1, said("It"), state="streaming")]))
    assert [message.role for message in session.messages or ()] == ["user"]
    assert left_out == [("messages[1]", "a reply that is still being written")]


def test_failed_reply_and_used_ids_are_read() -> None:
    failed = {**assistant(1, said("It")), "state": {"type": "error", "error": {"message": "overloaded"}}}
    question, answer, again = messages_of(amp, thread(messages=[user(1, said("Hi")), failed, user(1, said("Again"))]))
    assert (answer.error, [question.external_id, answer.external_id, again.external_id]) == (
        "overloaded",
        ["1", "#1", "#2"],
    )


@pytest.mark.parametrize("document", [[thread()], lines([thread()])])
def test_several_threads_in_a_file_are_read(document: object) -> None:
    assert len(calls(only(amp, document))) == 5


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read(amp, [thread(messages=[*WHOLE[:1], 3]), thread(0), {"a": 1}])
    assert left_out == [
        ("[0].messages[1]", "not an object"),
        ("[1]", "no user or assistant message"),
        ("[2]", "not a thread of Amp"),
    ]


@pytest.mark.parametrize("count", range(1, len(WHOLE)))
def test_grown_thread_keeps_earlier_records(count: int) -> None:
    assert_grows(amp, thread(count), thread())


def test_values_of_any_type_are_read() -> None:
    assert_takes_any_type(amp, thread())


@given(mangled(thread()))
def test_read_mangled_document_never_raises(document: Any) -> None:
    if amp.recognises(document):
        read(amp, document)


@pytest.mark.parametrize(
    "document", [None, [], WHOLE, {"id": "T-1", "messages": []}, {"id": "s-1", "created": 1, "messages": WHOLE}]
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not amp.recognises(document)
    assert format_of(document) is not amp


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(amp)
