"""Pauses for a person, which libraries send as errors or as parts of an answer."""

from __future__ import annotations

import re
from typing import Any

from tracesite_sdk.normalize.json_values import as_json

from .span import Span

PARENT_COMMAND = "ParentCommand"
_EXCEPTIONS = ("GraphInterrupt", "NodeInterrupt", "GraphBubbleUp", PARENT_COMMAND)
"""By which LangGraph stops a tool or a graph without a failure: to wait for a person, or to go on in the graph around it."""
_NAMED = re.compile(rf"(?:[\w.]*\.)?({'|'.join(_EXCEPTIONS)})\b")
_REQUESTS = ("tool-approval-request", "mcp_approval_request", "tool_approval_item")
"""Parts of an answer that ask a person: of the AI SDK, OpenAI's Responses and OpenAI's Agents SDK."""


def pause_of(span: Span, error: str | None) -> str | None:
    """Return the exception by which a span has paused; None if it has not, or has failed."""
    named = [str(event.attributes.get("exception.type", "")) for event in span.events if event.name == "exception"]
    named += [str(span.attributes.get("error.type", "")), span.status_message, error or ""]
    found = next((match[1] for text in named if (match := _NAMED.match(text))), None)
    return found if span.status == "error" or error else None


def asks_a_person(output: Any) -> bool:
    """Return whether an answer asks a person before the agent goes on."""
    text = as_json(output)
    return any(f'"{request}"' in text for request in _REQUESTS)
