"""Claude Code: its lines, its sub-agents, snapshots of a session, and the counts of real files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.growing import merged
from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import claude_code
from tracesite_sdk.formats.claude_code import recognises
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.normalize.json_values import fields
from tracesite_sdk.transcripts import documents

from . import reading
from .reading import counted, figures, mangled

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SESSION = "5a3bb1c8"


def line(kind: str, uuid: str, content: Any, second: int = 0, **fields: Any) -> dict[str, Any]:
    """Build a line of the session; `id` is that of the API message of an assistant line."""
    message = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": fields.pop("id", f"msg_{uuid}"), "type": "message", "model": "claude-x"}
        message |= {name: fields.pop(name) for name in ("usage", "stop_reason", "model") if name in fields}
    return {"parentUuid": None, "isSidechain": False, "sessionId": SESSION, "version": "2.1.0", "cwd": "/p", "type": kind, "message": message, "uuid": uuid, "timestamp": (NOON + timedelta(seconds=second)).isoformat().replace("+00:00", "Z"), **fields}  # fmt: skip


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def use(id_: str, name: str = "Bash", **args: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": args}


def done(id_: str, output: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": output, **fields}


THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
LINES = [
    line("user", "u1", "Fix it"),
    line("assistant", "a1", [THINKING], 1, id="msg_1", usage={"input_tokens": 9, "output_tokens": 1}),
    line("assistant", "a2", [text("I look.")], 2, id="msg_1", usage={"input_tokens": 9, "output_tokens": 1}),
    line("assistant", "a3", [use("toolu_1", command="ls")], 3, id="msg_1", usage={"input_tokens": 9, "output_tokens": 5}),
    line("user", "u2", [done("toolu_1", "a.py")], 4, toolUseResult={"stdout": "a.py", "stderr": ""}),
    line("assistant", "a4", [use("toolu_2", "Read", path="a.py")], 5, id="msg_1", usage={"input_tokens": 9, "output_tokens": 7}),
    line("user", "u3", [done("toolu_2", "<tool_use_error>no</tool_use_error>", is_error=True)], 6, toolUseResult="Error: no"),
    line("assistant", "a5", [text("Done.")], 7, stop_reason="end_turn", usage={"input_tokens": 20, "output_tokens": 3}),
]  # fmt: skip


def read(values: Sequence[object]) -> tuple[list[records.Session], list[tuple[str, str]]]:
    return reading.read(claude_code, reading.lines(list(values)))


def only(values: Sequence[object]) -> records.Session:
    return reading.only(claude_code, reading.lines(list(values)))


def outline(session: records.Session) -> list[Any]:
    """Return role, id and content of each message; for an answer its steps as (thought, calls as (id, parent, status))."""
    return [
        (m.role, m.external_id, m.content)
        if m.agent_steps is None
        else (
            m.role,
            m.external_id,
            m.content,
            [(step.thought, [(c.id, c.parent, c.status) for c in step.tool_calls or ()]) for step in m.agent_steps],
        )
        for m in session.messages or ()
    ]


# --- Lines ------------------------------------------------------------------------------------------------------------


def test_lines_of_api_message_around_results_are_one_reply() -> None:
    session = only(LINES)
    assert outline(session) == [
        ("user", "u1", "Fix it"),
        (
            "assistant",
            "a1",
            "Done.",
            [("I look.", [("toolu_1", None, "success"), ("toolu_2", None, "error")]), (None, [])],
        ),
    ]
    assert (session.external_id, session.title, session.created_at) == (SESSION, "Fix it", NOON)
    assert session.metadata == {"cwd": "/p", "version": "2.1.0", "import_format": "claude_code"}


def test_reply_has_model_reasoning_times_and_usage_once() -> None:
    message = (only(LINES).messages or [])[1]
    step, last = message.agent_steps or ()
    assert (step.id, step.model, step.reasoning_content) == ("msg_1", "claude-x", "Hm.")
    assert step.usage == {"input_tokens": 9, "output_tokens": 7}
    assert (last.id, last.thought, last.model) == ("msg_a5", None, "claude-x")
    assert (last.usage, last.timestamp) == ({"input_tokens": 20, "output_tokens": 3}, NOON + timedelta(seconds=7))
    assert message.usage is None
    assert (message.created_at, message.completed_at) == (NOON + timedelta(seconds=1), NOON + timedelta(seconds=7))
    assert [(c.started_at, c.completed_at) for c in step.tool_calls or ()] == [
        (NOON + timedelta(seconds=3), NOON + timedelta(seconds=4)),
        (NOON + timedelta(seconds=5), NOON + timedelta(seconds=6)),
    ]
    assert step.metadata == {"message_id": "msg_1", "thinking": [{"type": "thinking", "signature": "c2ln"}]}


def test_tool_use_result_other_than_output_is_data() -> None:
    first, second = reading.results(only(LINES))
    assert first == records.ToolResult(status="success", output="a.py", data={"stdout": "a.py", "stderr": ""})
    assert second == records.ToolResult(
        status="error", output="<tool_use_error>no</tool_use_error>", metadata={"toolUseResult": "Error: no"}
    )


def test_duration_in_tool_use_result_is_that_of_call() -> None:
    lines = [LINES[0], LINES[3], line("user", "u2", [done("toolu_1")], 4, toolUseResult={"durationMs": 1500})]
    assert [call.duration for call in reading.calls(only(lines))] == [1500]


def test_result_without_call_is_kept_and_flagged() -> None:
    session = only([*LINES[:3], line("user", "u9", [done("toolu_9", is_error=True)], 9)])
    message = (session.messages or [])[1]
    assert message.health == ["orphan_result"]
    assert [(call.id, call.name, call.status) for call in reading.calls(session)] == [("toolu_9", "unknown", "error")]


def test_result_before_its_call_belongs_to_it() -> None:
    early = line("user", "u2", [done("toolu_2", "no", is_error=True)], 4)
    lines = [*LINES[:4], early, line("assistant", "a9", [use("toolu_2")], 3), LINES[4], line("assistant", "a8", [text("Done.")], 5)]  # fmt: skip
    session = only(lines)
    assert [(call.id, call.name, call.status) for call in reading.calls(session)] == [
        ("toolu_1", "Bash", "success"),
        ("toolu_2", "Bash", "error"),
    ]
    assert [message.health for message in session.messages or ()] == [None, None]


def test_result_before_a_call_of_a_later_turn_is_an_orphan() -> None:
    lines = [*LINES[:3], line("user", "u2", [done("toolu_9")], 4), line("user", "u3", "And?", 5), line("assistant", "a9", [use("toolu_9")], 6)]  # fmt: skip
    assert [(call.name, call.status) for call in reading.calls(only(lines))] == [
        ("unknown", "success"),
        ("Bash", "pending"),
    ]


def test_api_error_is_error_of_the_message() -> None:
    failing = line("assistant", "a9", [text("API Error: 529")], 9, isApiErrorMessage=True)
    failing["message"]["model"] = "<synthetic>"
    session = only([LINES[0], failing])
    assert session.status == "error"
    entry = (session.messages or [])[1]
    assert (entry.content, entry.error, entry.metadata) == (
        "API Error: 529",
        "API Error: 529",
        {"message_id": "msg_a9", "model": "<synthetic>"},
    )


@pytest.mark.parametrize("model", ["<synthetic>", "claude-sonnet-4-5"])
def test_error_of_a_stream_is_that_of_an_answer_of_the_client(model: str) -> None:
    said = {"id": "m1", "type": "message", "role": "assistant", "model": model, "content": [text("API Error: 529")]}
    stream = [
        {"type": "system", "subtype": "init", "session_id": SESSION, "cwd": "/srv"},
        {"type": "assistant", "session_id": SESSION, "uuid": "a1", "parent_tool_use_id": None, "message": said, "error": "server_error"},
    ]  # fmt: skip
    (answer,) = only(stream).messages or []
    assert answer.error == ("API Error: 529" if model == "<synthetic>" else None)


@pytest.mark.parametrize("agent", ["acompact-3f2a9c", "aprompt_suggestion-01ab"])
def test_conversation_repeated_by_an_agent_of_the_client_is_left_out(agent: str) -> None:
    repeated = [{**value, "uuid": f"x-{value.get('uuid')}"} for value in LINES]
    own = [line("user", "c1", "Summarize this", 50), line("assistant", "c2", [text("They fixed it.")], 51)]
    again = [{**value, "isSidechain": True, "agentId": agent} for value in [*repeated, *own]]
    (alone,), left_out = read(again)
    (share,) = alone.messages or []
    assert (share.external_id, [step.thought for step in reading.steps(share)]) == (
        f"agent-{agent}",
        ["They fixed it."],
    )
    assert (reading.steps(share)[0].metadata or {})["prompt"] == "Summarize this"
    assert left_out == [("(all)", f"bookkeeping, the conversation, repeated by an agent of the client: {len(LINES)} lines")]  # fmt: skip
    (both,), _left_out = read([*LINES, *again])
    (main,), _left_out = read(LINES)
    assert [call.id for call in reading.calls(both)] == [call.id for call in reading.calls(main)]
    assert [m.external_id for m in both.messages or ()] == [m.external_id for m in main.messages or ()]


def test_inserted_lines_do_not_end_the_turn() -> None:
    lines = [
        *LINES[:5],
        line("user", "m1", [text("Base directory of this skill ...")], 5, isMeta=True),
        line("user", "m2", "This session is being continued ...", 5, isCompactSummary=True),
        {"type": "attachment", "uuid": "q1", "sessionId": SESSION, "timestamp": "2026-03-01T12:00:06Z", "attachment": {"type": "queued_command", "prompt": "Hurry"}},
        line("assistant", "a9", [text("Done.")], 9),
    ]  # fmt: skip
    assert outline(only(lines)) == [
        ("user", "u1", "Fix it"),
        ("assistant", "a1", "Done.", [("I look.", [("toolu_1", None, "success")]), (None, [])]),
        ("system", "m1", "Base directory of this skill ..."),
        ("system", "m2", "This session is being continued ..."),
        ("user", "q1", "Hurry"),
    ]


@pytest.mark.parametrize(
    ("after", "health"),
    [
        ([], ["stopped"]),
        ([line("user", "u9", "Then another way", 9), line("assistant", "a9", [text("Done.")], 10)], ["stopped"]),
        ([line("assistant", "a9", [text("Done.")], 9)], None),
    ],
    ids=["at the end", "before another question", "before more of the turn"],
)
def test_interruption_stops_the_turn_before_it(after: list[dict[str, Any]], health: list[str] | None) -> None:
    marker = line("user", "m1", [text("[Request interrupted by user for tool use]")], 6)
    messages = only([*LINES[:5], marker, *after]).messages or []
    assert [message.health for message in messages[:3]] == [None, health, None]
    assert [message.external_id for message in messages[:3]] == ["u1", "a1", "m1"]
    assert [message.health for message in messages[3:]] == [None] * len(messages[3:])


NOTIFICATION = "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n</task-notification>"


@pytest.mark.parametrize(
    ("content", "extra"),
    [
        (NOTIFICATION, {"origin": {"kind": "task-notification"}}),
        (NOTIFICATION, {}),
        ([text(NOTIFICATION)], {"promptSource": "system"}),
        ("The tests of your colleague pass.", {"origin": {"kind": "peer", "from": "reviewer"}}),
        ("Go on.", {"origin": {"kind": "auto-continuation"}}),
        ("Nightly check", {"promptSource": "system"}),
        ("Stop hook feedback: lint failed", {"isMeta": True}),
        ("Read the whole guide.", {"sourceToolUseID": "toolu_1"}),
        ('<command-message>The "pdf" skill is loading</command-message>\n<command-name>pdf</command-name>', {}),
        ("This session is being continued from a previous conversation that ran out of context. Summary:", {}),
        ("<command-name>/model</command-name>\n  <command-message>model</command-message>", {"origin": {"kind": "human"}}),
        ("<local-command-stdout>Set model to opus</local-command-stdout>", {}),
        ("<bash-input>ls</bash-input>", {}),
        ("<bash-stdout>a.py</bash-stdout><bash-stderr></bash-stderr>", {}),
        ("Caveat: The messages below were generated by the user while running local commands. DO NOT respond", {}),
        ("[Request interrupted by user for tool use]", {}),
        ("[Request interrupted by user]", {}),
        ('<channel source="chat" user="ada">\nHello\n</channel>', {}),
        (f"{NOTIFICATION}\nRead the output file to see more.", {}),
        ("<system-reminder>Be brief.</system-reminder>\n<system-reminder>Today is Monday.</system-reminder>", {}),
    ],
)  # fmt: skip
def test_text_that_nobody_typed_is_system_message(content: Any, extra: dict[str, Any]) -> None:
    session = only([line("user", "m1", content, 0, **extra), *LINES])
    assert [message[:2] for message in outline(session)] == [("system", "m1"), ("user", "u1"), ("assistant", "a1")]
    assert session.title == "Fix it"
    assert ((session.messages or [])[0].metadata or {}) == {"role": "user", **extra}


ABOUT_MARKS = (
    "[Request interrupted by user] what does this line mean?",
    "<bash-input>ls</bash-input> in my log, explain",
    "<command-name>foo</command-name> what is this",
    "<local-command-stdout> is what I see",
    "<channel name> is what I want to print",
    "<task-notification>done</task-notification> came, why?",
)


@pytest.mark.parametrize(
    ("content", "extra", "expected"),
    [
        ("What does <task-notification> mean?", {}, "What does <task-notification> mean?"),
        (NOTIFICATION, {"origin": {"kind": "human"}}, NOTIFICATION),
        ("Run it", {"promptSource": "sdk"}, "Run it"),
        ("<system-reminder>Be brief.</system-reminder> Why?", {}, "<system-reminder>Be brief.</system-reminder> Why?"),
        ("<ide_selection>a</ide_selection>" * 50 + "Why?", {}, "<ide_selection>a</ide_selection>" * 50 + "Why?"),
        *((said, extra, said) for said in ABOUT_MARKS for extra in ({}, {"origin": {"kind": "human"}})),
        ("[Request interrupted by user]", {"origin": {"kind": "human"}}, "[Request interrupted by user]"),
        ("<command-message>pr</command-message>\n<command-name>/pr</command-name>", {}, "/pr"),
        (
            "<command-message>fix is running…</command-message>\n<command-name>/fix</command-name>\n<skill-format>true</skill-format>\n<command-args>12 now</command-args>",
            {},
            "/fix 12 now",
        ),
    ],
)  # fmt: skip
def test_text_that_somebody_typed_is_user_message(content: Any, extra: dict[str, Any], expected: str) -> None:
    session = only([line("user", "m1", content, 0, **extra), *LINES[1:]])
    assert outline(session)[0] == ("user", "m1", expected)


def test_inserted_blocks_beside_a_prompt_are_system_message() -> None:
    opened = "<ide_opened_file>The user opened a.py</ide_opened_file>"
    session = only([line("user", "u1", [text(opened), text("Fix it")]), *LINES[1:]])
    assert outline(session)[:2] == [("user", "u1", "Fix it"), ("system", "u1#added", opened)]
    body = [text("<command-message>init is analyzing…</command-message>\n<command-name>/init</command-name>"), text("Write a guide.")]  # fmt: skip
    assert outline(only([line("user", "u1", body), *LINES[1:]]))[:2] == [
        ("user", "u1", "/init"),
        ("system", "u1#added", "Write a guide."),
    ]


def attached(prompt: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "attachment", "uuid": "q1", "sessionId": SESSION, "timestamp": "2026-03-01T12:00:06Z", "attachment": {"type": "queued_command", "prompt": prompt, **fields}}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "role"),
    [
        ({"commandMode": "task-notification", "origin": {"kind": "task-notification"}}, "system"),
        ({"commandMode": "task-notification"}, "system"),
        ({"commandMode": "prompt", "origin": {"kind": "peer"}}, "system"),
        ({"commandMode": "bash", "origin": {"kind": "human"}}, "system"),
        ({"commandMode": "prompt"}, "user"),
        ({"commandMode": "prompt", "origin": {"kind": "human"}}, "user"),
        ({"origin": {"kind": "human"}}, "user"),
    ],
)
def test_queued_command_is_of_user_only_if_typed(fields: dict[str, Any], role: str) -> None:
    *_others, message = only([*LINES[:5], attached("Look", **fields), line("assistant", "a9", [text("Done.")], 9)]).messages or ()  # fmt: skip
    assert (message.role, message.content) == (role, "Look")
    assert message.metadata == ({"role": "user"} if role == "system" else {}) | fields


def test_input_attached_to_sub_agent_is_kept_with_its_reply() -> None:
    told = {**attached("Look at b, too"), "isSidechain": True, "agentId": AGENT}
    session = only([*BEFORE, *OF_AGENT[:4], told, *OF_AGENT[4:], *AFTER])
    assert [message[:3] for message in outline(session)] == [("user", "u1", "Go"), ("assistant", "a1", "Done.")]
    first = ((session.messages or [])[1].agent_steps or [])[1]
    assert (first.metadata or {})["told_after"] == ["Look at b, too"]


def test_lines_with_block_type_have_role_of_message() -> None:
    named = [{**item, "type": "tool_result"} if item["uuid"] in ("u2", "u3") else item for item in LINES]
    named = [{**item, "type": "tool_use"} if item["uuid"] == "a4" else item for item in named]
    assert only(named) == only(LINES)


def test_system_text_is_message_bookkeeping_is_counted() -> None:
    beside = {"sessionId": SESSION, "timestamp": "2026-03-01T12:00:00Z"}
    boundary = {"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted", "uuid": "s1", "compactMetadata": {"trigger": "auto"}, **beside}  # fmt: skip
    lines = [
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        *LINES,
        boundary,
        {"type": "system", "subtype": "turn_duration", "durationMs": 9, "uuid": "s2", **beside},
        *[{"type": "progress", "data": {"type": "hook_progress"}, "uuid": "p", **beside}] * 2,
    ]
    (session,), left_out = read(lines)
    *_others, system = session.messages or ()
    assert (system.role, system.external_id, system.content) == ("system", "s1", "Conversation compacted")
    assert system.metadata == {"subtype": "compact_boundary", "compactMetadata": {"trigger": "auto"}}
    assert left_out == [
        ("(all)", "bookkeeping, file-history-snapshot: 1 line"),
        ("(all)", "bookkeeping, system turn_duration: 1 line"),
        ("(all)", "bookkeeping, progress hook_progress: 2 lines"),
    ]


def test_title_is_custom_else_summary_of_this_session() -> None:
    other = {"type": "summary", "summary": "Another one", "leafUuid": "elsewhere"}
    own = {"type": "summary", "summary": "Repairs", "leafUuid": "a5"}
    renamed = {"type": "custom-title", "customTitle": "My repairs", "sessionId": SESSION}
    assert [only(lines).title for lines in ([other, *LINES], [*LINES, other, own], [*LINES, own, renamed])] == [
        "Fix it",
        "Repairs",
        "My repairs",
    ]
    assert (only([other, *LINES]).metadata or {})["summaries"] == [{"summary": "Another one", "leafUuid": "elsewhere"}]


def test_repeated_line_counts_once_other_content_is_kept() -> None:
    other = line("user", "u1", "Something else", 8)
    (session,), left_out = read([*LINES, LINES[0], LINES[3], other, other])
    assert outline(session)[2:] == [("user", "u1/1", "Something else")]
    assert len(reading.calls(session)) == 2
    assert left_out == [(f"line {number}", "duplicate of an earlier line") for number in (9, 10, 12)]


def again(item: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a line as the client writes it again when a session is resumed."""
    return {**item, "message": {**item["message"], "context_management": None, **fields}}


