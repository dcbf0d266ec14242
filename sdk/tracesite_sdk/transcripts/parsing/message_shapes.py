"""Parse messages of a model in any known shape: text, tool calls and tool results.

For exports of tracing systems, which store the input and output of each model call as its SDK had them: requests and
responses, lists of messages and single ones, of OpenAI (chat and Responses), Anthropic, Bedrock, Gemini, LangChain
(dumped, serialised, batched), the AI SDK and the gen_ai conventions of OpenTelemetry. No function here raises; an
unknown part stays in the content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import content as content_of
from tracesite_sdk.normalize.json_values import fields, items, rest, text
from tracesite_sdk.normalize.mended_json import decode_json
from tracesite_sdk.transcripts.entries import Call, Result

Role = Literal["system", "user", "assistant", "tool"]

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "AIMessageChunk": "assistant",
    "tool": "tool",
    "function": "tool",
    "SystemMessage": "system",
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
}
_MESSAGE = frozenset({"content", "parts", "tool_calls", "function_call", "toolInvocations", "refusal"})
"""Keys that a message may have beside its role."""
_LISTS = ("messages", "choices", "candidates", "generations")
"""Keys of the messages in requests and responses."""
_READ = frozenset(
    {"content", "parts", "tool_calls", "function_call", "additional_kwargs", "invalid_tool_calls", "reasoning_content",
     "reasoning", "name", "usage_metadata", "usage", "model", "id", "type"}
)  # fmt: skip
"""Keys of a message that its fields take."""
_READ_WITH_ROLE = _READ | {"role"}
_READ_OF_RESULT = frozenset(
    {"role", "type", "content", "tool_call_id", "toolCallId", "name", "status", "artifact", "id"}
)
_READ_OF_CALL = frozenset({"toolUse", "functionCall", "function_call", "function", "custom", "id", "type", "index"})
_READ_OF_TEXT = frozenset({"type", "text", "content", "annotations", "logprobs"})
_DEEPEST = 12
"""Levels of wrapping that are searched."""
_LAYERS = 3
"""Maximum nesting of JSON texts in JSON texts."""


class ParsedMessage(Struct, frozen=True, kw_only=True):
    """One message."""

    role: Role
    content: str | list[Any] | None = None
    """Without calls, results and reasoning."""
    calls: Sequence[Call] = ()
    results: Sequence[Result] = ()
    """Their id is ""."""
    reasoning: str | None = None
    name: str | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}


def decoded(value: Any) -> Any:
    """Decode a JSON text, and a JSON text in it, layer by layer; return any other value unchanged."""
    for _layer in range(_LAYERS):
        if not isinstance(value, str) or value[:1] not in ('{', '[', '"'):  # fmt: skip
            break
        try:
            value = decode_json(value)
        except (msgspec.DecodeError, RecursionError):
            break
    return value


def messages_in(value: Any, role: Role = "user") -> list[ParsedMessage]:
    """Return the messages in a value, or none; `role` is the role of messages without one."""
    return _messages(value, role, 0)


def joined(messages: Iterable[ParsedMessage]) -> ParsedMessage | None:
    """Merge the assistant's messages or items of one response into one message; None if there are none."""
    answers = [message for message in messages if message.role == "assistant"]
    if len(answers) < 2:
        return answers[0] if answers else None
    contents = [answer.content for answer in answers if answer.content]
    metadata: dict[str, Any] = {}
    for answer in answers:
        metadata.update(answer.metadata)
    return ParsedMessage(
        role="assistant",
        content="\n\n".join(filter(None, map(_only_text, contents)))
        if all(isinstance(content, str) for content in contents)
        else [
            part
            for content in contents
            for part in (content if isinstance(content, list) else [{"type": "text", "text": content}])
        ],
        calls=[call for answer in answers for call in answer.calls],
        results=[result for answer in answers for result in answer.results],
        reasoning="\n\n".join(answer.reasoning for answer in answers if answer.reasoning) or None,
        name=next((answer.name for answer in answers if answer.name), None),
        model=next((answer.model for answer in answers if answer.model), None),
        usage=next((answer.usage for answer in answers if answer.usage), None),
        metadata=metadata,
    )


