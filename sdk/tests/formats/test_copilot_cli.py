"""Sessions of Copilot CLI: events on disk and in streams, sub-agents, commands of the user, tokens, and growth."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import copilot_cli
from tracesite_sdk.formats.registry import format_of

from .reading import (
    assert_grows,
    assert_takes_any_type,
    assert_takes_no_other,
    calls,
    lines,
    mangled,
    only,
    read,
    steps,
)


def event(number: int, kind: str, **data: Any) -> dict[str, Any]:
    """Return an event of the main agent; its second is its number."""
    before = f"e{number - 1}" if number else None
    return {"type": kind, "data": data, "id": f"e{number}", "timestamp": f"2026-05-04T09:00:{number:02}.000Z", "parentId": before}  # fmt: skip


def of_agent(event: dict[str, Any], agent: str) -> dict[str, Any]:
    return {**event, "agentId": agent}


def request(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"toolCallId": call_id, "name": name, "arguments": arguments, "type": "function", "intentionSummary": "s"}


def done(number: int, call_id: str, content: str, **data: Any) -> dict[str, Any]:
    return event(number, "tool.execution_complete", **{"toolCallId": call_id, "success": True, "result": {"content": content}, **data})  # fmt: skip


CONTEXT = {"cwd": "/srv/shop", "gitRoot": "/srv/shop", "branch": "main", "repository": "ada/shop"}
START = event(0, "session.start", sessionId="s-1", version=1, producer="copilot-agent", copilotVersion="1.0.41", startTime="2026-05-04T09:00:00.000Z", selectedModel="gpt-5.4", context=CONTEXT)  # fmt: skip
DISK = [
    START,
    event(1, "system.message", role="system", content="You are an assistant."),
    event(2, "user.message", content="Run the tests", transformedContent="<current_datetime>...</current_datetime> Run the tests", attachments=[{"type": "file", "path": "/srv/shop/a.py", "displayName": "a.py"}], agentMode="interactive", parentAgentTaskId="t"),
    event(3, "assistant.turn_start", turnId="0"),
    event(4, "assistant.message", messageId="m1", content="", model="claude-sonnet-4.6", reasoningText="Hm.", reasoningOpaque="xx", outputTokens=30, toolRequests=[request("c1", "bash", command="make"), request("c2", "view", path="a.py"), request("c3", "task", agent_type="explore")]),
    event(5, "tool.execution_start", toolCallId="c1", toolName="bash", arguments={"command": "make"}),
    event(6, "tool.execution_start", toolCallId="c2", toolName="view", arguments={"path": "a.py"}),
    event(7, "assistant.reasoning", reasoningId="r", content="Hm."),
    event(8, "tool.execution_start", toolCallId="c3", toolName="task", arguments={"agent_type": "explore"}),
    of_agent(event(9, "subagent.started", toolCallId="c3", agentName="explore", agentDisplayName="Explore"), "agent-7"),
    of_agent(event(10, "user.message", content="Look around", source="agent-7"), "agent-7"),
    done(11, "c1", "2 failed\n<shellId: 0 completed with exit code 2>"),
    of_agent(event(12, "assistant.message", messageId="m2", content="I list.", model="gpt-5.4-mini", outputTokens=5, toolRequests=[request("c4", "glob", pattern="*")]), "agent-7"),
    of_agent(event(13, "tool.execution_start", toolCallId="c4", toolName="glob", arguments={"pattern": "*"}), "agent-7"),
    of_agent(done(14, "c4", "a.py"), "agent-7"),
    of_agent(event(15, "tool.execution_start", toolCallId="c5", toolName="grep", arguments={"q": "x"}), "agent-7"),
    event(16, "tool.execution_complete", toolCallId="c2", success=False, error={"message": "Path does not exist", "code": "failure"}),
    of_agent(event(17, "subagent.completed", toolCallId="c3", agentName="explore", totalTokens=900), "agent-7"),
    done(18, "c3", "One file.", result={"content": "One file.", "detailedContent": "One file: a.py"}),
    event(19, "assistant.turn_end", turnId="0"),
    event(20, "system.notification", content="<system_notification>A shell has finished.</system_notification>"),
    event(21, "user.message", content="<skill-context>Tests</skill-context>", source="skill-tests"),
    event(22, "user.message", content="Be brief", delivery="steering"),
    event(23, "assistant.message", messageId="m3", content="Two tests fail.", model="claude-sonnet-4.6", outputTokens=7),
    event(24, "tool.user_requested", toolCallId="u1", toolName="bash", arguments={"command": "ls"}),
    event(25, "tool.execution_start", toolCallId="u1", toolName="bash", arguments={"command": "ls"}),
    done(26, "u1", "a.py", isUserRequested=True),
    event(27, "user.message", content="Mend them"),
    event(28, "assistant.message", messageId="m4", content="", outputTokens=9, toolRequests=[request("c6", "edit", path="a.py")]),
    event(29, "tool.execution_start", toolCallId="c6", toolName="edit", arguments={"path": "a.py"}),
    event(30, "abort", reason="user initiated"),
    event(31, "session.shutdown", shutdownType="routine", totalPremiumRequests=2, modelMetrics={"gpt-5.4": {"usage": {"inputTokens": 500, "outputTokens": 16}}}),
]  # fmt: skip
UNREAD = {"assistant.turn_start": 1, "subagent.completed": 1, "assistant.turn_end": 1}
"""Events that the report of DISK counts."""


def of(document: Any) -> records.Session:
    assert format_of(document) is copilot_cli
    (session,), _left_out = read(copilot_cli, document)
    return session


def test_full_session_gives_expected_records() -> None:
    session = of(lines(DISK))
    assert (session.external_id, session.title, session.status) == ("s-1", "Run the tests", "aborted")
    metadata = session.metadata or {}
    assert (metadata["context"], metadata["copilotVersion"]) == (CONTEXT, "1.0.41")
    assert [run["totalPremiumRequests"] for run in metadata["runs"]] == [2]
    said = [(m.role, m.external_id, m.content) for m in session.messages or () if m.role != "assistant"]
    assert said == [
        ("system", "e1", "You are an assistant."),
        ("user", "e2", [{"type": "text", "text": "Run the tests"}, {"type": "file", "path": "/srv/shop/a.py", "displayName": "a.py"}]),
        ("system", "e10", "Look around"),
        ("system", "e20", "<system_notification>A shell has finished.</system_notification>"),
        ("system", "e21", "<skill-context>Tests</skill-context>"),
        ("user", "e22", "Be brief"),
        ("system", "e26", "$ ls\na.py"),
        ("user", "e27", "Mend them"),
    ]  # fmt: skip
    answer, last = [message for message in session.messages or () if message.role == "assistant"]
    assert (answer.content, last.content, last.error) == ("Two tests fail.", None, "turn aborted: user initiated")
    assert (answer.health, last.health) == (None, ["stopped"])
    assert Counter(call.name for call in calls(session)) == {"bash": 1, "view": 1, "task": 1, "glob": 1, "grep": 1, "edit": 1}  # fmt: skip
    assert [(call.id, call.status, call.parent) for call in calls(session)] == [
        ("c1", "error", None),
        ("c2", "error", None),
        ("c3", "success", None),
        ("c4", "success", "c3"),
        ("c5", "pending", "c3"),
        ("c6", "pending", None),
    ]
    first, *_others = steps(answer)
    assert (first.id, first.model, first.reasoning_content, first.usage) == ("e4", "claude-sonnet-4.6", "Hm.", {"output_tokens": 30})  # fmt: skip
    asked = [(step.agent_name, step.model, step.usage) for step in steps(answer)]
    assert asked[1:] == [
        ("explore", "gpt-5.4-mini", {"output_tokens": 5}),
        ("explore", None, None),
        (None, "claude-sonnet-4.6", {"output_tokens": 7}),
    ]
    # A version whose replies do not name the model.
    assert [step.model for step in steps(last)] == ["gpt-5.4"]
    make, view, task, *_others_ = calls(session)
    assert make.started_at == datetime(2026, 5, 4, 9, 0, 5, tzinfo=UTC)
    assert make.completed_at == datetime(2026, 5, 4, 9, 0, 11, tzinfo=UTC)
    assert isinstance(view.result, records.ToolResult) and isinstance(task.result, records.ToolResult)
    assert (view.result.error, view.result.metadata) == ("Path does not exist", {"code": "failure"})
    assert (task.result.output, task.result.data) == ("One file.", {"detailedContent": "One file: a.py"})


def test_events_that_are_not_read_are_counted() -> None:
    _sessions, left_out = read(copilot_cli, lines([*DISK, 3]))
    counted = [("(all)", f"not part of the conversation, {kind}: {count} line") for kind, count in UNREAD.items()]
    assert left_out == [("line 33", "not an object"), *counted]


STREAM = [
    {**event(1, "session.mcp_server_status_changed", serverName="github", status="connected"), "ephemeral": True},
    event(2, "user.message", content="Hi", attachments=[], delivery="idle"),
    event(3, "assistant.turn_start", turnId="0"),
    {**event(4, "assistant.message_delta", messageId="m1", deltaContent="H"), "ephemeral": True},
    event(5, "assistant.message", messageId="m1", content="I look.", model="gpt-5.4", outputTokens=9, apiCallId="a-1", toolRequests=[request("c1", "view", path="b")]),
    event(6, "tool.execution_start", toolCallId="c1", toolName="view", arguments={"path": "b"}),
    done(7, "c1", "text"),
    {**event(8, "assistant.usage", model="gpt-5.4", inputTokens=100, outputTokens=9, cacheReadTokens=80, cacheWriteTokens=0, reasoningTokens=4, apiCallId="a-1", duration=1500, timeToFirstTokenMs=300, cost=1), "ephemeral": True},
    event(9, "assistant.turn_start", turnId="1"),
    event(10, "assistant.message", messageId="m2", content="Hel", model="gpt-5.4", chunkIndex=0, chunkCount=2),
    {**event(11, "assistant.message_delta", messageId="m2", deltaContent="lo."), "ephemeral": True},
    event(12, "assistant.message", messageId="m2", content="lo.", chunkIndex=1, chunkCount=2),
    {**event(13, "assistant.usage", model="gpt-5.4", inputTokens=120, outputTokens=3), "ephemeral": True},
    {"type": "result", "sessionId": "s-2", "exitCode": 0, "usage": {"premiumRequests": 1}, "timestamp": "2026-05-04T09:00:14.000Z"},
]  # fmt: skip


def test_stream_has_the_tokens_of_each_request() -> None:
    session = of(lines(STREAM))
    assert (session.external_id, (session.metadata or {})["result"]["exitCode"]) == ("s-2", 0)
    question, answer = session.messages or []
    assert (question.content, answer.content) == ("Hi", "Hello.")
    asked, replied = steps(answer)
    assert asked.usage == {"input_tokens": 100, "output_tokens": 9, "cached_input_tokens": 80, "cache_write_tokens": 0, "reasoning_tokens": 4}  # fmt: skip
    assert (asked.duration, asked.time_to_first_token) == (1500, 300)
    assert asked.timestamp == datetime(2026, 5, 4, 9, 0, 3, 500000, tzinfo=UTC)
    assert replied.usage == {"input_tokens": 120, "output_tokens": 3}


def test_usage_before_its_reply_is_found_by_the_api_call() -> None:
    usage = {**event(4, "assistant.usage", inputTokens=3, outputTokens=2, apiCallId="a-1"), "ephemeral": True}
    session = of(lines([*STREAM[1:3], usage, STREAM[4]]))
    assert steps((session.messages or [])[-1])[0].usage == {"input_tokens": 3, "output_tokens": 2}


@pytest.mark.parametrize("first", ["reply", "reasoning"])
def test_reasoning_that_no_reply_repeats_is_kept(first: str) -> None:
    thought = event(3, "assistant.reasoning", content="Hm.")
    reply = event(4, "assistant.message", content="Done.")
    both = [reply, thought] if first == "reply" else [thought, reply]
    session = of(lines([START, event(1, "user.message", content="Hi"), *both]))
    (step,) = steps((session.messages or [])[-1])
    assert step.reasoning_content == "Hm."


@pytest.mark.parametrize(
    ("content", "name", "status"),
    [
        ("x\n<exited with exit code 0>", "bash", "success"),
        ("x\n<exited with exit code 1>", "powershell", "error"),
        ("x\n<exited with exit code 1>", "view", "success"),
        ("exit code 1", "bash", "success"),
    ],
)
def test_mark_of_a_shell_command_decides(content: str, name: str, status: str) -> None:
    asked = event(2, "assistant.message", content="", toolRequests=[request("c1", name)])
    session = of(lines([START, event(1, "user.message", content="Go"), asked, done(3, "c1", content)]))
    assert [call.status for call in calls(session)] == [status]


def test_call_is_made_once_however_often_it_is_written() -> None:
    again = {**DISK[4], "id": "e90"}
    twice = [*DISK[:12], again, {**DISK[11], "id": "e91"}, DISK[11], *DISK[12:]]
    assert [call.id for call in calls(of(lines(twice)))] == ["c1", "c2", "c3", "c4", "c5", "c6"]


def test_sub_agent_of_an_older_version_is_found_by_its_call() -> None:
    below = event(3, "assistant.message", content="I look.", outputTokens=1, parentToolCallId="c1", toolRequests=[request("c2", "view")])  # fmt: skip
    asked = event(2, "assistant.message", content="", toolRequests=[request("c1", "task")])
    session = of(lines([START, event(1, "user.message", content="Go"), asked, below]))
    assert [(call.id, call.parent) for call in calls(session)] == [("c1", None), ("c2", "c1")]


@pytest.mark.parametrize(
    "prompt",
    [
        event(1, "user.message", content="Go on", isAutopilotContinuation=True),
        event(1, "user.message", content="Go on", source="autopilot"),
        of_agent(event(1, "user.message", content="Go on"), "agent-1"),
    ],
)
def test_prompt_that_nobody_typed_is_a_system_message(prompt: dict[str, Any]) -> None:
    session = of(lines([START, event(9, "user.message", content="Hi"), prompt]))
    assert [(message.role, message.content) for message in session.messages or ()] == [("user", "Hi"), ("system", "Go on")]  # fmt: skip


def test_compaction_and_rewind_are_system_messages_and_remove_nothing() -> None:
    notices = [
        event(2, "assistant.message", content="Done."),
        event(3, "session.compaction_complete", success=True, summaryContent="So far.", messagesRemoved=2, compactionTokensUsed={"inputTokens": 9}),
        event(4, "session.snapshot_rewind", upToEventId="e1", eventsRemoved=2),
        event(5, "session.error", errorType="quota", message="No quota left"),
    ]  # fmt: skip
    session = of(lines([START, event(1, "user.message", content="Hi"), *notices]))
    question, answer, summary, rewind = session.messages or []
    assert (question.content, summary.content, rewind.content) == ("Hi", "So far.", "[session.snapshot_rewind]")
    assert ((summary.metadata or {})["messagesRemoved"], (rewind.metadata or {})["upToEventId"]) == (2, "e1")
    assert (answer.content, answer.error, session.status) == ("Done.", "No quota left", "error")


def test_session_without_a_conversation_is_reported() -> None:
    other = {**START, "data": {**START["data"], "sessionId": "s-2"}}
    sessions, left_out = read(copilot_cli, lines([START, event(1, "session.model_change", newModel="m"), other, *DISK[1:3]]))  # fmt: skip
    assert [session.external_id for session in sessions] == ["s-2"]
    assert left_out == [("session s-1", "no user or assistant message")]


def test_odd_fields_of_the_start_and_times_are_read() -> None:
    start = {**START, "data": {**START["data"], "runs": 3, "result": 3}}
    usage = {**STREAM[7], "timestamp": "0001-01-01T00:00:00Z"}
    reply = {**STREAM[4], "timestamp": "0001-01-01T00:00:00Z"}
    session = of(lines([start, *STREAM[1:3], reply, usage, DISK[31]]))
    assert ((session.metadata or {})["runs"], (session.metadata or {})["result"]) == ([DISK[31]["data"]], 3)


def test_list_of_events_is_read_as_lines_are() -> None:
    assert of(DISK) == of(lines(DISK))


@pytest.mark.parametrize("count", [3, 5, 8, 12, 16, 19, 23, 24, 29, 31])
def test_grown_session_keeps_earlier_records(count: int) -> None:
    assert_grows(copilot_cli, lines(DISK[:count]), lines(DISK))


def test_value_of_any_type_is_read_in_any_place() -> None:
    assert_takes_any_type(copilot_cli, [*DISK[:5], *DISK[9:13], DISK[24], *STREAM[7:9], *STREAM[9:]])


@given(mangled([*DISK, *STREAM]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, lines(document) if isinstance(document, list) else None):
        if copilot_cli.recognises(form):
            read(copilot_cli, form)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        lines([]),
        lines([{"type": "user.message", "session_id": "s", "prompt": "Hi", "output": "x"}]),
        lines([{"type": "user.message", "data": {"content": "Hi"}}]),
        {"version": 3, "requesterUsername": "ada", "requests": [{"message": {"text": "Hi"}, "response": []}]},
        lines([{"kind": 0, "v": {"version": 3, "requests": []}}]),
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not copilot_cli.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(copilot_cli)
    assert only(copilot_cli, lines([DISK[2], DISK[23]])).external_id
