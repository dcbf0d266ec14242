"""OpenTelemetry's semantic conventions for generative AI, with the names that they had before.

Source: open-telemetry/semantic-conventions-genai (before version 1.42: semantic-conventions, docs/gen-ai). The contents of
messages are attributes (JSON text or structures) in newer versions, events of the span or log records in older ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from tracesite_sdk.normalize.json_values import fields, items, rest
from tracesite_sdk.spans.facts import Facts, between, cost, first, first_text, flattened_tools, milliseconds, usage
from tracesite_sdk.spans.observations import Kind
from tracesite_sdk.spans.span import Attributes, Span, SpanEvent
from tracesite_sdk.transcripts.parsing.message_shapes import decoded
from tracesite_sdk.transcripts.parsing.passages import passages_in

NAMES: dict[str, tuple[str, ...]] = {
    # Newest name first. The comment is the version from which on a name is the standard one.
    "operation": ("gen_ai.operation.name",),  # 1.28
    "session": ("gen_ai.conversation.id", "session.id", "spring.ai.chat.client.conversation.id"),  # 1.34
    "end_user": ("user.id", "enduser.id"),
    "agent": ("gen_ai.agent.name",),  # 1.31
    "workflow": ("gen_ai.workflow.name",),  # 1.38
    "model": ("gen_ai.response.model", "gen_ai.request.model"),
    "provider": ("gen_ai.provider.name", "gen_ai.system"),  # 1.37
    "response_id": ("gen_ai.response.id",),
    "finish_reasons": ("gen_ai.response.finish_reasons",),
    "instructions": ("gen_ai.system_instructions",),  # 1.37
    "input": ("gen_ai.input.messages", "gen_ai.agent.invocation_input"),  # 1.37; Semantic Kernel
    "output": ("gen_ai.output.messages", "gen_ai.output", "gen_ai.agent.invocation_output"),  # 1.37
    "prompt": ("gen_ai.prompt",),  # until 1.27, as the attribute of an event; Spring AI: of the span
    "completion": ("gen_ai.completion",),
    "tool": ("gen_ai.tool.name", "spring.ai.tool.definition.name"),
    "call_id": ("gen_ai.tool.call.id", "spring.ai.tool.call.id"),
    "arguments": (  # 1.38
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.args",
        "gen_ai.tool.input",
        "spring.ai.tool.call.arguments",
    ),
    "result": (  # 1.38
        "gen_ai.tool.call.result",
        "gen_ai.output",
        "gen_ai.tool.output",
        "spring.ai.tool.call.result",
        "gen_ai.event.content",
    ),
    "definitions": ("gen_ai.tool.definitions",),  # 1.38
    # Seconds: 1.39; the name of the metric, as Pydantic AI and the AI SDK use it; AgentOps
    "first_chunk": (
        "gen_ai.response.time_to_first_chunk",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.streaming.time_to_first_token",
    ),
    "error_type": ("error.type",),
    "query": ("gen_ai.retrieval.query.text",),
    "documents": ("gen_ai.retrieval.documents",),
}
TOKENS: dict[str, tuple[str, ...]] = {
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),  # 1.27
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "total_tokens": ("gen_ai.usage.total_tokens",),
    "cached_input_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.input_tokens.cached",
        "gen_ai.usage.cache_read_tokens",
        "gen_ai.usage.cached_input_tokens",
        "gen_ai.usage.cached_tokens",
        "gen_ai.usage.input_cached_tokens",  # LiveKit
        "gen_ai.usage.prompt_tokens_details.cached_tokens",
        "gen_ai.usage.input_tokens_details.cached_tokens",
        # Pydantic AI up to 1.62, the last three as the provider names them
        "gen_ai.usage.details.cache_read_tokens",
        "gen_ai.usage.details.cached_tokens",
        "gen_ai.usage.details.cache_read_input_tokens",
        "gen_ai.usage.details.cached_content_tokens",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_write_input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write_tokens",
        "gen_ai.usage.cache_creation_tokens",
        "gen_ai.usage.details.cache_write_tokens",
        "gen_ai.usage.details.cache_creation_input_tokens",
    ),
    "reasoning_tokens": (
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "gen_ai.usage.details.reasoning_tokens",
    ),
}
COST = ("gen_ai.usage.cost", "gen_ai.usage.total_cost", "operation.cost")  # not standardised; the last is Pydantic AI's
PARTS_OF_COST = ("gen_ai.usage.input_cost", "gen_ai.usage.output_cost")
KINDS: dict[str, Kind] = {
    "chat": "generation",
    "call_llm": "generation",
    "generate_content": "generation",
    "text_completion": "generation",
    "text": "generation",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "create_agent": "other",
    "embeddings": "other",
    "invoke_workflow": "agent",
    "workflow": "agent",
}
_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


def recognises(span: Span, families: Collection[str]) -> bool:
    return "gen_ai." in families or any(event.name.startswith("gen_ai.") for event in span.events)


def facts(span: Span) -> Facts:
    attributes = span.attributes
    # Until 1.37 Semantic Kernel has "chat.completions" and the like.
    kind = KINDS.get(str(attributes.get("gen_ai.operation.name", "")).partition(".")[0])
    if kind is None and first(attributes, NAMES["tool"]):
        kind = "tool"
    elif kind is None and first(attributes, NAMES["model"]) and first(attributes, TOKENS["output_tokens"]):
        kind = "generation"
    elif not first(attributes, (*NAMES["operation"], *NAMES["model"])) and _is_agent(span):
        kind = "agent"
    span_facts = Facts(
        kind=kind,
        is_embedding=attributes.get("gen_ai.operation.name") == "embeddings" or None,
        session_id=first_text(attributes, NAMES["session"]),
        end_user=first_text(attributes, NAMES["end_user"]),
        agent_name=first_text(attributes, NAMES["agent"]) or first_text(attributes, NAMES["workflow"]),
        metadata=_metadata(attributes),
    )
    if kind == "tool":
        span_facts.tool_name = first_text(attributes, NAMES["tool"])
        span_facts.call_id = first_text(attributes, NAMES["call_id"])
        span_facts.input, span_facts.output = _tool_values(span)
    else:
        span_facts.input, span_facts.output = _model_values(span)
    if kind != "tool":
        span_facts.model = first_text(attributes, NAMES["model"])
        span_facts.usage = usage(attributes, TOKENS)
        span_facts.cost = cost(attributes, COST, PARTS_OF_COST)
    if kind == "generation":
        span_facts.response_id = first_text(attributes, NAMES["response_id"])
        span_facts.tools = items(decoded(first(attributes, NAMES["definitions"]))) or flattened_tools(
            attributes, _FUNCTIONS
        )
        span_facts.parameters = _parameters(attributes)
        span_facts.time_to_first_token = _time_to_first_chunk(span)
    span_facts.passages = passages_in(first(attributes, NAMES["documents"])) or None
    return span_facts


def _is_agent(span: Span) -> bool:
    """Return whether a span without an operation is an agent: many have the name of the agent to which they belong."""
    is_named = _AGENT.match(span.name) is not None and first(span.attributes, NAMES["agent"])
    return bool(is_named or first(span.attributes, _INVOCATION))


def _time_to_first_chunk(span: Span) -> float | None:
    said = milliseconds(first(span.attributes, NAMES["first_chunk"]), in_seconds=True)
    chunks = (between(span.start, event.time) for event in span.events if event.name == _CHUNK)
    return said if said is not None else next(chunks, None)


def _metadata(attributes: Attributes) -> dict[str, Any]:
    named = ("provider", "finish_reasons", "error_type")
    return {name: value for name in named if (value := first(attributes, NAMES[name])) is not None}


_EVENT_CONTENT = "gen_ai.event.content"
_AGENT = re.compile(r"(?:invoke_agent|agent run)\b")
"""The names of the spans of agents, by Semantic Kernel and Pydantic AI."""
_INVOCATION = ("gen_ai.agent.invocation_input", "gen_ai.agent.invocation_output")
"""Of Semantic Kernel's agents."""
_CHUNK = "gen_ai.content.completion.chunk"
"""An event for each part of a stream, by OpenLLMetry."""
_FUNCTIONS = "gen_ai.request.functions."
"""Tools, flattened, by AgentOps."""