# --- Wrappings ----------------------------------------------------------------------------------------------------


def _messages(value: Any, role: Role, depth: int) -> list[ParsedMessage]:
    if depth > _DEEPEST:
        return []
    if isinstance(value, list):
        return _listed(value, role, depth)
    if not isinstance(value, dict):
        return []
    if message := _single(value, role):
        return [message]
    messages_read: list[ParsedMessage] = []
    for key in ("system", "system_instruction", "systemInstruction", "instructions"):
        # The instructions of a response are those of its request, repeated.
        if value.get(key) and value.get("object") != "response":
            messages_read += _system(value[key])
    for key in _LISTS:
        if isinstance(value.get(key), list):
            # The conversation continues with the first of several choices.
            inner = value[key][:1] if key in ("choices", "candidates", "generations") else value[key]
            return messages_read + _with_model_and_usage(_messages(inner, _role_below(key, role), depth + 1), value)
    if "contents" in value:
        contents = value["contents"] if isinstance(value["contents"], list) else [value["contents"]]
        messages = _messages([_gemini_message(item) for item in contents], role, depth + 1)
        return messages_read + _with_model_and_usage(messages, value)
    for key in ("message", "output", "content", "response"):
        inner = value.get(key)
        if isinstance(inner, dict | list) and (messages := _messages(inner, _role_below(key, role), depth + 1)):
            return messages_read + _with_model_and_usage(messages, value)
    if isinstance(value.get("prompt"), str):
        return [
            *messages_read,
            ParsedMessage(role="user", content=value["prompt"], metadata=rest(value, ("prompt", "system"))),
        ]
    if "prompt" in value:
        return messages_read + _messages(value["prompt"], "user", depth + 1)
    if isinstance(value.get("text"), str) and ("toolCalls" in value or "generation_info" in value):
        calls = [call for part in items(value.get("toolCalls")) if (call := _call(part))]
        taken = ("text", "toolCalls", "message", "type")
        return [
            *messages_read,
            ParsedMessage(role="assistant", content=value["text"], calls=calls, metadata=rest(value, taken)),
        ]
    return messages_read


def _listed(values: list[Any], role: Role, depth: int) -> list[ParsedMessage]:
    objects = [value for value in values if isinstance(value, dict)]
    if objects and not any("role" in value for value in objects) and any(map(_is_part, objects)):
        # Parts without a message around them, such as calls alone.
        return [_parsed("assistant" if any(map(_call, objects)) else role, values, {})]
    return [message for value in values for message in _messages(value, role, depth + 1)]


def _gemini_message(value: Any) -> Any:
    """Return a message with a role: in Gemini's API a text, or a message without a role, is the user's."""
    if isinstance(value, str):
        return {"role": "user", "parts": [{"text": value}]}
    return {"role": "user", **value} if isinstance(value, dict) and "parts" in value else value


def _calls_in(content: Any) -> list[Any] | None:
    """Return the calls of a text that is a JSON list of calls, as Koog writes them; None for any other content."""
    if not isinstance(content, str) or not content.lstrip().startswith("["):
        return None
    calls = decoded(content.strip())
    is_calls = isinstance(calls, list) and calls and all(_is_function(part) for part in calls)
    return calls if is_calls else None


