"""LangSmith: attributes on OpenTelemetry spans, and runs of its own protocol (langsmith_runs.py).

Source: the LangSmith documentation, "Trace with OpenTelemetry" and "Run (span) data format"; langchain-core's LangChainTracer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tracesite_sdk.normalize.json_values import fields, items, text
from tracesite_sdk.spans.facts import Facts, below, between, cost, first_text, usage
from tracesite_sdk.spans.observations import Kind
from tracesite_sdk.spans.span import Attributes, Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded
from tracesite_sdk.transcripts.parsing.passages import passages_in

KINDS: dict[str, Kind] = {"llm": "generation", "chat_model": "generation", "tool": "tool"}
NAMES: dict[str, tuple[str, ...]] = {
    "id": ("langsmith.run.id",),
    "parent": ("langsmith.run.parent_run_id",),
    "input": ("langsmith.run.inputs",),
    "output": ("langsmith.run.outputs",),
    "error": ("langsmith.run.error",),
    "call_id": ("langsmith.run.extra.tool_call_id",),
    "parameters": ("langsmith.run.extra.invocation_params",),
    "project": ("langsmith.run.session_name",),
    "integration": ("langsmith.metadata.ls_integration",),
    "model": ("langsmith.metadata.ls_model_name",),
    "usage": ("langsmith.metadata.usage_metadata",),
    "thread": ("langsmith.metadata.session_id", "langsmith.metadata.thread_id", "langsmith.metadata.conversation_id"),
    "end_user": ("langsmith.metadata.user_id",),
}
TOKENS: dict[str, tuple[str, ...]] = {
    "input_tokens": ("langsmith.run.prompt_tokens",),
    "output_tokens": ("langsmith.run.completion_tokens",),
}
"""Counts of the API, which sums them up in runs that are no requests."""
COST = ("langsmith.run.total_cost",)
PARTS_OF_COST = ("langsmith.run.prompt_cost", "langsmith.run.completion_cost")
_STEPS = ("graph:step:", "seq:step:", "map:key:")
"""Tags that LangChain gives to the parts of a graph or a sequence."""


def recognises(_span: Span, families: Collection[str]) -> bool:
    return "langsmith." in families


def facts(span: Span) -> Facts:
    attributes = span.attributes
    said = str(attributes.get("langsmith.span.kind", "")).lower()
    kind: Kind | None = KINDS.get(said, "other" if said else None)
    metadata = below(attributes, "langsmith.metadata.")
    found = Facts(
        kind=kind,
        session_id=first_text(attributes, ("langsmith.trace.session_id", *NAMES["thread"])),
        end_user=first_text(attributes, NAMES["end_user"]),
        title=first_text(attributes, ("langsmith.trace.name",)),
        tool_name=span.name if kind == "tool" else None,
        input=decoded(attributes.get("gen_ai.prompt")),
        output=decoded(attributes.get("gen_ai.completion")),
        tags=_tags(attributes.get("langsmith.span.tags")),
        metadata={"metadata": metadata} if metadata else {},
    )
    if said == "retriever":
        found.passages = passages_in(attributes.get(NAMES["output"][0], found.output)) or None
    return _of_run(span, found) if first_text(attributes, NAMES["id"]) else found


def _tags(value: Any) -> list[str]:
    tags = value.split(",") if isinstance(value, str) else [str(tag) for tag in items(value)]
    return [tag.strip() for tag in tags if tag.strip() and not tag.strip().startswith(_STEPS)]


# --- Runs -------------------------------------------------------------------------------------------------------------


def _of_run(span: Span, found: Facts) -> Facts:
    attributes = span.attributes
    found.input = attributes.get(NAMES["input"][0])
    found.output = _unwrapped(attributes.get(NAMES["output"][0]))
    error = first_text(attributes, NAMES["error"])
    found.error = _without_traceback(error) if error else None
    found.call_id = first_text(attributes, NAMES["call_id"])
    if project := first_text(attributes, NAMES["project"]):
        found.metadata["project"] = project
    if found.kind == "generation":
        parameters = fields(attributes.get(NAMES["parameters"][0]))
        reply = _reply(found.output)
        about = fields(reply.get("response_metadata"))
        named = (about.get("model_name"), about.get("model"), attributes.get(NAMES["model"][0]))
        found.model = next(
            filter(None, map(text, (*named, parameters.get("model"), parameters.get("model_name")))), None
        )
        found.usage = fields(attributes.get(NAMES["usage"][0])) or fields(reply.get("usage_metadata")) or None
        found.usage = found.usage or usage(attributes, TOKENS)
        found.cost = cost(attributes, COST, PARTS_OF_COST)
        found.parameters = parameters or None
        found.time_to_first_token = next(
            (between(span.start, event.time) for event in span.events if event.name == "new_token"), None
        )
    elif found.kind == "other" and _is_graph(attributes):
        found.kind, found.agent_name = "agent", span.name
    elif found.kind == "other" and not span.parent_id:
        found.is_root_of_run = True
    return found


def _is_graph(attributes: Attributes) -> bool:
    """Return whether a run is a whole graph of LangGraph, not one of its nodes or conditions."""
    tags = items(attributes.get("langsmith.span.tags"))
    is_part = any(isinstance(tag, str) and tag.startswith(_STEPS) for tag in tags)
    return first_text(attributes, NAMES["integration"]) == "langgraph" and not is_part


def _unwrapped(outputs: Any) -> Any:
    """Return the value of a function that returned no object."""
    return outputs["output"] if isinstance(outputs, dict) and list(outputs) == ["output"] else outputs


def _reply(output: Any) -> dict[str, Any]:
    """Return the fields of the message in LangChain's LLMResult, or of a message or a result with usage of its own."""
    value = fields(output)
    first = items(items(value.get("generations"))[:1] and value["generations"][0])[:1]
    message = fields(fields(first[0]).get("message")) if first else value
    return fields(message.get("kwargs")) or message


def _without_traceback(error: str) -> str:
    """Return the error without the traceback that the SDK appends."""
    return error.partition("Traceback (most recent call last)")[0].strip() or error
