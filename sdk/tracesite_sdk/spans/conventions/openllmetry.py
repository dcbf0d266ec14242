"""OpenLLMetry (Traceloop): entities of a workflow, and the flattened messages of its earlier versions.

Source: traceloop/openllmetry, opentelemetry-semantic-conventions-ai.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tracesite_sdk.normalize.json_values import fields, items
from tracesite_sdk.spans.facts import Facts, below, between, cost, first, first_text, flattened_tools, listed, usage
from tracesite_sdk.spans.observations import Kind
from tracesite_sdk.spans.span import Attributes, Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

KIND = "traceloop.span.kind"
NAMES: dict[str, tuple[str, ...]] = {
    "session": (
        "traceloop.association.properties.session_id",
        "traceloop.association.properties.session.id",
        "session.id",
    ),
    "end_user": ("traceloop.association.properties.user_id", "user.id"),
    "entity": ("traceloop.entity.name",),
    "workflow": ("traceloop.workflow.name",),
    "input": ("traceloop.entity.input",),
    "output": ("traceloop.entity.output",),
    "model": ("gen_ai.response.model", "gen_ai.request.model", "llm.response.model", "llm.request.model"),
}
TOKENS: dict[str, tuple[str, ...]] = {
    "input_tokens": ("gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"),
    "total_tokens": ("llm.usage.total_tokens",),
    "cached_input_tokens": ("gen_ai.usage.cache_read_input_tokens",),
    "cache_write_tokens": ("gen_ai.usage.cache_creation_input_tokens",),
}
KINDS: dict[str, Kind] = {"tool": "tool", "agent": "agent", "workflow": "agent", "task": "other"}
_PROMPT = ("gen_ai.prompt.", "llm.prompts.")
_FUNCTIONS = "llm.request.functions."
_CHUNK = "llm.content.completion.chunk"
_COMPLETION = ("gen_ai.completion.", "llm.completions.")
_OF_REQUEST = ("llm.request.", *_PROMPT, *_COMPLETION)


def recognises(span: Span, families: Collection[str]) -> bool:
    return "traceloop." in families or (
        ("gen_ai." in families or "llm." in families) and any(name.startswith(_OF_REQUEST) for name in span.attributes)
    )


def facts(span: Span) -> Facts:
    attributes = span.attributes
    kind = KINDS.get(str(attributes.get(KIND, "")))
    if kind is None and attributes.get("llm.request.type") in ("chat", "completion"):
        kind = "generation"
    entity = first_text(attributes, NAMES["entity"])
    span_facts = Facts(
        kind=kind,
        is_embedding=attributes.get("llm.request.type") == "embedding" or None,
        session_id=first_text(attributes, NAMES["session"]),
        end_user=first_text(attributes, NAMES["end_user"]),
        input=_entity_value(first(attributes, NAMES["input"]), "inputs"),
        output=_entity_value(first(attributes, NAMES["output"]), "outputs"),
        agent_name=entity if attributes.get(KIND) == "agent" else None,
        tool_name=(entity or span.name.removesuffix(".tool")) if kind == "tool" else None,
    )
    if kind != "tool":
        span_facts.model = first_text(attributes, NAMES["model"])
        span_facts.usage = usage(attributes, TOKENS)
        span_facts.cost = cost(attributes, ("gen_ai.usage.cost", "llm.usage.cost"))
    if kind == "generation":
        span_facts.tools = flattened_tools(attributes, _FUNCTIONS)
        span_facts.time_to_first_token = next(
            (between(span.start, event.time) for event in span.events if event.name == _CHUNK), None
        )
    if messages := _messages(attributes, _PROMPT):
        span_facts.input = messages
    if messages := _messages(attributes, _COMPLETION):
        span_facts.output = messages
    return span_facts


def _entity_value(value: Any, key: str) -> Any:
    """Return the value of an entity, which the SDK's decorators wrap: {"args": [...], "kwargs": {...}}."""
    inner = decoded(value)
    if isinstance(inner, dict) and isinstance(inner.get(key), dict):
        return inner[key]
    if isinstance(inner, dict) and inner.keys() == {"args", "kwargs"}:
        return inner["kwargs"] if inner["kwargs"] and not inner["args"] else inner
    return inner


def _messages(attributes: Attributes, prefixes: tuple[str, ...]) -> list[dict[str, Any]]:
    listed_messages = next((tree for prefix in prefixes if (tree := listed(below(attributes, prefix)))), None)
    messages = []
    for item in items(listed_messages):
        message = dict(fields(item))
        calls = [{"type": "tool_call", **fields(call)} for call in items(message.pop("tool_calls", None))]
        message["content"] = decoded(message.get("content"))
        messages.append({"role": "assistant", **message, **({"tool_calls": calls} if calls else {})})
    return messages
