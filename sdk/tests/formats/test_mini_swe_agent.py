"""mini-swe-agent: commands in texts and calls of tools, observations of all versions, and what nobody typed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk.formats import mini_swe_agent
from tracesite_sdk.formats.registry import format_of

from .reading import assert_grows, assert_takes_no_other, calls, lines, mangled, messages_of, only, read, steps

SYSTEM = {"role": "system", "content": "You code."}
TASK = {"role": "user", "content": "Fix it."}
INFO = {"exit_status": "Submitted", "submission": "", "model_stats": {"instance_cost": 0.1, "api_calls": 3}, "mini_version": "1.9.0", "config": {"model": {"model_name": "m-1"}}}  # fmt: skip


def said(command: str, thought: str = "THOUGHT: I look.", fence: str = "bash", **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": f"{thought}\n\n```{fence}\n{command}\n```", **fields}


def seen(output: str, code: int = 0) -> dict[str, Any]:
    return {"role": "user", "content": f"<returncode>{code}</returncode>\n<output>\n{output}\n</output>"}


END = said("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff")
PATCH = {"role": "user", "content": "diff --git a/a.py b/a.py"}
MESSAGES = [SYSTEM, TASK, said("ls"), seen("a.py"), said("cat b.py"), seen("no such file", 1), END, PATCH]


def run(messages: list[Any], **info: Any) -> dict[str, Any]:
    return {"info": {**INFO, **info}, "messages": messages, "trajectory_format": "mini-swe-agent-1"}


def outcomes(messages: list[Any], **info: Any) -> list[Any]:
    session = only(mini_swe_agent, run(messages, **info))
    return [
        (call.args, call.status, call.result and call.result.output, call.result and (call.result.metadata or {}).get("returncode"))
        for call in calls(session)
    ]  # fmt: skip


@pytest.mark.parametrize("document", [MESSAGES, run(MESSAGES), [run(MESSAGES)], lines([run(MESSAGES)])])
def test_commands_are_calls_with_their_results(document: Any) -> None:
    session = only(mini_swe_agent, document)
    system, task, answer = session.messages or []
    assert [(message.role, message.content) for message in (system, task)] == [
        ("system", "You code."),
        ("user", "Fix it."),
    ]
    assert [step.thought for step in steps(answer)] == ["THOUGHT: I look."] * 3
    assert [(call.name, call.args) for call in calls(session)] == [
        ("bash", {"command": "ls"}),
        ("bash", {"command": "cat b.py"}),
        ("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff"}),
    ]
    results = [call.result for call in calls(session)]
    assert [(r.status, r.output, r.metadata) for r in results] == [  # type: ignore[union-attr]
        ("success", "a.py", {"returncode": 0}),
        ("error", "no such file", {"returncode": 1}),
        ("success", "diff --git a/a.py b/a.py", None),
    ]
    assert answer.health is None


@pytest.mark.parametrize(
    ("part", "regex", "reply"),
    [
        ("model", r"```mswea_bash_command\s*\n(.*?)\n```", "So:\n```bash\nmake\n```\n```mswea_bash_command\nls\n```"),
        ("agent", r"```(?:shell)\s*\n(.*?)\n```", "```bash\nls\n```"),
        ("agent", r"```shell\s*\n(.*?)\n```", "```shell\nls\n```"),
        ("model", r"<run>(.*?)</run>", "```bash\nmake\n```\n<run>ls</run>"),
        ("model", r"(x+x+)+y", "```bash\nls\n```"),
    ],
)
def test_commands_are_those_of_the_expression_of_the_run(part: str, regex: str, reply: str) -> None:
    config = {part: {"action_regex": regex, "model_name": "m-1"}}
    found = outcomes([SYSTEM, TASK, {"role": "assistant", "content": reply}, seen("a.py")], config=config)
    assert [args for args, *_rest in found] == [{"command": "ls"}]


def test_list_of_messages_of_version_2_is_recognised() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call], "extra": {"actions": [{"command": "ls", "tool_call_id": "c1"}]}}  # fmt: skip
    done = {"role": "tool", "tool_call_id": "c1", "content": "a.py", "extra": {"returncode": 0, "raw_output": "a.py\n"}}
    answered = {"role": "user", "content": '{"returncode": 0, "output": "a.py"}'}
    for document in ([SYSTEM, TASK, asked, done], [SYSTEM, TASK, said("ls"), answered]):
        assert [(call.args, call.status) for call in calls(only(mini_swe_agent, document))] in (
            [('{"command": "ls"}', "success")],
            [({"command": "ls"}, "success")],
        )


def test_run_has_model_and_status_of_its_info() -> None:
    session = only(mini_swe_agent, run(MESSAGES))
    assert (session.status, session.title) == ("completed", "Fix it.")
    assert steps((session.messages or [])[2])[0].model == "m-1"
    assert (session.metadata or {})["info"]["model_stats"] == {"instance_cost": 0.1, "api_calls": 3}
    assert only(mini_swe_agent, run(MESSAGES[:4], exit_status="LimitsExceeded")).status == "error"


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        ({"content": '{"returncode": 2, "output": "no", "exception_info": ""}'}, ("error", "no", 2)),
        ({"content": "cut", "extra": {"returncode": 0, "raw_output": "whole"}}, ("success", "whole", 0)),
        ({"content": "cut", "extra": {"returncode": -1, "raw_output": "", "exception_info": "timeout"}}, ("error", "", -1)),
        ({"content": "Observation: {'output': 'a'}"}, (None, "{'output': 'a'}", None)),
        ({"content": "The last command <command>x</command> timed out and has been killed."}, ("error", "The last command <command>x</command> timed out and has been killed.", None)),
        ({"content": "Command not executed. The user rejected your command"}, ("error", "Command not executed. The user rejected your command", None)),
        ({"content": "Output of my own template"}, (None, "Output of my own template", None)),
    ],
)  # fmt: skip
def test_observation_is_result_of_command(observation: dict[str, Any], expected: tuple[Any, ...]) -> None:
    messages = [
        SYSTEM,
        TASK,
        said("ls", fence="mswea_bash_command"),
        {"role": "user", **observation},
        said("pwd"),
        seen("/"),
    ]
    assert outcomes(messages)[0][1:] == expected


def test_reply_without_exactly_one_command_has_no_call() -> None:
    two = {"role": "assistant", "content": "```bash\nls\n```\n```bash\npwd\n```"}
    wrong = {"role": "user", "content": "Please always provide EXACTLY ONE action in triple backticks.", "extra": {"interrupt_type": "FormatError"}}  # fmt: skip
    messages = messages_of(mini_swe_agent, run([SYSTEM, TASK, two, wrong, said("ls"), seen("a")]))
    assert [message.role for message in messages] == ["system", "user", "assistant", "system"]
    assert [call.args for step in steps(messages[2]) for call in step.tool_calls or ()] == [{"command": "ls"}]


def test_comment_of_user_is_message_limit_is_not() -> None:
    comment = {
        "role": "user",
        "content": "Interrupted by user: use b.py",
        "extra": {"interrupt_type": "UserInterruption"},
    }
    limit = {"role": "user", "content": "Limits exceeded"}
    messages = messages_of(
        mini_swe_agent,
        run([SYSTEM, TASK, said("ls"), comment, said("pwd"), seen("/"), limit], exit_status="LimitsExceeded"),
    )
    assert [(message.role, message.content) for message in messages if message.role != "assistant"] == [
        ("system", "You code."),
        ("user", "Fix it."),
        ("user", "Interrupted by user: use b.py"),
        ("system", "Limits exceeded"),
    ]
    statuses = [call.status for message in messages for step in steps(message) for call in step.tool_calls or ()]
    assert statuses == ["pending", "success"]


def test_calls_of_tools_have_time_tokens_and_cost() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    extra = {"timestamp": 1772366400.0, "cost": 0.02, "actions": [{"command": "ls", "tool_call_id": "c1"}], "response": {"model": "m-2", "usage": usage}}  # fmt: skip
    messages = [
        SYSTEM,
        TASK,
        {"role": "assistant", "content": "I look.", "tool_calls": [call], "extra": extra},
        {"role": "tool", "tool_call_id": "c1", "content": "<returncode>0</returncode>\n<output>\na.py\n</output>", "extra": {"raw_output": "a.py\n", "returncode": 0, "timestamp": 1772366401.0}},
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
    ]  # fmt: skip
    session = only(mini_swe_agent, {**run(messages), "trajectory_format": "mini-swe-agent-1.1"})
    (step,) = steps((session.messages or [])[2])
    assert (step.thought, step.model, step.timestamp) == ("I look.", "m-2", datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert step.usage == {**usage, "cost": 0.02}
    (made,) = step.tool_calls or ()
    assert (made.id, made.args, made.status) == ("c1", '{"command": "ls"}', "success")
    assert made.completed_at == datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC)


def test_stated_cost_counts_without_tokens() -> None:
    ((session,), _left_out) = read(mini_swe_agent, run([TASK, said("ls", extra={"cost": 0.2}), seen("a.py")]))
    assert [step.usage for step in steps((session.messages or [])[1])] == [{"cost": 0.2}]


def test_items_of_responses_api_are_read() -> None:
    output = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command": "ls"}'},
    ]
    answer = {"object": "response", "model": "m-3", "output": output, "usage": {"input_tokens": 5, "output_tokens": 1}}
    done = {"type": "function_call_output", "call_id": "c1", "output": "a.py", "extra": {"returncode": 3}}
    session = only(mini_swe_agent, run([SYSTEM, TASK, answer, done]))
    (step,) = steps((session.messages or [])[2])
    assert (step.thought, step.model, step.usage) == ("I look.", "m-3", {"input_tokens": 5, "output_tokens": 1})
    assert [(call.id, call.status) for call in step.tool_calls or ()] == [("c1", "error")]


def test_invalid_parts_are_reported_with_their_places() -> None:
    odd = [SYSTEM, TASK, {"role": "critic"}, 5, {"role": "assistant", "content": "x", "tool_calls": [3]}]
    _found, left_out = read(mini_swe_agent, [run(odd), run([SYSTEM]), 7])
    assert left_out == [
        ("[0].messages[2]", "the role is 'critic'; a role is one of system, user, assistant, tool, exit"),
        ("[0].messages[3]", "not an object"),
        ("[0].messages[4].tool_calls[0]", "not an object"),
        ("[1]", "no user or assistant message"),
        ("[2]", "no messages of mini-swe-agent"),
    ]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        [TASK, {"role": "assistant", "content": "Done."}],
        [TASK, said("ls"), {"role": "user", "content": "Thanks"}],
        [TASK, {"role": "assistant", "content": "```python\n1\n```"}, seen("1")],
        {"messages": [TASK], "info": {"version": 1}},
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not mini_swe_agent.recognises(document)
    assert format_of(document) is not mini_swe_agent


@given(st.integers(4, len(MESSAGES) - 1))
def test_grown_run_keeps_earlier_records(count: int) -> None:
    assert_grows(mini_swe_agent, {**run(MESSAGES[:count]), "info": {"mini_version": "1.9.0"}}, run(MESSAGES))


@given(mangled([run(MESSAGES), MESSAGES]))
def test_read_mangled_document_never_raises(document: object) -> None:
    if mini_swe_agent.recognises(document):
        for session in read(mini_swe_agent, document)[0]:
            assert session.external_id


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(mini_swe_agent)
