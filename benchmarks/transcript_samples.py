"""Generated transcripts to import: the same conversation repeated, in each format.

A new format needs one generator in FORMATS; a test fails if it is missing or if its output is not recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

Json = dict[str, Any]

_THOUGHT = "I look at the file first, then at the tests that use it. " * 2
_ANSWER = (
    "The function returned before the lock was released. I moved the release into a finally block and ran the tests. "
    * 3
)
_OUTPUT = "tests/test_lock.py::test_release PASSED\n" * 60
_TASK = "You maintain a small library. Find out why the lock stays held, and mend it."
_TOOL = "run_tests"
_ARGS = {"path": "tests/test_lock.py", "verbose": True}
_ARGS_TEXT = msgspec.json.encode(_ARGS).decode()

# --- One turn in each format: user message, call, result, answer --------------------------


def _openai_chat(number: int, call_id: str) -> list[Json]:
    function = {"name": _TOOL, "arguments": _ARGS_TEXT}
    return [
        {"role": "user", "content": f"{_TASK} ({number})"},
        {
            "role": "assistant",
            "content": _THOUGHT,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": _OUTPUT},
        {"role": "assistant", "content": _ANSWER},
    ]


def _openai_responses(number: int, call_id: str) -> list[Json]:
    return [
        {"role": "user", "content": f"{_TASK} ({number})"},
        {"type": "function_call", "call_id": call_id, "name": _TOOL, "arguments": _ARGS_TEXT},
        {"type": "function_call_output", "call_id": call_id, "output": _OUTPUT},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": _ANSWER}]},
    ]


def _anthropic(number: int, call_id: str) -> list[Json]:
    use = {"type": "tool_use", "id": call_id, "name": _TOOL, "input": _ARGS}
    return [
        {"role": "user", "content": f"{_TASK} ({number})"},
        {"role": "assistant", "content": [{"type": "text", "text": _THOUGHT}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": _OUTPUT}]},
        {"role": "assistant", "content": [{"type": "text", "text": _ANSWER}]},
    ]


def _bedrock(number: int, call_id: str) -> list[Json]:
    use = {"toolUse": {"toolUseId": call_id, "name": _TOOL, "input": _ARGS}}
    result = {"toolResult": {"toolUseId": call_id, "status": "success", "content": [{"text": _OUTPUT}]}}
    return [
        {"role": "user", "content": [{"text": f"{_TASK} ({number})"}]},
        {"role": "assistant", "content": [{"text": _THOUGHT}, use]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"text": _ANSWER}]},
    ]


def _langchain(number: int, call_id: str) -> list[Json]:
    call = {"name": _TOOL, "args": _ARGS, "id": call_id, "type": "tool_call"}
    return [
        {"type": "human", "data": {"content": f"{_TASK} ({number})", "type": "human"}},
        {"type": "ai", "data": {"content": _THOUGHT, "type": "ai", "tool_calls": [call]}},
        {"type": "tool", "data": {"content": _OUTPUT, "type": "tool", "tool_call_id": call_id, "status": "success"}},
        {"type": "ai", "data": {"content": _ANSWER, "type": "ai", "tool_calls": []}},
    ]


def _pydantic_ai(number: int, call_id: str) -> list[Json]:
    call = {"part_kind": "tool-call", "tool_name": _TOOL, "args": _ARGS_TEXT, "tool_call_id": call_id}
    result = {"part_kind": "tool-return", "tool_name": _TOOL, "content": _OUTPUT, "tool_call_id": call_id}
    return [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": f"{_TASK} ({number})"}]},
        {"kind": "response", "parts": [{"part_kind": "text", "content": _THOUGHT}, call]},
        {"kind": "request", "parts": [result]},
        {"kind": "response", "parts": [{"part_kind": "text", "content": _ANSWER}]},
    ]


def _ai_sdk(number: int, call_id: str) -> list[Json]:
    call = {"type": "tool-call", "toolCallId": call_id, "toolName": _TOOL, "input": _ARGS}
    result = {
        "type": "tool-result",
        "toolCallId": call_id,
        "toolName": _TOOL,
        "output": {"type": "text", "value": _OUTPUT},
    }
    return [
        {"role": "user", "content": [{"type": "text", "text": f"{_TASK} ({number})"}]},
        {"role": "assistant", "content": [{"type": "text", "text": _THOUGHT}, call]},
        {"role": "tool", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": _ANSWER}]},
    ]


def _atif(number: int, call_id: str) -> list[Json]:
    call = {"tool_call_id": call_id, "function_name": _TOOL, "arguments": _ARGS}
    observation = {"results": [{"source_call_id": call_id, "content": _OUTPUT}]}
    return [
        {"step_id": 3 * number + 1, "source": "user", "message": f"{_TASK} ({number})"},
        {
            "step_id": 3 * number + 2,
            "source": "agent",
            "message": _THOUGHT,
            "tool_calls": [call],
            "observation": observation,
        },
        {"step_id": 3 * number + 3, "source": "agent", "message": _ANSWER},
    ]


def _openhands(number: int, call_id: str) -> list[Json]:
    first = 4 * number
    metadata = {"tool_call_id": call_id, "function_name": _TOOL, "model_response": {"id": f"r{number}"}}
    return [
        {"id": first, "source": "user", "action": "message", "args": {"content": f"{_TASK} ({number})"}},
        {
            "id": first + 1,
            "source": "agent",
            "action": "run",
            "args": {"command": "pytest", "thought": _THOUGHT},
            "tool_call_metadata": metadata,
        },
        {
            "id": first + 2,
            "source": "agent",
            "cause": first + 1,
            "observation": "run",
            "content": _OUTPUT,
            "extras": {"metadata": {"exit_code": 0}},
            "tool_call_metadata": metadata,
        },
        {"id": first + 3, "source": "agent", "action": "message", "args": {"content": _ANSWER}},
    ]


def _toolbench(number: int, _call_id: str) -> list[Json]:
    return [
        {"role": "user", "content": f"{_TASK} ({number})"},
        {"role": "assistant", "content": _THOUGHT, "function_call": {"name": _TOOL, "arguments": _ARGS_TEXT}},
        {
            "role": "function",
            "name": _TOOL,
            "content": msgspec.json.encode({"error": "", "response": _OUTPUT}).decode(),
        },
        {"role": "assistant", "content": _ANSWER},
    ]


def _inspect(number: int, call_id: str) -> list[Json]:
    call = {"id": call_id, "function": _TOOL, "arguments": _ARGS, "type": "function"}
    return [
        {"id": f"u{number}", "role": "user", "content": f"{_TASK} ({number})"},
        {"id": f"a{number}", "role": "assistant", "content": _THOUGHT, "tool_calls": [call]},
        {"id": f"t{number}", "role": "tool", "content": _OUTPUT, "tool_call_id": call_id, "function": _TOOL},
        {"id": f"b{number}", "role": "assistant", "content": _ANSWER},
    ]


def _own(number: int, call_id: str) -> list[Json]:
    call = {"id": call_id, "name": _TOOL, "args": _ARGS, "result": {"success": True, "output": _OUTPUT}}
    return [
        {"external_id": f"q{number}", "role": "user", "content": f"{_TASK} ({number})"},
        {
            "external_id": f"a{number}",
            "role": "assistant",
            "content": _ANSWER,
            "agent_steps": [{"iteration": 0, "thought": _THOUGHT, "tool_calls": [call]}],
        },
    ]


def _sweagent(number: int, call_id: str) -> list[Json]:
    asked, thought, seen, answer = _openai_chat(number, call_id)
    answered = {"role": "tool", "tool_call_ids": [call_id], "content": seen["content"], "message_type": "observation"}
    return [asked, {**thought, "thought": _THOUGHT, "action": _TOOL, "agent": "main"}, answered, answer]


def _eko(number: int, call_id: str) -> list[Json]:
    about = {"taskId": "task", "agentName": "Coder", "nodeId": "task_node_0"}
    content = [{"type": "text", "text": _OUTPUT}]
    return [
        {**about, "type": "text", "streamId": f"s{number}", "streamDone": True, "text": _THOUGHT},
        {**about, "type": "tool_use", "toolId": call_id, "toolName": _TOOL, "params": _ARGS},
        {**about, "type": "finish", "finishReason": "tool-calls", "usage": {"promptTokens": 9, "completionTokens": 9}},
        {
            **about,
            "type": "tool_result",
            "toolId": call_id,
            "toolName": _TOOL,
            "params": _ARGS,
            "toolResult": {"content": content, "isError": False},
        },
    ]


def _langfuse(number: int, call_id: str) -> list[Json]:
    time = _time(3 * number)
    about = {"traceId": "trace", "startTime": time, "endTime": time, "level": "DEFAULT"}
    asked, answered = _openai_chat(number, call_id)[1], _openai_chat(number, call_id)[3]
    return [
        {
            **about,
            "id": f"g{number}",
            "type": "GENERATION",
            "name": "chat",
            "input": [{"role": "user", "content": f"{_TASK} ({number})"}],
            "output": asked,
        },
        {**about, "id": f"t{number}", "type": "TOOL", "name": _TOOL, "input": _ARGS, "output": _OUTPUT},
        {**about, "id": f"h{number}", "type": "GENERATION", "name": "chat", "input": [], "output": answered},
    ]


def _claude_code(number: int, call_id: str) -> list[Json]:
    lines: list[Json] = []
    for place, message in enumerate(_anthropic(number, call_id), start=4 * number):
        if message["role"] == "assistant":
            message = {**message, "id": f"msg_{place}", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 9}}
        lines.append(
            {
                "type": message["role"],
                "uuid": f"line-{place}",
                "parentUuid": f"line-{place - 1}" if place else None,
                "sessionId": "session",
                "timestamp": _time(place),
                "version": "2.0.0",
                "isSidechain": False,
                "message": message,
            }
        )
    return lines


def _pi(number: int, call_id: str) -> list[Json]:
    call = {"type": "toolCall", "id": call_id, "name": _TOOL, "arguments": _ARGS}
    output = [{"type": "text", "text": _OUTPUT}]
    said: list[Json] = [
        {"role": "user", "content": [{"type": "text", "text": f"{_TASK} ({number})"}]},
        {"role": "assistant", "content": [{"type": "text", "text": _THOUGHT}, call]},
        {"role": "toolResult", "toolCallId": call_id, "toolName": _TOOL, "content": output, "isError": False},
        {"role": "assistant", "content": [{"type": "text", "text": _ANSWER}]},
    ]
    return [
        {
            "type": "message",
            "id": f"line-{place}",
            "parentId": f"line-{place - 1}" if place else None,
            "timestamp": _time(place),
            "message": message,
        }
        for place, message in enumerate(said, start=4 * number)
    ]


def _codex(number: int, call_id: str) -> list[Json]:
    call = {"type": "function_call", "name": _TOOL, "arguments": _ARGS_TEXT, "call_id": call_id}
    task = f"{_TASK} ({number})"
    said: list[tuple[str, Json]] = [
        ("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": task}]}),
        ("event_msg", {"type": "user_message", "message": task}),
        ("turn_context", {"model": "m", "cwd": "/srv"}),
        ("response_item", {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": _THOUGHT}]}),
        ("response_item", call),
        ("event_msg", {"type": "exec_command_end", "call_id": call_id, "exit_code": 0, "aggregated_output": _OUTPUT}),
        ("response_item", {"type": "function_call_output", "call_id": call_id, "output": _OUTPUT}),
        ("response_item", {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": _ANSWER}]}),
        ("event_msg", {"type": "task_complete"}),
    ]  # fmt: skip
    return [{"timestamp": _time(9 * number + at), "type": kind, "payload": payload} for at, (kind, payload) in enumerate(said)]  # fmt: skip


def _gemini_cli(number: int, call_id: str) -> list[Json]:
    answered = {"functionResponse": {"id": call_id, "name": _TOOL, "response": {"output": _OUTPUT}}}
    call = {"id": call_id, "name": _TOOL, "args": _ARGS, "status": "success", "result": [answered]}
    said: list[Json] = [
        {"type": "user", "content": f"{_TASK} ({number})"},
        {"type": "gemini", "content": _THOUGHT, "toolCalls": [call], "model": "m"},
        {"type": "gemini", "content": _ANSWER, "model": "m"},
    ]
    return [{"id": f"m{3 * number + at}", "timestamp": _time(3 * number + at), **one} for at, one in enumerate(said)]


def _qwen_code(number: int, call_id: str) -> list[Json]:
    call = {"functionCall": {"id": call_id, "name": _TOOL, "args": _ARGS}}
    answered = {"functionResponse": {"id": call_id, "name": _TOOL, "response": {"output": _OUTPUT}}}
    said: list[tuple[str, list[Json]]] = [
        ("user", [{"text": f"{_TASK} ({number})"}]),
        ("assistant", [{"text": _THOUGHT}, call]),
        ("tool_result", [answered]),
        ("assistant", [{"text": _ANSWER}]),
    ]
    return [
        {
            "uuid": f"line-{place}",
            "parentUuid": f"line-{place - 1}" if place else None,
            "sessionId": "session",
            "timestamp": _time(place),
            "type": kind,
            "message": {"role": "model" if kind == "assistant" else "user", "parts": parts},
        }
        for place, (kind, parts) in enumerate(said, start=4 * number)
    ]


def _opencode(number: int, call_id: str) -> list[Json]:
    state = {"status": "completed", "input": _ARGS, "output": _OUTPUT, "title": "Tests", "metadata": {}}
    call = {"id": f"p{number}", "type": "tool", "callID": call_id, "tool": _TOOL, "state": state}
    said: list[tuple[str, list[Json]]] = [
        ("user", [{"type": "text", "text": f"{_TASK} ({number})"}]),
        ("assistant", [{"type": "text", "text": _THOUGHT}, call]),
        ("assistant", [{"type": "text", "text": _ANSWER}]),
    ]
    return [
        {
            "info": {
                "id": f"msg_{place}",
                "sessionID": "ses",
                "role": role,
                "time": {"created": 1772359200000 + 1000 * place},
            },
            "parts": parts,
        }
        for place, (role, parts) in enumerate(said, start=3 * number)
    ]


def _chatgpt(number: int, _call_id: str) -> list[Json]:
    said: list[tuple[str, str, str | None, str]] = [
        ("user", f"{_TASK} ({number})", None, "all"),
        ("assistant", _THOUGHT, None, "all"),
        ("assistant", _ARGS_TEXT, None, _TOOL),
        ("tool", _OUTPUT, _TOOL, "all"),
        ("assistant", _ANSWER, None, "all"),
    ]
    return [
        {
            "id": f"n{place}",
            "parent": f"n{place - 1}" if place else None,
            "children": [],
            "message": {
                "author": {"role": role, "name": name},
                "create_time": 1772359200.0 + place,
                "content": {"content_type": "text", "parts": [words]},
                "recipient": recipient,
            },
        }
        for place, (role, words, name, recipient) in enumerate(said, start=5 * number)
    ]


def _claude_ai(number: int, call_id: str) -> list[Json]:
    asked, thought, seen, answer = _anthropic(number, call_id)
    blocks = [*thought["content"], *seen["content"], *answer["content"]]
    return [
        {"uuid": f"q{number}", "sender": "human", "text": asked["content"], "created_at": _time(2 * number)},
        {"uuid": f"a{number}", "sender": "assistant", "content": blocks, "created_at": _time(2 * number + 1)},
    ]


def _sharegpt(number: int, _call_id: str) -> list[Json]:
    return [
        {"from": "human", "value": f"{_TASK} ({number})"},
        {"from": "gpt", "value": f'{_THOUGHT}<tool_call>{{"name": "{_TOOL}", "arguments": {_ARGS_TEXT}}}</tool_call>'},
        {"from": "observation", "value": _OUTPUT},
        {"from": "gpt", "value": _ANSWER},
    ]


def _time(second: int) -> str:
    return (
        f"2026-03-{1 + second // 86400 % 28:02}T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"
    )


# --- Documents ------------------------------------------------------------------------------------------------------

LINES = frozenset({"claude_code", "codex", "eko", "gemini_cli", "pi", "qwen_code"})
"""Formats of JSON lines, some with a header line; the others are one JSON value."""


def _otlp(number: int, call_id: str) -> list[Json]:
    def span(id_: int, name: str, attributes: Json) -> Json:
        return {
            "traceId": f"{number + 1:032x}",
            "spanId": f"{id_:016x}",
            "parentSpanId": "" if id_ == 1 else f"{1:016x}",
            "name": name,
            "startTimeUnixNano": str(1_760_000_000_000_000_000 + number * 10**10 + id_ * 10**9),
            "endTimeUnixNano": str(1_760_000_000_500_000_000 + number * 10**10 + id_ * 10**9),
            "attributes": [
                {"key": f"gen_ai.{key}", "value": {"stringValue": value}}
                for key, value in (attributes | {"conversation.id": "session"}).items()
            ],
        }

    def messages(role: str, *parts: Json) -> str:
        return msgspec.json.encode([{"role": role, "parts": parts}]).decode()

    call = {"type": "tool_call", "id": call_id, "name": _TOOL, "arguments": _ARGS}
    asked = messages("user", {"type": "text", "content": _TASK})
    thought, answer = {"type": "text", "content": _THOUGHT}, {"type": "text", "content": _ANSWER}
    chat = {"operation.name": "chat", "request.model": "m"}
    result = {
        "tool.name": _TOOL,
        "tool.call.id": call_id,
        "tool.call.arguments": _ARGS_TEXT,
        "tool.call.result": _OUTPUT,
    }
    return [
        span(1, "invoke_agent coder", {"operation.name": "invoke_agent", "agent.name": "coder"}),
        span(2, "chat m", chat | {"input.messages": asked, "output.messages": messages("assistant", thought, call)}),
        span(3, f"execute_tool {_TOOL}", {"operation.name": "execute_tool"} | result),
        span(4, "chat m", chat | {"output.messages": messages("assistant", answer)}),
    ]


FORMATS: dict[str, tuple[Callable[[int, str], list[Json]], Callable[[list[Json]], Any]]] = {
    "ai_sdk": (_ai_sdk, list),
    "anthropic_messages": (_anthropic, list),
    "atif": (
        _atif,
        lambda steps: {
            "schema_version": "ATIF-v1.4",
            "session_id": "session",
            "agent": {"name": "coder", "version": "1", "model_name": "m"},
            "steps": steps,
        },
    ),
    "bedrock_converse": (_bedrock, list),
    "chatgpt": (
        _chatgpt,
        lambda nodes: [
            {
                "id": "session",
                "title": "Lock",
                "mapping": {node["id"]: node for node in nodes},
                "current_node": nodes[-1]["id"],
            }
        ],
    ),
    "claude_ai": (_claude_ai, lambda messages: [{"uuid": "session", "name": "Lock", "chat_messages": messages}]),
    "claude_code": (_claude_code, list),
    "codex": (
        _codex,
        lambda lines: [
            {"timestamp": _time(0), "type": "session_meta", "payload": {"id": "session", "cwd": "/srv"}},
            *lines,
        ],
    ),
    "eko": (_eko, list),
    "gemini_cli": (
        _gemini_cli,
        lambda lines: [{"sessionId": "session", "projectHash": "hash", "startTime": _time(0)}, *lines],
    ),
    "inspect_ai": (
        _inspect,
        lambda messages: {
            "version": 2,
            "status": "success",
            "eval": {"task": "lock", "run_id": "run", "model": "m"},
            "samples": [{"id": 1, "epoch": 1, "uuid": "sample", "input": _TASK, "target": "", "messages": messages}],
        },
    ),
    "langchain": (_langchain, list),
    "langfuse": (_langfuse, lambda found: {"trace": {"id": "trace", "timestamp": _time(0)}, "observations": found}),
    "openai_chat": (_openai_chat, list),
    "openai_responses": (_openai_responses, list),
    "opencode": (
        _opencode,
        lambda messages: {"info": {"id": "ses", "title": "Lock", "time": {}}, "messages": messages},
    ),
    "openhands": (_openhands, list),
    "otlp": (_otlp, lambda spans: {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}),
    "own_export": (_own, lambda messages: {"external_id": "session", "title": "Lock", "messages": messages}),
    "pi": (_pi, lambda lines: [{"type": "session", "version": 3, "id": "session", "timestamp": _time(0)}, *lines]),
    "pydantic_ai": (_pydantic_ai, list),
    "qwen_code": (_qwen_code, list),
    "sharegpt": (_sharegpt, lambda turns: [{"conversations": turns}]),
    "sweagent": (_sweagent, lambda history: {"history": history, "environment": "main", "info": {}}),
    "toolbench": (
        _toolbench,
        lambda messages: {
            "win": True,
            "trys": [],
            "answer_generation": {
                "valid_data": True,
                "finish_type": "give_answer",
                "query": _TASK,
                "train_messages": [messages],
                "chain": [],
            },
        },
    ),
}
"""Generators of one turn and of a document of many turns, by format name."""


def document(format_name: str, size: int) -> bytes:
    """Return about `size` bytes of one conversation."""
    turn, whole = FORMATS[format_name]
    length = len(msgspec.json.encode(turn(1, "call_1")))
    found = whole([entry for number in range(max(1, size // length)) for entry in turn(number, f"call_{number}")])
    if format_name in LINES:
        return b"".join(msgspec.json.encode(value) + b"\n" for value in found)
    return msgspec.json.encode(found)


# --- Endless lines ----------------------------------------------------------------------------------------------


def _small_sessions() -> Iterator[bytes]:
    for number in count():
        messages = [*_openai_chat(0, "call_0"), *_openai_chat(1, "call_1")]
        yield msgspec.json.encode({"id": f"s{number}", "messages": messages})


def _one_session() -> Iterator[bytes]:
    for number in count():
        yield from map(msgspec.json.encode, _openai_chat(number, f"call_{number}"))


SHAPES: dict[str, Callable[[], Iterator[bytes]]] = {"small-sessions": _small_sessions, "one-session": _one_session}
"""Endless lines of OpenAI chat: a session per line, or a message of one session per line."""


def write(path: Path, shape: str, size: int) -> int:
    """Write lines of a shape until they have `size` bytes. Return their exact size."""
    written = 0
    with path.open("wb") as file:
        for line in SHAPES[shape]():
            written += file.write(line + b"\n")
            if written >= size:
                break
    return written
