"""The AI SDK of Vercel (`experimental_telemetry`).

Source: vercel/ai, packages/ai/src/telemetry and the SDK's documentation "Telemetry".
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tracesite_sdk.normalize.json_values import fields, items
from tracesite_sdk.spans.facts import Facts, below, first, first_text, milliseconds, usage
from tracesite_sdk.spans.observations import Kind
from tracesite_sdk.spans.span import Attributes, Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

OPERATION = "ai.operationId"
NAMES: dict[str, tuple[str, ...]] = {
    "session": ("ai.telemetry.metadata.sessionId", "ai.telemetry.metadata.session_id", "session.id"),
    "end_user": ("ai.telemetry.metadata.userId", "ai.telemetry.metadata.user_id", "user.id"),
    "agent": ("ai.telemetry.functionId",),
    "model": ("ai.response.model", "ai.model.id"),
    "provider": ("ai.model.provider",),
    "messages": ("ai.prompt.messages", "ai.prompt"),
    "text": ("ai.response.text", "ai.response.object", "ai.result.text"),
    "calls": ("ai.response.toolCalls", "ai.result.toolCalls"),
    "reasoning": ("ai.response.reasoning",),
    "finish_reasons": ("ai.response.finishReason", "ai.finishReason"),
    "tool": ("ai.toolCall.name",),
    "call_id": ("ai.toolCall.id",),
    "arguments": ("ai.toolCall.args", "ai.toolCall.input"),
    "result": ("ai.toolCall.result", "ai.toolCall.output"),
    "first_chunk": ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk"),
    "response_id": ("ai.response.id",),
}
TOKENS: dict[str, tuple[str, ...]] = {
    # The last one is that of embeddings.
    "input_tokens": ("ai.usage.inputTokens", "ai.usage.promptTokens", "ai.usage.tokens"),
    "output_tokens": ("ai.usage.outputTokens", "ai.usage.completionTokens"),
    "total_tokens": ("ai.usage.totalTokens",),
    "cached_input_tokens": ("ai.usage.cachedInputTokens", "ai.usage.inputTokenDetails.cacheReadTokens"),
    "cache_write_tokens": ("ai.usage.inputTokenDetails.cacheWriteTokens",),
    "reasoning_tokens": ("ai.usage.reasoningTokens", "ai.usage.outputTokenDetails.reasoningTokens"),
}
_METADATA = "ai.telemetry.metadata."


def recognises(_span: Span, families: Collection[str]) -> bool:
    return "ai." in families


def facts(span: Span) -> Facts:
    attributes = span.attributes
    operation = str(attributes.get(OPERATION, ""))
    kind: Kind | None = None
    if operation == "ai.toolCall":
        kind = "tool"
    elif operation.startswith(("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")):
        kind = "generation"
    elif operation:
        kind = "other"
    span_facts = Facts(
        kind=kind,
        is_embedding=operation.startswith("ai.embed") or None,
        session_id=first_text(attributes, NAMES["session"]),
        end_user=first_text(attributes, NAMES["end_user"]),
        agent_name=first_text(attributes, NAMES["agent"]),
        metadata=_metadata(attributes),
    )
    if kind == "tool":
        span_facts.tool_name = first_text(attributes, NAMES["tool"])
        span_facts.call_id = first_text(attributes, NAMES["call_id"])
        span_facts.input = decoded(first(attributes, NAMES["arguments"]))
        span_facts.output = decoded(first(attributes, NAMES["result"]))
    else:
        span_facts.model = first_text(attributes, NAMES["model"])
        # The outer span of a request that made several has their sum.
        span_facts.usage = usage(attributes, TOKENS)
    if kind == "generation":
        span_facts.response_id = first_text(attributes, NAMES["response_id"])
        span_facts.input = decoded(first(attributes, NAMES["messages"]))
        span_facts.tools = [*map(decoded, items(attributes.get("ai.prompt.tools")))] or None
        span_facts.parameters = _parameters(attributes)
        span_facts.time_to_first_token = milliseconds(first(attributes, NAMES["first_chunk"]))
        span_facts.output = _answer(attributes)
    return span_facts


def _answer(attributes: Attributes) -> dict[str, Any] | None:
    text, calls = first(attributes, NAMES["text"]), items(decoded(first(attributes, NAMES["calls"])))
    reasoning = first_text(attributes, NAMES["reasoning"])
    if text is None and not calls and not reasoning:
        return None
    parts = [{"type": "text", "text": text if isinstance(text, str) else str(text)}] if text else []
    return {
        "role": "assistant",
        "content": [*parts, *({"type": "tool-call", **fields(call)} for call in calls)],
        **({"reasoning": reasoning} if reasoning else {}),
    }


def _parameters(attributes: Attributes) -> dict[str, Any] | None:
    parameters = {
        name: decoded(value) for name, value in below(attributes, "ai.settings.").items() if value not in (None, "")
    }
    if (choice := attributes.get("ai.prompt.toolChoice")) is not None:
        parameters["toolChoice"] = decoded(choice)
    return parameters or None


def _metadata(attributes: Attributes) -> dict[str, Any]:
    names = ("provider", "finish_reasons")
    metadata = {name: value for name in names if (value := first(attributes, NAMES[name])) is not None}
    own = below(attributes, _METADATA)
    return metadata | ({"metadata": own} if own else {})