def test_line_written_again_on_resume_counts_once() -> None:
    lines = [LINES[0], line("assistant", "a1", [text("Done.")], 1, id="m1")]
    (session,), left_out = read([*lines, again(lines[1])])
    assert [session] == read(lines)[0]
    assert left_out == [("line 3", "duplicate of an earlier line")]


def test_call_written_again_on_resume_counts_once() -> None:
    lines = LINES[:5]
    nulled = [{**lines[3]["message"]["content"][0], "caller": None}]
    for second in (again(lines[3]), again(lines[3], content=nulled, stop_reason="tool_use")):
        (session,), _left_out = read([*lines, second])
        assert [(call.id, call.status) for call in reading.calls(session)] == [("toolu_1", "success")]


def test_call_of_a_known_id_in_another_line_counts_once() -> None:
    other = line("assistant", "a33", [use("toolu_1", command="ls", timeout=5)], 5, id="msg_1")
    session = only([*LINES[:5], other])
    assert [(call.id, call.status) for call in reading.calls(session)] == [("toolu_1", "success")]


def test_reply_that_the_client_wrote_is_no_request() -> None:
    written = line("assistant", "a9", [text("No response requested.")], 8, model="<synthetic>", usage={"input_tokens": 0, "output_tokens": 0})  # fmt: skip
    *_others, answer = only([LINES[0], written]).messages or []
    assert (answer.content, answer.agent_steps) == ("No response requested.", [])


