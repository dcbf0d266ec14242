"""Pauses for a person, which libraries send as errors or as parts of an answer."""

from __future__ import annotations

import re
from typing import Any

from tracesite_sdk.normalize.json_values import as_json

from .span import Span

PARENT_COMMAND = "ParentCommand"
_EXCEPTIONS = ("GraphInterrupt", "NodeInterrupt", "GraphBubbleUp", PARENT_COMMAND)
"""By which LangGraph stops a tool or a graph without a failure: to wait for a person, or to go on in the graph around it."""
_NAMED = re.compile(rf"(?:[\w.]*\.)?({'|'.join(_EXCEPTIONS)})(?:[(:]|$)")
_REQUESTS = ("tool-approval-request", "mcp_approval_request", "tool_approval_item")
"""Parts of an answer that ask a person: of the AI SDK, OpenAI's Responses and OpenAI's Agents SDK."""


def pause_of(span: Span, error: str | None) -> str | None:
    """Return the exception by which a span has paused; None if it has not, or has failed."""
    if span.status != "error" and not error:
        return None
    raised = [event.attributes.get("exception.type") for event in span.events if event.name == "exception"]
    # An earlier exception was caught; a message may name one that is not its own.
    types = [raised[-1] if raised else span.attributes.get("error.type")]
    found = (_NAMED.match(str(text)) for text in (types if types[0] else (span.status_message, error)) if text)
    exception = next(filter(None, found), None)
    return exception[1] if exception else None


def asks_a_person(output: Any) -> bool:
    """Return whether an answer asks a person before the agent goes on."""
    text = as_json(output)
    return any(f'"{request}"' in text for request in _REQUESTS)
