"""Tasks of Cline, Roo Code and Kilo Code: both protocols, what was typed, the page of a task, folders, and growth."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from sdk.tests.growth import grows_linearly
from tracesite_sdk import records
from tracesite_sdk.formats import cline
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.normalize.pricing import Tokens, tokens_of
from tracesite_sdk.transcripts.documents import Files, Unreadable

from .reading import (
    assert_grows,
    assert_takes_no_other,
    calls,
    figures,
    has_failed,
    mangled,
    messages_of,
    only,
    read,
    steps,
)

NOON = 1772366400000
ENVIRONMENT = "<environment_details>\n# Current Workspace Directory (/srv/shop)\n<feedback>not typed</feedback>\n</environment_details>"
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def user(*blocks: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [said(block) if isinstance(block, str) else block for block in blocks], **fields}


def assistant(*blocks: Any, **fields: Any) -> dict[str, Any]:
    return {**user(*blocks, **fields), "role": "assistant"}


def use(own: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": own, "name": name, "input": given}


def result(own: str, output: Any, *, is_error: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": own, "content": output, "is_error": is_error}


XML = "<thinking>First the folder.</thinking>\n\nI look.\n\n<list_files>\n<path>src</path>\n<recursive>false</recursive>\n</list_files>"
WRITE = "<write_to_file>\n<path>a.py</path>\n<content>\n<path>b</path>\nprint(1)\n</content>\n</write_to_file>"
WHOLE = [
    user("<task>\nIs it warm?\n</task>", IMAGE, ENVIRONMENT),
    assistant(XML),
    user("[list_files for 'src'] Result:", "a.py\n<user_message>not typed</user_message>", ENVIRONMENT),
    assistant(WRITE),
    user("[write_to_file for 'a.py'] Result:", "The user denied this operation and provided the following feedback:\n<feedback>\nUse b.py\n</feedback>", ENVIRONMENT),
    assistant("<execute_command>\n<command>false</command>\n</execute_command>"),
    user("[execute_command for 'false'] Result:\nThe tool execution failed with the following error:\n<error>\nno shell\n</error>"),
    assistant("<attempt_completion>\n<result>Yes, it is.</result>\n</attempt_completion>"),
    user("[attempt_completion] Result:", "The user has provided feedback.\n<feedback>\nAnd now?\n</feedback>", ENVIRONMENT),
    assistant({"type": "thinking", "thinking": "Two files.", "signature": "s"}, "Native.", use("c1", "read_file", path="a.py"), use("c2", "read_file", path="b.py")),
    user(result("c1", [said("print(1)"), IMAGE]), result("c2", "no such file", is_error=True), ENVIRONMENT),
    assistant("I say nothing."),
    user("[ERROR] You did not use a tool in your previous response!", ENVIRONMENT),
    assistant(use("c3", "ask_followup_question", question="Which?")),
    user(result("c3", "<answer>\nThe second\n</answer>"), ENVIRONMENT),
    assistant(use("c4", "attempt_completion", result="Done.")),
]  # fmt: skip
FIRST = WHOLE[:9]


def request(index: int, **counts: Any) -> dict[str, Any]:
    text = {
        "request": "...",
        "tokensIn": 100 + index,
        "tokensOut": 10,
        "cacheReads": 300,
        "cacheWrites": 20,
        "cost": 0.5,
        **counts,
    }
    return {"ts": NOON + index * 10_000, "type": "say", "say": "api_req_started", "text": json.dumps(text)}


UI = [
    {"ts": NOON, "type": "say", "say": "task", "text": "Is it warm?"},
    {"ts": NOON + 1, "type": "say", "say": "api_req_started", "text": json.dumps({"request": "...", "cancelReason": "streaming_failed"})},
    *(request(index) for index in range(8)),
    {**request(8), "partial": True},
]  # fmt: skip
METADATA = {
    "model_usage": [
        {"ts": NOON - 5, "model_id": "m-1", "mode": "act"},
        {"ts": NOON + 45_000, "model_id": "m-2", "mode": "act"},
    ]
}


def folder(files: dict[str, Any]) -> Files:
    def load(name: str) -> Any:
        if isinstance(files[name], Unreadable):
            raise files[name]
        return files[name]

    return Files(tuple(files), load)


def task(count: int = len(WHOLE), root: str = "tasks/1772366400000/") -> Files:
    return folder(
        {
            f"{root}api_conversation_history.json": WHOLE[:count],
            f"{root}ui_messages.json": UI,
            f"{root}task_metadata.json": METADATA,
            "settings.json": {},
        }
    )


def test_folder_of_a_task_gives_expected_records() -> None:
    files = task()
    session = only(cline, files)
    assert (session.external_id, session.title, files.taken) == (
        "1772366400000",
        "Is it warm?",
        {name for name in files.names if name.startswith("tasks/")},
    )
    prompts = [message for message in session.messages or () if message.role == "user"]
    assert [message.content for message in prompts] == [
        [said("Is it warm?"), IMAGE],
        "Use b.py",
        "And now?",
        "The second",
    ]
    assert prompts[0].created_at == datetime(2026, 3, 1, 12, tzinfo=UTC)
    answers = [message for message in session.messages or () if message.role == "assistant"]
    assert [message.content for message in answers] == [None, "Yes, it is.", "I say nothing.", "Done."]
    first, write = steps(answers[0])
    assert (first.thought, first.reasoning_content, first.model, first.timestamp) == (
        "I look.",
        "First the folder.",
        "m-1",
        datetime(2026, 3, 1, 12, tzinfo=UTC),
    )
    assert (tokens_of(first.usage), tokens_of(write.usage), (write.usage or {})["cost"]) == (
        Tokens(100, 300, 20, 10, 0),
        Tokens(101, 300, 20, 10, 0),
        0.5,
    )
    native, nothing, _ask = steps(answers[2])
    assert (native.thought, native.reasoning_content, native.model) == ("Native.", "Two files.", "m-1")
    assert (nothing.usage is not None, nothing.model) == (True, "m-2")
    made = calls(session)
    assert [(call.name, call.args) for call in made[:3]] == [
        ("list_files", {"path": "src", "recursive": "false"}),
        ("write_to_file", {"path": "a.py", "content": "<path>b</path>\nprint(1)"}),
        ("execute_command", {"command": "false"}),
    ]
    listed = made[0].result
    assert isinstance(listed, records.ToolResult) and listed.output == "a.py\n<user_message>not typed</user_message>"
    read_ = made[4].result
    assert isinstance(read_, records.ToolResult) and (read_.output, read_.attachments) == ("print(1)", [IMAGE])
    assert [(call.name, has_failed(call)) for call in made] == [
        ("list_files", False),
        ("write_to_file", False),
        ("execute_command", True),
        ("attempt_completion", False),
        ("read_file", False),
        ("read_file", True),
        ("ask_followup_question", False),
        ("attempt_completion", False),
    ]


def test_sample_matches_counts_made_by_hand() -> None:
    counts = figures([only(cline, WHOLE)])
    assert (counts["user"], counts["tool_results"], counts["calls_without_result"], counts["results_without_call"]) == (
        4,
        8,
        0,
        0,
    )
    assert counts["tool_calls_by_name"] == {
        "list_files": 1,
        "write_to_file": 1,
        "execute_command": 1,
        "attempt_completion": 2,
        "read_file": 2,
        "ask_followup_question": 1,
    }


def test_history_alone_has_no_tokens() -> None:
    session = only(cline, WHOLE)
    assert session.external_id is not None and session.external_id.startswith("transcript-")
    assert [step.usage for message in session.messages or () for step in steps(message) if step.usage] == []
    added = [message.content for message in session.messages or () if message.role == "system"]
    assert (
        added[0] == ENVIRONMENT
        and added[-2] == f"[ERROR] You did not use a tool in your previous response!\n\n{ENVIRONMENT}"
    )


def test_messages_of_roo_have_times_models_and_summaries() -> None:
    history = [
        user("<user_message>\nHi\n</user_message>", ENVIRONMENT, ts=NOON),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "x"},
        assistant("Hello.", ts=NOON + 2000, modelInfo={"modelId": "m-3"}, metrics={"tokens": {"prompt": 50, "completion": 5, "cached": 20}, "cost": 0.1}),
        user("Before: Hello.", isSummary=True, condenseId="c", ts=NOON + 3000),
    ]  # fmt: skip
    item = {
        "id": "0190f2a4-0000-4000-8000-000000000001",
        "number": 3,
        "ts": NOON,
        "task": "Hi",
        "workspace": "/srv/shop",
        "mode": "code",
    }
    files = folder({"api_conversation_history.json": history, "history_item.json": item})
    session = only(cline, files)
    assert (session.external_id, (session.metadata or {})["workspace"]) == (item["id"], "/srv/shop")
    question, _environment, answer, summary = session.messages or []
    assert (question.created_at, summary.role, summary.content) == (
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        "system",
        "Before: Hello.",
    )
    (step,) = steps(answer)
    assert (step.model, step.reasoning_content, tokens_of(step.usage)) == ("m-3", "Hm.", Tokens(50, 20, 0, 5, 0))


def test_several_folders_are_tasks_and_broken_files_are_reported() -> None:
    name = "tasks/1772366400001/api_conversation_history.json"
    other = {
        name: Unreadable("not JSON"),
        "tasks/1772366400000/api_conversation_history.json": WHOLE,
        "tasks/1772366400000/ui_messages.json": Unreadable("cut"),
    }
    sessions, left_out = read(cline, folder(other))
    assert [session.external_id for session in sessions] == ["1772366400000"]
    assert left_out == [
        (name, "not JSON"),
        (name, "no user or assistant message"),
        ("tasks/1772366400000/ui_messages.json", "cut"),
    ]


def test_text_with_tags_of_html_is_no_call() -> None:
    _question, _environment, answer = messages_of(
        cline, [WHOLE[0], assistant("Use <b>bold</b> and <write_to_file> like this.")]
    )
    assert (answer.content, [step.tool_calls for step in steps(answer)]) == (
        "Use <b>bold</b> and <write_to_file> like this.",
        [[]],
    )


@pytest.mark.parametrize(
    "repeated", ["<write_to_file>", "<a><b>", "<thinking>", XML, "[read_file for '", "<feedback>", "<path>a</path>"]
)
def test_hostile_text_takes_linear_time(repeated: str) -> None:
    def made(size: int) -> list[Any]:
        text = repeated * (size // len(repeated))
        return [WHOLE[0], assistant(f"<read_file>{text}"), user(text), user(f"[attempt_completion] Result:{text}")]

    assert grows_linearly(lambda document: read(cline, document), made, 200_000, spare=0.05)


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read(cline, [WHOLE[0], 3, {"role": "critic", "content": "Bad."}])
    assert left_out == [("[1]", "not an object"), ("[2]", "the role is 'critic'; a role is user or assistant")]


@pytest.mark.parametrize("count", range(1, len(WHOLE)))
def test_grown_task_keeps_earlier_records(count: int) -> None:
    assert_grows(cline, WHOLE[:count], WHOLE)
    assert_grows(cline, task(count), task())


def test_values_of_any_type_are_read() -> None:
    for broken in ("api_conversation_history.json", "ui_messages.json", "task_metadata.json"):
        for value in (None, True, "x", ["x"], [None, {}], {"model_usage": [3, {"ts": "x"}]}):
            read(
                cline,
                folder(
                    {
                        "api_conversation_history.json": WHOLE,
                        "ui_messages.json": UI,
                        "task_metadata.json": METADATA,
                        broken: value,
                    }
                ),
            )


@given(mangled({"api_conversation_history.json": WHOLE, "ui_messages.json": UI, "task_metadata.json": METADATA}))
def test_read_mangled_document_never_raises(document: Any) -> None:
    if isinstance(document, dict):
        read(cline, folder(document))
        if cline.recognises(document.get("api_conversation_history.json")):
            read(cline, document["api_conversation_history.json"])


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        [user("Hi"), assistant("Hello.")],
        [user("<task>Hi</task>")],
        [user(ENVIRONMENT)],
        UI,
        folder({"ui_messages.json": UI}),
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not cline.recognises(document)
    assert format_of(document) is not cline


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(cline)