def _parameters(attributes: Attributes) -> dict[str, Any] | None:
    parameters = {
        name.removeprefix("gen_ai.request."): value
        for name, value in attributes.items()
        if name.startswith("gen_ai.request.") and name != "gen_ai.request.model" and not name.startswith(_FUNCTIONS)
    }
    return parameters or None


def _tool_values(span: Span) -> tuple[Any, Any]:
    args, result = first(span.attributes, NAMES["arguments"]), first(span.attributes, NAMES["result"])
    for event in span.events:
        if args is None and event.name == "gen_ai.tool.message":
            args = event.attributes.get("content", event.attributes.get(_EVENT_CONTENT))
        elif result is None and event.name == "gen_ai.choice":
            result = _joined_texts(decoded(event.attributes.get("message")))
    return decoded(args), result


def _joined_texts(value: Any) -> Any:
    """Return the text of a list of texts or text parts, and any other value as it is."""
    if isinstance(value, list) and value and all(isinstance(part, dict) and set(part) == {"text"} for part in value):
        return "\n".join(str(part["text"]) for part in value)
    return "\n".join(filter(None, value)) if _is_texts(value) else value


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _question(prompt: Any) -> Any:
    """Return the question of a list of texts without roles, which is the last one: those before it may be of anybody. Return
    any other prompt as it is."""
    if not _is_texts(prompt):
        return prompt
    texts = list(filter(None, prompt))
    return [{"role": "user", "content": texts[-1], **({"before": texts[:-1]} if texts[1:] else {})}] if texts else None


