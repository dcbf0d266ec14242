"""Contexts: values that are stored once and referred to by a digest of their content. Pure functions.

A conversation is stored entry by entry, because the next request contains it again with more entries at its end. Entries
are shared by all runs of a session in a month (context_rows.py). So is the input of a step: its system prompt, its tools
and its messages are entries, in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from tracesite_sdk import records

from . import pg_text

CONTEXT_REF = "contextRef"
"""The key of an object that stands for a value in the contexts of its session."""

Kind = Literal["prompt", "conversation", "variables", "context", "value", "input", "entry"]
"""A `context` is a conversation with variables or a prompt; a `value` is any large field; an `input` is that of a step; an
`entry` is a part of a conversation or of an input."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """A value that is stored by reference."""

    ref: str
    kind: Kind
    content: str
    """JSON text, see models.Context."""
    length: int
    size: int
    entries: tuple[Context, ...] | None = None
    """For a conversation and an input."""


def context_of(content: dict[str, Any], conversation: Sequence[Any] | None) -> Context:
    """Return the context of a prompt's text, of variables, of a conversation, or of several of them."""
    below = None if conversation is None else _entries(conversation)
    encoded = pg_text.sorted_json(content)
    parts = [*content, *([] if below is None else ["conversation"])]
    kind: Kind = "context"
    if len(parts) == 1:
        kind = {"text": "prompt", "variables": "variables", "conversation": "conversation"}[parts[0]]  # type: ignore[assignment]  # words of Kind
    if below is not None:
        length = len(below)
    else:
        length = length_of(content["text"]) if "text" in content else len(content["variables"])
    refs = () if below is None else [entry.ref for entry in below]
    size = len(encoded.encode()) if content else 0
    return Context(
        ref=_ref("context" if below is None else "conversation", encoded, *refs),
        kind=kind,
        content=encoded,
        length=length,
        size=size + _size_of(below or ()),
        entries=below,
    )


def value_of(value: Any) -> Context:
    """Return the context of any JSON value."""
    return _value(value, "value")


def input_of(input_: records.ModelInput) -> Context | None:
    """Return the context of a step's input, None if the input is empty."""
    system = [] if input_.system in (None, "", []) else [input_.system]
    tools, messages = input_.tools or [], input_.messages or []
    if not (system or tools or messages or input_.parameters):
        return None
    entries = _entries([*system, *tools, *messages])
    content: dict[str, Any] = {"system": len(system), "tools": len(tools)}
    if input_.parameters:
        content["parameters"] = input_.parameters
    encoded = pg_text.sorted_json(content)
    return Context(
        ref=_ref("input", encoded, *(entry.ref for entry in entries)),
        kind="input",
        content=encoded,
        length=len(messages),
        size=len(encoded.encode()) + _size_of(entries),
        entries=entries,
    )


def length_of(value: Any) -> int:
    return len(value if isinstance(value, str) else pg_text.json(value))


def _entries(values: Sequence[Any]) -> tuple[Context, ...]:
    return tuple(_value(value, "entry") for value in values)


def _value(value: Any, kind: Kind) -> Context:
    encoded = pg_text.sorted_json(value)
    size = len(encoded.encode())
    return Context(ref=_ref(kind, encoded), kind=kind, content=f'{{"value":{encoded}}}', length=size, size=size)


def _size_of(contexts: Sequence[Context]) -> int:
    return sum(context.size for context in contexts)


def _ref(*parts: str) -> str:
    # No part contains U+0000, because JSON escapes it.
    return "ctx_" + sha256("\x00".join(parts).encode()).hexdigest()[:32]
