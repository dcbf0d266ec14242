"""Rollouts of Codex CLI: the two logs in one file, outcomes of commands, tokens, forks, and growth."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk import records
from tracesite_sdk.formats import codex
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.transcripts.outline import digests_of

from .reading import assert_grows, assert_takes_no_other, calls, figures, has_failed, lines, mangled, only, read, steps


def line(second: int, envelope: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-05-04T10:00:{second:02}.000Z", "type": envelope, "payload": payload}


def item(second: int, kind: str, **fields: Any) -> dict[str, Any]:
    return line(second, "response_item", type=kind, **fields)


def event(second: int, kind: str, **fields: Any) -> dict[str, Any]:
    return line(second, "event_msg", type=kind, **fields)


def message(second: int, role: str, text: str, **fields: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(second, "message", role=role, content=[{"type": kind, "text": text}], **fields)


def tokens(second: int, sent: int, made: int, total: int) -> dict[str, Any]:
    last = {"input_tokens": sent, "cached_input_tokens": 1, "output_tokens": made, "reasoning_output_tokens": 2, "total_tokens": sent + made}  # fmt: skip
    return event(second, "token_count", info={"last_token_usage": last, "total_token_usage": {"total_tokens": total}})


META = line(
    0,
    "session_meta",
    id="0199-a",
    timestamp="2026-05-04T09:59:59.000Z",
    cwd="/srv/shop",
    originator="codex_cli_rs",
    cli_version="0.104.0",
    source="cli",
    model_provider="openai",
    base_instructions={"text": "You are Codex."},
    git={"branch": "main"},
)
START = [
    META,
    message(1, "developer", "<permissions instructions>ask</permissions instructions>"),
    message(1, "user", "# AGENTS.md instructions for /srv/shop\n\nBe kind."),
    message(1, "user", "<environment_context><cwd>/srv/shop</cwd></environment_context>"),
    event(1, "task_started", turn_id="t1", model_context_window=258400),
    message(2, "user", "Run the tests"),
    event(2, "user_message", message="Run the tests", images=[]),
    line(2, "turn_context", turn_id="t1", cwd="/srv/shop", model="gpt-5-codex", approval_policy="on-request", effort="high"),
    event(3, "agent_reasoning", text="**Testing**"),
    item(3, "reasoning", summary=[{"type": "summary_text", "text": "**Testing**"}], encrypted_content="xxx"),
    event(4, "agent_message", message="I run them."),
    message(4, "assistant", "I run them.", phase="commentary"),
    item(5, "function_call", name="exec_command", arguments='{"cmd": "make test"}', call_id="c1"),
    item(5, "custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c2", status="completed"),
    tokens(5, 100, 10, 110),
    event(6, "exec_command_end", call_id="c1", exit_code=2, aggregated_output="boom", duration={"secs": 1, "nanos": 500000000}),
    item(6, "function_call_output", call_id="c1", output="Chunk ID: a\nWall time: 1.5 seconds\nProcess exited with code 2\nOutput:\nboom"),
    event(7, "patch_apply_end", call_id="c2", success=True, stdout="Success.", stderr="", changes={"a.py": {"type": "add"}}),
    item(7, "custom_tool_call_output", call_id="c2", output='{"output":"Success.","metadata":{"exit_code":0,"duration_seconds":0.2}}'),
    line(7, "turn_context", turn_id="t1", cwd="/srv/shop", model="gpt-5-codex", approval_policy="on-request", effort="high"),
    tokens(8, 100, 10, 110),
    item(9, "web_search_call", status="completed", action={"type": "search", "query": "make"}),
    event(9, "web_search_end", call_id="ws_1", query="make", action={"type": "search", "query": "make"}),
    message(10, "assistant", "It fails.", phase="final_answer"),
    tokens(10, 200, 20, 330),
    event(11, "task_complete", turn_id="t1", last_agent_message="It fails."),
]  # fmt: skip
MORE = [
    event(12, "task_started", turn_id="t2"),
    message(13, "user", "Fix it"),
    event(13, "user_message", message="Fix it", images=[]),
    line(13, "turn_context", turn_id="t2", cwd="/srv/shop", model="gpt-5.1-codex", approval_policy="never"),
    item(14, "function_call", name="exec_command", arguments='{"cmd": "sleep 99"}', call_id="c3"),
    item(15, "function_call_output", call_id="c3", output="aborted by user after 0.9s"),
    event(15, "turn_aborted", turn_id="t2", reason="interrupted"),
]


def test_full_session_gives_expected_records() -> None:
    session = read(codex, lines(START))[0][0]
    assert format_of(lines(START)) is codex
    assert (session.external_id, session.title, session.status) == ("0199-a", "Run the tests", None)
    assert session.created_at == datetime(2026, 5, 4, 9, 59, 59, tzinfo=UTC)
    metadata = session.metadata or {}
    assert (metadata["cwd"], metadata["git"], metadata["cli_version"]) == ("/srv/shop", {"branch": "main"}, "0.104.0")
    assert [context["effort"] for context in metadata["turn_contexts"]] == ["high"]
    assert metadata["total_token_usage"] == {"total_tokens": 330}
    *before, question, answer = session.messages or []
    assert [(message.role, str(message.content)[:10]) for message in before] == [
        ("system", "You are Co"),
        ("system", "<permissio"),
        ("system", "# AGENTS.m"),
        ("system", "<environme"),
    ]
    assert [(message.metadata or {}).get("role") for message in before] == [None, "developer", "user", "user"]
    assert (question.role, question.content, question.external_id) == ("user", "Run the tests", "6")
    assert (answer.content, answer.external_id, answer.error) == ("It fails.", "10", None)
    first, second, last = steps(answer)
    assert (first.thought, first.reasoning_content, first.model) == ("I run them.", "**Testing**", "gpt-5-codex")
    assert first.usage == {"input_tokens": 100, "cached_input_tokens": 1, "output_tokens": 10, "reasoning_output_tokens": 2, "total_tokens": 110}  # fmt: skip
    assert [(call.name, call.args) for call in first.tool_calls or ()] == [
        ("exec_command", '{"cmd": "make test"}'),
        ("apply_patch", {"_raw": "*** Begin Patch"}),
    ]
    assert [(call.name, call.args) for call in second.tool_calls or ()] == [
        ("web_search", {"type": "search", "query": "make"})
    ]
    assert [call.status for call in calls(session)] == ["error", "success", "success"]
    failed, patched = (call for call in first.tool_calls or ())
    assert isinstance(failed.result, records.ToolResult)
    assert str(failed.result.output).endswith("Output:\nboom")
    assert (failed.result.metadata or {})["exit_code"] == 2
    assert (failed.duration, failed.started_at) == (1500.0, datetime(2026, 5, 4, 10, 0, 5, tzinfo=UTC))
    assert isinstance(patched.result, records.ToolResult)
    assert (patched.result.output, patched.duration) == ("Success.", 200.0)
    assert last.thought is None
    assert last.usage is not None
    assert (last.usage["input_tokens"], last.usage["output_tokens"]) == (200, 20)
    # The search and the text after it are one response.
    assert second.usage is None
    assert [step.model for step in (first, second, last)] == ["gpt-5-codex", None, "gpt-5-codex"]


def test_repeated_results_count_once() -> None:
    counts = figures(read(codex, lines(START))[0])
    assert counts["user"] == 1
    assert (counts["tool_calls_by_name"], counts["tool_results"], counts["results_without_call"]) == (
        {"exec_command": 1, "apply_patch": 1, "web_search": 1},
        3,
        0,
    )


def test_aborted_turn_has_failed_and_ends_the_session() -> None:
    session = read(codex, lines([*START, *MORE]))[0][0]
    last = (session.messages or [])[-1]
    assert (session.status, last.error, last.health) == ("aborted", "turn aborted: interrupted", ["stopped"])
    assert [step.model for step in steps(last)] == ["gpt-5.1-codex"]
    assert [has_failed(call) for call in calls(session)] == [True, False, False, True]
    resumed = [*START, *MORE, event(20, "task_started", turn_id="t3"), message(20, "assistant", "On it.")]
    assert read(codex, lines(resumed))[0][0].status == "completed"


@pytest.mark.parametrize(
    ("output", "ended", "failed"),
    [
        ("Exit code: 0\nWall time: 0.1 seconds\nOutput:\nError: none", {}, False),
        ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\n", {}, True),
        ("Process running with session ID 7\nOutput:\nExit code: 1\n", {}, None),
        ('{"output":"x","metadata":{"exit_code":127,"duration_seconds":0.0}}', {}, True),
        ({"content": "no", "success": False}, {}, True),
        ("fine", {"exit_code": 3}, True),
        ("fine", {"exit_code": 0}, False),
        ("plain text", {}, None),
        ("aborted", {}, True),
        ("aborted by user after 3.1s", {}, True),
        ("Wall time: 3.1 seconds\naborted by user", {}, True),
        ("aborted by users is a table", {}, None),
        ("exec_command failed for `x`: Rejected", {}, True),
        ("apply_patch verification failed: no such file", {}, True),
        ([{"type": "input_text", "text": "a picture"}], {}, None),
    ],
)
def test_exit_code_decides_command_status(output: Any, ended: dict[str, Any], failed: bool | None) -> None:
    rollout = [
        META,
        item(1, "function_call", name="shell", arguments="{}", call_id="c"),
        *([event(2, "exec_command_end", call_id="c", **ended)] if ended else []),
        item(2, "function_call_output", call_id="c", output=output),
    ]
    (transcript,) = codex.transcripts(lines(rollout), lambda where, why: None)
    (result,) = (entry for entry in transcript.entries() if hasattr(entry, "failed"))
    assert result.failed is failed


@pytest.mark.parametrize(
    ("named", "output", "failed"),
    [
        ("spawn_agent", "collab spawn failed: agent thread limit reached (max 6)", True),
        ("multi_agent_v1.spawn_agent", "Agent depth limit reached. Solve the task yourself.", True),
        ("collaboration__wait_agent", "timeout_ms must be greater than zero", True),
        ("close_agent", "agent with id 7 not found", True),
        ("wait", "collab tool failed: stopped", True),
        ("spawn_agent", '{"agent_id":"7","nickname":"Ada"}', None),
        ("spawn_agent", "agent_id: 7", None),
        ("send_input", "0199c0de-0000-7000-8000-000000000001", None),
        ("send_message", "", None),
        ("wait_agent", '{"status":{"7":"not_found"},"timed_out":false}', None),
        ("mcp__office__send_message", "Message sent to the whole team", None),
        ("resend_message", "Message sent again", None),
        ("office__send_message", "Message sent to the whole team", None),
        ("send_message", "Message sent to the whole team", None),
        ("list_agents", "Ada, Bo", None),
        ({"namespace": "mcp__office", "name": "send_message"}, "Message sent to the whole team", None),
        ({"namespace": "mcp__office", "name": "spawn_agent"}, "Ada has started", None),
        ({"namespace": "collaboration", "name": "send_message"}, "agent with id 7 not found", True),
        ("send_message", "collab tool failed: stopped", True),
    ],
)
def test_sentence_from_tool_for_agents_is_failure(
    named: str | dict[str, str], output: str, failed: bool | None
) -> None:
    called = {"name": named} if isinstance(named, str) else named
    rollout = [
        META,
        item(1, "function_call", **called, arguments="{}", call_id="c"),
        item(2, "function_call_output", call_id="c", output=output),
    ]
    (transcript,) = codex.transcripts(lines(rollout), lambda where, why: None)
    (result,) = (entry for entry in transcript.entries() if hasattr(entry, "failed"))
    assert result.failed is failed


def test_events_without_items_are_a_session() -> None:
    rollout = [
        META,
        event(1, "user_message", message="Look", images=["data:image/png;base64,AA=="]),
        event(2, "agent_reasoning", text="Hm."),
        event(2, "agent_message", message="I look."),
        event(3, "exec_command_begin", call_id="c1", command=["ls"], cwd="/srv"),
        event(4, "exec_command_end", call_id="c1", command=["ls"], cwd="/srv", exit_code=0, stdout="a", stderr="b"),
        event(5, "mcp_tool_call_end", call_id="c2", invocation={"server": "s", "tool": "t", "arguments": {"x": 1}}, duration={"secs": 0, "nanos": 5000000}, result={"Err": "gone"}),
        event(6, "web_search_end", call_id="w", query="q", action={"type": "open_page", "url": "https://example.com"}),
        event(7, "agent_message", message="Done."),
        event(8, "error", message="stream closed"),
    ]  # fmt: skip
    session = only(codex, lines(rollout))
    question, answer = (session.messages or [])[1:]
    assert question.content == [
        {"type": "text", "text": "Look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
    ]
    assert (answer.content, answer.error) == ("Done.", "stream closed")
    assert [(call.name, call.args, has_failed(call)) for call in calls(session)] == [
        ("exec_command", {"command": ["ls"], "cwd": "/srv"}, False),
        ("mcp__s__t", {"x": 1}, True),
        ("web_search", {"type": "open_page", "url": "https://example.com"}, False),
    ]
    outputs = [call.result.output for call in calls(session) if isinstance(call.result, records.ToolResult)]
    assert outputs == ["a\nb", "gone", None]
    assert steps(answer)[0].reasoning_content == "Hm."


def test_event_without_output_item_is_the_result() -> None:
    rollout = [
        META,
        item(1, "function_call", name="shell", arguments="{}", call_id="c"),
        event(2, "exec_command_end", call_id="c", exit_code=1, aggregated_output="killed"),
        event(3, "turn_aborted", reason="interrupted"),
    ]
    (call,) = calls(read(codex, lines(rollout))[0][0])
    assert (call.status, call.result.output if isinstance(call.result, records.ToolResult) else None) == (
        "error",
        "killed",
    )


def test_prompts_without_events_are_detected_by_tags() -> None:
    rollout = [
        META,
        message(1, "user", "<environment_context>x</environment_context>"),
        message(2, "user", "Hello"),
        message(3, "assistant", "Hi"),
    ]
    session = only(codex, lines(rollout))
    assert [entry.role for entry in session.messages or ()] == ["system", "system", "user", "assistant"]


def test_untagged_notice_in_file_with_events_is_no_prompt() -> None:
    rollout = [*START, message(12, "user", "Files changed on disk."), message(13, "assistant", "I see.")]
    assert figures(read(codex, lines(rollout))[0])["user"] == 1


def test_events_of_inserted_messages_are_no_prompts() -> None:
    put_in = "<environment_context>x</environment_context>"
    events = [
        line(1, "event_msg", type="user_message", message=put_in, kind="environment_context"),
        line(2, "event_msg", type="user_message", message="Hello", kind="plain"),
    ]
    session = only(codex, lines([META, *events, event(3, "agent_message", message="Hi")]))
    assert [entry.role for entry in session.messages or ()] == ["system", "system", "user", "assistant"]
    items = [message(1, "user", put_in), events[0], message(2, "user", "Hello"), events[1]]
    session = only(codex, lines([META, *items, message(3, "assistant", "Hi")]))
    assert [entry.role for entry in session.messages or ()] == ["system", "system", "user", "assistant"]


def kinds(*names: str) -> dict[str, Any]:
    return {"internal_chat_message_metadata_passthrough": {"content_item_kinds": list(names)}}


def completed(second: int, kind: str, text: str) -> dict[str, Any]:
    content = {"summary_text": [text]} if kind == "Reasoning" else {"content": [{"type": "text", "text": text}]}
    return event(second, "item_completed", item={"type": kind, "id": "i", **content})


def test_content_item_kinds_separate_typed_and_inserted() -> None:
    both = item(
        1,
        "message",
        role="user",
        content=[{"type": "input_text", "text": "Be kind."}, {"type": "input_text", "text": "Hello"}],
        **kinds("agents_md.instructions", "user.text"),
    )
    notice = message(2, "user", "Try plugins.", **kinds("plugins.recommendations"))
    for repeating in ([], [completed(1, "UserMessage", "Hello")], [event(1, "user_message", message="Hello")]):
        session = only(codex, lines([META, both, *repeating, notice, message(3, "assistant", "Hi")]))
        assert [(entry.role, entry.content) for entry in session.messages or ()][1:] == [
            ("system", "Be kind."),
            ("user", "Hello"),
            ("system", "Try plugins."),
            ("assistant", "Hi"),
        ]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0), (2, 1, 0)])
def test_prompt_in_three_lines_counts_once(order: tuple[int, ...]) -> None:
    forms = [
        message(1, "user", "Go on", **kinds("user.text")),
        event(1, "user_message", message="Go on"),
        completed(1, "UserMessage", "Go on"),
    ]
    twice = [forms[at] for at in order]
    rollout = [META, *twice, message(2, "assistant", "Yes"), *twice, message(3, "assistant", "Done")]
    session = only(codex, lines(rollout))
    assert [entry.role for entry in session.messages or ()][1:] == ["user", "assistant", "user", "assistant"]


def test_short_prompt_is_not_matched_within_a_later_one() -> None:
    rollout = [
        META,
        event(1, "user_message", message="ok"),
        message(2, "assistant", "Fine."),
        message(3, "user", "Look at the book"),
        event(3, "user_message", message="Look at the book"),
        message(4, "assistant", "I look."),
    ]
    assert figures(read(codex, lines(rollout))[0])["user"] == 2


def test_completed_items_without_events_are_a_session() -> None:
    rollout = [
        META,
        completed(1, "UserMessage", "Hello"),
        completed(2, "Reasoning", "Hm."),
        completed(3, "AgentMessage", "Hi"),
    ]
    for events in (rollout, [*rollout, event(3, "agent_message", message="Hi")]):
        session = only(codex, lines(events))
        assert [entry.content for entry in session.messages or ()][1:] == ["Hello", "Hi"]
        assert ((session.messages or [])[2].metadata or {})["reasoning_content"] == "Hm."


def test_prompt_within_editor_context_counts_once() -> None:
    rollout = [
        META,
        message(1, "user", "# Context from my IDE setup:\n\n## My request for Codex:\nHello\n"),
        event(1, "user_message", message="Hello"),
        message(2, "assistant", "Hi"),
    ]
    assert figures(read(codex, lines(rollout))[0])["user"] == 1


def test_compaction_and_rollback_are_system_messages() -> None:
    rollout = [
        *START,
        line(12, "compacted", message="So far: tests fail.", replacement_history=[{"type": "message"}] * 3),
        event(12, "context_compacted"),
        event(13, "thread_rolled_back", num_turns=1),
        message(14, "assistant", "Again."),
    ]
    session = read(codex, lines(rollout))[0][0]
    added = [entry for entry in session.messages or () if (entry.metadata or {}).get("type")]
    assert [(entry.role, entry.content, entry.metadata) for entry in added] == [
        ("system", "So far: tests fail.", {"type": "compacted", "replacement_history": 3}),
        ("system", "[thread_rolled_back]", {"type": "thread_rolled_back", "num_turns": 1}),
    ]


def test_usage_of_compaction_is_added_to_next_reply() -> None:
    rollout = [
        *START,
        tokens(12, 1000, 100, 1430),
        line(12, "compacted", message="So far."),
        message(13, "assistant", "Next."),
        tokens(13, 7, 3, 1440),
    ]
    session = read(codex, lines(rollout))[0][0]
    usages = [step.usage for message in session.messages or () for step in steps(message) if step.usage]
    assert [usage["total_tokens"] for usage in usages] == [110, 220, 1100 + 10]


@pytest.mark.parametrize("has_counts", [True, False])
def test_record_of_usage_counts_only_without_token_counts(has_counts: bool) -> None:
    record = line(4, "token_usage_record", usage={"input_tokens": 70, "output_tokens": 7, "cached_input_tokens": 60})
    counts = [tokens(4, 100, 10, 110)] if has_counts else []
    session = only(codex, [META, message(2, "user", "Go"), message(3, "assistant", "Done."), *counts, record])
    (step,) = steps((session.messages or [])[-1])
    expected = (100, 1, 10) if has_counts else (70, 60, 7)
    assert tuple((step.usage or {})[name] for name in ("input_tokens", "cached_input_tokens", "output_tokens")) == expected  # fmt: skip


def test_total_of_a_rollout_alone_is_no_usage() -> None:
    total = event(4, "token_count", info={"total_token_usage": {"input_tokens": 100, "output_tokens": 10}})
    session = only(codex, [META, message(2, "user", "Go"), message(3, "assistant", "Done."), total])
    assert [step.usage for step in steps((session.messages or [])[-1])] in ([], [None])
    assert (session.metadata or {})["total_token_usage"] == {"input_tokens": 100, "output_tokens": 10}


def test_usage_at_the_end_is_added_to_last_reply() -> None:
    compacted = [*START, tokens(12, 1000, 100, 1430), line(12, "compacted", message="So far.")]
    session = read(codex, lines(compacted))[0][0]
    usages = [step.usage for message in session.messages or () for step in steps(message) if step.usage]
    assert [usage["total_tokens"] for usage in usages] == [110, 220 + 1100]
    assert_grows(
        codex, lines(compacted), lines([*compacted, message(13, "assistant", "Next."), tokens(13, 7, 3, 1440)])
    )


def test_usage_before_its_reply_belongs_to_the_reply() -> None:
    rollout = [
        META,
        tokens(1, 1, 1, 2),
        item(1, "function_call", name="shell", arguments="{}", call_id="c"),
        item(2, "function_call_output", call_id="c", output="ok"),
        tokens(3, 5, 5, 12),
        message(3, "assistant", "Done."),
    ]
    (answer,) = (entry for entry in read(codex, lines(rollout))[0][0].messages or () if entry.role == "assistant")
    assert [step.usage and step.usage["total_tokens"] for step in steps(answer)] == [2, 10]


def test_fork_keeps_its_own_id_and_names_its_ancestors() -> None:
    child = line(0, "session_meta", id="child", forked_from_id="0199-a", cwd="/srv", source={"subagent": {"thread_spawn": {"parent_thread_id": "0199-a"}}})  # fmt: skip
    sessions, _ = read(codex, lines([child, *START, *MORE]))
    assert [session.external_id for session in sessions] == ["child"]
    assert (sessions[0].metadata or {})["ancestors"] == ["0199-a"]
    assert figures(sessions)["user"] == 2


def test_concatenated_files_are_several_sessions() -> None:
    other = line(30, "session_meta", id="0199-b", timestamp="2026-05-04T10:00:30Z", cwd="/srv")
    sessions, _ = read(codex, lines([*START, other, message(31, "user", "Hello"), message(32, "assistant", "Hi")]))
    assert [session.external_id for session in sessions] == ["0199-a", "0199-b"]
    assert [len(session.messages or ()) for session in sessions] == [6, 2]


def test_first_version_without_envelopes_is_read() -> None:
    rollout = [
        {"id": "old", "timestamp": "2025-06-01T10:00:00Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": '{"output":"x","metadata":{"exit_code":1}}'},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
    ]
    session = only(codex, lines(rollout))
    assert (session.external_id, [entry.role for entry in session.messages or ()]) == ("old", ["user", "assistant"])
    assert [call.status for call in calls(session)] == ["error"]


def test_headless_file_is_read_and_reports_omissions() -> None:
    sessions, left_out = read(
        codex, lines([*START[4:], 3, {"x": 1}, line(12, "world_state", a=1), event(12, "new_event")])
    )
    assert figures(sessions)["tool_results"] == 3
    assert left_out == [
        (f"line {len(START) - 3}", "not an object"),
        (f"line {len(START) - 2}", "not a rollout line: no type or no payload"),
        ("(all)", "not part of the conversation, encrypted reasoning: 1 line"),
        ("(all)", "not part of the conversation, world_state: 1 line"),
        ("(all)", "not part of the conversation, event_msg new_event: 1 line"),
    ]


def test_long_session_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    other = line(30, "session_meta", id="0199-b", timestamp="2026-05-04T10:00:30Z", cwd="/srv")
    document = lines([*START, other, *START[1:], 3])
    expected = read(codex, document)
    monkeypatch.setattr(codex, "_MAX_HELD_LINES", 3)
    assert read(codex, document) == expected


def test_lines_in_a_list_give_the_same_session() -> None:
    assert format_of(START) is codex
    assert read(codex, START)[0] == read(codex, lines(START))[0]


WITHIN_A_RESPONSE = (10, 11, 12)


@pytest.mark.parametrize("count", [at for at in range(2, len(START) + len(MORE) + 1) if at not in WITHIN_A_RESPONSE])
def test_grown_rollout_keeps_earlier_records(count: int) -> None:
    assert_grows(codex, lines([*START, *MORE][:count]), lines([*START, *MORE]))


@pytest.mark.parametrize("count", WITHIN_A_RESPONSE)
def test_rollout_cut_within_response_is_prefix_of_whole(count: int) -> None:
    start, whole = (read(codex, lines(values))[0][0] for values in (START[:count], [*START, *MORE]))
    said, now = digests_of(start.metadata), digests_of(whole.metadata)
    assert said == now[: len(said)]
    there = [message.external_id for message in start.messages or ()]
    assert there == [message.external_id for message in whole.messages or ()][: len(there)]


@given(mangled([*START, *MORE, line(16, "compacted", message="S")]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, lines(document) if isinstance(document, list) else None):
        if codex.recognises(form):
            for session in read(codex, form)[0]:
                assert session.external_id


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "payload", "output", "call_id", "message"]), inner)))  # fmt: skip
def test_any_payload_never_raises(payload: Any) -> None:
    kinds = ("response_item", "event_msg", "turn_context", "compacted", "session_meta")
    rollout = [*START, *({"timestamp": "2026-05-04T10:00:00Z", "type": kind, "payload": payload} for kind in kinds)]
    assert read(codex, lines(rollout))[0]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        [3],
        {},
        lines([]),
        lines([{"type": "session_meta", "payload": {}}]),
        lines([{"id": "a", "timestamp": "2025-06-01T10:00:00Z", "instructions": None}]),
        lines([{"type": "message", "payload": {"type": "message"}, "timestamp": ""}]),
        lines([{"type": "message", "role": "user", "content": []}]),
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not codex.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(codex)


def test_arguments_keep_the_text_of_the_model() -> None:
    (first, *_others) = calls(read(codex, lines(START))[0][0])
    assert json.loads(first.args) == {"cmd": "make test"}
