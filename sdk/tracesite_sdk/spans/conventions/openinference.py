"""OpenInference (Arize Phoenix): flattened messages, and the input and output of every span as text.

Source: Arize-ai/openinference, spec/semantic_conventions.md.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tracesite_sdk.normalize.json_values import fields, items
from tracesite_sdk.spans.facts import Facts, below, between, cost, first, first_text, listed, usage
from tracesite_sdk.spans.observations import Kind
from tracesite_sdk.spans.span import Attributes, Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded, messages_in
from tracesite_sdk.transcripts.parsing.passages import passages_in

KIND = "openinference.span.kind"
NAMES: dict[str, tuple[str, ...]] = {
    "session": ("session.id",),
    "end_user": ("user.id",),
    "agent": ("agent.name", "graph.node.id"),
    "model": ("llm.model_name", "embedding.model_name"),
    "provider": ("llm.provider", "llm.system"),
    "tool": ("tool.name",),
    "call_id": ("tool.id", "tool_call.id"),
    "arguments": ("tool.parameters",),
    "input": ("input.value",),
    "output": ("output.value",),
    "tags": ("tag.tags",),
    "metadata": ("metadata",),
    "parameters": ("llm.invocation_parameters",),
    "finish_reasons": ("llm.finish_reason",),
}
TOKENS: dict[str, tuple[str, ...]] = {
    "input_tokens": ("llm.token_count.prompt",),
    "output_tokens": ("llm.token_count.completion",),
    "total_tokens": ("llm.token_count.total",),
    "cached_input_tokens": ("llm.token_count.prompt_details.cache_read",),
    "cache_write_tokens": ("llm.token_count.prompt_details.cache_write",),
    "reasoning_tokens": ("llm.token_count.completion_details.reasoning",),
}
KINDS: dict[str, Kind] = {"LLM": "generation", "TOOL": "tool", "AGENT": "agent"}
_INPUT_MESSAGES = "llm.input_messages."
_OUTPUT_MESSAGES = "llm.output_messages."
_TOOLS = "llm.tools."
_DOCUMENTS = "retrieval.documents."
_FIRST_CHUNK = "First Token Stream Event"


def recognises(span: Span, families: Collection[str]) -> bool:
    return (
        KIND in span.attributes
        or "llm." in families
        or ("input." in families and any(name.startswith("input.value") for name in span.attributes))
    )


def facts(span: Span) -> Facts:
    attributes = span.attributes
    said = str(attributes.get(KIND, "")).upper()
    kind: Kind | None = KINDS.get(said, "other" if said else None)
    span_facts = Facts(
        kind=kind,
        is_root_of_run=said in ("AGENT", "CHAIN") or None,
        is_embedding=said == "EMBEDDING" or None,
        session_id=first_text(attributes, NAMES["session"]),
        end_user=first_text(attributes, NAMES["end_user"]),
        agent_name=first_text(attributes, NAMES["agent"]) or _agent_of_langchain(attributes),
        input=decoded(first(attributes, NAMES["input"])),
        output=decoded(first(attributes, NAMES["output"])),
        tags=[str(tag) for tag in items(decoded(first(attributes, NAMES["tags"])))],
        metadata=_metadata(attributes),
    )
    if kind != "tool":
        span_facts.model = first_text(attributes, NAMES["model"])
        span_facts.usage = usage(attributes, TOKENS)
        span_facts.cost = cost(attributes, ("llm.cost.total",), ("llm.cost.prompt", "llm.cost.completion"))
    if kind == "generation":
        span_facts.parameters = fields(decoded(first(attributes, NAMES["parameters"]))) or None
        span_facts.tools = _tools(attributes) or None
        span_facts.time_to_first_token = next(
            (between(span.start, event.time) for event in span.events if event.name == _FIRST_CHUNK), None
        )
        span_facts.input = _messages(attributes, _INPUT_MESSAGES) or span_facts.input
        messages = _messages(attributes, _OUTPUT_MESSAGES)
        # The value often has more than the flattened messages, such as the reasoning.
        if messages and not _has_answer(span_facts.output):
            span_facts.output = messages
    elif said == "RETRIEVER":
        documents = [fields(item).get("document") for item in items(listed(below(attributes, _DOCUMENTS)))]
        span_facts.passages = passages_in(documents) or passages_in(span_facts.output) or None
    elif kind == "tool":
        span_facts.tool_name = first_text(attributes, NAMES["tool"])
        span_facts.call_id = first_text(attributes, NAMES["call_id"])
        if span_facts.input is None:
            span_facts.input = decoded(first(attributes, NAMES["arguments"]))
    return span_facts


def _tools(attributes: Attributes) -> list[Any]:
    tools = (fields(fields(item).get("tool")) for item in items(listed(below(attributes, _TOOLS))))
    return [decoded(tool.get("json_schema", tool)) for tool in tools if tool]


def _agent_of_langchain(attributes: Attributes) -> str | None:
    metadata = fields(decoded(attributes.get("metadata")))
    return first_text(metadata, ("lc_agent_name",))


def _has_answer(output: Any) -> bool:
    return any(message.content or message.calls for message in messages_in(output, "assistant"))


def _messages(attributes: Attributes, prefix: str) -> list[dict[str, Any]]:
    """Return the flattened messages below a prefix, in the shape of OpenAI's."""
    wrapped = listed(below(attributes, prefix))
    messages = (fields(fields(item).get("message")) for item in items(wrapped))
    return [_message(message) for message in messages if message]


def _message(message: dict[str, Any]) -> dict[str, Any]:
    calls = [fields(fields(item).get("tool_call")) for item in items(message.get("tool_calls"))]
    parts = [fields(fields(item).get("message_content")) for item in items(message.get("contents"))]
    content: Any = message.get("content")
    if parts:
        content = [_part(part) for part in parts]
    legacy = {
        "name": message.get("function_call_name"),
        "arguments": message.get("function_call_arguments_json"),
    }
    return {
        "role": message.get("role", "assistant"),
        "content": content,
        **({"tool_calls": calls} if calls else {}),
        **({"tool_call_id": message["tool_call_id"]} if "tool_call_id" in message else {}),
        **({"name": message["name"]} if "name" in message else {}),
        **({"function_call": legacy} if legacy["name"] else {}),
    }


def _part(part: dict[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "image":
            url = fields(fields(part.get("image")).get("image")).get("url")
            return {"type": "image_url", "image_url": {"url": url}}
        case "reasoning":
            return {"type": "thinking", "thinking": part.get("text", ""), **part}
        case _:
            return part


def _metadata(attributes: Attributes) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for name in ("provider", "finish_reasons", "metadata"):
        if (value := first(attributes, NAMES[name])) is not None:
            metadata[name] = decoded(value)
    return metadata