def _model_values(span: Span) -> tuple[Any, Any]:
    attributes = span.attributes
    messages = decoded(first(attributes, NAMES["input"]))
    output = _with_calls(decoded(first(attributes, NAMES["output"])))
    instructions = decoded(first(attributes, NAMES["instructions"]))
    if messages is None and output is None:
        messages, output = _values_of_events(span.events)
    if messages is None:
        messages = _question(decoded(first(attributes, NAMES["prompt"])))
    if output is None:
        output = _joined_texts(decoded(first(attributes, NAMES["completion"])))
    if messages is None:
        return ({"system": instructions} if instructions else None), output
    if instructions and isinstance(messages, list):
        messages = [{"role": "system", "parts": _parts(instructions)}, *messages]
    return messages, output


def _with_calls(output: Any) -> Any:
    """Return the message of a list of calls as any-agent writes it, and any other output as it is."""
    if not (isinstance(output, list) and output and all("tool.name" in fields(item) for item in output)):
        return output
    calls = [{"type": "tool_call", "name": call["tool.name"], "arguments": call.get("tool.args")} for call in output]
    return {"role": "assistant", "tool_calls": calls}


def _parts(instructions: Any) -> list[Any]:
    return instructions if isinstance(instructions, list) else [{"type": "text", "content": instructions}]


def _values_of_events(events: list[SpanEvent]) -> tuple[Any, Any]:
    """Return the messages that older versions send as events, and the choice."""
    messages: list[dict[str, Any]] = []
    output: Any = None
    for event in events:
        values = {name: decoded(value) for name, value in event.attributes.items()}
        body = values.pop("body", None)
        if _EVENT_CONTENT in values:
            # Azure's SDKs and Semantic Kernel: the message is JSON text in one attribute.
            content = values[_EVENT_CONTENT]
            values = dict(content) if isinstance(content, dict) else {"content": content}
            # Of threads of Azure's agents: {"content": {"text": {"value": ...}}}.
            if said := fields(fields(values.get("content")).get("text")).get("value"):
                values["content"] = said
        values |= body if isinstance(body, dict) else {}
        if event.name in _ROLES:
            # The id of a tool's message is that of the call.
            of_call = {"tool_call_id": values.get("id")} if event.name == "gen_ai.tool.message" else {}
            messages.append({"role": _ROLES[event.name], "content": "", **of_call, **values})
        elif event.name == "gen_ai.choice":
            message = values.get("message", rest(values, ("index", "finish_reason")))
            if not isinstance(message, dict):
                message = {"role": "assistant", "content": message}
            # Without its content, which is recorded only on request, a message is its role.
            output = {"role": "assistant", **message} if message.keys() - {"role"} else output
        elif event.name == "gen_ai.content.prompt":
            asked = _question(first(values, NAMES["prompt"]))
            are_messages = isinstance(asked, list) and all("role" in fields(message) for message in asked)
            messages += asked if are_messages else [{"role": "user", "content": asked}]
        elif event.name == "gen_ai.content.completion":
            output = _joined_texts(first(values, NAMES["completion"]))
        elif event.name == "gen_ai.client.inference.operation.details":
            messages = values.get("gen_ai.input.messages") or messages
            output = values.get("gen_ai.output.messages") or output
    return messages or None, output