# --- Answers written more than once, and ids that are not unique --------------------------------------------------------


def part_of(uuid: str, *blocks: Any, second: int = 1, output: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a line of the API message msg_1."""
    return line("assistant", uuid, list(blocks), second, id="msg_1", usage={"input_tokens": 9, "output_tokens": output}, **fields)  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        [part_of("a1", text("Two")), part_of("a2", text("Two files."), output=5)],
        [part_of("a1", text("Two files.")), part_of("a2", text("Two files."), output=5)],
        [part_of("a1", text("")), part_of("a2", text("Two")), part_of("a3", text("Two files."), output=5)],
        [part_of("a1", THINKING), part_of("a2", THINKING, text("Two")), part_of("a3", THINKING, text("Two files."), output=5)],
        [part_of("a1", THINKING), part_of("a2", text("Two files.")), part_of("a3", THINKING, text("Two files."), output=5)],
    ],
)  # fmt: skip
def test_snapshots_of_an_answer_are_one_answer(lines: list[Any]) -> None:
    session = only([LINES[0], *lines])
    _question, answer = session.messages or []
    (step,) = answer.agent_steps or []
    assert (answer.content, (step.usage or {})["output_tokens"]) == ("Two files.", 5)
    assert ((answer.metadata or {}).get("reasoning_content"), len(session.messages or ())) == (
        "Hm." if THINKING in lines[-1]["message"]["content"] or THINKING in lines[0]["message"]["content"] else None,
        2,
    )


def test_snapshots_with_calls_are_one_step_with_last_arguments() -> None:
    lines = [
        part_of("a1", text("I")),
        part_of("a2", text("I look."), use("toolu_1")),
        part_of("a3", text("I look."), use("toolu_1", command="ls"), use("toolu_2")),
        part_of("a4", text("I look."), use("toolu_1", command="ls"), use("toolu_2", command="pwd"), second=4, output=7),
        part_of("a5", text("I look."), use("toolu_1"), use("toolu_2", command="pwd"), second=4, output=7),
        line("user", "u2", [done("toolu_1"), done("toolu_2")], 5),
        line("assistant", "a6", [text("Done.")], 6),
    ]
    session = only([LINES[0], *lines])
    assert outline(session)[1][2:] == (
        "Done.",
        [("I look.", [("toolu_1", None, "success"), ("toolu_2", None, "success")]), (None, [])],
    )
    assert [call.args for call in reading.calls(session)] == [{"command": "ls"}, {"command": "pwd"}]
    assert [call.started_at for call in reading.calls(session)] == [NOON + timedelta(seconds=1)] * 2


def test_different_blocks_of_an_answer_are_all_kept() -> None:
    session = only(
        [LINES[0], part_of("a1", text("First.")), part_of("a2", text("Second.")), part_of("a3", text("Fir"))]
    )
    assert (session.messages or [])[1].content == [text("First."), text("Second."), text("Fir")]


@pytest.mark.parametrize("fields", [
    [{"requestId": "req_1"}, {"requestId": "req_2"}],
    [{}, {"usage": {"input_tokens": 5, "cache_read_input_tokens": 14}}],
    [{"usage": {}, "stop_reason": "tool_use"}, {"usage": {}}],
])  # fmt: skip
def test_answers_of_a_gateway_with_one_id_stay_apart(fields: list[dict[str, Any]]) -> None:
    usage = {"usage": {"input_tokens": 9}}
    lines = [
        line("user", "u1", "Fix it"),
        line("assistant", "a1", [text("I look.")], 1, id="chatcmpl", **{**usage, **fields[0]}),
        line("assistant", "a2", [use("toolu_1")], 2, id="chatcmpl", **{**usage, **fields[0]}),
        line("user", "u2", [done("toolu_1")], 3),
        line("assistant", "a3", [text("I look. Done.")], 4, id="chatcmpl", **{**usage, **fields[1]}),
        line("user", "u3", "Fix it", 5),
        line("assistant", "a4", [text("Again.")], 6, id="chatcmpl", **{**usage, **fields[1]}),
    ]
    session = only(lines)
    assert [message[:3] for message in outline(session)] == [
        ("user", "u1", "Fix it"),
        ("assistant", "a1", "I look. Done."),
        ("user", "u3", "Fix it"),
        ("assistant", "a4", "Again."),
    ]
    ids = [step.id for message in session.messages or () for step in message.agent_steps or ()]
    assert ids[0] == "chatcmpl" and len(ids) == len(set(ids))


HISTORY = [
    line("user", "u1", "Fix it"),
    part_of("a1", text("I look."), second=1),
    part_of("a2", use("toolu_1", command="ls"), second=2),
    line("user", "u2", [done("toolu_1", "a.py")], 3),
    line("assistant", "a3", [text("Fixed.")], 4, usage={"input_tokens": 20, "output_tokens": 3}),
    line("user", "u3", "Fix it", 5),
    line("assistant", "a4", [text("Fixed.")], 6, usage={"input_tokens": 25, "output_tokens": 3}),
]


def written_again(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**item, "uuid": f"again-{item['uuid']}"} for item in lines]


@pytest.mark.parametrize(("is_asked", "second"), [(True, "Fix it"), (False, "Fix it"), (False, "And b?")])
def test_history_written_again_counts_once(is_asked: bool, second: str) -> None:
    history = [*HISTORY[:5], line("user", "u3", second, 5), HISTORY[6]]
    again = [item for item in written_again(history) if is_asked or isinstance(item["message"]["content"], list)]
    more = [line("user", "u9", "Thanks", 9), line("assistant", "a9", [text("Welcome.")], 10)]
    (session,), left_out = read([*history, *again, *more])
    assert [session] == read([*history, *more])[0]
    if is_asked:
        assert left_out == [(f"line {number}", "written again: an earlier line is the same") for number in range(8, 15)]
    assert [message.content for message in session.messages or () if message.role == "user"] == ["Fix it", second, "Thanks"]  # fmt: skip
    assert [(call.id, call.status) for call in reading.calls(session)] == [("toolu_1", "success")]


@pytest.mark.parametrize(
    "other",
    [
        {"id": "msg_other"},
        {"usage": {"input_tokens": 50, "output_tokens": 3}},
        {"requestId": "req_2"},
    ],
)
def test_same_answer_to_same_question_is_another_answer(other: dict[str, Any]) -> None:
    usage = {"input_tokens": 20, "output_tokens": 3}
    first = line("assistant", "a1", [text("Pong")], 1, id="msg_1", usage=usage, requestId="req_1")
    second = line("assistant", "a2", [text("Pong")], 3, **{"id": "msg_1", "usage": usage, **other})
    assert len(only([line("user", "u1", "Ping"), first, line("user", "u2", "Ping", 2), second]).messages or ()) == 4


APART = [("continue", "Done."), ("what?", "Other"), ("continue", "Done."), ("end", "Bye")]


@pytest.mark.parametrize(("said", "tokens"), [(APART, 0), (APART, 9), ([("continue", "Done.")] * 3, 0)])
def test_repeated_answers_of_a_gateway_with_one_id_stay(said: list[tuple[str, str]], tokens: int) -> None:
    lines = [
        item
        for at, (question, answer) in enumerate(said)
        for item in (
            line("user", f"u{at}", question, 2 * at),
            line("assistant", f"a{at}", [text(answer)], 2 * at + 1, id="x", usage={"input_tokens": tokens}),
        )
    ]
    (session,), left_out = read(lines)
    assert left_out == []
    assert [message.content for message in session.messages or ()] == [part for pair in said for part in pair]


def test_equal_results_of_one_id_answer_their_own_calls() -> None:
    lines = [
        *(
            line("user", "u1", "Go"),
            line("assistant", "a1", [use("call_0")], 1),
            line("user", "u2", [done("call_0")], 2),
        ),
        *(line("assistant", "a2", [use("call_0")], 3), line("user", "u3", [done("call_0")], 4)),
    ]
    assert [call.status for call in reading.calls(only(lines))] == ["success", "success"]


# --- Text typed while the agent works ----------------------------------------------------------------------------------


def queue(operation: str, second: int, content: Any = None, **fields: Any) -> dict[str, Any]:
    value = {} if content is None else {"content": content}
    return {"type": "queue-operation", "operation": operation, "timestamp": f"2026-03-01T12:00:{second:02}Z", "sessionId": SESSION, **value, **fields}  # fmt: skip


ASKED = [line("user", "u1", "Fix it"), line("assistant", "a1", [use("toolu_1")], 1)]
ANSWERED = [line("user", "u2", [done("toolu_1")], 3), queue("remove", 4), line("assistant", "a2", [text("Right.")], 5)]


def prompts(values: Sequence[object]) -> list[Any]:
    (session,), _left_out = read(values)
    return [message.content for message in session.messages or () if message.role == "user"]


def test_text_absorbed_in_mid_turn_is_a_user_message() -> None:
    session = only([*ASKED, queue("enqueue", 2, "And tests?"), *ANSWERED])
    assert [message[:3] for message in outline(session)][::2] == [
        ("user", "u1", "Fix it"),
        ("user", (session.messages or [])[2].external_id, "And tests?"),
    ]
    message, queued = (session.messages or [])[1:]
    assert (message.content, [call.status for call in reading.calls(session)]) == ("Right.", ["success"])
    assert queued.created_at == NOON + timedelta(seconds=4)
    assert queued.metadata == {"queued_at": "2026-03-01T12:00:02Z"}


def test_queued_text_has_the_same_id_in_every_part_of_a_session() -> None:
    lines = [*ASKED, queue("enqueue", 2, "And tests?"), *ANSWERED]
    ids = [
        [m.external_id for session in read(part)[0] for m in session.messages or () if m.content == "And tests?"]
        for part in (lines, lines[1:], [LINES[0], *lines])
    ]
    assert len(ids[0]) == 1 and ids[0] == ids[1] == ids[2]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([queue("enqueue", 2, "B"), queue("enqueue", 2, "C"), *ANSWERED], ["B"]),
        ([queue("enqueue", 2, "B"), queue("enqueue", 2, "C"), queue("remove", 3, "C"), line("assistant", "a2", [])], ["C"]),
        ([queue("enqueue", 2, "B"), queue("remove", 3, "B", reason="absorbed_mid_turn"), line("assistant", "a2", [])], ["B"]),
        ([queue("enqueue", 2, "B"), queue("remove", 3, "B", reason="withdrawn"), line("assistant", "a2", [])], []),
        ([queue("enqueue", 2, "B"), queue("popAll", 3), *ANSWERED], []),
        ([queue("enqueue", 2, NOTIFICATION), *ANSWERED], []),
        ([queue("enqueue", 2, [{"type": "text", "text": "B"}]), *ANSWERED], [[{"type": "text", "text": "B"}]]),
        ([queue("enqueue", 2, "B"), *ANSWERED[:2]], []),
    ],
)  # fmt: skip
def test_queued_text_counts_only_if_model_received_it(lines: list[Any], expected: list[Any]) -> None:
    assert prompts([*ASKED, *lines]) == ["Fix it", *expected]


ATTACHED = {"type": "attachment", "uuid": "q1", "sessionId": SESSION, "timestamp": "2026-03-01T12:00:04Z", "attachment": {"type": "queued_command", "prompt": "B"}}  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        [queue("dequeue", 4), line("user", "u9", "B", 4)],
        [queue("remove", 4), ATTACHED],
        [ATTACHED, queue("remove", 4)],
        [queue("remove", 4), line("user", "u9", [text("B")], 4)],
    ],
)
def test_queued_text_repeated_by_a_line_counts_once(lines: list[Any]) -> None:
    end = line("assistant", "a9", [text("Right.")], 5)
    assert prompts([*ASKED, queue("enqueue", 2, "B"), *lines, end]) == ["Fix it", "B"]


def test_notification_absorbed_in_mid_turn_is_system_message() -> None:
    session = only([*ASKED, queue("enqueue", 2, NOTIFICATION), *ANSWERED])
    assert [(m.role, m.content) for m in session.messages or ()][2:] == [("system", NOTIFICATION)]
    repeated = [*ASKED, queue("enqueue", 2, NOTIFICATION), *ANSWERED[:2], attached(NOTIFICATION, commandMode="task-notification"), ANSWERED[2]]  # fmt: skip
    assert [m.role for m in read(repeated)[0][0].messages or ()] == ["user", "assistant", "system"]


def test_queue_lines_without_text_are_counted() -> None:
    _found, left_out = read([*ASKED, queue("enqueue", 2, "B"), queue("enqueue", 2, "C"), *ANSWERED])
    assert left_out == [("(all)", "bookkeeping, queue-operation: 1 line")]


def test_sessions_in_one_file_stay_apart() -> None:
    other = {**line("user", "v1", "Hello"), "sessionId": "other"}
    sessions, _left_out = read([LINES[0], other, *LINES[1:]])
    assert [(session.external_id, len(session.messages or ())) for session in sessions] == [(SESSION, 2), ("other", 1)]


def test_invalid_lines_are_reported_with_their_numbers() -> None:
    (_session,), left_out = read(
        [*LINES, 42, {"silly": 1}, {**LINES[0], "message": "error"}, line("user", "u8", ["wow", 5])]
    )
    assert left_out == [
        ("line 9", "not an object"),
        ("line 10", "no type"),
        ("line 11", "no message"),
        ("line 12: content[1]", "not a content block"),
    ]


def test_preamble_without_messages_is_recognised() -> None:
    preamble = [{"type": "mode", "mode": "normal", "sessionId": SESSION}] * 60
    assert format_of(reading.lines([*preamble, *LINES])) is claude_code


def test_two_objects_on_one_line_are_two_lines(tmp_path: Path) -> None:
    path = tmp_path / "glued.jsonl"
    glued = json.dumps(LINES[0]) + json.dumps(LINES[3])
    path.write_text("\n".join([glued, '{"type": "user", "mess', *map(json.dumps, LINES[4:])]))
    left_out: list[tuple[str, str]] = []
    document = documents.read(documents.file_source(path), lambda where, why: left_out.append((where, why)))
    sessions, _skipped = reading.read(claude_code, document)
    assert [call.id for call in reading.calls(sessions[0])] == ["toolu_1", "toolu_2"]
    assert [where for where, _why in left_out] == ["line 2"]


def test_decreasing_times_keep_the_order() -> None:
    lines = [*LINES, line("user", "u9", "And?", -60), line("assistant", "a9", [text("Well.")], -50)]
    assert [message[:3] for message in outline(only(lines))] == [
        ("user", "u1", "Fix it"),
        ("assistant", "a1", "Done."),
        ("user", "u9", "And?"),
        ("assistant", "a9", "Well."),
    ]


def test_naive_time_is_flagged() -> None:
    naive = {**LINES[0], "timestamp": "2026-03-01T12:00:00"}
    (message,) = only([naive]).messages or ()
    assert (message.created_at, message.health) == (NOON, ["naive_time"])


def test_web_export_without_ids_is_read() -> None:
    kept = ("type", "timestamp", "message")
    document = {"loglines": [{name: value for name, value in item.items() if name in kept} for item in LINES]}
    session = reading.only(claude_code, document)
    assert [entry[1:3] for entry in outline(session)] == [("0", "Fix it"), ("1", "Done.")]
    assert (session.external_id or "").startswith("transcript-")


def test_sdk_stream_gives_session_and_sub_agents() -> None:
    lines: list[dict[str, Any]] = [{"type": "system", "subtype": "init", "session_id": "s", "model": "claude-x", "tools": ["Task"]}]  # fmt: skip
    for item, parent in (
        (line("user", "u1", "Go"), None),
        (line("assistant", "a1", [use("toolu_t", "Task", prompt="Look")]), None),
        (line("assistant", "b1", [use("toolu_b")]), "toolu_t"),
        (line("user", "b2", [done("toolu_b")]), "toolu_t"),
        (line("user", "u2", [done("toolu_t")]), None),
        (line("assistant", "a2", [text("Done.")]), None),
    ):
        lines.append({"type": item["type"], "message": item["message"], "session_id": "s", "uuid": item["uuid"], "parent_tool_use_id": parent})  # fmt: skip
    lines.append({"type": "result", "subtype": "success", "session_id": "s", "total_cost_usd": 0.1, "is_error": False})
    session = only(lines)
    assert outline(session)[1] == (
        "assistant",
        "a1",
        "Done.",
        [(None, [("toolu_t", None, "success")]), (None, [("toolu_b", "toolu_t", "success")]), (None, [])],
    )
    assert (session.metadata or {})["results"] == [{"subtype": "success", "total_cost_usd": 0.1, "is_error": False}]
    assert (session.metadata or {})["inits"] == [{"subtype": "init", "model": "claude-x", "tools": ["Task"]}]


# --- Sub-agents -------------------------------------------------------------------------------------------------------

AGENT = "aac57f5"


def of_agent(item: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**item, "isSidechain": True, "agentId": AGENT, **fields}


def progress(item: dict[str, Any]) -> dict[str, Any]:
    """Return the progress line in which the main file repeats a line of a sub-agent."""
    inner = {name: item[name] for name in ("type", "message", "uuid", "timestamp")}
    return {"type": "progress", "sessionId": SESSION, "uuid": f"p-{item['uuid']}", "timestamp": item["timestamp"], "parentToolUseID": "toolu_t", "toolUseID": "agent_msg", "data": {"type": "agent_progress", "agentId": AGENT, "prompt": "Look", "message": inner}}  # fmt: skip


OF_AGENT = [
    of_agent(line("user", "b0", "Look", 2)),
    of_agent(line("assistant", "b1", [text("Looking.")], 3, id="msg_b")),
    of_agent(line("assistant", "b2", [use("toolu_b")], 4, id="msg_b")),
    of_agent(line("user", "b3", [done("toolu_b")], 5)),
    of_agent(line("assistant", "b4", [text("There.")], 6, id="msg_b2")),
]
BEFORE = [line("user", "u1", "Go"), line("assistant", "a1", [use("toolu_t", "Task", prompt="Look")], 1, id="msg_a")]
AFTER = [
    line("user", "u2", [done("toolu_t", "There.")], 7, toolUseResult={"agentId": AGENT, "status": "completed"}),
    line("assistant", "a2", [text("Done.")], 8),
]
NESTED = [
    (None, [("toolu_t", None, "success")]),
    ("Looking.", [("toolu_b", "toolu_t", "success")]),
    ("There.", []),
    (None, []),
]


def test_sub_agent_steps_are_below_their_call() -> None:
    session = only([*BEFORE, *OF_AGENT, *AFTER])
    assert outline(session) == [("user", "u1", "Go"), ("assistant", "a1", "Done.", NESTED)]
    _own, first, last, _answer = (session.messages or [])[1].agent_steps or ()
    assert (first.agent_name, first.id) == (AGENT, "msg_b")
    assert first.metadata == {"message_id": "msg_b", "prompt": "Look", "parent_call": "toolu_t"}
    assert last.metadata == {"message_id": "msg_b2", "parent_call": "toolu_t"}


def test_input_of_sub_agent_before_reply_is_its_prompt() -> None:
    hook = of_agent(line("user", "h0", "<system-reminder>hook</system-reminder>", 2, isMeta=True))
    session = only([*BEFORE, OF_AGENT[0], hook, *OF_AGENT[1:], *AFTER])
    first = ((session.messages or [])[1].agent_steps or [])[1]
    assert (first.metadata or {})["prompt"] == ["Look", "<system-reminder>hook</system-reminder>"]


def test_input_of_sub_agent_after_reply_is_kept_with_it() -> None:
    later = [of_agent(line("user", f"h{second}", f"hook {second}", second, isMeta=True)) for second in (4, 6, 7)]
    lines = [*BEFORE, *OF_AGENT[:4], later[0], OF_AGENT[4], *later[1:]]
    _own, first, last = (only(lines).messages or [])[1].agent_steps or ()
    assert (first.metadata or {})["told_after"] == ["hook 4"]
    assert (last.metadata or {})["told_after"] == ["hook 6", "hook 7"]


def test_sub_agent_without_id_is_matched_by_prompt() -> None:
    chained: list[dict[str, Any]] = []
    for item in OF_AGENT:
        before = chained[-1]["uuid"] if chained else None
        chained.append({**{k: v for k, v in item.items() if k != "agentId"}, "parentUuid": before})
    (_question, said) = outline(only([*BEFORE, *chained, *AFTER]))
    assert said[3] == NESTED


def agents_and_calls(*results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a session of two calls with one prompt, the files of their sub-agents, and these results."""
    started = [use("toolu_t", "Agent", prompt="Look"), use("toolu_s", "Agent", prompt="Look")]
    other = [of_agent(item, agentId="b00", uuid=f"o{item['uuid']}") for item in OF_AGENT[:2]]
    other[1]["message"] = {**other[1]["message"], "id": "msg_o"}
    lines = [line("user", "u1", "Go"), line("assistant", "a1", started, 1, id="msg_a"), *other, *OF_AGENT]
    return [*lines, *results, line("assistant", "a2", [text("Done.")], 8)]


def parents(lines: list[Any]) -> dict[str | None, tuple[Any, Any]]:
    """Return the parent call of each sub-agent, and whether it is a guess."""
    steps = [step for message in only(lines).messages or () for step in message.agent_steps or ()]
    return {
        step.agent_name: ((step.metadata or {}).get("parent_call"), (step.metadata or {}).get("parent_call_guessed"))
        for step in steps
        if step.agent_name
    }


NAMED = [text("There."), text(f"agentId: {AGENT} (for resuming to continue this agent's work if needed)")]


def test_sub_agent_named_in_text_of_result_is_below_its_call() -> None:
    for output in (NAMED, f"There.\nagentId: {AGENT} (for resuming)\n<usage>total_tokens: 9</usage>"):
        lines = agents_and_calls(line("user", "u2", [done("toolu_t", output), done("toolu_s")], 7))
        assert parents(lines) == {AGENT: ("toolu_t", None), "b00": ("toolu_s", None)}
        assert reading.results(only(lines))[0].data == {"agentId": AGENT}


def test_sub_agents_with_one_prompt_have_guessed_calls() -> None:
    lines = agents_and_calls(line("user", "u2", [done("toolu_t"), done("toolu_s")], 7))
    assert parents(lines) == {"b00": ("toolu_t", True), AGENT: ("toolu_s", True)}


def test_only_agent_of_two_with_one_prompt_below_call_is_guessed() -> None:
    other = [of_agent(item, agentId="b00", uuid=f"o{item['uuid']}") for item in OF_AGENT[:2]]
    lines = [*BEFORE, *OF_AGENT, *other, line("user", "u2", [done("toolu_t")], 7), *AFTER[1:]]
    assert parents(lines)[AGENT] == ("toolu_t", True)


@pytest.mark.parametrize(
    "output",
    [
        f"I saw the line\nagentId: {AGENT} (for resuming)\n" + "and more\n" * 8,
        [text(f"There.\nagentId: {AGENT} (for resuming)"), text("agentId: b00 (for resuming)")],
        f"There.\nagentId: {AGENT} (for resuming)",
    ],
    ids=["in the middle", "in an earlier block", "of another prompt"],
)
def test_agent_id_that_a_sub_agent_wrote_names_no_call(output: Any) -> None:
    started = [use("toolu_t", "Agent", prompt="Look"), use("toolu_s", "Agent", prompt="Search")]
    other = [of_agent(line("user", "o0", "Search", 2), agentId="b00"), of_agent(line("assistant", "o1", [text("Found.")], 3), agentId="b00")]  # fmt: skip
    results = line("user", "u2", [done("toolu_s", output), done("toolu_t")], 7)
    lines = [BEFORE[0], line("assistant", "a1", started, 1, id="msg_a"), *other, *OF_AGENT, results, *AFTER[1:]]
    assert parents(lines) == {AGENT: ("toolu_t", None), "b00": ("toolu_s", None)}


def test_prompt_of_another_tool_starts_no_sub_agent() -> None:
    fetched = line("assistant", "a0", [use("toolu_f", "WebFetch", prompt="Look")], 1, id="msg_f")
    assert parents([BEFORE[0], fetched, BEFORE[1], *OF_AGENT, *AFTER[1:]]) == {AGENT: ("toolu_t", None)}


def test_agent_id_in_result_of_another_tool_names_no_call() -> None:
    read_file = line("assistant", "a9", [use("toolu_r", "Read")], 6)
    lines = [*BEFORE, *OF_AGENT, read_file, line("user", "u9", [done("toolu_r", f"agentId: {AGENT} (note)")], 7), *AFTER[1:]]  # fmt: skip
    assert parents(lines) == {AGENT: ("toolu_t", None)}


def test_calls_in_progress_lines_only_are_read() -> None:
    session = only([*BEFORE, *map(progress, OF_AGENT), *AFTER])
    assert outline(session) == [("user", "u1", "Go"), ("assistant", "a1", "Done.", NESTED)]


def test_calls_repeated_by_progress_lines_count_once() -> None:
    session = only([*BEFORE, *map(progress, OF_AGENT), *OF_AGENT, *AFTER])
    assert outline(session) == [("user", "u1", "Go"), ("assistant", "a1", "Done.", NESTED)]


def test_session_of_sub_agent_prompt_only_has_its_time() -> None:
    (session,), _left_out = read([line("user", "s1", "Look around", 3, isSidechain=True, agentId="a1b2")])
    assert (session.created_at, session.messages) == (NOON + timedelta(seconds=3), [])


def test_sub_agent_file_alone_is_message_of_its_session() -> None:
    session = only(OF_AGENT)
    assert (session.external_id, session.title) == (SESSION, None)
    assert outline(session) == [
        ("assistant", f"agent-{AGENT}", None, [("Looking.", [("toolu_b", None, "success")]), ("There.", [])])
    ]
    assert [(step.id, step.agent_name) for step in (session.messages or [])[0].agent_steps or ()] == [
        ("msg_b", AGENT),
        ("msg_b2", AGENT),
    ]


# --- Growth -----------------------------------------------------------------------------------------------------------


def message_of(value: Any) -> Any:
    """Return the message of a line, or of the line inside a progress line."""
    return fields(value).get("message") or fields(fields(value).get("data")).get("message", {}).get("message")


def check_growth(start: Sequence[object], whole: Sequence[object]) -> None:
    """Assert that importing a prefix and then the whole equals importing the whole.

    A prefix that ends within an API message is excluded, because its text looks like the answer until its calls follow.
    """
    begun = {fields(value).get("id") for value in map(message_of, start)} - {None}
    is_cut = any(fields(value).get("id") in begun for value in map(message_of, whole[len(start) :]))
    before, after = read(start)[0], read(whole)[0]
    assert [session.external_id for session in before] == [session.external_id for session in after][: len(before)]
    for old, new in zip(before, after, strict=False):
        there = {message.external_id: message for message in new.messages or ()}
        order = [message.external_id for message in new.messages or ()]
        known = [message.external_id for message in old.messages or ()]
        assert known == [name for name in order if name in set(known)]
        for message in old.messages or ():
            now = there[message.external_id]
            assert message.created_at == now.created_at
            if not is_cut:
                assert merged(message, now) == now


def moved(item: dict[str, Any]) -> dict[str, Any]:
    """Return the same line with the ids of a later turn."""
    return json.loads(json.dumps(item).replace('"uuid": "', '"uuid": "later-').replace('"id": "', '"id": "later-').replace('"tool_use_id": "', '"tool_use_id": "later-'))  # type: ignore[no-any-return]  # fmt: skip


SCENES = [
    *BEFORE,
    *map(progress, OF_AGENT),
    line("user", "m1", [text("A skill.")], 6, isMeta=True),
    *AFTER,
    *map(moved, LINES),
    line("user", "u9", "Thanks", 60),
    line("assistant", "a9", [text("You are welcome.")], 61),
]
QUEUED = [
    *BEFORE,
    *OF_AGENT[:3],
    of_agent(line("user", "h1", "hook", 4, isMeta=True)),
    *OF_AGENT[3:],
    of_agent(line("user", "h2", "another hook", 6, isMeta=True)),
    queue("enqueue", 6, "Hurry"),
    queue("enqueue", 6, "B"),
    *AFTER[:1],
    queue("remove", 7),
    queue("remove", 7),
    ATTACHED,
    again(BEFORE[1]),
    *AFTER[1:],
    queue("enqueue", 8, "More"),
    queue("dequeue", 9),
    line("user", "u9", "More", 60),
    line("assistant", "a9", [text("There it is.")], 61),
]


@pytest.mark.parametrize(("scenes", "begun"), [(SCENES, 0), (QUEUED, len(BEFORE) + 1)])
@given(data=st.data())
def test_grown_session_keeps_earlier_records(scenes: list[Any], begun: int, data: st.DataObject) -> None:
    # Any line may be missing except the prompt, which identifies the call that started a sub-agent.
    later = scenes[begun:]
    kept = data.draw(st.lists(st.booleans(), min_size=len(later), max_size=len(later)))
    lines = [*scenes[:begun], *(item for item, is_kept in zip(later, kept, strict=True) if is_kept)]
    length = data.draw(st.integers(begun, len(lines)))
    check_growth(lines[:length], lines)


@pytest.mark.parametrize("document", [LINES, [*BEFORE, *map(progress, OF_AGENT), *AFTER], [*BEFORE, *OF_AGENT], QUEUED])
@given(data=st.data())
def test_read_mangled_document_never_raises(document: list[Any], data: st.DataObject) -> None:
    broken = data.draw(mangled(document))
    for form in (broken, reading.lines(broken) if isinstance(broken, list) else broken, {"loglines": broken}):
        recognises(form)
        for session in reading.read(claude_code, form)[0]:
            assert session.external_id


# --- Real files -------------------------------------------------------------------------------------------------------

FILES = sorted(path.relative_to(SHARED).as_posix() for path in SHARED.glob("claude_code/**/*.jsonl"))
SPOTTER = "claude_code/spotter/ae4a77f8"


def load(path: Path) -> Any:
    return documents.read(documents.file_source(path), lambda _where, _why: None)


def own_figures(sessions: list[records.Session]) -> tuple[dict[str, Any], int]:
    """Return the figures without the calls in progress lines only, and the number of these calls."""
    nested = [call for session in sessions for call in reading.calls(session) if call.parent]
    counts = figures(sessions)
    counts["tool_calls_by_name"] = dict(Counter(counts["tool_calls_by_name"]) - Counter(call.name for call in nested))
    counts["tool_results"] -= sum(call.result is not None for call in nested)
    counts["errors_by_tool"] = dict(
        Counter(counts["errors_by_tool"]) - Counter(call.name for call in nested if call.status == "error")
    )
    return counts, len(nested)


def not_typed(path: Path) -> int:
    """Count the user lines of a session that hold no result and that nobody typed."""
    marks = ("isMeta", "isCompactSummary")
    tags = ("<command-name>", "<local-command", "Caveat: The messages below", "[Request interrupted by user")
    count, seen = 0, set()
    for line_ in load(path):
        value = fields(line_.value)
        content = fields(value.get("message")).get("content")
        said = content if isinstance(content, str) else str(fields((content or [None])[0]).get("text"))
        is_inserted = any(value.get(mark) for mark in marks) or said.startswith(tags)
        if value.get("type") == "user" and is_inserted and value.get("uuid") not in seen:
            count += 1
            seen.add(value.get("uuid"))
    return count


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith(SPOTTER)])
def test_real_files_match_independent_counts(name: str) -> None:
    expected = counted(name)
    # Every result has a line of its own, so all other user lines are prompts.
    expected["user"] -= expected["tool_results"]
    expected["user"] -= not_typed(SHARED / name)
    # The count is of user lines; each of these files has one prompt in queue lines only.
    expected["user"] += name.endswith(("missing_result_71-69f9710768-0.jsonl", "tool_heavy.jsonl"))
    # The placeholder call of a result without a call has Tracesite's own name.
    expected["errors_by_tool"] = {{"?": "unknown"}.get(k, k): v for k, v in expected["errors_by_tool"].items()}
    document = load(SHARED / name)
    assert format_of(document) is claude_code
    sessions, _left_out = reading.read(claude_code, document)
    counts, nested = own_figures(sessions)
    assert counts == expected
    wanted = json.loads((SHARED / "EXPECTED_COUNTS.json").read_text())[name]
    assert nested == wanted["of_these_nowhere_else"]


