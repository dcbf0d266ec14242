"""Spans of producers that keep content under names of their own: each gives the question, the answer, steps and calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import Attributes, Span, SpanEvent, Status

TRACE = "0af7651916cd43dd8448eb211c80319c"
Row = tuple[str, int, int | None, Attributes]
"""The name of a span, its number, that of its parent, and its attributes."""


def span(name: str, number: int, parent: int | None, attributes: Attributes, *events: SpanEvent) -> Span:
    return Span(
        trace_id=TRACE,
        span_id=f"{number:016x}",
        parent_id=f"{parent:016x}" if parent else "",
        name=name,
        start=number * 10**9,
        end=(100 if not parent else number + 1) * 10**9,
        attributes=attributes,
        events=list(events),
    )


def event(name: str, **attributes: Any) -> SpanEvent:
    return SpanEvent(name=name, attributes=attributes)


def content(name: str, value: Any) -> SpanEvent:
    return SpanEvent(name=name, attributes={"gen_ai.system": "az", "gen_ai.event.content": json.dumps(value)})


def turn(*spans: Span) -> dict[str, Any]:
    """Return what the spans say, whatever their order."""
    session = session_of_trace(spans)
    assert session_of_trace(spans[::-1]) == session
    messages = session.messages or ()
    answer = messages[-1]
    steps = answer.agent_steps or []
    return {
        "session": session.external_id,
        "texts": [(message.role, message.content) for message in messages],
        "error": answer.error,
        "requests": [(step.agent_name, step.model, step.usage) for step in steps if step.model],
        "calls": [shown(call) for step in steps for call in step.tool_calls or ()],
    }


def shown(call: records.ToolCall) -> tuple[Any, ...]:
    result = call.result
    assert isinstance(result, records.ToolResult)
    return call.id, call.name, call.args, result.output, result.status


def claude_code(*tool_parts: Span, **prompt: str) -> list[Span]:
    def request(number: int, parent: int, tokens: tuple[int, int, int, int], **others: Any) -> Span:
        counts = dict(
            zip(("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens"), tokens, strict=True)
        )
        named = {"span.type": "llm_request", "model": "claude-x", "gen_ai.request.model": "claude-x", "success": True}
        return span("claude_code.llm_request", number, parent, {**named, **counts, **others})

    tool = {"span.type": "tool", "tool_name": "Bash", "tool_use_id": "toolu_1", "full_command": "ls"}
    return [
        span("claude_code.interaction", 1, None, {"span.type": "interaction", "session.id": "s-1", **prompt}),
        request(2, 1, (2, 120, 8000, 700), stop_reason="tool_use"),
        span("claude_code.tool", 4, 1, tool, event("tool.output", output="a.txt")),
        *tool_parts,
        request(8, 1, (3, 60, 9000, 0), stop_reason="end_turn"),
    ]


def test_turn_of_claude_code_has_question_requests_and_call() -> None:
    said = turn(*claude_code(user_prompt="List the files"))
    usages = [
        {"input_tokens": 2, "output_tokens": 120, "cache_read_input_tokens": 8000, "cache_creation_input_tokens": 700},
        {"input_tokens": 3, "output_tokens": 60, "cache_read_input_tokens": 9000, "cache_creation_input_tokens": 0},
    ]
    assert said == {
        "session": "s-1",
        "texts": [("user", "List the files"), ("assistant", None)],
        "error": None,
        "requests": [("claude-code", "claude-x", usage) for usage in usages],
        "calls": [("toolu_1", "Bash", {"command": "ls"}, "a.txt", None)],
    }


def test_prompt_that_claude_code_hides_is_no_question() -> None:
    assert turn(*claude_code(user_prompt="<REDACTED>"))["texts"] == [("assistant", None)]


@pytest.mark.parametrize("success", [False, "false"])
def test_failure_of_claude_codes_tool_is_that_of_its_execution(success: Any) -> None:
    part = {"span.type": "tool.execution", "success": success, "error": "ShellError"}
    said = turn(*claude_code(span("claude_code.tool.execution", 5, 4, part), user_prompt="q"))
    assert said["calls"] == [("toolu_1", "Bash", {"command": "ls"}, "a.txt", "error")]
    assert said["error"] is None


def test_tool_that_the_user_rejected_did_not_succeed() -> None:
    part = {"span.type": "tool.blocked_on_user", "decision": "reject"}
    first, request, tool, *others = claude_code(span("claude_code.tool.blocked_on_user", 5, 4, part), user_prompt="q")
    said = turn(first, request, replace(tool, events=[]), *others)
    assert said["calls"] == [("toolu_1", "Bash", {"command": "ls"}, "rejected by the user", "error")]


def test_logged_response_of_claude_code_is_the_answer() -> None:
    first, *others = claude_code(user_prompt="q")
    logged = [event("claude_code.assistant_response", response=text) for text in ("Let me look.", "One file.")]
    assert turn(replace(first, events=logged), *others)["texts"][-1] == ("assistant", "One file.")


def adk(agent: str, agent_attributes: Attributes) -> list[Span]:
    question = {"role": "user", "parts": [{"text": "Weather in Rome?"}]}
    call = {"function_call": {"id": "adk-1", "name": "get_weather", "args": {"city": "Rome"}}}
    asked = {"role": "model", "parts": [call]}
    said = {"function_response": {"id": "adk-1", "name": "get_weather", "response": {"report": "31 C"}}}

    def request(number: int, contents: list[Any], part: Any, **counts: int) -> Span:
        values = {
            "llm_request": {"model": "gemini-x", "config": {"system_instruction": "Be short."}, "contents": contents},
            "llm_response": {"content": {"role": "model", "parts": [part]}, "usage_metadata": counts},
        }
        names = {f"gcp.vertex.agent.{name}": json.dumps(value) for name, value in values.items()}
        named = {"gen_ai.system": "gcp.vertex.agent", "gen_ai.request.model": "gemini-x"}
        return span("call_llm", number, 2, {**named, "gcp.vertex.agent.session_id": "s-1", **names})

    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_weather",
        "gen_ai.tool.call.id": "adk-1",
        "gcp.vertex.agent.llm_request": "{}",
        "gcp.vertex.agent.tool_call_args": '{"city": "Rome"}',
        "gcp.vertex.agent.tool_response": '{"report": "31 C"}',
    }
    merged = {**tool, "gen_ai.tool.name": "(merged tools)", "gen_ai.tool.call.id": "e-1"}
    return [
        span("invocation", 1, None, {}),
        span(agent, 2, 1, agent_attributes),
        request(3, [question], call, prompt_token_count=361, candidates_token_count=12, thoughts_token_count=40),
        span("execute_tool get_weather", 5, 3, tool),
        span("execute_tool (merged)", 7, 3, merged),
        request(
            9, [question, asked, {"role": "user", "parts": [said]}], {"text": "31 C in Rome."}, prompt_token_count=400,
            candidates_token_count=8, cached_content_token_count=300,
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("agent_run [weather_agent]", {}),
        ("invoke_agent weather_agent", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "weather_agent"}),
    ],
)
def test_run_of_google_adk_has_its_content(name: str, attributes: Attributes) -> None:
    spans = adk(name, attributes)
    assert turn(*spans) == {
        "session": "s-1",
        "texts": [("user", "Weather in Rome?"), ("assistant", "31 C in Rome.")],
        "error": None,
        "requests": [
            ("weather_agent", "gemini-x", {"input_tokens": 361, "output_tokens": 52, "reasoning_tokens": 40}),
            ("weather_agent", "gemini-x", {"input_tokens": 400, "output_tokens": 8, "cached_input_tokens": 300}),
        ],
        "calls": [("adk-1", "get_weather", {"city": "Rome"}, {"report": "31 C"}, None)],
    }
    first = next(step for step in (session_of_trace(spans).messages or ())[-1].agent_steps or () if step.model)
    assert first.input is not None
    assert first.input.system == "Be short."


def test_messages_in_event_content_of_azure_are_read() -> None:
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-x", "session.id": "s-1"}
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": "Peru"}'}}
    asked = [
        content("gen_ai.system.message", {"role": "system", "content": "Be short"}),
        content("gen_ai.user.message", {"role": "user", "content": {"text": {"value": "Capital of Peru?"}}}),
    ]
    choice = content("gen_ai.choice", {"message": {"tool_calls": [call]}, "finish_reason": "tool_calls", "index": 0})
    told = [
        content("gen_ai.assistant.message", {"role": "assistant", "tool_calls": [call]}),
        content("gen_ai.tool.message", {"id": "c1", "content": "Lima"}),
    ]
    answer = content("gen_ai.choice", {"message": {"content": "It is Lima."}, "finish_reason": "stop", "index": 0})
    said = turn(
        span("agent", 1, None, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "guide"}),
        span("chat", 2, 1, chat, *asked, choice),
        span("chat", 4, 1, chat, *asked, *told, answer),
    )
    assert said["texts"] == [("user", "Capital of Peru?"), ("assistant", "It is Lima.")]
    assert said["calls"] == [("c1", "find", '{"q": "Peru"}', "Lima", None)]


def test_event_content_without_texts_is_no_answer() -> None:
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-x"}
    choice = content("gen_ai.choice", {"finish_reason": "stop", "index": 0})
    assert turn(span("chat", 1, None, chat, choice))["texts"] == [("assistant", None)]


@pytest.mark.parametrize(
    ("prompt", "completion"),
    [
        ('["What are the hours?"]', '["9 to 17"]'),
        (["Be polite.", "What are the hours?"], ["", "9 to 17"]),
        ("What are the hours?", "9 to 17"),
        ('[{"role": "user", "content": "What are the hours?"}]', '[{"role": "assistant", "content": "9 to 17"}]'),
    ],
)
def test_prompt_and_completion_of_a_span_are_read(prompt: Any, completion: Any) -> None:
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-x", "gen_ai.usage.output_tokens": "7"}
    said = turn(span("chat", 1, None, {**chat, "gen_ai.prompt": prompt, "gen_ai.completion": completion}))
    assert said["texts"] == [("user", "What are the hours?"), ("assistant", "9 to 17")]


def test_results_in_events_belong_to_the_calls_of_their_ids() -> None:
    calls = [{"id": id_, "function": {"name": "find", "arguments": "{}"}} for id_ in ("c1", "c2")]
    chat = {"gen_ai.operation.name": "chat.completions", "gen_ai.request.model": "gpt-x"}
    told = [event("gen_ai.tool.message", id=id_, content=f"of {id_}") for id_ in ("c2", "c1")]
    said = turn(
        span("agent", 1, None, {"gen_ai.operation.name": "invoke_agent"}),
        span("chat", 2, 1, chat, content("gen_ai.choice", {"message": {"tool_calls": calls}})),
        span("chat", 4, 1, chat, *told, content("gen_ai.choice", {"message": {"content": "Done."}})),
    )
    assert [call[3] for call in said["calls"]] == ["of c1", "of c2"]


@pytest.mark.parametrize(
    "prompt", ['["Be polite.", "Hours?"]', '[{"role": "user", "content": "Hours?"}]', "Hours?"], ids=len
)
def test_prompt_in_an_event_is_the_question(prompt: str) -> None:
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-x"}
    events = [
        event("gen_ai.content.prompt", **{"gen_ai.prompt": prompt}),
        event("gen_ai.content.completion", **{"gen_ai.completion": '["9 to 17"]'}),
    ]
    assert turn(span("chat", 1, None, chat, *events))["texts"] == [("user", "Hours?"), ("assistant", "9 to 17")]


def test_tool_of_spring_ai_is_a_call() -> None:
    tool = {
        "gen_ai.operation.name": "framework",
        "spring.ai.tool.definition.name": "opening_hours",
        "spring.ai.tool.call.arguments": '{"day": "Monday"}',
        "spring.ai.tool.call.result": '"9 to 17"',
    }
    agent = {"gen_ai.operation.name": "invoke_agent", "spring.ai.chat.client.conversation.id": "s-1"}
    said = turn(span("agent", 1, None, agent), span("tool_call opening_hours", 2, 1, tool))
    assert said["session"] == "s-1"
    assert said["calls"] == [(f"{2:016x}", "opening_hours", {"day": "Monday"}, '"9 to 17"', None)]


def test_types_of_laminar_are_steps_and_calls() -> None:
    model = {"gen_ai.request.model": "gpt-x", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}
    root = {
        "lmnr.span.type": "DEFAULT", "lmnr.association.properties.session_id": "s-1", "lmnr.span.input": '{"q": "Hi"}',
        "lmnr.span.output": '"Ho"',
    }  # fmt: skip
    request = {
        "lmnr.span.type": "LLM", "lmnr.span.input": '[{"role": "user", "content": "Hi"}]',
        "lmnr.span.output": '[{"role": "assistant", "content": "Ho"}]', **model,
    }  # fmt: skip
    tool = {"lmnr.span.type": "TOOL", "lmnr.span.input": '{"n": 1}', "lmnr.span.output": '"R"'}
    said = turn(
        span("handle", 1, None, root),
        span("lookup", 2, 1, {**tool, "codex.tool.call_id": "c1"}),
        span("openai.chat", 4, 1, request),
    )
    assert (said["session"], said["texts"]) == ("s-1", [("user", "Hi"), ("assistant", "Ho")])
    assert said["calls"] == [("c1", "lookup", {"n": 1}, "R", None)]


@pytest.mark.parametrize(
    ("name", "mark"), [("agent_name", "logfire.msg"), ("gen_ai.agent.name", "logfire.msg"), ("gen_ai.agent.name", "x")]
)
def test_span_with_the_name_of_an_agent_is_one(name: str, mark: str) -> None:
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-x", "gen_ai.usage.output_tokens": 1}
    answer = {
        "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "It is a dot."}]}]'
    }
    tool = {
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "k1",
        "gen_ai.tool.call.arguments": '{"y": 2}',
        name: "looker",
    }
    failed: Status = "error"
    said = turn(
        span("invoke_agent looker", 1, None, {name: "looker", mark: "looker run", "final_result": "It is a dot."}),
        replace(span("execute_tool look", 2, 1, tool), status=failed, status_message="give z instead"),
        span("chat gpt-x", 4, 1, {**model, **answer}),
    )
    assert said["requests"] == [("looker", "gpt-x", {"output_tokens": 1})]
    assert said["calls"] == [("k1", "look", {"y": 2}, "give z instead", "error")]
    assert (said["error"], said["texts"][-1]) == (None, ("assistant", "It is a dot."))


def test_step_that_names_its_agent_is_no_run() -> None:
    request = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": '[{"role": "user", "content": "Hi"}]',
        "gen_ai.output.messages": '[{"role": "assistant", "content": "Ho"}]',
    }
    step = {"gen_ai.agent.name": "looker", "input.value": "state {}", "output.value": "3 notes"}
    said = turn(
        span("POST /look", 1, None, {}),
        span("load_notes", 2, 1, step),
        span("chat", 4, 1, {**request, "gen_ai.agent.name": "looker"}),
        span("save_notes", 6, 1, step),
    )
    assert said["texts"] == [("user", "Hi"), ("assistant", "Ho")]
