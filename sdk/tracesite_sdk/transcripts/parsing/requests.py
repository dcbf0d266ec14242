"""Parse a request to a model in any known shape into what the model was asked.

The parts keep the form of their provider: nothing is translated from one API to another.
"""

from __future__ import annotations

from typing import Any

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import fields
from tracesite_sdk.records.request_parts import MESSAGES, SYSTEM, TOOLS

from .message_shapes import decoded

_NOTHING: tuple[Any, ...] = (None, "", [], {})


def model_input(
    value: Any, *, system: Any = None, tools: Any = None, parameters: dict[str, Any] | None = None
) -> records.ModelInput | None:
    """Return what the model was asked; None if nothing is known.

    `value` is a whole request, its messages, one message or a prompt; the other arguments are what is known besides, and
    win. Tools among the parameters are the tools.
    """
    others: dict[str, Any] = {}
    messages = value
    if isinstance(value, dict) and "role" not in value:
        others = {name: item for name, item in value.items() if item not in _NOTHING}
        name = next((name for name in MESSAGES if name in others), None)
        system = system if system not in _NOTHING else _taken(others, SYSTEM)
        tools = tools or _taken(others, TOOLS)
        # Without messages, the object itself is what was asked, unless it only had a system prompt or tools.
        messages = others.pop(name) if name else others or None
        others = others if name else {}
    rest = {**others, **(parameters or {})}
    among_parameters = _taken(rest, TOOLS)
    tools = tools or among_parameters
    asked = records.ModelInput(
        messages=_messages(messages),
        system=None if system in _NOTHING else system,
        tools=[decoded(tool) for tool in tools] if isinstance(tools, list) else [tools] if tools else None,
        parameters=rest or None,
    )
    return (
        asked
        if any(item is not None for item in (asked.messages, asked.system, asked.tools, asked.parameters))
        else None
    )


def _messages(value: Any) -> list[Any] | None:
    if value in _NOTHING:
        return None
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        return [value]
    # LangChain sends batches: a list of conversations.
    return [*map(_constructed, value[0] if len(value) == 1 and isinstance(value[0], list) else value)] or None


def _constructed(message: Any) -> Any:
    """Return the fields of a message of LangChain that was written as the call of its constructor, which says the same with
    more words; any other value as it is."""
    if not isinstance(message, dict) or message.get("lc") != 1 or message.get("type") != "constructor":
        return message
    given = fields(message.get("kwargs"))
    return given if "type" in given else message


def _taken(values: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Remove and return the first of the values that is there."""
    name = next((name for name in names if values.get(name) not in _NOTHING), None)
    return values.pop(name) if name else None