def test_session_and_sub_agent_files_are_one_session() -> None:
    name = "claude_code/spotter/ae4a77f8* (main + 2 subagents together)"
    if not SHARED.exists():
        pytest.skip("the shared data are not on this machine")
    expected = json.loads((SHARED / "EXPECTED_COUNTS.json").read_text())[name]
    sessions = [
        session
        for path in FILES
        if path.startswith(SPOTTER)
        for session in reading.read(claude_code, load(SHARED / path))[0]
    ]
    assert (len(sessions), len({session.external_id for session in sessions})) == (
        expected["sessions"],
        expected["session_ids"],
    )
    calls = {call.id: call for session in sessions for call in reading.calls(session)}
    assert dict(Counter(call.name for call in calls.values())) == expected["tool_calls_by_name"]
    assert dict(Counter(call.name for call in calls.values() if call.status == "error")) == expected["errors_by_tool"]
    assert sum(call.result is not None for call in calls.values()) == expected["tool_results"]
    alone = {step.id for session in sessions for m in session.messages or () if (m.external_id or "").startswith("agent-") for step in m.agent_steps or () if step.tool_calls}  # fmt: skip
    nested = {step.id for session in sessions for m in session.messages or () for step in m.agent_steps or () if any(call.parent for call in step.tool_calls or ())}  # fmt: skip
    assert nested == alone


def test_real_web_export_is_read_whole() -> None:
    path = SHARED / "claude_code" / "simonw_sample_session.json"
    if not path.exists():
        pytest.skip("the shared data are not on this machine")
    session = reading.only(claude_code, load(path))
    assert (sum(m.role == "user" for m in session.messages or ()), len(reading.calls(session))) == (5, 12)


@pytest.mark.parametrize(
    "name",
    [name for name in FILES if name.endswith(("-0.jsonl", "short.jsonl", "tool_heavy.jsonl", "tiny_4c-0.jsonl"))],
)
def test_grown_real_sessions_keep_earlier_records(name: str) -> None:
    values = [line_.value for line_ in load(SHARED / name)]
    for length in range(0, len(values), max(1, len(values) // 12)):
        check_growth(values[:length], values)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    others = reading.other_files("claude_code")
    for path in others:
        try:
            document = load(path)
        except documents.Unreadable:
            continue
        assert not recognises(document), path.name