def _is_function(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "function" and "name" in fields(part.get("function"))


def _role_below(key: str, role: Role) -> Role:
    return "assistant" if key in ("choices", "candidates", "generations", "output", "response") else role


def _with_model_and_usage(messages: list[ParsedMessage], response: dict[str, Any]) -> list[ParsedMessage]:
    """Add the model and the usage of a response to its last message."""
    if not messages or messages[-1].role != "assistant":
        return messages
    last = messages[-1]
    usage = next((response[key] for key in ("usage", "usageMetadata") if isinstance(response.get(key), dict)), None)
    model = next((response[key] for key in ("model", "modelVersion") if isinstance(response.get(key), str)), None)
    return [*messages[:-1], replace(last, model=last.model or model, usage=last.usage or usage)]


def _system(value: Any) -> list[ParsedMessage]:
    content = value.get("parts", value.get("content", value)) if isinstance(value, dict) else value
    message = _parsed("system", content, {})
    return [message] if message.content else []


# --- Messages -----------------------------------------------------------------------------------------------------


def _single(value: dict[str, Any], role: Role) -> ParsedMessage | None:
    """Parse an object that is a message; return None for any other, which may contain messages."""
    kind = value.get("type")
    if kind == "constructor" and isinstance(value.get("kwargs"), dict):
        name = text(items(value.get("id"))[-1:] and value["id"][-1]) or ""
        return _message(_ROLES.get(name.removesuffix("Chunk"), role), value["kwargs"], _READ)
    if isinstance(value.get("data"), dict) and isinstance(kind, str) and kind in _ROLES:
        return _message(_ROLES[kind], value["data"], _READ)
    if isinstance(value.get("role"), str) and not _MESSAGE.isdisjoint(value):
        return _with_role(value)
    if isinstance(kind, str) and kind in _ROLES and "content" in value:
        return _message(_ROLES[kind], value, _READ)
    if kind in ("function_call", "custom_tool_call") or (_is_part(value) and _call(value)):
        return ParsedMessage(role="assistant", calls=[call]) if (call := _call(value)) else None
    if kind in ("function_call_output", "custom_tool_call_output") or (_is_part(value) and _result(value)):
        return ParsedMessage(role="tool", results=[result]) if (result := _result(value)) else None
    if kind == "reasoning" and "summary" in value:
        thoughts = [text(fields(part).get("text")) for part in [*items(value["summary"]), *items(value.get("content"))]]
        return ParsedMessage(role="assistant", reasoning="\n\n".join(filter(None, thoughts)) or None)
    return None


def _with_role(value: dict[str, Any]) -> ParsedMessage | None:
    name = value["role"]
    role = _ROLES.get(name)
    if role is None:
        # Langfuse's handler for LangChain writes the name of the tool in place of the role.
        return ParsedMessage(
            role="tool", results=[Result(id="", output=value.get("content"), failed=None, name=name)], name=name
        )
    return _message(role, value, _READ_WITH_ROLE)


def _message(role: Role, value: dict[str, Any], taken: frozenset[str]) -> ParsedMessage:
    content = value.get("parts", value.get("content"))
    if role == "tool" and not any(
        isinstance(part, dict) and _is_part(part) and _result(part) for part in items(content)
    ):
        return ParsedMessage(role="tool", results=[_tool_message(value)], name=text(value.get("name")))
    if isinstance(content, dict):
        content = content.get("parts", [content])
    if role == "assistant":
        content = _calls_in(content) or content
    return _parsed(role, content, value, taken)


def _tool_message(value: dict[str, Any]) -> Result:
    status = value.get("status")
    call_id = text(value.get("tool_call_id")) or text(value.get("toolCallId"))
    return Result(
        id="",
        output=value.get("content"),
        failed=status == "error" if status in ("error", "success") else None,
        data=value.get("artifact"),
        call_ids=[call_id] if call_id else (),
        name=text(value.get("name")),
        metadata=rest(value, _READ_OF_RESULT),
    )


def _parsed(role: Role, content: Any, value: dict[str, Any], taken: frozenset[str] = _READ) -> ParsedMessage:
    """Build a message from its content and from the calls that some formats keep beside it, in `value`."""
    kept: list[Any] = []
    calls: list[Call] = []
    results: list[Result] = []
    thoughts: list[str] = []
    for part in items(content):
        if not isinstance(part, dict):
            kept.append(part)
        elif _is_plain_text(part):
            kept.append(_text_part(part))
        elif (thought := _thought(part)) is not None:
            thoughts.append(thought)
        elif call := _call(part):
            calls.append(call)
            if part.get("state") in ("output-available", "output-error"):
                results.append(_shown_result(part, call))
        elif result := _result(part):
            results.append(result)
        else:
            kept.append(_text_part(part))
    calls += _calls_beside(value, {call.id for call in calls})
    thoughts += [value[key] for key in ("reasoning_content", "reasoning") if isinstance(value.get(key), str)]
    return ParsedMessage(
        role=role,
        content=_kept(kept) if isinstance(content, list) else content_of(content),
        calls=calls,
        results=results,
        reasoning="\n\n".join(filter(None, thoughts)) or None,
        name=text(value.get("name")),
        model=text(value.get("model")),
        usage=fields(value.get("usage_metadata")) or fields(value.get("usage")) or None,
        metadata=rest(value, taken) | rest(fields(value.get("additional_kwargs")), ("tool_calls", "function_call")),
    )


def _calls_beside(value: dict[str, Any], known: set[str | None]) -> list[Call]:
    """Return the calls under `tool_calls` (LangChain repeats them in the content) or `function_call`."""
    extra = fields(value.get("additional_kwargs"))
    parts = items(value.get("tool_calls")) or items(extra.get("tool_calls"))
    calls = [call for part in parts if isinstance(part, dict) and (call := _call(part))]
    calls += [
        Call(
            id=text(part.get("id")),
            name=text(part.get("name")) or "",
            args=part.get("args"),
            metadata=rest(part, ("id", "name", "args")),
        )
        for part in items(value.get("invalid_tool_calls"))
        if isinstance(part, dict)
    ]
    legacy = value.get("function_call") or extra.get("function_call")
    if isinstance(legacy, dict):
        calls.append(Call(id=None, name=text(legacy.get("name")) or "", args=legacy.get("arguments")))
    return [call for call in calls if call.id is None or call.id not in known]


# --- Parts --------------------------------------------------------------------------------------------------------


def _is_part(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    return (
        "toolCallId" in value
        or "toolUse" in value
        or "toolResult" in value
        or "functionCall" in value
        or "functionResponse" in value
        or kind
        in (
            "text",
            "tool_use",
            "tool_result",
            "tool-call",
            "tool-result",
            "tool_call",
            "tool_call_response",
            "thinking",
        )
        or (kind == "function" and isinstance(value.get("function"), dict))
    )


def _call(part: Any) -> Call | None:
    """Parse a part that is a call in the form of any SDK; return None for any other."""
    if not isinstance(part, dict):
        return None
    kind = part.get("type")
    for key in ("toolUse", "functionCall", "function_call"):
        if isinstance(part.get(key), dict):
            return _named(part[key], part)
    if isinstance(part.get("function"), dict):
        return _named({"id": part.get("id"), **part["function"]}, part)
    if isinstance(part.get("custom"), dict):
        return _named({"id": part.get("id"), **part["custom"]}, part)
    if kind in ("tool_use", "tool_call", "function_call", "custom_tool_call", "server_tool_use"):
        return _named(part, {})
    if "toolName" in part and "toolCallId" in part and not {"output", "result"} & part.keys():
        return _named(part, {})
    if isinstance(kind, str) and kind.startswith(("tool-", "dynamic-tool")) and "state" in part:
        return _named({"name": kind.removeprefix("tool-"), **part, "toolName": part.get("toolName")}, {})
    if {"name", "args", "id"} <= part.keys():
        return _named(part, {})
    return None


_OUTPUTS = ("text", "json", "content", "error-text", "error-json")
"""Kinds of output of the AI SDK."""
_ARGS = ("input", "args", "arguments", "rawInput")
_IDS = ("call_id", "toolCallId", "toolUseId", "tool_call_id", "id")
_IDS_OF_RESULT = ("tool_use_id", *_IDS)


def _named(call: dict[str, Any], around: dict[str, Any]) -> Call:
    return Call(
        id=_first_text(call, _IDS),
        name=text(call.get("toolName")) or text(call.get("name")) or "",
        args=next((call[key] for key in _ARGS if key in call), None),
        metadata=rest(around, _READ_OF_CALL),
    )


def _first_text(value: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        if found := text(value.get(key)):
            return found
    return None


def _result(part: dict[str, Any]) -> Result | None:
    """Parse a part that is a result in the form of any SDK; return None for any other."""
    for key in ("toolResult", "functionResponse", "function_response"):
        if isinstance(part.get(key), dict):
            return _answered(part[key])
    kind = part.get("type")
    if kind in ("tool_result", "tool-result", "tool_call_response", "function_call_output", "custom_tool_call_output"):
        return _answered(part)
    if "toolCallId" in part and {"output", "result"} & part.keys() and "state" not in part:
        return _answered(part)
    return None


def _answered(part: dict[str, Any]) -> Result:
    output = next((part[key] for key in ("output", "result", "response", "content") if key in part), None)
    failed = next((part[key] for key in ("is_error", "isError") if isinstance(part.get(key), bool)), None)
    if part.get("status") in ("error", "success"):
        failed = part["status"] == "error"
    if isinstance(output, dict) and output.get("type") in _OUTPUTS and "value" in output:
        failed = True if output["type"] in ("error-text", "error-json") else failed
        output = output["value"]
    call_id = _first_text(part, _IDS_OF_RESULT)
    return Result(
        id="",
        output=output,
        failed=failed,
        call_ids=[call_id] if call_id else (),
        name=text(part.get("toolName")) or text(part.get("name")),
    )


def _shown_result(part: dict[str, Any], call: Call) -> Result:
    """Return the result beside a call in a part of a user interface message (AI SDK)."""
    failed = part["state"] == "output-error"
    output = part.get("errorText") if failed else part.get("output")
    return Result(id="", output=output, failed=failed or None, call_ids=[call.id] if call.id else (), name=call.name)


def _thought(part: dict[str, Any]) -> str | None:
    if part.get("type") == "thinking" or (part.get("type") == "reasoning" and "summary" not in part):
        return next(
            (part[key] for key in ("thinking", "reasoning", "text", "content") if isinstance(part.get(key), str)), None
        )
    if part.get("thought") is True and isinstance(part.get("text"), str):
        return str(part["text"])
    reasoning = fields(fields(part.get("reasoningContent")).get("reasoningText")).get("text")
    return reasoning if isinstance(reasoning, str) else None


def _is_plain_text(part: dict[str, Any]) -> bool:
    """Return whether a part is text and nothing else, as most are: it is not compared with the forms of calls and results."""
    return len(part) == 2 and part.get("type") == "text" and ("text" in part or "content" in part)


def _text_part(part: dict[str, Any]) -> Any:
    """Return a text part of OpenAI's Responses, the gen_ai conventions, Bedrock or Gemini in one form; others unchanged."""
    value = part.get("text") if isinstance(part.get("text"), str) else part.get("content")
    if part.get("type") in (None, "text", "input_text", "output_text") and isinstance(value, str):
        return {"type": "text", "text": value, **rest(part, _READ_OF_TEXT)}
    return part


def _kept(parts: list[Any]) -> str | list[Any] | None:
    """Return the joined text if all parts are text, otherwise the parts."""
    texts = [_only_text(part) for part in parts]
    if all(isinstance(item, str) for item in texts):
        return "\n\n".join(filter(None, texts)) or None
    return parts


def _only_text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    return None
